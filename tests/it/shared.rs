//! What replicas share does the same in memory and in Redis; Redis may be slow, down, read and written by others.

use std::sync::Arc;
use std::time::Duration;

use holdfast::call::{AnswersDigest, Round};
use holdfast::hold::seal::{HoldId, ReplicaId};
use holdfast::hold::shared::{Claim, Record, Shared, Stake};

mod behaviour;
mod outages;
mod protocol;
mod secrecy;
mod tls;

const A: ReplicaId = ReplicaId([0xa; 8]);
const B: ReplicaId = ReplicaId([0xb; 8]);
const C: ReplicaId = ReplicaId([0xc; 8]);

const HOLD: HoldId = HoldId([1; 16]);
const YES: AnswersDigest = AnswersDigest([1; 16]);
const NO: AnswersDigest = AnswersDigest([2; 16]);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

/// Short, for what has to be over within a test.
const SHORT: Duration = Duration::from_millis(60);

/// The hold of A, wanted by somebody.
fn wanted_by(me: ReplicaId) -> Stake {
    Stake {
        hold: HOLD,
        sealed_owner: A,
        me,
        ttl: LONG,
    }
}

fn mine(generation: u32, taken: Option<u32>) -> Claim {
    Claim::Mine(Record {
        generation,
        taken: taken.map(Round),
    })
}

/// These live.
async fn announce(shared: &Arc<dyn Shared>, replicas: &[ReplicaId]) {
    for &replica in replicas {
        let address = format!("{replica:?}:1");
        shared.announce(replica, &address, LONG).await.unwrap();
    }
}
