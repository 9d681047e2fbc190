//! Servers behind TLS: whom the gateway trusts, who it says it is, which HTTP is spoken, and calls held over it.

use serde_json::json;
use tokio::net::TcpListener;

use crate::support::client::{Asked, Client, Request};
use crate::support::gateway::Config;
use crate::support::puppet::{Manner, Puppet};
use crate::support::stage::usual;
use crate::support::tls::{Authority, FEW_STREAMS, Front, TlsFront};
use crate::support::{accept, nothing_is_left, text_of};

/// A puppet with the usual tools behind TLS.
async fn behind(front: Front) -> (Puppet, Authority, TlsFront) {
    let puppet = Puppet::start(Manner::default()).await;
    usual(&puppet);
    let authority = Authority::new();
    let front = TlsFront::start(puppet.addr(), &authority, front).await;
    (puppet, authority, front)
}

fn config(front: &TlsFront, trusted: &Authority) -> Config {
    Config::to(front.url()).backend("ca_file", &trusted.ca_file())
}

/// So many calls that wait for a name, and what each was asked.
async fn hold(client: &Client, count: usize) -> Vec<(Request, Asked)> {
    let mut held = Vec::new();
    for _ in 0..count {
        let request = client.tool("name", json!({}));
        let asked = request.send().await.asked();
        held.push((request, asked));
    }
    held
}

/// Answers them; each ends with the name.
async fn answer(held: &[(Request, Asked)]) {
    for (request, asked) in held {
        let answer = accept(json!({"name": "Ada"}));
        let reply = request.answer(asked, answer).send().await;
        assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    }
}

#[tokio::test]
async fn calls_run_and_are_held_over_either_http() {
    for (kind, protocol) in [(Front::Http1, "http/1.1"), (Front::Http2, "h2")] {
        let (puppet, authority, front) = behind(kind).await;
        let gateway = config(&front, &authority).start().await;
        let client = Client::of(&gateway).named("ada");
        let echoed = client.tool("echo", json!({"a": 1})).send().await;
        assert_eq!(text_of(echoed.result()), r#"{"a":1}"#);
        for tool in ["name", "generally"] {
            let request = client.tool(tool, json!({}));
            let asked = request.send().await.asked();
            answer(&[(request, asked)]).await;
        }
        assert_eq!(front.protocols(), [protocol]);
        nothing_is_left(&gateway, &puppet).await;
    }
}

/// Held calls keep their streams open. Were they all on one connection, a server that bounds its streams would hear no
/// answer any more.
#[tokio::test]
async fn held_calls_do_not_block_their_answers_over_http2() {
    // Each has a call's stream and a general one: more than one connection may have, and more than a lane takes.
    const HELD: usize = 70;
    let (puppet, authority, front) = behind(Front::Http2).await;
    let config = config(&front, &authority).top("threads", "1");
    let gateway = config.timer("gather_quiet", "1ms").start().await;
    let client = Client::of(&gateway);
    let held = hold(&client, HELD).await;
    answer(&held).await;
    assert_eq!(front.protocols(), ["h2"]);
    assert!(front.connections() < HELD, "{}", front.connections());
    nothing_is_left(&gateway, &puppet).await;
}

/// The same before a server that allows few streams and does not say so beforehand: what waits are further calls, each
/// for so long, and not the answers.
#[tokio::test]
async fn few_streams_of_a_connection_keep_no_answer_from_its_server() {
    let (puppet, authority, front) = behind(Front::NarrowHttp2).await;
    let config = config(&front, &authority).top("threads", "1");
    let gateway = config.timer("initialize_timeout", "500ms").start().await;
    let client = Client::of(&gateway);
    // Each has a call's stream and a general one.
    let held = hold(&client, FEW_STREAMS / 2).await;
    client.call("echo").await.lost(false);
    answer(&held).await;
    assert_eq!(text_of(client.call("echo").await.result()), "{}");
    nothing_is_left(&gateway, &puppet).await;
}

/// Who knows how many the server allows can say so; then nobody waits.
#[tokio::test]
async fn the_streams_of_a_connection_can_be_bounded() {
    let (puppet, authority, front) = behind(Front::NarrowHttp2).await;
    let config = config(&front, &authority).top("threads", "1");
    let config = config.limit("upstream_streams_max", FEW_STREAMS);
    let gateway = config.start().await;
    let client = Client::of(&gateway);
    let held = hold(&client, 3 * FEW_STREAMS).await;
    answer(&held).await;
    nothing_is_left(&gateway, &puppet).await;
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_is_told_nothing() {
    let (puppet, _, front) = behind(Front::Http2).await;
    let another = Authority::new();
    let gateway = config(&front, &another).start().await;
    let client = Client::of(&gateway).named("ada");
    let reply = client.call("echo").await;
    reply.lost(false);
    let said = reply.message["error"].to_string();
    assert!(said.contains("cannot be reached"), "{said}");
    assert!(!said.contains("localhost"), "{said}");
    gateway.says("invalid peer certificate").await;
    assert!(puppet.ledger().records.is_empty());
    gateway.settled().await;
}

#[tokio::test]
async fn a_server_may_want_to_know_the_gateway() {
    let (puppet, authority, front) = behind(Front::Known).await;
    let unknown = config(&front, &authority).start().await;
    Client::of(&unknown).call("echo").await.lost(false);
    assert!(puppet.ledger().records.is_empty());
    unknown.settled().await;
    let (certificate, key) = authority.signs("gateway");
    let config = config(&front, &authority)
        .backend("client_cert_file", &format!("{certificate:?}"))
        .backend("client_key_file", &format!("{key:?}"));
    let known = config.start().await;
    Client::of(&known).call("echo").await.result();
    nothing_is_left(&known, &puppet).await;
}

/// A server that takes the connection and says nothing.
#[tokio::test]
async fn a_handshake_that_stalls_meets_the_connect_timeout() {
    // Connections are taken by the kernel and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/mcp", silent.local_addr().unwrap());
    let authority = Authority::new();
    let config = Config::to(url).backend("ca_file", &authority.ca_file());
    let gateway = config.timer("connect_timeout", "300ms").start().await;
    Client::of(&gateway).call("echo").await.lost(false);
    gateway.says("connecting took longer than 300ms").await;
    gateway.settled().await;
}
