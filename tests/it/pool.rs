//! The bounds of sessions: who waits for one, what waits on one, and what servers do to the stream of one.

use serde_json::{Value, json};

use crate::support::puppet::{Ending, GeneralStream, Handshake, Ledger, Manner};
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, eventually, form, text_of};

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

/// At the bound, with one session that stays warm and a call on it that waits for the gate.
async fn full() -> (Stage, Gate) {
    let stage = Stage::with(|config| {
        config
            .limit("sessions_max", 1)
            .timer("session_idle", "60s")
            .timer("session_wait", "60s")
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
    (stage, gate)
}

#[tokio::test]
async fn who_waits_is_served_when_a_session_becomes_idle() {
    let (stage, gate) = full().await;
    let alice = stage.client.clone().named("alice");
    let first = alice.tool("waits", json!({})).open().await;
    stage.started("waits", 1).await;
    // One of the same caller, who takes the session over, and one of another, to whom it gives way.
    let second = alice.tool("waits", json!({})).open().await;
    let other = stage.client.clone().named("bob").tool("waits", json!({}));
    let third = other.open().await;
    stage.gateway.metric_is("holdfast_calls", 3).await;
    for started in 1..=3 {
        stage.started("waits", started).await;
        gate.open();
    }
    for leg in [first, second, third] {
        assert_eq!(text_of(leg.finish().await.result()), "done");
    }
    stage.closes().await;
}

#[tokio::test]
async fn callers_share_the_failure_of_a_handshake() {
    let manner = Manner {
        handshake: Handshake::Stalls,
        ..Manner::default()
    };
    let stage = Stage::set(manner, |config| config.timer("initialize_timeout", "400ms")).await;
    let list = stage.client.request("tools/list", json!({}));
    let lists = (0..6).map(|_| list.send());
    for reply in futures_util::future::join_all(lists).await {
        reply.lost(false);
    }
    assert_eq!(stage.puppet.ledger().requests("initialize").len(), 1);
    stage.ends().await;
}

#[tokio::test]
async fn a_bad_moment_does_not_mean_that_there_is_no_general_stream() {
    for status in [500, 503, 429, 408] {
        let manner = Manner {
            general_stream: GeneralStream::AfterStatus(status),
            ..Manner::default()
        };
        let stage = Stage::of(manner).await;
        let request = stage.client.tool("generally", json!({}));
        let asked = request.send().await.asked();
        let reply = request.answer(&asked, ada()).send().await;
        assert_eq!(text_of(reply.result()), "name: \"Ada\"", "{status}");
        stage.ends().await;
    }
    for status in [400, 404, 501] {
        let manner = Manner {
            general_stream: GeneralStream::AfterStatus(status),
            ..Manner::default()
        };
        let stage = Stage::of(manner).await;
        stage.client.call("echo").await.result();
        let is_get = |ledger: &Ledger| ledger.records.iter().filter(|r| r.verb == "GET").count();
        assert_eq!(is_get(&stage.puppet.ledger()), 1, "{status}");
        stage.ends().await;
    }
}

/// What comes outside any call and can wait for none is refused at once.
#[tokio::test]
async fn questions_that_cannot_wait_are_refused_at_once() {
    let stage = Stage::with(|config| {
        config
            .timer("session_idle", "60s")
            .timer("stray_question_max", "60s")
    })
    .await;
    let able = json!({"elicitation": {}});
    let client = stage.client.clone().able(able);
    client.call("echo").await.result();
    let session = stage.puppet.sessions()[0].clone();
    let mut large = form("name", name_schema());
    large["message"] = json!("x".repeat(100 << 10));
    for (method, params, code) in [
        ("roots/list", json!({}), -32600),
        ("tasks/list", json!({}), -32601),
        ("elicitation/create", json!({}), -32602),
        ("elicitation/create", large, -32603),
    ] {
        let id = session.ask(method, params).await;
        let is_answered = |ledger: &Ledger| ledger.answers.iter().any(|given| given.id == id);
        stage.puppet.until("the refusal", is_answered).await;
        let answer = session.answer(&id).unwrap();
        assert_eq!(answer["error"]["code"], code, "{method}: {answer}");
    }
    // The next call has nothing to do with them.
    client.call("echo").await.result();
    stage.closes().await;
}

/// The same over HTTP as for a process that ends: see the calls that are asked for roots first.
#[tokio::test]
async fn a_call_that_is_asked_first_is_told_when_the_server_forgets_its_session() {
    let stage = Stage::with(|config| config.timer("session_idle", "60s")).await;
    stage.client.call("echo").await.result();
    let session = stage.puppet.sessions()[0].clone();
    let question = form("name", name_schema());
    session.ask("elicitation/create", question).await;
    // What comes after it on the same stream is refused at once: by then it has arrived.
    let next = session.ask("tasks/list", json!({})).await;
    let is_answered = |ledger: &Ledger| ledger.answers.iter().any(|given| given.id == next);
    stage.puppet.until("the refusal", is_answered).await;
    let request = stage.client.tool("echo", json!({}));
    let asked = request.send().await.asked();
    stage.puppet.forget_sessions();
    stage.gateway.metric_is("holdfast_holds", 0).await;
    let reply = request.answer(&asked, ada()).send().await;
    reply.lost(false);
    assert_eq!(stage.puppet.starts("echo"), 1);
    stage.closes().await;
}

#[tokio::test]
async fn only_so_many_questions_wait() {
    let stage = Stage::with(|config| {
        config
            .timer("session_idle", "60s")
            .timer("stray_question_max", "60s")
    })
    .await;
    stage.client.call("echo").await.result();
    let session = stage.puppet.sessions()[0].clone();
    for _ in 0..200 {
        session
            .ask("elicitation/create", form("name", name_schema()))
            .await;
    }
    // As many as may be on their way at once; to a server that asks faster than it listens no more is said.
    let some_are_refused = |ledger: &Ledger| ledger.answers.len() >= 8;
    stage.puppet.until("refusals", some_are_refused).await;
    assert_eq!(stage.gateway.terminate().await, 0);
}

#[tokio::test]
async fn every_line_about_a_session_names_it() {
    let manner = Manner {
        general_stream: GeneralStream::AfterStatus(503),
        ..Manner::default()
    };
    let stage = Stage::of(manner).await;
    stage.puppet.tool("babbles", |call| async move {
        let nonsense = crate::support::puppet::Out::Event("hello".to_owned());
        call.session.put(nonsense).await;
        Ending::text(call.elicit(form("name", name_schema())).await.said("name"))
    });
    let request = stage.client.tool("babbles", json!({}));
    let asked = request.send().await.asked();
    request.answer(&asked, ada()).send().await.result();
    let is_told = || async { stage.gateway.log().matches("holdfast::session").count() >= 3 };
    eventually("what happened to be told", is_told).await;
    let log = stage.gateway.log();
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("holdfast::session"))
        .collect();
    assert!(lines.len() >= 3, "{log}");
    for line in lines {
        assert!(line.contains("session="), "{line}");
    }
    stage.ends().await;
}
