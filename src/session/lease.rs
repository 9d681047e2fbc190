//! A session while a call uses it, and what becomes of it afterwards.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pool::Pool;
use super::{Caller, SessionKey};
use crate::call::SessionFate;
use crate::observe::GaugeGuard;
use crate::translate::discover::ServerIdentity;
use crate::upstream::UpstreamError;
use crate::upstream::streamable_http::{Attribution, Exchange, StreamableHttp};
use crate::wire::jsonrpc::{self, Message, UpstreamId};
use crate::wire::legacy;
use crate::wire::modern::LogLevel;

/// How long a call waits for the server to take a log level: it is a courtesy, not worth a call.
const LOG_LEVEL_WAIT: Duration = Duration::from_secs(2);

/// Whether a call shares its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseMode {
    /// Nothing will be asked: other such calls may use the session at the same time.
    Shared,
    /// Something may be asked on the general stream: no other call may be running on the session.
    Exclusive,
}

/// One open session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) upstream: Arc<StreamableHttp>,
    pub(super) key: SessionKey,
    pub(super) identity: Arc<ServerIdentity>,
    /// The server sends things that belong to no request: questions may come there.
    pub(super) has_general_stream: bool,
    attribution: Mutex<Attribution>,
    /// The server does not know it any more.
    is_gone: AtomicBool,
    /// A call has it for itself: notifications on the general stream are its own.
    pub(super) is_exclusive: AtomicBool,
    log_level: Mutex<Option<LogLevel>>,
    pub(super) general_stream_end: CancellationToken,
    _end_general_stream: DropGuard,
    _permit: OwnedSemaphorePermit,
    _counted: GaugeGuard,
}

impl Session {
    pub(super) fn new(
        upstream: Arc<StreamableHttp>,
        key: SessionKey,
        (attribution, identity): (Attribution, ServerIdentity),
        has_general_stream: bool,
        general_stream_end: CancellationToken,
        permit: OwnedSemaphorePermit,
        counted: GaugeGuard,
    ) -> Self {
        Self {
            upstream,
            key,
            identity: Arc::new(identity),
            has_general_stream,
            attribution: Mutex::new(attribution),
            is_gone: AtomicBool::new(false),
            is_exclusive: AtomicBool::new(false),
            log_level: Mutex::new(None),
            _end_general_stream: general_stream_end.clone().drop_guard(),
            general_stream_end,
            _permit: permit,
            _counted: counted,
        }
    }

    pub(super) fn attribution(&self) -> Attribution {
        self.attribution
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// From now on the session speaks with these credentials: a refreshed token reaches the server.
    pub(super) fn renew(&self, credentials: Option<&HeaderValue>) {
        let mut attribution = self
            .attribution
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if attribution.credentials.as_ref() != credentials {
            attribution.credentials = credentials.cloned();
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(super) fn mark_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    /// Tells the server that the session is over, unless it has forgotten it anyway.
    pub(super) async fn close(&self) {
        self.general_stream_end.cancel();
        let attribution = self.attribution();
        if self.is_gone() || attribution.session_id.is_none() {
            return;
        }
        let mut deleted = self.upstream.delete(&attribution).await;
        if matches!(deleted, Err(UpstreamError::Request(_))) {
            // The server was just closing the connection. Unlike a call, this may safely be said twice.
            deleted = self.upstream.delete(&attribution).await;
        }
        if let Err(error) = deleted {
            tracing::debug!(%error, "a session could not be closed at the server");
        }
    }
}

/// What came on the general stream and waits for a call: at idle sessions, questions outside any call.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) arriving: mpsc::Receiver<Bytes>,
    pub(super) stray: VecDeque<(Instant, Bytes)>,
}

impl Inbox {
    /// Moves what has arrived to the strays, which remember since when they wait.
    pub(super) fn collect(&mut self, now: Instant) {
        while let Ok(message) = self.arriving.try_recv() {
            self.stray.push_back((now, message));
        }
    }

    fn take(&mut self) -> Vec<Bytes> {
        self.collect(Instant::now());
        self.stray.drain(..).map(|(_, message)| message).collect()
    }
}

/// A session in use. Dropped, it goes back to its pool or is closed.
#[derive(Debug)]
pub struct Lease {
    pub(super) pool: Arc<Pool>,
    pub(super) session: Arc<Session>,
    /// Present while the call has the session for itself.
    pub(super) inbox: Option<Inbox>,
    pub(super) fate: SessionFate,
    /// The session serves this call alone and ends with it.
    pub(super) isolated: bool,
}

impl Lease {
    /// Who the server is.
    #[must_use]
    pub fn identity(&self) -> &Arc<ServerIdentity> {
        &self.session.identity
    }

    /// Sends a request of a call.
    #[must_use]
    pub fn request(&self, body: Bytes) -> Exchange {
        self.session
            .upstream
            .request(&self.session.attribution(), body)
    }

    /// A sender of one-way messages that lives independently of the lease.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender {
            session: Arc::clone(&self.session),
        }
    }

