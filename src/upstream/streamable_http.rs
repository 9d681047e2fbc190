//! Streamable HTTP towards a legacy server, revisions 2025-03-26 to 2025-11-25.
//!
//! Each message is a POST. The answer to a request is an [`Exchange`]: one JSON body or an event stream on
//! which other messages may come first. The general stream is a GET. Nothing is ever sent twice here.
//! Spec: 2025-11-25 basic/transports, "Streamable HTTP".

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thread_local::ThreadLocal;

use super::UpstreamError;
use crate::call::AuthChallenge;
use crate::wire::header;

mod exchange;
mod outbound;

pub use exchange::{EventStream, Exchange};

use exchange::State;
use outbound::Outbound;

/// Idle connections that each thread keeps for reuse. As many as a busy gateway has calls in flight; idle ones close by time.
const IDLE_CONNECTIONS_MAX: usize = 1024;

/// The clocks and bounds of a transport; see the configuration.
#[derive(Debug, Clone)]
pub struct TransportLimits {
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a one-way message may take to be accepted.
    pub send_timeout: Duration,
    /// How long an idle connection is kept.
    pub upstream_idle: Duration,
    /// The largest message of the server.
    pub message_bytes_max: usize,
}

/// One server over Streamable HTTP.
#[derive(Debug)]
pub struct StreamableHttp {
    /// One for each thread: a connection is driven by the thread that opened it, and what another thread drives
    /// costs every request two wake-ups.
    clients: ThreadLocal<Client<HttpConnector, Outbound>>,
    uri: Uri,
    limits: TransportLimits,
}

/// The headers that tie a message to a session and a caller.
#[derive(Debug, Clone, Default)]
pub struct Attribution {
    /// `Mcp-Session-Id`, if the server gave one.
    pub session_id: Option<HeaderValue>,
    /// `MCP-Protocol-Version`, after the handshake and from 2025-06-18 on.
    pub protocol_version: Option<HeaderValue>,
    /// `Authorization` as the caller sent it.
    pub credentials: Option<HeaderValue>,
}

impl StreamableHttp {
    /// A client of the server at `uri`. It connects when it is used.
    #[must_use]
    pub fn new(uri: Uri, limits: TransportLimits) -> Self {
        Self {
            clients: ThreadLocal::new(),
            uri,
            limits,
        }
    }

    fn client(&self) -> &Client<HttpConnector, Outbound> {
        self.clients.get_or(|| {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            connector.set_connect_timeout(Some(self.limits.connect_timeout));
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(self.limits.upstream_idle)
                .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
                .build(connector)
        })
    }

    /// Sends a request with these headers besides its own; the exchange yields what comes back.
    #[must_use]
    pub fn request(&self, attribution: &Attribution, body: Bytes, headers: HeaderMap) -> Exchange {
        let has_session = attribution.session_id.is_some();
        let mut request = self.post(attribution, body);
        request.headers_mut().extend(headers);
        let departure = Arc::clone(&request.body().departure);
        Exchange {
            state: State::Waiting(self.client().request(request)),
            departure,
            session_id: None,
            has_session,
            bytes_max: self.limits.message_bytes_max,
        }
    }

    /// Sends a one-way message: a notification or a response. Done when the server accepted it.
    ///
    /// # Errors
    /// When it was not accepted; whether the server acted on it, [`UpstreamError::may_have_run`] says.
    pub async fn send(&self, attribution: &Attribution, body: Bytes) -> Result<(), UpstreamError> {
        let response = self.client().request(self.post(attribution, body));
        let response = self.in_time(response).await?;
        match classify(
            response.status(),
            response.headers(),
            attribution.session_id.is_some(),
        ) {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Opens the general stream, after `last_event_id` if there is one; `None` when the server offers none.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn open_stream(
        &self,
        attribution: &Attribution,
        last_event_id: Option<&str>,
    ) -> Result<Option<EventStream>, UpstreamError> {
        let mut request = self.bare(Method::GET, attribution, Bytes::new());
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(HeaderName::from_static(header::LAST_EVENT_ID), id);
        }
        let response = self
            .client()
            .request(request)
            .await
            .map_err(request_error)?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Ok(None);
        }
        let has_session = attribution.session_id.is_some();
        if let Some(error) = classify(response.status(), response.headers(), has_session) {
            return Err(error);
        }
        if !is_event_stream(response.headers()) {
            return Err(UpstreamError::ContentType);
        }
        Ok(Some(EventStream::new(
            response.into_body(),
            self.limits.message_bytes_max,
        )))
    }

    /// Ends the session. 405 is a legal answer and as good.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses otherwise.
    pub async fn delete(&self, attribution: &Attribution) -> Result<(), UpstreamError> {
        let response = self
            .client()
            .request(self.bare(Method::DELETE, attribution, Bytes::new()));
        let response = self.in_time(response).await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND => Ok(()),
            status => Err(UpstreamError::Status(status.as_u16())),
        }
    }

    async fn in_time(&self, response: ResponseFuture) -> Result<Response<Incoming>, UpstreamError> {
        tokio::time::timeout(self.limits.send_timeout, response)
            .await
            .map_err(|_| UpstreamError::Timeout)?
            .map_err(request_error)
    }

    fn post(&self, attribution: &Attribution, body: Bytes) -> Request<Outbound> {
        let mut request = self.bare(Method::POST, attribution, body);
        let headers = request.headers_mut();
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    fn bare(&self, method: Method, attribution: &Attribution, body: Bytes) -> Request<Outbound> {
        let mut request = Request::new(Outbound {
            body: Full::new(body),
            departure: Arc::default(),
        });
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.reserve(6);
        for (name, value) in [
            (
                HeaderName::from_static(header::SESSION_ID),
                &attribution.session_id,
            ),
            (
                HeaderName::from_static(header::PROTOCOL_VERSION),
                &attribution.protocol_version,
            ),
            (AUTHORIZATION, &attribution.credentials),
        ] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
        request
    }
}

fn request_error(error: hyper_util::client::legacy::Error) -> UpstreamError {
    if error.is_connect() {
        UpstreamError::Connect(error)
    } else {
        UpstreamError::Request(error)
    }
}

/// What a status that is no success means; nothing for a success.
fn classify(status: StatusCode, headers: &HeaderMap, has_session: bool) -> Option<UpstreamError> {
    match status {
        status if status.is_success() => None,
        StatusCode::NOT_FOUND if has_session => Some(UpstreamError::SessionGone),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let www_authenticate = headers
                .get_all(WWW_AUTHENTICATE)
                .iter()
                .map(|value| value.as_bytes().into())
                .collect();
            let forbidden = status == StatusCode::FORBIDDEN;
            Some(UpstreamError::Challenge(Arc::new(AuthChallenge {
                forbidden,
                www_authenticate,
                why: "the server refuses the credentials",
            })))
        }
        status => Some(UpstreamError::Status(status.as_u16())),
    }
}

fn has_type(headers: &HeaderMap, expected: &str) -> bool {
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

fn is_event_stream(headers: &HeaderMap) -> bool {
    has_type(headers, "text/event-stream")
}
