//! One suite, run against both implementations.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast::call::Round;
use holdfast::hold::seal::HoldId;
use holdfast::hold::shared::{
    Announced, Claim, LIST_BYTES_MAX, OUTCOME_BYTES_MAX, Shared, Stake, Taken,
};
use tokio::time::sleep;

use super::{A, B, C, HOLD, LONG, NO, SHORT, YES, announce, mine, wanted_by};
use crate::support::{eventually, within};

/// Each of these as a test of each implementation. The clock of those in memory stands still but for what is waited.
macro_rules! of_both {
    ($($name:ident),* $(,)?) => {
        mod memory {
            use std::sync::Arc;
            $(
                #[tokio::test(start_paused = true)]
                async fn $name() {
                    super::$name(Arc::new(holdfast::hold::shared::memory::Memory::default())).await;
                }
            )*
        }
        mod redis {
            use std::sync::Arc;
            $(
                #[tokio::test]
                async fn $name() {
                    let server = crate::support::redis::RedisServer::start().await;
                    super::$name(Arc::new(server.shared())).await;
                }
            )*
        }
    };
}

of_both!(
    replicas_are_alive_until_they_leave_or_fall_silent,
    a_hold_stays_with_its_sealed_owner_while_that_one_lives,
    the_hold_of_a_dead_replica_is_adopted_once_and_again_from_a_dead_adopter,
    a_sealed_owner_that_is_not_announced_keeps_its_own_hold,
    answers_are_taken_once,
    an_adopter_sees_what_its_predecessor_took,
    an_owner_that_was_taken_for_dead_loses_its_hold_when_it_takes_answers,
    a_hold_without_a_record_is_not_taken_from_a_living_owner,
    a_released_hold_is_kept_for_as_long_as_told,
    a_record_has_an_end,
    answers_that_were_not_given_may_be_taken_again,
    whose_a_hold_is_can_be_asked_without_a_claim,
    an_outcome_comes_from_the_owner_alone,
    outcomes_and_lists_are_kept_within_their_bounds,
);

async fn replicas_are_alive_until_they_leave_or_fall_silent(shared: Arc<dyn Shared>) {
    assert_eq!(shared.address_of(A).await.unwrap(), None);
    assert_eq!(
        shared.announce(A, "a:1", LONG).await.unwrap(),
        Announced::Anew
    );
    assert_eq!(
        shared.announce(A, "a:2", LONG).await.unwrap(),
        Announced::Still
    );
    assert_eq!(shared.address_of(A).await.unwrap().as_deref(), Some("a:2"));
    assert_eq!(shared.address_of(B).await.unwrap(), None);
    shared.leave(A).await.unwrap();
    shared.leave(A).await.unwrap();
    assert_eq!(shared.address_of(A).await.unwrap(), None);

    shared.announce(B, "b:1", SHORT).await.unwrap();
    let is_gone = || async { shared.address_of(B).await.unwrap().is_none() };
    eventually("a silent replica to be gone", is_gone).await;
    assert_eq!(
        shared.announce(B, "b:1", LONG).await.unwrap(),
        Announced::Anew
    );
}

async fn a_hold_stays_with_its_sealed_owner_while_that_one_lives(shared: Arc<dyn Shared>) {
    announce(&shared, &[A, B]).await;
    assert_eq!(shared.claim(wanted_by(B)).await.unwrap(), Claim::Other(A));
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
    assert_eq!(shared.claim(wanted_by(B)).await.unwrap(), Claim::Other(A));
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
}

async fn the_hold_of_a_dead_replica_is_adopted_once_and_again_from_a_dead_adopter(
    shared: Arc<dyn Shared>,
) {
    announce(&shared, &[B, C]).await;
    let (b, c) = tokio::join!(shared.claim(wanted_by(B)), shared.claim(wanted_by(C)));
    match (b.unwrap(), c.unwrap()) {
        (Claim::Mine(record), Claim::Other(B)) | (Claim::Other(C), Claim::Mine(record)) => {
            assert_eq!((record.generation, record.taken), (1, None));
        }
        both => panic!("two adopters, {both:?}"),
    }
    let owner = match shared.claim(wanted_by(B)).await.unwrap() {
        Claim::Mine(_) => B,
        Claim::Other(owner) => owner,
    };
    let heir = if owner == B { C } else { B };
    shared.leave(owner).await.unwrap();
    assert_eq!(shared.claim(wanted_by(heir)).await.unwrap(), mine(2, None));
    announce(&shared, &[owner]).await;
    assert_eq!(
        shared.claim(wanted_by(owner)).await.unwrap(),
        Claim::Other(heir)
    );
}