    /// The next message on the general stream; never one while the session is shared. Cancel-safe.
    pub async fn general_message(&mut self) -> Bytes {
        if let Some(inbox) = &mut self.inbox
            && let Some(message) = inbox.arriving.recv().await
        {
            return message;
        }
        std::future::pending().await
    }

    /// What waits on the session for a call that can be asked.
    #[must_use]
    pub fn take_strays(&mut self) -> Vec<Bytes> {
        self.inbox.as_mut().map(Inbox::take).unwrap_or_default()
    }

    /// Asks the server for log messages from `level` on, if it can and has not been asked for as much.
    pub async fn want_logs(&self, level: LogLevel) {
        if !self.session.identity.declares("logging") {
            return;
        }
        {
            let mut current = self
                .session
                .log_level
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let is_enough = match self.inbox {
                Some(_) => *current == Some(level),
                // Others may need the lower level: it is never raised under them.
                None => current.is_some_and(|current| current <= level),
            };
            if is_enough {
                return;
            }
            *current = Some(level);
        }
        let id = self.pool.next_id();
        let params = format!(r#"{{"level":"{}"}}"#, level.as_str());
        let request = jsonrpc::request(id, legacy::LOGGING_SET_LEVEL, params.as_bytes());
        let answered =
            tokio::time::timeout(LOG_LEVEL_WAIT, answered(self.request(request.into()), id));
        if !matches!(answered.await, Ok(Ok(()))) {
            tracing::debug!("the server did not take the log level");
            *self
                .session
                .log_level
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// From now on the session speaks with the credentials of this leg's caller.
    pub fn renew(&self, caller: &Caller) {
        self.session.renew(caller.credentials.as_ref());
    }

    /// The server has forgotten the session: nobody else gets it.
    pub fn mark_gone(&self) {
        self.session.mark_gone();
    }

    /// Says what becomes of the session when the lease is dropped.
    pub fn set_fate(&mut self, fate: SessionFate) {
        self.fate = fate;
    }
}

async fn answered(mut exchange: Exchange, id: UpstreamId) -> Result<(), UpstreamError> {
    while let Some(message) = exchange.next_message().await? {
        match Message::parse(&message) {
            Ok(Message::Result { id: answered, .. }) if id.matches(answered) => return Ok(()),
            Ok(Message::Error { .. }) => break,
            _ => {}
        }
    }
    Err(UpstreamError::Ended)
}

impl Drop for Lease {
    fn drop(&mut self) {
        let inbox = self.inbox.take();
        let fate = if self.isolated {
            SessionFate::Retire
        } else {
            self.fate
        };
        self.pool.give_back(&self.session, inbox, fate);
    }
}

/// Sends one-way messages of a call to the server of its session.
#[derive(Debug, Clone)]
pub struct Sender {
    session: Arc<Session>,
}

impl Sender {
    /// Sends one message; done when the server accepted it.
    ///
    /// # Errors
    /// When it was not accepted.
    pub async fn send(&self, message: Bytes) -> Result<(), UpstreamError> {
        let sent = self
            .session
            .upstream
            .send(&self.session.attribution(), message)
            .await;
        if matches!(sent, Err(UpstreamError::SessionGone)) {
            self.session.mark_gone();
        }
        sent
    }
}
