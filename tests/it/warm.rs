//! What one replica has read of a server is found by the others, and by the same after a restart: by exactly those who
//! would be told the same, for as long as it would hold anyway.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::client::Client;
use crate::support::cluster::Cluster;
use crate::support::eventually;
use crate::support::gateway::{Config, Gateway};
use crate::support::puppet::{Call, Credentials, Ending, Manner, Puppet};

mod tools;

/// What Redis keeps of lists.
const LISTS: &str = "list";

const LEARNED: &str = "holdfast_learned_total";

/// A list whose only tool is named after the session's caller, and counts how often it was read.
async fn personal(call: Call) -> Ending {
    let name = call.session.credentials.clone().unwrap_or_default();
    let tool = json!({"name": name, "inputSchema": {"type": "object"}});
    Ending::Result(json!({"tools": [tool]}))
}

/// Replicas that answer lists from memory for this long.
async fn remembering(manner: Manner, ttl: &str) -> Cluster {
    let mut cluster = Cluster::of(manner).await;
    let remembering = cluster.config.backend("ttl", &format!("{ttl:?}"));
    let remembering = remembering.backend("cache_lists", "true");
    // Sessions stay: an end of one says nothing about lists, but fewer of them make a test clearer.
    cluster.config = remembering.timer("session_idle", "60s");
    cluster.puppet.on("tools/list", "", personal);
    cluster
}

fn named(gateway: &Gateway, name: &str) -> Client {
    Client::of(gateway).named(name)
}

async fn asked(client: &Client, method: &str) -> Value {
    let reply = client.request(method, json!({})).send().await;
    reply.result().clone()
}

/// The name of the only tool of a list.
async fn tool(client: &Client) -> String {
    let list = asked(client, "tools/list").await;
    let tool = list["tools"][0]["name"].as_str().unwrap();
    tool.to_owned()
}

fn requests(puppet: &Puppet, method: &str) -> usize {
    puppet.ledger().requests(method).len()
}

/// What Redis keeps under these keys: each time it is sealed it is another.
async fn values(cluster: &Cluster, keys: &[String]) -> Vec<String> {
    let mut values = Vec::new();
    for key in keys {
        values.push(cluster.redis.cli(&["GET", key]).await);
    }
    values
}

/// The end of a test whose sessions stay warm.
async fn closes(cluster: Cluster, replicas: impl IntoIterator<Item = Gateway>) {
    for replica in replicas {
        assert_eq!(replica.terminate().await, 0);
    }
    cluster.puppet.forget_sessions();
    cluster.puppet.settled().await;
}

#[tokio::test]
async fn what_one_replica_was_answered_the_other_answers_without_the_server() {
    let cluster = remembering(Manner::default(), "60s").await;
    let [a, b] = cluster.replicas().await;
    let methods = [
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ];
    let mut answers = Vec::new();
    for method in methods {
        answers.push(asked(&named(&a, "ada"), method).await);
    }
    // One more is what the tools declare.
    cluster.keeps(LISTS, methods.len() + 1).await;
    let sessions = cluster.puppet.ledger().sessions_opened;
    for (method, first) in methods.into_iter().zip(answers) {
        let mut again = asked(&named(&b, "ada"), method).await;
        let (left, whole) = (again["ttlMs"].as_u64(), first["ttlMs"].as_u64());
        assert!(left < whole, "{method}: {left:?} of {whole:?}");
        again["ttlMs"] = first["ttlMs"].clone();
        assert_eq!(again, first, "{method}");
        // It is its own now: nobody is asked a third time.
        asked(&named(&b, "ada"), method).await;
        let count = usize::from(method != "server/discover");
        assert_eq!(requests(&cluster.puppet, method), count, "{method}");
    }
    assert_eq!(cluster.puppet.ledger().sessions_opened, sessions);
    assert_eq!(b.metric(LEARNED).await, 5);
    assert_eq!(b.metric("holdfast_recalled_total").await, 5);
    closes(cluster, [a, b]).await;
}

