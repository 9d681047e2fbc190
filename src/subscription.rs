//! Subscriptions: `subscriptions/listen`, served from what legacy sessions say has changed.
//!
//! A listener hears its principal's changes on whichever session they arrive. Besides, all listeners of one session
//! key share a keeper, which holds a session open for them, subscribes there to the resources they
//! want, each once, and replaces the session when the server forgets it. Whoever shares no session shares no keeper.
//! Nothing here knows HTTP.
//!
//! Spec: 2026-07-28 basic/patterns/subscriptions; 2025-11-25 server/resources, "Subscriptions".

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::call::{Reply, failed};
use crate::hold::LegEvent;
use crate::hold::backend::Backend;
use crate::observe::GaugeGuard;
use crate::session::{Caller, Ear, SessionKey};
use crate::translate::subscription::{self, Filter};
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::ClientId;

mod desk;
mod keeper;

use keeper::{Keeper, Member};

/// The bounds of subscriptions; see the configuration.
#[derive(Debug, Clone)]
pub struct SubscriptionLimits {
    /// Subscriptions open at once.
    pub subscriptions_max: usize,
    /// Sessions that are kept for them at once.
    pub sessions_max: usize,
    /// Resources that one of them may name.
    pub uris_max: usize,
    /// How long the server may take to agree to what a subscription wants.
    pub subscribe_timeout: Duration,
}

/// All subscriptions of a backend.
#[derive(Debug)]
pub struct Subscriptions {
    backend: Arc<Backend>,
    limits: SubscriptionLimits,
    keepers: DashMap<SessionKey, Arc<Keeper>>,
    places: Arc<Semaphore>,
    /// Sessions that may be kept: calls need some too.
    sessions: Arc<Semaphore>,
    closing: CancellationToken,
}

impl Subscriptions {
    /// No subscriptions yet, to what `backend` says.
    #[must_use]
    pub fn new(backend: Arc<Backend>, limits: SubscriptionLimits) -> Self {
        Self {
            backend,
            keepers: DashMap::new(),
            places: Arc::new(Semaphore::new(limits.subscriptions_max)),
            sessions: Arc::new(Semaphore::new(limits.sessions_max)),
            limits,
            closing: CancellationToken::new(),
        }
    }

    /// Opens a subscription: the acknowledgement, and what follows it.
    ///
    /// # Errors
    /// What the client is told when there is none to be had.
    pub async fn listen(
        self: &Arc<Self>,
        caller: Arc<Caller>,
        filter: Filter,
        id: ClientId,
    ) -> Result<(Bytes, Subscription), Reply> {
        let uris_max = self.limits.uris_max;
        if filter.uris.len() > uris_max {
            let why = format!("`resourceSubscriptions` names more than {uris_max} resources");
            return Err(Reply::error(ErrorObject::new(error::INVALID_PARAMS, why)));
        }
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| failed("too many subscriptions are open", false))?;
        let ear = Arc::new(Ear::new(filter));
        let member = self.enter(&caller, &ear)?;
        let settled = member.settled(self.limits.subscribe_timeout);
        let agreed = tokio::select! {
            agreed = settled => agreed?,
            () = self.closing.cancelled() => return Err(failed("the gateway is shutting down", false)),
        };
        ear.promise(&agreed.honoured);
        let acknowledged = subscription::acknowledged(&id, &agreed.honoured);
        let result = subscription::listen_result(&id, agreed.server.server_info.as_deref());
        let subscription = Subscription {
            id,
            ear,
            member,
            result: result.into(),
            closing: self.closing.clone(),
            _held: (place, self.backend.metrics.subscriptions.count()),
        };
        Ok((acknowledged.into(), subscription))
    }

    /// Makes a listener a member of the keeper of its key, or of one of its own.
    fn enter(self: &Arc<Self>, caller: &Arc<Caller>, ear: &Arc<Ear>) -> Result<Member, Reply> {
        let fresh = || {
            let session = Arc::clone(&self.sessions).try_acquire_owned();
            let session = session
                .map_err(|_| failed("too many sessions are kept for subscriptions", false))?;
            Ok::<_, Reply>(Keeper::new(
                Arc::clone(&self.backend),
                Arc::clone(caller),
                session,
            ))
        };
        if caller.isolated {
            let keeper = fresh()?;
            let member = Member::of(&keeper, caller, ear);
            self.start(keeper);
            return Ok(member);
        }
        // Under the entry's lock: a keeper that nobody needs any more is removed under it too.
        match self.keepers.entry(caller.key.clone()) {
            Entry::Occupied(known) => Ok(Member::of(known.get(), caller, ear)),
            Entry::Vacant(vacant) => {
                let keeper = fresh()?;
                let member = Member::of(&keeper, caller, ear);
                vacant.insert(Arc::clone(&keeper));
                self.start(keeper);
                Ok(member)
            }
        }
    }

    fn start(self: &Arc<Self>, keeper: Arc<Keeper>) {
        let subscriptions = Arc::clone(self);
        self.backend.tasks.spawn(async move {
            while !subscriptions.is_over(&keeper) {
                keeper.keep(&subscriptions.closing).await;
            }
        });
    }

    /// Whether a keeper has nobody left to keep for; from then on nobody finds it either.
    fn is_over(&self, keeper: &Arc<Keeper>) -> bool {
        if self.closing.is_cancelled() {
            return true;
        }
        let is_unused =
            |_: &SessionKey, known: &Arc<Keeper>| Arc::ptr_eq(known, keeper) && keeper.is_unused();
        self.keepers.remove_if(keeper.key(), is_unused).is_some()
            || (keeper.is_isolated() && keeper.is_unused())
    }

    /// Ends all subscriptions in good order, and lets no more begin.
    pub fn close(&self) {
        self.closing.cancel();
    }
}

/// An open subscription. Dropped, it ends.
#[derive(Debug)]
pub struct Subscription {
    id: ClientId,
    ear: Arc<Ear>,
    member: Member,
    /// What ends it in good order.
    result: Bytes,
    closing: CancellationToken,
    _held: (OwnedSemaphorePermit, GaugeGuard),
}

impl Subscription {
    /// What its client hears next; after a reply nothing follows. Cancel-safe.
    pub async fn next(&mut self) -> LegEvent {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => LegEvent::Reply(Reply::Result(self.result.clone())),
            reply = self.member.ended() => LegEvent::Reply(reply),
            change = self.ear.next() => LegEvent::Note(change.to_listener(&self.id).into()),
        }
    }
}
