//! What tools declare is found as well: which headers a call must have, and whether it may be made twice.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::{LEARNED, LISTS, closes, requests};
use crate::support::client::{Client, Reply, Request};
use crate::support::cluster::Cluster;
use crate::support::gateway::Gateway;
use crate::support::puppet::{Credentials, Ending, EventIds, Manner, Puppet};
use crate::support::{accept, eventually, text_of};

/// A tool that mirrors `region` and only reads, and one that does neither.
async fn declaring(credentials: Credentials) -> Cluster {
    let mut cluster = Cluster::of(Manner {
        event_ids: EventIds::With,
        credentials,
        ..Manner::default()
    })
    .await;
    cluster.config = cluster.config.timer("session_idle", "60s");
    lists(&cluster.puppet, "Region");
    cluster
}

/// From now on the puppet lists tools that want this header.
fn lists(puppet: &Puppet, header: &str) {
    let region = json!({"type": "string", "x-mcp-header": header});
    let schema = json!({"type": "object", "properties": {"region": region}});
    let tools = json!({"tools": [
        {"name": "name", "inputSchema": schema, "annotations": {"readOnlyHint": true}},
        {"name": "three", "inputSchema": {"type": "object"}},
    ]});
    puppet.on("tools/list", "", move |_| {
        let tools = tools.clone();
        async move { Ending::Result(tools) }
    });
}

/// From now on it cannot be asked.
fn lists_nothing(puppet: &Puppet) {
    puppet.on("tools/list", "", |_| async {
        Ending::Error(json!({"code": -32603, "message": "no list today"}))
    });
}

fn call(gateway: &Gateway) -> Request {
    Client::of(gateway).tool("name", json!({"region": "eu"}))
}

fn right(request: &Request) -> Request {
    request.clone().header("mcp-param-region", "eu")
}

fn wrong(request: &Request) -> Request {
    request.clone().header("mcp-param-region", "us")
}

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

fn is_safe(reply: &Reply) -> bool {
    let error = reply.error(200, -32602);
    assert_eq!(error["data"]["reason"], "lost", "{error}");
    error["data"]["safeToRetry"].as_bool().unwrap()
}

/// Whether the first has read it for a call, or a client of it has listed the tools.
#[tokio::test]
async fn the_second_replica_checks_headers_by_what_the_first_has_read() {
    for is_listed in [false, true] {
        let cluster = declaring(Credentials::MustStay).await;
        let [a, b] = cluster.replicas().await;
        if is_listed {
            let list = Client::of(&a).request("tools/list", json!({}));
            list.send().await.result();
        } else {
            wrong(&call(&a)).send().await.error(400, -32020);
        }
        cluster.keeps(LISTS, 1).await;
        lists_nothing(&cluster.puppet);
        let asked = right(&call(&b)).send().await.asked();
        let reissue = right(&call(&b)).answer(&asked, ada());
        assert_eq!(text_of(reissue.send().await.result()), "name: \"Ada\"");
        assert_eq!(requests(&cluster.puppet, "tools/list"), 1);
        assert_eq!(b.metric(LEARNED).await, 1);
        closes(cluster, [a, b]).await;
    }
}

#[tokio::test]
async fn what_tools_declare_is_found_for_the_same_caller_alone() {
    let mut cluster = declaring(Credentials::MayChange).await;
    cluster.config = cluster.config.top("principal", "\"header:x-user\"");
    let [a, b] = cluster.replicas().await;
    let all = || json!({"elicitation": {}});
    let refused = |gateway: &Gateway, user: &str, token: &str, capabilities: Value| {
        let client = Client::of(gateway).named(token).able(capabilities);
        let request = client.tool("name", json!({"region": "eu"}));
        let request = request.header("x-user", user);
        async move { request.send().await.error(400, -32020).clone() }
    };
    refused(&a, "ada", "one", all()).await;
    cluster.keeps(LISTS, 1).await;
    let others = [
        ("eve", "one", all()),
        ("ada", "two", all()),
        ("ada", "one", json!({})),
    ];
    for (count, (user, token, capabilities)) in others.into_iter().enumerate() {
        refused(&b, user, token, capabilities).await;
        let lists = requests(&cluster.puppet, "tools/list");
        assert_eq!(lists, count + 2, "{user} {token}");
    }
    assert_eq!(b.metric(LEARNED).await, 0);
    closes(cluster, [a, b]).await;
}

/// Nobody is refused for what another replica read some time ago.
#[tokio::test]
async fn a_list_that_changed_silently_is_read_again_before_a_call_is_refused() {
    let cluster = declaring(Credentials::MustStay).await;
    let [a, b] = cluster.replicas().await;
    wrong(&call(&a)).send().await.error(400, -32020);
    cluster.keeps(LISTS, 1).await;
    lists(&cluster.puppet, "Zone");
    let zone = call(&b).header("mcp-param-zone", "eu");
    // What was found is fresh as yet: the first refusals are by it.
    let last = Mutex::new(None);
    eventually("the list to be read again", || async {
        let reply = zone.send().await;
        let is_taken = !reply.is_error();
        if !is_taken {
            reply.error(400, -32020);
        }
        *last.lock().unwrap() = Some(reply);
        is_taken
    })
    .await;
    let asked = last.lock().unwrap().as_ref().unwrap().asked();
    assert_eq!(requests(&cluster.puppet, "tools/list"), 2);
    // The same of a re-issue.
    let reissue = call(&b).answer(&asked, ada());
    wrong(&reissue).send().await.error(400, -32020);
    let reply = reissue.header("mcp-param-zone", "eu").send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    closes(cluster, [a, b]).await;
}

#[tokio::test]
async fn after_a_restart_headers_of_a_re_issue_are_checked_and_calls_known_to_be_safe() {
    let cluster = declaring(Credentials::MustStay).await;
    let [a] = cluster.replicas().await;
    let asked = right(&call(&a)).send().await.asked();
    cluster.keeps(LISTS, 1).await;
    a.kill().await;
    let b = cluster.config.start().await;
    let reissue = call(&b).answer(&asked, ada());
    for refused in [&reissue, &wrong(&reissue)] {
        refused.send().await.error(400, -32020);
    }
    assert_eq!(cluster.answers(), 0);
    let reply = right(&reissue).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");

    b.kill().await;
    lists_nothing(&cluster.puppet);
    let c = cluster.config.start().await;
    let safe = right(&call(&c)).send().await.asked();
    let three = Client::of(&c).tool("three", json!({}));
    let unsafe_ = three.send().await.asked();
    c.kill().await;
    cluster.puppet.forget_sessions();
    let d = cluster.config.start().await;
    let again = right(&call(&d)).answer(&safe, ada()).send().await;
    assert!(is_safe(&again));
    let again = three.by(&Client::of(&d)).answer(&unsafe_, ada());
    assert!(!is_safe(&again.send().await));
    // The tools wait for their answers for ever.
    cluster.puppet.is_content();
    assert_eq!(d.terminate().await, 0);
}
