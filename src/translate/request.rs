//! A modern request as its legacy twin.
//!
//! The params go up as they came, without `inputResponses`, `requestState` and the reserved `_meta` keys;
//! trace context and foreign `_meta` keys stay. A wanted progress token is replaced by one of our own.
//! Spec: 2026-07-28 basic/index, "`_meta`".

use serde_json::value::RawValue;

use crate::wire::jsonrpc::{self, UpstreamId};
use crate::wire::modern::{self, Method};
use crate::wire::object::{self, RawObject};

/// `_meta` keys that mean something to the modern era alone, or that carry our own value instead.
const RESERVED_META: [&str; 5] = [
    modern::META_PROTOCOL_VERSION,
    modern::META_CLIENT_INFO,
    modern::META_CLIENT_CAPABILITIES,
    modern::META_LOG_LEVEL,
    modern::META_PROGRESS_TOKEN,
];

/// The legacy request under `id`, which is its progress token too when the client wants progress.
#[must_use]
pub fn to_legacy(
    id: UpstreamId,
    method: Method,
    params: &RawObject<'_>,
    meta: &RawObject<'_>,
) -> Vec<u8> {
    let mut out = b"{".to_vec();
    for (key, value) in params.iter() {
        if !matches!(key, "_meta" | "inputResponses" | "requestState") {
            object::push_member(&mut out, key, value.get().as_bytes());
        }
    }
    let mut kept = b"{".to_vec();
    for (key, value) in meta.iter() {
        if !RESERVED_META.contains(&key) {
            object::push_member(&mut kept, key, value.get().as_bytes());
        }
    }
    if wants_progress(meta).is_some() {
        object::push_member(
            &mut kept,
            modern::META_PROGRESS_TOKEN,
            id.to_string().as_bytes(),
        );
    }
    if kept.len() > 1 {
        kept.push(b'}');
        object::push_member(&mut out, "_meta", &kept);
    }
    out.push(b'}');
    jsonrpc::request(id, method.as_str(), &out)
}

/// The progress token of a request: a string or a number, else none.
#[must_use]
pub fn wants_progress<'a>(meta: &RawObject<'a>) -> Option<&'a RawValue> {
    meta.member(modern::META_PROGRESS_TOKEN).filter(|raw| {
        raw.get()
            .starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(params: &str, expected: &str) {
        let params = RawObject::parse(params.as_bytes()).unwrap();
        let meta = params
            .member("_meta")
            .map(|raw| RawObject::of(raw).unwrap())
            .unwrap_or_default();
        let out = to_legacy(UpstreamId(9), Method::ToolsCall, &params, &meta);
        let expected =
            format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{expected}}}"#);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn reserved_keys_go_and_the_rest_stays_byte_for_byte() {
        check(
            r#"{"name":"t","arguments":{ "z": 1.0, "a": 10000000000000000001 }}"#,
            r#"{"name":"t","arguments":{ "z": 1.0, "a": 10000000000000000001 }}"#,
        );
        check(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"name":"t"}"#,
            r#"{"name":"t"}"#,
        );
        check(
            r#"{"name":"t","inputResponses":{},"requestState":"x","_meta":{"traceparent":"00-a","com.example/k":[1]}}"#,
            r#"{"name":"t","_meta":{"traceparent":"00-a","com.example/k":[1]}}"#,
        );
    }

    #[test]
    fn the_progress_token_becomes_our_own() {
        check(
            r#"{"name":"t","_meta":{"progressToken":"p"}}"#,
            r#"{"name":"t","_meta":{"progressToken":9}}"#,
        );
        check(
            r#"{"name":"t","_meta":{"progressToken":null}}"#,
            r#"{"name":"t"}"#,
        );
    }
}
