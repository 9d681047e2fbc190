//! Lines that are no request, too long, or one too many.

use serde_json::{Value, json};

use super::{Desk, waiting};
use crate::support::text_of;

#[tokio::test]
async fn what_is_no_request_is_refused_and_the_stream_goes_on() {
    let mut desk = Desk::new().await;
    let good = desk.tool("echo").message().clone();
    let with = |key: &str, value: Value| {
        let mut message = good.clone();
        message[key] = value;
        message.to_string()
    };
    let versioned = |version: &str| good.to_string().replace("2026-07-28", version);
    for (line, code, id) in [
        ("words".to_owned(), -32700, Value::Null),
        (r#"{"jsonrpc":"2.0","id":1"#.to_owned(), -32700, Value::Null),
        ("\u{0}".to_owned(), -32700, Value::Null),
        ("[]".to_owned(), -32600, Value::Null),
        (format!("[{good}]"), -32600, Value::Null),
        ("7".to_owned(), -32600, Value::Null),
        (with("id", Value::Null), -32600, Value::Null),
        (with("id", json!(1.5)), -32600, Value::Null),
        (with("jsonrpc", json!("1.0")), -32600, good["id"].clone()),
        (with("method", json!("nope")), -32601, good["id"].clone()),
        (with("method", json!("ping")), -32601, good["id"].clone()),
        (with("params", json!({})), -32602, good["id"].clone()),
        (with("params", json!([])), -32602, good["id"].clone()),
        (versioned("2025-11-25"), -32022, good["id"].clone()),
    ] {
        desk.gateway.write(format!("{line}\n")).await;
        let message = desk.gateway.next().await;
        assert_eq!(message["error"]["code"], code, "{line}: {message}");
        assert_eq!(message["id"], id, "{line}: {message}");
        let is_null = message.get("id").is_some_and(Value::is_null);
        assert!(!is_null, "an id that cannot be read is left out: {message}");
    }
    // Not UTF-8.
    desk.gateway.write(b"\"\xff\"\n").await;
    assert_eq!(desk.gateway.next().await["error"]["code"], -32700);
    assert_eq!(desk.puppet.ledger().records.len(), 0);
    let request = desk.sent("echo").await;
    desk.gateway.result(&request).await;
    desk.ends().await;
}

#[tokio::test]
async fn what_wants_no_answer_gets_none() {
    let mut desk = Desk::new().await;
    for line in [
        "",
        "  \r",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[7]}"#,
        r#"{"jsonrpc":"2.0","method":"no such thing"}"#,
        // Clients send no responses; an error with the same id could be taken for the answer to a request.
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,
    ] {
        desk.gateway.write(format!("{line}\n")).await;
    }
    let request = desk.sent("echo").await;
    desk.gateway.result(&request).await;
    desk.ends().await;
}

#[tokio::test]
async fn a_legacy_client_is_told_what_is_spoken_here() {
    let mut desk = Desk::new().await;
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    desk.gateway.say(&hello).await;
    let message = desk.gateway.next().await;
    let error = &message["error"];
    assert_eq!(
        (&message["id"], &error["code"]),
        (&json!(0), &json!(-32022))
    );
    let data = json!({"supported": ["2026-07-28"], "requested": "2025-06-18"});
    assert_eq!(error["data"], data);
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("2026-07-28"), "{said}");
    desk.ends().await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_skipped() {
    let mut desk = Desk::set(crate::support::puppet::Manner::default(), |config| {
        config.limit("body_bytes_max", 1000)
    })
    .await;
    // Far more than a pipe holds: it is read and dropped as it comes.
    let part = vec![b'x'; 1 << 20];
    for _ in 0..16 {
        desk.gateway.write(&part).await;
    }
    let message = desk.gateway.next().await;
    assert_eq!(
        message["error"]["code"], -32600,
        "before its end: {message}"
    );
    assert!(message.get("id").is_none(), "{message}");
    desk.gateway.write("\n").await;
    let request = desk.client.tool("echo", json!({"a": "b".repeat(400)}));
    desk.gateway.send(&request).await;
    desk.gateway.result(&request).await;
    let large = desk.client.tool("echo", json!({"a": "b".repeat(1000)}));
    desk.gateway.send(&large).await;
    assert_eq!(desk.gateway.next().await["error"]["code"], -32600);
    desk.ends().await;
}

#[tokio::test]
async fn a_request_is_read_however_it_is_cut() {
    let mut desk = Desk::new().await;
    let request = desk.tool("echo");
    let line = format!("{}\n", request.message());
    for byte in line.as_bytes().chunks(1) {
        desk.gateway.write(byte).await;
    }
    desk.gateway.result(&request).await;
    desk.ends().await;
}

#[tokio::test]
async fn an_id_that_is_in_use_is_refused() {
    let mut desk = Desk::new().await;
    let gate = waiting(&desk.puppet, "waits");
    let first = desk.sent("waits").await;
    let id = first.message()["id"].clone();
    let second = desk.tool("echo").id(id.clone());
    desk.gateway.send(&second).await;
    let message = desk.gateway.response(&second).await;
    assert_eq!(message["error"]["code"], -32600, "{message}");
    desk.started("waits", 1).await;
    gate.open();
    assert_eq!(text_of(&desk.gateway.result(&first).await), "waits");
    assert_eq!(desk.puppet.starts("echo"), 0);
    // Answered, it may be used again.
    desk.gateway.send(&second).await;
    desk.gateway.result(&second).await;
    desk.ends().await;
}

#[tokio::test]
async fn only_so_many_requests_run_at_once() {
    const REQUESTS_MAX: usize = 256;
    let mut desk = Desk::new().await;
    let gate = waiting(&desk.puppet, "waits");
    let client = desk.client.clone().able(json!({}));
    let mut running = Vec::new();
    for _ in 0..REQUESTS_MAX {
        let request = client.tool("waits", json!({}));
        desk.gateway.send(&request).await;
        running.push(request);
    }
    let one_more = client.tool("waits", json!({}));
    desk.gateway.send(&one_more).await;
    let message = desk.gateway.response(&one_more).await;
    assert_eq!(message["error"]["code"], -32603, "{message}");
    // A cancellation makes room.
    desk.started("waits", REQUESTS_MAX).await;
    desk.gateway.say(&super::cancellation(&running[0])).await;
    let echo = desk.sent("echo").await;
    desk.gateway.result(&echo).await;
    drop(gate);
    desk.gateway.shut();
    let ended = desk.gateway.ended().await;
    assert_eq!((ended.code, ended.rest.len()), (0, REQUESTS_MAX - 1));
    desk.puppet.settled().await;
}
