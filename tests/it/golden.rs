//! Every kind of message of both eras and what becomes of it, on the wire of the real binary.
//!
//! Each case is a call: the client's request, what the server says meanwhile, the client's answers, the end. Everything
//! that passes is checked against the public schemas of both revisions and compared with a snapshot, whose differences
//! are reviewed (`cargo insta review`, or INSTA_UPDATE=always).

use std::sync::{Arc, LazyLock};

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::support::client::{Client, Reply};
use crate::support::gateway::Config;
use crate::support::puppet::{Ending, Manner, Out, Puppet, Record};

mod cases;

use cases::{Case, Say};

/// One revision's schema.
struct Schema {
    document: Value,
}

impl Schema {
    fn read(text: &str) -> Self {
        let document = serde_json::from_str(text).unwrap();
        Self { document }
    }

    /// The schema of one of its types.
    fn of(&self, name: &str) -> Validator {
        let defs = &self.document["$defs"];
        assert!(defs.get(name).is_some(), "no type {name}");
        let schema = json!({
            "$schema": self.document["$schema"], "$defs": defs, "$ref": format!("#/$defs/{name}"),
        });
        jsonschema::validator_for(&schema).unwrap()
    }

    /// Fails when a message is not of a type.
    fn check(&self, name: &str, message: &Value) {
        let validator = self.of(name);
        let errors: Vec<String> = validator
            .iter_errors(message)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "no {name}: {message}\n{errors:#?}");
    }
}

static LEGACY: LazyLock<Schema> =
    LazyLock::new(|| Schema::read(include_str!("../schemas/2025-11-25.json")));
static MODERN: LazyLock<Schema> =
    LazyLock::new(|| Schema::read(include_str!("../schemas/2026-07-28.json")));

/// What passed on one side, in order, without what is different every time.
fn plain(mut message: Value) -> Value {
    if let Some(state) = message.pointer_mut("/result/requestState") {
        *state = json!("<state>");
    }
    if let Some(state) = message.pointer_mut("/params/requestState") {
        *state = json!("<state>");
    }
    message
}

/// What went up, with ids that count from 1: each process begins somewhere else.
fn counted(mut up: Vec<Value>) -> Vec<Value> {
    let requests = up.iter().filter(|message| message.get("method").is_some());
    let first = requests.filter_map(|request| request["id"].as_u64()).min();
    let first = first.unwrap();
    for message in &mut up {
        for at in ["/id", "/params/requestId", "/params/_meta/progressToken"] {
            // The server's own ids are small.
            if let Some(id) = message.pointer_mut(at)
                && let Some(number) = id.as_u64().filter(|number| *number >= first)
            {
                *id = json!(number - first + 1);
            }
        }
    }
    up
}

/// The server's side of a case: says what it has to say, then ends.
async fn perform(call: crate::support::puppet::Call, case: Arc<Case>) -> Ending {
    let progress_token = call.request["params"]["_meta"]["progressToken"].clone();
    for say in &case.says {
        match say {
            Say::Notify(method, params) => {
                let mut params = params.clone();
                if params["progressToken"] == "theirs" {
                    params["progressToken"] = progress_token.clone();
                }
                let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
                LEGACY.check("ServerNotification", &message);
                call.send(message).await;
            }
            Say::Ask(method, params) => {
                let asked = json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params});
                LEGACY.check("ServerRequest", &asked);
                call.ask(method, params.clone()).await;
            }
            Say::Other(method, params) => {
                call.ask(method, params.clone()).await;
            }
        }
    }
    case.end.clone()
}

/// What the client sends and what it gets, leg by leg.
async fn converse(client: &Client, case: &Case) -> (Vec<Value>, Vec<Value>) {
    let mut request = client.request(case.method, case.params.clone());
    for (key, value) in &case.meta {
        request = request.meta(key, value.clone());
    }
    let (mut sent, mut heard) = (vec![request.message().clone()], Vec::new());
    let mut reply = request.send().await;
    for responses in &case.answers {
        heard.extend(told(&reply));
        request = request.again(&reply.asked(), responses.clone());
        sent.push(request.message().clone());
        reply = request.send().await;
    }
    heard.extend(told(&reply));
    (sent, heard)
}

