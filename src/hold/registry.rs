//! Which holds there are, and the outcomes of those that have ended.
//!
//! An entry is live while a driver runs the call, then for a while the outcome alone, so that a late or repeated
//! re-issue gets it. Live entries are bounded by count and never dropped to make room; outcomes are bounded by
//! bytes, the oldest give way.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry as MapEntry;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Mail;
use super::seal::HoldId;
use crate::call::{AnswersDigest, Moment, Reply, Round, Rounds, Verdict};

/// Re-issues that wait for a driver. A call has one client; more than a few at once are repeats.
pub(super) const MAILBOX_MAX: usize = 16;

/// What a re-issue finds.
#[derive(Debug)]
pub enum Found {
    /// The call is being taken over from another process; cancelled when it is clear whether it could be.
    Arriving(CancellationToken),
    /// A driver runs the call.
    Live(mpsc::Sender<Mail>),
    /// The call has ended and this is what its re-issue gets.
    Outcome(Reply),
    /// The call has ended and its round was answered otherwise.
    Answered,
    /// Nothing: it is over, or was never here.
    Nothing,
}

impl Found {
    fn ended(rounds: &mut Rounds, round: Round, digest: AnswersDigest) -> Self {
        match rounds.judge(round, digest) {
            Verdict::Replay(reply) => Self::Outcome(reply),
            Verdict::Answered => Self::Answered,
            Verdict::Fresh | Verdict::Join => Self::Nothing,
        }
    }
}

/// As many holds are live as may be.
#[derive(Debug, thiserror::Error)]
#[error("too many calls wait for input at once")]
pub struct Full;

/// The holds of this process.
#[derive(Debug)]
pub struct Registry {
    entries: DashMap<HoldId, Entry>,
    live: AtomicUsize,
    live_max: usize,
    outcomes: Mutex<Outcomes>,
}

#[derive(Debug)]
enum Entry {
    Arriving(CancellationToken),
    Live(mpsc::Sender<Mail>),
    Ended { rounds: Rounds, until: Moment },
}

/// Remembered outcomes in the order they were remembered.
#[derive(Debug)]
struct Outcomes {
    order: VecDeque<(HoldId, usize)>,
    bytes: usize,
    bytes_max: usize,
}

/// What an entry costs besides its reply: ids, map slots, list slots. Measured generously.
const ENTRY_BYTES: usize = 256;

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new(live_max: usize, outcome_bytes_max: usize) -> Self {
        let outcomes = Outcomes {
            order: VecDeque::new(),
            bytes: 0,
            bytes_max: outcome_bytes_max,
        };
        Self {
            entries: DashMap::new(),
            live: AtomicUsize::new(0),
            live_max,
            outcomes: Mutex::new(outcomes),
        }
    }

    /// Enters a call that is about to be parked for the first time.
    ///
    /// # Errors
    /// When as many are live as may be.
    pub fn enter(&self, id: HoldId, mailbox: mpsc::Sender<Mail>) -> Result<(), Full> {
        self.admit()?;
        self.entries.insert(id, Entry::Live(mailbox));
        Ok(())
    }

    /// Keeps a place for a call that is to be taken over; nothing when it is here, or on its way, already.
    ///
    /// # Errors
    /// When as many are live as may be.
    pub fn expect(&self, id: HoldId) -> Result<Option<Expected<'_>>, Full> {
        let MapEntry::Vacant(vacant) = self.entries.entry(id) else {
            return Ok(None);
        };
        self.admit()?;
        let settled = CancellationToken::new();
        vacant.insert(Entry::Arriving(settled.clone()));
        Ok(Some(Expected {
            registry: self,
            id,
            settled,
            has_arrived: false,
        }))
    }

    fn admit(&self) -> Result<(), Full> {
        let admitted = self
            .live
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |live| {
                (live < self.live_max).then_some(live + 1)
            });
        admitted.map(drop).map_err(|_| Full)
    }

    /// The call has ended: from now on its outcome is what re-issues get, until `until`.
    pub fn end(&self, id: HoldId, rounds: Rounds, until: Moment) {
        let weight = rounds.weight() + ENTRY_BYTES;
        self.entries.insert(id, Entry::Ended { rounds, until });
        self.live.fetch_sub(1, Ordering::AcqRel);
        self.keep_within_bound(id, weight);
    }

    /// One more outcome is remembered: the oldest give way.
    fn keep_within_bound(&self, id: HoldId, weight: usize) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.order.push_back((id, weight));
        outcomes.bytes += weight;
        while outcomes.bytes > outcomes.bytes_max
            && let Some((oldest, weight)) = outcomes.order.pop_front()
        {
            outcomes.bytes -= weight;
            self.entries.remove(&oldest);
        }
    }

    /// The call goes on in another process: there is nothing here any more.
    pub fn forget(&self, id: HoldId) {
        if self.entries.remove(&id).is_some() {
            self.live.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Takes in how a call ended in another process, for as long as it is remembered there; what a re-issue gets from it.
    pub fn learn(
        &self,
        id: HoldId,
        mut rounds: Rounds,
        until: Moment,
        (round, digest): (Round, AnswersDigest),
    ) -> Found {
        let found = Found::ended(&mut rounds, round, digest);
        if let MapEntry::Vacant(vacant) = self.entries.entry(id) {
            let weight = rounds.weight() + ENTRY_BYTES;
            vacant.insert(Entry::Ended { rounds, until });
            self.keep_within_bound(id, weight);
        }
        found
    }

    /// Whether one more may be entered.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.live.load(Ordering::Acquire) < self.live_max
    }

    /// Looks up the hold of a re-issue.
    #[must_use]
    pub fn find(&self, id: HoldId, round: Round, digest: AnswersDigest) -> Found {
        let MapEntry::Occupied(mut entry) = self.entries.entry(id) else {
            return Found::Nothing;
        };
        match entry.get_mut() {
            Entry::Arriving(settled) => Found::Arriving(settled.clone()),
            Entry::Live(mailbox) => Found::Live(mailbox.clone()),
            Entry::Ended { rounds, .. } => Found::ended(rounds, round, digest),
        }
    }

    /// The way to the driver that runs the call here, if there is one.
    #[must_use]
    pub fn mailbox(&self, id: HoldId) -> Option<mpsc::Sender<Mail>> {
        match &*self.entries.get(&id)? {
            Entry::Live(mailbox) => Some(mailbox.clone()),
            Entry::Arriving(_) | Entry::Ended { .. } => None,
        }
    }

    /// Whether the outcome of the call is remembered here.
    #[must_use]
    pub fn remembers(&self, id: HoldId) -> bool {
        let entry = self.entries.get(&id);
        entry.is_some_and(|entry| matches!(*entry, Entry::Ended { .. }))
    }

    /// The calls that drivers run here.
    #[must_use]
    pub fn live_ones(&self) -> Vec<HoldId> {
        let entries = self.entries.iter();
        let live = entries.filter(|entry| matches!(**entry, Entry::Live(_)));
        live.map(|entry| *entry.key()).collect()
    }

    /// Forgets outcomes whose time is over.
    pub fn sweep(&self, now: Moment) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let Outcomes { order, bytes, .. } = &mut *outcomes;
        order.retain(|(id, weight)| {
            let is_over = |_: &HoldId, entry: &Entry| {
                matches!(entry, Entry::Ended { until, .. } if *until <= now)
            };
            let removed = self.entries.remove_if(id, is_over).is_some();
            *bytes -= if removed { *weight } else { 0 };
            !removed
        });
    }

    /// How many calls are live.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }
}

