//! Streamable HTTP towards a legacy server, revisions 2025-03-26 to 2025-11-25.
//!
//! Each message is a POST. The answer to a request is an [`Exchange`]: one JSON body or an event stream on
//! which other messages may come first. The general stream is a GET. Nothing is ever sent twice here.
//! Spec: 2025-11-25 basic/transports, "Streamable HTTP".

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::UpstreamError;
use crate::call::AuthChallenge;
use crate::wire::header;
use crate::wire::jsonrpc::Message;
use crate::wire::sse::{Decoder, Event};

/// Bounds the body of an error status that is read for a JSON-RPC error. Real ones are a few hundred bytes.
const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// Idle connections kept for reuse. As many as a busy gateway has calls in flight; idle ones close by time.
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
    client: Client<HttpConnector, Outbound>,
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
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits.connect_timeout));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits.upstream_idle)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        Self {
            client,
            uri,
            limits,
        }
    }

    /// Sends a request; the exchange yields what comes back.
    #[must_use]
    pub fn request(&self, attribution: &Attribution, body: Bytes) -> Exchange {
        let has_session = attribution.session_id.is_some();
        let request = self.post(attribution, body);
        let sent = Arc::clone(&request.body().sent);
        Exchange {
            state: State::Waiting(self.client.request(request)),
            sent,
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
        let response = self.client.request(self.post(attribution, body));
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
        let response = self.client.request(request).await.map_err(request_error)?;
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
            .client
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
            sent: Arc::default(),
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

/// A request body that knows whether a connection has taken it.
#[derive(Debug)]
struct Outbound {
    body: Full<Bytes>,
    sent: Arc<AtomicBool>,
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sent.store(true, Ordering::Release);
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What comes back for one request.
#[derive(Debug)]
pub struct Exchange {
    state: State,
    sent: Arc<AtomicBool>,
    session_id: Option<HeaderValue>,
    has_session: bool,
    bytes_max: usize,
}

#[derive(Debug)]
enum State {
    Waiting(ResponseFuture),
    /// A whole JSON body; `error` is what it means if it turns out to hold no message.
    Json {
        body: Incoming,
        read: BytesMut,
        bytes_max: usize,
        error: Option<UpstreamError>,
    },
    Events(Box<EventStream>),
    Done,
}

impl Exchange {
    /// The next message, raw; nothing after the last. The caller knows by the message whether it is the last:
    /// a stream that ends without a response yields nothing too.
    ///
    /// Cancel-safe: what was read so far is kept.
    ///
    /// # Errors
    /// When the answer will not come.
    pub async fn next_message(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        loop {
            match &mut self.state {
                State::Waiting(response) => {
                    let response = response.await.map_err(request_error);
                    self.state = State::Done;
                    self.state = self.opened(response?)?;
                }
                State::Json {
                    body,
                    read,
                    bytes_max,
                    ..
                } => {
                    collect(body, read, *bytes_max).await?;
                    let State::Json { read, error, .. } =
                        std::mem::replace(&mut self.state, State::Done)
                    else {
                        return Ok(None);
                    };
                    let message = read.freeze();
                    return match error {
                        Some(error) if !is_error_response(&message) => Err(error),
                        _ => Ok(Some(message)),
                    };
                }
                State::Events(stream) => match stream.next_event().await? {
                    Some(event) if event.data.is_empty() => {}
                    Some(event) => return Ok(Some(event.data)),
                    None => self.state = State::Done,
                },
                State::Done => return Ok(None),
            }
        }
    }

    /// Whether the request went on its way: from then on the server may have it.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }

    /// The session that the server opened with this exchange, once the first message is there.
    #[must_use]
    pub fn session_id(&self) -> Option<&HeaderValue> {
        self.session_id.as_ref()
    }

    fn opened(&mut self, response: Response<Incoming>) -> Result<State, UpstreamError> {
        let (head, body) = response.into_parts();
        self.session_id = head.headers.get(header::SESSION_ID).cloned();
        let is_json = has_type(&head.headers, "application/json");
        let error = classify(head.status, &head.headers, self.has_session);
        match error {
            // A refusal may still say why, as a JSON-RPC error.
            Some(error @ UpstreamError::Status(_)) if is_json => Ok(State::Json {
                body,
                read: BytesMut::new(),
                bytes_max: ERROR_BODY_BYTES_MAX,
                error: Some(error),
            }),
            Some(error) => Err(error),
            None if is_json => {
                let length = head.headers.get(http::header::CONTENT_LENGTH);
                let length = length
                    .and_then(|value| value.to_str().ok()?.parse().ok())
                    .unwrap_or(0);
                let read = BytesMut::with_capacity(self.bytes_max.min(length));
                Ok(State::Json {
                    body,
                    read,
                    bytes_max: self.bytes_max,
                    error: None,
                })
            }
            None if is_event_stream(&head.headers) => Ok(State::Events(Box::new(
                EventStream::new(body, self.bytes_max),
            ))),
            None => Err(UpstreamError::ContentType),
        }
    }
}

fn is_error_response(message: &[u8]) -> bool {
    matches!(Message::parse(message), Ok(Message::Error { .. }))
}

/// Reads the rest of a body. Cancel-safe: what was read is in `read`.
async fn collect(
    body: &mut Incoming,
    read: &mut BytesMut,
    bytes_max: usize,
) -> Result<(), UpstreamError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(UpstreamError::Body)?.into_data() {
            if read.len() + data.len() > bytes_max {
                return Err(UpstreamError::TooLarge { bytes_max });
            }
            read.extend_from_slice(&data);
        }
    }
    Ok(())
}

/// An event stream of a server.
#[derive(Debug)]
pub struct EventStream {
    body: Incoming,
    decoder: Decoder,
    bytes_max: usize,
}

impl EventStream {
    fn new(body: Incoming, bytes_max: usize) -> Self {
        Self {
            body,
            decoder: Decoder::new(bytes_max),
            bytes_max,
        }
    }

    /// The next event; nothing at the end of the stream. Cancel-safe.
    ///
    /// # Errors
    /// When the connection broke or an event is too large.
    pub async fn next_event(&mut self) -> Result<Option<Event>, UpstreamError> {
        loop {
            let event = self.decoder.next_event();
            let bytes_max = self.bytes_max;
            if let Some(event) = event.map_err(|_| UpstreamError::TooLarge { bytes_max })? {
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame.map_err(UpstreamError::Body)?.into_data() {
                self.decoder.feed(data);
            }
        }
    }
}
