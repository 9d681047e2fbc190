//! The MCP endpoint: one request in, one response out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::admission::{self, ClientMessage, Refusal};
use super::body::{self, ResponseBody, Unread};
use super::elsewhere::{self, Search};
use super::guard::Guard;
use super::reply;
use crate::cluster::hop::Hop;
use crate::config::Settings;
use crate::hold::order::Answer;
use crate::route::{Admitted, Came, ClientHeaders, Gateway, Served};
use crate::wire::error;

/// A request is to be answered by the replica at this address.
struct Elsewhere(String);

/// The endpoint of a gateway.
#[derive(Debug)]
pub struct Front {
    gateway: Arc<Gateway>,
    hop: Option<Hop>,
    terms: FrontTerms,
}

/// The bounds and guards of an endpoint.
#[derive(Debug)]
pub struct FrontTerms {
    guard: Guard,
    body_bytes_max: usize,
    client_read_timeout: Duration,
    keep_alive: Duration,
}

impl FrontTerms {
    /// The endpoint in front of `gateway`, and of other replicas if there is a way to them.
    #[must_use]
    pub fn before(self, gateway: Arc<Gateway>, hop: Option<Hop>) -> Front {
        Front {
            gateway,
            hop,
            terms: self,
        }
    }
}

impl Front {
    /// The terms of an endpoint; `is_loopback` says that it is bound to loopback alone.
    #[must_use]
    pub fn terms_of(settings: &Settings, is_loopback: bool) -> FrontTerms {
        FrontTerms {
            guard: Guard {
                is_loopback,
                allowed_origins: settings.allowed_origins.clone(),
                allowed_hosts: settings.allowed_hosts.clone(),
            },
            body_bytes_max: settings.limits.body_bytes_max,
            client_read_timeout: settings.timers.client_read_timeout,
            keep_alive: settings.timers.keep_alive,
        }
    }

    /// Answers one HTTP request. Dropped before it is done, it counts as the client going away.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        came: Came,
    ) -> Response<ResponseBody> {
        let (head, body) = request.into_parts();
        if !self.gateway.serves_path(head.uri.path()) {
            return refused(
                StatusCode::NOT_FOUND,
                error::INVALID_REQUEST,
                "nothing is served at this path",
            );
        }
        if head.method != Method::POST {
            return reply::method_not_allowed();
        }
        // What another replica sends on has passed there, where the client's connection is.
        if came == Came::FromClient
            && let Some(why) = self.terms.guard.refuses(&head.headers)
        {
            return refused(StatusCode::FORBIDDEN, error::INVALID_REQUEST, why);
        }
        let body = match body::read(
            body,
            self.terms.body_bytes_max,
            self.terms.client_read_timeout,
        )
        .await
        {
            Ok(body) => body,
            Err(unread) => return self.unread(&unread),
        };
        self.answer_message(&head, body, came).await
    }

    /// Answers a message, here or by way of the replica that holds its call. One that cannot be reached may be gone: then
    /// its calls are taken over as soon as that is certain, and the request is served again. What it has given its
    /// server is noted, and repeated by nobody.
    async fn answer_message(
        &self,
        head: &Parts,
        body: Bytes,
        came: Came,
    ) -> Response<ResponseBody> {
        let headers = ClientHeaders::Http(&head.headers);
        let hop = self.hop.as_ref().filter(|_| came == Came::FromClient);
        let mut search = Search::default();
        loop {
            let admitted = match admitted(headers, &body) {
                Ok(Some(admitted)) => admitted,
                Ok(None) => return reply::accepted(),
                Err(refusal) => return reply::refused(&refusal.noted(self.gateway.metrics())),
            };
            let id = admitted.id.clone();
            let span = admitted.span(headers);
            let address = match self.serve(admitted, (headers, &body), came, &span).await {
                Ok(response) => return response,
                Err(Elsewhere(address)) => address,
            };
            let Some(hop) = hop else {
                tracing::error!(address, "a request was to go on, and has no way to go");
                return reply::whole(&id, elsewhere::unreached());
            };
            let begun = Instant::now();
            let forwarded = hop.forward(&address, head, body.clone());
            let error = match forwarded.instrument(span.clone()).await {
                Ok(response) => {
                    self.gateway.metrics().forwarded.inc();
                    return response.map(ResponseBody::Forwarded);
                }
                Err(error) => error,
            };
            let failed = span.in_scope(|| search.failed(&address, begun, &error));
            if failed >= hop.patience() {
                return reply::whole(&id, elsewhere::unreached());
            }
            tokio::time::sleep(search.pause()).await;
        }
    }

    async fn serve(
        &self,
        admitted: Admitted<'_>,
        (headers, body): (ClientHeaders<'_>, &Bytes),
        came: Came,
        span: &Span,
    ) -> Result<Response<ResponseBody>, Elsewhere> {
        let id = admitted.id.clone();
        let served = self.gateway.serve(admitted, headers, body, came);
        let served = served.instrument(span.clone()).await;
        span.in_scope(|| tracing::debug!(with = served.name(), "answered"));
        Ok(match served {
            Served::Leg(Answer::Reply(reply)) => reply::whole(&id, reply),
            Served::Leg(Answer::Stream { first, rest }) => {
                reply::stream(id, first, rest, self.terms.keep_alive)
            }
            Served::Subscription(first, rest) => {
                reply::stream(id, first, rest, self.terms.keep_alive)
            }
            Served::Elsewhere(address) => return Err(Elsewhere(address)),
            Served::Refused(reply) => reply::unavailable(&id, &reply),
        })
    }

    fn unread(&self, unread: &Unread) -> Response<ResponseBody> {
        let mut response = match unread {
            Unread::TooLarge => {
                let why = format!(
                    "the body is larger than {} bytes",
                    self.terms.body_bytes_max
                );
                refused(StatusCode::PAYLOAD_TOO_LARGE, error::INVALID_REQUEST, &why)
            }
            Unread::TooSlow => refused(
                StatusCode::REQUEST_TIMEOUT,
                error::INVALID_REQUEST,
                "the body came too slowly",
            ),
            Unread::Broken => refused(
                StatusCode::BAD_REQUEST,
                error::PARSE_ERROR,
                "the body is not complete",
            ),
        };
        // What is left of the body is not worth reading.
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

fn refused(status: StatusCode, code: i64, why: &str) -> Response<ResponseBody> {
    reply::refused_with(status, &Refusal::new(code, why))
}

/// The request in a body; nothing when there is a notification, which needs no answer.
fn admitted<'a>(
    headers: ClientHeaders<'_>,
    body: &'a [u8],
) -> Result<Option<Admitted<'a>>, Refusal> {
    match admission::read(body)? {
        ClientMessage::Request(request) => request.admit(headers).map(Some),
        ClientMessage::Notification { .. } => Ok(None),
        ClientMessage::Response => Err(Refusal::new(
            error::INVALID_REQUEST,
            "clients do not send responses",
        )),
    }
}
