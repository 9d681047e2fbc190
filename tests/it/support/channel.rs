//! Servers whose messages share one channel: what they say, and one over WebSocket that notes how it is spoken to.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use http::HeaderMap;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::within;

/// What a server says to a message: `initialize` opens a session, a tool asks for a name and says it.
pub(crate) fn said_to(message: &Value) -> Option<Value> {
    let id = &message["id"];
    let result = |result| Some(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    match message["method"].as_str() {
        Some("initialize") => result(json!({
            "protocolVersion": "2024-11-05",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "channel", "version": "1"},
        })),
        Some("tools/list") => result(json!({"tools": []})),
        Some("tools/call") if message["params"]["name"] == "echo" => {
            result(json!({"content": [{"type": "text", "text": "echo"}]}))
        }
        Some("tools/call") if message["params"]["name"] == "unreadable" => {
            result(json!({"content": [], "structuredContent": {"v": "NaN"}}))
        }
        Some("tools/call") => Some(json!({
            "jsonrpc": "2.0",
            "id": format!("ask-{id}"),
            "method": "elicitation/create",
            "params": {
                "message": "Name?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
        })),
        Some(_) => None,
        None => {
            let call: u64 = id.as_str()?.strip_prefix("ask-")?.parse().unwrap();
            let name = message["result"]["content"]["name"].as_str().unwrap();
            let content = json!([{"type": "text", "text": name}]);
            Some(json!({"jsonrpc": "2.0", "id": call, "result": {"content": content}}))
        }
    }
}

/// A message as it is written. For the tool `unreadable` that is as many a library does it: JSON has no such number.
pub(crate) fn written(message: &Value) -> String {
    message.to_string().replace("\"NaN\"", "NaN")
}

/// Bytes in the result of the tool `large`: more than one read takes.
pub(crate) const LARGE: usize = 1 << 20;

/// How a server over WebSocket takes a handshake.
#[derive(Clone, Debug)]
pub(crate) enum Greeting {
    /// It agrees, and chooses this subprotocol if any.
    Agree(Option<&'static str>),
    /// It refuses with this status.
    Refuse(u16),
}

/// What it has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The headers of each handshake.
    pub(crate) handshakes: Vec<HeaderMap>,
    /// How each connection ended: the code of the close frame, if there was one.
    pub(crate) ends: Vec<Option<u16>>,
}

/// A server over WebSocket. Dropped, it ends with all its connections.
#[derive(Debug)]
pub(crate) struct WebSocketServer {
    addr: SocketAddr,
    seen: watch::Receiver<Seen>,
    _end: DropGuard,
}

impl WebSocketServer {
    pub(crate) async fn start(greeting: Greeting) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (notes, seen) = watch::channel(Seen::default());
        let (tasks, end, notes) = (
            TaskTracker::new(),
            CancellationToken::new(),
            Arc::new(notes),
        );
        let ended = end.clone();
        tasks.clone().spawn(async move {
            let accepting = async {
                while let Ok((stream, _)) = listener.accept().await {
                    let serving = serve(stream, greeting.clone(), Arc::clone(&notes));
                    tasks.spawn(ended.clone().run_until_cancelled_owned(serving));
                }
            };
            ended.run_until_cancelled(accepting).await;
        });
        Self {
            addr,
            seen,
            _end: end.drop_guard(),
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/ws", self.addr)
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until it has seen so many connections end; how they did.
    pub(crate) async fn ends(&self, count: usize) -> Vec<Option<u16>> {
        let mut seen = self.seen.clone();
        let ended = seen.wait_for(|seen| seen.ends.len() >= count);
        let seen = within("connections to end", ended).await.unwrap();
        seen.ends.clone()
    }
}

async fn serve(stream: TcpStream, greeting: Greeting, notes: Arc<watch::Sender<Seen>>) {
    #[expect(clippy::result_large_err, reason = "the library's own type")]
    let agree = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        let headers = request.headers().clone();
        assert_eq!(headers["sec-websocket-protocol"], "mcp");
        notes.send_modify(|seen| seen.handshakes.push(headers));
        match greeting {
            Greeting::Agree(None) => Ok(response),
            Greeting::Agree(Some(chosen)) => {
                let chosen = chosen.parse().unwrap();
                let headers = response.headers_mut();
                headers.insert("sec-websocket-protocol", chosen);
                Ok(response)
            }
            Greeting::Refuse(status) => {
                let mut refusal = ErrorResponse::new(None);
                *refusal.status_mut() = status.try_into().unwrap();
                Err(refusal)
            }
        }
    };
    // A handshake that is refused, or never comes, has been noted as far as it came.
    if let Ok(socket) = tokio_tungstenite::accept_hdr_async(stream, agree).await {
        let end = converse(socket).await;
        notes.send_modify(|seen| seen.ends.push(end));
    }
}

/// Talks until the connection ends; the code of the close frame that came, if any did.
async fn converse(mut socket: WebSocketStream<TcpStream>) -> Option<u16> {
    let mut end = None;
    // After a close frame the library still answers it.
    while let Some(Ok(message)) = socket.next().await {
        let text = match message {
            Message::Text(text) => text,
            Message::Close(frame) => {
                end = frame.map(|frame| frame.code.into());
                continue;
            }
            _ => continue,
        };
        let message: Value = serde_json::from_str(&text).unwrap();
        let tool = message["params"]["name"].as_str();
        let said = match tool {
            Some("binary") => Some(Message::Binary(Bytes::from_static(b"{}"))),
            Some("large") => {
                let content = json!([{"type": "text", "text": "x".repeat(LARGE)}]);
                let result =
                    json!({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}});
                Some(Message::text(result.to_string()))
            }
            Some("close") => Some(Message::Close(Some(CloseFrame {
                code: CloseCode::Restart,
                reason: "a new version".into(),
            }))),
            Some(_) | None => said_to(&message).map(|said| Message::text(written(&said))),
        };
        if tool == Some("deaf") {
            // Whoever hears nothing answers no ping either.
            return std::future::pending().await;
        }
        if let Some(said) = said
            && socket.send(said).await.is_err()
        {
            break;
        }
        if tool == Some("deafened") {
            return std::future::pending().await;
        }
    }
    end
}
