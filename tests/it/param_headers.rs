//! `Mcp-Param-*`: what a tool declares to be mirrored must be, whether its client has listed it or not.

use serde_json::{Value, json};

use crate::support::client::{Client, Request};
use crate::support::puppet::{Ending, Ledger, Out};
use crate::support::stage::Stage;
use crate::support::{accept, eventually, text_of};

/// A list with one tool that mirrors `region` and one whose declaration is invalid.
fn list() -> Value {
    let string = |header: &str| json!({"type": "string", "x-mcp-header": header});
    let tool = |name: &str, region: Value| json!({"name": name, "inputSchema": {"type": "object", "properties": {"region": region}}});
    json!([
        tool("echo", string("Region")),
        tool("broken", string("not a token")),
        tool("plain", json!({"type": "string"})),
    ])
}

async fn declaring() -> Stage {
    let stage = Stage::with(|config| config.timer("session_idle", "60s")).await;
    let listed = |_| async { Ending::Result(json!({"tools": list()})) };
    stage.puppet.on("tools/list", "", listed);
    stage
}

fn echo(client: &Client, arguments: Value) -> Request {
    client.tool("echo", arguments)
}

fn lists(ledger: &Ledger) -> usize {
    ledger.requests("tools/list").len()
}

#[tokio::test]
async fn what_is_declared_must_be_mirrored() {
    let stage = declaring().await;
    let request = echo(&stage.client, json!({"region": "eu"}));
    // Nobody has listed the tools: they are looked up once, for the first call.
    let reply = request.send().await;
    let error = reply.error(400, -32020);
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("mcp-param-region"),
        "{error}"
    );
    let wrong = request.clone().header("mcp-param-region", "us");
    wrong.send().await.error(400, -32020);
    let undecodable = request.clone().header("mcp-param-region", "=?base64?ZXU?=");
    undecodable.send().await.error(400, -32020);
    let twice = request
        .clone()
        .also("mcp-param-region", "eu")
        .also("mcp-param-region", "us");
    twice.send().await.error(400, -32020);
    echo(&stage.client, json!({"region": null}))
        .header("mcp-param-region", "eu")
        .send()
        .await
        .error(400, -32020);
    assert_eq!(stage.puppet.starts("echo"), 0, "none of them went up");
    for right in ["eu", "=?base64?ZXU=?="] {
        request
            .clone()
            .header("mcp-param-region", right)
            .send()
            .await
            .result();
    }
    echo(&stage.client, json!({"region": null}))
        .send()
        .await
        .result();
    echo(&stage.client, json!({})).send().await.result();
    let before = stage.puppet.ledger().records.len();
    request
        .clone()
        .header("mcp-param-region", "eu")
        .send()
        .await
        .result();
    assert_eq!(
        stage.puppet.ledger().records.len(),
        before + 1,
        "one upstream request a call"
    );
    assert_eq!(lists(&stage.puppet.ledger()), 1);
    stage.closes().await;
}

#[tokio::test]
async fn headers_that_mirror_arguments_go_up() {
    let stage = declaring().await;
    let request = echo(&stage.client, json!({"region": "eu"}))
        .header("mcp-param-region", "eu")
        .header("mcp-param-unknown", "x");
    request.send().await.result();
    let calls = stage.puppet.ledger().requests("tools/call");
    let seen = ["mcp-param-region", "mcp-param-unknown"].map(|name| calls[0].head.value(name));
    assert_eq!(seen, [Some("eu"), Some("x")]);
    stage.closes().await;
}

#[tokio::test]
async fn tools_whose_declarations_are_invalid_are_not_listed() {
    let stage = declaring().await;
    let reply = stage.client.request("tools/list", json!({})).send().await;
    let listed = reply.result();
    let names: Vec<_> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["echo", "plain"]);
    // What has passed is known: the call needs no list of its own.
    echo(&stage.client, json!({"region": "eu"}))
        .send()
        .await
        .error(400, -32020);
    assert_eq!(lists(&stage.puppet.ledger()), 1);
    let is_told = || async { stage.gateway.log().contains("tool=broken") };
    eventually("the operator to be told", is_told).await;
    stage.closes().await;
}

