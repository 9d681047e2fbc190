//! The pool: warm sessions by key, their bounds, their idle end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::changes::{Audience, Changes};
use super::error::LeaseError;
use super::general_stream::Listener;
use super::handshake::Handshake;
use super::home::{Home, refusal};
use super::inbox::Inbox;
use super::lease::Lease;
use super::live::Session;
use super::roots::RootsHabits;
use super::shelf::{LeaseMode, Shelf};
use super::{Caller, Number, SessionKey};
use crate::call::SessionFate;
use crate::observe::{Metrics, chain};
use crate::translate::discover::ServerIdentity;
use crate::upstream::{Connection, GeneralStream, Target};
use crate::wire::error;
use crate::wire::jsonrpc::UpstreamId;

/// The clocks and bounds of a pool; see the configuration.
#[derive(Debug, Clone)]
pub struct PoolSettings {
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
    /// The id of the first request.
    pub first_id: u64,
}

/// The sessions with one server.
#[derive(Debug)]
pub struct Pool {
    pub(super) target: Target,
    pub(super) settings: PoolSettings,
    shelves: DashMap<SessionKey, Shelf>,
    permits: Arc<Semaphore>,
    /// A session became idle: who waits for one may look again.
    became_idle: Notify,
    next_id: AtomicU64,
    pub(super) next_number: AtomicU64,
    /// The server is known to open a general stream: sessions are not to be waited for, they cannot be shared.
    offers_general_stream: AtomicBool,
    /// Cancelled when no session is to be opened any more.
    closing: CancellationToken,
    roots_habits: RootsHabits,
    changes: Arc<Changes>,
    tasks: TaskTracker,
    metrics: Arc<Metrics>,
}

/// What comes of waiting at the bound.
pub(super) enum Room<W> {
    /// A session that has become idle meanwhile.
    Warm(W),
    /// Leave to open one.
    Permit(OwnedSemaphorePermit),
}

/// What a server makes of the GET that opens the general stream.
enum Offer {
    Open(GeneralStream),
    /// It may come yet: some servers send no head before their first event, and some have a bad moment.
    Expected,
    NotOffered,
}

