//! Several replicas with one store, which may be out of reach.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::cache::naming::Reader;
use crate::call::{AnswersDigest, Round};
use crate::hold::seal::{HoldId, ReplicaId, SealingKeys};
use crate::hold::shared::memory::Memory;
use crate::hold::shared::{Announced, Claim, Pending, Stake, Taken};
use crate::session::{Audience, Principal};
use crate::translate::subscription::{Change, Changed};

/// Longer than any test.
const TTL: Duration = Duration::from_secs(60);

const BOUNDS: Bounds = Bounds {
    ttl_max: TTL,
    bytes_max: 4 << 10,
};

/// A store for several, of which nothing but lists is wanted.
#[derive(Debug, Default)]
struct Store {
    memory: Memory,
    is_down: AtomicBool,
}

impl Store {
    fn down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Release);
    }

    fn or<'a, T: Send + 'a>(&'a self, operation: Pending<'a, T>) -> Pending<'a, T> {
        match self.is_down.load(Ordering::Acquire) {
            true => unwanted(),
            false => operation,
        }
    }
}

fn unwanted<'a, T: Send + 'a>() -> Pending<'a, T> {
    Box::pin(async { Err(Unavailable::Down) })
}

impl Shared for Store {
    fn has_others(&self) -> bool {
        true
    }
    fn announce<'a>(&'a self, _: ReplicaId, _: &'a str, _: Duration) -> Pending<'a, Announced> {
        unwanted()
    }
    fn leave(&self, _: ReplicaId) -> Pending<'_, ()> {
        unwanted()
    }
    fn address_of(&self, _: ReplicaId) -> Pending<'_, Option<String>> {
        unwanted()
    }
    fn claim(&self, _: Stake) -> Pending<'_, Claim> {
        unwanted()
    }
    fn take(&self, _: Stake, _: Round, _: AnswersDigest) -> Pending<'_, Taken> {
        unwanted()
    }
    fn whose(&self, _: Stake) -> Pending<'_, Claim> {
        unwanted()
    }
    fn take_back(&self, _: Stake, _: Round, _: AnswersDigest) -> Pending<'_, ()> {
        unwanted()
    }
    fn release(&self, _: HoldId, _: ReplicaId, _: Duration) -> Pending<'_, ()> {
        unwanted()
    }
    fn remember(&self, _: HoldId, _: ReplicaId, _: Bytes, _: Duration) -> Pending<'_, ()> {
        unwanted()
    }
    fn recall(&self, _: HoldId) -> Pending<'_, Option<Bytes>> {
        unwanted()
    }
    fn put_list(&self, place: Place, list: Bytes, ttl: Duration) -> Pending<'_, ()> {
        self.or(self.memory.put_list(place, list, ttl))
    }
    fn list(&self, place: Place) -> Pending<'_, Option<KeptList>> {
        self.or(self.memory.list(place))
    }
}

struct Replica {
    commons: Arc<Commons>,
    changes: Arc<Changes>,
    tasks: TaskTracker,
}

impl Replica {
    fn of(store: &Arc<Store>) -> Self {
        let keys = SealingKeys::new(&[[1; 32]]).unwrap();
        let naming = Naming::new(&keys, "b", Binding([0; 16])).unwrap();
        let (changes, tasks) = (Arc::<Changes>::default(), TaskTracker::new());
        let shared: Arc<dyn Shared> = Arc::<Store>::clone(store);
        let beside = (tasks.clone(), Counter::default());
        let commons = Commons::new(shared, naming, Arc::clone(&changes), BOUNDS, beside).unwrap();
        Self {
            commons: Arc::new(commons),
            changes,
            tasks,
        }
    }

    async fn look(&self, subject: &Subject<'_>, lists: Lists) -> Option<(Spot, Option<Found>)> {
        self.commons.look(subject, lists, TTL).await
    }

    /// What is found of Ada's tools.
    async fn found(&self) -> Option<Bytes> {
        let (_, found) = self.look(&ada(), only(List::Tools)).await?;
        found.map(|found| found.contents)
    }

