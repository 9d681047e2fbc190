//! Legacy sessions: whose they are, when they are shared, replaced and closed.

use serde_json::{Value, json};

use crate::support::puppet::{Ending, EventIds, GeneralStream, Ledger, Manner, Out};
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, form, text_of};

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

fn opened(stage: &Stage) -> usize {
    stage.puppet.ledger().sessions_opened
}

/// Sessions that stay warm for the whole test.
async fn warm(manner: Manner) -> Stage {
    Stage::set(manner, |config| config.timer("session_idle", "60s")).await
}

#[tokio::test]
async fn a_warm_session_is_used_again() {
    let stage = warm(Manner::default()).await;
    for _ in 0..10 {
        stage.client.call("echo").await.result();
        stage
            .client
            .request("tools/list", json!({}))
            .send()
            .await
            .result();
        let request = stage.client.tool("name", json!({}));
        let asked = request.send().await.asked();
        request.answer(&asked, ada()).send().await.result();
    }
    assert_eq!(opened(&stage), 1);
    // A plain call on a warm session costs one upstream request.
    let before = stage.puppet.ledger().records.len();
    stage.client.call("echo").await.result();
    assert_eq!(stage.puppet.ledger().records.len(), before + 1);
    stage.closes().await;
    // The DELETE was counted by `closes`, through the puppet.
}

#[tokio::test]
async fn idle_sessions_are_closed_with_delete() {
    let stage = Stage::with(|config| config.timer("session_idle", "100ms")).await;
    stage.client.call("echo").await.result();
    stage
        .puppet
        .until("the DELETE", |ledger| ledger.deletes == 1)
        .await;
    stage.client.call("echo").await.result();
    stage
        .puppet
        .until("the next DELETE", |ledger| ledger.deletes == 2)
        .await;
    assert_eq!(opened(&stage), 2);
    stage.ends().await;
}

#[tokio::test]
async fn sessions_are_not_shared_between_callers() {
    let stage = warm(Manner::default()).await;
    let alice = stage.client.clone().named("alice");
    let bob = stage.client.clone().named("bob");
    for _ in 0..5 {
        for client in [&alice, &bob, &stage.client] {
            client.call("echo").await.result();
        }
    }
    assert_eq!(opened(&stage), 3);
    let credentials: Vec<_> = stage
        .puppet
        .sessions()
        .iter()
        .map(|session| session.credentials.clone())
        .collect();
    for expected in [Some("Bearer alice"), Some("Bearer bob"), None] {
        assert!(
            credentials.iter().any(|own| own.as_deref() == expected),
            "{credentials:?}"
        );
    }
    stage.closes().await;
}

/// A session is opened with exactly the capabilities of its caller.
#[tokio::test]
async fn sessions_are_not_shared_between_capabilities() {
    let stage = warm(Manner::default()).await;
    let sets = [
        json!({}),
        json!({"elicitation": {}}),
        json!({"elicitation": {"form": {}, "url": {}}}),
        json!({"roots": {"listChanged": true}, "sampling": {}}),
        json!({"sampling": {"tools": {}}, "experimental": {"x": {"y": [1, 2]}}}),
    ];
    for _ in 0..2 {
        for set in &sets {
            stage
                .client
                .clone()
                .able(set.clone())
                .call("echo")
                .await
                .result();
        }
    }
    assert_eq!(opened(&stage), sets.len());
    let declared: Vec<_> = stage
        .puppet
        .sessions()
        .iter()
        .map(|session| session.capabilities.clone())
        .collect();
    for set in &sets {
        assert!(declared.contains(set), "{set} among {declared:?}");
    }
    stage.closes().await;
}

#[tokio::test]
async fn strangers_share_nothing_where_the_operator_says_so() {
    let stage = Stage::set(Manner::default(), |config| {
        config
            .top("anonymous", "\"isolated\"")
            .timer("session_idle", "60s")
    })
    .await;
    for call in 1..=3 {
        stage.client.call("echo").await.result();
        assert_eq!(opened(&stage), call);
    }
    let request = stage.client.tool("name", json!({}));
    let asked = request.send().await.asked();
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    // Closed after the call, long before they are idle for too long.
    stage.ends().await;
}

