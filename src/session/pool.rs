//! The pool: warm sessions by key, their bounds, their idle end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use http::Uri;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::handshake::{self, HandshakeError};
use super::lease::{Inbox, Lease, LeaseMode, Session};
use super::{Caller, SessionKey, general_stream};
use crate::call::SessionFate;
use crate::observe::Metrics;
use crate::upstream::streamable_http::{StreamableHttp, TransportLimits};
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::{self, Message, ServerId, UpstreamId};

/// The clocks and bounds of a pool; see the configuration.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// Those of the transport.
    pub transport: TransportLimits,
    /// Sessions open at once.
    pub sessions_max: usize,
    /// How long a session without a call stays open.
    pub session_idle: Duration,
    /// How long the handshake may take.
    pub initialize_timeout: Duration,
    /// How long the general stream may take to open.
    pub get_stream_wait: Duration,
    /// How long a caller waits for a session at the bound.
    pub session_wait: Duration,
    /// How long a question outside any call waits.
    pub stray_question_max: Duration,
}

/// Why there is no session for a call. The call was not sent.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// As many sessions are open as may be.
    #[error("all sessions with the server are in use")]
    Exhausted,
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The process is going down.
    #[error("the gateway is shutting down")]
    Closing,
}

/// The sessions with one server.
#[derive(Debug)]
pub struct Pool {
    upstream: Arc<StreamableHttp>,
    pub(super) settings: PoolSettings,
    shelves: DashMap<SessionKey, Shelf>,
    permits: Arc<Semaphore>,
    next_id: AtomicU64,
    /// The server is known to open a general stream: sessions are not to be waited for, they cannot be shared.
    offers_general_stream: AtomicBool,
    is_closing: AtomicBool,
    tasks: TaskTracker,
    metrics: Arc<Metrics>,
}

/// The warm sessions of one key.
#[derive(Debug, Default)]
struct Shelf {
    idle: Vec<Idle>,
    shared: Vec<SharedSession>,
    /// Held while a session that others can share is being opened, so that they wait for it.
    opening: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Idle {
    session: Arc<Session>,
    inbox: Inbox,
    since: Instant,
}

#[derive(Debug)]
struct SharedSession {
    session: Arc<Session>,
    inbox: Inbox,
    users: usize,
}

impl Pool {
    /// A pool of sessions with the server at `uri`. Its background work runs on `tasks`.
    #[must_use]
    pub fn new(
        uri: Uri,
        settings: PoolSettings,
        tasks: TaskTracker,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            upstream: Arc::new(StreamableHttp::new(uri, settings.transport.clone())),
            permits: Arc::new(Semaphore::new(settings.sessions_max)),
            settings,
            shelves: DashMap::new(),
            next_id: AtomicU64::new(1),
            offers_general_stream: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            tasks,
            metrics,
        }
    }