    /// Where Ada's tools are to be kept.
    async fn spot(&self) -> Spot {
        self.look(&ada(), only(List::Tools)).await.unwrap().0
    }

    async fn keeps(&self, spot: Spot, contents: &[u8]) {
        self.commons.keep(spot, contents, TTL);
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    fn hears_of(&self, list: List) {
        let audience = Audience::Of(Principal::Anonymous);
        let change = Change::bare(Changed::List(list));
        self.changes.publish(audience, &change);
    }

    fn found_so_far(&self) -> u64 {
        self.commons.found.get()
    }
}

fn tools_of(name: &str) -> Subject<'_> {
    Subject::Tools(Reader {
        principal: Some(Principal::Anonymous),
        credentials: Some(name.as_bytes()),
        capabilities: "{}",
    })
}

fn ada() -> Subject<'static> {
    tools_of("ada")
}

fn only(list: List) -> Lists {
    Lists::that(|one| one == list)
}

fn replicas() -> (Arc<Store>, Replica, Replica) {
    let store = Arc::default();
    let (a, b) = (Replica::of(&store), Replica::of(&store));
    (store, a, b)
}

const ONE: &[u8] = b"one";

#[tokio::test]
async fn what_one_has_read_the_other_finds_and_nobody_else() {
    let (_, a, b) = replicas();
    assert_eq!(a.found().await, None);
    a.keeps(a.spot().await, ONE).await;
    assert_eq!(b.found().await.as_deref(), Some(ONE));
    assert_eq!((a.found_so_far(), b.found_so_far()), (0, 1));
    let (_, found) = b.look(&tools_of("eve"), only(List::Tools)).await.unwrap();
    assert!(found.is_none());
}

#[tokio::test]
async fn a_change_ends_what_was_read_before_whoever_read_it() {
    let (_, a, b) = replicas();
    a.keeps(a.spot().await, ONE).await;
    let before = b.spot().await;
    a.hears_of(List::Tools);
    assert_eq!(a.found().await, None);
    assert_eq!(b.found().await, None);
    // It was asked for before the change, and comes after it.
    b.keeps(before, b"too late").await;
    assert_eq!((a.found().await, b.found().await), (None, None));
    let after = b.spot().await;
    b.keeps(after, b"two").await;
    assert_eq!(a.found().await.as_deref(), Some(&b"two"[..]));
}

#[tokio::test]
async fn a_change_ends_what_depends_on_that_list_alone() {
    let (_, a, b) = replicas();
    let everything = Lists::that(|_| true);
    let whole = tools_of("whole");
    a.keeps(a.spot().await, ONE).await;
    let (spot, _) = a.look(&whole, everything).await.unwrap();
    a.keeps(spot, ONE).await;
    a.hears_of(List::Prompts);
    assert!(a.found().await.is_some() && b.found().await.is_some());
    let (_, found) = b.look(&whole, everything).await.unwrap();
    assert!(found.is_some(), "nobody was told yet");
    let (_, found) = a.look(&whole, everything).await.unwrap();
    assert!(found.is_none());
    let (_, found) = b.look(&whole, everything).await.unwrap();
    assert!(found.is_none());
}

#[tokio::test(start_paused = true)]
async fn others_are_told_of_a_change_at_once_and_again_until_it_is_done() {
    let (store, a, b) = replicas();
    let end = CancellationToken::new();
    let telling = a.tasks.spawn(Arc::clone(&a.commons).tell(end.clone()));
    for is_down in [false, true] {
        b.keeps(b.spot().await, ONE).await;
        assert!(b.found().await.is_some());
        store.down(is_down);
        a.hears_of(List::Tools);
        if is_down {
            // It is out of reach for longer than one attempt.
            sleep(3 * AGAIN_AFTER).await;
            assert!(a.look(&ada(), only(List::Tools)).await.is_none());
            store.down(false);
        }
        while b.found().await.is_some() {
            sleep(AGAIN_AFTER).await;
        }
    }
    end.cancel();
    telling.await.unwrap();
}