async fn a_sealed_owner_that_is_not_announced_keeps_its_own_hold(shared: Arc<dyn Shared>) {
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
    assert_eq!(
        shared.take(wanted_by(A), Round(1), YES).await.unwrap(),
        Taken::Fresh
    );
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, Some(1)));
}

async fn answers_are_taken_once(shared: Arc<dyn Shared>) {
    announce(&shared, &[A]).await;
    let take = |round, answers| shared.take(wanted_by(A), Round(round), answers);
    assert_eq!(take(1, YES).await.unwrap(), Taken::Fresh);
    assert_eq!(take(1, YES).await.unwrap(), Taken::Again(A));
    assert_eq!(take(1, NO).await.unwrap(), Taken::Otherwise);
    assert_eq!(take(3, NO).await.unwrap(), Taken::Fresh);
    assert_eq!(
        take(1, YES).await.unwrap(),
        Taken::Otherwise,
        "only the highest is kept"
    );
    assert_eq!(take(2, YES).await.unwrap(), Taken::Otherwise);
    assert_eq!(take(3, NO).await.unwrap(), Taken::Again(A));
    // Another hold is another matter.
    let other = Stake {
        hold: HoldId([2; 16]),
        ..wanted_by(A)
    };
    assert_eq!(
        shared.take(other, Round(1), NO).await.unwrap(),
        Taken::Fresh
    );

    let many = (0..8).map(|_| {
        let shared = Arc::clone(&shared);
        async move { shared.take(wanted_by(A), Round(9), YES).await.unwrap() }
    });
    let many = futures_util::future::join_all(many).await;
    let fresh = many.iter().filter(|taken| **taken == Taken::Fresh).count();
    assert_eq!(fresh, 1, "{many:?}");
}

async fn an_adopter_sees_what_its_predecessor_took(shared: Arc<dyn Shared>) {
    announce(&shared, &[A, B, C]).await;
    assert_eq!(
        shared.take(wanted_by(A), Round(2), YES).await.unwrap(),
        Taken::Fresh
    );
    shared.leave(A).await.unwrap();
    assert_eq!(shared.claim(wanted_by(B)).await.unwrap(), mine(1, Some(2)));
    assert_eq!(
        shared.take(wanted_by(B), Round(2), YES).await.unwrap(),
        Taken::Again(A)
    );
    assert_eq!(
        shared.take(wanted_by(B), Round(2), NO).await.unwrap(),
        Taken::Otherwise
    );
    assert_eq!(
        shared.take(wanted_by(B), Round(3), NO).await.unwrap(),
        Taken::Fresh
    );
    shared.leave(B).await.unwrap();
    assert_eq!(shared.claim(wanted_by(C)).await.unwrap(), mine(2, Some(3)));
    assert_eq!(
        shared.take(wanted_by(C), Round(3), NO).await.unwrap(),
        Taken::Again(B)
    );
}

async fn an_owner_that_was_taken_for_dead_loses_its_hold_when_it_takes_answers(
    shared: Arc<dyn Shared>,
) {
    announce(&shared, &[A, B]).await;
    assert_eq!(
        shared.take(wanted_by(A), Round(1), YES).await.unwrap(),
        Taken::Fresh
    );
    shared.leave(A).await.unwrap();
    assert_eq!(shared.claim(wanted_by(B)).await.unwrap(), mine(1, Some(1)));
    announce(&shared, &[A]).await;
    let late = shared.take(wanted_by(A), Round(2), YES).await.unwrap();
    assert_eq!(late, Taken::Lost(B));
    // Not even from a dead one: what that one did has to be found out by a claim.
    shared.leave(B).await.unwrap();
    let late = shared.take(wanted_by(A), Round(2), YES).await.unwrap();
    assert_eq!(late, Taken::Lost(B));
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(2, Some(1)));
}

