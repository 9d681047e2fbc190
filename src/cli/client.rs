//! A small modern (2026-07-28) client for people: one leg at a time, JSON or SSE back.
//!
//! It declares form and url elicitation, and roots when it was given any; it has no model and does not declare
//! sampling. Spec: 2026-07-28 basic/transports/streamable-http, basic/patterns/mrtr.

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Connections;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use holdfast::translate::result::META_REJECTED;
use holdfast::wire::error::ErrorObject;
use holdfast::wire::jsonrpc::Message;
use holdfast::wire::object::RawObject;
use holdfast::wire::sse::Decoder;
use holdfast::wire::{header, modern};

/// The largest message that is read: a person's terminal takes no more.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// From which level log messages are asked for: what a person may want to know while a tool runs.
const LOG_LEVEL: &str = "info";

/// A client of one server.
#[derive(Debug)]
pub(super) struct Client {
    connections: Connections<HttpConnector, Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
    capabilities: Value,
    /// Progress and log messages are not wanted.
    is_quiet: bool,
    next_id: u64,
}

/// How a leg ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The final result.
    Complete(Box<RawValue>),
    /// The server asks.
    InputRequired(Asked),
    /// A JSON-RPC error.
    Error(ErrorObject),
}

/// What a server asks.
#[derive(Debug)]
pub(super) struct Asked {
    /// The raw `inputRequests` object; `{}` when there is none.
    pub(super) requests: Box<RawValue>,
    /// What the re-issue has to bring back.
    pub(super) state: Option<String>,
    /// Why answers given before were not taken, by key (holdfast says so in `_meta`).
    pub(super) rejected: Map<String, Value>,
}

impl Asked {
    /// There is nothing to answer and nothing to bring back: re-issuing would only run the tool again.
    pub(super) fn is_empty(&self) -> bool {
        self.state.is_none()
            && RawObject::of(&self.requests).is_ok_and(|requests| requests.is_empty())
    }
}

