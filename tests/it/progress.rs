//! Progress and log messages over the legs of a call: to the leg that asked for them, under its own token, and
//! to nobody else.

use serde_json::{Value, json};

use crate::support::client::{META_LOG_LEVEL, Request};
use crate::support::puppet::{Ending, EventIds, Manner};
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, form, text_of};

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

fn wants(request: &Request, token: Value) -> Request {
    request.clone().meta("progressToken", token)
}

fn hears(request: &Request, level: &str) -> Request {
    request.clone().meta(META_LOG_LEVEL, json!(level))
}

/// A tool that reports progress before and after its question.
fn stepping(stage: &Stage) {
    stage.puppet.tool("steps", |call| async move {
        call.progress(1).await;
        call.progress(2).await;
        let said = call.elicit(form("name", name_schema())).await.said("name");
        call.progress(3).await;
        Ending::text(said)
    });
}

fn steps(notes: &[&Value]) -> Vec<(Value, Value)> {
    notes
        .iter()
        .map(|note| (note["progressToken"].clone(), note["progress"].clone()))
        .collect()
}

#[tokio::test]
async fn each_leg_hears_under_its_own_token() {
    for event_ids in [EventIds::With, EventIds::Without] {
        let stage = Stage::of(Manner {
            event_ids,
            ..Manner::default()
        })
        .await;
        stepping(&stage);
        let request = stage.client.tool("steps", json!({}));
        let first = wants(&request, json!("first")).send().await;
        let heard = steps(&first.noted("notifications/progress"));
        assert_eq!(
            heard,
            [(json!("first"), json!(1)), (json!("first"), json!(2))]
        );
        assert!(
            first
                .head
                .value("content-type")
                .unwrap()
                .starts_with("text/event-stream")
        );
        assert_eq!(
            first.noted("notifications/progress")[0]["message"],
            "step 1"
        );
        let asked = first.asked();
        let second = wants(&request.answer(&asked, ada()), json!(7)).send().await;
        assert_eq!(
            steps(&second.noted("notifications/progress")),
            [(json!(7), json!(3))]
        );
        assert_eq!(text_of(second.result()), "\"Ada\"");
        stage.ends().await;
    }
}

#[tokio::test]
async fn the_server_sees_a_token_of_ours() {
    let stage = Stage::new().await;
    stepping(&stage);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let request = wants(&stage.client.tool("steps", json!({})), json!("same"));
        let asked = request.send().await.asked();
        request.answer(&asked, ada()).send().await.result();
    }
    for (_, params) in &stage.puppet.ledger().starts {
        seen.push(params["_meta"]["progressToken"].to_string());
    }
    assert!(!seen.contains(&"\"same\"".to_owned()), "{seen:?}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "each call has a token of its own: {seen:?}");
    stage.ends().await;
}

#[tokio::test]
async fn who_does_not_ask_hears_nothing() {
    let stage = Stage::new().await;
    stepping(&stage);
    let request = stage.client.tool("steps", json!({}));
    let first = request.send().await;
    assert!(first.notes.is_empty());
    assert!(
        first
            .head
            .value("content-type")
            .unwrap()
            .starts_with("application/json")
    );
    let second = request.answer(&first.asked(), ada()).send().await;
    assert!(second.notes.is_empty());
    let starts = stage.puppet.ledger().starts.clone();
    assert!(
        starts[0].1["_meta"]["progressToken"].is_null(),
        "{}",
        starts[0].1
    );
    stage.ends().await;
}

/// While nobody is there only the latest progress is kept, for the next leg.
#[tokio::test]
async fn the_latest_progress_waits_for_the_next_leg() {
    let stage = Stage::new().await;
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("goes-on", move |call| {
        let gate = script_gate.clone();
        async move {
            let id = call
                .pose("elicitation/create", form("name", name_schema()))
                .await;
            gate.passed().await;
            for number in 1..=3 {
                call.progress(number).await;
            }
            call.ask("ping", json!({})).await;
            Ending::text(call.answer(&id).await.said("name"))
        }
    });
    let request = stage.client.tool("goes-on", json!({}));
    let asked = wants(&request, json!("first")).send().await.asked();
    gate.open();
    stage
        .puppet
        .until("the pong", |ledger| ledger.answers.len() == 1)
        .await;
    let second = wants(&request.answer(&asked, ada()), json!("second"))
        .send()
        .await;
    assert_eq!(
        steps(&second.noted("notifications/progress")),
        [(json!("second"), json!(3))]
    );
    assert_eq!(text_of(second.result()), "\"Ada\"");
    stage.ends().await;
}

/// Progress under a token that is not the call's belongs to nobody.
#[tokio::test]
async fn progress_of_others_is_not_passed_on() {
    let stage = Stage::new().await;
    stage.puppet.tool("confused", |call| async move {
        for token in [json!("same"), json!(0), json!(999_999), Value::Null] {
            let params = json!({"progressToken": token, "progress": 1});
            call.send(
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
            )
            .await;
        }
        call.send(json!({"jsonrpc": "2.0", "method": "notifications/progress"}))
            .await;
        Ending::text("done")
    });
    let reply = wants(&stage.client.tool("confused", json!({})), json!("same"))
        .send()
        .await;
    assert!(reply.notes.is_empty(), "{:?}", reply.notes);
    reply.result();
    stage.ends().await;
}

