//! Admission of a modern request: the checks of docs/mapping.md that concern the message, and the headers that mirror
//! it where its transport has any.
//!
//! A message is first read for what it is, then a request is admitted. Passing yields an [`Admitted`], which later
//! stages require. Errors echo the request's id when it could be read; what they are on HTTP is HTTP's own business.
//! Spec: 2026-07-28 basic/index "`_meta`", basic/transports/streamable-http "Server Validation", basic/versioning.

use std::borrow::Cow;

use http::HeaderMap;
use serde_json::json;
use serde_json::value::RawValue;

use crate::observe::Metrics;
use crate::route::{Admitted, ClientHeaders};
use crate::translate::capability::ClientCapabilities;
use crate::translate::subscription::Filter;
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::{ClientId, Message};
use crate::wire::modern::{self, LogLevel, Method};
use crate::wire::object::{self, RawObject};
use crate::wire::{header, legacy};

/// A message of a client.
#[derive(Debug)]
pub(super) enum ClientMessage<'a> {
    /// It wants an answer.
    Request(Request<'a>),
    /// It wants none. Over HTTP none is defined, and all are accepted (real clients send `notifications/cancelled`).
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The params, if any.
        params: Option<&'a RawValue>,
    },
    /// A response. Clients must not send any: servers ask nothing.
    Response,
}

/// A request that is yet to be admitted.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) id: ClientId,
    method: Cow<'a, str>,
    params: Option<&'a RawValue>,
}

/// Why a message is not admitted.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) id: Option<ClientId>,
    pub(super) error: ErrorObject,
}

impl Refusal {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            id: None,
            error: ErrorObject::new(code, message),
        }
    }

    /// The same as the answer to a request.
    pub(super) fn answering(self, id: ClientId) -> Self {
        let id = Some(id);
        Self { id, ..self }
    }

    /// Counts it and writes it down.
    pub(super) fn noted(self, metrics: &Metrics) -> Self {
        metrics.refused.inc();
        let ErrorObject { code, message, .. } = &self.error;
        tracing::debug!(code, why = message, "refused");
        self
    }
}

/// Reads a message for what it is.
pub(super) fn read(text: &[u8]) -> Result<ClientMessage<'_>, Refusal> {
    let envelope = RawObject::parse(text).map_err(|why| not_an_object(text, &why))?;
    let id = envelope.member("id").and_then(ClientId::new);
    match Message::of(&envelope) {
        Ok(Message::Notification { method, params }) => {
            Ok(ClientMessage::Notification { method, params })
        }
        Ok(Message::Request { method, params, .. }) => match id {
            Some(id) => Ok(ClientMessage::Request(Request { id, method, params })),
            None => {
                let why = "`id` is not a string or an integer";
                Err(Refusal::new(error::INVALID_REQUEST, why))
            }
        },
        Ok(Message::Result { .. } | Message::Error { .. }) => Ok(ClientMessage::Response),
        Err(why) => {
            let error = ErrorObject::new(error::INVALID_REQUEST, why.to_string());
            Err(Refusal { id, error })
        }
    }
}

