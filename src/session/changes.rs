//! Who hears of what servers say has changed, on whichever of a caller's sessions they say it.
//!
//! Whoever publishes never waits: each ear keeps what it has not told yet, equal changes once, in the order in which
//! they came first. So a slow listener holds up nobody; what it misses is repetitions, params that are not the latest,
//! and beyond a bound which part of a resource has changed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use dashmap::DashMap;
use tokio::sync::Notify;

use super::Number;
use super::principal::Principal;
use crate::translate::subscription::{Change, Changed, List, Lists};

mod ear;

pub use ear::Ear;

/// Who may hear of what comes on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Audience {
    /// The listeners of one principal, on all of its sessions.
    Of(Principal),
    /// The one listener whose own session it is: callers that share nothing share no changes.
    Alone(Number),
}

/// The changes that come from one server.
#[derive(Debug, Default)]
pub struct Changes {
    ears: DashMap<Audience, Vec<Arc<Ear>>>,
    /// Ears that want to hear of resources.
    watching: AtomicUsize,
    /// How often such an ear came or went.
    listeners: AtomicU64,
    /// Lists of which a change was ever seen to arrive: servers do more than they announce.
    seen: AtomicU8,
    /// How often each list has changed.
    epochs: [AtomicU64; List::ALL.len()],
    /// How often all that was known of the server became doubtful.
    forgotten: AtomicU64,
    /// An epoch has moved.
    moved: Notify,
}

/// An ear that hears, until this is dropped.
#[derive(Debug)]
pub struct Hearing {
    changes: Arc<Changes>,
    audience: Audience,
    ear: Arc<Ear>,
}

impl Changes {
    /// Lets an ear hear what concerns an audience.
    #[must_use]
    pub fn listen(self: &Arc<Self>, audience: Audience, ear: &Arc<Ear>) -> Hearing {
        self.ears.entry(audience).or_default().push(Arc::clone(ear));
        if !ear.filter().uris.is_empty() {
            self.watching.fetch_add(1, Ordering::AcqRel);
            self.listeners.fetch_add(1, Ordering::AcqRel);
        }
        Hearing {
            changes: Arc::clone(self),
            audience,
            ear: Arc::clone(ear),
        }
    }

    /// Tells those who may hear it of a change.
    pub fn publish(&self, audience: Audience, change: &Change) {
        if let Changed::List(list) = change.what {
            self.seen.fetch_or(1 << list as u8, Ordering::AcqRel);
            // Before anybody hears of it and asks anew.
            self.epochs[list as usize].fetch_add(1, Ordering::AcqRel);
            self.moved.notify_one();
        }
        if let Some(ears) = self.ears.get(&audience) {
            for ear in ears.iter() {
                ear.hear(change);
            }
        }
    }

    /// A session was lost: the server may be another one now.
    pub(super) fn forget(&self) {
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        self.moved.notify_one();
    }

    /// Done when an epoch has moved since the last time. One alone may wait for it. Cancel-safe.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Changes with the list, on whichever session that is heard: what was read before holds only as long as this
    /// stays the same.
    #[must_use]
    pub fn epoch(&self, list: List) -> u64 {
        self.epochs[list as usize].load(Ordering::Acquire) + self.forgotten.load(Ordering::Acquire)
    }

    /// Whether anybody wants to hear of any resource.
    pub(super) fn is_watched(&self) -> bool {
        self.watching.load(Ordering::Acquire) > 0
    }

    /// Changes whenever anybody begins or ceases to listen.
    pub(super) fn listeners_epoch(&self) -> u64 {
        self.listeners.load(Ordering::Acquire)
    }

    /// The resources of which an audience wants to hear.
    pub(super) fn wanted(&self, audience: Audience) -> HashSet<Arc<str>> {
        let ears = self.ears.get(&audience);
        let ears = ears.iter().flat_map(|ears| ears.iter());
        ears.flat_map(|ear| ear.filter().uris.iter().cloned())
            .collect()
    }

    /// The lists of which a change was ever seen to arrive.
    #[must_use]
    pub fn seen(&self) -> Lists {
        let seen = self.seen.load(Ordering::Acquire);
        Lists::that(|list: List| seen & 1 << list as u8 != 0)
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        if !self.ear.filter().uris.is_empty() {
            self.changes.watching.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(mut ears) = self.changes.ears.get_mut(&self.audience) {
            ears.retain(|ear| !Arc::ptr_eq(ear, &self.ear));
        }
        self.changes
            .ears
            .remove_if(&self.audience, |_, ears| ears.is_empty());
        self.changes.listeners.fetch_add(1, Ordering::AcqRel);
    }
}

fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Binding;
    use crate::translate::subscription::Filter;

    fn of(name: &str) -> Audience {
        Audience::Of(Principal::Known(Binding::of(&[name.as_bytes()])))
    }

    fn ear() -> Arc<Ear> {
        let filter = Filter {
            lists: Lists::that(|_| true),
            uris: Vec::new(),
        };
        Arc::new(Ear::new(filter))
    }

    #[test]
    fn changes_reach_those_who_may_hear_them_and_nobody_else() {
        let changes = Arc::new(Changes::default());
        let (ada, eve, alone) = (ear(), ear(), ear());
        let _ada = changes.listen(of("ada"), &ada);
        let _eve = changes.listen(of("eve"), &eve);
        let _alone = changes.listen(Audience::Alone(7), &alone);
        changes.publish(of("ada"), &Change::bare(Changed::List(List::Tools)));
        changes.publish(
            Audience::Alone(8),
            &Change::bare(Changed::List(List::Prompts)),
        );
        assert!(ada.take().is_some() && ada.take().is_none());
        assert!(eve.take().is_none() && alone.take().is_none());
        assert_eq!(
            changes.seen(),
            Lists::that(|list| list != List::Resources),
            "what nobody hears was seen as well"
        );
    }

    #[test]
    fn nothing_is_left_of_a_listener_that_goes() {
        let changes = Arc::new(Changes::default());
        let (first, second) = (ear(), ear());
        let hearing = changes.listen(of("ada"), &first);
        let other = changes.listen(of("ada"), &second);
        drop(hearing);
        changes.publish(of("ada"), &Change::bare(Changed::List(List::Tools)));
        assert!(first.take().is_none() && second.take().is_some());
        drop(other);
        assert!(changes.ears.is_empty());
    }
}