fn told(reply: &Reply) -> Vec<Value> {
    let mut told = reply.notes.clone();
    told.push(reply.message.clone());
    told
}

/// What the gateway says to a modern client, by the schema of its revision.
fn check_modern(case: &Case, message: &Value) {
    if message.get("method").is_some() {
        MODERN.check("ServerNotification", message);
    } else if let Some(result) = message.get("result") {
        let name = if result["resultType"] == "input_required" {
            "InputRequiredResult"
        } else {
            case.result
        };
        MODERN.check(name, result);
        MODERN.check("JSONRPCResultResponse", message);
    } else {
        MODERN.check("JSONRPCErrorResponse", message);
        let code = message["error"]["code"].as_i64();
        if code == Some(-32021) {
            MODERN.check("MissingRequiredClientCapabilityError", message);
        }
    }
}

/// What the gateway says to a legacy server, by the schema of its revision.
fn check_legacy(message: &Value) {
    match (message.get("method"), message.get("id")) {
        (Some(_), Some(_)) => LEGACY.check("ClientRequest", message),
        (Some(_), None) => LEGACY.check("ClientNotification", message),
        (None, _) if message.get("result").is_some() => {
            LEGACY.check("JSONRPCResultResponse", message);
            LEGACY.check("ClientResult", &message["result"]);
        }
        (None, _) => LEGACY.check("JSONRPCErrorResponse", message),
    }
}

async fn run(case: Case) {
    let manner = Manner {
        capabilities: json!({
            "tools": {"listChanged": true}, "prompts": {}, "resources": {"subscribe": true},
            "completions": {}, "logging": {}, "tasks": {}, "experimental": {"x": {}},
        }),
        ..Manner::default()
    };
    let puppet = Puppet::start(manner).await;
    let case = Arc::new(case);
    let acted = Arc::clone(&case);
    let named = |key: &str| case.params[key].as_str().map(str::to_owned);
    let name = named("name").or(named("uri")).unwrap_or_default();
    puppet.on(case.method, &name, move |call| {
        perform(call, Arc::clone(&acted))
    });
    let gateway = Config::of(&puppet).start().await;
    let client = Client::of(&gateway).able(case.capabilities.clone());
    let (sent, heard) = converse(&client, &case).await;
    assert_eq!(gateway.terminate().await, 0);
    puppet.settled().await;
    for request in &sent {
        MODERN.check("ClientRequest", request);
    }
    for message in &heard {
        check_modern(&case, message);
    }
    let posted = |record: &&Record| record.verb == "POST";
    let records = puppet.ledger().records.clone();
    let up: Vec<Value> = records
        .iter()
        .filter(posted)
        .map(|record| record.body.clone())
        .collect();
    up.iter().for_each(check_legacy);
    let plain = |messages: Vec<Value>| messages.into_iter().map(plain).collect::<Vec<_>>();
    // The handshake and the list of tools are the same in every case, and have one of their own.
    let is_own = |message: &Value| {
        let method = message["method"].as_str().unwrap_or_default();
        let is_setup = matches!(method, "initialize" | "notifications/initialized")
            || (method == "tools/list" && case.method != "tools/list");
        case.name == "discover" || !is_setup
    };
    let transcript = json!({
        "1 client to gateway": plain(sent),
        "2 gateway to server": counted(up).into_iter().filter(is_own).collect::<Vec<_>>(),
        "3 server to gateway": case.said(),
        "4 gateway to client": plain(heard),
    });
    insta::with_settings!({snapshot_path => "golden/snapshots", prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_json_snapshot!(case.name, transcript);
    });
}

/// The schemas see what is wrong: without this the other tests would prove nothing.
#[test]
fn the_schemas_see_what_is_wrong() {
    let is_valid = |schema: &Schema, name: &str, message: Value| schema.of(name).is_valid(&message);
    let result = json!({"resultType": "complete", "content": []});
    assert!(is_valid(&MODERN, "CallToolResult", result));
    assert!(!is_valid(&MODERN, "CallToolResult", json!({"content": []})));
    assert!(!is_valid(
        &MODERN,
        "ListToolsResult",
        json!({"resultType": "complete", "tools": []})
    ));
    assert!(!is_valid(
        &MODERN,
        "InputRequiredResult",
        json!({"resultType": "input_required", "inputRequests": {"k": {"method": "ping"}}})
    ));
    assert!(!is_valid(
        &LEGACY,
        "ClientRequest",
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}})
    ));
    assert!(!is_valid(
        &LEGACY,
        "ServerNotification",
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
    ));
}