impl<'a> Request<'a> {
    /// Runs the checks in the table's order.
    pub(super) fn admit(self, headers: ClientHeaders<'_>) -> Result<Admitted<'a>, Refusal> {
        let id = self.id.clone();
        admitted(headers, self).map_err(|refusal| refusal.answering(id))
    }
}

fn not_an_object(text: &[u8], why: &serde_json::Error) -> Refusal {
    if serde_json::from_slice::<&RawValue>(text).is_err() {
        return Refusal::new(
            error::PARSE_ERROR,
            format!("the message is not JSON: {why}"),
        );
    }
    let is_batch = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let why = if is_batch {
        "batches are not part of this revision".to_owned()
    } else {
        why.to_string()
    };
    Refusal::new(
        error::INVALID_REQUEST,
        format!("the message is not one JSON-RPC object: {why}"),
    )
}

fn admitted<'a>(headers: ClientHeaders<'_>, request: Request<'a>) -> Result<Admitted<'a>, Refusal> {
    let (id, name, raw_params) = (request.id, request.method, request.params);
    let params = raw_params.map(RawObject::of).transpose();
    let params = params
        .map_err(|_| invalid("`params` is not an object"))?
        .unwrap_or_default();
    let meta = params.member("_meta").map(RawObject::of).transpose();
    let meta = meta
        .map_err(|_| invalid("`_meta` is not an object"))?
        .unwrap_or_default();
    let method = Method::named(&name);
    if let ClientHeaders::Http(headers) = headers {
        mirrored_headers(headers, &name, method, &params, &meta)?;
    }
    version(&name, &params, &meta)?;
    let capabilities = meta
        .member(modern::META_CLIENT_CAPABILITIES)
        .and_then(ClientCapabilities::parse)
        .ok_or_else(|| {
            invalid("`_meta` lacks the object io.modelcontextprotocol/clientCapabilities, of 16 KiB at most")
        })?;
    let log_level = log_level(&meta)?;
    let method = method.ok_or_else(|| {
        let served = modern::PROTOCOL_VERSION;
        let why = format!("method {name:?} does not exist in protocol version {served}");
        Refusal::new(error::METHOD_NOT_FOUND, why)
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
    Refusal::new(error::INVALID_PARAMS, why)
}

fn mismatch(why: impl Into<String>) -> Refusal {
    Refusal::new(error::HEADER_MISMATCH, why)
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

fn version(name: &str, params: &RawObject<'_>, meta: &RawObject<'_>) -> Result<(), Refusal> {
    match meta.string(modern::META_PROTOCOL_VERSION) {
        Some(version) if version == modern::PROTOCOL_VERSION => Ok(()),
        Some(version) => Err(unsupported(&version)),
        // A client of the legacy era. It knows no other way on: what it is told here is all that its user may see.
        None if name == legacy::INITIALIZE => Err(unsupported(
            &params.string("protocolVersion").unwrap_or_default(),
        )),
        None => Err(invalid(
            "`_meta` lacks the string io.modelcontextprotocol/protocolVersion",
        )),
    }
}

fn unsupported(requested: &str) -> Refusal {
    let served = modern::PROTOCOL_VERSION;
    let why = format!("Unsupported protocol version: {served} is served here");
    let error = ErrorObject::new(error::UNSUPPORTED_PROTOCOL_VERSION, why)
        .with_data(&json!({"supported": [served], "requested": requested}));
    Refusal { id: None, error }
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

    fn admit<'a>(headers: &HeaderMap, text: &'a [u8]) -> Result<Option<Admitted<'a>>, Refusal> {
        match read(text)? {
            ClientMessage::Request(request) => {
                request.admit(ClientHeaders::Http(headers)).map(Some)
            }
            ClientMessage::Notification { .. } | ClientMessage::Response => Ok(None),
        }
    }

    fn refused(headers: &HeaderMap, body: &str) -> i64 {
        admit(headers, body.as_bytes()).unwrap_err().error.code
    }

    #[test]
    fn a_right_request_is_admitted() {
        let body = call(&format!(
            r#"{{"name":"t",{META},"inputResponses":{{"a":{{}}}},"requestState":"s"}}"#
        ));
        let admitted = admit(&call_headers(), body.as_bytes()).unwrap().unwrap();
        assert_eq!(admitted.method, Method::ToolsCall);
        assert_eq!(admitted.id.as_json(), "1");
        assert_eq!(admitted.state.as_deref(), Some("s"));
    }

    #[test]
    fn notifications_need_no_headers() {
        let body = br#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
        assert!(matches!(read(body), Ok(ClientMessage::Notification { .. })));
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
            (r#"{"id":1,"method":"tools/list"}"#, -32600),
        ] {
            assert_eq!(refused(&call_headers(), body), code, "{body}");
        }
    }

    #[test]
    fn params_are_checked_after_the_headers() {
        for (params, code) in [
            (r#"{"name":"t"}"#.to_owned(), -32602),
            (format!(r#"{{"name":"u",{META}}}"#), -32020),
            (format!(r#"{{"name":7,{META}}}"#), -32602),
            (
                format!(r#"{{"name":"t","inputResponses":null,{META}}}"#),
                -32602,
            ),
            (
                format!(r#"{{"name":"t","inputResponses":{{"a":7}},{META}}}"#),
                -32602,
            ),
            (format!(r#"{{"name":"t","requestState":7,{META}}}"#), -32602),
            ("[]".to_owned(), -32602),
        ] {
            assert_eq!(refused(&call_headers(), &call(&params)), code, "{params}");
        }
    }

    #[test]
    fn an_unknown_method_is_not_found() {
        let headers = headers(&[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "ping"),
        ]);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{{META}}}}}"#);
        assert_eq!(refused(&headers, &body), -32601);
    }

    #[test]
    fn without_a_header_layer_the_message_speaks_for_itself() {
        let admit = |text: &str| match read(text.as_bytes()) {
            Ok(ClientMessage::Request(request)) => request.admit(ClientHeaders::NoLayer).map(drop),
            other => panic!("no request: {other:?}"),
        };
        assert!(admit(&call(&format!(r#"{{"name":"t",{META}}}"#))).is_ok());
        let missing = admit(&call(r#"{"name":"t"}"#)).unwrap_err();
        assert_eq!(missing.error.code, -32602);
    }

    #[test]
    fn a_legacy_client_is_told_which_version_is_served() {
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;
        let Ok(ClientMessage::Request(request)) = read(hello.as_bytes()) else {
            panic!("no request");
        };
        let refusal = request.admit(ClientHeaders::NoLayer).unwrap_err();
        let error: serde_json::Value = serde_json::from_str(&refusal.error.to_json()).unwrap();
        let data = json!({"supported": ["2026-07-28"], "requested": "2025-11-25"});
        assert_eq!((&error["code"], &error["data"]), (&json!(-32022), &data));
        assert!(error["message"].as_str().unwrap().contains("2026-07-28"));
    }

    #[test]
    fn responses_are_told_apart() {
        for response in [
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,
        ] {
            assert!(matches!(
                read(response.as_bytes()),
                Ok(ClientMessage::Response)
            ));
        }
    }

    proptest! {
        #[test]
        fn any_body_is_judged(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = admit(&call_headers(), &body);
        }
    }
}