/// The place of a call that is being taken over; dropped before it has arrived, it is free again.
#[derive(Debug)]
pub struct Expected<'a> {
    registry: &'a Registry,
    id: HoldId,
    settled: CancellationToken,
    has_arrived: bool,
}

impl Expected<'_> {
    /// The call is here: re-issues reach it from now on.
    pub fn arrived(mut self, mailbox: mpsc::Sender<Mail>) {
        self.has_arrived = true;
        self.registry.entries.insert(self.id, Entry::Live(mailbox));
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        if !self.has_arrived {
            self.registry.entries.remove(&self.id);
            self.registry.live.fetch_sub(1, Ordering::AcqRel);
        }
        self.settled.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;

    const A: AnswersDigest = AnswersDigest([1; 16]);

    fn hold(n: u8) -> HoldId {
        HoldId([n; 16])
    }

    fn ended(bytes: usize) -> Rounds {
        let mut rounds = Rounds::default();
        let reply = Reply::Result(Bytes::from(vec![b' '; bytes]));
        rounds.ask(&reply);
        rounds.finish(&reply);
        rounds
    }

    fn mailbox() -> mpsc::Sender<Mail> {
        mpsc::channel(1).0
    }

    fn after(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    #[test]
    fn live_entries_are_bounded_and_ended_ones_make_room() {
        let registry = Registry::new(1, 1 << 20);
        registry.enter(hold(1), mailbox()).unwrap();
        assert!(registry.enter(hold(2), mailbox()).is_err());
        assert!(matches!(
            registry.find(hold(1), Round(1), A),
            Found::Live(_)
        ));
        registry.end(hold(1), ended(10), after(9));
        registry.enter(hold(2), mailbox()).unwrap();
        assert!(matches!(
            registry.find(hold(1), Round(1), A),
            Found::Outcome(_)
        ));
        assert!(matches!(
            registry.find(hold(1), Round(1), AnswersDigest([2; 16])),
            Found::Answered
        ));
        assert!(matches!(
            registry.find(hold(3), Round(1), A),
            Found::Nothing
        ));
    }

    #[test]
    fn outcomes_are_forgotten_by_time_and_by_bytes() {
        let registry = Registry::new(9, 2 * (ENTRY_BYTES + 1000));
        for n in 1..=3 {
            registry.enter(hold(n), mailbox()).unwrap();
            registry.end(hold(n), ended(1000), after(u64::from(n)));
        }
        assert!(
            matches!(registry.find(hold(1), Round(1), A), Found::Nothing),
            "the oldest gave way"
        );
        registry.sweep(after(2));
        assert!(matches!(
            registry.find(hold(2), Round(1), A),
            Found::Nothing
        ));
        assert!(matches!(
            registry.find(hold(3), Round(1), A),
            Found::Outcome(_)
        ));
        registry.sweep(after(3));
        assert!(registry.entries.is_empty());
        assert_eq!(registry.outcomes.lock().unwrap().bytes, 0);
        assert_eq!(registry.live(), 0);
    }

    /// However little is remembered: whoever learns it has it.
    #[test]
    fn what_is_learned_is_known_even_if_it_is_not_kept() {
        let registry = Registry::new(9, 0);
        let mut rounds = Rounds::default();
        rounds.ask(&Reply::Result(Bytes::from_static(b"question")));
        let outcome = Reply::Result(Bytes::from_static(b"outcome"));
        rounds.finish(&outcome);
        let found = registry.learn(hold(1), rounds, after(1), (Round(1), A));
        assert!(matches!(found, Found::Outcome(_)), "{found:?}");
        assert!(matches!(
            registry.find(hold(1), Round(1), A),
            Found::Nothing
        ));
    }
}
