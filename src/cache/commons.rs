//! What the replicas of one gateway have in common of what a server says: read by one, it is found by all.
//!
//! It is found by exactly those who would have been told the same, see `naming`, and it is a shortcut alone: whatever
//! fails here, the server is asked. Nobody waits longer than one operation of the store may take. What one replica keeps
//! there is bounded: the store must not be full of it when something is needed that cannot do without.
//!
//! # Changes
//! Each list comes in editions. What is kept names the edition in which its reader found the list *before* it asked the
//! server, so it may be too old for its edition, never too new. A replica that hears of a change begins another edition:
//! from then on nobody finds what was kept before, or is still to be kept by somebody who had asked before. Until that is
//! done, the replica itself takes nothing; the others are not worse off than by themselves, as what they took has an end.
//!
//! # Age
//! Nothing becomes younger here. Two clocks say how old something is: the wall clocks of who read it and of who finds it,
//! sealed with it, and the store's own, which lets it go. The one that lets it be older is believed, so that neither a
//! clock that is wrong nor somebody who puts old bytes back makes it fresher.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::try_join4;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::naming::{Naming, Place, Subject};
use crate::hold::seal::random_bytes;
use crate::hold::shared::shelf::Shelf;
use crate::hold::shared::{KeptList, Shared, Unavailable};
use crate::observe::{Counter, chain};
use crate::session::{Binding, Changes};
use crate::translate::subscription::{List, Lists};

/// The pause before the others are told again, of another change or because the store was not there. A server that
/// changes its lists all the time costs the store no more than this.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What keeping something costs the store besides its bytes: its name, what sealing adds. Measured generously.
const ENTRY_BYTES: usize = 256;

/// See the module.
#[derive(Debug)]
pub struct Commons {
    shared: Arc<dyn Shared>,
    naming: Naming,
    changes: Arc<Changes>,
    ttl_max: Duration,
    told: [Told; List::ALL.len()],
    /// What this replica keeps in the store, by its size.
    kept: StdMutex<Shelf<Place, ()>>,
    bytes_max: usize,
    tasks: TaskTracker,
    found: Counter,
}

/// What the others were told of a list.
#[derive(Debug, Default)]
struct Told {
    /// Of its changes up to this one.
    epoch: AtomicU64,
    /// The edition that was begun for it. Held while one is begun, so that the others here wait for the same.
    edition: Mutex<[u8; 16]>,
}

/// The editions of all lists that something depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Edition(Binding);

/// How much is kept of one server, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The longest that anything is kept. What says which edition is the latest must not go sooner.
    pub ttl_max: Duration,
    /// What one replica keeps at a time; beyond it, what is read stays with it.
    pub bytes_max: usize,
}

/// Where something is to be kept that is about to be read.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    place: Place,
    edition: Edition,
}

/// Something that another replica has read, or this process before it was started anew.
#[derive(Debug)]
pub struct Found {
    /// It.
    pub contents: Bytes,
    /// What is left of the time for which it was kept when it was read.
    pub left: Duration,
}

/// The form of what is kept.
#[derive(Serialize, Deserialize)]
struct Kept<'a> {
    edition: Edition,
    read_unix_ms: u64,
    contents: &'a [u8],
}

impl Commons {
    /// Those of one server; `found` counts what is found. Nothing where there is nobody to share with: a process without
    /// others has its own memory.
    #[must_use]
    pub fn new(
        shared: Arc<dyn Shared>,
        naming: Naming,
        changes: Arc<Changes>,
        Bounds { ttl_max, bytes_max }: Bounds,
        (tasks, found): (TaskTracker, Counter),
    ) -> Option<Self> {
        let told = List::ALL.map(|list| Told {
            epoch: AtomicU64::new(changes.epoch(list)),
            edition: Mutex::default(),
        });
        shared.has_others().then(|| Self {
            shared,
            naming,
            changes,
            ttl_max,
            told,
            kept: StdMutex::new(Shelf::new()),
            bytes_max,
            tasks,
            found,
        })
    }

    /// Looks for something that depends on these lists and was kept for `ttl` when it was read. Nothing while the store
    /// is out of reach: then nothing is to be kept there either.
    pub async fn look(
        &self,
        subject: &Subject<'_>,
        lists: Lists,
        ttl: Duration,
    ) -> Option<(Spot, Option<Found>)> {
        let place = self.naming.place(subject)?;
        let [tools, prompts, resources] = List::ALL.map(|list| async move {
            match lists.has(list) {
                true => self.edition(list).await,
                false => Ok(Bytes::new()),
            }
        });
        let looking = try_join4(self.shared.list(place), tools, prompts, resources);
        let (kept, tools, prompts, resources) = match looking.await {
            Ok(looked) => looked,
            Err(error) => {
                let error = chain(&error);
                tracing::debug!(error, "what other replicas have read is out of reach");
                return None;
            }
        };
        let edition = Edition(Binding::of(&[&tools, &prompts, &resources]));
        let found = kept.and_then(|kept| Found::in_edition(edition, kept, ttl, unix_ms()));
        if found.is_some() {
            self.found.inc();
        }
        Some((Spot { place, edition }, found))
    }

