//! Streamable HTTP towards a legacy server, revisions 2025-03-26 to 2025-11-25.
//!
//! Each message is a POST. The answer to a request is an [`Exchange`]: one JSON body or an event stream on
//! which other messages may come first, and which is resumed when it is lost. The general stream is a GET. Nothing is
//! ever sent twice here.
//! Spec: 2025-11-25 basic/transports, "Streamable HTTP".

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use tokio::time::Instant;

use super::departure::Departure;
use super::error::UpstreamError;
use super::http::{EventStream, HttpClient, Outbound, SessionHeaders, Standing, bare};
use crate::wire::header;

mod exchange;
mod resumption;

pub(super) use exchange::Exchange;

use exchange::{Opening, State};
use resumption::Resumption;

/// One server over Streamable HTTP.
#[derive(Debug)]
pub(super) struct StreamableHttp {
    http: Arc<HttpClient>,
    uri: Uri,
}

/// A session with it.
#[derive(Debug)]
pub struct StreamableSession {
    server: Arc<StreamableHttp>,
    attribution: Mutex<Attribution>,
    /// An event of it had an id.
    gives_event_ids: AtomicBool,
}

/// Where messages of a session go, and the headers that tie them to it and a caller.
#[derive(Debug, Clone)]
struct Attribution {
    /// The server's URI, or where it led `initialize`.
    place: Uri,
    /// `initialize` was answered.
    is_open: bool,
    /// `Mcp-Session-Id`, if the server gave one.
    session_id: Option<HeaderValue>,
    headers: SessionHeaders,
}

impl Attribution {
    fn standing(&self) -> Standing {
        Standing {
            has_session: self.session_id.is_some(),
            is_open: self.is_open,
            has_own: self.headers.has_own(),
        }
    }
}

impl StreamableHttp {
    /// A client of the server at `uri`. It connects when it is used.
    pub(super) fn new(uri: Uri, http: Arc<HttpClient>) -> Self {
        Self { http, uri }
    }

    /// What a session that is yet to be opened has of it.
    ///
    /// # Errors
    /// When the backend should have a token and has none.
    pub(super) async fn connect(
        self: &Arc<Self>,
        credentials: Option<HeaderValue>,
    ) -> Result<StreamableSession, UpstreamError> {
        let credentials = self.http.access.credentials(credentials).await?;
        Ok(StreamableSession {
            server: Arc::clone(self),
            gives_event_ids: AtomicBool::new(false),
            attribution: Mutex::new(Attribution {
                place: self.uri.clone(),
                is_open: false,
                session_id: None,
                headers: SessionHeaders::new(credentials),
            }),
        })
    }
}

impl StreamableHttp {
    /// A session that somebody else has opened.
    ///
    /// # Errors
    /// When the backend should have a token and has none.
    pub(super) async fn adopt(
        self: &Arc<Self>,
        session_id: Option<HeaderValue>,
        revision: &str,
        credentials: Option<HeaderValue>,
    ) -> Result<StreamableSession, UpstreamError> {
        let session = self.connect(credentials).await?;
        let mut attribution = session.lock();
        attribution.session_id = session_id;
        attribution.is_open = true;
        attribution.headers.speaks(revision);
        drop(attribution);
        Ok(session)
    }
}

impl StreamableSession {
    /// Sends a request with these headers besides its own; the exchange yields what comes back.
    pub(super) fn request(self: &Arc<Self>, body: Bytes, headers: HeaderMap) -> Exchange {
        let attribution = self.attribution();
        let mut request = self.post(&attribution, body);
        request.headers_mut().extend(headers);
        let departure = Arc::clone(&request.body().departure);
        let http = &self.server.http;
        let begins_by = Instant::now() + http.limits.first_byte_timeout;
        let state = if attribution.is_open {
            State::Waiting {
                response: http.request(request),
                begins_by: Some(begins_by),
            }
        } else {
            // Nothing has run yet: this is when a server may lead elsewhere.
            State::Opening(Opening::new(Arc::clone(&self.server), request, begins_by))
        };
        Exchange {
            state,
            session: Arc::clone(self),
            departure,
            session_id: None,
            place: None,
            standing: attribution.standing(),
            has_bad_moment: false,
            resumption: None,
        }
    }

    /// The session as the server knows it, if it gave it a name.
    pub(super) fn session_id(&self) -> Option<HeaderValue> {
        self.lock().session_id.clone()
    }

