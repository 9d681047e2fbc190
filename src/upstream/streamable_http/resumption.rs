//! How an exchange goes on whose event stream was lost.
//!
//! A stream whose events carry ids is asked for again after the last of them, with a GET: whether it broke or the server
//! closed it on purpose, which a stream without the response does not tell. The request itself is never sent again.
//! Spec: 2025-11-25 basic/transports, "Resumability and Redelivery".

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::time::{Instant, sleep, timeout};

use super::StreamableSession;
use crate::observe::chain;
use crate::upstream::http::EventStream;
use crate::upstream::{Backoff, UpstreamError};
use crate::wire::sse::{Between, Event};

/// The longest id of an event that is remembered. Real ones have some tens of bytes; a state has room for no longer one.
const ID_BYTES_MAX: usize = 1024;

/// Where the stream of an exchange is, and how it is had again.
#[derive(Debug)]
pub(super) struct Resumption {
    session: Arc<StreamableSession>,
    /// Where the latest event stands.
    between: Between,
    backoff: Backoff,
    /// When the present stream was opened.
    opened: Instant,
    /// Since when nothing was heard from the server, once a stream was lost.
    silent_since: Option<Instant>,
    /// The next event is the first of a stream that was resumed.
    is_resumed: bool,
}

impl Resumption {
    /// That of a stream which was opened just now.
    pub(super) fn new(session: Arc<StreamableSession>) -> Self {
        Self {
            session,
            between: Between::default(),
            backoff: Backoff::of_streams(),
            opened: Instant::now(),
            silent_since: None,
            is_resumed: false,
        }
    }

    /// That of a stream which is yet to be opened after this event, and the first attempt.
    pub(super) fn after(session: Arc<StreamableSession>, last_event_id: &str) -> (Self, Attempt) {
        let id: Box<str> = last_event_id.into();
        let attempt = Attempt::new(Arc::clone(&session), id.clone(), Duration::ZERO);
        let resumption = Self {
            between: Between {
                before: None,
                at: Some(id),
            },
            silent_since: Some(Instant::now()),
            ..Self::new(session)
        };
        (resumption, attempt)
    }

    /// Where the latest event stands.
    pub(super) fn between(&self) -> &Between {
        &self.between
    }

    /// Takes an event of the stream in; its message, if it brings one.
    pub(super) fn hear(&mut self, event: Event) -> Option<Bytes> {
        let was_resumed = std::mem::take(&mut self.is_resumed);
        if let Some(retry_ms) = event.retry_ms {
            self.backoff.peer_wants(Duration::from_millis(retry_ms));
            // It says when to come again, which is as good as news.
            self.silent_since = None;
        }
        let is_known = event.id.is_some() && event.id == self.between.at;
        if is_known && (was_resumed || event.data.is_empty()) {
            // Some servers begin with the event after which they were asked.
            return None;
        }
        self.silent_since = None;
        self.backoff.begin_anew();
        self.between.go_on(event.id.map(usable));
        (!event.data.is_empty()).then_some(event.data)
    }

    /// What to do now that the stream is over without the response.
    ///
    /// # Errors
    /// When there is nothing more to do: the reason is given back, if there is one.
    pub(super) fn lost(
        &mut self,
        why: Option<UpstreamError>,
    ) -> Result<Attempt, Option<UpstreamError>> {
        if self.between.at.is_none() {
            return Err(why);
        }
        let lasted = self.opened.elapsed();
        if Backoff::is_steady(lasted) {
            self.silent_since = None;
        }
        self.again(lasted, why.unwrap_or(UpstreamError::Ended))
            .map_err(Some)
    }

    /// Takes in how an attempt went: the stream, or the next attempt.
    ///
    /// # Errors
    /// When the server does not resume the stream, or was not heard of for too long.
    pub(super) fn tried(&mut self, tried: Tried) -> Result<Resumed, UpstreamError> {
        let error = match tried {
            Ok(Some(stream)) => {
                self.opened = Instant::now();
                self.is_resumed = true;
                return Ok(Resumed::Stream(stream));
            }
            Ok(None) => UpstreamError::Status(405),
            Err(error) => error,
        };
        // A challenge ends it too: to pass it on would tell the client that nothing has run, and make it call again.
        if !error.may_pass() {
            return Err(UpstreamError::Unresumed(Box::new(error)));
        }
        self.again(Duration::ZERO, error).map(Resumed::Again)
    }

    fn again(&mut self, lasted: Duration, why: UpstreamError) -> Result<Attempt, UpstreamError> {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.session.resume_max() {
            return Err(UpstreamError::Unresumed(Box::new(why)));
        }
        let pause = self.backoff.after(lasted);
        tracing::debug!(
            error = chain(&why),
            ?pause,
            "the stream with an answer is lost and will be resumed"
        );
        let id = self.between.at.clone().unwrap_or_default();
        Ok(Attempt::new(Arc::clone(&self.session), id, pause))
    }
}

/// What an attempt led to.
pub(super) enum Resumed {
    Stream(EventStream),
    Again(Attempt),
}

/// How an attempt went; without a stream where the server offers none.
pub(super) type Tried = Result<Option<EventStream>, UpstreamError>;

/// A pause and a GET, on their way. Cancel-safe: it goes on where it was.
pub(super) struct Attempt(Pin<Box<dyn Future<Output = Tried> + Send + Sync>>);

impl Attempt {
    fn new(session: Arc<StreamableSession>, last_event_id: Box<str>, pause: Duration) -> Self {
        Self(Box::pin(async move {
            sleep(pause).await;
            // A server that is there begins at once, and what it says to nobody it says again next time.
            timeout(
                session.send_timeout(),
                session.open_stream(Some(&last_event_id)),
            )
            .await
            .unwrap_or(Err(UpstreamError::Timeout))
        }))
    }

    pub(super) async fn tried(&mut self) -> Tried {
        (&mut self.0).await
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Attempt(..)")
    }
}

/// The id, or none, where it cannot be given back in `Last-Event-ID`, or is longer than is remembered of each held call.
fn usable(id: Box<str>) -> Box<str> {
    let is_usable = id.len() <= ID_BYTES_MAX && HeaderValue::from_bytes(id.as_bytes()).is_ok();
    if is_usable { id } else { Box::default() }
}
