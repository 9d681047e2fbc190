//! A Redis that is slow, gone, full, or back without its data: operations fail fast, and recover by themselves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast::call::Round;
use holdfast::cluster::redis::{Redis, RedisSettings};
use holdfast::hold::shared::{Announced, Claim, Shared, Taken, Unavailable};
use tokio::time::{Instant, sleep};

use super::{A, B, HOLD, LONG, YES, announce, mine, wanted_by};
use crate::support::eventually;
use crate::support::redis::{RedisServer, shared};

/// How long operations may take where they are to fail.
const LIMIT: Duration = Duration::from_millis(300);

/// What a busy machine may add to it.
const LEEWAY: Duration = Duration::from_secs(10);

fn impatient(server: &RedisServer, probe_pause: Duration) -> Redis {
    shared(RedisSettings {
        limit: LIMIT,
        probe_pause,
        ..server.settings()
    })
}

/// Fails, and how it does.
async fn failure(shared: &dyn Shared) -> Unavailable {
    let start = Instant::now();
    let unavailable = shared.claim(wanted_by(A)).await.unwrap_err();
    assert!(start.elapsed() < LIMIT + LEEWAY);
    unavailable
}

async fn recovers(shared: &dyn Shared) {
    let is_back = || async { shared.claim(wanted_by(A)).await.is_ok() };
    eventually("it to be back", is_back).await;
}

#[tokio::test]
async fn a_redis_that_stands_still_is_waited_for_once_and_comes_back() {
    let server = RedisServer::start().await;
    let shared = impatient(&server, LONG);
    let hopeful = impatient(&server, LIMIT);
    for shared in [&shared, &hopeful] {
        assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
    }
    server.freeze();
    for shared in [&shared, &hopeful] {
        let first = failure(shared).await;
        assert!(matches!(first, Unavailable::Late), "{first:?}");
        assert!(first.may_have_happened());
    }
    for _ in 0..100 {
        let next = failure(&shared).await;
        assert!(matches!(next, Unavailable::Down), "{next:?}");
        assert!(!next.may_have_happened());
    }
    // A probe waits, the others do not wait for it.
    sleep(LIMIT).await;
    let many = (0..20).map(|_| failure(&hopeful));
    let many = futures_util::future::join_all(many).await;
    let late = many
        .iter()
        .filter(|failure| matches!(failure, Unavailable::Late));
    assert!(late.count() <= 1, "{many:?}");

    server.thaw();
    recovers(&hopeful).await;
    let next = failure(&shared).await;
    assert!(
        matches!(next, Unavailable::Down),
        "its pause is not over: {next:?}"
    );
}

#[tokio::test]
async fn a_redis_that_is_gone_is_found_again() {
    let mut server = RedisServer::start().await;
    let shared = impatient(&server, LIMIT);
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
    server.kill().await;
    let first = failure(&shared).await;
    assert!(matches!(first, Unavailable::Failed(_)), "{first:?}");
    failure(&shared).await;
    server.restart().await;
    recovers(&shared).await;
    let taken = shared.take(wanted_by(A), Round(1), YES).await.unwrap();
    assert_eq!(taken, Taken::Fresh);
}

#[tokio::test]
async fn a_redis_that_was_never_there_is_found_when_it_comes() {
    let mut server = RedisServer::start().await;
    server.kill().await;
    let shared = impatient(&server, LIMIT);
    let first = failure(&shared).await;
    assert!(matches!(first, Unavailable::Failed(_)), "{first:?}");
    server.restart().await;
    recovers(&shared).await;
}

#[tokio::test]
async fn a_redis_that_was_started_anew_is_not_noticed() {
    let mut server = RedisServer::start().await;
    let shared = server.shared();
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
    server.kill().await;
    server.restart().await;
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
}

/// Or one whose circuit is whole would take it for dead.
#[tokio::test]
async fn a_replica_is_heard_of_when_redis_is_back_and_not_when_its_circuit_is_whole_again() {
    let mut server = RedisServer::start().await;
    let shared = impatient(&server, LONG);
    server.kill().await;
    assert!(shared.announce(A, "a:1", LONG).await.is_err());
    let next = failure(&shared).await;
    assert!(matches!(next, Unavailable::Down), "{next:?}");
    server.restart().await;
    let announced = shared.announce(A, "a:1", LONG).await.unwrap();
    assert_eq!(announced, Announced::Anew);
    // What it found out is good for all.
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
    server.kill().await;
    failure(&shared).await;
    server.restart().await;
    shared.leave(A).await.unwrap();
}

