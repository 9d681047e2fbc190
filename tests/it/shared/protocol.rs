//! The claim protocol under random interleavings of replicas that come, die, fall silent, claim, take and release: at
//! each step as a tiny model says, and with its promises kept whatever the model says.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast::call::{AnswersDigest, Round};
use holdfast::cluster::redis::RedisSettings;
use holdfast::hold::seal::{HoldId, ReplicaId};
use holdfast::hold::shared::memory::Memory;
use holdfast::hold::shared::{Announced, Claim, Record, Shared, Stake, Taken};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::{Builder, Runtime};

use super::LONG;
use crate::support::redis::{RedisServer, fresh_prefix, shared};

const REPLICAS: u8 = 4;
const HOLDS: u8 = 2;
const STEPS: std::ops::Range<usize> = 1..60;

/// Against memory, and, since each case is some hundred round trips, fewer against Redis.
const CASES: u32 = 2000;
const CASES_REDIS: u32 = 60;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A replica comes, or one that was taken for dead is heard of again.
    Announce(u8),
    /// It dies, or is no longer heard of: to the others it is the same. One that died acts no more until it "comes",
    /// which stands for a process that kept running all the time: the worst there is.
    Vanish(u8),
    Claim(u8, u8),
    Take(u8, u8, u32, u8),
    /// A claimant, adopter or not, passes on answers and dies on the way.
    TakeAndVanish(u8, u8, u32, u8),
    /// The call is over: its record stays, or goes.
    Release(u8, u8, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let (replica, hold) = (|| 0..REPLICAS, || 0..HOLDS);
    let answers = || (1_u32..4, 0_u8..2);
    prop_oneof![
        3 => replica().prop_map(Step::Announce),
        3 => replica().prop_map(Step::Vanish),
        5 => (replica(), hold()).prop_map(|(who, hold)| Step::Claim(who, hold)),
        8 => (replica(), hold(), answers())
            .prop_map(|(who, hold, (round, digest))| Step::Take(who, hold, round, digest)),
        3 => (replica(), hold(), answers())
            .prop_map(|(who, hold, (round, digest))| Step::TakeAndVanish(who, hold, round, digest)),
        1 => (replica(), hold(), any::<bool>())
            .prop_map(|(who, hold, keep)| Step::Release(who, hold, keep)),
    ]
}

fn id(replica: u8) -> ReplicaId {
    ReplicaId([replica; 8])
}

/// Each hold was first held by another replica.
fn sealed_owner(hold: u8) -> u8 {
    hold % REPLICAS
}

fn stake(who: u8, hold: u8) -> Stake {
    Stake {
        hold: HoldId([hold; 16]),
        sealed_owner: id(sealed_owner(hold)),
        me: id(who),
        ttl: LONG,
    }
}

/// What the documentation of `Shared` says, in as few words as possible.
#[derive(Debug, Default)]
struct Model {
    alive: HashSet<u8>,
    records: HashMap<u8, Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    owner: u8,
    generation: u32,
    taken: Option<(u32, u8, u8)>,
}

impl Model {
    /// Whose a hold is, and its record as it would be in the hands of a claimant.
    fn known(&self, who: u8, hold: u8) -> (u8, Known) {
        let known = self.records.get(&hold).copied().unwrap_or(Known {
            owner: sealed_owner(hold),
            generation: 0,
            taken: None,
        });
        let adopted = u32::from(known.owner != who);
        let mine = Known {
            owner: who,
            generation: known.generation + adopted,
            ..known
        };
        (known.owner, mine)
    }

    fn claim(&mut self, who: u8, hold: u8) -> Claim {
        let (owner, mine) = self.known(who, hold);
        if owner != who && self.alive.contains(&owner) {
            return Claim::Other(id(owner));
        }
        self.records.insert(hold, mine);
        Claim::Mine(Record {
            generation: mine.generation,
            taken: mine.taken.map(|(round, ..)| Round(round)),
        })
    }

