//! A legacy client on one channel, straight to its server: what the gateway is compared with.

use std::net::SocketAddr;
use std::process::Stdio;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::{Transport, program};
use crate::conversation::{ARGUMENTS, Tool};
use crate::wire::{Connection, between, post_to};

/// One client with a session of its own.
#[derive(Debug)]
pub(crate) struct Client {
    channel: Channel,
    call: String,
}

#[derive(Debug)]
enum Channel {
    Stdio {
        stdin: ChildStdin,
        lines: Lines<BufReader<ChildStdout>>,
        _child: Child,
    },
    HttpSse {
        events: Connection,
        posts: Connection,
        endpoint: String,
    },
    WebSocket(Box<WebSocketStream<TcpStream>>),
}

impl Client {
    pub(crate) async fn new(transport: Transport, tool: Tool) -> Self {
        let mut channel = Channel::open(transport).await;
        channel.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"bench","version":"1"}}}"#).await;
        channel.next().await;
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        channel.send(initialized).await;
        let name = tool.name();
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{name}","arguments":{ARGUMENTS}}}}}"#,
        );
        Self { channel, call }
    }

    /// A whole call without questions.
    pub(crate) async fn plain(&mut self) {
        self.channel.send(&self.call).await;
        self.ends().await;
    }

    /// A whole call with one question.
    pub(crate) async fn asked(&mut self) {
        self.channel.send(&self.call).await;
        let question = self.channel.next().await;
        let id = between(&question, r#""id":"#, ",");
        let answer = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"confirm":true}}}}}}"#,
        );
        self.channel.send(&answer).await;
        self.ends().await;
    }

    async fn ends(&mut self) {
        let result = self.channel.next().await;
        assert!(result.contains("a dull boy"), "{result}");
    }
}

impl Channel {
    async fn open(transport: Transport) -> Self {
        match transport {
            Transport::Stdio => {
                let mut command = tokio::process::Command::from(program());
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
                let mut child = command.kill_on_drop(true).spawn().unwrap();
                let lines = BufReader::new(child.stdout.take().unwrap()).lines();
                Self::Stdio {
                    stdin: child.stdin.take().unwrap(),
                    lines,
                    _child: child,
                }
            }
            Transport::HttpSse(addr) => Self::open_events(addr).await,
            Transport::WebSocket(addr) => {
                let mut request = format!("ws://{addr}/").into_client_request().unwrap();
                let protocol = "mcp".parse().unwrap();
                request
                    .headers_mut()
                    .insert("sec-websocket-protocol", protocol);
                let stream = TcpStream::connect(addr).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let connected = tokio_tungstenite::client_async(request, stream).await;
                Self::WebSocket(Box::new(connected.unwrap().0))
            }
        }
    }

    async fn open_events(addr: SocketAddr) -> Self {
        let mut events = Connection::open(addr).await;
        let get = "GET /sse HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n\r\n";
        events.send(get.as_bytes()).await;
        let endpoint = events.next_event().await;
        Self::HttpSse {
            events,
            posts: Connection::open(addr).await,
            endpoint,
        }
    }

    async fn send(&mut self, message: &str) {
        match self {
            Self::Stdio { stdin, .. } => {
                let line = format!("{message}\n");
                stdin.write_all(line.as_bytes()).await.unwrap();
                stdin.flush().await.unwrap();
            }
            Self::HttpSse {
                posts, endpoint, ..
            } => {
                posts.exchange(&post_to(endpoint, &[], message)).await;
            }
            Self::WebSocket(socket) => {
                let text = Utf8Bytes::from(message);
                socket.send(Message::Text(text)).await.unwrap();
            }
        }
    }

    async fn next(&mut self) -> String {
        match self {
            Self::Stdio { lines, .. } => lines.next_line().await.unwrap().unwrap(),
            Self::HttpSse { events, .. } => events.next_event().await,
            Self::WebSocket(socket) => loop {
                if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
                    return text.as_str().to_owned();
                }
            },
        }
    }
}