async fn a_hold_without_a_record_is_not_taken_from_a_living_owner(shared: Arc<dyn Shared>) {
    announce(&shared, &[A, B]).await;
    assert_eq!(
        shared.take(wanted_by(B), Round(1), YES).await.unwrap(),
        Taken::Lost(A)
    );
    shared.leave(A).await.unwrap();
    assert_eq!(
        shared.take(wanted_by(B), Round(1), YES).await.unwrap(),
        Taken::Fresh
    );
    assert_eq!(shared.claim(wanted_by(B)).await.unwrap(), mine(1, Some(1)));
}

async fn a_released_hold_is_kept_for_as_long_as_told(shared: Arc<dyn Shared>) {
    announce(&shared, &[A, B]).await;
    assert_eq!(
        shared.take(wanted_by(A), Round(1), YES).await.unwrap(),
        Taken::Fresh
    );
    shared.release(HOLD, B, Duration::ZERO).await.unwrap();
    assert_eq!(
        shared.take(wanted_by(A), Round(1), YES).await.unwrap(),
        Taken::Again(A),
        "nobody releases what is not his"
    );
    shared.release(HOLD, A, LONG).await.unwrap();
    shared.leave(A).await.unwrap();
    assert_eq!(shared.claim(wanted_by(B)).await.unwrap(), mine(1, Some(1)));
    assert_eq!(
        shared.take(wanted_by(B), Round(1), YES).await.unwrap(),
        Taken::Again(A)
    );
    shared.release(HOLD, B, Duration::ZERO).await.unwrap();
    assert_eq!(shared.claim(wanted_by(B)).await.unwrap(), mine(1, None));
    shared.release(HoldId([9; 16]), B, LONG).await.unwrap();
}

async fn answers_that_were_not_given_may_be_taken_again(shared: Arc<dyn Shared>) {
    announce(&shared, &[A, B]).await;
    let take = async |who, round, answers| {
        let taken = shared.take(wanted_by(who), Round(round), answers).await;
        taken.unwrap()
    };
    assert_eq!(take(A, 2, YES).await, Taken::Fresh);
    // Others' notes, and those of other answers, stay.
    for (who, round, answers) in [(B, 2, YES), (A, 2, NO), (A, 1, YES), (A, 3, YES)] {
        let back = shared.take_back(wanted_by(who), Round(round), answers);
        back.await.unwrap();
        assert_eq!(take(A, 2, YES).await, Taken::Again(A));
    }
    let back = shared.take_back(wanted_by(A), Round(2), YES);
    back.await.unwrap();
    // The rounds before are over all the same.
    assert_eq!(take(A, 1, YES).await, Taken::Otherwise);
    assert_eq!(take(A, 2, NO).await, Taken::Fresh);
    assert_eq!(take(A, 2, YES).await, Taken::Otherwise);
}

async fn whose_a_hold_is_can_be_asked_without_a_claim(shared: Arc<dyn Shared>) {
    announce(&shared, &[A, B]).await;
    let whose = async |who| shared.whose(wanted_by(who)).await.unwrap();
    assert_eq!(whose(A).await, mine(0, None));
    assert_eq!(whose(B).await, Claim::Other(A));
    shared.leave(A).await.unwrap();
    assert_eq!(whose(B).await, mine(1, None));
    // It has not become his.
    announce(&shared, &[A]).await;
    assert_eq!(whose(B).await, Claim::Other(A));
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
}

async fn an_outcome_comes_from_the_owner_alone(shared: Arc<dyn Shared>) {
    let outcome = |text: &'static str| Bytes::from_static(text.as_bytes());
    announce(&shared, &[A, B]).await;
    let told = shared.remember(HOLD, A, outcome("a"), LONG).await;
    told.unwrap();
    shared.leave(A).await.unwrap();
    assert_eq!(shared.claim(wanted_by(B)).await.unwrap(), mine(1, None));
    for (who, text, expected) in [(B, "b", "b"), (A, "late", "b")] {
        let told = shared.remember(HOLD, who, outcome(text), LONG).await;
        told.unwrap();
        let recalled = shared.recall(HOLD).await.unwrap();
        assert_eq!(recalled, Some(outcome(expected)));
    }
}

