//! Several replicas: any of them takes any re-issue, whoever holds the call, and whoever has died.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Asked, Client, Request};
use crate::support::cluster::Cluster;
use crate::support::gateway::Gateway;
use crate::support::puppet::{Ending, Manner};
use crate::support::stage::{Gate, name_schema};
use crate::support::{accept, eventually, form, text_of};

mod replayed;

/// What Redis knows of calls that have ended.
const OUTCOMES: &str = "outcome";

fn at(gateway: &Gateway, request: &Request) -> Request {
    request.clone().by(&Client::of(gateway))
}

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

async fn held(gateway: &Gateway, tool: &str) -> (Request, Asked) {
    let request = Client::of(gateway).tool(tool, json!({}));
    let asked = request.send().await.asked();
    (request, asked)
}

#[tokio::test]
async fn a_re_issue_goes_to_the_replica_that_holds_its_call() {
    let cluster = Cluster::of(Manner::default()).await;
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "name").await;
    let reply = at(&b, &request).answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!(b.metric("holdfast_forwarded_total").await, 1);
    // The same again, wherever it comes to.
    for replica in [&a, &b] {
        let again = at(replica, &request).answer(&asked, ada()).send().await;
        assert_eq!(text_of(again.result()), "name: \"Ada\"");
    }
    assert_eq!((cluster.puppet.starts("name"), cluster.answers()), (1, 1));
    cluster.ends([a, b]).await;
}

#[tokio::test]
async fn what_is_streamed_passes_and_a_client_that_leaves_is_noticed_through_the_hop() {
    let cluster = Cluster::new().await;
    let gate = Gate::default();
    let passed = gate.clone();
    cluster.puppet.tool("steps", move |call| {
        let gate = passed.clone();
        async move {
            call.elicit(form("name", name_schema())).await;
            call.log("info", "one").await;
            gate.passed().await;
            Ending::text("done")
        }
    });
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "steps").await;
    let level = "io.modelcontextprotocol/logLevel";
    let reissue = at(&b, &request)
        .answer(&asked, ada())
        .meta(level, json!("info"));
    let mut leg = reissue.open().await;
    assert_eq!(leg.event().await["params"]["data"], "one");
    drop(leg);
    // Nobody comes back: the server is told.
    cluster
        .puppet
        .until("the server to be told", |ledger| {
            ledger.cancellations.len() == 1
        })
        .await;
    cluster.ends([a, b]).await;
}

#[tokio::test]
async fn a_call_whose_replica_has_died_is_taken_over_once() {
    let cluster = Cluster::new().await;
    let [a, b, c] = cluster.replicas().await;
    let (request, asked) = held(&a, "name").await;
    a.kill().await;
    let reissue = |gateway| at(gateway, &request).answer(&asked, ada());
    let (one, two, three) = (reissue(&b), reissue(&c), reissue(&b));
    let replies = tokio::join!(one.send(), two.send(), three.send());
    for reply in [replies.0, replies.1, replies.2] {
        assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    }
    assert_eq!((cluster.puppet.starts("name"), cluster.answers()), (1, 1));
    let taken = "holdfast_taken_over_total";
    assert_eq!(b.metric(taken).await + c.metric(taken).await, 1);
    cluster.ends([b, c]).await;
}

#[tokio::test]
async fn an_answer_that_a_replica_gave_before_it_died_is_not_given_again() {
    let cluster = Cluster::new().await;
    let gate = Gate::default();
    let passed = gate.clone();
    cluster.puppet.tool("slow", move |call| {
        let gate = passed.clone();
        async move {
            let answer = call.elicit(form("name", name_schema())).await;
            gate.passed().await;
            Ending::text(format!("slow: {}", answer.said("name")))
        }
    });
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "slow").await;
    let leg = request.answer(&asked, ada()).open().await;
    cluster
        .puppet
        .until("the answer to arrive", |ledger| ledger.answers.len() == 1)
        .await;
    a.kill().await;
    drop(leg);
    let leg = at(&b, &request).answer(&asked, ada()).open().await;
    b.metric_is("holdfast_taken_over_total", 1).await;
    gate.open();
    assert_eq!(text_of(leg.finish().await.result()), "slow: \"Ada\"");
    assert_eq!((cluster.puppet.starts("slow"), cluster.answers()), (1, 1));
    // Other answers to that round are refused, whoever is asked.
    let eve = accept(json!({"name": "Eve"}));
    at(&b, &request)
        .answer(&asked, eve)
        .send()
        .await
        .refused("answered");
    cluster.ends([b]).await;
}

