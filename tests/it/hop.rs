//! Legs that another replica sends on: served like a client's own, by whom the key lets in.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use crate::support::client::{Client, VERSION};
use crate::support::gateway::Config;
use crate::support::puppet::Ending;
use crate::support::replica::Replica;
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, eventually, form, text_of, within};

const KEY: [u8; 32] = [7; 32];

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

async fn stage() -> (Stage, Replica) {
    let stage = Stage::with(|config| config.replica(KEY)).await;
    let replica = Replica::before(&stage.gateway, KEY).await;
    (stage, replica)
}

/// A tool that asks, reports progress and waits for the gate.
fn waiting(stage: &Stage) -> Gate {
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("waiting", move |call| {
        let gate = script_gate.clone();
        async move {
            call.elicit(form("name", name_schema())).await;
            call.progress(1).await;
            gate.passed().await;
            call.progress(2).await;
            Ending::text("done")
        }
    });
    gate
}

#[tokio::test]
async fn a_call_is_held_at_one_replica_and_answered_by_way_of_another() {
    let (stage, replica) = stage().await;
    let (near, far) = (
        stage.client.clone().named("ada"),
        replica.client().named("ada"),
    );
    let request = near.tool("name", json!({}));
    let asked = request.send().await.asked();
    let reply = request.answer(&asked, ada()).by(&far).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!(stage.answers(), 1);
    // The repeat at the replica itself gets the same.
    let repeated = request.answer(&asked, ada()).send().await;
    assert_eq!(repeated.result(), reply.result());
    assert_eq!(stage.answers(), 1);
    stage.ends().await;
}

#[tokio::test]
async fn progress_comes_through_as_it_is_made() {
    let (stage, replica) = stage().await;
    let gate = waiting(&stage);
    let request = replica.client().tool("waiting", json!({}));
    let request = request.meta("progressToken", json!("p"));
    let asked = request.send().await.asked();
    let mut leg = request.answer(&asked, ada()).open().await;
    assert_eq!(leg.event().await["params"]["progress"], 1);
    gate.open();
    assert_eq!(leg.event().await["params"]["progress"], 2);
    assert_eq!(text_of(leg.finish().await.result()), "done");
    stage.ends().await;
}

#[tokio::test]
async fn a_client_that_leaves_another_replica_is_missed() {
    let (stage, replica) = stage().await;
    stage.puppet.tool("stuck", |_| std::future::pending());
    let leg = replica.client().tool("stuck", json!({})).open().await;
    stage.started("stuck", 1).await;
    drop(leg);
    stage.cancelled(1).await;
    stage.ends().await;
}

/// All but `Origin` and `Host`, which the first replica has checked, is checked here.
#[tokio::test]
async fn what_is_sent_on_is_checked_again() {
    let (stage, replica) = stage().await;
    let far = replica.client().named("ada");
    let odd = |client: &Client| {
        let request = client.tool("echo", json!({}));
        request
            .header("origin", "https://app.example")
            .header("host", "app.example")
    };
    assert_eq!(odd(&stage.client).open().await.status().await, Some(403));
    odd(&far).send().await.result();
    let request = far.tool("name", json!({}));
    let asked = request.send().await.asked();
    let other = replica.client().named("eve");
    request
        .answer(&asked, ada())
        .by(&other)
        .send()
        .await
        .refused("principal");
    let bad = far
        .tool("echo", json!({}))
        .header("mcp-method", "tools/list");
    bad.send().await.error(400, -32020);
    assert_eq!(
        far.tool("echo", json!({}))
            .path("/other")
            .open()
            .await
            .status()
            .await,
        Some(404)
    );
    request.answer(&asked, ada()).send().await.result();
    stage.ends().await;
}

#[tokio::test]
async fn nobody_with_another_key_is_let_in() {
    let (stage, _) = stage().await;
    let stranger = Replica::before(&stage.gateway, [8; 32]).await;
    let leg = stranger.client().tool("echo", json!({})).open().await;
    assert_eq!(leg.status().await, Some(502));
    stage.gateway.metric_is("holdfast_strangers_total", 1).await;
    stage
        .gateway
        .metric_is("holdfast_replica_connections", 0)
        .await;
    assert_eq!(stage.puppet.starts("echo"), 0);
    stage.ends().await;
}

/// One connection, which is not a client's, and outlives what goes over it.
#[tokio::test]
async fn replicas_have_one_connection() {
    let (stage, replica) = stage().await;
    let client = replica.client();
    let calls = (0..20).map(|_| async { client.call("echo").await });
    for reply in futures_util::future::join_all(calls).await {
        reply.result();
    }
    assert_eq!(
        stage.gateway.metric("holdfast_replica_connections").await,
        1
    );
    assert_eq!(stage.gateway.metric("holdfast_connections").await, 0);
    drop(replica);
    stage.ends().await;
}

