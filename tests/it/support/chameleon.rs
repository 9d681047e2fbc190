//! An HTTP server that is now one thing and now another: either legacy transport, a modern server, none at all.
//!
//! It keeps no sessions and checks nothing: what it is asked, and in which order, is for the test to look at.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_util::task::TaskTracker;

use super::http1::{Head, Reader};
use super::text;

/// What it is at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Face {
    /// HTTP+SSE.
    HttpSse,
    /// HTTP+SSE, with this as its first event.
    BadSse(&'static str),
    /// Streamable HTTP, and what GET gets.
    Streamable(Get),
    /// Streamable HTTP without GET, each answer in an array.
    Batches,
    /// A modern server, and what `initialize` gets: a status and the code of a JSON-RPC error, if there is one.
    Modern(u16, Option<i64>),
    /// This status to everything, and the code of a JSON-RPC error, if there is one.
    Status(u16, Option<i64>),
    /// Never an answer.
    Silence,
}

/// What a GET meets at a Streamable HTTP server that has no session for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Get {
    Status(u16),
    /// An event stream on which nothing comes.
    QuietStream,
    /// Not even a head, before the first event.
    Nothing,
}

/// A running one. It ends with the test's runtime.
#[derive(Clone, Debug)]
pub(crate) struct Chameleon {
    addr: SocketAddr,
    face: Arc<Mutex<Face>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A request that it got.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) head: Head,
    pub(crate) body: Value,
}

impl Asked {
    fn name(&self) -> String {
        let method = self.body["method"].as_str().unwrap_or_default();
        format!("{} {method}", self.head.word(0)).trim().to_owned()
    }
}

impl Chameleon {
    pub(crate) async fn start(face: Face, tasks: &TaskTracker) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let chameleon = Self {
            addr: listener.local_addr().unwrap(),
            face: Arc::new(Mutex::new(face)),
            asked: Arc::default(),
        };
        let (serving, served) = (tasks.clone(), chameleon.clone());
        tasks.spawn(async move {
            // All posts of all streams: a test has one session at a time.
            let (posts, _) = broadcast::channel(64);
            while let Ok((stream, _)) = listener.accept().await {
                let (chameleon, posts) = (served.clone(), posts.clone());
                serving.spawn(async move {
                    let _ = chameleon.serve(stream, posts).await;
                });
            }
        });
        chameleon
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    /// From now on it is something else.
    pub(crate) fn turn(&self, face: Face) {
        *self.face.lock().unwrap() = face;
    }

    /// What it was asked since this was asked last.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// The same as verbs and methods.
    pub(crate) fn take_asked_names(&self) -> Vec<String> {
        self.take_asked().iter().map(Asked::name).collect()
    }

    /// The same again, as long as it is not taken.
    pub(crate) fn asked_names(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(Asked::name).collect()
    }

    async fn serve(
        &self,
        stream: TcpStream,
        posts: broadcast::Sender<Value>,
    ) -> std::io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut reader = Reader::new(reader);
        while let Some(head) = reader.head().await? {
            let body = reader.body(head.request_framing()).await?;
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let (verb, path) = (head.word(0).to_owned(), head.word(1).to_owned());
            let asked = Asked {
                head,
                body: body.clone(),
            };
            self.asked.lock().unwrap().push(asked);
            let face = *self.face.lock().unwrap();
            let is_post = verb == "POST";
            match face {
                Face::Silence => return gone(&mut reader).await,
                Face::Status(status, code) => refuse(&mut writer, status, code, &body).await?,
                Face::HttpSse if verb == "GET" => {
                    return events(&mut reader, &mut writer, posts.subscribe()).await;
                }
                Face::HttpSse if is_post && path.starts_with("/messages") => {
                    // Without a stream nobody hears it.
                    let _ = posts.send(body);
                    whole(&mut writer, 202, "").await?;
                }
                Face::BadSse(first) if verb == "GET" => {
                    writer.write_all(EVENT_STREAM).await?;
                    writer.write_all(first.as_bytes()).await?;
                    return gone(&mut reader).await;
                }
                Face::HttpSse | Face::BadSse(_) => whole(&mut writer, 405, "").await?,
                Face::Streamable(Get::QuietStream) if verb == "GET" => {
                    writer.write_all(EVENT_STREAM).await?;
                    return gone(&mut reader).await;
                }
                Face::Streamable(Get::Nothing) if verb == "GET" => return gone(&mut reader).await,
                Face::Streamable(Get::Status(status)) if verb == "GET" => {
                    whole(&mut writer, status, "").await?;
                }
                Face::Streamable(_) => match answer(&body) {
                    Some(answer) => whole(&mut writer, 200, &answer.to_string()).await?,
                    None => whole(&mut writer, 202, "").await?,
                },
                Face::Batches if verb == "GET" => whole(&mut writer, 405, "").await?,
                Face::Batches => match answer(&body) {
                    Some(answer) => whole(&mut writer, 200, &format!("[{answer}]")).await?,
                    None => whole(&mut writer, 202, "").await?,
                },
                Face::Modern(..) if !is_post => whole(&mut writer, 405, "").await?,
                Face::Modern(..) if body["method"] == "server/discover" => {
                    let result = json!({
                        "resultType": "complete",
                        "supportedVersions": ["2026-07-28"],
                        "capabilities": {},
                        "ttlMs": 0,
                        "cacheScope": "private",
                    });
                    let response = json!({"jsonrpc": "2.0", "id": body["id"], "result": result});
                    whole(&mut writer, 200, &response.to_string()).await?;
                }
                Face::Modern(status, code) => refuse(&mut writer, status, code, &body).await?,
            }
        }
        Ok(())
    }
}

const EVENT_STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// What a legacy server says to a message; the tool `waits` never ends.
fn answer(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-03-26",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "chameleon", "version": "1"},
        }),
        "tools/list" => json!({"tools": []}),
        "tools/call" if message["params"]["name"] == "waits" => return None,
        _ => text("echo"),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

async fn gone(reader: &mut Reader<OwnedReadHalf>) -> std::io::Result<()> {
    reader.closed().await;
    Ok(())
}

async fn refuse(
    writer: &mut OwnedWriteHalf,
    status: u16,
    code: Option<i64>,
    body: &Value,
) -> std::io::Result<()> {
    let error = |code| json!({"code": code, "message": "not like this"});
    let response = |code| json!({"jsonrpc": "2.0", "id": body["id"], "error": error(code)});
    let text = code.map(|code| response(code).to_string());
    whole(writer, status, &text.unwrap_or_default()).await
}

async fn whole(writer: &mut OwnedWriteHalf, status: u16, body: &str) -> std::io::Result<()> {
    let kind = if body.is_empty() {
        ""
    } else {
        "content-type: application/json\r\n"
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Chameleon\r\n{kind}content-length: {length}\r\n\r\n");
    writer.write_all(format!("{head}{body}").as_bytes()).await
}

async fn events(
    reader: &mut Reader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
    mut posts: broadcast::Receiver<Value>,
) -> std::io::Result<()> {
    writer.write_all(EVENT_STREAM).await?;
    let endpoint = "event: endpoint\ndata: /messages?session=1\n\n";
    writer.write_all(endpoint.as_bytes()).await?;
    loop {
        let message = tokio::select! {
            message = posts.recv() => message.unwrap(),
            () = reader.closed() => return Ok(()),
        };
        if let Some(answer) = answer(&message) {
            let event = format!("event: message\ndata: {answer}\n\n");
            writer.write_all(event.as_bytes()).await?;
        }
    }
}