    fn take(&mut self, who: u8, hold: u8, round: u32, digest: u8) -> Taken {
        let (owner, mut mine) = self.known(who, hold);
        let is_lost = self.records.contains_key(&hold) || self.alive.contains(&owner);
        if owner != who && is_lost {
            return Taken::Lost(id(owner));
        }
        let taken = match mine.taken {
            Some((last, same, by)) if (last, same) == (round, digest) => Taken::Again(id(by)),
            Some((last, ..)) if last >= round => Taken::Otherwise,
            _ => {
                mine.taken = Some((round, digest, who));
                Taken::Fresh
            }
        };
        self.records.insert(hold, mine);
        taken
    }

    fn release(&mut self, who: u8, hold: u8, keeps: bool) {
        if !keeps
            && self
                .records
                .get(&hold)
                .is_some_and(|known| known.owner == who)
        {
            self.records.remove(&hold);
        }
    }
}

/// What was promised, told from the answers alone.
#[derive(Debug, Default)]
struct Promises {
    /// Per hold: who was last told that it is his, and of which generation.
    owners: HashMap<u8, (u8, u32)>,
    /// Per hold: the rounds whose answers may have gone to the server.
    delivered: HashMap<u8, Vec<u32>>,
}

impl Promises {
    fn claimed(&mut self, who: u8, hold: u8, record: Record, alive: &HashSet<u8>) {
        if let Some(&(before, generation)) = self.owners.get(&hold) {
            if before == who {
                assert_eq!(
                    record.generation, generation,
                    "none but {who} had it meanwhile"
                );
            } else {
                assert!(
                    !alive.contains(&before),
                    "{who} has what {before} has, which lives"
                );
                assert!(record.generation > generation, "two with the same claim");
            }
        } else if who != sealed_owner(hold) {
            assert!(
                !alive.contains(&sealed_owner(hold)),
                "adopted from one that lives"
            );
        }
        self.owners.insert(hold, (who, record.generation));
    }

    fn took(&mut self, who: u8, hold: u8, round: u32, taken: Taken, alive: &HashSet<u8>) {
        if let Taken::Lost(other) = taken {
            assert_ne!(other, id(who), "lost to itself");
            return;
        }
        match self.owners.get(&hold) {
            Some(&(owner, _)) => assert_eq!(owner, who, "none but its owner takes answers"),
            // Taken without a claim before: that is one.
            None => {
                let record = Record {
                    generation: u32::from(who != sealed_owner(hold)),
                    taken: None,
                };
                self.claimed(who, hold, record, alive);
            }
        }
        let delivered = self.delivered.entry(hold).or_default();
        if taken == Taken::Fresh {
            let is_later = delivered.iter().all(|&before| before < round);
            assert!(
                is_later,
                "round {round} is delivered twice, or too late: {delivered:?}"
            );
            delivered.push(round);
        }
    }

    /// The record is gone: it is as if there had been none.
    fn forget(&mut self, hold: u8) {
        self.owners.remove(&hold);
        self.delivered.remove(&hold);
    }
}