    /// Reads the stream again that answers a request which went up before, from after this event.
    pub(super) fn resume(self: &Arc<Self>, after: &str) -> Exchange {
        let (resumption, attempt) = Resumption::after(Arc::clone(self), after);
        let departure = Arc::<Departure>::default();
        let _ = departure.go();
        Exchange {
            state: State::Resuming(attempt),
            session: Arc::clone(self),
            departure,
            session_id: None,
            place: None,
            standing: self.attribution().standing(),
            has_bad_moment: false,
            resumption: Some(Box::new(resumption)),
        }
    }

    /// Sends a one-way message: a notification or a response. Done when the server accepted it.
    pub(super) async fn send(&self, body: Bytes) -> Result<(), UpstreamError> {
        let attribution = self.attribution();
        let http = &self.server.http;
        let response = http.message(self.post(&attribution, body));
        let response = http.in_time(response).await?;
        let refusal = attribution
            .standing()
            .refusal(response.status(), response.headers());
        refusal.map_or(Ok(()), Err)
    }

    /// Opens the general stream, or the one that `last_event_id` belongs to, after it; `None` when the server offers none.
    pub(super) async fn open_stream(
        &self,
        last_event_id: Option<&str>,
    ) -> Result<Option<EventStream>, UpstreamError> {
        let attribution = self.attribution();
        let request = self.bare(Method::GET, &attribution, Bytes::new());
        let standing = attribution.standing();
        let http = &self.server.http;
        let opening = http.open_stream(request, last_event_id, standing.has_session);
        opening.await.map_err(|error| standing.judged(error))
    }

    /// An event had an id.
    fn saw_event_id(&self) {
        // Most often it is known, and nothing has to be written.
        if !self.gives_event_ids() {
            self.gives_event_ids.store(true, Ordering::Relaxed);
        }
    }

    /// Whether its events have ids, as far as is known.
    fn gives_event_ids(&self) -> bool {
        self.gives_event_ids.load(Ordering::Relaxed)
    }

    /// The largest message of the server.
    fn message_bytes_max(&self) -> usize {
        self.server.http.limits.message_bytes_max
    }

    /// How long a lost answer is asked for again while nothing is heard of the server.
    fn resume_max(&self) -> Duration {
        self.server.http.limits.resume_max
    }

    /// How long the server may take to accept what it accepts at once.
    fn send_timeout(&self) -> Duration {
        self.server.http.limits.send_timeout
    }

    /// Ends the session, if the server opened one. 405 is a legal answer and as good.
    pub(super) async fn close(&self) -> Result<(), UpstreamError> {
        if self.lock().session_id.is_none() {
            return Ok(());
        }
        let deleted = self.delete().await;
        if matches!(deleted, Err(UpstreamError::Request(_))) {
            // The server was just closing the connection. Unlike a call, this may safely be said twice.
            return self.delete().await;
        }
        deleted
    }

    async fn delete(&self) -> Result<(), UpstreamError> {
        let http = &self.server.http;
        let response = http.message(self.bare(Method::DELETE, &self.attribution(), Bytes::new()));
        match http.in_time(response).await?.status() {
            status if status.is_success() => Ok(()),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND => Ok(()),
            status => Err(UpstreamError::Status(status.as_u16())),
        }
    }

    /// From now on it speaks with these credentials: a refreshed token reaches the server.
    pub(super) fn renew(&self, credentials: Option<&HeaderValue>) {
        self.lock().headers.renew(credentials);
    }

    /// Takes the session in that the server opened with the exchange of `initialize`.
    pub(super) fn opened_by(&self, exchange: &Exchange) {
        let mut attribution = self.lock();
        attribution.session_id.clone_from(&exchange.session_id);
        attribution.is_open = true;
        if let Some(place) = &exchange.place {
            attribution.place.clone_from(place);
        }
    }

    /// Takes in which revision the server picked.
    pub(super) fn speaks(&self, revision: &str) {
        self.lock().headers.speaks(revision);
    }

    fn attribution(&self) -> Attribution {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Attribution> {
        self.attribution
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
        let mut request = bare(method, attribution.place.clone(), body);
        let headers = request.headers_mut();
        headers.reserve(6);
        if let Some(session_id) = &attribution.session_id {
            let name = HeaderName::from_static(header::SESSION_ID);
            headers.insert(name, session_id.clone());
        }
        attribution.headers.add_to(headers);
        request
    }
}
