//! Header names of both eras and the value encoding of mirrored headers.
//!
//! Spec: 2026-07-28 basic/transports/streamable-http, "Request Metadata" and "Value Encoding".

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};

/// Protocol version of a request, both eras (from 2025-06-18).
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// Modern: the method, mirrored from the body.
pub const METHOD: &str = "mcp-method";
/// Modern: the name or URI, mirrored from the body.
pub const NAME: &str = "mcp-name";
/// Modern: how the names of headers begin that mirror arguments of a tool.
pub const PARAM_PREFIX: &str = "mcp-param-";
/// Legacy: the session a request belongs to.
pub const SESSION_ID: &str = "mcp-session-id";
/// Legacy: where a broken event stream goes on.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Trace context (W3C Trace Context, W3C Baggage), which goes through as it comes.
pub const TRACE_CONTEXT: [&str; 3] = ["traceparent", "tracestate", "baggage"];
/// Tells reverse proxies not to buffer an event stream.
pub const ACCEL_BUFFERING: &str = "x-accel-buffering";

const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

/// Decodes the value of `Mcp-Name` or `Mcp-Param-*`: plain ASCII, or base64 of UTF-8 between the sentinels.
/// `None` when the value holds characters that a header may not carry, or base64 that does not decode.
#[must_use]
pub fn decode(value: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(value).ok()?;
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return None;
    }
    let Some(encoded) = text
        .strip_prefix(SENTINEL_START)
        .and_then(|rest| rest.strip_suffix(SENTINEL_END))
    else {
        return Some(Cow::Borrowed(text));
    };
    let bytes = STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Encodes a value for `Mcp-Name` or `Mcp-Param-*`: as it is when it is safe there, else with sentinels.
#[must_use]
pub fn encode(value: &str) -> Cow<'_, str> {
    let safe = value
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
        && value.trim_matches([' ', '\t']).len() == value.len()
        && !(value.starts_with(SENTINEL_START) && value.ends_with(SENTINEL_END));
    if safe {
        Cow::Borrowed(value)
    } else {
        Cow::Owned(format!(
            "{SENTINEL_START}{}{SENTINEL_END}",
            STANDARD.encode(value)
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_spec_encode_as_it_says() {
        for (value, header) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode(value), header);
            assert_eq!(decode(header.as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn values_that_no_header_may_carry_are_refused() {
        for bad in [
            &b"caf\xc3\xa9"[..],
            b"a\x01b",
            b"\xff",
            b"=?base64?***?=",
            b"=?base64?/w==?=",
        ] {
            assert!(decode(bad).is_none(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn every_value_comes_back(value in ".*") {
            let header = encode(&value).into_owned();
            prop_assert_eq!(decode(header.as_bytes()).unwrap(), value);
        }

        #[test]
        fn any_bytes_yield_a_value_or_none(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
        }
    }
}
