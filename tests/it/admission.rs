//! Admission: what is refused before it reaches a server, with which status and which code.
//!
//! The table of the protocol map, row by row. Every refusal is checked for the echoed id by the client.

use serde_json::{Value, json};

use crate::support::client::{Client, Request};
use crate::support::puppet::Manner;
use crate::support::stage::Stage;
use crate::support::text_of;

mod headers;
mod params;

/// What a row expects: a status, and a code if there must be an error.
type Expected = (u16, Option<i64>);

const NOT_ALLOWED: Expected = (405, None);
const FORBIDDEN: Expected = (403, None);
const TOO_LARGE: Expected = (413, Some(-32600));
const NO_JSON: Expected = (400, Some(-32700));
const NO_REQUEST: Expected = (400, Some(-32600));
const MISMATCH: Expected = (400, Some(-32020));
const VERSION_UNKNOWN: Expected = (400, Some(-32022));
const PARAMS: Expected = (400, Some(-32602));
const NO_METHOD: Expected = (404, Some(-32601));
const ACCEPTED: Expected = (202, None);
const SERVED: Expected = (200, None);

async fn check((status, code): Expected, rows: Vec<(&str, Request)>) {
    for (row, request) in rows {
        let reply = request.send().await;
        assert_eq!(reply.status, status, "{row}: {}", reply.message);
        match code {
            Some(code) => assert_eq!(
                reply.message["error"]["code"], code,
                "{row}: {}",
                reply.message
            ),
            None if status == 202 => assert!(reply.body.is_empty(), "{row}: {}", reply.message),
            None if status == 200 => {
                reply.result();
            }
            None => {}
        }
    }
}

/// None of the refused requests may have opened a session or started anything.
async fn untouched(stage: Stage) {
    let records = stage.puppet.ledger().records.len();
    assert_eq!(records, 0, "a refused request reached the server");
    stage.ends().await;
}

fn echo(client: &Client) -> Request {
    client.tool("echo", json!({"a": 1}))
}

#[tokio::test]
async fn http_methods_and_paths() {
    let stage = Stage::new().await;
    let client = &stage.client;
    check(
        NOT_ALLOWED,
        vec![
            ("GET with a body", echo(client).verb("GET")),
            ("GET", echo(client).verb("GET").raw("")),
            ("DELETE", echo(client).verb("DELETE").raw("")),
            ("PUT", echo(client).verb("PUT")),
        ],
    )
    .await;
    check(
        (404, None),
        vec![
            ("another path", echo(client).path("/other").raw("")),
            ("the root", echo(client).path("/").raw("")),
        ],
    )
    .await;

    let reply = echo(client).verb("GET").send().await;
    assert_eq!(reply.head.value("allow"), Some("POST"));
    untouched(stage).await;
}