    /// An id for a request to this server, unique over all its sessions.
    #[must_use]
    pub fn next_id(&self) -> UpstreamId {
        UpstreamId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// A session for one call of `caller`: a warm one, or a new one.
    ///
    /// # Errors
    /// When none can be had within the bounds.
    pub async fn lease(
        self: &Arc<Self>,
        caller: &Caller,
        mode: LeaseMode,
    ) -> Result<Lease, LeaseError> {
        if self.is_closing.load(Ordering::Acquire) {
            return Err(LeaseError::Closing);
        }
        if caller.isolated {
            return self.open(caller, LeaseMode::Exclusive).await;
        }
        if let Some(lease) = self.warm(caller, mode) {
            return Ok(lease);
        }
        if mode == LeaseMode::Exclusive && self.offers_general_stream.load(Ordering::Acquire) {
            return self.open(caller, mode).await;
        }
        let opening = Arc::clone(&self.shelves.entry(caller.key.clone()).or_default().opening);
        let _turn = opening.lock().await;
        match self.warm(caller, mode) {
            Some(lease) => Ok(lease),
            None => self.open(caller, mode).await,
        }
    }

    fn warm(self: &Arc<Self>, caller: &Caller, mode: LeaseMode) -> Option<Lease> {
        let mut shelf = self.shelves.get_mut(&caller.key)?;
        let can_join = |shared: &&mut SharedSession| {
            !shared.session.is_gone()
                && (mode == LeaseMode::Shared || !shared.session.has_general_stream)
        };
        if let Some(shared) = shelf.shared.iter_mut().find(can_join) {
            shared.users += 1;
            let session = Arc::clone(&shared.session);
            session.renew(caller.credentials.as_ref());
            return Some(self.leased(session, None));
        }
        while let Some(Idle {
            session, mut inbox, ..
        }) = shelf.idle.pop()
        {
            if session.is_gone() {
                continue;
            }
            session.renew(caller.credentials.as_ref());
            inbox.collect(Instant::now());
            return Some(self.put_to_use(&mut shelf, session, inbox, mode));
        }
        None
    }

    fn leased(self: &Arc<Self>, session: Arc<Session>, inbox: Option<Inbox>) -> Lease {
        session
            .is_exclusive
            .store(inbox.is_some(), Ordering::Release);
        Lease {
            pool: Arc::clone(self),
            session,
            inbox,
            fate: SessionFate::Reuse,
            isolated: false,
        }
    }

    /// Sessions without a general stream are always shared: each question comes on its own call's stream.
    fn put_to_use(
        self: &Arc<Self>,
        shelf: &mut Shelf,
        session: Arc<Session>,
        inbox: Inbox,
        mode: LeaseMode,
    ) -> Lease {
        if mode == LeaseMode::Exclusive && session.has_general_stream {
            return self.leased(session, Some(inbox));
        }
        shelf.shared.push(SharedSession {
            session: Arc::clone(&session),
            inbox,
            users: 1,
        });
        self.leased(session, None)
    }

    /// Opens a session on a task of its own: a caller that goes away meanwhile leaves a warm session behind
    /// instead of one that the server believes open and nobody knows.
    async fn open(self: &Arc<Self>, caller: &Caller, mode: LeaseMode) -> Result<Lease, LeaseError> {
        let permit = self.permit().await?;
        let (lease, opened) = oneshot::channel();
        let (pool, caller) = (Arc::clone(self), caller.clone());
        self.tasks.spawn(async move {
            let result = pool.handshake(&caller, mode, permit).await;
            // Without a receiver the lease is dropped, which puts the session on its shelf.
            let _ = lease.send(result);
        });
        opened.await.unwrap_or(Err(LeaseError::Closing))
    }

    async fn handshake(
        self: &Arc<Self>,
        caller: &Caller,
        mode: LeaseMode,
        permit: OwnedSemaphorePermit,
    ) -> Result<Lease, LeaseError> {
        let counted = self.metrics.sessions.count();
        let id = self.next_id();
        let opened = handshake::open(
            &self.upstream,
            &caller.key,
            caller.credentials.clone(),
            id,
            self.settings.initialize_timeout,
        )
        .await?;
        let end = CancellationToken::new();
        let (inbox_sender, arriving) = mpsc::channel(general_stream::QUEUE_MAX);
        let stream = timeout(
            self.settings.get_stream_wait,
            self.upstream.open_stream(&opened.0, None),
        );
        let (has_general_stream, stream) = match stream.await {
            Ok(Ok(Some(stream))) => (true, Some(stream)),
            Ok(Ok(None)) => (false, None),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the server's general stream is not to be had");
                (false, None)
            }
            // Some servers send no head before their first event: it may come yet.
            Err(_) => (true, None),
        };
        let session = Arc::new(Session::new(
            Arc::clone(&self.upstream),
            caller.key.clone(),
            opened,
            has_general_stream,
            end.clone(),
            permit,
            counted,
        ));
        if has_general_stream {
            self.offers_general_stream.store(true, Ordering::Release);
            let session = Arc::downgrade(&session);
            self.tasks
                .spawn(general_stream::listen(session, stream, inbox_sender, end));
        }
        let inbox = Inbox {
            arriving,
            stray: std::collections::VecDeque::new(),
        };
        if caller.isolated {
            let mut lease = self.leased(session, Some(inbox));
            lease.isolated = true;
            return Ok(lease);
        }
        let mut shelf = self.shelves.entry(caller.key.clone()).or_default();
        Ok(self.put_to_use(&mut shelf, session, inbox, mode))
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, LeaseError> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        // Somebody's idle session gives way; closing it frees its permit.
        self.close_longest_idle();
        match timeout(
            self.settings.session_wait,
            Arc::clone(&self.permits).acquire_owned(),
        )
        .await
        {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(LeaseError::Exhausted),
        }
    }