#[tokio::test]
async fn a_replica_is_ready_when_the_others_know_it() {
    let mut cluster = Cluster::new().await;
    cluster.redis.freeze();
    let a = cluster.config.start().await;
    let (status, why) = a.admin("/readyz").await;
    assert_eq!((status, why.as_str()), (503, "starting\n"));
    // What comes all the same is served.
    Client::of(&a).call("echo").await.result();
    cluster.redis.thaw();
    eventually("it to be ready", || async {
        a.admin("/readyz").await.0 == 200
    })
    .await;
    cluster.keeps("replica", 1).await;
    // Not for ever: one that is not known is better than none.
    cluster.redis.kill().await;
    let b = cluster.config.start().await;
    assert_eq!(b.admin("/readyz").await.0, 503);
    b.says("ready without being known").await;
    assert_eq!(b.admin("/readyz").await.0, 200);
    cluster.redis.restart().await;
    cluster.keeps("replica", 2).await;
    cluster.ends([a, b]).await;
}

/// However long its replica has served it: what counts is for how long that one is gone.
#[tokio::test]
async fn a_leg_that_was_sent_on_long_ago_goes_on_when_its_replica_dies() {
    let cluster = Cluster::new().await;
    let gate = Gate::default();
    let passed = gate.clone();
    cluster.puppet.tool("slow", move |call| {
        let gate = passed.clone();
        async move {
            let answer = call.elicit(form("name", name_schema())).await;
            gate.passed().await;
            Ending::text(format!("slow: {}", answer.said("name")))
        }
    });
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "slow").await;
    let leg = at(&b, &request).answer(&asked, ada()).open().await;
    cluster
        .puppet
        .until("the answer to arrive", |ledger| ledger.answers.len() == 1)
        .await;
    // Longer than a replica is looked for that does not answer: only time can show it.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    a.kill().await;
    b.metric_is("holdfast_taken_over_total", 1).await;
    gate.open();
    assert_eq!(text_of(leg.finish().await.result()), "slow: \"Ada\"");
    assert_eq!((cluster.puppet.starts("slow"), cluster.answers()), (1, 1));
    // What nobody answered was not sent on, and one line says that the replica is gone.
    assert_eq!(b.metric("holdfast_forwarded_total").await, 0);
    let log = b.log();
    assert_eq!(log.matches("did not answer").count(), 1, "{log}");
    cluster.ends([b]).await;
}

#[tokio::test]
async fn an_outcome_outlives_the_replica_on_which_its_call_ended() {
    let cluster = Cluster::of(Manner::default()).await;
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "name").await;
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    cluster.keeps(OUTCOMES, 1).await;
    a.kill().await;
    let again = at(&b, &request).answer(&asked, ada()).send().await;
    assert_eq!(again.message["result"], reply.message["result"]);
    assert_eq!((cluster.puppet.starts("name"), cluster.answers()), (1, 1));
    cluster.ends([b]).await;
}

#[tokio::test]
async fn without_redis_a_replica_goes_on_with_its_own_and_recovers_by_itself() {
    let mut cluster = Cluster::new().await;
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "three").await;
    cluster.redis.kill().await;
    let (other, others) = held(&b, "name").await;
    let asked = request.answer(&asked, ada()).send().await.asked();
    let elsewhere = at(&b, &request).answer(&asked, accept(json!({"city": "Rome"})));
    let refused = elsewhere.send().await;
    refused.unreached();
    let error = refused.error(200, -32603);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("cannot be found out"),
        "{error}"
    );
    let reply = other.answer(&others, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    cluster.redis.restart().await;
    cluster.keeps("replica", 2).await;
    let asked = elsewhere.send().await.asked();
    let last = at(&b, &request).answer(&asked, accept(json!({"street": "Via Appia"})));
    let text = text_of(last.send().await.result()).to_owned();
    assert_eq!(text, r#""Ada" "Rome" "Via Appia""#);
    assert_eq!(cluster.puppet.starts("three"), 1);
    cluster.ends([a, b]).await;
}

#[tokio::test]
async fn a_redis_that_does_not_answer_keeps_no_replica_from_its_own_calls() {
    let cluster = Cluster::new().await;
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "name").await;
    cluster.redis.freeze();
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    let plain = Client::of(&b).call("echo").await;
    plain.result();
    cluster.redis.thaw();
    eventually("Redis to be back", || async {
        let (request, asked) = held(&a, "name").await;
        let reply = at(&b, &request).answer(&asked, ada()).send().await;
        let is_back = !reply.is_error();
        if !is_back {
            request.answer(&asked, ada()).send().await.result();
        }
        is_back
    })
    .await;
    cluster.ends([a, b]).await;
}

#[tokio::test]
async fn a_replica_that_is_to_end_answers_for_its_holds_until_they_are_done() {
    let cluster = Cluster::of(Manner::default()).await;
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "name").await;
    a.signal_end();
    eventually("it to be unready", || async {
        a.admin("/readyz").await.0 == 503
    })
    .await;
    // New calls are refused in words that something in front understands: nothing was started.
    let refused = Client::of(&a).call("echo").await;
    refused.error(503, -32603);
    assert_eq!(refused.message["error"]["data"]["mayHaveRun"], false);
    assert_eq!(refused.head.value("retry-after"), Some("1"));
    assert_eq!(refused.head.value("connection"), Some("close"));
    assert_eq!(cluster.puppet.starts("echo"), 0);
    let reply = at(&b, &request).answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!(a.ended().await, 0);
    assert_eq!((cluster.puppet.starts("name"), cluster.answers()), (1, 1));
    cluster.ends([b]).await;
}