impl Pool {
    /// A pool of sessions with a server. Its background work runs on `tasks`.
    #[must_use]
    pub fn new(
        target: Target,
        settings: PoolSettings,
        tasks: TaskTracker,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            target,
            permits: Arc::new(Semaphore::new(settings.sessions_max)),
            next_id: AtomicU64::new(settings.first_id),
            settings,
            shelves: DashMap::new(),
            became_idle: Notify::new(),
            next_number: AtomicU64::new(1),
            offers_general_stream: AtomicBool::new(false),
            closing: CancellationToken::new(),
            roots_habits: RootsHabits::default(),
            changes: Arc::default(),
            tasks,
            metrics,
        }
    }

    /// An id for a request to this server, unique over all its sessions.
    #[must_use]
    pub fn next_id(&self) -> UpstreamId {
        UpstreamId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether all messages of a session share one channel, as far as is known.
    #[must_use]
    pub fn uses_channels(&self) -> bool {
        self.target.uses_channels()
    }

    /// What the server says has changed, on any of its sessions.
    #[must_use]
    pub fn changes(&self) -> &Arc<Changes> {
        &self.changes
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
        if self.is_closing() {
            return Err(LeaseError::Closing);
        }
        if let Some(lease) = self.warm(caller, mode) {
            return Ok(lease);
        }
        if caller.isolated || self.opens_beside_others(mode) {
            return self.warm_or_new(caller, mode).await;
        }
        let opening = Arc::clone(&self.shelves.entry(caller.key.clone()).or_default().opening);
        let turn = opening.turn().await?;
        if self.opens_beside_others(mode) {
            // The turn before has shown it.
            drop(turn);
            return self.warm_or_new(caller, mode).await;
        }
        let leased = self.warm_or_new(caller, mode).await;
        if let Err(error) = &leased {
            opening.has_failed(error);
        }
        leased
    }

    /// Whether the next session will be this call's own anyway, so that nobody need wait for it.
    fn opens_beside_others(&self, mode: LeaseMode) -> bool {
        mode != LeaseMode::Shared && self.offers_general_stream.load(Ordering::Acquire)
    }

    fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    pub(super) fn home(self: &Arc<Self>) -> Arc<dyn Home> {
        Arc::<Self>::clone(self)
    }

    fn warm(self: &Arc<Self>, caller: &Caller, mode: LeaseMode) -> Option<Lease> {
        if caller.isolated {
            return None;
        }
        let (session, inbox) = self.shelves.get_mut(&caller.key)?.take(mode)?;
        session.connection.renew(caller.credentials.as_ref());
        Some(Lease::new(self.home(), session, inbox, false))
    }

    async fn warm_or_new(
        self: &Arc<Self>,
        caller: &Caller,
        mode: LeaseMode,
    ) -> Result<Lease, LeaseError> {
        match self.room(|| self.warm(caller, mode)).await? {
            Room::Warm(lease) => Ok(lease),
            Room::Permit(permit) => self.open(caller, mode, permit).await,
        }
    }

    /// Waits until there is a `warm` session that will do, or room for one more. At the bound somebody's idle session
    /// gives way: closing it frees its permit.
    pub(super) async fn room<W>(
        &self,
        warm: impl Fn() -> Option<W>,
    ) -> Result<Room<W>, LeaseError> {
        let waits = async {
            loop {
                let mut became_idle = std::pin::pin!(self.became_idle.notified());
                became_idle.as_mut().enable();
                if let Some(warm) = warm() {
                    return Room::Warm(warm);
                }
                if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
                    return Room::Permit(permit);
                }
                self.close_longest_idle();
                tokio::select! {
                    Ok(permit) = Arc::clone(&self.permits).acquire_owned() => return Room::Permit(permit),
                    () = became_idle => {}
                }
            }
        };
        let room = timeout(self.settings.session_wait, waits).await;
        room.map_err(|_| LeaseError::Exhausted)
    }

    /// Opens a session on a task of its own: a caller that goes away meanwhile leaves a warm session behind
    /// instead of one that the server believes open and nobody knows.
    async fn open(
        self: &Arc<Self>,
        caller: &Caller,
        mode: LeaseMode,
        permit: OwnedSemaphorePermit,
    ) -> Result<Lease, LeaseError> {
        let (lease, opened) = oneshot::channel();
        let (pool, caller) = (Arc::clone(self), caller.clone());
        self.tasks.spawn(async move {
            let result = pool.shake_hands(&caller, mode, permit).await;
            // Without a receiver the lease is dropped, which puts the session on its shelf.
            let _ = lease.send(result);
        });
        opened.await.unwrap_or(Err(LeaseError::Closing))
    }

    async fn shake_hands(
        self: &Arc<Self>,
        caller: &Caller,
        mode: LeaseMode,
        permit: OwnedSemaphorePermit,
    ) -> Result<Lease, LeaseError> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let handshake = Handshake {
            target: &self.target,
            key: &caller.key,
            credentials: caller.credentials.clone(),
            number,
            id: self.next_id(),
            closing: &self.closing,
        };
        let opened = handshake.open(self.settings.initialize_timeout).await?;
        let (session, inbox) = self.settle_in(caller, number, opened, permit).await;
        if caller.isolated {
            return Ok(Lease::new(self.home(), session, Some(inbox), true));
        }
        let mut shelf = self.shelves.entry(caller.key.clone()).or_default();
        let (session, inbox) = shelf.put_to_use(session, inbox, mode);
        drop(shelf);
        Ok(Lease::new(self.home(), session, inbox, false))
    }

    /// A session that is open at the server, with its general stream.
    pub(super) async fn settle_in(
        &self,
        caller: &Caller,
        number: Number,
        opened: (Connection, ServerIdentity),
        permit: OwnedSemaphorePermit,
    ) -> (Arc<Session>, Inbox) {
        let counted = self.metrics.sessions.count();
        let general_stream = self.general_stream(number, &opened.0).await;
        let (has_general_stream, stream) = match general_stream {
            Offer::Open(stream) => (true, Some(stream)),
            Offer::Expected => (true, None),
            Offer::NotOffered => (false, None),
        };
        let audience = if caller.isolated {
            Audience::Alone(number)
        } else {
            Audience::Of(caller.key.principal)
        };
        let session = Arc::new(Session::new(
            number,
            caller.key.clone(),
            opened,
            has_general_stream,
            (audience, Arc::clone(&self.changes)),
            (permit, counted),
        ));
        tracing::debug!(session = number, has_general_stream, "it is open");
        if let Some(ending) = session.connection.ends_with(&self.closing) {
            self.tasks.spawn(ending);
        }
        let (slot, inbox) = Inbox::new();
        if has_general_stream {
            self.offers_general_stream.store(true, Ordering::Release);
            let listener = Listener::new(&session, slot, self.tasks.clone());
            let end = session.general_stream_end();
            self.tasks.spawn(listener.listen(stream, end));
        }
        (session, inbox)
    }

    /// Opens the general stream. Only a refusal means that there is none: of 405 the spec says so, and of the other
    /// client errors a server that has just opened the session can mean nothing else.
    async fn general_stream(&self, session: u64, connection: &Connection) -> Offer {
        let stream = connection.general_stream();
        let error = match timeout(self.settings.get_stream_wait, stream).await {
            Ok(Ok(Some(stream))) => return Offer::Open(stream),
            Ok(Ok(None)) => return Offer::NotOffered,
            Err(_) => return Offer::Expected,
            Ok(Err(error)) => error,
        };
        let is_refused = !error.may_pass();
        let error = chain(&error);
        tracing::debug!(
            session,
            error,
            is_refused,
            "the general stream is not to be had"
        );
        if is_refused {
            Offer::NotOffered
        } else {
            Offer::Expected
        }
    }

    fn close(&self, session: Arc<Session>) {
        self.tasks.spawn(async move { session.close().await });
    }

    fn close_longest_idle(&self) {
        let oldest = self
            .shelves
            .iter()
            .filter_map(|shelf| Some((shelf.idle_since()?, shelf.key().clone())))
            .min_by_key(|(since, _)| *since);
        let Some((oldest, key)) = oldest else { return };
        if let Some(mut shelf) = self.shelves.get_mut(&key) {
            for session in shelf.take_idle(|since| since == oldest) {
                self.close(session);
            }
        }
    }

    /// Closes sessions that were idle for too long and refuses questions that waited for too long.
    pub fn sweep(&self) {
        let now = Instant::now();
        for mut shelf in self.shelves.iter_mut() {
            for session in shelf.take_idle(|since| now - since >= self.settings.session_idle) {
                self.close(session);
            }
            for (session, inbox) in shelf.unread() {
                for message in inbox.overdue(now, self.settings.stray_question_max) {
                    self.refuse(session, &message);
                }
            }
        }
        self.shelves.retain(|_, shelf| !shelf.is_unused());
    }

    /// Closes all sessions that no call uses, and gives up those that are being opened; the others close when their calls
    /// end, those on channels in any case after a moment for farewells.
    pub fn close_all(&self) {
        self.closing.cancel();
        for mut shelf in self.shelves.iter_mut() {
            for session in shelf.take_idle(|_| true) {
                self.close(session);
            }
        }
    }
}

