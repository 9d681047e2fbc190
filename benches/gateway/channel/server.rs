//! The legacy server of the bench over one channel a session.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::handshake::server as handshake;
use tokio_tungstenite::tungstenite::{Message as Frames, Utf8Bytes};
use tokio_util::task::TaskTracker;

use crate::upstream::{INITIALIZED, Message, RESULT, end_with_input, question};

/// The argument that makes this program a server on its standard streams.
pub(crate) const STDIO: &str = "serve-on-standard-streams";

/// The argument that makes this program a server over HTTP+SSE and WebSocket.
pub(crate) const SOCKETS: &str = "serve-channels";

/// The lines that name its addresses.
pub(crate) const SSE_READY: &str = "sse on ";
pub(crate) const WEBSOCKET_READY: &str = "websocket on ";

/// What was said on one channel.
#[derive(Debug, Default)]
struct Conversation {
    questions: u64,
    /// The calls that wait for an answer, by the question.
    waiting: HashMap<u64, String>,
}

impl Conversation {
    fn said_to(&mut self, message: &str) -> Option<String> {
        let message: Message<'_> = serde_json::from_str(message).unwrap();
        let id = message.id?.get();
        let result = |id: &str, result: &str| {
            Some(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
            ))
        };
        let params = message.params.map_or("", serde_json::value::RawValue::get);
        match message.method {
            Some("initialize") => result(id, INITIALIZED),
            Some("tools/call") if params.contains(r#""ask""#) => {
                self.questions += 1;
                self.waiting.insert(self.questions, id.to_owned());
                Some(question(self.questions))
            }
            Some(_) => result(id, &RESULT),
            None => {
                let call = self.waiting.remove(&id.parse().ok()?)?;
                result(&call, &RESULT)
            }
        }
    }
}

/// Serves one session on the standard streams.
pub(crate) fn serve_stdio() {
    let mut conversation = Conversation::default();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if let Some(said) = conversation.said_to(&line) {
            writeln!(out, "{said}").unwrap();
            out.flush().unwrap();
        }
    }
}

/// Serves HTTP+SSE and WebSocket until standard input ends.
pub(crate) async fn serve_sockets() {
    end_with_input();
    let tasks = TaskTracker::new();
    let sse = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let websocket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    eprintln!("{SSE_READY}{}", sse.local_addr().unwrap());
    eprintln!("{WEBSOCKET_READY}{}", websocket.local_addr().unwrap());
    let sessions = Arc::new(Sessions::default());
    loop {
        tokio::select! {
            accepted = sse.accept() => {
                let (stream, _) = accepted.unwrap();
                tasks.spawn(serve_http(stream, Arc::clone(&sessions)));
            }
            accepted = websocket.accept() => {
                let (stream, _) = accepted.unwrap();
                tasks.spawn(serve_websocket(stream));
            }
        }
    }
}

async fn serve_websocket(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    #[expect(clippy::result_large_err, reason = "the library's own type")]
    let agree = |request: &handshake::Request, mut response: handshake::Response| {
        if let Some(wanted) = request.headers().get("sec-websocket-protocol") {
            let headers = response.headers_mut();
            headers.insert("sec-websocket-protocol", wanted.clone());
        }
        Ok(response)
    };
    let accepted = tokio_tungstenite::accept_hdr_async(stream, agree).await;
    let mut socket = accepted.unwrap();
    let mut conversation = Conversation::default();
    while let Some(Ok(message)) = socket.next().await {
        if let Frames::Text(text) = message
            && let Some(said) = conversation.said_to(&text)
            && socket
                .send(Frames::Text(Utf8Bytes::from(said)))
                .await
                .is_err()
        {
            return;
        }
    }
}

/// Messages that wait to be written to one session's stream; each session has
/// one call at a time.
const SAID_MAX: usize = 64;

/// The sessions over HTTP+SSE, by their number.
#[derive(Debug, Default)]
struct Sessions(Mutex<Vec<(Conversation, mpsc::Sender<String>)>>);

type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn serve_http(stream: TcpStream, sessions: Arc<Sessions>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| answer(Arc::clone(&sessions), request));
    let http = hyper::server::conn::http1::Builder::new();
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    sessions: Arc<Sessions>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    match (request.method(), &*path) {
        (&Method::GET, "/sse") => Ok(open(&sessions)),
        (&Method::POST, path) if let Some(number) = path.strip_prefix("/messages/") => {
            let number: usize = number.parse().unwrap();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let message = std::str::from_utf8(&body).unwrap();
            let mut sessions = sessions.0.lock().unwrap();
            let (conversation, out) = &mut sessions[number];
            if let Some(said) = conversation.said_to(message) {
                out.try_send(format!("event: message\ndata: {said}\n\n"))
                    .unwrap();
            }
            Ok(empty(StatusCode::ACCEPTED))
        }
        _ => Ok(empty(StatusCode::METHOD_NOT_ALLOWED)),
    }
}

fn open(sessions: &Sessions) -> Response<Body> {
    let (out, events) = mpsc::channel(SAID_MAX);
    let mut sessions = sessions.0.lock().unwrap();
    let endpoint = format!("event: endpoint\ndata: /messages/{}\n\n", sessions.len());
    out.try_send(endpoint).unwrap();
    sessions.push((Conversation::default(), out));
    let frames = futures_util::stream::unfold(events, |mut events| async move {
        let event = events.recv().await?;
        Some((Ok(Frame::data(Bytes::from(event))), events))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let stream = "text/event-stream".parse().unwrap();
    response.headers_mut().insert(CONTENT_TYPE, stream);
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = status;
    response
}