/// It knows of a change that it could not tell the others of.
#[tokio::test]
async fn who_has_heard_of_a_change_takes_nothing_older_afterwards() {
    let (store, a, b) = replicas();
    b.keeps(b.spot().await, ONE).await;
    store.down(true);
    a.hears_of(List::Tools);
    assert!(a.look(&ada(), only(List::Tools)).await.is_none());
    store.down(false);
    assert!(b.found().await.is_some());
    assert_eq!(a.found().await, None);
    assert_eq!(b.found().await, None);
}

#[tokio::test]
async fn all_that_look_at_once_after_a_change_look_in_one_edition() {
    let (_, a, b) = replicas();
    a.hears_of(List::Tools);
    let (one, two, three) = tokio::join!(a.spot(), a.spot(), a.spot());
    assert!(one.edition == two.edition && two.edition == three.edition);
    a.keeps(one, ONE).await;
    assert_eq!(b.found().await.as_deref(), Some(ONE));
}

#[tokio::test]
async fn nothing_becomes_younger() {
    let (store, a, b) = replicas();
    let spot = a.spot().await;
    let put = |read_ago: Duration, left: Duration| {
        let (edition, now) = (spot.edition, unix_ms());
        let store = Arc::clone(&store);
        async move {
            let read_unix_ms = now - u64::try_from(read_ago.as_millis()).unwrap();
            let kept = Kept {
                edition,
                read_unix_ms,
                contents: ONE,
            };
            let written = postcard::to_allocvec(&kept).unwrap().into();
            store.put_list(spot.place, written, left).await.unwrap();
        }
    };
    let left = || async {
        let (_, found) = b.look(&ada(), only(List::Tools)).await.unwrap();
        found.map(|found| found.left)
    };
    let near = |left: Option<Duration>, seconds: u64| {
        let expected = Duration::from_secs(seconds);
        let left = left.unwrap();
        assert!(left <= expected && left + TTL / 6 > expected, "{left:?}");
    };
    put(Duration::ZERO, TTL).await;
    near(left().await, 60);
    // The store's clock, and then the readers', say that it is older.
    put(Duration::ZERO, TTL / 2).await;
    near(left().await, 30);
    put(TTL / 2, TTL).await;
    near(left().await, 30);
    put(TTL, TTL).await;
    assert_eq!(left().await, None);
}

#[tokio::test]
async fn what_is_not_understood_is_not_found() {
    let (store, a, b) = replicas();
    let spot = a.spot().await;
    a.keeps(spot, ONE).await;
    let whole = store.list(spot.place).await.unwrap().unwrap().bytes;
    for end in 0..whole.len() {
        let cut = whole.slice(..end);
        store.put_list(spot.place, cut, TTL).await.unwrap();
        assert_eq!(b.found().await, None, "cut at {end}");
    }
    store.put_list(spot.place, whole, TTL).await.unwrap();
    assert!(b.found().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn one_replica_keeps_only_so_much_at_a_time() {
    let (_, a, b) = replicas();
    let large = [b'x'; 1500];
    for (name, is_kept) in [("one", true), ("two", true), ("three", false)] {
        let subject = tools_of(name);
        let (spot, _) = a.look(&subject, only(List::Tools)).await.unwrap();
        a.keeps(spot, &large).await;
        let (_, found) = b.look(&subject, only(List::Tools)).await.unwrap();
        assert_eq!(found.is_some(), is_kept, "{name}");
    }
    // The other has room of its own, and what is over makes room.
    b.keeps(b.spot().await, &large).await;
    assert!(a.found().await.is_some());
    tokio::time::advance(TTL).await;
    a.keeps(a.spot().await, &large).await;
    assert!(b.found().await.is_some());
}

#[tokio::test]
async fn a_process_without_others_has_nothing_in_common() {
    let keys = SealingKeys::new(&[[1; 32]]).unwrap();
    let naming = Naming::new(&keys, "b", Binding([0; 16])).unwrap();
    let alone: Arc<dyn Shared> = Arc::new(Memory::default());
    let beside = (TaskTracker::new(), Counter::default());
    assert!(Commons::new(alone, naming, Arc::default(), BOUNDS, beside).is_none());
}