impl Home for Pool {
    fn next_id(&self) -> UpstreamId {
        Self::next_id(self)
    }

    fn run(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.tasks.spawn(task);
    }

    fn roots_habits(&self) -> &RootsHabits {
        &self.roots_habits
    }

    fn refuse(&self, session: &Arc<Session>, message: &[u8]) {
        let why = "no call is running that could be asked";
        let Some(answer) = refusal(message, error::INTERNAL_ERROR, why) else {
            return;
        };
        let session = Arc::clone(session);
        self.tasks
            .spawn(async move { session.tell(answer.into()).await });
    }

    fn take_back(&self, session: &Arc<Session>, inbox: Option<Inbox>, fate: SessionFate) {
        if fate == SessionFate::Retire && inbox.is_none() && session.connection.is_channel() {
            // What the server still says of this call would be taken for another's.
            session.mark_gone();
        }
        let is_used_up = self.roots_habits.keeps_for_ever() && session.roots().are_kept();
        let fate = if is_used_up {
            SessionFate::Retire
        } else {
            fate
        };
        session.is_exclusive.store(false, Ordering::Release);
        let mut shelf = match self.shelves.get_mut(&session.key) {
            Some(shelf) => shelf,
            None => self.shelves.entry(session.key.clone()).or_default(),
        };
        // Read under the lock of the shelf: `close_all` sets it before it comes by.
        let is_closing = self.is_closing();
        let retired = shelf.put_back(session, inbox, fate, is_closing);
        drop(shelf);
        match retired {
            Some(session) => self.close(session),
            None => self.became_idle.notify_waiters(),
        }
    }
}