#[tokio::test]
async fn all_that_come_at_once_share_one_connection() {
    let server = RedisServer::start().await;
    let shared = server.shared();
    let many = (0..100).map(|_| shared.claim(wanted_by(A)));
    for claim in futures_util::future::join_all(many).await {
        assert_eq!(claim.unwrap(), mine(0, None));
    }
    let clients = server.cli(&["client", "list"]).await;
    assert_eq!(
        clients.lines().count(),
        2,
        "one is redis-cli itself:\n{clients}"
    );
}

#[tokio::test]
async fn a_redis_that_says_no_is_not_taken_for_one_that_is_down() {
    let server = RedisServer::start().await;
    let shared = impatient(&server, LONG);
    let outcome = Bytes::from_static(b"outcome");
    shared
        .remember(HOLD, A, outcome.clone(), LONG)
        .await
        .unwrap();
    server.cli(&["config", "set", "maxmemory", "1"]).await;
    for _ in 0..3 {
        let full = shared.remember(HOLD, A, outcome.clone(), LONG).await;
        assert!(matches!(full, Err(Unavailable::Failed(_))), "{full:?}");
        assert_eq!(shared.recall(HOLD).await.unwrap(), Some(outcome.clone()));
    }
}

#[tokio::test]
async fn an_operation_that_nobody_waits_for_any_more_harms_no_other() {
    let server = RedisServer::start().await;
    let shared = impatient(&server, LIMIT);
    server.freeze();
    // Dropped while it connects.
    let claim = shared.claim(wanted_by(A));
    assert!(tokio::time::timeout(LIMIT / 10, claim).await.is_err());
    failure(&shared).await;
    sleep(LIMIT).await;
    // Dropped while it probes.
    let claim = shared.claim(wanted_by(A));
    assert!(tokio::time::timeout(LIMIT / 10, claim).await.is_err());
    server.thaw();
    recovers(&shared).await;
}

#[tokio::test]
async fn nobody_counts_as_dead_until_all_have_had_their_chance_to_announce_themselves() {
    let mut server = RedisServer::start().await;
    let patient = |settle| -> Arc<dyn Shared> {
        Arc::new(shared(RedisSettings {
            settle,
            ..server.settings()
        }))
    };
    let (shared, quick) = (patient(LONG), patient(Duration::from_millis(400)));
    let unsettled = || async {
        let claimed = shared.claim(wanted_by(B)).await;
        assert!(
            matches!(claimed, Err(Unavailable::Unsettled)),
            "{claimed:?}"
        );
        let taken = shared.take(wanted_by(B), Round(2), YES).await;
        assert!(matches!(taken, Err(Unavailable::Unsettled)), "{taken:?}");
    };
    unsettled().await;
    announce(&shared, &[B]).await;
    unsettled().await;
    // A replica is never in doubt about itself, nor about one that is there.
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
    announce(&shared, &[A]).await;
    assert_eq!(shared.claim(wanted_by(B)).await.unwrap(), Claim::Other(A));

    // A dead one is adopted from when announcements have come for long enough.
    shared.leave(A).await.unwrap();
    let is_adopted = || async {
        quick.announce(B, "b:1", LONG).await.unwrap();
        matches!(quick.claim(wanted_by(B)).await, Ok(Claim::Mine(_)))
    };
    eventually("an adoption", is_adopted).await;

    // Without its data it knows nobody, and is in no hurry to believe that they are dead.
    server.kill().await;
    server.restart().await;
    unsettled().await;
    let announced = shared.announce(A, "a:1", LONG).await.unwrap();
    assert_eq!(announced, Announced::Anew);
    assert_eq!(shared.claim(wanted_by(B)).await.unwrap(), Claim::Other(A));
}

#[tokio::test]
async fn a_gap_in_the_announcements_unsettles() {
    let server = RedisServer::start().await;
    let settle = Duration::from_millis(400);
    let shared = shared(RedisSettings {
        settle,
        ..server.settings()
    });
    let is_settled = || async {
        shared.announce(B, "b:1", LONG).await.unwrap();
        matches!(shared.claim(wanted_by(B)).await, Ok(Claim::Mine(_)))
    };
    eventually("it to settle", is_settled).await;
    // As if Redis had stood still. B is the owner now, and not there.
    shared.leave(B).await.unwrap();
    sleep(settle).await;
    let claimed = shared.claim(wanted_by(A)).await;
    assert!(
        matches!(claimed, Err(Unavailable::Unsettled)),
        "{claimed:?}"
    );
    shared.announce(A, "a:1", LONG).await.unwrap();
    let claimed = shared.claim(wanted_by(A)).await;
    assert!(
        matches!(claimed, Err(Unavailable::Unsettled)),
        "{claimed:?}"
    );
    let is_settled = || async {
        shared.announce(A, "a:1", LONG).await.unwrap();
        shared.claim(wanted_by(A)).await.ok() == Some(mine(2, None))
    };
    eventually("it to settle again", is_settled).await;
}
