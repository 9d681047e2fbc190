//! Servers over WebSocket, with and without TLS: how they are reached, and how both sides let go.

use serde_json::json;
use tokio::net::TcpListener;

use crate::support::channel::{Greeting, LARGE, WebSocketServer};
use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::tls::{Authority, Front, TlsFront};
use crate::support::{accept, text_of};

const MCP: Greeting = Greeting::Agree(Some("mcp"));

/// A server behind TLS.
async fn behind(front: Front) -> (WebSocketServer, Authority, TlsFront) {
    let server = WebSocketServer::start(MCP).await;
    let authority = Authority::new();
    let front = TlsFront::start(server.addr(), &authority, front).await;
    (server, authority, front)
}

fn config(front: &TlsFront, trusted: &Authority) -> Config {
    Config::to(front.websocket_url()).backend("ca_file", &trusted.ca_file())
}

/// Asks for a name and gives it.
async fn conversation(client: &Client) {
    let request = client.tool("name", json!({}));
    let asked = request.send().await.asked();
    let answer = accept(json!({"name": "Ada"}));
    let reply = request.answer(&asked, answer).send().await;
    assert_eq!(text_of(reply.result()), "Ada");
}

/// Of a server that speaks HTTP/2 as well, HTTP/1.1 is wanted: only that carries the handshake.
#[tokio::test]
async fn calls_run_and_are_held_over_tls() {
    for kind in [Front::Http1, Front::Http2] {
        let (server, authority, front) = behind(kind).await;
        let gateway = config(&front, &authority).start().await;
        let client = Client::of(&gateway);
        assert_eq!(text_of(client.call("echo").await.result()), "echo");
        conversation(&client).await;
        assert_eq!(front.protocols(), ["http/1.1"]);
        gateway.settled().await;
        let sessions = server.seen().handshakes.len();
        assert_eq!(server.ends(sessions).await, vec![Some(1000); sessions]);
        assert_eq!(gateway.terminate().await, 0);
    }
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_is_told_nothing() {
    let (server, _, front) = behind(Front::Http1).await;
    let gateway = config(&front, &Authority::new()).start().await;
    let reply = Client::of(&gateway).call("echo").await;
    reply.lost(false);
    let said = reply.message["error"].to_string();
    assert!(said.contains("cannot be reached"), "{said}");
    assert!(!said.contains("localhost"), "{said}");
    gateway.says("invalid peer certificate").await;
    assert!(server.seen().handshakes.is_empty());
    gateway.settled().await;
}

#[tokio::test]
async fn a_server_may_want_to_know_the_gateway() {
    let (server, authority, front) = behind(Front::Known).await;
    let unknown = config(&front, &authority).start().await;
    Client::of(&unknown).call("echo").await.lost(false);
    assert!(server.seen().handshakes.is_empty());
    unknown.settled().await;
    let (certificate, key) = authority.signs("gateway");
    let config = config(&front, &authority)
        .backend("client_cert_file", &format!("{certificate:?}"))
        .backend("client_key_file", &format!("{key:?}"));
    let known = config.start().await;
    conversation(&Client::of(&known)).await;
    known.settled().await;
}

/// Connections are taken by the kernel and never answered: TCP alone is not enough, nor TLS, without the handshake.
#[tokio::test]
async fn a_handshake_that_stalls_meets_the_connect_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = silent.local_addr().unwrap();
    let authority = Authority::new();
    let front = TlsFront::start(addr, &authority, Front::Http1).await;
    for url in [
        format!("ws://{addr}/ws"),
        format!("wss://{addr}/ws"),
        front.websocket_url(),
    ] {
        let mut config = Config::to(url.clone()).timer("connect_timeout", "300ms");
        if url.starts_with("wss") {
            config = config.backend("ca_file", &authority.ca_file());
        }
        let gateway = config.start().await;
        Client::of(&gateway).call("echo").await.lost(false);
        gateway.says("connecting took longer than 300ms").await;
        gateway.settled().await;
    }
    assert_eq!(front.connections(), 1);
}

