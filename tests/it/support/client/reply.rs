//! What a leg was answered, checked against the spec.

use serde_json::{Map, Value};

use super::leg::data_of;
use crate::support::http1::Head;

/// The whole reply of a leg.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: Head,
    /// The notifications that came first.
    pub(crate) notes: Vec<Value>,
    /// The JSON-RPC response, or null when there is no body.
    pub(crate) message: Value,
    pub(crate) body: Vec<u8>,
}

/// An `InputRequiredResult`.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) requests: Map<String, Value>,
    pub(crate) state: String,
}

impl Asked {
    /// The key of the only question.
    pub(crate) fn key(&self) -> &str {
        assert_eq!(self.requests.len(), 1, "{:?}", self.requests);
        self.requests.keys().next().unwrap()
    }

    /// All keys, sorted.
    pub(crate) fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<_> = self.requests.keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys
    }

    /// The only question.
    pub(crate) fn question(&self) -> &Value {
        &self.requests[self.key()]
    }
}

impl Reply {
    /// Reads a reply to `request` and fails on whatever the spec forbids.
    pub(super) fn checked(head: Head, body: Vec<u8>, request: &Value) -> Self {
        let status = head.word(1).parse().unwrap();
        let kind = head.value("content-type").unwrap_or_default().to_owned();
        assert!(
            head.value("mcp-session-id").is_none(),
            "a modern reply names a session"
        );
        let text = String::from_utf8(body.clone()).unwrap();
        let (notes, message) = if body.is_empty() {
            (Vec::new(), Value::Null)
        } else if kind.starts_with("text/event-stream") {
            assert_eq!(status, 200, "{text}");
            assert_eq!(head.value("x-accel-buffering"), Some("no"), "{head:?}");
            events(&text)
        } else if kind.starts_with("application/json") {
            (Vec::new(), serde_json::from_str(&text).unwrap())
        } else {
            panic!("a reply of type {kind:?}: {text}");
        };
        let reply = Self {
            status,
            head,
            notes,
            message,
            body,
        };
        if !reply.message.is_null() {
            reply.check_message(request);
        }
        reply
    }

    fn check_message(&self, request: &Value) {
        let message = &self.message;
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        let id = &request["id"];
        let is_id = id.is_string() || id.is_i64() || id.is_u64();
        // These are said before the body is read.
        let is_unread = matches!(self.status, 403 | 405 | 413) && message["id"].is_null();
        if is_id && request["method"].is_string() && !is_unread {
            assert_eq!(message["id"], *id, "the id is not the request's: {message}");
        } else if !is_id {
            assert!(message["id"].is_null(), "an id that nobody sent: {message}");
        }
        let is_error = message.get("error").is_some();
        assert_ne!(is_error, message.get("result").is_some(), "{message}");
        if is_error {
            self.check_error();
        } else {
            assert_eq!(self.status, 200, "{message}");
            self.check_result(request);
        }
    }

    fn check_error(&self) {
        let error = &self.message["error"];
        assert!(
            error["code"].is_i64() && error["message"].is_string(),
            "{error}"
        );
        let code = error["code"].as_i64().unwrap();
        assert!(
            code != -32002 && code != -32042,
            "a code of the legacy era: {error}"
        );
    }

    fn check_result(&self, request: &Value) {
        let result = &self.message["result"];
        match result["resultType"].as_str() {
            Some("complete") => {}
            Some("input_required") => {
                let method = request["method"].as_str().unwrap_or_default();
                let may_ask = ["tools/call", "prompts/get", "resources/read"].contains(&method);
                assert!(may_ask, "{method} was answered with a question");
                let state = result["requestState"].as_str().unwrap();
                assert!(state.len() <= 1024, "{} bytes of requestState", state.len());
            }
            other => panic!("resultType {other:?} in {result}"),
        }
    }

    /// The complete result.
    pub(crate) fn result(&self) -> &Value {
        let result = &self.message["result"];
        assert_eq!(
            result["resultType"], "complete",
            "{} {}",
            self.status, self.message
        );
        result
    }

    /// What the client is asked.
    pub(crate) fn asked(&self) -> Asked {
        let result = &self.message["result"];
        assert_eq!(
            result["resultType"], "input_required",
            "{} {}",
            self.status, self.message
        );
        let requests = result["inputRequests"].as_object().unwrap().clone();
        assert!(!requests.is_empty(), "an empty question: {result}");
        let state = result["requestState"].as_str().unwrap().to_owned();
        Asked { requests, state }
    }

    /// The error, which has this status and code.
    pub(crate) fn error(&self, status: u16, code: i64) -> &Value {
        let error = &self.message["error"];
        let actual = (self.status, error["code"].as_i64());
        assert_eq!(actual, (status, Some(code)), "{}", self.message);
        error
    }

    /// Whether it is a JSON-RPC error.
    pub(crate) fn is_error(&self) -> bool {
        self.message.get("error").is_some()
    }

    /// The leg did not get to its call: −32603, and the same may be sent again.
    pub(crate) fn unreached(&self) {
        let error = self.error(200, -32603);
        assert_eq!(error["data"]["reason"], "unreached", "{error}");
    }

    /// The refusal of a `requestState`: −32602 with this reason.
    pub(crate) fn refused(&self, reason: &str) {
        let error = self.error(200, -32602);
        assert_eq!(error["data"]["reason"], reason, "{error}");
    }

    /// The loss of the server: −32603, and whether the request may have been run.
    pub(crate) fn lost(&self, may_have_run: bool) {
        let error = self.error(200, -32603);
        assert_eq!(error["data"]["reason"], "lost", "{error}");
        assert_eq!(error["data"]["mayHaveRun"], may_have_run, "{error}");
    }

    /// The params of the notifications of a method.
    pub(crate) fn noted(&self, method: &str) -> Vec<&Value> {
        let of_method = self.notes.iter().filter(|note| note["method"] == method);
        of_method.map(|note| &note["params"]).collect()
    }
}

/// The notifications of a stream and its response, which must be the last.
fn events(text: &str) -> (Vec<Value>, Value) {
    assert!(
        text.ends_with("\n\n"),
        "a stream that ends within an event: {text:?}"
    );
    let mut messages: Vec<Value> = text
        .split("\n\n")
        .filter_map(data_of)
        .map(|data| serde_json::from_str(&data).unwrap())
        .collect();
    let Some(last) = messages.pop() else {
        panic!("a stream without a response: {text:?}")
    };
    let is_response = last.get("result").is_some() || last.get("error").is_some();
    assert!(
        is_response,
        "a stream that ends without a response: {text:?}"
    );
    for note in &messages {
        let is_notification = note.get("id").is_none() && note["method"].is_string();
        assert!(is_notification, "no notification: {note}");
    }
    (messages, last)
}
