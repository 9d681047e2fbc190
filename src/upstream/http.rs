//! HTTP towards a server, as both transports over it need it: connections, statuses, event streams.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thread_local::ThreadLocal;

use super::access::Access;
use super::error::{Unfollowed, UpstreamError};
use crate::call::AuthChallenge;
use crate::wire::header;

mod connector;
mod event_stream;
mod lanes;
mod outbound;
mod redirect;
mod session_headers;
mod standing;

pub use event_stream::EventStream;
pub(super) use lanes::{Inbound, Responding};
pub(super) use outbound::Outbound;
pub(super) use redirect::follow;
pub(super) use session_headers::SessionHeaders;
pub(super) use standing::Standing;

use connector::Connector;
use lanes::Lanes;
use redirect::is_redirect;

/// Idle connections that each thread keeps for reuse. As many as a busy gateway has calls in flight; idle ones close by time.
const IDLE_CONNECTIONS_MAX: usize = 1024;

/// The clocks and bounds of a transport; see the configuration.
#[derive(Debug, Clone)]
pub struct TransportLimits {
    /// How long connecting may take, and over HTTP+SSE the event with which the server's stream begins.
    pub connect_timeout: Duration,
    /// How long a one-way message may take to be accepted.
    pub send_timeout: Duration,
    /// How often a server over WebSocket is pinged.
    pub ping_interval: Duration,
    /// How long a server may take to begin its answer to a request.
    pub first_byte_timeout: Duration,
    /// How long a lost answer is asked for again while nothing is heard of the server.
    pub resume_max: Duration,
    /// How long an idle connection is kept.
    pub upstream_idle: Duration,
    /// Streams that are open on one HTTP/2 connection at once.
    pub upstream_streams_max: usize,
    /// The largest message of the server.
    pub message_bytes_max: usize,
    /// The largest message of a client: what goes to the server is hardly larger.
    pub body_bytes_max: usize,
}

/// Connections to one server over HTTP.
#[derive(Debug)]
pub(super) struct HttpClient {
    /// One for each thread: a connection is driven by the thread that opened it, and what another thread drives
    /// costs every request two wake-ups.
    clients: ThreadLocal<Clients>,
    pub(super) access: Arc<Access>,
    pub(super) limits: TransportLimits,
}

/// The clients of one thread.
#[derive(Debug)]
enum Clients {
    /// Without TLS there is no HTTP/2: each request has a connection for itself.
    Plain(Box<Client<Connector, Outbound>>),
    Tls(Box<Lanes>),
}

impl HttpClient {
    /// It connects when it is used.
    pub(super) fn new(limits: TransportLimits, access: Arc<Access>) -> Self {
        Self {
            clients: ThreadLocal::new(),
            access,
            limits,
        }
    }

    /// Sends a request; the response is what comes back, whatever it is.
    pub(super) fn request(&self, request: Request<Outbound>) -> Responding {
        let request = self.with_own_headers(request);
        match self.clients() {
            Clients::Plain(client) => Responding::on_its_own(client.request(request)),
            Clients::Tls(lanes) => lanes.request(request, || self.client()),
        }
    }

    /// Sends a one-way message, which is accepted at once.
    pub(super) fn message(&self, request: Request<Outbound>) -> Responding {
        let request = self.with_own_headers(request);
        match self.clients() {
            Clients::Plain(client) => Responding::on_its_own(client.request(request)),
            Clients::Tls(lanes) => lanes.message(request),
        }
    }

    fn with_own_headers(&self, mut request: Request<Outbound>) -> Request<Outbound> {
        let headers = request.headers_mut();
        for (name, value) in &self.access.headers {
            headers.insert(name, value.clone());
        }
        request
    }

    fn clients(&self) -> &Clients {
        let streams_max = self.limits.upstream_streams_max;
        self.clients.get_or(|| match &self.access.tls {
            None => Clients::Plain(Box::new(self.client())),
            Some(_) => Clients::Tls(Box::new(Lanes::new(streams_max, self.client()))),
        })
    }

    fn client(&self) -> Client<Connector, Outbound> {
        let limits = &self.limits;
        Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits.upstream_idle)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(Connector::new(
                self.access.tls.as_ref(),
                limits.connect_timeout,
            ))
    }

    /// The head of a response to a one-way message.
    ///
    /// # Errors
    /// When none comes in time.
    pub(super) async fn in_time(
        &self,
        response: Responding,
    ) -> Result<Response<Inbound>, UpstreamError> {
        tokio::time::timeout(self.limits.send_timeout, response)
            .await
            .map_err(|_| UpstreamError::Timeout)?
            .map_err(request_error)
    }

    /// Opens an event stream; `None` when the server offers none (405).
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub(super) async fn open_stream(
        &self,
        mut request: Request<Outbound>,
        last_event_id: Option<&str>,
        has_session: bool,
    ) -> Result<Option<EventStream>, UpstreamError> {
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(HeaderName::from_static(header::LAST_EVENT_ID), id);
        }
        // To listen runs nothing: redirects are followed.
        let (response, _) = follow(self, request).await?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Ok(None);
        }
        if let Some(error) = classify(response.status(), response.headers(), has_session) {
            return Err(error);
        }
        if !is_event_stream(response.headers()) {
            return Err(UpstreamError::ContentType);
        }
        let bytes_max = self.limits.message_bytes_max;
        Ok(Some(EventStream::new(response.into_body(), bytes_max)))
    }
}

/// A request without headers.
pub(super) fn bare(method: Method, uri: Uri, body: Bytes) -> Request<Outbound> {
    let mut request = Request::new(Outbound {
        body: Full::new(body),
        departure: Arc::default(),
    });
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request
}

/// Why there is no response.
pub(super) fn request_error(error: hyper_util::client::legacy::Error) -> UpstreamError {
    if error.is_connect() {
        UpstreamError::Connect(error.into())
    } else {
        UpstreamError::Request(error.into())
    }
}

/// What a status that is no success means; nothing for a success.
pub(super) fn classify(
    status: StatusCode,
    headers: &HeaderMap,
    has_session: bool,
) -> Option<UpstreamError> {
    match status {
        status if status.is_success() => None,
        StatusCode::NOT_FOUND if has_session => Some(UpstreamError::SessionGone),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Some(challenge(status, headers)),
        status if is_redirect(status) => Some(Unfollowed::Here(status.as_u16()).into()),
        status => Some(UpstreamError::Status(status.as_u16())),
    }
}

/// What a server says that wants other credentials.
fn challenge(status: StatusCode, headers: &HeaderMap) -> UpstreamError {
    let www_authenticate = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .map(|value| value.as_bytes().into())
        .collect();
    UpstreamError::Challenge(Arc::new(AuthChallenge {
        forbidden: status == StatusCode::FORBIDDEN,
        www_authenticate,
        why: "the server refuses the credentials",
    }))
}

/// Whether a body is said to be of this type.
pub(super) fn has_type(headers: &HeaderMap, expected: &str) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| {
            value
                .split(';')
                .next()
                .unwrap_or("")
                .trim()
                .eq_ignore_ascii_case(expected)
        })
}

/// Whether a body is said to be an event stream.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    has_type(headers, "text/event-stream")
}