#[tokio::test]
async fn origins_and_hosts() {
    let stage = Stage::with(|config| {
        config
            .top("allowed_origins", r#"["https://app.example"]"#)
            .top("allowed_hosts", r#"["mcp.example"]"#)
    })
    .await;
    let client = &stage.client;
    let from = |origin: &str| echo(client).header("origin", origin);
    let to = |host: &str| echo(client).header("host", host);
    let port = stage.gateway.addr().port();
    check(
        FORBIDDEN,
        vec![
            ("a foreign origin", from("https://evil.example")),
            ("an opaque origin", from("null")),
            (
                "an allowed name as a part of another",
                from("https://app.example.evil.example"),
            ),
            (
                "an allowed name under another scheme",
                from("http://app.example"),
            ),
            (
                "loopback as a part of another",
                from("http://localhost.evil.example"),
            ),
            ("a foreign host", to("evil.example")),
            (
                "a foreign host with our port",
                to(&format!("evil.example:{port}")),
            ),
            ("a host that begins like ours", to("127.0.0.1.evil.example")),
        ],
    )
    .await;

    assert_eq!(
        stage.puppet.ledger().records.len(),
        0,
        "a refused request reached the server"
    );
    check(
        SERVED,
        vec![
            ("an allowed origin", from("https://app.example")),
            (
                "a loopback origin",
                from(&format!("http://127.0.0.1:{port}")),
            ),
            ("a loopback origin by name", from("http://localhost:3000")),
            ("an allowed host", to("mcp.example")),
            ("an allowed host with a port", to("mcp.example:443")),
            ("localhost", to(&format!("localhost:{port}"))),
            ("loopback of IPv6", to(&format!("[::1]:{port}"))),
        ],
    )
    .await;

    stage.ends().await;
}

#[tokio::test]
async fn bodies_that_are_no_request() {
    let stage = Stage::with(|config| config.limit("body_bytes_max", 1000)).await;
    let client = &stage.client;
    let raw = |bytes: &str| echo(client).raw(bytes);
    let fits = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"x\":\"{}\"",
        "x".repeat(960)
    );
    let chunked = |bytes: usize| {
        let body = format!("{bytes:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(bytes));
        echo(client)
            .header("transfer-encoding", "chunked")
            .raw(body)
    };
    check(
        TOO_LARGE,
        vec![
            ("too large", raw(&"x".repeat(1001))),
            ("too large, chunked", chunked(1001)),
        ],
    )
    .await;
    check(
        NO_JSON,
        vec![
            ("just not too large, chunked", chunked(1000)),
            ("nothing", raw("")),
            ("words", raw("hello")),
            ("cut off", raw(&fits)),
            (
                "not UTF-8",
                echo(client).raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"),
            ),
            ("two objects", raw("{}{}")),
            ("nested without end", raw(&"[".repeat(1000))),
        ],
    )
    .await;
    check(
        NO_REQUEST,
        vec![
            ("an empty batch", raw("[]")),
            // Legal JSON, but no string that any text could be.
            (
                "a lone surrogate",
                raw(r#"{"jsonrpc":"2.0","method":"\ud800"}"#),
            ),
            (
                "a batch",
                raw(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#),
            ),
        ],
    )
    .await;

    untouched(stage).await;
}

#[tokio::test]
async fn deep_nesting_is_no_harm() {
    let stage = Stage::new().await;
    let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
    let echo = echo(&stage.client);
    let body = echo.message().to_string();
    let deep = body.replace(r#""a":1"#, &format!(r#""a":{open}{close}"#));
    assert_ne!(deep, body);
    let reply = echo.clone().raw(deep).open().await;
    assert!(reply.status().await.is_some(), "the gateway answers");
    echo.send().await.result();
    // The puppet cannot read such depths and would complain.
    stage.gateway.settled().await;
}

#[tokio::test]
async fn messages_that_are_no_request() {
    let stage = Stage::new().await;
    let client = &stage.client;
    let with = |key: &str, value: Value| echo(client).edit(|body| body[key] = value);
    let without = |key: &str| {
        echo(client).edit(|body| {
            body.as_object_mut().unwrap().remove(key);
        })
    };
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    check(
        NO_REQUEST,
        vec![
            ("no jsonrpc", without("jsonrpc")),
            ("jsonrpc 1.0", with("jsonrpc", json!("1.0"))),
            ("jsonrpc as a number", with("jsonrpc", json!(2.0))),
            ("null as id", with("id", Value::Null)),
            ("a boolean as id", with("id", json!(true))),
            ("a fraction as id", with("id", json!(1.5))),
            ("an object as id", with("id", json!({}))),
            ("an array as id", with("id", json!([1]))),
            ("no method", without("method")),
            ("a number as method", with("method", json!(5))),
            ("a response", echo(client).edit(|body| *body = response)),
        ],
    )
    .await;

    untouched(stage).await;
}

#[tokio::test]
async fn ids_come_back_as_they_were() {
    let stage = Stage::new().await;
    for id in [
        json!("a"),
        json!(""),
        json!(0),
        json!(-7),
        json!(9_007_199_254_740_993_u64),
        json!("1"),
    ] {
        echo(&stage.client).id(id.clone()).send().await.result();
        let refused = echo(&stage.client).id(id).without("mcp-name").send().await;
        refused.error(400, -32020);
    }
    stage.ends().await;
}

#[tokio::test]
async fn methods_that_do_not_exist() {
    let stage = Stage::new().await;
    let client = &stage.client;
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "roots/list",
        "elicitation/create",
        "tasks/list",
        "tools/call/",
        "TOOLS/CALL",
        "nope",
    ] {
        let request = client.request(method, json!({}));
        check(NO_METHOD, vec![(method, request)]).await;
    }
    untouched(stage).await;
}

#[tokio::test]
async fn notifications_are_accepted() {
    let stage = Stage::new().await;
    let client = &stage.client;
    let cancelled = json!({
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 1, "reason": "closed"},
    });
    let notification = client.request("notifications/cancelled", json!({}));
    let notification = notification.edit(|body| *body = cancelled);
    check(
        ACCEPTED,
        vec![
            ("with Mcp-Method", notification.clone()),
            (
                "without Mcp-Method, as real clients send it",
                notification.without("mcp-method"),
            ),
        ],
    )
    .await;

    untouched(stage).await;
}

#[tokio::test]
async fn strangers_are_refused_where_the_operator_says_so() {
    let refusing = |config: crate::support::gateway::Config| config.top("anonymous", "\"refuse\"");
    let stage = Stage::set(Manner::default(), refusing).await;
    let reply = echo(&stage.client).send().await;
    assert!(reply.status >= 400, "{}", reply.message);
    assert_eq!(stage.puppet.ledger().records.len(), 0);
    let alice = stage.client.clone().named("alice");
    let served = echo(&alice).send().await;
    assert_eq!(text_of(served.result()), r#"{"a":1}"#);
    stage.ends().await;
}

/// Ten times what a body may have, sent by a client that does not listen before it has said all.
#[tokio::test]
async fn a_body_of_ten_mebibytes_is_refused() {
    let stage = Stage::new().await;
    let filler = "x".repeat(10 << 20);
    let request = stage.client.tool("echo", json!({"a": filler}));
    request.send().await.error(413, -32600);
    echo(&stage.client).send().await.result();
    stage.ends().await;
}

/// A body just below the limit goes through, and comes back.
#[tokio::test]
async fn a_body_of_four_mebibytes_is_served() {
    let stage = Stage::new().await;
    let filler = "x".repeat((4 << 20) - 2000);
    let request = stage.client.tool("echo", json!({"a": filler}));
    let reply = request.send().await;
    assert_eq!(text_of(reply.result()), json!({"a": filler}).to_string());
    stage.ends().await;
}
