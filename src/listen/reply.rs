//! How a leg's end becomes an HTTP response: one exhaustive map from replies to status codes.
//!
//! A JSON-RPC error for which the spec names no status travels on HTTP 200: that is where clients read it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::admission::Refusal;
use super::body::ResponseBody;
use super::message::{self, Events};
use crate::call::{AuthChallenge, Reply};
use crate::hold::LegEvent;
use crate::wire::error;
use crate::wire::jsonrpc::ClientId;
use crate::wire::{header, sse};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) fn accepted() -> Response<ResponseBody> {
    with_status(StatusCode::ACCEPTED, ResponseBody::empty())
}

pub(super) fn method_not_allowed() -> Response<ResponseBody> {
    let refusal = Refusal::new(error::INVALID_REQUEST, "this endpoint takes POST alone");
    let mut response = refused_with(StatusCode::METHOD_NOT_ALLOWED, &refusal);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("POST"));
    response
}

/// The response to a message that is not admitted.
pub(super) fn refused(refusal: &Refusal) -> Response<ResponseBody> {
    let status = match refusal.error.code {
        error::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_REQUEST,
    };
    refused_with(status, refusal)
}

/// The response to a request that is refused for what HTTP says of it.
pub(super) fn refused_with(status: StatusCode, refusal: &Refusal) -> Response<ResponseBody> {
    let body = message::error_response(refusal.id.as_ref(), &refusal.error);
    json(status, ResponseBody::whole(body.into()))
}

/// The response of a leg whose reply is the first thing to say.
pub(super) fn whole(id: &ClientId, reply: Reply) -> Response<ResponseBody> {
    match reply {
        Reply::Result(result) => json(
            StatusCode::OK,
            ResponseBody::spliced(message::result_head(id), result, message::RESULT_TAIL),
        ),
        Reply::Error(error) => json(
            error_status(error.code),
            ResponseBody::whole(message::error_response(Some(id), &error).into()),
        ),
        Reply::Challenge(challenge) => challenged(id, &challenge),
    }
}

/// The response to a request that another process would serve: nothing was started here, which is all that this status
/// says, so that whatever stands in front may ask another one. It better takes another connection, too: this one ends soon.
pub(super) fn unavailable(id: &ClientId, reply: &Reply) -> Response<ResponseBody> {
    let body = ResponseBody::whole(message::response(id, reply).into());
    let mut response = json(StatusCode::SERVICE_UNAVAILABLE, body);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The statuses that the spec names for errors a leg can end with.
fn error_status(code: i64) -> StatusCode {
    match code {
        error::MISSING_CLIENT_CAPABILITY | error::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn challenged(id: &ClientId, challenge: &AuthChallenge) -> Response<ResponseBody> {
    let body = message::error_response(Some(id), &message::challenge_error(challenge));
    let body = ResponseBody::whole(body.into());
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
            Some(LegEvent::Reply(reply)) => message::response(&self.id, &reply),
            Some(LegEvent::Note(_)) | None => message::lost(&self.id),
        };
        Some(event(&message))
    }
}

fn event(message: &[u8]) -> Bytes {
    let mut out = Vec::new();
    sse::push_event(&mut out, message);
    out.into()
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
