//! Calls without questions: translated, in the right form, byte for byte where nothing has to change.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::client::META_LOG_LEVEL;
use crate::support::gateway::Gateway;
use crate::support::puppet::{
    Answers, Ending, EventIds, GeneralStream, Manner, Out, Puppet, Sessions,
};
use crate::support::stage::{Stage, name_schema};
use crate::support::{accept, eventually, form, nothing_is_left, text, text_of};

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

fn is_signed(result: &Value) {
    let info = json!({"name": "puppet", "version": "1.0.0"});
    assert_eq!(result["_meta"][SERVER_INFO], info, "{result}");
}

fn is_fresh_for(result: &Value, ttl_ms: u64, scope: &str) {
    let hints = (&result["ttlMs"], &result["cacheScope"]);
    assert_eq!(hints, (&json!(ttl_ms), &json!(scope)), "{result}");
}

#[tokio::test]
async fn discovery_says_what_the_handshake_said() {
    let manner = Manner {
        capabilities: json!({"tools": {"listChanged": true}, "logging": {}, "tasks": {"list": {}}}),
        ..Manner::default()
    };
    let stage = Stage::of(manner).await;
    let reply = stage
        .client
        .request("server/discover", json!({}))
        .send()
        .await;
    let result = reply.result();
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(
        result["capabilities"],
        json!({"tools": {"listChanged": true}, "logging": {}})
    );
    assert_eq!(result["instructions"], "Pull the strings.");
    is_signed(result);
    is_fresh_for(result, 0, "private");
    stage.ends().await;
}

#[tokio::test]
async fn every_method_is_served() {
    let stage = Stage::with(|config| {
        config
            .backend("ttl", "\"90s\"")
            .backend("cache_scope", "\"public\"")
    })
    .await;
    let client = &stage.client;
    stage.puppet.on("prompts/get", "greeting", |_| async {
        Ending::Result(json!({"messages": []}))
    });
    stage
        .puppet
        .on("resources/read", "puppet://secret", |_| async {
            Ending::Result(json!({"contents": []}))
        });
    let reference = json!({"type": "ref/prompt", "name": "greeting"});
    let complete = json!({"ref": reference, "argument": {"name": "a", "value": "o"}});
    for (method, params, member, is_cacheable) in [
        ("tools/list", json!({}), "tools", true),
        ("prompts/list", json!({}), "prompts", true),
        ("resources/list", json!({}), "resources", true),
        (
            "resources/templates/list",
            json!({}),
            "resourceTemplates",
            true,
        ),
        (
            "resources/read",
            json!({"uri": "puppet://secret"}),
            "contents",
            true,
        ),
        (
            "prompts/get",
            json!({"name": "greeting"}),
            "messages",
            false,
        ),
        ("completion/complete", complete, "completion", false),
    ] {
        let reply = client.request(method, params).send().await;
        let result = reply.result();
        assert!(result.get(member).is_some(), "{method}: {result}");
        is_signed(result);
        if is_cacheable {
            is_fresh_for(result, 90_000, "public");
        } else {
            assert!(result.get("ttlMs").is_none(), "{method}: {result}");
        }
        assert!(
            reply
                .head
                .value("content-type")
                .unwrap()
                .starts_with("application/json")
        );
    }
    stage.ends().await;
}

