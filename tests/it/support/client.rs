//! A modern client (2026-07-28) on bare bytes: right by default, wrong wherever a test says so.
//!
//! What comes back is checked against the spec every time: headers, framing, id, `resultType`, size of
//! `requestState`, order on the stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

mod leg;
mod reply;

pub(crate) use leg::OpenLeg;
pub(crate) use reply::{Asked, Reply};

use super::gateway::Gateway;

pub(crate) const VERSION: &str = "2026-07-28";
pub(crate) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Everything a client can be asked.
pub(crate) fn all_capabilities() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}})
}

/// One client: where it calls, as whom, and what it can be asked.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    addr: SocketAddr,
    authorization: Option<String>,
    capabilities: Value,
    next_id: Arc<AtomicU64>,
}

impl Client {
    /// A client without credentials that can be asked everything.
    pub(crate) fn of(gateway: &Gateway) -> Self {
        Self::at(gateway.addr())
    }

    pub(crate) fn at(addr: SocketAddr) -> Self {
        Self {
            addr,
            authorization: None,
            capabilities: all_capabilities(),
            next_id: Arc::new(AtomicU64::new(1)),
        }
    }

    /// The same client as somebody.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.authorization = Some(format!("Bearer {name}"));
        self
    }

    /// The same client with other capabilities.
    pub(crate) fn able(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// A correct request. `params` lacks `_meta`.
    pub(crate) fn request(&self, method: &str, mut params: Value) -> Request {
        params["_meta"] = json!({
            META_VERSION: VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1.0.0"},
            META_CAPABILITIES: self.capabilities,
        });
        let id = json!(self.next_id.fetch_add(1, Ordering::Relaxed));
        let mut request = Request {
            client: self.clone(),
            verb: "POST".to_owned(),
            path: "/mcp".to_owned(),
            headers: Vec::new(),
            body: Body::Json(
                json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
            ),
        }
        .header("host", &self.addr.to_string())
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", VERSION)
        .header("mcp-method", method);
        let named_by = if method == "resources/read" {
            "uri"
        } else {
            "name"
        };
        if matches!(method, "tools/call" | "prompts/get" | "resources/read")
            && let Some(name) = params[named_by].as_str()
        {
            request = request.header("mcp-name", &encoded(name));
        }
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// `tools/call`.
    pub(crate) fn tool(&self, name: &str, arguments: Value) -> Request {
        self.request("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// Calls a tool that takes no arguments.
    pub(crate) async fn call(&self, name: &str) -> Reply {
        self.tool(name, json!({})).send().await
    }
}

/// A value for `Mcp-Name` as the spec wants it encoded.
pub(crate) fn encoded(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && value.trim() == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    if is_plain {
        value.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(value))
    }
}

#[derive(Clone, Debug)]
enum Body {
    Json(Value),
    Bytes(Vec<u8>),
}

/// A request in the making.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    client: Client,
    verb: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Body,
}

impl Request {
    /// Sets a header, or replaces it.
    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        let mut request = self.without(name);
        request.headers.push((name.to_owned(), value.to_owned()));
        request
    }

    /// Adds a header that may be there already.
    pub(crate) fn also(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves a header out.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    /// Another HTTP method.
    pub(crate) fn verb(mut self, verb: &str) -> Self {
        verb.clone_into(&mut self.verb);
        self
    }

    pub(crate) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Changes the body and leaves the headers as they are.
    pub(crate) fn edit(mut self, change: impl FnOnce(&mut Value)) -> Self {
        if let Body::Json(body) = &mut self.body {
            change(body);
        }
        self
    }

    /// Other bytes as the body.
    pub(crate) fn raw(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = Body::Bytes(bytes.into());
        self
    }

    /// Sets a key of `_meta`.
    pub(crate) fn meta(self, key: &str, value: Value) -> Self {
        self.edit(|body| body["params"]["_meta"][key] = value)
    }

    /// Leaves a key of `_meta` out.
    pub(crate) fn without_meta(self, key: &str) -> Self {
        self.edit(|body| {
            body["params"]["_meta"].as_object_mut().unwrap().remove(key);
        })
    }

    /// Sets a member of `params`.
    pub(crate) fn param(self, key: &str, value: Value) -> Self {
        self.edit(|body| body["params"][key] = value)
    }

    pub(crate) fn id(self, id: Value) -> Self {
        self.edit(|body| body["id"] = id)
    }

    /// The re-issue of this request: a new id, the state and the responses.
    pub(crate) fn again(&self, asked: &Asked, responses: Value) -> Self {
        let id = self.client.next_id.fetch_add(1, Ordering::Relaxed);
        self.clone()
            .id(json!(id))
            .param("requestState", json!(asked.state))
            .param("inputResponses", responses)
    }

    /// The re-issue with one answer to the only question.
    pub(crate) fn answer(&self, asked: &Asked, response: Value) -> Self {
        let mut responses = Map::new();
        responses.insert(asked.key().to_owned(), response);
        self.again(asked, Value::Object(responses))
    }

    /// The same request from somebody else.
    pub(crate) fn by(self, client: &Client) -> Self {
        let authorization = client.authorization.clone();
        let mut request = self
            .without("authorization")
            .header("host", &client.addr.to_string());
        request.client = client.clone();
        match authorization {
            Some(authorization) => request.header("authorization", &authorization),
            None => request,
        }
    }

    /// The JSON-RPC message.
    pub(crate) fn message(&self) -> &Value {
        match &self.body {
            Body::Json(body) => body,
            Body::Bytes(_) => &Value::Null,
        }
    }

    /// The whole HTTP request.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let body = match &self.body {
            Body::Json(body) => body.to_string().into_bytes(),
            Body::Bytes(bytes) => bytes.clone(),
        };
        let mut head = format!("{} {} HTTP/1.1\r\n", self.verb, self.path);
        let given = |name: &str| self.headers.iter().any(|(known, _)| known == name);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !given("content-length") && !given("transfer-encoding") {
            head += &format!("content-length: {}\r\n", body.len());
        }
        let mut bytes = (head + "\r\n").into_bytes();
        bytes.extend(body);
        bytes
    }

    /// Sends it on a connection of its own and reads the reply to its end.
    pub(crate) async fn send(&self) -> Reply {
        self.open().await.finish().await
    }

    /// Sends it on a connection of its own; the leg stays open until it is finished or dropped.
    pub(crate) async fn open(&self) -> OpenLeg {
        self.try_open().await.unwrap()
    }

    /// The same, where perhaps nobody is there.
    pub(crate) async fn try_open(&self) -> std::io::Result<OpenLeg> {
        OpenLeg::try_open(self.client.addr, &self.bytes(), self.message().clone()).await
    }
}
