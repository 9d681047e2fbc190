//! What is answered from memory: for how long, for whom, and until what happens.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::puppet::{Credentials, Ending, Ledger, Manner};
use crate::support::stage::Stage;

async fn remembering(scope: &str, ttl: &str) -> Stage {
    let (scope, ttl) = (format!("{scope:?}"), format!("{ttl:?}"));
    Stage::set(Manner::default(), move |config| {
        config
            .backend("ttl", &ttl)
            .backend("cache_scope", &scope)
            .backend("cache_lists", "true")
    })
    .await
}

async fn listed(client: &Client, params: Value) -> Value {
    let reply = client.request("tools/list", params).send().await;
    reply.result().clone()
}

fn lists(stage: &Stage) -> usize {
    stage.puppet.ledger().requests("tools/list").len()
}

#[tokio::test]
async fn discovery_needs_no_session_within_its_time() {
    let stage = Stage::with(|config| config.backend("ttl", "\"60s\"")).await;
    let discover = || stage.client.request("server/discover", json!({}));
    let first = discover().send().await.result().clone();
    assert_eq!(first["ttlMs"], 60_000);
    stage.gateway.metric_is("holdfast_sessions", 0).await;
    let second = discover().send().await;
    let left = second.result()["ttlMs"].as_u64().unwrap();
    assert!(left < 60_000, "{left}");
    assert_eq!(second.result()["capabilities"], first["capabilities"]);
    assert_eq!(stage.puppet.ledger().sessions_opened, 1);
    // Another caller has no part in it.
    let other = stage.client.clone().named("ada");
    other
        .request("server/discover", json!({}))
        .send()
        .await
        .result();
    assert_eq!(stage.puppet.ledger().sessions_opened, 2);
    assert_eq!(stage.gateway.metric("holdfast_recalled_total").await, 1);
    stage.ends().await;
}

#[tokio::test]
async fn private_lists_stay_with_their_caller() {
    let stage = remembering("private", "60s").await;
    let (ada, eve) = (
        stage.client.clone().named("ada"),
        stage.client.clone().named("eve"),
    );
    let first = listed(&ada, json!({})).await;
    let again = listed(&ada, json!({})).await;
    assert_eq!((lists(&stage), &first["tools"]), (1, &again["tools"]));
    assert!(again["ttlMs"].as_u64() < first["ttlMs"].as_u64());
    listed(&eve, json!({})).await;
    assert_eq!(lists(&stage), 2);
    // Some servers list other tools to clients that can do less.
    listed(&ada.clone().able(json!({})), json!({})).await;
    assert_eq!(lists(&stage), 3);
    listed(&ada, json!({"cursor": "next"})).await;
    assert_eq!(lists(&stage), 4);
    stage.ends().await;
}

#[tokio::test]
async fn public_lists_are_for_everybody() {
    let stage = remembering("public", "60s").await;
    for name in ["ada", "eve", "bob"] {
        let list = listed(&stage.client.clone().named(name), json!({})).await;
        assert_eq!(list["cacheScope"], "public");
    }
    assert_eq!(lists(&stage), 1);
    stage.ends().await;
}

#[tokio::test]
async fn a_list_change_and_a_lost_session_make_lists_forgotten() {
    let stage = Stage::with(|config| {
        let warm = config.timer("session_idle", "60s");
        warm.backend("ttl", "\"60s\"")
            .backend("cache_lists", "true")
    })
    .await;
    stage.puppet.tool("change", |call| async move {
        call.send(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
            .await;
        Ending::text("changed")
    });
    listed(&stage.client, json!({})).await;
    stage.client.call("change").await.result();
    listed(&stage.client, json!({})).await;
    listed(&stage.client, json!({})).await;
    assert_eq!(lists(&stage), 2);
    stage.puppet.forget_sessions();
    stage.client.call("echo").await.result();
    let before = lists(&stage);
    listed(&stage.client, json!({})).await;
    assert_eq!(lists(&stage), before + 1);
    stage.closes().await;
}

/// With a proxy that names callers, the same caller may come with another token.
#[tokio::test]
async fn other_credentials_are_another_cache() {
    let stage = Stage::set(
        Manner {
            credentials: Credentials::MayChange,
            ..Manner::default()
        },
        |config| {
            let named = config.top("principal", "\"header:x-user\"");
            named
                .backend("ttl", "\"60s\"")
                .backend("cache_lists", "true")
        },
    )
    .await;
    for token in ["one", "two", "one"] {
        let client = stage.client.clone().named(token);
        let list = client
            .request("tools/list", json!({}))
            .also("x-user", "ada");
        list.send().await.result();
    }
    assert_eq!(lists(&stage), 2);
    stage.ends().await;
}

#[tokio::test]
async fn errors_are_not_remembered() {
    let stage = remembering("private", "60s").await;
    stage.puppet.on("tools/list", "", |_| async {
        Ending::Error(json!({"code": -32603, "message": "not now"}))
    });
    for _ in 0..2 {
        let reply = stage.client.request("tools/list", json!({})).send().await;
        reply.error(200, -32603);
    }
    assert_eq!(lists(&stage), 2);
    stage.ends().await;
}

#[tokio::test]
async fn callers_that_share_nothing_remember_nothing() {
    let stage = Stage::with(|config| {
        let isolated = config.top("anonymous", "\"isolated\"");
        isolated
            .backend("ttl", "\"60s\"")
            .backend("cache_lists", "true")
    })
    .await;
    for _ in 0..2 {
        listed(&stage.client, json!({})).await;
        let discovered = stage
            .client
            .request("server/discover", json!({}))
            .send()
            .await;
        discovered.result();
    }
    assert_eq!(lists(&stage), 2);
    let opened = |ledger: &Ledger| ledger.sessions_opened;
    assert_eq!(opened(&stage.puppet.ledger()), 4);
    stage.ends().await;
}
