//! Headers that mirror the body, and those that do not.

use serde_json::json;

use super::{MISMATCH, SERVED, VERSION_UNKNOWN, check, echo, untouched};
use crate::support::client::META_VERSION;
use crate::support::puppet::Ending;
use crate::support::stage::Stage;

#[tokio::test]
async fn the_version_and_the_method() {
    let stage = Stage::new().await;
    let right = || echo(&stage.client);
    let with = |name: &str, value: &str| right().header(name, value);
    let version = "mcp-protocol-version";
    let two_methods = right().also("mcp-method", "tools/list");
    check(
        MISMATCH,
        vec![
            ("no version", right().without(version)),
            ("another version", with(version, "2025-11-25")),
            ("no method", right().without("mcp-method")),
            ("an empty method", with("mcp-method", "")),
            ("another method", with("mcp-method", "tools/list")),
            (
                "another case of the method",
                with("mcp-method", "Tools/Call"),
            ),
            ("two methods", two_methods),
        ],
    )
    .await;
    untouched(stage).await;
}

#[tokio::test]
async fn the_name() {
    let stage = Stage::new().await;
    let right = || echo(&stage.client);
    let with = |value: &str| right().header("mcp-name", value);
    check(
        MISMATCH,
        vec![
            ("none", right().without("mcp-name")),
            ("another", with("other")),
            ("two", right().also("mcp-name", "other")),
            ("another, encoded", with("=?base64?b3RoZXI=?=")),
            ("encoded wrongly", with("=?base64?***?=")),
            ("encoded, and not UTF-8", with("=?base64?/w==?=")),
            ("encoded, under another case", with("=?BASE64?ZWNobw==?=")),
            ("bytes beyond ASCII", with("echö")),
        ],
    )
    .await;
    for (method, params) in [
        ("prompts/get", json!({"name": "greeting"})),
        ("resources/read", json!({"uri": "puppet://secret"})),
    ] {
        let request = stage.client.request(method, params);
        let none = request.clone().without("mcp-name");
        let other = request.header("mcp-name", "other");
        check(MISMATCH, vec![("none", none), ("another", other)]).await;
    }
    untouched(stage).await;
}

#[tokio::test]
async fn headers_that_mirror_the_body() {
    let stage = Stage::new().await;
    let client = &stage.client;
    stage
        .puppet
        .tool("grüße, 世界", |_| async { Ending::text("hello") });
    check(
        SERVED,
        vec![
            (
                "the name, encoded without need",
                echo(client).header("mcp-name", "=?base64?ZWNobw==?="),
            ),
            (
                "a name that needs it",
                client.tool("grüße, 世界", json!({})),
            ),
            ("no Accept", echo(client).without("accept")),
            (
                "a session from another life",
                echo(client).header("mcp-session-id", "x"),
            ),
            ("a last event", echo(client).header("last-event-id", "x")),
            (
                "without clientInfo",
                echo(client).without_meta("io.modelcontextprotocol/clientInfo"),
            ),
        ],
    )
    .await;

    stage.ends().await;
}

#[tokio::test]
async fn versions_that_are_not_served() {
    let stage = Stage::new().await;
    for version in ["2025-11-25", "2024-11-05", "2027-01-01", "DRAFT", ""] {
        let request = echo(&stage.client)
            .header("mcp-protocol-version", version)
            .meta(META_VERSION, json!(version));
        let reply = request.send().await;
        if version.is_empty() {
            assert_eq!(reply.status, 400);
            continue;
        }
        let error = reply.error(VERSION_UNKNOWN.0, -32022);
        assert_eq!(error["data"]["supported"], json!(["2026-07-28"]));
        assert_eq!(error["data"]["requested"], version);
    }
    untouched(stage).await;
}
