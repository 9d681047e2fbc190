//! What replicas share, in the memory of one process: for a gateway that has no others.
//!
//! Its directory is lost exactly when all that could have been in it are gone, so whoever is not in it is dead: the
//! state of a process before this one is adopted at once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::shelf::Shelf;
use super::{
    Announced, Claim, KeptList, LIST_BYTES_MAX, OUTCOME_BYTES_MAX, Pending, Record, Shared, Stake,
    Taken, Unavailable,
};
use crate::call::{AnswersDigest, Round};
use crate::hold::seal::{HoldId, ReplicaId};

/// What an outcome or a list costs besides its bytes. Measured generously.
const ENTRY_BYTES: usize = 256;

/// Thirty years, as tokio counts "far away", where a span overflows the clock.
const FAR: Duration = Duration::from_secs(86400 * 365 * 30);

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Replicas in the directory. One process has one; the rest is for tests.
    pub replicas_max: usize,
    /// Records of holds whose answers were taken. Five times the holds that one process is built for, about 50 MB.
    pub records_max: usize,
    /// Bytes of outcomes; those that would go soonest give way.
    pub outcome_bytes_max: usize,
    /// Bytes of lists; those that would go soonest give way.
    pub list_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            replicas_max: 64,
            records_max: 250_000,
            outcome_bytes_max: 64 << 20,
            list_bytes_max: 64 << 20,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Memory {
    limits: Limits,
    rooms: Mutex<Rooms>,
}

#[derive(Debug)]
struct Rooms {
    replicas: Shelf<ReplicaId, String>,
    holds: Shelf<HoldId, Entry>,
    outcomes: Shelf<HoldId, Bytes>,
    lists: Shelf<[u8; 32], Bytes>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    owner: ReplicaId,
    generation: u32,
    taken: Option<Answers>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answers {
    round: Round,
    /// Nothing when they were taken back.
    digest: Option<AnswersDigest>,
    by: ReplicaId,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Memory {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let rooms = Rooms {
            replicas: Shelf::new(),
            holds: Shelf::new(),
            outcomes: Shelf::new(),
            lists: Shelf::new(),
        };
        Self {
            limits,
            rooms: Mutex::new(rooms),
        }
    }

    /// The rooms without what is over.
    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        rooms.replicas.tidy(now);
        rooms.holds.tidy(now);
        rooms.outcomes.tidy(now);
        rooms.lists.tidy(now);
        rooms
    }

    fn write(&self, rooms: &mut Rooms, stake: &Stake, entry: Entry) -> Result<(), Unavailable> {
        if rooms.holds.get(&stake.hold).is_none() && rooms.holds.len() >= self.limits.records_max {
            return Err(Unavailable::Full);
        }
        rooms.holds.put(stake.hold, entry, 1, until(stake.ttl));
        Ok(())
    }
}

impl Entry {
    fn mine(self) -> Claim {
        Claim::Mine(Record {
            generation: self.generation,
            taken: self.taken.map(|answers| answers.round),
        })
    }
}

impl Rooms {
    /// The entry of a hold once it is the claimant's; whose it is, if it cannot be.
    fn claimed(&self, stake: &Stake) -> Result<Entry, ReplicaId> {
        match self.holds.get(&stake.hold).copied() {
            None => self.unrecorded(stake),
            Some(entry) if entry.owner == stake.me => Ok(entry),
            Some(entry) if self.is_alive(entry.owner) => Err(entry.owner),
            Some(entry) => Ok(Entry {
                owner: stake.me,
                generation: entry.generation.saturating_add(1),
                ..entry
            }),
        }
    }

    fn is_alive(&self, replica: ReplicaId) -> bool {
        self.replicas.get(&replica).is_some()
    }

    /// What a hold without a record is to the claimant: its own now, or that of a replica that is alive.
    fn unrecorded(&self, stake: &Stake) -> Result<Entry, ReplicaId> {
        if stake.sealed_owner != stake.me && self.is_alive(stake.sealed_owner) {
            return Err(stake.sealed_owner);
        }
        Ok(Entry {
            owner: stake.me,
            generation: u32::from(stake.sealed_owner != stake.me),
            taken: None,
        })
    }
}

