//! JSON-RPC error objects and the codes both eras define.
//!
//! Spec: 2026-07-28 basic/index, "Error Codes"; 2025-11-25 schema.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::object::{self, RawObject};

/// Invalid JSON was received.
pub const PARSE_ERROR: i64 = -32700;
/// The JSON sent is not a valid request.
pub const INVALID_REQUEST: i64 = -32600;
/// The method does not exist or is not available.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The params of the method are invalid.
pub const INVALID_PARAMS: i64 = -32602;
/// Something failed on this side.
pub const INTERNAL_ERROR: i64 = -32603;
/// Modern: headers and body disagree, or a required header is missing.
pub const HEADER_MISMATCH: i64 = -32020;
/// Modern: the request needs a capability that the client did not declare.
pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
/// Modern: the protocol version is not served here.
pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;
/// Legacy: resource not found; never emitted towards a modern client.
pub const LEGACY_RESOURCE_NOT_FOUND: i64 = -32002;
/// Legacy (2025-11-25): url elicitations are needed first; never emitted towards a modern client.
pub const LEGACY_URL_ELICITATION_REQUIRED: i64 = -32042;

/// A JSON-RPC error: code, message, and data that is kept as raw JSON.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorObject {
    /// What kind of error it is.
    pub code: i64,
    /// One sentence about it.
    pub message: String,
    /// Anything more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl ErrorObject {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The same error with `data`.
    #[must_use]
    pub fn with_data(mut self, data: &Value) -> Self {
        self.data = serde_json::value::to_raw_value(data).ok();
        self
    }

    /// Reads an error; `None` for what has no words. Some libraries leave the message out, write the code in another
    /// form, or give the message alone: what the server said is kept all the same.
    #[must_use]
    pub fn parse(raw: &RawValue) -> Option<Self> {
        if let Some(message) = object::string(raw) {
            return Some(Self::new(INTERNAL_ERROR, message));
        }
        let members = RawObject::of(raw).ok()?;
        let code = members.member("code").and_then(integer);
        let code = code.unwrap_or(INTERNAL_ERROR);
        let message = match members.member("message") {
            Some(said) => object::string(said).unwrap_or(said.get().into()),
            None if members.is_empty() => return None,
            None => "the server gave no message".into(),
        };
        let data = members.member("data").filter(|data| !object::is_null(data));
        Some(Self {
            code,
            message: message.into_owned(),
            data: data.map(ToOwned::to_owned),
        })
    }

    /// The error as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = format!(r#"{{"code":{},"message":"#, self.code);
        out.push_str(&Value::from(self.message.as_str()).to_string());
        if let Some(data) = &self.data {
            out.push_str(r#","data":"#);
            out.push_str(data.get());
        }
        out.push('}');
        out
    }
}

/// An integer, also where it is written as a string or with a fraction of nothing.
fn integer(raw: &RawValue) -> Option<i64> {
    let text = raw.get().trim_matches('"');
    text.strip_suffix(".0").unwrap_or(text).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_error_are_kept_whatever_its_form() {
        for (text, expected) in [
            (
                r#"{"code":-1,"message":"m","data":{"a":1}}"#,
                Some(r#"{"code":-1,"message":"m","data":{"a":1}}"#),
            ),
            (
                r#"{"code":-1,"message":"m","data":null,"more":1}"#,
                Some(r#"{"code":-1,"message":"m"}"#),
            ),
            (
                r#"{"code":-32601.0,"message":"m"}"#,
                Some(r#"{"code":-32601,"message":"m"}"#),
            ),
            (
                r#"{"code":"-32601","message":"m"}"#,
                Some(r#"{"code":-32601,"message":"m"}"#),
            ),
            (
                r#"{"code":1000000000000000000000000000000,"message":"m"}"#,
                Some(r#"{"code":-32603,"message":"m"}"#),
            ),
            (
                r#"{"code":"E_BUSY","message":{"text":"m"}}"#,
                Some(r#"{"code":-32603,"message":"{\"text\":\"m\"}"}"#),
            ),
            (
                r#"{"code":1}"#,
                Some(r#"{"code":1,"message":"the server gave no message"}"#),
            ),
            (r#""m""#, Some(r#"{"code":-32603,"message":"m"}"#)),
            ("{}", None),
            ("7", None),
            (r#"{"code":1,"code":2,"message":"m"}"#, None),
        ] {
            let raw: &RawValue = serde_json::from_str(text).unwrap();
            let read = ErrorObject::parse(raw).map(|error| error.to_json());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }
}
