//! The keeper of one session key's listeners: holds a session open for them and subscribes there to what they want.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::desk::{Agreed, Desk, Open};
use crate::call::{AuthChallenge, Reply, failed};
use crate::hold::backend::Backend;
use crate::session::{ASKING_MAX, Audience, Caller, Ear, Hearing, Lease, SessionKey};

/// The first pause after a session could not be had, doubled up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A session that was kept for so long was no failure: the next one is opened at once.
const STEADY: Duration = Duration::from_secs(1);

/// Keeps a session for listeners.
#[derive(Debug)]
pub(super) struct Keeper {
    backend: Arc<Backend>,
    key: SessionKey,
    isolated: bool,
    _session: OwnedSemaphorePermit,
    desk: Mutex<Desk>,
    /// Wakes the keeper: a member came or went.
    work: Notify,
    /// Wakes the members: something on the desk has changed.
    news: watch::Sender<()>,
}

/// A listener's place at its keeper, until it is dropped.
#[derive(Debug)]
pub(super) struct Member {
    keeper: Arc<Keeper>,
    ear: Arc<Ear>,
    /// Whoever shares no session hears by way of its keeper alone.
    hearing: Option<Hearing>,
    news: watch::Receiver<()>,
    /// Failures before it came are not its own.
    failures_before: u64,
}

/// Why a session is kept no longer.
enum Kept {
    /// Nobody wants it.
    Enough,
    /// The server has forgotten it.
    Lost,
    /// The server says nothing on it any more.
    Deaf,
}

impl Keeper {
    /// A keeper for callers like this one; `session` is leave to keep a session.
    pub(super) fn new(
        backend: Arc<Backend>,
        caller: Arc<Caller>,
        session: OwnedSemaphorePermit,
    ) -> Arc<Self> {
        Arc::new(Self {
            backend,
            key: caller.key.clone(),
            isolated: caller.isolated,
            _session: session,
            desk: Mutex::new(Desk::new(caller)),
            work: Notify::new(),
            news: watch::Sender::default(),
        })
    }

    pub(super) fn key(&self) -> &SessionKey {
        &self.key
    }

    pub(super) fn is_isolated(&self) -> bool {
        self.isolated
    }

    /// Whether it has no member.
    pub(super) fn is_unused(&self) -> bool {
        self.desk().ears().is_empty()
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.news.send_replace(());
    }

    /// Keeps a session, and the next one when it is lost, until nobody wants it or the gateway closes. Cancel-safe: what
    /// was not finished then is begun again by the next call.
    pub(super) async fn keep(&self, closing: &CancellationToken) {
        tokio::select! {
            () = closing.cancelled() => {}
            () = self.keep_again_and_again() => {}
        }
    }

    async fn keep_again_and_again(&self) {
        let (mut pause, mut was_open) = (PAUSE_FIRST, false);
        while !self.is_unused() {
            let caller = Arc::clone(self.desk().caller());
            match self.backend.lease_shared(&caller).await {
                Ok(mut lease) => {
                    if std::mem::replace(&mut was_open, true) {
                        self.missed();
                    }
                    let begun = Instant::now();
                    let kept = self.keep_one(&mut lease).await;
                    self.desk().lost();
                    match kept {
                        Kept::Enough => return,
                        Kept::Lost if begun.elapsed() >= STEADY => {
                            pause = PAUSE_FIRST;
                            continue;
                        }
                        Kept::Lost | Kept::Deaf => {}
                    }
                }
                Err(reply) => self.failed(reply, was_open),
            }
            tokio::select! {
                () = sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
                () = self.work.notified() => {}
            }
        }
    }

    /// A session could not be had. Whoever waits for the first one is told so; the others go on waiting, unless other
    /// credentials are wanted: then only their client can help.
    fn failed(&self, reply: Reply, was_open: bool) {
        if was_open && matches!(reply, Reply::Challenge(_)) {
            self.desk().end(reply);
        } else {
            self.desk().failed(reply);
        }
        self.tell();
    }

    /// What the server said meanwhile is not known.
    fn missed(&self) {
        for ear in self.desk().ears() {
            ear.missed();
        }
    }

