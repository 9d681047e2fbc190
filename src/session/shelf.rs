//! The warm sessions of one key: those that wait for a call, and those that several calls share.

use std::sync::Arc;

use tokio::time::Instant;

use super::inbox::Inbox;
use super::live::Session;
use super::opening::Opening;
use crate::call::SessionFate;

/// Whether a call shares its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseMode {
    /// Nothing will be asked: other such calls may use the session at the same time.
    Shared,
    /// Something may be asked on the general stream: no other call may be running on the session.
    Exclusive,
    /// The same, on a session on which no roots were given.
    Rootless,
}

/// Where the sessions of one key stand.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    idle: Vec<Idle>,
    shared: Vec<Shared>,
    /// Those who want a session of this key that others can share wait for each other here.
    pub(super) opening: Arc<Opening>,
}

#[derive(Debug)]
struct Idle {
    session: Arc<Session>,
    inbox: Inbox,
    since: Instant,
}

#[derive(Debug)]
struct Shared {
    session: Arc<Session>,
    inbox: Inbox,
    users: usize,
}

/// What a call gets: the session, and its inbox if the call has it for itself.
pub(super) type Taken = (Arc<Session>, Option<Inbox>);

impl Shelf {
    /// A warm session for one more call. Where a server keeps the roots of a call, only such calls come again that it can
    /// ask for theirs, and those come there first: what cannot be asked is not served by somebody's roots.
    pub(super) fn take(&mut self, mode: LeaseMode) -> Option<Taken> {
        let keeps_roots = |session: &Session| session.roots().are_kept();
        let can_join = |shared: &&mut Shared| {
            !shared.session.is_gone()
                && (mode == LeaseMode::Shared || !shared.session.has_general_stream)
        };
        if let Some(shared) = self.shared.iter_mut().find(can_join) {
            shared.users += 1;
            return Some((Arc::clone(&shared.session), None));
        }
        // One that is gone stays until it is closed: it has its place for as long as something of it is left.
        let latest = |keeps: bool| {
            let mut idle = self.idle.iter();
            idle.rposition(|Idle { session, .. }| {
                !session.is_gone() && keeps_roots(session) == keeps
            })
        };
        let picked = match mode {
            LeaseMode::Exclusive => latest(true).or_else(|| latest(false)),
            LeaseMode::Shared | LeaseMode::Rootless => latest(false),
        };
        let Idle { session, inbox, .. } = self.idle.remove(picked?);
        Some(self.put_to_use(session, inbox, mode))
    }

    /// Sessions without a general stream are always shared: each question comes on its own call's stream.
    pub(super) fn put_to_use(
        &mut self,
        session: Arc<Session>,
        inbox: Inbox,
        mode: LeaseMode,
    ) -> Taken {
        if mode != LeaseMode::Shared && session.has_general_stream {
            return (session, Some(inbox));
        }
        self.shared.push(Shared {
            session: Arc::clone(&session),
            inbox,
            users: 1,
        });
        (session, None)
    }

    /// Takes a session back from one call; returns it if it is to be closed instead of kept.
    #[must_use]
    pub(super) fn put_back(
        &mut self,
        session: &Arc<Session>,
        inbox: Option<Inbox>,
        fate: SessionFate,
        is_closing: bool,
    ) -> Option<Arc<Session>> {
        let is_over = is_closing || session.is_gone();
        let (inbox, is_over) = match inbox {
            Some(inbox) => (inbox, is_over || fate == SessionFate::Retire),
            // A shared session serves others: the fate of one call, whose stream was its own, is not theirs.
            None => (self.leave(session)?, is_over),
        };
        if is_over {
            return Some(Arc::clone(session));
        }
        self.idle.push(Idle {
            session: Arc::clone(session),
            inbox,
            since: Instant::now(),
        });
        None
    }

    /// One user less; the inbox of a session that nobody uses any more.
    fn leave(&mut self, session: &Arc<Session>) -> Option<Inbox> {
        let is_it = |shared: &Shared| Arc::ptr_eq(&shared.session, session);
        let at = self.shared.iter().position(is_it)?;
        self.shared[at].users -= 1;
        (self.shared[at].users == 0).then(|| self.shared.swap_remove(at).inbox)
    }

    /// Since when the session that has been idle longest is idle.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.idle.iter().map(|idle| idle.since).min()
    }

    /// Takes the idle sessions that `is_due` picks by the moment they became idle.
    pub(super) fn take_idle(&mut self, is_due: impl Fn(Instant) -> bool) -> Vec<Arc<Session>> {
        let due = |idle: &mut Idle| idle.session.is_gone() || is_due(idle.since);
        self.idle
            .extract_if(.., due)
            .map(|idle| idle.session)
            .collect()
    }

    /// The inboxes that no call reads at the moment, with their sessions.
    pub(super) fn unread(&mut self) -> impl Iterator<Item = (&Arc<Session>, &mut Inbox)> {
        let idle = self.idle.iter_mut();
        let shared = self.shared.iter_mut();
        idle.map(|idle| (&idle.session, &mut idle.inbox))
            .chain(shared.map(|shared| (&shared.session, &mut shared.inbox)))
    }

    /// Nobody has anything here.
    pub(super) fn is_unused(&self) -> bool {
        self.idle.is_empty() && self.shared.is_empty() && Arc::strong_count(&self.opening) == 1
    }
}
