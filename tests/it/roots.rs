//! Servers that ask for roots outside of any call, and keep them for their session.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::NamedTempFile;

use crate::program::{self, kill, numbers};
use crate::support::client::{Client, META_LOG_LEVEL};
use crate::support::gateway::{Config, Gateway};
use crate::support::{eventually, text_of};

/// A gateway in front of a program with this manner, and two clients who differ in nothing but their roots.
async fn stage(manner: &str) -> (Gateway, Client) {
    stage_of(&[manner]).await
}

/// The same with several manners.
async fn stage_of(manners: &[&str]) -> (Gateway, Client) {
    let config = Config::program(manners).timer("session_idle", "60s");
    let gateway = config.start().await;
    let client = Client::of(&gateway).able(json!({"roots": {}}));
    (gateway, client)
}

/// What a call says whose client has this root; it is asked for it once.
async fn with_root(client: &Client, uri: &str) -> String {
    calls_with_root(client, "roots", uri).await
}

/// The same of any tool.
async fn calls_with_root(client: &Client, tool: &str, uri: &str) -> String {
    let request = client.tool(tool, json!({}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["roots"]);
    let roots = json!({"roots": [{"uri": uri}]});
    let reply = request.answer(&asked, roots).send().await;
    text_of(reply.result()).to_owned()
}

/// How many processes were started.
fn processes(gateway: &Gateway) -> usize {
    gateway.log().matches("text=pid ").count()
}

/// The first call opens the session itself: the server has asked and taken the answer in before the call goes up.
#[tokio::test]
async fn each_call_has_the_roots_of_its_own_client() {
    let (gateway, client) = stage("roots").await;
    for uri in ["file:///one", "file:///two", "file:///two", "file:///one"] {
        assert_eq!(with_root(&client, uri).await, uri);
    }
    assert_eq!(processes(&gateway), 1);
    assert_eq!(gateway.terminate().await, 0);
}

#[tokio::test]
async fn calls_at_once_have_each_their_own_roots() {
    let (gateway, client) = stage("roots").await;
    let uris = ["file:///one", "file:///two", "file:///three"];
    for _ in 0..2 {
        let calls = uris.map(|uri| with_root(&client, uri));
        assert_eq!(futures_util::future::join_all(calls).await, uris);
    }
    assert_eq!(gateway.terminate().await, 0);
}

/// A server that is told that the roots changed and does not ask keeps what it has: it serves no other call.
#[tokio::test]
async fn a_server_that_does_not_ask_again_serves_one_call_a_session() {
    let (gateway, client) = stage("roots_once").await;
    for uri in ["file:///one", "file:///two", "file:///three"] {
        assert_eq!(with_root(&client, uri).await, uri);
    }
    eventually("three processes", || async { processes(&gateway) == 3 }).await;
    assert_eq!(gateway.terminate().await, 0);
}

/// A list is asked of nobody, so it is not served where somebody's roots are kept.
/// With log messages, a list has the session of a program for itself, and with it the question that came meanwhile.
#[tokio::test]
async fn roots_that_were_refused_during_a_list_are_asked_for_again() {
    for (manner, started) in [("roots", 1), ("roots_once", 2)] {
        let (gateway, client) = stage_of(&[manner, "roots_first"]).await;
        let list = client.request("tools/list", json!({}));
        let list = list.meta(META_LOG_LEVEL, json!("info"));
        list.send().await.result();
        assert_eq!(with_root(&client, "file:///one").await, "file:///one");
        eventually("as many processes", || async {
            processes(&gateway) == started
        })
        .await;
        assert_eq!(gateway.terminate().await, 0);
    }
}

#[tokio::test]
async fn a_list_is_served_without_roots_of_others() {
    let (gateway, client) = stage("roots").await;
    let list = client.request("tools/list", json!({}));
    list.send().await.result();
    assert_eq!(with_root(&client, "file:///one").await, "file:///one");
    list.send().await.result();
    eventually("another process", || async { processes(&gateway) == 2 }).await;
    // The next call comes back to the first one.
    assert_eq!(with_root(&client, "file:///two").await, "file:///two");
    list.send().await.result();
    assert_eq!(processes(&gateway), 2);
    assert_eq!(gateway.terminate().await, 0);
}

/// Its first question comes when a call is running already, as if that call had been the reason; but it keeps what it is
/// told, and asks again too late for a call that goes up at once.
#[tokio::test]
async fn a_server_that_asks_late_serves_nobody_with_the_roots_of_another() {
    let (gateway, client) = stage("roots_late").await;
    for uri in ["file:///one", "file:///two", "file:///three"] {
        assert_eq!(with_root(&client, uri).await, uri);
    }
    // The first one is given up, the second one has shown that the server asks by itself.
    assert_eq!(processes(&gateway), 2);
    assert_eq!(gateway.terminate().await, 0);
}

/// Over a channel that looks the same at first. One session is given up for it, and no more.
#[tokio::test]
async fn a_server_that_asks_in_calls_keeps_its_sessions() {
    let (gateway, client) = stage("").await;
    for uri in ["file:///one", "file:///two", "file:///three", "file:///two"] {
        assert_eq!(calls_with_root(&client, "ask_roots", uri).await, uri);
    }
    assert_eq!(processes(&gateway), 2);
    assert_eq!(gateway.terminate().await, 0);
}

/// Silence for once may mean anything: the next session is used again.
#[tokio::test]
async fn a_server_that_is_busy_for_once_keeps_its_next_session() {
    let (gateway, client) = stage("roots").await;
    assert_eq!(with_root(&client, "file:///one").await, "file:///one");
    let pid = i32::try_from(numbers(&gateway, "pid")[0]).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    for uri in ["file:///two", "file:///three", "file:///four"] {
        assert_eq!(with_root(&client, uri).await, uri);
    }
    assert_eq!(processes(&gateway), 2);
    assert_eq!(gateway.terminate().await, 0);
}

/// A process that ends while it is waited for has said nothing of what it would do, however often that happens.
#[tokio::test]
async fn a_server_that_dies_when_it_is_told_is_not_one_that_does_not_ask() {
    let fatal = NamedTempFile::new().unwrap();
    let dies = format!("dies-while={}", fatal.path().display());
    let (gateway, client) = stage_of(&["roots", &dies]).await;
    for uri in ["file:///one", "file:///two", "file:///three"] {
        assert_eq!(with_root(&client, uri).await, uri);
    }
    fatal.close().unwrap();
    for uri in ["file:///four", "file:///five"] {
        assert_eq!(with_root(&client, uri).await, uri);
    }
    assert_eq!(processes(&gateway), 3);
    assert_eq!(gateway.terminate().await, 0);
}

/// Its request has not gone up, so no exchange tells of the end: while its client is asked, nobody else would notice.
#[tokio::test]
async fn a_call_whose_client_is_asked_first_is_told_when_its_server_ends() {
    let config = Config::program(&["roots"]).timer("session_idle", "60s");
    let gateway = config.limit("processes_max", 1).start().await;
    let client = Client::of(&gateway).able(json!({"roots": {}}));
    let request = client.tool("roots", json!({}));
    let asked = request.send().await.asked();
    kill(&program::processes(&gateway, 1).await);
    gateway.metric_is("holdfast_holds", 0).await;
    gateway.metric_is("holdfast_lost_total", 1).await;
    // Its place is free.
    let other = client.clone().able(json!({}));
    other.call("echo").await.result();
    let roots = json!({"roots": [{"uri": "file:///one"}]});
    let reply = request.answer(&asked, roots).send().await;
    reply.lost(false);
    let message = program::refusal(&reply, -32603);
    assert_eq!(message, "the server's process has ended");
    assert_eq!(gateway.terminate().await, 0);
}
