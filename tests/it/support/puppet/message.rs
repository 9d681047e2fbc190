//! What a POST to the puppet means, and what it must not.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::outgoing::Out;
use super::script::Call;
use super::{Given, Handshake, Session, Sessions, Shared};
use crate::support::http1::Head;

/// How many messages of a script wait for a slow reader.
const OUT_MAX: usize = 256;

/// The methods that clients of the legacy era may send.
const METHODS: [&str; 14] = [
    "initialize",
    "ping",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "completion/complete",
    "logging/setLevel",
    "tasks/list",
];

/// What a message is answered with.
pub(super) enum Reply {
    /// A whole response: status, extra header, body.
    Whole(u16, Option<(&'static str, String)>, Vec<u8>),
    /// What a script puts there.
    Scripted(mpsc::Receiver<Out>),
}

impl Reply {
    fn error(status: u16, why: &str) -> Self {
        let error =
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": why}});
        Self::Whole(status, None, error.to_string().into_bytes())
    }
}

/// Takes a message in.
pub(super) fn take(shared: &Arc<Shared>, head: &Head, message: &Value) -> Reply {
    check_headers(shared, head);
    if message["method"] == "initialize" {
        return initialize(shared, head, message);
    }
    let Some(session) = session_of(shared, head) else {
        return Reply::error(404, "no such session");
    };
    if !session.check(head) {
        return Reply::error(404, "session not found");
    }
    match (message["method"].as_str(), message.get("id")) {
        (None, Some(id)) => {
            session.answered(id, message);
            let given = Given {
                session: session.id.clone(),
                id: id.clone(),
                response: message.clone(),
            };
            shared.write(|ledger| ledger.answers.push(given));
            Reply::Whole(202, None, Vec::new())
        }
        (Some(method), None) => {
            notification(shared, &session, method, message);
            Reply::Whole(202, None, Vec::new())
        }
        (Some(method), Some(id)) => {
            let cancelled = session.requested(id);
            request(shared, session, method, message, cancelled)
        }
        (None, None) => {
            shared.violation(format!("no JSON-RPC message: {message}"));
            Reply::error(400, "no JSON-RPC message")
        }
    }
}

fn check_headers(shared: &Shared, head: &Head) {
    let accept = head.value("accept").unwrap_or_default();
    if !accept.contains("application/json") || !accept.contains("text/event-stream") {
        shared.violation(format!("a POST accepts {accept:?}"));
    }
    if head.value("content-type") != Some("application/json") {
        shared.violation(format!("a POST is {:?}", head.value("content-type")));
    }
}

fn initialize(shared: &Arc<Shared>, head: &Head, message: &Value) -> Reply {
    if head.value("mcp-session-id").is_some() {
        shared.violation("`initialize` names a session");
    }
    let params = &message["params"];
    if params["protocolVersion"] != "2025-11-25" || !params["capabilities"].is_object() {
        shared.violation(format!("`initialize` says {params}"));
    }
    if let Some(reply) = failed_handshake(shared, head, message) {
        return reply;
    }
    let session = Session::open(shared, head, message);
    let result = json!({
        "protocolVersion": shared.manner.revision,
        "capabilities": shared.manner.capabilities,
        "serverInfo": {"name": "puppet", "version": "1.0.0"},
        "instructions": "Pull the strings.",
    });
    let response = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let header = match shared.manner.sessions {
        Sessions::Given => Some(("mcp-session-id", session.id.clone())),
        Sessions::Without => None,
    };
    Reply::Whole(200, header, response.to_string().into_bytes())
}

fn failed_handshake(shared: &Arc<Shared>, head: &Head, message: &Value) -> Option<Reply> {
    let (out, scripted) = mpsc::channel(OUT_MAX);
    let json = |header, mut answer: Value| {
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = message["id"].clone();
        Reply::Whole(200, header, answer.to_string().into_bytes())
    };
    Some(match shared.manner.handshake {
        Handshake::Prompt => return None,
        Handshake::Stalls => {
            shared.tasks.spawn(async move { out.closed().await });
            Reply::Scripted(scripted)
        }
        Handshake::Cut => {
            let _ = out.try_send(Out::Cut);
            Reply::Scripted(scripted)
        }
        Handshake::Status(status) => Reply::Whole(status, None, Vec::new()),
        Handshake::Refused => json(
            None,
            json!({"error": {"code": -32603, "message": "not today"}}),
        ),
        Handshake::Malformed => {
            let session = Session::open(shared, head, message);
            let header = ("mcp-session-id", session.id.clone());
            json(Some(header), json!({"result": {"serverInfo": 5}}))
        }
    })
}

/// The session that a request belongs to. A puppet that gives none has the latest one in mind.
pub(super) fn session_of(shared: &Shared, head: &Head) -> Option<Arc<Session>> {
    let named = head.value("mcp-session-id");
    match (shared.manner.sessions, named) {
        (Sessions::Given, Some(id)) => {
            let session = shared.sessions().get(id).cloned();
            if session.is_none() {
                shared.violation(format!("session {id:?} never was"));
            }
            session
        }
        (Sessions::Given, None) => {
            // One that opens none is looked into: for another transport, for another era.
            if matches!(shared.manner.handshake, Handshake::Prompt) {
                shared.violation("a message names no session");
            }
            None
        }
        (Sessions::Without, named) => {
            if let Some(named) = named {
                shared.violation(format!("session {named:?} was never given"));
            }
            let number = shared.ledger.lock().unwrap().sessions_opened;
            shared.sessions().get(&format!("session-{number}")).cloned()
        }
    }
}

fn notification(shared: &Shared, session: &Session, method: &str, message: &Value) {
    match method {
        "notifications/initialized" => session.initialized(),
        "notifications/cancelled" => {
            let id = message["params"]["requestId"].clone();
            shared.write(|ledger| ledger.cancellations.push(message["params"].clone()));
            session.cancel(&id);
        }
        "notifications/roots/list_changed" | "notifications/progress" => {}
        other => shared.violation(format!("a client does not notify {other:?}")),
    }
}

fn request(
    shared: &Arc<Shared>,
    session: Arc<Session>,
    method: &str,
    message: &Value,
    cancelled: CancellationToken,
) -> Reply {
    if !METHODS.contains(&method) {
        shared.violation(format!("the legacy era has no method {method:?}"));
    }
    check_params(shared, &message["params"]);
    let params = &message["params"];
    let name = params["name"]
        .as_str()
        .or(params["uri"].as_str())
        .unwrap_or_default();
    let found = shared
        .scripts
        .lock()
        .unwrap()
        .get(&(method.to_owned(), name.to_owned()))
        .cloned();
    let Some(script) = found else {
        let outcome = unscripted(shared, method, name);
        let mut response = json!({"jsonrpc": "2.0", "id": message["id"]});
        match outcome {
            Ok(result) => response["result"] = result,
            Err(error) => response["error"] = error,
        }
        return Reply::Whole(200, None, response.to_string().into_bytes());
    };
    shared.write(|ledger| {
        let name = if name.is_empty() { method } else { name };
        ledger.starts.push((name.to_owned(), params.clone()));
    });
    let (out, scripted) = mpsc::channel(OUT_MAX);
    let call = Call::new(shared, session, message.clone(), out, cancelled);
    let end = shared.end.clone();
    shared.tasks.spawn(async move {
        tokio::select! {
            () = end.cancelled() => {}
            () = call.run(script) => {}
        }
    });
    Reply::Scripted(scripted)
}

/// What belongs to the modern era alone must not come through.
fn check_params(shared: &Shared, params: &Value) {
    let meta = params["_meta"].as_object();
    let reserved = meta.into_iter().flatten().map(|(key, _)| key.as_str());
    let mut foreign: Vec<_> = reserved
        .filter(|key| key.starts_with("io.modelcontextprotocol/"))
        .collect();
    let modern = ["inputResponses", "requestState"];
    foreign.extend(modern.into_iter().filter(|key| params.get(key).is_some()));
    if !foreign.is_empty() {
        shared.violation(format!("a legacy request carries {foreign:?}"));
    }
}

fn unscripted(shared: &Shared, method: &str, name: &str) -> Result<Value, Value> {
    let scripted = |of: &str| -> Vec<String> {
        let scripts = shared.scripts.lock().unwrap();
        let mut names: Vec<_> = scripts
            .keys()
            .filter(|(method, _)| method == of)
            .map(|(_, name)| name.clone())
            .collect();
        names.sort();
        names
    };
    match method {
        "ping" | "logging/setLevel" => Ok(json!({})),
        "tools/list" => {
            let tool = |name: String| json!({"name": name, "inputSchema": {"type": "object"}});
            let tools: Vec<_> = scripted("tools/call").into_iter().map(tool).collect();
            Ok(json!({"tools": tools}))
        }
        "prompts/list" => {
            let prompt = |name: String| json!({"name": name});
            let prompts: Vec<_> = scripted("prompts/get").into_iter().map(prompt).collect();
            Ok(json!({"prompts": prompts}))
        }
        "resources/list" => {
            let resource = |uri: String| json!({"uri": uri, "name": uri});
            let resources: Vec<_> = scripted("resources/read")
                .into_iter()
                .map(resource)
                .collect();
            Ok(json!({"resources": resources}))
        }
        "resources/templates/list" => Ok(json!({"resourceTemplates": []})),
        "completion/complete" => Ok(json!({"completion": {"values": ["one", "two"]}})),
        "tools/call" => Err(json!({"code": -32602, "message": format!("Unknown tool: {name}")})),
        "resources/read" => {
            let data = json!({"uri": name});
            Err(json!({"code": -32002, "message": "Resource not found", "data": data}))
        }
        _ => Err(json!({"code": -32601, "message": "Method not found"})),
    }
}