/// What a subscription carries, from its acknowledgement to its end.
#[tokio::test]
async fn subscription() {
    let manner = Manner {
        capabilities: json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}}),
        ..Manner::default()
    };
    let puppet = Puppet::start(manner).await;
    puppet.on("resources/subscribe", "arena://r", |_| async {
        Ending::Result(json!({}))
    });
    let gateway = Config::of(&puppet).start().await;
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["arena://r"]});
    let request =
        Client::of(&gateway).request("subscriptions/listen", json!({"notifications": filter}));
    MODERN.check("SubscriptionsListenRequest", request.message());
    let mut leg = request.open().await;
    MODERN.check("SubscriptionsAcknowledgedNotification", &leg.event().await);
    let session = puppet.sessions()[0].clone();
    for (method, name, params) in [
        (
            "notifications/tools/list_changed",
            "ToolListChangedNotification",
            json!({"_meta": {"k": 1}}),
        ),
        (
            "notifications/resources/updated",
            "ResourceUpdatedNotification",
            json!({"uri": "arena://r"}),
        ),
    ] {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        LEGACY.check(name, &message);
        session.put(Out::Event(message.to_string())).await;
        MODERN.check(name, &leg.event().await);
    }
    gateway.signal_end();
    let end = leg.finish().await;
    MODERN.check("SubscriptionsListenResultResponse", &end.message);
    assert_eq!(gateway.ended().await, 0);
    puppet.settled().await;
    let records = puppet.ledger().records.clone();
    records
        .iter()
        .filter(|record| record.verb == "POST")
        .for_each(|record| check_legacy(&record.body));
}

/// Each refusal of admission is an error of the modern schema.
#[tokio::test]
async fn refusals() {
    let puppet = Puppet::start(Manner::default()).await;
    let gateway = Config::of(&puppet).start().await;
    let client = Client::of(&gateway);
    let list = || client.request("tools/list", json!({}));
    let version = "io.modelcontextprotocol/protocolVersion";
    let unsupported = list()
        .header("mcp-protocol-version", "v999")
        .meta(version, json!("v999"));
    let ping = client.request("ping", json!({}));
    for (name, request, status) in [
        (
            "HeaderMismatchError",
            list().header("mcp-method", "tools/call"),
            400,
        ),
        ("UnsupportedProtocolVersionError", unsupported, 400),
        ("InvalidParamsError", list().without_meta(version), 400),
        ("MethodNotFoundError", ping, 404),
        ("ParseError", list().raw("{"), 400),
        ("InvalidRequestError", list().raw("[]"), 400),
    ] {
        let reply = request.send().await;
        assert_eq!(reply.status, status, "{name}");
        MODERN.check("JSONRPCErrorResponse", &reply.message);
        // Some of these types are the whole message, some the error in it.
        let is_whole = MODERN.document["$defs"][name]["properties"]
            .get("error")
            .is_some();
        let part = if is_whole {
            &reply.message
        } else {
            &reply.message["error"]
        };
        MODERN.check(name, part);
    }
    assert_eq!(gateway.terminate().await, 0);
}

macro_rules! golden {
    ($($case:ident),+ $(,)?) => {
        $(#[tokio::test]
        async fn $case() {
            run(cases::$case()).await;
        })+

        /// Each case that is written down is also run.
        #[test]
        fn every_case_is_run() {
            let source = include_str!("golden/cases.rs");
            let written = source.matches(") -> Case {").count();
            assert_eq!(written, [$(stringify!($case)),+].len() + cases::HELPERS);
        }
    };
}

golden!(
    discover,
    tools_list,
    prompts_list,
    resources_list,
    templates_list,
    complete,
    plain_tool,
    plain_prompt,
    plain_resource,
    form,
    visit,
    sampling,
    sampling_with_tools,
    roots,
    declined,
    ping,
    unknown_request,
    progress_and_logs,
    resource_asks,
    prompt_asks,
    missing_capability,
    url_error,
    resource_not_found,
    other_error,
    reserved_error,
);
