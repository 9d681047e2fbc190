//! HTTP+SSE and WebSocket servers whose connection breaks at any message, or does not keep to the protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_util::task::TaskTracker;

use crate::support::channel::{said_to, written};
use crate::support::client::Client;
use crate::support::gateway::{Config, Gateway};
use crate::support::{accept, text_of};

/// Decides which message is not sent any more: its connection is cut instead, once.
#[derive(Clone, Debug)]
struct Scissors(Arc<AtomicUsize>);

impl Scissors {
    /// Never, for `usize::MAX`.
    fn before_message(number: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(number)))
    }

    /// The answer to `tools/list` does not count: the gateway asks for it by itself.
    fn cut_now(&self, message: &Value) -> bool {
        if message["method"] == "tools/list" {
            return false;
        }
        let before = |left: usize| (left != usize::MAX).then(|| left.wrapping_sub(1));
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, before)
            == Ok(0)
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    HttpSse,
    WebSocket,
}

/// A server; dropped with its tasks at the end of the test's runtime.
async fn server(kind: Kind, scissors: Scissors, tasks: &TaskTracker) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tasks.clone();
    tasks.spawn(async move {
        // All posts of all sessions: a test has one session at a time.
        let (posts, _) = broadcast::channel(64);
        while let Ok((stream, _)) = listener.accept().await {
            match kind {
                Kind::WebSocket => serving.spawn(websocket(stream, scissors.clone())),
                Kind::HttpSse => serving.spawn(http(stream, posts.clone(), scissors.clone())),
            };
        }
    });
    address
}

async fn websocket(stream: TcpStream, scissors: Scissors) {
    #[expect(clippy::result_large_err, reason = "the library's own type")]
    let agree = |request: &Request, mut response: Response| {
        let wanted = request.headers()["sec-websocket-protocol"].clone();
        assert_eq!(wanted, "mcp");
        response
            .headers_mut()
            .insert("sec-websocket-protocol", wanted);
        Ok(response)
    };
    let mut socket = tokio_tungstenite::accept_hdr_async(stream, agree)
        .await
        .unwrap();
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else {
            continue;
        };
        let message: Value = serde_json::from_str(&text).unwrap();
        if message["params"]["name"] == "binary" {
            let binary = Message::Binary(b"{}".to_vec().into());
            socket.send(binary).await.unwrap();
        } else if let Some(answer) = said_to(&message) {
            if scissors.cut_now(&message) {
                return;
            }
            socket.send(Message::text(written(&answer))).await.unwrap();
        }
    }
}

async fn http(stream: TcpStream, posts: broadcast::Sender<Value>, scissors: Scissors) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        if head.starts_with("GET /sse ") {
            return events(stream, posts.subscribe(), scissors).await;
        }
        let status = if head.starts_with("POST /messages") {
            // Without a stream nobody hears it.
            let _ = posts.send(serde_json::from_slice(&body).unwrap());
            "202 Accepted"
        } else {
            "405 Method Not Allowed"
        };
        let response = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn events(
    mut stream: BufReader<TcpStream>,
    mut posts: broadcast::Receiver<Value>,
    scissors: Scissors,
) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
                event: endpoint\ndata: /messages?session=1\n\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    loop {
        let mut end = [0];
        let message = tokio::select! {
            message = posts.recv() => message.unwrap(),
            _ = stream.read(&mut end) => return,
        };
        if let Some(answer) = said_to(&message) {
            if scissors.cut_now(&message) {
                return;
            }
            let event = format!("event: message\ndata: {}\n\n", written(&answer));
            stream.write_all(event.as_bytes()).await.unwrap();
        }
    }
}

async fn config(kind: Kind, scissors: Scissors, tasks: &TaskTracker) -> Config {
    let address = server(kind, scissors, tasks).await;
    Config::to(match kind {
        Kind::HttpSse => format!("http://{address}/sse"),
        Kind::WebSocket => format!("ws://{address}/ws"),
    })
}

async fn stage(kind: Kind, scissors: Scissors, tasks: &TaskTracker) -> (Gateway, Client) {
    let gateway = config(kind, scissors, tasks).await.start().await;
    let client = Client::of(&gateway);
    (gateway, client)
}

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

async fn conversation(client: &Client) {
    let request = client.tool("name", json!({}));
    let asked = request.send().await.asked();
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "Ada");
}

/// Message 0 answers `initialize`, 1 is the question, 2 the result.
async fn cut_at_every_message(kind: Kind) {
    for number in [0, 1, 2, usize::MAX] {
        let tasks = TaskTracker::new();
        let (gateway, client) = stage(kind, Scissors::before_message(number), &tasks).await;
        if number < 2 {
            client.call("name").await.lost(number > 0);
        } else if number == 2 {
            let request = client.tool("name", json!({}));
            let asked = request.send().await.asked();
            let answered = request.answer(&asked, ada());
            answered.send().await.lost(true);
            // The same again gets the same outcome, and nothing is sent twice.
            answered.send().await.lost(true);
        }
        conversation(&client).await;
        gateway.settled().await;
        assert_eq!(gateway.terminate().await, 0);
    }
}

#[tokio::test]
async fn an_event_stream_cut_at_every_message() {
    cut_at_every_message(Kind::HttpSse).await;
}

#[tokio::test]
async fn a_websocket_cut_at_every_message() {
    cut_at_every_message(Kind::WebSocket).await;
}

/// Whichever message is cut: the call is run again in the same leg.
#[tokio::test]
async fn a_call_that_is_cut_is_run_again_where_that_is_wanted() {
    for kind in [Kind::HttpSse, Kind::WebSocket] {
        for number in [1, 2] {
            let tasks = TaskTracker::new();
            let config = config(kind, Scissors::before_message(number), &tasks).await;
            let gateway = config.backend("replay", "\"always\"").start().await;
            conversation(&Client::of(&gateway)).await;
            assert_eq!(gateway.metric("holdfast_replayed_total").await, 1);
            gateway.settled().await;
            assert_eq!(gateway.terminate().await, 0);
        }
    }
}

#[tokio::test]
async fn a_binary_frame_ends_its_session() {
    let tasks = TaskTracker::new();
    let never = Scissors::before_message(usize::MAX);
    let (gateway, client) = stage(Kind::WebSocket, never, &tasks).await;
    client.call("binary").await.lost(true);
    conversation(&client).await;
    gateway.settled().await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_ends_its_call_and_no_session() {
    for kind in [Kind::HttpSse, Kind::WebSocket] {
        let tasks = TaskTracker::new();
        let never = Scissors::before_message(usize::MAX);
        let (gateway, client) = stage(kind, never, &tasks).await;
        let reply = client.call("unreadable").await;
        let error = &reply.message["error"];
        assert_eq!(error["message"], "the server's answer is not understood");
        reply.lost(true);
        conversation(&client).await;
        gateway.settled().await;
    }
}

#[tokio::test]
async fn which_transport_it_is_is_found_once() {
    let tasks = TaskTracker::new();
    let never = Scissors::before_message(usize::MAX);
    let (gateway, client) = stage(Kind::HttpSse, never, &tasks).await;
    assert_eq!(text_of(client.call("echo").await.result()), "echo");
    gateway.settled().await;
    assert_eq!(text_of(client.call("echo").await.result()), "echo");
    gateway.settled().await;
    let found = "the transport of the server is found transport=HTTP+SSE";
    assert_eq!(gateway.log().matches(found).count(), 1, "{}", gateway.log());
}