#[tokio::test]
async fn nobody_else_is_shown_a_callers_list() {
    let manner = Manner {
        credentials: Credentials::MayChange,
        ..Manner::default()
    };
    let mut cluster = remembering(manner, "60s").await;
    cluster.config = cluster.config.top("principal", "\"header:x-user\"");
    let [a, b] = cluster.replicas().await;
    let list = |gateway: &Gateway, user: &str, token: &str, capabilities: Value| {
        let client = named(gateway, token).able(capabilities);
        let request = client.request("tools/list", json!({}));
        request.header("x-user", user)
    };
    let all = || json!({"elicitation": {}});
    list(&a, "ada", "one", all()).send().await.result();
    cluster.keeps(LISTS, 2).await;
    let before = requests(&cluster.puppet, "tools/list");
    let others = [
        ("eve", "one", all()),
        ("ada", "two", all()),
        ("ada", "one", json!({})),
    ];
    for (count, (user, token, capabilities)) in others.into_iter().enumerate() {
        let reply = list(&b, user, token, capabilities).send().await;
        let name = reply.result()["tools"][0]["name"].clone();
        assert_eq!(name, format!("Bearer {token}"));
        let asked = requests(&cluster.puppet, "tools/list") - before;
        assert_eq!(asked, count + 1, "{user} {token}");
    }
    // Another page is another list.
    let next = list(&b, "ada", "one", all()).param("cursor", json!("next"));
    next.send().await.result();
    assert_eq!(requests(&cluster.puppet, "tools/list") - before, 4);
    assert_eq!(b.metric(LEARNED).await, 0);
    list(&b, "ada", "one", all()).send().await.result();
    assert_eq!(requests(&cluster.puppet, "tools/list") - before, 4);
    assert_eq!(b.metric(LEARNED).await, 1);
    closes(cluster, [a, b]).await;
}

/// Whoever can write to Redis puts what was read for Ada wherever something is looked for on behalf of Eve.
#[tokio::test]
async fn not_even_one_that_was_put_into_the_place_of_his_own() {
    let cluster = remembering(Manner::default(), "60s").await;
    let [a, b] = cluster.replicas().await;
    assert_eq!(tool(&named(&a, "ada")).await, "Bearer ada");
    cluster.keeps(LISTS, 2).await;
    let adas = cluster.kept(LISTS).await;
    assert_eq!(tool(&named(&a, "eve")).await, "Bearer eve");
    cluster.keeps(LISTS, 4).await;
    for ada in &adas {
        for eves in cluster.kept(LISTS).await {
            if !adas.contains(&eves) {
                let copied = cluster.redis.cli(&["COPY", ada, &eves, "REPLACE"]).await;
                assert_eq!(copied, "1");
            }
        }
        // One that has not asked for her yet.
        let c = cluster.config.start().await;
        assert_eq!(tool(&named(&c, "eve")).await, "Bearer eve");
        named(&c, "eve").call("echo").await.result();
        assert_eq!(c.metric(LEARNED).await, 0);
        assert_eq!(c.terminate().await, 0);
    }
    assert_eq!(tool(&named(&b, "ada")).await, "Bearer ada");
    assert_eq!(b.metric(LEARNED).await, 1);
    closes(cluster, [a, b]).await;
}

#[tokio::test]
async fn lists_for_everybody_are_found_for_everybody() {
    let mut cluster = remembering(Manner::default(), "60s").await;
    cluster.config = cluster.config.backend("cache_scope", "\"public\"");
    let [a, b] = cluster.replicas().await;
    assert_eq!(tool(&named(&a, "ada")).await, "Bearer ada");
    cluster.keeps(LISTS, 2).await;
    assert_eq!(tool(&named(&b, "eve")).await, "Bearer ada");
    assert_eq!(requests(&cluster.puppet, "tools/list"), 1);
    closes(cluster, [a, b]).await;
}

#[tokio::test]
async fn callers_that_share_nothing_find_nothing() {
    let mut cluster = remembering(Manner::default(), "60s").await;
    cluster.config = cluster.config.top("anonymous", "\"isolated\"");
    let [a, b] = cluster.replicas().await;
    for gateway in [&a, &b] {
        asked(&Client::of(gateway), "tools/list").await;
        Client::of(gateway).call("echo").await.result();
    }
    assert_eq!(cluster.kept(LISTS).await, [""; 0]);
    closes(cluster, [a, b]).await;
}

/// Another server under the same name, at the same Redis with the same keys.
#[tokio::test]
async fn a_server_is_its_address_and_not_its_name() {
    let cluster = remembering(Manner::default(), "60s").await;
    let other = Puppet::start(Manner::default()).await;
    let elsewhere = |config: Config| config.backend("legacy", &format!("{:?}", other.url()));
    let a = cluster.config.start().await;
    let b = elsewhere(cluster.config.clone()).start().await;
    asked(&named(&a, "ada"), "tools/list").await;
    asked(&named(&a, "ada"), "server/discover").await;
    cluster.keeps(LISTS, 3).await;
    let list = asked(&named(&b, "ada"), "tools/list").await;
    assert_eq!(list["tools"], json!([]), "the other has none");
    asked(&named(&b, "ada"), "server/discover").await;
    assert_eq!(requests(&other, "tools/list"), 1);
    assert_eq!(b.metric(LEARNED).await, 0);
    assert_eq!(b.terminate().await, 0);
    other.settled().await;
    closes(cluster, [a]).await;
}

