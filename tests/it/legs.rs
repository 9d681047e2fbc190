//! Legs whose client goes away: a first one is cancelled at the server at once, a re-issued one after a grace
//! in which a repeat may join.

use serde_json::{Value, json};

use crate::support::puppet::{Ending, Handshake, Manner, OnCancel};
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, form, text_of};

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

/// A tool that logs, then asks if it is told to, then waits for the gate.
fn waiting(stage: &Stage, asks: bool) -> Gate {
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("waiting", move |call| {
        let gate = script_gate.clone();
        async move {
            if asks {
                call.elicit(form("name", name_schema())).await;
            }
            call.progress(1).await;
            gate.passed().await;
            Ending::text("done")
        }
    });
    gate
}

/// The one cancellation names the one request of the tool.
fn is_cancelled_by_its_id(stage: &Stage) {
    let ledger = stage.puppet.ledger();
    let request = &ledger.requests("tools/call")[0].body["id"];
    let named: Vec<_> = ledger
        .cancellations
        .iter()
        .map(|params| &params["requestId"])
        .collect();
    assert_eq!(named, [request]);
}

#[tokio::test]
async fn a_first_leg_is_cancelled() {
    for on_cancel in [OnCancel::FallSilent, OnCancel::AnswerError] {
        let stage = Stage::of(Manner {
            on_cancel,
            ..Manner::default()
        })
        .await;
        waiting(&stage, false);
        let leg = stage.client.tool("waiting", json!({})).open().await;
        stage.started("waiting", 1).await;
        drop(leg);
        stage.cancelled(1).await;
        is_cancelled_by_its_id(&stage);
        stage.ends().await;
    }
}

#[tokio::test]
async fn a_first_leg_that_streams_is_cancelled() {
    let stage = Stage::new().await;
    waiting(&stage, false);
    let request = stage
        .client
        .tool("waiting", json!({}))
        .meta("progressToken", json!("p"));
    let mut leg = request.open().await;
    assert_eq!(leg.event().await["params"]["progress"], 1);
    drop(leg);
    stage.cancelled(1).await;
    is_cancelled_by_its_id(&stage);
    stage.ends().await;
}

/// A server that ignores the cancellation does not keep the gateway.
#[tokio::test]
async fn a_server_that_does_not_listen_is_left_alone() {
    let stage = Stage::of(Manner {
        on_cancel: OnCancel::Ignore,
        ..Manner::default()
    })
    .await;
    let gate = waiting(&stage, false);
    let leg = stage.client.tool("waiting", json!({})).open().await;
    stage.started("waiting", 1).await;
    drop(leg);
    stage.cancelled(1).await;
    stage.gateway.settled().await;
    gate.open();
    stage.ends().await;
}

#[tokio::test]
async fn the_client_leaves_while_the_session_opens() {
    let stage = Stage::set(
        Manner {
            handshake: Handshake::Stalls,
            ..Manner::default()
        },
        |config| config.timer("initialize_timeout", "300ms"),
    )
    .await;
    let leg = stage.client.tool("echo", json!({})).open().await;
    stage
        .puppet
        .until("the handshake", |ledger| !ledger.records.is_empty())
        .await;
    drop(leg);
    stage.ends().await;
}

#[tokio::test]
async fn a_parked_call_needs_no_client() {
    let stage = Stage::new().await;
    let request = stage.client.tool("name", json!({}));
    let asked = request.send().await.asked();
    // The connection of the first leg is closed by now.
    stage.gateway.metric_is("holdfast_holds", 1).await;
    assert_eq!(stage.puppet.ledger().cancellations.len(), 0);
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    stage.ends().await;
}

#[tokio::test]
async fn a_repeat_joins_within_the_grace() {
    let stage = Stage::with(|config| config.timer("leg_grace", "60s")).await;
    let gate = waiting(&stage, true);
    let request = stage.client.tool("waiting", json!({}));
    let asked = request.send().await.asked();
    for _ in 0..3 {
        let leg = request.answer(&asked, ada()).open().await;
        stage
            .puppet
            .until("the answer", |ledger| ledger.answers.len() == 1)
            .await;
        drop(leg);
    }
    let repeat = request.answer(&asked, ada()).open().await;
    gate.open();
    assert_eq!(text_of(repeat.finish().await.result()), "done");
    assert_eq!((stage.puppet.starts("waiting"), stage.answers()), (1, 1));
    assert_eq!(stage.puppet.ledger().cancellations.len(), 0);
    stage.ends().await;
}

/// The call ends within the grace, while nobody is there: the outcome waits for the repeat.
#[tokio::test]
async fn the_outcome_waits_for_a_repeat() {
    let stage = Stage::with(|config| config.timer("leg_grace", "60s")).await;
    let gate = waiting(&stage, true);
    let request = stage.client.tool("waiting", json!({}));
    let asked = request.send().await.asked();
    let leg = request.answer(&asked, ada()).open().await;
    stage
        .puppet
        .until("the answer", |ledger| ledger.answers.len() == 1)
        .await;
    drop(leg);
    gate.open();
    stage.gateway.metric_is("holdfast_calls", 0).await;
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "done");
    stage.ends().await;
}

#[tokio::test]
async fn without_a_repeat_a_reissued_leg_is_cancelled() {
    let stage = Stage::with(|config| config.timer("leg_grace", "50ms")).await;
    waiting(&stage, true);
    let request = stage.client.tool("waiting", json!({}));
    let asked = request.send().await.asked();
    let leg = request.answer(&asked, ada()).open().await;
    stage
        .puppet
        .until("the answer", |ledger| ledger.answers.len() == 1)
        .await;
    drop(leg);
    stage.cancelled(1).await;
    is_cancelled_by_its_id(&stage);
    let reply = request.answer(&asked, ada()).send().await;
    assert!(reply.message["error"].is_object(), "{}", reply.message);
    assert_eq!(stage.puppet.starts("waiting"), 1);
    stage.ends().await;
}

/// Two legs wait; one client goes away. The other is served and nothing is cancelled.
#[tokio::test]
async fn one_of_two_legs_goes_away() {
    let stage = Stage::with(|config| config.timer("leg_grace", "50ms")).await;
    let (step, finish) = (Gate::default(), Gate::default());
    let gates = (step.clone(), finish.clone());
    stage.puppet.tool("steps", move |call| {
        let (step, finish) = gates.clone();
        async move {
            call.elicit(form("name", name_schema())).await;
            for number in 1.. {
                tokio::select! {
                    () = step.passed() => call.progress(number).await,
                    () = finish.passed() => break,
                }
            }
            Ending::text("done")
        }
    });
    let request = stage
        .client
        .tool("steps", json!({}))
        .meta("progressToken", json!("first"));
    let asked = request.send().await.asked();
    let mut stays = request
        .answer(&asked, ada())
        .meta("progressToken", json!("stays"))
        .open()
        .await;
    let mut goes = request
        .answer(&asked, ada())
        .meta("progressToken", json!("goes"))
        .open()
        .await;
    let stepping = async {
        loop {
            step.open();
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    // Both hear of the progress: both have joined.
    tokio::select! {
        (one, other) = async { (stays.event().await, goes.event().await) } => {
            assert_eq!(one["params"]["progressToken"], "stays");
            assert_eq!(other["params"]["progressToken"], "goes");
        }
        () = stepping => {}
    }
    drop(goes);
    finish.open();
    assert_eq!(text_of(stays.finish().await.result()), "done");
    assert_eq!(stage.puppet.ledger().cancellations.len(), 0);
    stage.ends().await;
}
