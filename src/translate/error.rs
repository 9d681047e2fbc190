//! Errors of a legacy server as modern errors.
//!
//! −32002 (resource not found) becomes −32602. Codes from −32020 to −32099 belong to the modern spec: a
//! legacy server that happened to use one would be misread as a modern one, so such an error becomes −32603
//! and keeps its code in `data`. Everything else keeps code, message and data. −32042 never arrives here
//! when it can be asked instead (see `input_request::from_url_error`).
//! Spec: 2026-07-28 basic/index, "Error Codes".

use serde_json::json;

use crate::wire::error::{self, ErrorObject};

/// The range that the modern spec reserves for itself.
const RESERVED: std::ops::RangeInclusive<i64> = -32099..=-32020;

/// The modern form of a legacy error.
#[must_use]
pub fn to_modern(error: ErrorObject) -> ErrorObject {
    match error.code {
        error::LEGACY_RESOURCE_NOT_FOUND => ErrorObject {
            code: error::INVALID_PARAMS,
            ..error
        },
        code if RESERVED.contains(&code) => ErrorObject::new(error::INTERNAL_ERROR, error.message)
            .with_data(&json!({"legacyCode": code, "legacyData": error.data})),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_mapped_and_the_rest_is_kept() {
        for (code, expected) in [
            (-32002, -32602),
            (-32601, -32601),
            (-32602, -32602),
            (-32603, -32603),
            (0, 0),
            (-32000, -32000),
            (-32001, -32001),
            (-32021, -32603),
            (-32042, -32603),
            (1234, 1234),
        ] {
            let mapped = to_modern(ErrorObject::new(code, "m").with_data(&json!({"uri": "x"})));
            assert_eq!(mapped.code, expected, "{code}");
            assert_eq!(mapped.message, "m");
            assert!(mapped.data.unwrap().get().contains("uri"));
        }
    }
}
