//! The JSON-RPC messages that end a leg, whichever transport carries them.

use serde_json::json;

use crate::call::{AuthChallenge, Reply};
use crate::hold::{LegEvent, LegStream};
use crate::subscription::Subscription;
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::ClientId;

/// What a client is told one after the other; nothing when it ends without a reply.
pub(super) trait Events: Send + 'static {
    /// What comes next. Cancel-safe.
    fn next(&mut self) -> impl Future<Output = Option<LegEvent>> + Send;
}

impl Events for LegStream {
    fn next(&mut self) -> impl Future<Output = Option<LegEvent>> + Send {
        Self::next(self)
    }
}

impl Events for Subscription {
    async fn next(&mut self) -> Option<LegEvent> {
        Some(Self::next(self).await)
    }
}

/// The response that a reply is.
pub(super) fn response(id: &ClientId, reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Result(result) => {
            let mut message = result_head(id);
            message.reserve_exact(result.len() + RESULT_TAIL.len());
            message.extend_from_slice(result);
            message.extend_from_slice(RESULT_TAIL);
            message
        }
        Reply::Error(error) => error_response(Some(id), error),
        Reply::Challenge(challenge) => error_response(Some(id), &challenge_error(challenge)),
    }
}

/// The response to a request whose call was lost without a reply.
pub(super) fn lost(id: &ClientId) -> Vec<u8> {
    let error = ErrorObject::new(error::INTERNAL_ERROR, "the call ended without a reply");
    error_response(Some(id), &error)
}

/// What follows the result in its response.
pub(super) const RESULT_TAIL: &[u8] = b"}";

/// What stands before the result in its response.
pub(super) fn result_head(id: &ClientId) -> Vec<u8> {
    let mut head = Vec::with_capacity(48 + id.as_json().len());
    head.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    head.extend_from_slice(id.as_json().as_bytes());
    head.extend_from_slice(br#","result":"#);
    head
}

/// An error response; without an `id` where it could not be read (the spec's errors then have none).
pub(super) fn error_response(id: Option<&ClientId>, error: &ErrorObject) -> Vec<u8> {
    let id = id
        .map(|id| format!(r#""id":{},"#, id.as_json()))
        .unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0",{id}"error":{}}}"#, error.to_json()).into_bytes()
}

/// What is left of a challenge where no headers can carry it: what the server wants is said in the error.
pub(super) fn challenge_error(challenge: &AuthChallenge) -> ErrorObject {
    let status = if challenge.forbidden { 403 } else { 401 };
    let wanted = challenge.www_authenticate.iter();
    let wanted: Vec<_> = wanted.map(|value| String::from_utf8_lossy(value)).collect();
    ErrorObject::new(error::INTERNAL_ERROR, challenge.why)
        .with_data(&json!({"httpStatus": status, "wwwAuthenticate": wanted}))
}
