//! Admission of a modern request: the checks of docs/mapping.md that concern headers and body.
//!
//! Passing yields an [`Admitted`], which later stages require. Errors echo the request's id when it could be read.
//! Spec: 2026-07-28 basic/index "`_meta`", basic/transports/streamable-http "Server Validation", basic/versioning.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode};
use serde_json::json;
use serde_json::value::RawValue;

use crate::route::Admitted;
use crate::translate::capability::ClientCapabilities;
use crate::translate::subscription::Filter;
use crate::wire::error::{self, ErrorObject};
use crate::wire::header;
use crate::wire::jsonrpc::{ClientId, Message};
use crate::wire::modern::{self, LogLevel, Method};
use crate::wire::object::{self, RawObject};

/// What a POST turned out to be.
#[derive(Debug)]
pub(super) enum Admission<'a> {
    /// A request.
    Request(Box<Admitted<'a>>),
    /// A notification: none is defined over HTTP, all are accepted (real clients send `notifications/cancelled`).
    Notification,
}

/// Why a request is not admitted.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) id: Option<ClientId>,
    pub(super) error: ErrorObject,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: ErrorObject) -> Self {
        Self {
            status,
            id: None,
            error,
        }
    }

    fn bad(code: i64, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ErrorObject::new(code, message))
    }
}

/// Runs the checks in the table's order.
pub(super) fn admit<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Admission<'a>, Refusal> {
    let envelope = RawObject::parse(body).map_err(|why| not_an_object(body, &why))?;
    let id = envelope.member("id").and_then(ClientId::new);
    let admitted = match Message::of(&envelope) {
        Ok(Message::Notification { .. }) => return Ok(Admission::Notification),
        Ok(Message::Request { method, params, .. }) => match id.clone() {
            Some(id) => request(headers, id, &method, params),
            None => Err(Refusal::bad(
                error::INVALID_REQUEST,
                "`id` is a string or an integer",
            )),
        },
        Ok(Message::Result { .. } | Message::Error { .. }) => Err(Refusal::bad(
            error::INVALID_REQUEST,
            "clients do not send responses",
        )),
        Err(why) => Err(Refusal::bad(error::INVALID_REQUEST, why.to_string())),
    };
    match admitted {
        Ok(admitted) => Ok(Admission::Request(Box::new(admitted))),
        Err(refusal) => Err(Refusal { id, ..refusal }),
    }
}

fn not_an_object(body: &[u8], why: &serde_json::Error) -> Refusal {
    if serde_json::from_slice::<&RawValue>(body).is_err() {
        return Refusal::bad(error::PARSE_ERROR, format!("the body is not JSON: {why}"));
    }
    let is_batch = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let why = if is_batch {
        "batches are not part of this revision".to_owned()
    } else {
        why.to_string()
    };
    Refusal::bad(
        error::INVALID_REQUEST,
        format!("the body is not one JSON-RPC object: {why}"),
    )
}

fn request<'a>(
    headers: &HeaderMap,
    id: ClientId,
    name: &str,
    raw_params: Option<&'a RawValue>,
) -> Result<Admitted<'a>, Refusal> {
    let params = raw_params.map(RawObject::of).transpose();
    let params = params
        .map_err(|_| invalid("`params` is not an object"))?
        .unwrap_or_default();
    let meta = params.member("_meta").map(RawObject::of).transpose();
    let meta = meta
        .map_err(|_| invalid("`_meta` is not an object"))?
        .unwrap_or_default();
    let method = Method::named(name);
    mirrored_headers(headers, name, method, &params, &meta)?;
    let version = version(&meta)?;
    if version != modern::PROTOCOL_VERSION {
        return Err(unsupported(&version));
    }
    let capabilities = meta
        .member(modern::META_CLIENT_CAPABILITIES)
        .and_then(ClientCapabilities::parse)
        .ok_or_else(|| {
            invalid("`_meta` lacks the object io.modelcontextprotocol/clientCapabilities, of 16 KiB at most")
        })?;
    let log_level = log_level(&meta)?;
    let method = method.ok_or_else(|| {
        let error = ErrorObject::new(
            error::METHOD_NOT_FOUND,
            format!("method {name:?} does not exist here"),
        );
        Refusal::new(StatusCode::NOT_FOUND, error)
    })?;
    let (responses, state) = round_trip(method, &params)?;
    if let Some(member) = method.named_by()
        && params.string(member).is_none()
    {
        return Err(invalid(&format!("`{member}` is not a string")));
    }
    let filter = filter(method, &params)?;
    // A request without params has no `_meta`, and was refused for that above.
    let raw_params = raw_params.ok_or_else(|| invalid("`params` is missing"))?;
    Ok(Admitted {
        id,
        method,
        raw_params,
        params,
        meta,
        capabilities,
        log_level,
        responses,
        state,
        filter,
    })
}