#[tokio::test]
async fn strangers_share_where_the_operator_says_so() {
    let stage = Stage::set(Manner::default(), |config| {
        config
            .top("anonymous", "\"shared\"")
            .timer("session_idle", "60s")
    })
    .await;
    for _ in 0..3 {
        stage.client.call("echo").await.result();
    }
    assert_eq!(opened(&stage), 1);
    stage.closes().await;
}

/// A call that may be asked on the general stream has its session for itself.
#[tokio::test]
async fn calls_at_the_same_time() {
    for (general_stream, sessions) in [(GeneralStream::Offered, 3), (GeneralStream::Refused, 1)] {
        let stage = warm(Manner {
            general_stream,
            ..Manner::default()
        })
        .await;
        let gate = Gate::default();
        let script_gate = gate.clone();
        stage.puppet.tool("waits", move |_| {
            let gate = script_gate.clone();
            async move {
                gate.passed().await;
                Ending::text("done")
            }
        });
        // With a session open, whether a general stream is offered is known.
        stage.client.call("echo").await.result();
        let mut legs = Vec::new();
        for number in 1..=3 {
            legs.push(stage.client.tool("waits", json!({})).open().await);
            stage.started("waits", number).await;
        }
        assert_eq!(opened(&stage), sessions, "{general_stream:?}");
        for leg in legs {
            gate.open();
            leg.finish().await.result();
        }
        stage.closes().await;
    }
}

/// One general stream for each session, opened before its first call. The tools are listed once, to know which
/// arguments they want mirrored.
#[tokio::test]
async fn the_general_stream_is_opened_first() {
    let stage = warm(Manner::default()).await;
    stage.client.call("echo").await.result();
    stage.client.call("echo").await.result();
    let order: Vec<String> = {
        let ledger = stage.puppet.ledger();
        let shown = |record: &crate::support::puppet::Record| {
            format!("{} {}", record.verb, record.method())
        };
        ledger.records.iter().map(shown).collect()
    };
    let expected = [
        "POST initialize",
        "POST notifications/initialized",
        "GET ",
        "POST ping",
        "POST tools/list",
        "POST tools/call",
        "POST tools/call",
    ];
    assert_eq!(order, expected);
    stage.closes().await;
}

#[tokio::test]
async fn a_forgotten_session_is_replaced() {
    let stage = warm(Manner::default()).await;
    for (round, method) in ["tools/list", "resources/list", "tools/call"]
        .iter()
        .enumerate()
    {
        stage.client.call("echo").await.result();
        stage.puppet.forget_sessions();
        let params = if *method == "tools/call" {
            json!({"name": "echo", "arguments": {}})
        } else {
            json!({})
        };
        stage.client.request(method, params).send().await.result();
        assert_eq!(opened(&stage), round + 2, "{method}");
    }
    // Three before the forgetting, one after it; the refused one never started.
    assert_eq!(stage.puppet.starts("echo"), 4);
    stage.closes().await;
}

/// A server that forgets every session at once is not asked for ever.
#[tokio::test]
async fn a_server_that_forgets_always() {
    let stage = Stage::new().await;
    stage.puppet.tool("forgotten", |call| async move {
        let head = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        call.put(crate::support::puppet::Out::Bare(head.as_bytes().to_vec()))
            .await;
        call.session.forget();
        Ending::Cut
    });
    stage.client.call("forgotten").await.lost(false);
    assert!(
        stage.puppet.starts("forgotten") <= 2,
        "{} times",
        stage.puppet.starts("forgotten")
    );
    stage.ends().await;
}

/// The session of a held call is forgotten: its call is lost, and not started again.
#[tokio::test]
async fn a_forgotten_session_loses_its_held_call() {
    let stage = Stage::new().await;
    let request = stage.client.tool("name", json!({}));
    let asked = request.send().await.asked();
    stage.puppet.forget_sessions();
    request.answer(&asked, ada()).send().await.lost(true);
    assert_eq!(stage.puppet.starts("name"), 1);
    stage.gateway.settled().await;
    // A fresh call is served.
    let asked = request.send().await.asked();
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    stage.gateway.settled().await;
}