#[tokio::test]
async fn every_manner_of_a_server_is_understood() {
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        for (answers, line_end, chunk_bytes) in [
            (Answers::Json, "\n", usize::MAX),
            (Answers::Events, "\n", usize::MAX),
            (Answers::Events, "\r\n", 1),
            (Answers::Events, "\r", 7),
        ] {
            for event_ids in [EventIds::With, EventIds::Without] {
                for general_stream in [GeneralStream::Offered, GeneralStream::Refused] {
                    let manner = Manner {
                        revision,
                        general_stream,
                        answers,
                        event_ids,
                        line_end,
                        chunk_bytes,
                        ..Manner::default()
                    };
                    let shown = format!("{manner:?}");
                    let puppet = Puppet::start(manner).await;
                    puppet.tool("echo", |call| async move {
                        Ending::text(call.arguments().to_string())
                    });
                    let gateway = Gateway::for_upstream(&puppet.url()).await;
                    let client = Client::of(&gateway);
                    let reply = client.tool("echo", json!({"a": 1})).send().await;
                    assert_eq!(text_of(reply.result()), r#"{"a":1}"#, "{shown}");
                    assert_eq!(gateway.terminate().await, 0, "{shown}");
                    puppet.settled().await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_server_without_sessions_is_served() {
    let stage = Stage::of(Manner {
        sessions: Sessions::Without,
        general_stream: GeneralStream::Refused,
        ..Manner::default()
    })
    .await;
    let reply = stage.client.tool("echo", json!({})).send().await;
    assert_eq!(text_of(reply.result()), "{}");
    let asked = stage.client.call("name").await.asked();
    let request = stage.client.tool("name", json!({}));
    let reply = request
        .answer(&asked, crate::support::accept(json!({"name": "Ada"})))
        .send()
        .await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    stage.gateway.settled().await;
    stage.puppet.is_content();
}

#[tokio::test]
async fn payloads_are_left_alone() {
    const RESULT: &str = r#"{"content":[{"type":"text","text":"\u00e9\/"}],"structuredContent":{ "z" : 1.0, "a" : 10000000000000000001, "e" : 1E2 }}"#;
    const ARGUMENTS: &str = r#"{ "z" : 1.0, "a" : 10000000000000000001, "u" : "\u00e9" }"#;
    for answers in [Answers::Json, Answers::Events] {
        let stage = Stage::of(Manner {
            answers,
            ..Manner::default()
        })
        .await;
        stage.puppet.tool("raw", move |call| async move {
            let response = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{RESULT}}}"#,
                call.request["id"]
            );
            match answers {
                Answers::Json => {
                    call.put(Out::Whole(200, "application/json", response.into()))
                        .await
                }
                Answers::Events => call.put(Out::Event(response)).await,
            }
            Ending::Nothing
        });
        let request = stage.client.tool("raw", json!({"here": 0}));
        let body = request
            .message()
            .to_string()
            .replace(r#"{"here":0}"#, ARGUMENTS);
        let reply = request.raw(body).open().await.raw().await;
        for member in [
            r#""content":[{"type":"text","text":"\u00e9\/"}]"#,
            r#""structuredContent":{ "z" : 1.0, "a" : 10000000000000000001, "e" : 1E2 }"#,
        ] {
            assert!(reply.contains(member), "{reply}");
        }
        let sent = stage.puppet.ledger().requests("tools/call")[0].text.clone();
        assert!(sent.contains(ARGUMENTS), "{sent}");
        stage.ends().await;
    }
}

#[tokio::test]
async fn a_result_of_many_mebibytes_comes_through() {
    let stage = Stage::new().await;
    let big = "x".repeat(8 << 20);
    let expected = big.clone();
    stage.puppet.tool("big", move |_| {
        let big = big.clone();
        async move { Ending::text(big) }
    });
    let reply = stage.client.call("big").await;
    assert_eq!(text_of(reply.result()), expected);
    // One event of a megabyte breaks real clients: what comes first as the final message is JSON.
    assert!(
        reply
            .head
            .value("content-type")
            .unwrap()
            .starts_with("application/json")
    );
    stage.ends().await;
}

#[tokio::test]
async fn what_only_the_legacy_era_knows_is_dropped() {
    let stage = Stage::new().await;
    stage.puppet.on("tools/list", "", |_| async {
        let execution = json!({"taskSupport": "optional"});
        let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "execution": execution});
        Ending::Result(json!({"tools": [tool], "nextCursor": "more"}))
    });
    let reply = stage.client.request("tools/list", json!({})).send().await;
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
    assert_eq!(reply.result()["tools"], json!([tool]));
    assert_eq!(reply.result()["nextCursor"], "more");
    stage.ends().await;
}

#[tokio::test]
async fn foreign_meta_goes_up_and_down() {
    let stage = Stage::new().await;
    stage.puppet.tool("meta", |call| async move {
        let mut result = text(call.request["params"]["_meta"].to_string());
        result["_meta"] = json!({"com.example/k": 1});
        Ending::Result(result)
    });
    let request = stage.client.tool("meta", json!({}));
    let request = request
        .meta(
            "traceparent",
            json!("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"),
        )
        .meta("com.example/trace", json!({"b": 1, "a": 2}))
        .meta(META_LOG_LEVEL, json!("error"));
    let reply = request.send().await;
    let seen: Value = serde_json::from_str(text_of(reply.result())).unwrap();
    let expected = json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
        "com.example/trace": {"b": 1, "a": 2},
    });
    assert_eq!(seen, expected);
    assert_eq!(reply.result()["_meta"]["com.example/k"], 1);
    is_signed(reply.result());
    stage.ends().await;
}