/// What a request for a subscription wants to hear of.
fn filter(method: Method, params: &RawObject<'_>) -> Result<Option<Filter>, Refusal> {
    if method != Method::Listen {
        return Ok(None);
    }
    let filter = params
        .member("notifications")
        .ok_or("`notifications` is missing")
        .and_then(Filter::parse);
    filter.map(Some).map_err(invalid)
}

fn invalid(why: &str) -> Refusal {
    Refusal::bad(error::INVALID_PARAMS, why)
}

fn mismatch(why: impl Into<String>) -> Refusal {
    Refusal::bad(error::HEADER_MISMATCH, why)
}

/// The one value of a header; an error when it is missing or given twice with different values.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h [u8], Refusal> {
    let mut values = headers
        .get_all(name)
        .iter()
        .map(http::HeaderValue::as_bytes);
    let supported = modern::PROTOCOL_VERSION;
    let first = values.next().ok_or_else(|| {
        mismatch(format!(
            "header {name} is missing; this endpoint serves protocol version {supported}"
        ))
    })?;
    if values.any(|value| value != first) {
        return Err(mismatch(format!("header {name} is given twice")));
    }
    Ok(first)
}

fn mirrored_headers(
    headers: &HeaderMap,
    name: &str,
    method: Option<Method>,
    params: &RawObject<'_>,
    meta: &RawObject<'_>,
) -> Result<(), Refusal> {
    let version = only(headers, header::PROTOCOL_VERSION)?;
    if let Some(body) = meta.string(modern::META_PROTOCOL_VERSION)
        && body.as_bytes() != version
    {
        return Err(mismatch(
            "header MCP-Protocol-Version and `_meta` name different versions",
        ));
    }
    if only(headers, header::METHOD)? != name.as_bytes() {
        return Err(mismatch("header Mcp-Method and `method` differ"));
    }
    let Some(member) = method.and_then(Method::named_by) else {
        return Ok(());
    };
    let mirrored = header::decode(only(headers, header::NAME)?)
        .ok_or_else(|| mismatch("header Mcp-Name is not decodable"))?;
    match params.string(member) {
        Some(value) if value == mirrored => Ok(()),
        Some(_) => Err(mismatch(format!(
            "header Mcp-Name and `params.{member}` differ"
        ))),
        // Reported as what it is, an invalid param, by the check that comes later.
        None => Ok(()),
    }
}

fn version<'a>(meta: &RawObject<'a>) -> Result<Cow<'a, str>, Refusal> {
    meta.string(modern::META_PROTOCOL_VERSION)
        .ok_or_else(|| invalid("`_meta` lacks the string io.modelcontextprotocol/protocolVersion"))
}

fn unsupported(requested: &str) -> Refusal {
    let error = ErrorObject::new(
        error::UNSUPPORTED_PROTOCOL_VERSION,
        "Unsupported protocol version",
    )
    .with_data(&json!({"supported": [modern::PROTOCOL_VERSION], "requested": requested}));
    Refusal::new(StatusCode::BAD_REQUEST, error)
}