/// The session of a call is forgotten after the call has started.
#[tokio::test]
async fn a_started_call_is_not_sent_to_another_session() {
    let stage = Stage::new().await;
    stage.puppet.tool("forgets", |call| async move {
        call.log("info", "started").await;
        call.session.forget();
        Ending::Cut
    });
    stage.client.call("forgets").await.lost(true);
    assert_eq!(stage.puppet.starts("forgets"), 1);
    stage.ends().await;
}

#[tokio::test]
async fn at_the_bound_of_sessions_new_work_is_refused() {
    let stage = Stage::with(|config| {
        config
            .limit("sessions_max", 2)
            .timer("session_wait", "100ms")
    })
    .await;
    let request = stage.client.tool("name", json!({}));
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(request.send().await.asked());
    }
    request.send().await.lost(false);
    assert_eq!(stage.puppet.starts("name"), 2);
    for asked in &held {
        let reply = request.answer(asked, ada()).send().await;
        assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    }
    // There is room again.
    stage.client.call("echo").await.result();
    stage.ends().await;
}

/// An idle session of somebody gives way to a caller who has none.
#[tokio::test]
async fn at_the_bound_an_idle_session_gives_way() {
    let stage =
        Stage::with(|config| config.limit("sessions_max", 1).timer("session_idle", "60s")).await;
    for name in ["alice", "bob", "carol", "alice"] {
        stage.client.clone().named(name).call("echo").await.result();
    }
    assert_eq!(opened(&stage), 4);
    stage.closes().await;
}

#[tokio::test]
async fn at_the_bound_of_holds_new_ones_are_refused() {
    let stage = Stage::with(|config| config.limit("holds_max", 2)).await;
    let request = stage.client.tool("name", json!({}));
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(request.send().await.asked());
    }
    let refused = request.send().await;
    assert_eq!(
        refused.message["error"]["code"], -32603,
        "{}",
        refused.message
    );
    // The server of the refused call was told.
    stage
        .puppet
        .until("the refused call to end", |ledger| ledger.running == 2)
        .await;
    // Plain calls go on.
    stage.client.call("echo").await.result();
    for asked in &held {
        let reply = request.answer(asked, ada()).send().await;
        assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    }
    let asked = request.send().await.asked();
    request.answer(&asked, ada()).send().await.result();
    stage.ends().await;
}

/// The general stream breaks while a call is held, and is opened again: anew, as some servers would repeat on it what they
/// have asked on other sessions.
#[tokio::test]
async fn a_broken_general_stream_is_opened_again() {
    for event_ids in [EventIds::Without, EventIds::With] {
        let stage = Stage::of(Manner {
            event_ids,
            ..Manner::default()
        })
        .await;
        stage.puppet.tool("breaks", |call| async move {
            call.session.put(Out::Cut).await;
            let is_back = |ledger: &Ledger| general_streams(ledger).len() >= 2;
            call.until(is_back).await;
            let params = form("name", name_schema());
            let answer = call.ask_generally("elicitation/create", params).await;
            Ending::text(answer.said("name"))
        });
        let request = stage.client.tool("breaks", json!({}));
        let asked = request.send().await.asked();
        let reply = request.answer(&asked, ada()).send().await;
        assert_eq!(text_of(reply.result()), "\"Ada\"");
        let resumed = general_streams(&stage.puppet.ledger());
        assert!(resumed.iter().all(Option::is_none), "{resumed:?}");
        stage.ends().await;
    }
}

/// After which event each GET wanted its stream.
fn general_streams(ledger: &Ledger) -> Vec<Option<String>> {
    let gets = ledger.records.iter().filter(|record| record.verb == "GET");
    gets.map(|record| record.head.value("last-event-id").map(str::to_owned))
        .collect()
}