async fn a_record_has_an_end(shared: Arc<dyn Shared>) {
    announce(&shared, &[A, B]).await;
    let brief = Stake {
        ttl: SHORT,
        ..wanted_by(A)
    };
    assert_eq!(
        shared.take(brief, Round(1), YES).await.unwrap(),
        Taken::Fresh
    );
    let waits = async {
        while shared.take(brief, Round(1), YES).await.unwrap() != Taken::Fresh {
            // Each look keeps it for longer, so they are far apart.
            sleep(2 * SHORT).await;
        }
    };
    within("the record to go", waits).await;

    // A claim says anew how long it is kept.
    let taken = shared.take(wanted_by(A), Round(2), YES).await.unwrap();
    assert_eq!(taken, Taken::Fresh);
    assert_eq!(shared.claim(brief).await.unwrap(), mine(0, Some(2)));
    let waits = async {
        while shared.claim(brief).await.unwrap() != mine(0, None) {
            sleep(2 * SHORT).await;
        }
    };
    within("the record to go", waits).await;

    // One that ends at once leaves nothing behind.
    let none = Stake {
        ttl: Duration::ZERO,
        ..wanted_by(A)
    };
    let taken = shared.take(none, Round(3), YES).await.unwrap();
    assert_eq!(taken, Taken::Fresh);
    assert_eq!(shared.claim(wanted_by(A)).await.unwrap(), mine(0, None));
}

async fn outcomes_and_lists_are_kept_within_their_bounds(shared: Arc<dyn Shared>) {
    let bytes = |len| Bytes::from(vec![b'x'; len]);
    assert_eq!(shared.recall(HOLD).await.unwrap(), None);
    shared.remember(HOLD, A, bytes(0), LONG).await.unwrap();
    assert_eq!(shared.recall(HOLD).await.unwrap(), Some(bytes(0)));
    shared
        .remember(HOLD, A, bytes(OUTCOME_BYTES_MAX), LONG)
        .await
        .unwrap();
    assert_eq!(
        shared.recall(HOLD).await.unwrap(),
        Some(bytes(OUTCOME_BYTES_MAX))
    );
    assert_eq!(shared.list([1; 32]).await.unwrap(), None);
    shared.put_list([1; 32], bytes(7), LONG).await.unwrap();
    shared
        .put_list([1; 32], bytes(LIST_BYTES_MAX), LONG)
        .await
        .unwrap();
    let kept = shared.list([1; 32]).await.unwrap().unwrap();
    assert_eq!(kept.bytes, bytes(LIST_BYTES_MAX));
    // The time left is that of the last put, and passes.
    assert!(kept.left <= LONG && kept.left > LONG / 2, "{:?}", kept.left);
    let passes = || async { shared.list([1; 32]).await.unwrap().unwrap().left < kept.left };
    eventually("time to pass", passes).await;
    assert_eq!(shared.list([2; 32]).await.unwrap(), None);

    // What is too large takes the place of nothing, but what was there is no longer true.
    shared
        .remember(HOLD, A, bytes(OUTCOME_BYTES_MAX + 1), LONG)
        .await
        .unwrap();
    assert_eq!(shared.recall(HOLD).await.unwrap(), None);
    shared
        .put_list([1; 32], bytes(LIST_BYTES_MAX + 1), LONG)
        .await
        .unwrap();
    assert_eq!(shared.list([1; 32]).await.unwrap(), None);

    shared.put_list([1; 32], bytes(7), LONG).await.unwrap();
    shared
        .put_list([1; 32], bytes(7), Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(shared.list([1; 32]).await.unwrap(), None);
    shared.remember(HOLD, A, bytes(7), SHORT).await.unwrap();
    let is_gone = || async { shared.recall(HOLD).await.unwrap().is_none() };
    eventually("an outcome to be forgotten", is_gone).await;

    // The outcome outlives the record of its hold.
    announce(&shared, &[A]).await;
    shared.claim(wanted_by(A)).await.unwrap();
    shared.remember(HOLD, A, bytes(7), LONG).await.unwrap();
    shared.release(HOLD, A, Duration::ZERO).await.unwrap();
    assert_eq!(shared.recall(HOLD).await.unwrap(), Some(bytes(7)));
}
