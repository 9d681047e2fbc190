//! A replica that counted as gone and comes back, and a Redis that comes back empty: whoever has a call by then keeps it,
//! and what was noted is noted again.

use serde_json::{Value, json};

use crate::support::client::{Asked, Client, Request};
use crate::support::cluster::Cluster;
use crate::support::cutter::Cutter;
use crate::support::gateway::Gateway;
use crate::support::puppet::{Ending, Manner, Resuming};
use crate::support::stage::{Gate, name_schema};
use crate::support::{accept, eventually, form, text_of};

fn at(gateway: &Gateway, request: &Request) -> Request {
    request.clone().by(&Client::of(gateway))
}

fn said(property: &str, value: &str) -> Value {
    accept(json!({ property: value }))
}

async fn held(gateway: &Gateway, tool: &str) -> (Request, Asked) {
    let request = Client::of(gateway).tool(tool, json!({}));
    let asked = request.send().await.asked();
    (request, asked)
}

/// Replicas of which the first, whose way to the server can be cut, may stand still.
struct Pair {
    cluster: Cluster,
    cutter: Cutter,
    a: Gateway,
    b: Gateway,
}

impl Pair {
    async fn of(mut cluster: Cluster) -> Self {
        cluster.config = cluster.config.timer("resume_max", "1s");
        let cutter = Cutter::before(cluster.puppet.addr()).await;
        let cut = cluster.config.clone();
        let cut = cut.backend("legacy", &format!("{:?}", cutter.url()));
        let (a, b) = (cut.start().await, cluster.config.start().await);
        cluster.keeps("replica", 2).await;
        Self {
            cluster,
            cutter,
            a,
            b,
        }
    }

    /// The first stands still until it counts as gone, and its connections are lost.
    async fn lose_a(&self) {
        self.a.freeze();
        self.cutter.cut();
        self.cluster.keeps("replica", 1).await;
    }

    async fn a_comes_back(&self) {
        self.a.thaw();
        self.cluster.keeps("replica", 2).await;
        self.a.says("this replica counted as gone").await;
    }
}

#[tokio::test]
async fn a_call_that_was_taken_over_stays_where_it_is() {
    let pair = Pair::of(Cluster::new().await).await;
    let (request, asked) = held(&pair.a, "three").await;
    pair.lose_a().await;
    let name = request.answer(&asked, said("name", "Ada"));
    let asked = at(&pair.b, &name).send().await.asked();
    // What was there before it cannot resume the call any more, and has to tell nobody so.
    pair.cluster.puppet.resuming(&[], Resuming::Status(409));
    pair.a_comes_back().await;
    pair.a.metric_is("holdfast_holds", 0).await;
    pair.cluster.puppet.resuming(&[], Resuming::Offered);
    let city = request.answer(&asked, said("city", "Rome"));
    let asked = at(&pair.b, &city).send().await.asked();
    // Wherever it comes, and however often.
    for _ in 0..2 {
        let again = at(&pair.a, &city).send().await.asked();
        assert_eq!(again.state, asked.state);
    }
    let street = request.answer(&asked, said("street", "Via Appia"));
    let reply = at(&pair.a, &street).send().await;
    assert_eq!(text_of(reply.result()), r#""Ada" "Rome" "Via Appia""#);
    let puppet = &pair.cluster.puppet;
    assert_eq!((puppet.starts("three"), pair.cluster.answers()), (1, 3));
    assert!(puppet.ledger().cancellations.is_empty());
    pair.cluster.ends([pair.a, pair.b]).await;
}

#[tokio::test]
async fn a_call_that_nobody_can_take_over_stays_with_the_replica_that_has_it() {
    let cluster = Cluster::of(Manner::default()).await;
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "name").await;
    a.freeze();
    cluster.keeps("replica", 1).await;
    let reissue = request.answer(&asked, said("name", "Ada"));
    at(&b, &reissue).send().await.refused("lost");
    a.thaw();
    cluster.keeps("replica", 2).await;
    let reply = at(&b, &reissue).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!((cluster.puppet.starts("name"), cluster.answers()), (1, 1));
    cluster.ends([a, b]).await;
}

#[tokio::test]
async fn what_redis_has_forgotten_is_noted_again() {
    let mut cluster = Cluster::new().await;
    let gate = Gate::default();
    let passed = gate.clone();
    cluster.puppet.tool("slow", move |call| {
        let gate = passed.clone();
        async move {
            let answer = call.elicit(form("name", name_schema())).await;
            gate.passed().await;
            Ending::text(answer.said("name"))
        }
    });
    let [a, b] = cluster.replicas().await;
    let (request, asked) = held(&a, "slow").await;
    let reissue = request.answer(&asked, said("name", "Ada"));
    let leg = reissue.open().await;
    let is_given = |ledger: &crate::support::puppet::Ledger| ledger.answers.len() == 1;
    cluster.puppet.until("the answer", is_given).await;
    cluster.redis.kill().await;
    cluster.redis.restart().await;
    cluster.keeps("hold", 1).await;
    a.kill().await;
    drop(leg);
    let leg = at(&b, &reissue).open().await;
    b.metric_is("holdfast_taken_over_total", 1).await;
    gate.open();
    assert_eq!(text_of(leg.finish().await.result()), "\"Ada\"");
    assert_eq!((cluster.puppet.starts("slow"), cluster.answers()), (1, 1));
    cluster.ends([b]).await;
}

/// Its replica has yet to hear where the call stands, and has to end.
#[tokio::test]
async fn an_answer_that_was_noted_and_not_given_is_given_by_the_next() {
    let mut cluster = Cluster::new().await;
    cluster.config = cluster.config.timer("shutdown_deadline", "200ms");
    let [a, b, c] = cluster.replicas().await;
    let (request, asked) = held(&a, "name").await;
    a.kill().await;
    cluster.keeps("replica", 2).await;
    // Nothing is said again meanwhile.
    cluster.puppet.resuming(&[], Resuming::Empty);
    let reissue = request.answer(&asked, said("name", "Ada"));
    let leg = at(&b, &reissue).open().await;
    eventually("the answer to be noted", || async {
        let holds = cluster.kept("hold").await;
        match holds.first() {
            Some(key) => !cluster.redis.cli(&["HGET", key, "round"]).await.is_empty(),
            None => false,
        }
    })
    .await;
    b.signal_end();
    leg.finish().await.unreached();
    assert_eq!(b.ended().await, 0);
    cluster.puppet.resuming(&[], Resuming::Offered);
    let reply = at(&c, &reissue).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!((cluster.puppet.starts("name"), cluster.answers()), (1, 1));
    cluster.ends([c]).await;
}