    /// Where something is to be kept that is read for the same edition as what `spot` is for.
    #[must_use]
    pub fn beside(&self, spot: Spot, subject: &Subject<'_>) -> Option<Spot> {
        let place = self.naming.place(subject)?;
        Some(Spot { place, ..spot })
    }

    /// Keeps something that was read just now, beside everything else.
    pub fn keep(&self, spot: Spot, contents: &[u8], ttl: Duration) {
        let kept = Kept {
            edition: spot.edition,
            read_unix_ms: unix_ms(),
            contents,
        };
        let Ok(written) = postcard::to_allocvec(&kept) else {
            return;
        };
        if !self.has_room(spot.place, written.len(), ttl) {
            tracing::debug!(
                "what was read is known to this replica alone: it keeps enough for all"
            );
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move {
            if let Err(error) = shared.put_list(spot.place, written.into(), ttl).await {
                let error = chain(&error);
                tracing::debug!(error, "what was read is known to this replica alone");
            }
        });
    }

    /// Whether so many bytes more may be kept, which they are from now on. What was in the same place counts as well.
    fn has_room(&self, place: Place, bytes: usize, ttl: Duration) -> bool {
        let (now, bytes) = (Instant::now(), bytes + ENTRY_BYTES);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.tidy(now);
        let has_room = kept.weight() + bytes <= self.bytes_max;
        if has_room {
            kept.put(place, (), bytes, now + ttl);
        }
        has_room
    }

    /// Tells the others of every change, until `end`.
    pub async fn tell(self: Arc<Self>, end: CancellationToken) {
        let telling = async {
            loop {
                let mut are_told = true;
                for list in List::ALL {
                    are_told &= self.begin_edition(list).await.is_ok();
                }
                sleep(AGAIN_AFTER).await;
                if are_told {
                    self.changes.moved().await;
                }
            }
        };
        end.run_until_cancelled(telling).await;
    }

    /// The edition in which a list is, empty for one that has not changed for long.
    async fn edition(&self, list: List) -> Result<Bytes, Unavailable> {
        if let Some(begun) = self.begin_edition(list).await? {
            return Ok(Bytes::copy_from_slice(&begun));
        }
        let Some(place) = self.naming.place(&Subject::edition(list)) else {
            return Ok(Bytes::new());
        };
        let kept = self.shared.list(place).await?;
        Ok(kept.map(|kept| kept.bytes).unwrap_or_default())
    }

    /// Begins another edition of a list, if it has changed since the last: the one that was begun meanwhile, by whomever
    /// here.
    async fn begin_edition(&self, list: List) -> Result<Option<[u8; 16]>, Unavailable> {
        let epoch = self.changes.epoch(list);
        let told = &self.told[list as usize];
        let is_told = || told.epoch.load(Ordering::Acquire) >= epoch;
        if is_told() {
            return Ok(None);
        }
        let mut edition = told.edition.lock().await;
        if !is_told() {
            let next = random_bytes().map_err(|error| Unavailable::Failed(error.into()))?;
            if let Some(place) = self.naming.place(&Subject::edition(list)) {
                let written = Bytes::copy_from_slice(&next);
                // It outlives also what was asked for before and comes late.
                let ttl = self.ttl_max.saturating_mul(2);
                self.shared.put_list(place, written, ttl).await?;
            }
            *edition = next;
            told.epoch.store(epoch, Ordering::Release);
        }
        Ok(Some(*edition))
    }
}

impl Found {
    fn in_edition(edition: Edition, list: KeptList, ttl: Duration, now_ms: u64) -> Option<Self> {
        let kept: Kept<'_> = postcard::from_bytes(&list.bytes).ok()?;
        // Both moments are cut to whole milliseconds: what is missing counts as age.
        let age = Duration::from_millis(now_ms.saturating_sub(kept.read_unix_ms) + 1);
        let left = list.left.min(ttl.saturating_sub(age));
        let is_good = kept.edition == edition && !left.is_zero();
        is_good.then(|| Self {
            contents: list.bytes.slice_ref(kept.contents),
            left,
        })
    }
}

fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