/// While it drains a replica goes on with what it holds, and a replica that is connected does not keep it from ending.
#[tokio::test]
async fn held_calls_are_answered_during_the_drain() {
    let stage = Stage::with(|config| config.replica(KEY).timer("shutdown_deadline", "60s")).await;
    let replica = Replica::before(&stage.gateway, KEY).await;
    let client = replica.client();
    let request = client.tool("name", json!({}));
    let asked = request.send().await.asked();
    stage.gateway.signal_end();
    let refused = || async {
        client
            .request("tools/list", json!({}))
            .send()
            .await
            .is_error()
    };
    eventually("new work to be refused", refused).await;
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!(stage.gateway.ended().await, 0);
    stage.puppet.settled().await;
}

/// A leg that is under way at the deadline is told so, as a client's own would be.
#[tokio::test]
async fn a_forwarded_leg_is_ended_at_the_deadline() {
    let stage = Stage::with(|config| config.replica(KEY).timer("shutdown_deadline", "200ms")).await;
    let replica = Replica::before(&stage.gateway, KEY).await;
    stage.puppet.tool("stuck", |_| std::future::pending());
    let leg = replica.client().tool("stuck", json!({})).open().await;
    stage.started("stuck", 1).await;
    stage.gateway.signal_end();
    assert!(leg.finish().await.is_error());
    assert_eq!(stage.gateway.ended().await, 0);
    stage.puppet.settled().await;
}

async fn holdfast(arguments: &[&str], config: &Config, host: &str) -> (i32, String) {
    let path = config.write();
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(arguments)
        .arg(&path)
        .env("POD_IP", host)
        .stdin(Stdio::null())
        .output();
    let output = within("the program to end", output).await.unwrap();
    let _ = std::fs::remove_file(path);
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(said).unwrap(),
    )
}

#[tokio::test]
async fn a_pod_says_its_host_by_a_variable() {
    let config = Config::to("http://127.0.0.1:1/mcp".to_owned())
        .replica(KEY)
        .cluster("listen", "\"[::]:9443\"")
        .cluster("advertise_host_env", "\"POD_IP\"");
    for (host, code, expected) in [
        ("10.1.2.3", 0, "reached at 10.1.2.3:9443"),
        ("fd00::3", 0, "reached at [fd00::3]:9443"),
        (
            "",
            2,
            "`cluster.advertise_host_env`: the variable POD_IP is empty",
        ),
        ("a b", 2, "`cluster.advertise_host_env`: \"a b\" is no host"),
    ] {
        let (exit, said) = holdfast(&["check-config"], &config, host).await;
        assert_eq!(exit, code, "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test]
async fn a_front_on_standard_input_is_no_replica() {
    let config = Config::to("http://127.0.0.1:1/mcp".to_owned()).replica(KEY);
    let (exit, said) = holdfast(&["stdio", "--config"], &config, "").await;
    assert_eq!(exit, 2, "{said}");
    assert!(
        said.contains("`cluster`: is for `holdfast serve`"),
        "{said}"
    );
}

/// What the hop adds to a request, one at a time: two to read and take from each other, not to judge by.
#[tokio::test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
async fn what_a_hop_costs() {
    const REQUESTS: usize = 3000;
    let (stage, replica) = stage().await;
    let client: Http = legacy::Client::builder(TokioExecutor::new()).build_http();
    let ways = [
        ("direct", stage.gateway.addr()),
        ("by a hop", replica.addr()),
    ];
    let mut took = ways.map(|_| Vec::with_capacity(REQUESTS));
    for _ in 0..REQUESTS {
        for ((_, addr), took) in ways.iter().zip(&mut took) {
            took.push(discovered(&client, *addr).await);
        }
    }
    for ((way, _), mut took) in ways.into_iter().zip(took) {
        took.sort_unstable();
        let (median, p99) = (took[REQUESTS / 2], took[REQUESTS * 99 / 100]);
        println!("{way}: median {median:?}, p99 {p99:?}");
    }
    stage.ends().await;
}

type Http = legacy::Client<HttpConnector, Full<Bytes>>;

/// How long `server/discover` takes, which is answered from memory, on a connection that is open.
async fn discovered(client: &Http, addr: SocketAddr) -> Duration {
    let message = Client::at(addr).request("server/discover", json!({}));
    let body = Bytes::from(message.message().to_string());
    let request = http::Request::post(format!("http://{addr}/mcp"))
        .header("mcp-protocol-version", VERSION)
        .header("mcp-method", "server/discover")
        .body(Full::new(body))
        .unwrap();
    let begun = Instant::now();
    let response = client.request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    response.collect().await.unwrap();
    begun.elapsed()
}
