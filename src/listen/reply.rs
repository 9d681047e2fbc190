//! How a leg's end becomes an HTTP response: one exhaustive map from replies to status codes.
//!
//! A JSON-RPC error for which the spec names no status travels on HTTP 200: that is where clients read it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::admission::Refusal;
use super::body::ResponseBody;
use crate::call::{AuthChallenge, Reply};
use crate::hold::{LegEvent, LegStream};
use crate::subscription::Subscription;
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::ClientId;
use crate::wire::{header, sse};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) fn accepted() -> Response<ResponseBody> {
    with_status(StatusCode::ACCEPTED, ResponseBody::empty())
}

pub(super) fn method_not_allowed() -> Response<ResponseBody> {
    let refusal = Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        ErrorObject::new(error::INVALID_REQUEST, "this endpoint takes POST alone"),
    );
    let mut response = refused(&refusal);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("POST"));
    response
}

pub(super) fn refused(refusal: &Refusal) -> Response<ResponseBody> {
    let body = error_body(refusal.id.as_ref(), &refusal.error);
    json(refusal.status, ResponseBody::whole(body.into()))
}

/// The response of a leg whose reply is the first thing to say.
pub(super) fn whole(id: &ClientId, reply: Reply) -> Response<ResponseBody> {
    match reply {
        Reply::Result(result) => json(
            StatusCode::OK,
            ResponseBody::spliced(result_head(id), result, b"}"),
        ),
        Reply::Error(error) => json(
            error_status(error.code),
            ResponseBody::whole(error_body(Some(id), &error).into()),
        ),
        Reply::Challenge(challenge) => challenged(id, &challenge),
    }
}

/// The statuses that the spec names for errors a leg can end with.
fn error_status(code: i64) -> StatusCode {
    match code {
        error::MISSING_CLIENT_CAPABILITY | error::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn challenged(id: &ClientId, challenge: &AuthChallenge) -> Response<ResponseBody> {
    let body = ResponseBody::whole(error_body(Some(id), &challenge_error(challenge)).into());
    let status = if challenge.forbidden {
        StatusCode::FORBIDDEN
    } else {
        StatusCode::UNAUTHORIZED
    };
    let mut response = json(status, body);
    for value in &challenge.www_authenticate {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            response.headers_mut().append(WWW_AUTHENTICATE, value);
        }
    }
    response
}

fn challenge_error(challenge: &AuthChallenge) -> ErrorObject {
    ErrorObject::new(error::INTERNAL_ERROR, challenge.why)
}

/// The response of a leg that hears notifications first: an event stream that ends with the reply.
pub(super) fn stream(
    id: ClientId,
    first: Bytes,
    rest: impl Events,
    keep_alive: Duration,
) -> Response<ResponseBody> {
    let state = Streaming {
        id,
        first: Some(first),
        rest: Some(rest),
        keep_alive,
    };
    let events = futures_util::stream::unfold(state, |mut state| async move {
        let event = state.next().await?;
        Some((event, state))
    });
    let mut response = Response::new(ResponseBody::Events(Box::pin(events)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        HeaderName::from_static(header::ACCEL_BUFFERING),
        HeaderValue::from_static("no"),
    );
    response
}

/// What an event stream tells, one after the other; nothing when it ends without a reply.
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

struct Streaming<E> {
    id: ClientId,
    first: Option<Bytes>,
    /// Gone after the reply.
    rest: Option<E>,
    keep_alive: Duration,
}

impl<E: Events> Streaming<E> {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(event(&first));
        }
        let rest = self.rest.as_mut()?;
        let Ok(next) = tokio::time::timeout(self.keep_alive, rest.next()).await else {
            return Some(Bytes::from_static(sse::KEEP_ALIVE));
        };
        if let Some(LegEvent::Note(note)) = next {
            return Some(event(&note));
        }
        self.rest = None;
        let message = match next {
            Some(LegEvent::Reply(Reply::Result(result))) => {
                let mut message = result_head(&self.id);
                message.extend_from_slice(&result);
                message.push(b'}');
                message
            }
            Some(LegEvent::Reply(Reply::Error(error))) => error_body(Some(&self.id), &error),
            Some(LegEvent::Reply(Reply::Challenge(challenge))) => {
                error_body(Some(&self.id), &challenge_error(&challenge))
            }
            Some(LegEvent::Note(_)) | None => {
                let error =
                    ErrorObject::new(error::INTERNAL_ERROR, "the call ended without a reply");
                error_body(Some(&self.id), &error)
            }
        };
        Some(event(&message))
    }
}

fn event(message: &[u8]) -> Bytes {
    let mut out = Vec::new();
    sse::push_event(&mut out, message);
    out.into()
}

fn result_head(id: &ClientId) -> Vec<u8> {
    let mut head = Vec::with_capacity(48 + id.as_json().len());
    head.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    head.extend_from_slice(id.as_json().as_bytes());
    head.extend_from_slice(br#","result":"#);
    head
}

/// An error response; without an `id` where it could not be read (the spec's errors then have none).
fn error_body(id: Option<&ClientId>, error: &ErrorObject) -> Vec<u8> {
    let id = id
        .map(|id| format!(r#""id":{},"#, id.as_json()))
        .unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0",{id}"error":{}}}"#, error.to_json()).into_bytes()
}

fn json(status: StatusCode, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = with_status(status, body);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn with_status(status: StatusCode, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}