#[tokio::test]
async fn a_changed_list_is_read_again() {
    let stage = declaring().await;
    echo(&stage.client, json!({"region": "eu"}))
        .send()
        .await
        .error(400, -32020);
    let free = |_| async {
        Ending::Result(json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}))
    };
    stage.puppet.on("tools/list", "", free);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    stage.puppet.tool("change", move |call| {
        let changed = changed.clone();
        async move {
            call.put(Out::Event(changed.to_string())).await;
            Ending::text("changed")
        }
    });
    stage.client.call("change").await.result();
    echo(&stage.client, json!({"region": "eu"}))
        .send()
        .await
        .result();
    assert_eq!(lists(&stage.puppet.ledger()), 2);
    stage.closes().await;
}

#[tokio::test]
async fn every_page_of_the_list_counts() {
    let stage = declaring().await;
    let paged = |call: crate::support::puppet::Call| async move {
        match call.request["params"]["cursor"].as_str() {
            None => Ending::Result(json!({"tools": [], "nextCursor": "\"2\""})),
            Some("\"2\"") => Ending::Result(json!({"tools": list()})),
            Some(other) => Ending::Error(json!({"code": -32602, "message": other})),
        }
    };
    stage.puppet.on("tools/list", "", paged);
    echo(&stage.client, json!({"region": "eu"}))
        .send()
        .await
        .error(400, -32020);
    assert_eq!(lists(&stage.puppet.ledger()), 2);
    stage.closes().await;
}

/// A list that cannot be read keeps no call from its tool, and is not asked for again and again.
#[tokio::test]
async fn a_server_that_cannot_list_its_tools_is_called_all_the_same() {
    let stage = declaring().await;
    let broken = |_| async { Ending::Error(json!({"code": -32603, "message": "no list today"})) };
    stage.puppet.on("tools/list", "", broken);
    for _ in 0..3 {
        echo(&stage.client, json!({"region": "eu"}))
            .send()
            .await
            .result();
    }
    assert_eq!(lists(&stage.puppet.ledger()), 1);
    stage.closes().await;
}

/// Another caller may see other tools.
#[tokio::test]
async fn declarations_are_known_for_each_caller() {
    let stage = declaring().await;
    for name in ["ada", "eve"] {
        let client = stage.client.clone().named(name);
        echo(&client, json!({"region": "eu"}))
            .send()
            .await
            .error(400, -32020);
    }
    assert_eq!(lists(&stage.puppet.ledger()), 2);
    stage.closes().await;
}

/// Not every server says when its tools change. The spec's remedy works: list them again, and call again.
#[tokio::test]
async fn a_list_that_changed_silently_is_learned_when_it_passes() {
    let stage = declaring().await;
    let request = echo(&stage.client, json!({"region": "eu"}));
    request.send().await.error(400, -32020);
    let free = |_| async {
        Ending::Result(json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}))
    };
    stage.puppet.on("tools/list", "", free);
    let list = stage.client.request("tools/list", json!({}));
    list.send().await.result();
    request.send().await.result();
    stage.closes().await;
}

/// What its headers have to say may have changed while a person thought: the list is read again before it is refused.
#[tokio::test]
async fn a_re_issue_is_checked_by_a_list_that_is_fresh() {
    let stage = declaring().await;
    let wants = |header: &str| {
        let region = json!({"type": "string", "x-mcp-header": header});
        let schema = json!({"type": "object", "properties": {"region": region}});
        let tools = json!({"tools": [{"name": "name", "inputSchema": schema}]});
        stage.puppet.on("tools/list", "", move |_| {
            let tools = tools.clone();
            async move { Ending::Result(tools) }
        });
    };
    wants("Region");
    let request = stage.client.tool("name", json!({"region": "eu"}));
    let with_region = request.clone().header("mcp-param-region", "eu");
    let asked = with_region.send().await.asked();
    wants("Zone");
    let reissue = request.answer(&asked, accept(json!({"name": "Ada"})));
    let wrong = reissue.clone().header("mcp-param-zone", "us");
    eventually("the list to be read again", || async {
        wrong.send().await.error(400, -32020);
        lists(&stage.puppet.ledger()) == 2
    })
    .await;
    assert_eq!(stage.answers(), 0);
    let right = reissue.header("mcp-param-zone", "eu").send().await;
    assert_eq!(text_of(right.result()), "name: \"Ada\"");
    stage.closes().await;
}