#[tokio::test]
async fn a_rolling_restart_hands_its_holds_over() {
    let mut cluster = Cluster::new().await;
    cluster.config = cluster.config.timer("shutdown_deadline", "200ms");
    let [mut a, mut b] = cluster.replicas().await;
    let (request, mut asked) = held(&a, "three").await;
    for (property, value) in [("name", "Ada"), ("city", "Rome")] {
        assert_eq!(a.terminate().await, 0);
        a = std::mem::replace(&mut b, cluster.config.start().await);
        cluster.keeps("replica", 2).await;
        let response = accept(json!({ property: value }));
        asked = at(&a, &request)
            .answer(&asked, response)
            .send()
            .await
            .asked();
    }
    let last = at(&b, &request).answer(&asked, accept(json!({"street": "Via Appia"})));
    last.send().await.result();
    assert_eq!((cluster.puppet.starts("three"), cluster.answers()), (1, 3));
    assert_eq!(cluster.puppet.ledger().cancellations.len(), 0);
    cluster.ends([a, b]).await;
}

#[tokio::test]
async fn an_outcome_that_comes_while_nobody_knows_who_lives_is_found() {
    let cluster = Cluster::of(Manner::default()).await;
    // This one is heard of once: what Redis forgets of it is not said again.
    let rarely = cluster.config.clone();
    let rarely = rarely
        .cluster("heartbeat", "\"15s\"")
        .cluster("replica_ttl", "\"60s\"");
    let a = rarely.start().await;
    cluster.keeps("replica", 1).await;
    let name = cluster.kept("replica").await.remove(0);
    let (request, asked) = held(&a, "name").await;
    cluster.redis.cli(&["DEL", &name]).await;
    let b = cluster.config.start().await;
    cluster.redis.cli(&["CONFIG", "RESETSTAT"]).await;
    let leg = at(&b, &request).answer(&asked, ada()).open().await;
    // It asks for the call, and has to wait until the first may be taken for dead.
    eventually("the call to be claimed", || async {
        let stats = cluster.redis.cli(&["INFO", "commandstats"]).await;
        stats.contains("cmdstat_hget:")
    })
    .await;
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!(text_of(leg.finish().await.result()), "name: \"Ada\"");
    assert_eq!((cluster.puppet.starts("name"), cluster.answers()), (1, 1));
    cluster.ends([a, b]).await;
}

#[tokio::test]
async fn a_call_that_runs_when_its_replica_has_to_end_goes_on_with_the_next() {
    let mut cluster = Cluster::new().await;
    cluster.config = cluster.config.timer("shutdown_deadline", "200ms");
    let gate = Gate::default();
    let passed = gate.clone();
    cluster.puppet.tool("slow", move |call| {
        let gate = passed.clone();
        async move {
            let answer = call.elicit(form("name", name_schema())).await;
            gate.passed().await;
            Ending::text(format!("slow: {}", answer.said("name")))
        }
    });
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "slow").await;
    let leg = request.answer(&asked, ada()).open().await;
    cluster
        .puppet
        .until("the answer to arrive", |ledger| ledger.answers.len() == 1)
        .await;
    assert_eq!(a.terminate().await, 0);
    // Its client is told to come back, and does.
    leg.finish().await.unreached();
    let leg = at(&b, &request).answer(&asked, ada()).open().await;
    b.metric_is("holdfast_taken_over_total", 1).await;
    gate.open();
    assert_eq!(text_of(leg.finish().await.result()), "slow: \"Ada\"");
    assert_eq!((cluster.puppet.starts("slow"), cluster.answers()), (1, 1));
    assert_eq!(cluster.puppet.ledger().cancellations.len(), 0);
    cluster.ends([b]).await;
}

#[tokio::test]
async fn a_late_repeat_that_comes_first_does_not_set_a_call_back() {
    let cluster = Cluster::new().await;
    let [a, b] = cluster.replicas().await;
    let (request, first) = held(&a, "three").await;
    let second = request.answer(&first, ada()).send().await.asked();
    a.kill().await;
    let request = at(&b, &request);
    let eve = request.answer(&first, accept(json!({"name": "Eve"})));
    eve.send().await.refused("answered");
    // The call was taken over where it stood a round ago, and is once more where it stands.
    let rome = request.answer(&second, accept(json!({"city": "Rome"})));
    let third = rome.send().await.asked();
    let last = request.answer(&third, accept(json!({"street": "Via Appia"})));
    let text = text_of(last.send().await.result()).to_owned();
    assert_eq!(text, r#""Ada" "Rome" "Via Appia""#);
    assert_eq!((cluster.puppet.starts("three"), cluster.answers()), (1, 3));
    cluster.ends([b]).await;
}