#[tokio::test]
async fn after_a_change_that_one_has_heard_of_nobody_finds_what_was_before() {
    let cluster = remembering(Manner::default(), "60s").await;
    cluster.puppet.tool("change", |call| async move {
        call.send(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
            .await;
        Ending::text("changed")
    });
    let [a, b, c] = cluster.replicas().await;
    tool(&named(&a, "ada")).await;
    cluster.keeps(LISTS, 2).await;
    let adas = cluster.kept(LISTS).await;
    let before = values(&cluster, &adas).await;
    tool(&named(&a, "eve")).await;
    cluster.keeps(LISTS, 4).await;
    named(&a, "ada").call("change").await.result();
    // The edition that began: it is what the others are told.
    cluster.keeps(LISTS, 5).await;
    assert_eq!(requests(&cluster.puppet, "tools/list"), 2);
    // Also what was read for somebody else.
    tool(&named(&b, "eve")).await;
    tool(&named(&a, "ada")).await;
    assert_eq!(requests(&cluster.puppet, "tools/list"), 4);
    assert_eq!(b.metric(LEARNED).await, 0);
    // What was read since is found again.
    eventually("the new lists to be kept", || async {
        let now = values(&cluster, &adas).await;
        now.iter().zip(&before).all(|(now, before)| now != before)
    })
    .await;
    tool(&named(&c, "ada")).await;
    assert_eq!(c.metric(LEARNED).await, 1);
    assert_eq!(requests(&cluster.puppet, "tools/list"), 4);
    closes(cluster, [a, b, c]).await;
}

/// One that has heard of no change holds what it took no longer than what it would have read by itself.
#[tokio::test]
async fn a_list_becomes_no_fresher_on_its_way() {
    let cluster = remembering(Manner::default(), "1500ms").await;
    let [a, b] = cluster.replicas().await;
    asked(&named(&a, "ada"), "tools/list").await;
    let read = Instant::now();
    cluster.keeps(LISTS, 2).await;
    eventually("the list to be too old", || async {
        let passed = read.elapsed();
        let list = asked(&named(&b, "ada"), "tools/list").await;
        let left = Duration::from_millis(list["ttlMs"].as_u64().unwrap());
        let is_too_old = requests(&cluster.puppet, "tools/list") == 2;
        let is_no_fresher = left + passed <= Duration::from_millis(1500);
        assert!(is_too_old || is_no_fresher, "{left:?} after {passed:?}");
        is_too_old
    })
    .await;
    assert!(b.metric(LEARNED).await >= 1);
    closes(cluster, [a, b]).await;
}

#[tokio::test]
async fn without_redis_the_server_is_asked_as_ever() {
    let mut cluster = remembering(Manner::default(), "60s").await;
    let [a, b] = cluster.replicas().await;
    tool(&named(&a, "ada")).await;
    cluster.keeps(LISTS, 2).await;
    cluster.redis.freeze();
    assert_eq!(tool(&named(&b, "ada")).await, "Bearer ada");
    assert_eq!(requests(&cluster.puppet, "tools/list"), 2);
    cluster.redis.thaw();
    cluster.redis.kill().await;
    for name in ["eve", "bob"] {
        assert_eq!(tool(&named(&b, name)).await, format!("Bearer {name}"));
        named(&b, name).call("echo").await.result();
    }
    assert_eq!(b.metric(LEARNED).await, 0);
    cluster.redis.restart().await;
    cluster.keeps("replica", 2).await;
    tool(&named(&a, "joe")).await;
    cluster.keeps(LISTS, 2).await;
    tool(&named(&b, "joe")).await;
    assert_eq!(b.metric(LEARNED).await, 1);
    closes(cluster, [a, b]).await;
}

/// Calls of which everything is known cost Redis nothing, whether lists are answered from memory or pass.
#[tokio::test]
async fn what_is_known_is_not_looked_for() {
    for is_remembered in ["true", "false"] {
        let mut cluster = remembering(Manner::default(), "60s").await;
        cluster.config = cluster.config.backend("cache_lists", is_remembered);
        let [a] = cluster.replicas().await;
        let ada = named(&a, "ada");
        let all_that_is_known = || async {
            for method in ["server/discover", "tools/list"] {
                asked(&ada, method).await;
            }
            ada.call("echo").await.result();
        };
        all_that_is_known().await;
        let before = looks(&cluster).await;
        assert!(before.is_some());
        all_that_is_known().await;
        assert_eq!(looks(&cluster).await, before, "{is_remembered}");
        closes(cluster, [a]).await;
    }
}

/// How often anything was looked for in Redis.
async fn looks(cluster: &Cluster) -> Option<String> {
    let stats = cluster.redis.cli(&["INFO", "commandstats"]).await;
    let of = |line: &str| line.strip_prefix("cmdstat_pttl:").map(str::to_owned);
    stats.lines().find_map(of)
}