    /// What a dropped lease does.
    pub(super) fn give_back(
        &self,
        session: &Arc<Session>,
        inbox: Option<Inbox>,
        fate: SessionFate,
    ) {
        let is_over = session.is_gone() || self.is_closing.load(Ordering::Acquire);
        let now = Instant::now();
        if let Some(inbox) = inbox {
            session.is_exclusive.store(false, Ordering::Release);
            if is_over || fate == SessionFate::Retire {
                return self.close(Arc::clone(session));
            }
            let mut shelf = self.shelves.entry(session.key.clone()).or_default();
            shelf.idle.push(Idle {
                session: Arc::clone(session),
                inbox,
                since: now,
            });
            return;
        }
        // A shared session serves others: the fate of one call, whose stream was its own, is not theirs.
        let Some(mut shelf) = self.shelves.get_mut(&session.key) else {
            return;
        };
        let Some(at) = shelf
            .shared
            .iter()
            .position(|shared| Arc::ptr_eq(&shared.session, session))
        else {
            return;
        };
        shelf.shared[at].users -= 1;
        if shelf.shared[at].users > 0 {
            return;
        }
        let SharedSession { session, inbox, .. } = shelf.shared.swap_remove(at);
        if is_over {
            self.close(session);
        } else {
            shelf.idle.push(Idle {
                session,
                inbox,
                since: now,
            });
        }
    }

    fn close(&self, session: Arc<Session>) {
        self.tasks.spawn(async move { session.close().await });
    }

    fn close_longest_idle(&self) {
        let oldest = self
            .shelves
            .iter()
            .filter_map(|shelf| {
                let since = shelf.idle.iter().map(|idle| idle.since).min()?;
                Some((since, shelf.key().clone()))
            })
            .min_by_key(|(since, _)| *since);
        let Some((since, key)) = oldest else { return };
        if let Some(mut shelf) = self.shelves.get_mut(&key)
            && let Some(at) = shelf.idle.iter().position(|idle| idle.since == since)
        {
            let idle = shelf.idle.swap_remove(at);
            self.close(idle.session);
        }
    }

    /// Closes sessions that were idle for too long and refuses questions that waited for too long.
    pub fn sweep(&self) {
        let now = Instant::now();
        for mut shelf in self.shelves.iter_mut() {
            let is_due = |idle: &mut Idle| {
                idle.session.is_gone() || now - idle.since >= self.settings.session_idle
            };
            for idle in shelf.idle.extract_if(.., is_due).collect::<Vec<_>>() {
                self.close(idle.session);
            }
            let Shelf { idle, shared, .. } = &mut *shelf;
            let waiting = idle.iter_mut().map(|idle| (&idle.session, &mut idle.inbox));
            let waiting = waiting.chain(
                shared
                    .iter_mut()
                    .map(|shared| (&shared.session, &mut shared.inbox)),
            );
            for (session, inbox) in waiting {
                inbox.collect(now);
                while let Some((since, _)) = inbox.stray.front()
                    && now - *since >= self.settings.stray_question_max
                    && let Some((_, message)) = inbox.stray.pop_front()
                {
                    self.refuse(session, &message);
                }
            }
        }
        self.shelves.retain(|_, shelf| {
            let is_being_opened = Arc::strong_count(&shelf.opening) > 1;
            is_being_opened || !shelf.idle.is_empty() || !shelf.shared.is_empty()
        });
    }

    fn refuse(&self, session: &Arc<Session>, message: &[u8]) {
        let Ok(Message::Request { id, .. }) = Message::parse(message) else {
            return;
        };
        let Some(id) = ServerId::new(id) else { return };
        let error = ErrorObject::new(
            error::INTERNAL_ERROR,
            "no call is running that could be asked",
        );
        let refusal = jsonrpc::error(&id, &error);
        let session = Arc::clone(session);
        self.tasks.spawn(async move {
            let _ = session
                .upstream
                .send(&session.attribution(), refusal.into())
                .await;
        });
    }

    /// Closes all sessions that no call uses; the others close when their calls end.
    pub fn close_all(&self) {
        self.is_closing.store(true, Ordering::Release);
        for mut shelf in self.shelves.iter_mut() {
            for idle in shelf.idle.drain(..) {
                self.close(idle.session);
            }
        }
    }
}