    async fn keep_one(&self, lease: &mut Lease) -> Kept {
        // Whoever shares no session hears its own alone, and hears it from here on.
        let _hearing = self.isolated.then(|| {
            let ear = self.desk().ears().first().cloned();
            ear.map(|ear| self.backend.pool.changes().listen(lease.audience(), &ear))
        });
        let _keeping = lease.keep_for_listeners();
        self.desk().opened(Open {
            server: Arc::clone(lease.identity()),
            has_general_stream: lease.has_general_stream(),
            may_subscribe: lease.may_subscribe(),
            standing: lease.standing(),
        });
        self.tell();
        let deafened = lease.deafened();
        let mut deafened = std::pin::pin!(deafened);
        let mut asking = FuturesUnordered::new();
        loop {
            let is_unused = self.is_unused();
            self.bring_wishes(lease);
            while asking.len() < ASKING_MAX
                && let Some(request) = lease.next_resource_request()
            {
                asking.push(request);
            }
            if is_unused && asking.is_empty() {
                return Kept::Enough;
            }
            tokio::select! {
                () = lease.gone() => return Kept::Lost,
                challenge = &mut deafened => {
                    self.deafened(challenge);
                    return Kept::Deaf;
                }
                () = self.work.notified() => {}
                () = lease.missed() => self.missed(),
                () = lease.standing_changed() => self.tell(),
                Some(()) = asking.next() => {}
                message = lease.general_message() => lease.refuse(&message),
            }
        }
    }

    /// Brings to the session what members that came or went want of it.
    fn bring_wishes(&self, lease: &Lease) {
        let mut desk = self.desk();
        let changed = desk.take_changed();
        lease.renew(desk.caller());
        drop(desk);
        for (uri, is_wanted) in changed {
            lease.want_resource(&uri, is_wanted);
            if is_wanted {
                lease.forgive_resource(&uri);
            }
        }
    }

    /// The server tells nothing on its own any more: what was promised cannot be kept.
    fn deafened(&self, challenge: Option<Arc<AuthChallenge>>) {
        let reply = challenge.map_or_else(
            || failed("the server does not tell of changes any more", false),
            Reply::Challenge,
        );
        self.desk().end(reply);
        self.tell();
    }
}

impl Member {
    /// Makes a listener a member.
    pub(super) fn of(keeper: &Arc<Keeper>, caller: &Arc<Caller>, ear: &Arc<Ear>) -> Self {
        // It hears before it is acknowledged: what comes meanwhile waits behind the acknowledgement.
        let hearing = (!keeper.isolated).then(|| {
            let audience = Audience::Of(keeper.key.principal);
            keeper.backend.pool.changes().listen(audience, ear)
        });
        let news = keeper.news.subscribe();
        let failures_before = keeper.desk().enter(caller, ear);
        keeper.work.notify_one();
        Self {
            keeper: Arc::clone(keeper),
            ear: Arc::clone(ear),
            hearing,
            news,
            failures_before,
        }
    }

    /// Waits until it is known what can be honoured. What the server has not agreed to in time is left out.
    ///
    /// # Errors
    /// When no session can be had.
    pub(super) async fn settled(&self, within: Duration) -> Result<Agreed, Reply> {
        let mut news = self.news.clone();
        let settled = async {
            loop {
                if let Some(settled) = self.outcome(false) {
                    return settled;
                }
                // The sender lives as long as the keeper, which this member holds.
                let _ = news.changed().await;
            }
        };
        match timeout(within, settled).await {
            Ok(settled) => settled,
            Err(_) => self
                .outcome(true)
                .unwrap_or_else(|| Err(failed("the server did not answer in time", false))),
        }
    }

    /// What is known; nothing while there is something to wait for.
    fn outcome(&self, is_late: bool) -> Option<Result<Agreed, Reply>> {
        let seen = self.keeper.backend.pool.changes().seen();
        let (wanted, before) = (self.ear.filter(), self.failures_before);
        self.keeper.desk().agreed(wanted, before, seen, is_late)
    }

    /// Waits until the subscription cannot go on. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Reply {
        loop {
            let ended = self.keeper.desk().ended(self.failures_before);
            if let Some(reply) = ended {
                return reply;
            }
            let _ = self.news.changed().await;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Before the keeper looks what is still wanted.
        self.hearing = None;
        self.keeper.desk().leave(&self.ear);
        self.keeper.work.notify_one();
    }
}