impl Client {
    /// A client of the server at `url`; `headers` go out with every request.
    pub(super) fn new(url: &str, headers: HeaderMap, has_roots: bool) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().unwrap_or_default();
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            bail!("{url:?} is no URL of the form http://HOST:PORT/mcp");
        }
        let mut capabilities = json!({"elicitation": {"form": {}, "url": {}}});
        if has_roots {
            capabilities["roots"] = json!({});
        }
        let connections = Connections::builder(TokioExecutor::new()).build_http();
        Ok(Self {
            connections,
            uri,
            headers,
            capabilities,
            is_quiet: false,
            next_id: 1,
        })
    }

    /// The same without asking for progress and log messages.
    pub(super) fn quiet(self) -> Self {
        Self {
            is_quiet: true,
            ..self
        }
    }

    /// The next request of a method with these params, as a JSON-RPC message.
    pub(super) fn message(&mut self, method: &str, mut params: Map<String, Value>) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        let mut meta = json!({
            modern::META_PROTOCOL_VERSION: modern::PROTOCOL_VERSION,
            modern::META_CLIENT_INFO: {"name": "holdfast", "version": env!("CARGO_PKG_VERSION")},
            modern::META_CLIENT_CAPABILITIES: self.capabilities,
        });
        if !self.is_quiet {
            meta[modern::META_PROGRESS_TOKEN] = id.into();
            meta[modern::META_LOG_LEVEL] = LOG_LEVEL.into();
        }
        params.insert("_meta".to_owned(), meta);
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    /// Sends one request and reads its answer; `note` hears the notifications that come before it.
    pub(super) async fn leg(
        &self,
        message: &Value,
        note: &mut (dyn FnMut(&str, &Value) + Send),
    ) -> anyhow::Result<Outcome> {
        let request = self.request(message)?;
        let response = self.connections.request(request).await;
        let response = response.with_context(|| format!("cannot reach {}", self.uri))?;
        let status = response.status();
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/event-stream"));
        let mut body = response.into_body();
        let mut decoder = Decoder::new(MESSAGE_BYTES_MAX);
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.context("the answer broke off")?.into_data() else {
                continue;
            };
            if !is_stream {
                if whole.len() + data.len() > MESSAGE_BYTES_MAX {
                    bail!("the answer is too large");
                }
                whole.extend_from_slice(&data);
                continue;
            }
            decoder.feed(data);
            while let Some(event) = decoder.next_event()? {
                if let Some(outcome) = read(&event.data, note)? {
                    return Ok(outcome);
                }
            }
        }
        if is_stream {
            bail!("the answer ended without a response");
        }
        read(&whole, note)
            .with_context(|| format!("HTTP status {status}"))?
            .ok_or_else(|| anyhow!("HTTP status {status} and no JSON-RPC response"))
    }

    fn request(&self, message: &Value) -> anyhow::Result<Request<Full<Bytes>>> {
        let method = message["method"].as_str().unwrap_or_default();
        let mut request = Request::new(Full::new(Bytes::from(message.to_string())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        for (name, value) in [
            (ACCEPT, "application/json, text/event-stream"),
            (CONTENT_TYPE, "application/json"),
            (
                HeaderName::from_static(header::PROTOCOL_VERSION),
                modern::PROTOCOL_VERSION,
            ),
            (HeaderName::from_static(header::METHOD), method),
        ] {
            headers.insert(name, HeaderValue::from_str(value)?);
        }
        let named_by = modern::Method::named(method).and_then(modern::Method::named_by);
        if let Some(name) = named_by.and_then(|member| message["params"][member].as_str()) {
            let name = HeaderValue::from_str(&header::encode(name))?;
            headers.insert(HeaderName::from_static(header::NAME), name);
        }
        Ok(request)
    }
}

/// Reads one message: notifications are noted, a response is an outcome.
fn read(
    message: &[u8],
    note: &mut (dyn FnMut(&str, &Value) + Send),
) -> anyhow::Result<Option<Outcome>> {
    match Message::parse(message).context("the server sent something that is no JSON-RPC")? {
        Message::Notification { method, params } => {
            let params = params.map_or(Ok(Value::Null), |raw| serde_json::from_str(raw.get()))?;
            note(&method, &params);
            Ok(None)
        }
        Message::Result { result, .. } => Ok(Some(outcome(result)?)),
        Message::Error { error, .. } => Ok(Some(Outcome::Error(error))),
        Message::Request { .. } => bail!(
            "the server sent a request, which this era does not know: it may be a legacy server, which wants holdfast in front"
        ),
    }
}

fn outcome(result: &RawValue) -> anyhow::Result<Outcome> {
    let members = RawObject::of(result).context("the result is no object")?;
    match members.string("resultType").as_deref() {
        None | Some(modern::RESULT_COMPLETE) => Ok(Outcome::Complete(result.to_owned())),
        Some(modern::RESULT_INPUT_REQUIRED) => {
            let none = RawValue::from_string("{}".to_owned())?;
            let meta = members
                .member("_meta")
                .and_then(|raw| RawObject::of(raw).ok());
            let rejected = meta.and_then(|meta| meta.member(META_REJECTED));
            Ok(Outcome::InputRequired(Asked {
                requests: members
                    .member("inputRequests")
                    .map_or(none, ToOwned::to_owned),
                state: members.string("requestState").map(Into::into),
                rejected: rejected
                    .and_then(|raw| serde_json::from_str(raw.get()).ok())
                    .unwrap_or_default(),
            }))
        }
        Some(other) => bail!("the server answered with a result of type {other:?}"),
    }
}

/// The params of a re-issue: those of the first leg with the answers and the state.
pub(super) fn reissue(
    params: &Map<String, Value>,
    responses: Map<String, Value>,
    state: Option<&str>,
) -> Map<String, Value> {
    let mut params = params.clone();
    if !responses.is_empty() {
        params.insert("inputResponses".to_owned(), Value::Object(responses));
    }
    if let Some(state) = state {
        params.insert("requestState".to_owned(), state.into());
    }
    params
}