impl Shared for Memory {
    fn has_others(&self) -> bool {
        false
    }

    fn announce<'a>(
        &'a self,
        me: ReplicaId,
        address: &'a str,
        ttl: Duration,
    ) -> Pending<'a, Announced> {
        done(|| {
            let mut rooms = self.rooms();
            let was_alive = rooms.is_alive(me);
            if !was_alive && rooms.replicas.len() >= self.limits.replicas_max {
                return Err(Unavailable::Full);
            }
            rooms.replicas.put(me, address.to_owned(), 1, until(ttl));
            Ok(if was_alive {
                Announced::Still
            } else {
                Announced::Anew
            })
        })
    }

    fn leave(&self, me: ReplicaId) -> Pending<'_, ()> {
        done(|| {
            self.rooms().replicas.remove(&me);
            Ok(())
        })
    }

    fn address_of(&self, replica: ReplicaId) -> Pending<'_, Option<String>> {
        done(|| Ok(self.rooms().replicas.get(&replica).cloned()))
    }

    fn claim(&self, stake: Stake) -> Pending<'_, Claim> {
        done(|| {
            let mut rooms = self.rooms();
            let claimed = rooms.claimed(&stake);
            if let Ok(entry) = claimed {
                self.write(&mut rooms, &stake, entry)?;
            }
            Ok(claimed.map_or_else(Claim::Other, Entry::mine))
        })
    }

    fn whose(&self, stake: Stake) -> Pending<'_, Claim> {
        done(|| {
            let claimed = self.rooms().claimed(&stake);
            Ok(claimed.map_or_else(Claim::Other, Entry::mine))
        })
    }

    fn take(&self, stake: Stake, round: Round, digest: AnswersDigest) -> Pending<'_, Taken> {
        done(move || {
            let mut rooms = self.rooms();
            let entry = match rooms.holds.get(&stake.hold).copied() {
                None => rooms.unrecorded(&stake),
                Some(entry) if entry.owner == stake.me => Ok(entry),
                Some(entry) => Err(entry.owner),
            };
            let mut entry = match entry {
                Ok(entry) => entry,
                Err(other) => return Ok(Taken::Lost(other)),
            };
            let taken = match entry.taken {
                Some(before) if (before.round, before.digest) == (round, None) => Taken::Fresh,
                Some(before) if (before.round, before.digest) == (round, Some(digest)) => {
                    Taken::Again(before.by)
                }
                Some(before) if before.round >= round => Taken::Otherwise,
                Some(_) | None => Taken::Fresh,
            };
            if taken == Taken::Fresh {
                entry.taken = Some(Answers {
                    round,
                    digest: Some(digest),
                    by: stake.me,
                });
            }
            self.write(&mut rooms, &stake, entry)?;
            Ok(taken)
        })
    }

    fn take_back(&self, stake: Stake, round: Round, digest: AnswersDigest) -> Pending<'_, ()> {
        done(move || {
            let mut rooms = self.rooms();
            let mine = Answers {
                round,
                digest: Some(digest),
                by: stake.me,
            };
            let entry = rooms.holds.get(&stake.hold).copied();
            if let Some(entry) = entry
                && (entry.owner, entry.taken) == (stake.me, Some(mine))
            {
                let taken = Some(Answers {
                    digest: None,
                    ..mine
                });
                self.write(&mut rooms, &stake, Entry { taken, ..entry })?;
            }
            Ok(())
        })
    }

    fn release(&self, hold: HoldId, me: ReplicaId, keep: Duration) -> Pending<'_, ()> {
        done(move || {
            let mut rooms = self.rooms();
            let entry = rooms.holds.get(&hold).copied();
            if let Some(entry) = entry.filter(|entry| entry.owner == me) {
                rooms.holds.put(hold, entry, 1, until(keep));
            }
            Ok(())
        })
    }

    fn remember(
        &self,
        hold: HoldId,
        me: ReplicaId,
        outcome: Bytes,
        ttl: Duration,
    ) -> Pending<'_, ()> {
        let room = self.limits.outcome_bytes_max;
        done(move || {
            let mut rooms = self.rooms();
            if rooms.holds.get(&hold).is_none_or(|entry| entry.owner == me) {
                store(&mut rooms.outcomes, hold, outcome, OUTCOME_BYTES_MAX, ttl);
                rooms.outcomes.shrink(room);
            }
            Ok(())
        })
    }

    fn recall(&self, hold: HoldId) -> Pending<'_, Option<Bytes>> {
        done(|| Ok(self.rooms().outcomes.get(&hold).cloned()))
    }

    fn put_list(&self, place: [u8; 32], list: Bytes, ttl: Duration) -> Pending<'_, ()> {
        let room = self.limits.list_bytes_max;
        done(move || {
            let lists = &mut self.rooms().lists;
            store(lists, place, list, LIST_BYTES_MAX, ttl);
            lists.shrink(room);
            Ok(())
        })
    }

    fn list(&self, place: [u8; 32]) -> Pending<'_, Option<KeptList>> {
        done(|| {
            let lists = &self.rooms().lists;
            let (bytes, end) = (lists.get(&place).cloned(), lists.end_of(&place));
            let now = Instant::now();
            Ok(bytes.zip(end).map(|(bytes, end)| KeptList {
                bytes,
                left: end.saturating_duration_since(now),
            }))
        })
    }
}