async fn run(shared: &dyn Shared, steps: &[Step]) {
    let (mut model, mut promises) = (Model::default(), Promises::default());
    for &step in steps {
        match step {
            Step::Announce(who) => {
                let announced = shared.announce(id(who), "a:1", LONG).await.unwrap();
                let was_alive = !model.alive.insert(who);
                assert_eq!(announced == Announced::Still, was_alive, "{step:?}");
            }
            Step::Vanish(who) => vanish(shared, &mut model, who).await,
            Step::Claim(who, hold) => {
                let claimed = shared.claim(stake(who, hold)).await.unwrap();
                if let Claim::Mine(record) = claimed {
                    promises.claimed(who, hold, record, &model.alive);
                }
                assert_eq!(claimed, model.claim(who, hold), "{step:?}");
            }
            Step::Take(who, hold, round, digest)
            | Step::TakeAndVanish(who, hold, round, digest) => {
                let answers = AnswersDigest([digest; 16]);
                let taken = shared
                    .take(stake(who, hold), Round(round), answers)
                    .await
                    .unwrap();
                promises.took(who, hold, round, taken, &model.alive);
                assert_eq!(taken, model.take(who, hold, round, digest), "{step:?}");
                if matches!(step, Step::TakeAndVanish(..)) {
                    vanish(shared, &mut model, who).await;
                }
            }
            Step::Release(who, hold, keeps) => {
                let keep = if keeps { LONG } else { Duration::ZERO };
                shared
                    .release(stake(who, hold).hold, id(who), keep)
                    .await
                    .unwrap();
                model.release(who, hold, keeps);
                if !model.records.contains_key(&hold) {
                    promises.forget(hold);
                }
            }
        }
    }
}

async fn vanish(shared: &dyn Shared, model: &mut Model, who: u8) {
    shared.leave(id(who)).await.unwrap();
    model.alive.remove(&who);
}

/// Runs cases until one fails, which is printed as small as it can be made, with its seed.
fn check(cases: u32, runtime: &Runtime, make: impl Fn() -> Arc<dyn Shared>) {
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    });
    let steps = prop::collection::vec(step(), STEPS);
    let ended = runner.run(&steps, |steps| {
        let shared = make();
        runtime.block_on(run(&*shared, &steps));
        Ok(())
    });
    if let Err(failure) = ended {
        panic!("{failure}");
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn claims_in_memory_do_as_the_model() {
    check(CASES, &runtime(), || Arc::new(Memory::default()));
}

#[test]
fn claims_in_redis_do_as_the_model() {
    let runtime = runtime();
    let server = runtime.block_on(RedisServer::start());
    check(CASES_REDIS, &runtime, || {
        let _context = runtime.enter();
        Arc::new(shared(RedisSettings {
            prefix: fresh_prefix(),
            ..server.settings()
        }))
    });
}

/// Not one after the other: replicas of their own, each with a connection of its own, all at once.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_adopters_at_once_one_has_it_and_delivers_once() {
    let server = RedisServer::start().await;
    let memory: Arc<dyn Shared> = Arc::new(Memory::default());
    for hold in 0..20 {
        let one_memory = || Arc::clone(&memory);
        rush(hold, one_memory).await;
        rush(hold, || Arc::new(server.shared())).await;
    }
}

async fn rush(hold: u8, shared: impl Fn() -> Arc<dyn Shared>) {
    // Their sealed owner is nobody that was ever there.
    let dead = id(200);
    let tasks = tokio_util::task::TaskTracker::new();
    let replicas = (0..6_u8).map(|who| {
        let shared = shared();
        tasks.spawn(async move {
            shared.announce(id(who), "a:1", LONG).await.unwrap();
            let stake = Stake {
                sealed_owner: dead,
                ..stake(who, hold)
            };
            let claimed = shared.claim(stake).await.unwrap();
            let answers = AnswersDigest([1; 16]);
            let taken = shared.take(stake, Round(1), answers).await.unwrap();
            (id(who), claimed, taken)
        })
    });
    let all = futures_util::future::join_all(replicas.collect::<Vec<_>>()).await;
    let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    let owners: Vec<_> = all
        .iter()
        .filter(|(_, claimed, _)| matches!(claimed, Claim::Mine(_)))
        .map(|(who, ..)| *who)
        .collect();
    let [owner] = owners[..] else {
        panic!("not one owner: {all:?}");
    };
    for &(who, claimed, taken) in &all {
        if who == owner {
            assert_eq!(taken, Taken::Fresh, "{all:?}");
        } else {
            assert_eq!(
                (claimed, taken),
                (Claim::Other(owner), Taken::Lost(owner)),
                "{all:?}"
            );
        }
    }
}