/// A tool that logs on every level, before and after its question.
fn logging(stage: &Stage) {
    stage.puppet.tool("logs", |call| async move {
        for level in [
            "debug",
            "info",
            "notice",
            "warning",
            "error",
            "critical",
            "alert",
            "emergency",
        ] {
            call.log(level, "before").await;
        }
        let said = call.elicit(form("name", name_schema())).await.said("name");
        for level in ["info", "error"] {
            call.log(level, "after").await;
        }
        Ending::text(said)
    });
}

fn levels(notes: &[&Value]) -> Vec<String> {
    notes
        .iter()
        .map(|note| note["level"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn each_leg_hears_from_its_own_level_on() {
    let stage = Stage::with(|config| config.timer("session_idle", "60s")).await;
    logging(&stage);
    let request = stage.client.tool("logs", json!({}));
    let first = hears(&request, "error").send().await;
    let heard = first.noted("notifications/message");
    assert_eq!(levels(&heard), ["error", "critical", "alert", "emergency"]);
    assert_eq!(
        (&heard[0]["logger"], &heard[0]["data"]),
        (&json!("puppet"), &json!("before"))
    );
    let second = hears(&request.answer(&first.asked(), ada()), "debug")
        .send()
        .await;
    assert_eq!(
        levels(&second.noted("notifications/message")),
        ["info", "error"]
    );
    // The next call of the same session wants none.
    let third = request.send().await;
    assert!(third.notes.is_empty(), "{:?}", third.notes);
    let fourth = request.answer(&third.asked(), ada()).send().await;
    assert!(fourth.notes.is_empty(), "{:?}", fourth.notes);
    let set: Vec<_> = {
        let ledger = stage.puppet.ledger();
        ledger
            .requests("logging/setLevel")
            .iter()
            .map(|set| set.body["params"]["level"].clone())
            .collect()
    };
    assert_eq!(set.first(), Some(&json!("error")), "{set:?}");
    stage.closes().await;
}

/// A server without the logging capability is not asked for logs, and what it sends all the same counts.
#[tokio::test]
async fn a_server_that_does_not_log() {
    let stage = Stage::of(Manner {
        capabilities: json!({"tools": {}}),
        ..Manner::default()
    })
    .await;
    logging(&stage);
    let request = hears(&stage.client.tool("logs", json!({})), "alert");
    let first = request.send().await;
    assert_eq!(
        levels(&first.noted("notifications/message")),
        ["alert", "emergency"]
    );
    request.answer(&first.asked(), ada()).send().await.result();
    assert!(
        stage
            .puppet
            .ledger()
            .requests("logging/setLevel")
            .is_empty()
    );
    stage.ends().await;
}

/// A log message on the general stream while a call has the session for itself belongs to that call.
#[tokio::test]
async fn logs_on_the_general_stream() {
    let stage = Stage::new().await;
    stage.puppet.tool("logs", |call| async move {
        let params = json!({"level": "warning", "data": "general"});
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
        call.session
            .put(crate::support::puppet::Out::Event(note.to_string()))
            .await;
        call.ask_generally("ping", json!({})).await;
        // Both streams have been read as far as the message by the time of this answer.
        let said = call
            .ask_generally("elicitation/create", form("name", name_schema()))
            .await
            .said("name");
        Ending::text(said)
    });
    let request = hears(&stage.client.tool("logs", json!({})), "info");
    let first = request.send().await;
    let heard = first.noted("notifications/message");
    assert_eq!(heard.len(), 1, "{:?}", first.notes);
    assert_eq!(heard[0]["data"], "general");
    request.answer(&first.asked(), ada()).send().await.result();
    stage.ends().await;
}

/// Quiet streams carry comments, so that middleboxes keep them.
#[tokio::test]
async fn quiet_streams_are_kept_alive() {
    let stage = Stage::with(|config| config.timer("keep_alive", "20ms")).await;
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("quiet", move |call| {
        let gate = script_gate.clone();
        async move {
            call.progress(1).await;
            gate.passed().await;
            Ending::text("done")
        }
    });
    let mut leg = wants(&stage.client.tool("quiet", json!({})), json!("p"))
        .open()
        .await;
    assert_eq!(leg.event().await["params"]["progress"], 1);
    for comments in 1..=3 {
        leg.comments(comments).await;
    }
    gate.open();
    assert_eq!(text_of(leg.finish().await.result()), "done");
    stage.ends().await;
}

/// A client that asks for notifications and does not read them keeps nobody waiting.
#[tokio::test]
async fn a_client_that_does_not_read() {
    let stage = Stage::new().await;
    stage.puppet.tool("floods", |call| async move {
        let filler = "x".repeat(10_000);
        for _ in 0..5_000 {
            call.log("info", &filler).await;
        }
        Ending::text("done")
    });
    let leg = hears(&stage.client.tool("floods", json!({})), "debug")
        .open()
        .await;
    stage.started("floods", 1).await;
    stage
        .puppet
        .until("the flood to be over", |ledger| ledger.running == 0)
        .await;
    // Whoever reads in the end has the result.
    assert_eq!(text_of(leg.finish().await.result()), "done");
    stage.ends().await;
}