/// An operation that is over as soon as it is begun: `Memory` waits for nothing.
fn done<'a, T: Send + 'a>(operation: impl FnOnce() -> Result<T, Unavailable>) -> Pending<'a, T> {
    Box::pin(std::future::ready(operation()))
}

fn store<K: Copy + Eq + std::hash::Hash>(
    shelf: &mut Shelf<K, Bytes>,
    key: K,
    value: Bytes,
    bytes_max: usize,
    ttl: Duration,
) {
    if value.len() > bytes_max {
        shelf.remove(&key);
    } else {
        let weight = value.len() + ENTRY_BYTES;
        shelf.put(key, value, weight, until(ttl));
    }
}

fn until(ttl: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(ttl).unwrap_or_else(|| now + FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: ReplicaId = ReplicaId([1; 8]);
    const LONG: Duration = Duration::from_secs(600);

    fn stake(hold: u8) -> Stake {
        Stake {
            hold: HoldId([hold; 16]),
            sealed_owner: ME,
            me: ME,
            ttl: LONG,
        }
    }

    #[tokio::test]
    async fn at_its_limits_it_refuses_claims_and_lets_older_outcomes_go() {
        let memory = Memory::new(Limits {
            replicas_max: 1,
            records_max: 1,
            outcome_bytes_max: 2 * (ENTRY_BYTES + 10),
            list_bytes_max: ENTRY_BYTES + 10,
        });
        memory.announce(ME, "a:1", LONG).await.unwrap();
        memory.announce(ME, "a:1", LONG).await.unwrap();
        let second = memory.announce(ReplicaId([2; 8]), "b:1", LONG).await;
        assert!(matches!(second, Err(Unavailable::Full)));

        let answers = AnswersDigest([1; 16]);
        assert_eq!(
            memory.take(stake(1), Round(1), answers).await.unwrap(),
            Taken::Fresh
        );
        let claimed = memory.claim(stake(2)).await;
        assert!(matches!(claimed, Err(Unavailable::Full)));
        let again = memory.take(stake(1), Round(1), answers).await.unwrap();
        assert_eq!(again, Taken::Again(ME), "what was accepted stays");
        memory
            .release(HoldId([1; 16]), ME, Duration::ZERO)
            .await
            .unwrap();
        assert!(memory.claim(stake(2)).await.is_ok());

        let ten = || Bytes::from_static(&[0; 10]);
        for n in 1..=3 {
            memory
                .remember(HoldId([n; 16]), ME, ten(), LONG)
                .await
                .unwrap();
        }
        assert_eq!(memory.recall(HoldId([1; 16])).await.unwrap(), None);
        assert_eq!(memory.recall(HoldId([3; 16])).await.unwrap(), Some(ten()));
        for n in 1..=2 {
            memory.put_list([n; 32], ten(), LONG).await.unwrap();
        }
        assert_eq!(memory.list([1; 32]).await.unwrap(), None);
        let kept = memory.list([2; 32]).await.unwrap().unwrap();
        assert_eq!(kept.bytes, ten());
    }
}
