//! The demo's legacy server: Streamable HTTP of revision 2025-11-25, with sessions and questions in mid-call.
//!
//! It is what holdfast exists for, in small: `tools/call` is answered with an event stream on which
//! `elicitation/create` may come, and the tool waits until the answer is posted.
//! Spec: 2025-11-25 basic/lifecycle, basic/transports, client/elicitation.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use dashmap::DashMap;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::session::Session;
use super::tools;
use holdfast::hold::seal::random_bytes;
use holdfast::wire::{error, header, legacy};

/// Bounds a body; the demo's are a few hundred bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Events that wait for the wire. A tool asks one thing at a time.
const EVENTS_MAX: usize = 8;

/// Sessions at once. The gateway in front opens one for each call that is held; nobody watches a thousand.
const SESSIONS_MAX: usize = 1000;

/// How long the accepting rests after it failed: what failed it, open files above all, takes a moment to pass.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Body = BoxBody<Bytes, Infallible>;

/// The running server.
pub(super) struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

struct State {
    sessions: DashMap<String, Arc<Session>>,
    tasks: TaskTracker,
    /// Cancelled when the server ends, with all sessions.
    stop: CancellationToken,
}

impl Server {
    /// Starts it on a free port of loopback.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("no port for the demo server")?;
        let address = listener.local_addr()?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let state = State {
            sessions: DashMap::new(),
            tasks: tasks.clone(),
            stop: stop.clone(),
        };
        tasks.spawn(accept(listener, Arc::new(state)));
        Ok(Self {
            address,
            stop,
            tasks,
        })
    }

    /// Where it is.
    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Ends it with everything it does.
    pub(super) async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    loop {
        let accepted = tokio::select! {
            () = state.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (served, stop) = (Arc::clone(&state), state.stop.clone());
        state.tasks.spawn(async move {
            let service = service_fn(move |request| {
                let state = Arc::clone(&served);
                async move { Ok::<_, Infallible>(answer(&state, request).await) }
            });
            tokio::select! {
                () = stop.cancelled() => {}
                _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service) => {}
            }
        });
    }
}

async fn answer(state: &Arc<State>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let session_id = head
        .headers
        .get(header::SESSION_ID)
        .and_then(|value| value.to_str().ok());
    let session = session_id.and_then(|id| state.sessions.get(id).map(|found| Arc::clone(&found)));
    match (&head.method, session_id, session) {
        (&Method::POST, None, _) => match read(body).await {
            Some(message) if message["method"] == legacy::INITIALIZE => open(state, &message),
            _ => status(StatusCode::BAD_REQUEST),
        },
        (_, Some(_), None) => status(StatusCode::NOT_FOUND),
        (&Method::POST, _, Some(session)) => match read(body).await {
            Some(message) => take(state, &session, &message),
            None => status(StatusCode::BAD_REQUEST),
        },
        (&Method::GET, _, Some(session)) => quiet_stream(session.end.clone()),
        (&Method::DELETE, Some(id), Some(session)) => {
            session.end.cancel();
            state.sessions.remove(id);
            status(StatusCode::OK)
        }
        _ => status(StatusCode::METHOD_NOT_ALLOWED),
    }
}

async fn read(body: Incoming) -> Option<Value> {
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.ok()?;
    serde_json::from_slice(&body.to_bytes()).ok()
}

fn open(state: &State, message: &Value) -> Response<Body> {
    if state.sessions.len() >= SESSIONS_MAX {
        return status(StatusCode::SERVICE_UNAVAILABLE);
    }
    let Ok(id) = random_bytes::<16>() else {
        return status(StatusCode::INTERNAL_SERVER_ERROR);
    };
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let session = Session::new(state.stop.child_token());
    state.sessions.insert(id.clone(), Arc::new(session));
    let result = json!({
        "protocolVersion": legacy::latest(),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "billing-and-shipping", "title": "Billing and shipping", "version": "1.4.2"},
    });
    let mut response = json_result(message, &result);
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(header::SESSION_ID, id);
    }
    response
}

fn take(state: &Arc<State>, session: &Arc<Session>, message: &Value) -> Response<Body> {
    let Some(method) = message["method"].as_str() else {
        session.answer(message);
        return status(StatusCode::ACCEPTED);
    };
    if message.get("id").is_none() {
        if method == legacy::CANCELLED {
            session.cancel(&message["params"]["requestId"]);
        }
        return status(StatusCode::ACCEPTED);
    }
    match method {
        legacy::PING => json_result(message, &json!({})),
        "tools/list" => json_result(message, &tools::list()),
        "tools/call" => call(state, session, message),
        _ => json_message(&json!({
            "jsonrpc": "2.0",
            "id": message["id"],
            "error": {"code": error::METHOD_NOT_FOUND, "message": "Method not found"},
        })),
    }
}

/// Runs a tool on a task; its stream carries the questions and then the result.
fn call(state: &State, session: &Arc<Session>, message: &Value) -> Response<Body> {
    let (events, stream) = mpsc::channel(EVENTS_MAX);
    let (id, params) = (message["id"].clone(), message["params"].clone());
    let asker = session.begin(&id, events);
    state.tasks.spawn(async move {
        let name = params["name"].as_str().unwrap_or_default();
        if let Some(result) = tools::call(name, &params["arguments"], &asker).await {
            let response = json!({"jsonrpc": "2.0", "id": id, "result": result});
            // Without a reader nobody is left to tell.
            let _ = asker.say(&response).await;
        }
    });
    let frames = futures_util::stream::unfold(stream, |mut stream| async move {
        stream
            .recv()
            .await
            .map(|event| (Ok(Frame::data(event)), stream))
    });
    event_stream(BodyExt::boxed(StreamBody::new(frames)))
}

/// The general stream: open until the session ends. This server says nothing there.
fn quiet_stream(end: CancellationToken) -> Response<Body> {
    let frames = futures_util::stream::unfold(end, |end| async move {
        end.cancelled().await;
        None
    });
    event_stream(BodyExt::boxed(StreamBody::new(frames)))
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn json_result(message: &Value, result: &Value) -> Response<Body> {
    json_message(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

fn json_message(message: &Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(message.to_string())).boxed());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_bounded() {
        let state = State {
            sessions: DashMap::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": legacy::INITIALIZE});
        for _ in 0..SESSIONS_MAX {
            assert_eq!(open(&state, &initialize).status(), StatusCode::OK);
        }
        let refused = open(&state, &initialize);
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(state.sessions.len(), SESSIONS_MAX);
    }
}
