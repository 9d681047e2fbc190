//! Lost calls that one of several replicas runs again.

use std::sync::Arc;
use std::time::Duration;

use holdfast::cluster::redis::Redis;
use holdfast::hold::seal::{ReplicaId, SealingKeys};
use holdfast::hold::shared::{Claim, Shared, Stake};
use serde_json::json;

use super::{OUTCOMES, ada, at, held};
use crate::support::cluster::Cluster;
use crate::support::puppet::{Ending, Manner};
use crate::support::redis::RedisServer;
use crate::support::stage::{Gate, name_schema};
use crate::support::{accept, eventually, form, text_of};

/// All that can be read in it.
async fn everything(redis: &RedisServer) -> String {
    let mut read = String::new();
    for key in redis.cli(&["KEYS", "*"]).await.lines() {
        let command = match redis.cli(&["TYPE", key]).await.as_str() {
            "hash" => "HGETALL",
            _ => "GET",
        };
        read += &redis.cli(&[command, key]).await;
    }
    read
}

#[tokio::test]
async fn a_lost_call_is_run_again_by_one_replica_alone() {
    let mut cluster = Cluster::of(Manner::default()).await;
    cluster.config = cluster.config.backend("replay", "\"always\"");
    let [a, b, c] = cluster.replicas().await;
    let (request, asked) = held(&a, "three").await;
    let asked = request.answer(&asked, ada()).send().await.asked();
    a.kill().await;
    let rome = accept(json!({"city": "Rome"}));
    let reissue = |gateway| at(gateway, &request).answer(&asked, rome.clone());
    let (one, two, three) = (reissue(&b), reissue(&c), reissue(&b));
    let replies = tokio::join!(one.send(), two.send(), three.send());
    let asked = replies.0.asked();
    assert_eq!(asked.key(), "street");
    for reply in [replies.1, replies.2] {
        assert_eq!(reply.asked().state, asked.state);
    }
    assert_eq!((cluster.puppet.starts("three"), cluster.answers()), (2, 3));
    let replayed = "holdfast_replayed_total";
    assert_eq!(b.metric(replayed).await + c.metric(replayed).await, 1);
    // Whichever has it now may go too.
    let (gone, left) = match b.metric(replayed).await {
        1 => (b, c),
        _ => (c, b),
    };
    gone.kill().await;
    let street = accept(json!({"street": "Via Appia"}));
    let last = at(&left, &request).answer(&asked, street);
    let text = text_of(last.send().await.result()).to_owned();
    assert_eq!(text, r#""Ada" "Rome" "Via Appia""#);
    assert_eq!((cluster.puppet.starts("three"), cluster.answers()), (3, 6));
    // Neither in Redis nor in a log is any of it to be read.
    cluster.keeps(OUTCOMES, 1).await;
    let dump = everything(&cluster.redis).await;
    assert!(!dump.is_empty());
    for text in [dump, left.log()] {
        assert!(!text.contains("Rome") && !text.contains("Appia"), "{text}");
    }
    cluster.ends([left]).await;
}

#[tokio::test]
async fn a_call_that_another_replica_has_by_now_is_not_run_again_where_it_was() {
    let mut cluster = Cluster::of(Manner::default()).await;
    cluster.config = cluster.config.backend("replay", "\"always\"");
    let gate = Gate::default();
    let passed = gate.clone();
    cluster.puppet.tool("cut", move |call| {
        let gate = passed.clone();
        async move {
            call.elicit(form("name", name_schema())).await;
            gate.passed().await;
            Ending::Cut
        }
    });
    let [a] = cluster.replicas().await;
    let (request, asked) = held(&a, "cut").await;
    let leg = request.answer(&asked, ada()).open().await;
    cluster
        .puppet
        .until("the answer to arrive", |ledger| ledger.answers.len() == 1)
        .await;
    // It seems to have died, and another one has taken the call over.
    let keys = Arc::new(SealingKeys::new(&[[1; 32]]).unwrap());
    let state = keys.open(&asked.state).unwrap();
    let shared = Redis::new(cluster.redis.settings(), keys).unwrap();
    let (me, ttl) = (ReplicaId([9; 8]), Duration::from_secs(60));
    shared.announce(me, "127.0.0.1:1", ttl).await.unwrap();
    let stake = Stake {
        hold: state.hold,
        sealed_owner: state.owner,
        me,
        ttl,
    };
    eventually("the call to move", || async {
        shared.leave(state.owner).await.unwrap();
        matches!(shared.claim(stake).await, Ok(Claim::Mine(_)))
    })
    .await;
    gate.open();
    leg.finish().await.unreached();
    assert_eq!(cluster.puppet.starts("cut"), 1);
    shared.leave(me).await.unwrap();
    cluster.ends([a]).await;
}

#[tokio::test]
async fn what_a_rolling_restart_cannot_hand_over_is_run_again() {
    let mut cluster = Cluster::of(Manner::default()).await;
    cluster.config = cluster
        .config
        .timer("shutdown_deadline", "200ms")
        .backend("replay", "\"always\"");
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "name").await;
    assert_eq!(a.terminate().await, 0);
    cluster.keeps("replica", 1).await;
    let reply = at(&b, &request).answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!((cluster.puppet.starts("name"), cluster.answers()), (2, 2));
    b.settled().await;
    assert_eq!(b.terminate().await, 0);
}
