//! One open session.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedSemaphorePermit, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::changes::{Audience, Changes};
use super::roots::SessionRoots;
use super::watched::Watched;
use super::wishes::Wishes;
use super::{Number, SessionKey};
use crate::call::AuthChallenge;
use crate::observe::{GaugeGuard, chain};
use crate::translate::discover::ServerIdentity;
use crate::translate::subscription::Change;
use crate::upstream::Connection;
use crate::wire::modern::LogLevel;

/// How long a server may take to end a session over HTTP: its place is wanted by others, who wait twice as long for one
/// by default. A channel is ended by its transport, which has bounds of its own: the place of a process is free when
/// nothing of it is left.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// How the general stream of a session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    /// It is open, or will be again.
    Hears,
    /// The server offers none any more.
    Gone,
    /// The server wants other credentials for it.
    Challenged(Arc<AuthChallenge>),
}

/// What an open session is made of.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: Number,
    /// Shared with who waits for the general stream: that wait must not keep the session.
    pub(super) connection: Arc<Connection>,
    pub(super) key: SessionKey,
    pub(super) identity: Arc<ServerIdentity>,
    /// The server sends things that belong to no request: questions may come there.
    pub(super) has_general_stream: bool,
    /// A call has it for itself: notifications on the general stream are its own.
    pub(super) is_exclusive: AtomicBool,
    /// The server does not know it any more.
    is_gone: AtomicBool,
    /// Calls of other processes may be on it.
    is_left_open: AtomicBool,
    gone: CancellationToken,
    /// The general stream broke and was opened anew: what the server said meanwhile was missed.
    missed: Notify,
    /// Somebody keeps it for listeners, and asks the server for what they want.
    pub(super) is_kept: AtomicBool,
    watched: Mutex<Watched>,
    roots: Mutex<SessionRoots>,
    watched_changed: Notify,
    /// The epoch of the listeners whose wishes it was brought to last.
    pub(super) listeners_seen: AtomicU64,
    stream_state: watch::Sender<StreamState>,
    audience: Audience,
    changes: Arc<Changes>,
    /// The level that the server was asked for and agreed to.
    log_level: AsyncMutex<Option<LogLevel>>,
    log_wishes: Mutex<Wishes>,
    /// The server did not answer when it was asked for a level.
    pub(super) is_slow_to_log: AtomicBool,
    general_stream_end: CancellationToken,
    _end_general_stream: DropGuard,
    _permit: OwnedSemaphorePermit,
    _counted: GaugeGuard,
}

impl Session {
    pub(super) fn new(
        number: Number,
        key: SessionKey,
        (connection, identity): (Connection, ServerIdentity),
        has_general_stream: bool,
        (audience, changes): (Audience, Arc<Changes>),
        (permit, counted): (OwnedSemaphorePermit, GaugeGuard),
    ) -> Self {
        let general_stream_end = CancellationToken::new();
        Self {
            number,
            connection: Arc::new(connection),
            key,
            identity: Arc::new(identity),
            has_general_stream,
            is_exclusive: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            is_left_open: AtomicBool::new(false),
            gone: CancellationToken::new(),
            missed: Notify::new(),
            is_kept: AtomicBool::new(false),
            watched: Mutex::default(),
            roots: Mutex::default(),
            watched_changed: Notify::new(),
            listeners_seen: AtomicU64::new(u64::MAX),
            stream_state: watch::Sender::new(StreamState::Hears),
            audience,
            changes,
            log_level: AsyncMutex::new(None),
            log_wishes: Mutex::default(),
            is_slow_to_log: AtomicBool::new(false),
            _end_general_stream: general_stream_end.clone().drop_guard(),
            general_stream_end,
            _permit: permit,
            _counted: counted,
        }
    }

    /// Cancelled when the general stream is not to be read any more.
    pub(super) fn general_stream_end(&self) -> CancellationToken {
        self.general_stream_end.clone()
    }

    /// The level that the server was asked for; whoever changes it holds the lock meanwhile.
    pub(super) fn log_level(&self) -> &AsyncMutex<Option<LogLevel>> {
        &self.log_level
    }

    /// The levels that live requests want.
    pub(super) fn log_wishes(&self) -> MutexGuard<'_, Wishes> {
        lock(&self.log_wishes)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire) || self.connection.is_over()
    }

    pub(super) fn mark_gone(&self) {
        if !self.is_gone.swap(true, Ordering::AcqRel) {
            self.changes.forget();
        }
        self.gone.cancel();
    }

    /// From now on its end is its server's own business: calls of other processes may be on it.
    pub(super) fn leave_open(&self) {
        self.is_left_open.store(true, Ordering::Release);
    }

    /// Cancelled when the server has forgotten the session, or its channel is over.
    pub(super) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// Woken when something may have been missed.
    pub(super) fn missed(&self) -> &Notify {
        &self.missed
    }

    /// What the server was asked to tell on it.
    pub(super) fn watched(&self) -> MutexGuard<'_, Watched> {
        lock(&self.watched)
    }

    /// What it has to do with roots.
    pub(super) fn roots(&self) -> MutexGuard<'_, SessionRoots> {
        lock(&self.roots)
    }

    /// Woken when that has changed.
    pub(super) fn watched_changed(&self) -> &Notify {
        &self.watched_changed
    }

    /// How its general stream stands.
    pub(super) fn stream_state(&self) -> &watch::Sender<StreamState> {
        &self.stream_state
    }

    /// Something that the server said was missed: what is known of it is doubtful.
    pub(super) fn has_missed(&self) {
        self.changes.forget();
        self.missed.notify_one();
    }

    /// Where changes are told.
    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Who may hear of what comes on it.
    pub(super) fn audience(&self) -> Audience {
        self.audience
    }

    /// Tells those who may hear it of a change that the server notified on this session.
    pub(super) fn publish(&self, change: &Change) {
        self.changes.publish(self.audience, change);
    }

    /// Sends a one-way message that the session can do without.
    pub(super) async fn tell(&self, message: Bytes) {
        if let Err(error) = self.connection.send(message).await {
            let (session, error) = (self.number, chain(&error));
            tracing::debug!(session, error, "a message was not taken by the server");
        }
    }

    /// Tells the server that the session is over, unless it has forgotten it anyway, or it is not over for others.
    pub(super) async fn close(&self) {
        self.general_stream_end.cancel();
        if self.is_left_open.load(Ordering::Acquire) {
            return;
        }
        // What is left of a channel has to be ended even so.
        if self.is_gone() && !self.connection.is_channel() {
            return;
        }
        let closing = self.connection.close();
        let closed = if self.connection.is_channel() {
            Ok(closing.await)
        } else {
            timeout(CLOSE_MAX, closing).await
        };
        let error = match closed {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error),
            Err(late) => late.to_string(),
        };
        let session = self.number;
        tracing::debug!(session, error, "it could not be closed at the server");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
