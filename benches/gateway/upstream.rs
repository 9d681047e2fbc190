//! The legacy server of the bench: as fast as it can be, with a tool that answers in JSON, one that answers
//! with an event stream, and one that asks first. It offers no general stream.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

/// The argument that makes this program the upstream.
pub(crate) const ARGUMENT: &str = "serve-as-upstream";

/// The line that names its address.
pub(crate) const READY: &str = "upstream on ";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A result of about one kibibyte, as tools of real servers have them.
pub(crate) static RESULT: LazyLock<String> = LazyLock::new(|| {
    let filler = "All work and no play makes Jack a dull boy. ".repeat(22);
    format!(r#"{{"content":[{{"type":"text","text":"{filler}"}}]}}"#)
});

#[derive(Debug, Default)]
struct Server {
    sessions: AtomicU64,
    questions: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<()>>>,
}

/// As much of a message as has to be read.
#[derive(Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: Option<&'a str>,
    #[serde(borrow)]
    pub(crate) params: Option<&'a RawValue>,
}

/// Serves until standard input ends, which is when the bench ends.
pub(crate) async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    eprintln!("{READY}{}", listener.local_addr().unwrap());
    let server = Arc::new(Server::default());
    let tasks = TaskTracker::new();
    end_with_input();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let server = Arc::clone(&server);
        tasks.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&server), request));
            let mut http = hyper::server::conn::http1::Builder::new();
            http.pipeline_flush(true).max_buf_size(16 << 10);
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Ends this program when its standard input ends.
pub(crate) fn end_with_input() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
}

async fn answer(
    server: Arc<Server>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    if request.method() != Method::POST {
        let status = match *request.method() {
            Method::DELETE => StatusCode::OK,
            _ => StatusCode::METHOD_NOT_ALLOWED,
        };
        return Ok(empty(status));
    }
    let Ok(body) = request.into_body().collect().await else {
        return Ok(empty(StatusCode::BAD_REQUEST));
    };
    let body = body.to_bytes();
    Ok(match serde_json::from_slice::<Message<'_>>(&body) {
        Ok(message) => respond(&server, &message),
        Err(_) => empty(StatusCode::BAD_REQUEST),
    })
}

fn respond(server: &Arc<Server>, message: &Message<'_>) -> Response<Body> {
    let Some(id) = message.id else {
        return empty(StatusCode::ACCEPTED);
    };
    let params = message.params.map_or("", RawValue::get);
    match message.method {
        Some("initialize") => initialize(server, id.get()),
        Some("tools/call") if params.contains(r#""sse""#) => events(result_event(id.get())),
        Some("tools/call") if params.contains(r#""ask""#) => ask(server, id.get()),
        Some(_) => json(format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#,
            id.get(),
            *RESULT
        )),
        None => {
            let waiting = id.get().parse().ok();
            let waiting = waiting.and_then(|id| server.waiting.lock().unwrap().remove(&id));
            if let Some(waiting) = waiting {
                let _ = waiting.send(());
            }
            empty(StatusCode::ACCEPTED)
        }
    }
}

/// The `InitializeResult`.
pub(crate) const INITIALIZED: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#;

fn initialize(server: &Server, id: &str) -> Response<Body> {
    let number = server.sessions.fetch_add(1, Ordering::Relaxed);
    let mut response = json(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{INITIALIZED}}}"#
    ));
    let session = format!("session-{number}").parse().unwrap();
    response.headers_mut().insert("mcp-session-id", session);
    response
}

fn ask(server: &Arc<Server>, id: &str) -> Response<Body> {
    let question = server.questions.fetch_add(1, Ordering::Relaxed);
    let (answered, answer) = oneshot::channel();
    server.waiting.lock().unwrap().insert(question, answered);
    let asked = format!("event: message\ndata: {}\n\n", self::question(question));
    let done = result_event(id);
    let first = futures_util::stream::once(async move { asked });
    let last = futures_util::stream::once(async move {
        let _ = answer.await;
        done
    });
    let frames = first
        .chain(last)
        .map(|event| Ok(Frame::data(Bytes::from(event))));
    stream(StreamBody::new(frames).boxed_unsync())
}

/// A question under an id.
pub(crate) fn question(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{{"mode":"form","message":"Go on?","requestedSchema":{{"type":"object","properties":{{"confirm":{{"type":"boolean"}}}},"required":["confirm"]}}}}}}"#,
    )
}

fn result_event(id: &str) -> String {
    format!(
        "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{}}}\n\n",
        *RESULT
    )
}

fn json(body: String) -> Response<Body> {
    let mut response = Response::new(Full::from(body).boxed_unsync());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, "application/json".parse().unwrap());
    response
}

/// A whole stream at once, in chunks: the length is not known beforehand.
fn events(body: String) -> Response<Body> {
    let frames = futures_util::stream::once(async { Ok(Frame::data(Bytes::from(body))) });
    stream(StreamBody::new(frames).boxed_unsync())
}

fn stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, "text/event-stream".parse().unwrap());
    response
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = status;
    response
}