#[tokio::test]
async fn the_backends_own_headers_and_token_go_with_the_handshake() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "own-1\n").unwrap();
    let (server, authority, front) = behind(Front::Http1).await;
    let config = config(&front, &authority)
        .backend("headers", "{ X-Api-Key = \"k3y\" }")
        .backend("bearer_file", &format!("{:?}", token.path()));
    let gateway = config.start().await;
    for own in ["own-1", "own-2"] {
        std::fs::write(token.path(), own).unwrap();
        conversation(&Client::of(&gateway).named("ada")).await;
        gateway.settled().await;
        let handshake = server.seen().handshakes.pop().unwrap();
        assert_eq!(handshake["authorization"], format!("Bearer {own}"));
        assert_eq!(handshake["x-api-key"], "k3y");
    }
}

/// Without a token of the backend's own it is the client's that is refused, and its client to whom that is said.
#[tokio::test]
async fn a_handshake_that_is_refused_says_whose_fault_it_is() {
    for (status, own, expected) in [
        (401, false, "the server refuses the credentials"),
        (403, true, "own credentials are not good"),
        (302, false, "redirects"),
        (404, false, "HTTP status 404"),
        (502, false, "HTTP status 502"),
    ] {
        let server = WebSocketServer::start(Greeting::Refuse(status)).await;
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "own").unwrap();
        let mut config = Config::to(server.url());
        if own {
            config = config.backend("bearer_file", &format!("{:?}", token.path()));
        }
        let gateway = config.start().await;
        let reply = Client::of(&gateway).named("ada").call("echo").await;
        let said = reply.message["error"].to_string();
        assert!(said.contains(expected), "{status}: {said}");
        if status == 401 {
            assert_eq!(reply.status, 401);
        } else {
            reply.lost(false);
        }
        gateway.settled().await;
    }
}

/// Its connection stands, and nothing comes: not even the answer to a ping.
#[tokio::test]
async fn a_server_that_is_dead_is_noticed_and_its_calls_are_told() {
    let server = WebSocketServer::start(MCP).await;
    let config = Config::to(server.url()).timer("ping_interval", "500ms");
    let gateway = config.start().await;
    let client = Client::of(&gateway);
    // It runs.
    client.call("deaf").await.lost(true);
    gateway.says("it does not answer pings").await;
    // It is held.
    let request = client.tool("deafened", json!({}));
    let asked = request.send().await.asked();
    gateway.metric_is("holdfast_calls", 0).await;
    let answered = request.answer(&asked, accept(json!({"name": "Ada"})));
    answered.send().await.lost(true);
    // The next session has a connection of its own.
    conversation(&client).await;
    gateway.settled().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_message_is_told_by_the_code() {
    for (tool, code, why) in [
        ("large", 1009, "larger than 100000 bytes"),
        ("binary", 1003, "the connection to the server broke"),
    ] {
        let server = WebSocketServer::start(MCP).await;
        let config = Config::to(server.url()).limit("message_bytes_max", 100_000);
        let gateway = config.start().await;
        let client = Client::of(&gateway);
        let reply = client.call(tool).await;
        reply.lost(true);
        let said = reply.message["error"]["message"].to_string();
        assert!(said.contains(why), "{said}");
        assert_eq!(server.ends(1).await, [Some(code)]);
        conversation(&client).await;
        gateway.settled().await;
    }
}

#[tokio::test]
async fn a_message_within_the_limit_goes_through() {
    let server = WebSocketServer::start(MCP).await;
    let config = Config::to(server.url()).limit("message_bytes_max", LARGE + 1000);
    let gateway = config.start().await;
    let reply = Client::of(&gateway).call("large").await;
    assert_eq!(text_of(reply.result()).len(), LARGE);
    gateway.settled().await;
}

#[tokio::test]
async fn a_server_that_closes_gets_its_frame_back() {
    let server = WebSocketServer::start(MCP).await;
    let gateway = Config::to(server.url()).start().await;
    Client::of(&gateway).call("close").await.lost(true);
    gateway.says("a new version").await;
    assert_eq!(server.ends(1).await, [Some(1012)]);
    gateway.settled().await;
}

#[tokio::test]
async fn a_server_that_does_not_choose_the_subprotocol_is_not_spoken_to() {
    for chosen in [None, Some("graphql-ws")] {
        let server = WebSocketServer::start(Greeting::Agree(chosen)).await;
        let gateway = Config::to(server.url()).start().await;
        let reply = Client::of(&gateway).call("echo").await;
        reply.lost(false);
        let said = reply.message["error"]["message"].to_string();
        assert!(said.contains("the WebSocket subprotocol `mcp`"), "{said}");
        assert_eq!(server.ends(1).await, [None]);
        gateway.settled().await;
    }
}