#[tokio::test]
async fn errors_of_the_server_keep_what_they_say() {
    let stage = Stage::new().await;
    let missing = stage
        .client
        .request("resources/read", json!({"uri": "puppet://none"}));
    let reply = missing.send().await;
    assert_eq!(
        reply.error(200, -32602)["data"],
        json!({"uri": "puppet://none"})
    );
    for code in [-32602, -32603, -32601, 0, 1234, -32000] {
        stage.puppet.tool("fails", move |_| async move {
            Ending::Error(json!({"code": code, "message": "no", "data": [1]}))
        });
        let reply = stage.client.call("fails").await;
        let error = &reply.message["error"];
        assert_eq!(
            (error["code"].as_i64(), &error["message"]),
            (Some(code), &json!("no"))
        );
        assert_eq!(error["data"], json!([1]));
    }
    stage.ends().await;
}

#[tokio::test]
async fn the_admin_listener_answers() {
    let stage = Stage::new().await;
    assert_eq!(stage.gateway.admin("/healthz").await.0, 200);
    assert_eq!(stage.gateway.admin("/readyz").await.0, 200);
    assert_eq!(stage.gateway.admin("/nothing").await.0, 404);
    nothing_is_left(&stage.gateway, &stage.puppet).await;
}

#[tokio::test]
async fn trace_context_in_headers_goes_up() {
    let stage = Stage::new().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
    let request = stage
        .client
        .tool("echo", json!({}))
        .also("traceparent", trace)
        .also("tracestate", "vendor=1")
        .also("baggage", "user=ada")
        .also("x-other", "stays here");
    request.send().await.result();
    let calls = stage.puppet.ledger().requests("tools/call");
    let head = &calls[0].head;
    let seen = ["traceparent", "tracestate", "baggage", "x-other"].map(|name| head.value(name));
    assert_eq!(
        seen,
        [Some(trace), Some("vendor=1"), Some("user=ada"), None]
    );
    stage.ends().await;
}

/// What is logged about a call names the trace that it belongs to, wherever its client says so; `_meta` goes first, as
/// the spec knows that alone.
#[tokio::test]
async fn log_lines_name_the_trace() {
    let stage = Stage::new().await;
    stage.puppet.tool("cut", |_| async { Ending::Cut });
    stage.puppet.tool("held-cut", |call| async move {
        call.elicit(form("name", name_schema())).await;
        Ending::Cut
    });
    let trace = |n: u8| format!("00-{n:032x}-00f067aa0ba902b7-01");
    let cut = stage.client.tool("cut", json!({}));
    cut.clone()
        .also("traceparent", &trace(1))
        .send()
        .await
        .lost(true);
    let in_meta = cut.meta("traceparent", json!(trace(2)));
    in_meta
        .also("traceparent", &trace(3))
        .send()
        .await
        .lost(true);
    let held = stage
        .client
        .tool("held-cut", json!({}))
        .meta("traceparent", json!(trace(4)));
    let asked = held.send().await.asked();
    held.answer(&asked, accept(json!({"name": "Ada"})))
        .send()
        .await
        .lost(true);
    let named = |n: u8| {
        let (id, log) = (format!("trace_id=\"{n:032x}\""), stage.gateway.log());
        let lines = log
            .lines()
            .filter(|line| line.contains("a call lost its server"));
        lines.filter(|line| line.contains(&id)).count()
    };
    let are_named = || async { [1, 2, 3, 4].map(named) == [1, 1, 0, 1] };
    eventually("each line to name its trace", are_named).await;
    stage.ends().await;
}