fn log_level(meta: &RawObject<'_>) -> Result<Option<LogLevel>, Refusal> {
    let Some(raw) = meta.member(modern::META_LOG_LEVEL) else {
        return Ok(None);
    };
    object::string(raw)
        .and_then(|name| LogLevel::named(&name))
        .map(Some)
        .ok_or_else(|| invalid("io.modelcontextprotocol/logLevel is not a log level"))
}

type RoundTrip<'a> = (Option<&'a RawValue>, Option<Cow<'a, str>>);

fn round_trip<'a>(method: Method, params: &RawObject<'a>) -> Result<RoundTrip<'a>, Refusal> {
    let responses = params.member("inputResponses");
    let state = params.member("requestState");
    if (responses.is_some() || state.is_some()) && !method.may_ask() {
        return Err(invalid(
            "this method takes no `inputResponses` and no `requestState`",
        ));
    }
    if let Some(responses) = responses {
        let are_objects = RawObject::of(responses)
            .is_ok_and(|members| members.iter().all(|(_, value)| object::is_object(value)));
        if !are_objects {
            return Err(invalid("`inputResponses` is not an object of objects"));
        }
    }
    let state = state
        .map(|raw| object::string(raw).ok_or_else(|| invalid("`requestState` is not a string")))
        .transpose()?;
    Ok((responses, state))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn call_headers() -> HeaderMap {
        headers(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "t"),
        ])
    }

    fn call(params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#)
    }

    fn refused(headers: &HeaderMap, body: &str) -> (u16, i64) {
        let refusal = admit(headers, body.as_bytes()).unwrap_err();
        (refusal.status.as_u16(), refusal.error.code)
    }

    #[test]
    fn a_right_request_is_admitted() {
        let body = call(&format!(
            r#"{{"name":"t",{META},"inputResponses":{{"a":{{}}}},"requestState":"s"}}"#
        ));
        let Ok(Admission::Request(admitted)) = admit(&call_headers(), body.as_bytes()) else {
            panic!("not admitted");
        };
        assert_eq!(admitted.method, Method::ToolsCall);
        assert_eq!(admitted.id.as_json(), "1");
        assert_eq!(admitted.state.as_deref(), Some("s"));
    }

    #[test]
    fn notifications_need_no_headers() {
        let body = br#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
        assert!(matches!(
            admit(&HeaderMap::new(), body),
            Ok(Admission::Notification)
        ));
    }

    #[test]
    fn bodies_that_are_no_request_are_refused() {
        for (body, code) in [
            ("", -32700),
            ("{", -32700),
            ("[]", -32600),
            ("7", -32600),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}"#,
                -32600,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, -32600),
            (r#"{"id":1,"method":"tools/list"}"#, -32600),
        ] {
            assert_eq!(refused(&call_headers(), body), (400, code), "{body}");
        }
    }

    #[test]
    fn params_are_checked_after_the_headers() {
        for (params, status, code) in [
            (r#"{"name":"t"}"#.to_owned(), 400, -32602),
            (format!(r#"{{"name":"u",{META}}}"#), 400, -32020),
            (format!(r#"{{"name":7,{META}}}"#), 400, -32602),
            (
                format!(r#"{{"name":"t","inputResponses":null,{META}}}"#),
                400,
                -32602,
            ),
            (
                format!(r#"{{"name":"t","inputResponses":{{"a":7}},{META}}}"#),
                400,
                -32602,
            ),
            (
                format!(r#"{{"name":"t","requestState":7,{META}}}"#),
                400,
                -32602,
            ),
            ("[]".to_owned(), 400, -32602),
        ] {
            assert_eq!(
                refused(&call_headers(), &call(&params)),
                (status, code),
                "{params}"
            );
        }
    }

    #[test]
    fn an_unknown_method_is_not_found() {
        let headers = headers(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "ping"),
        ]);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{{META}}}}}"#);
        assert_eq!(refused(&headers, &body), (404, -32601));
    }

    proptest! {
        #[test]
        fn any_body_is_judged(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = admit(&call_headers(), &body);
        }
    }
}
