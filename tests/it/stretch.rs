//! Slow calls over several legs: each is answered with a state alone before its client gives up on it, and the next
//! one joins the running call.

use serde_json::{Value, json};

use crate::support::client::{Reply, Request};
use crate::support::puppet::Ending;
use crate::support::stage::{Gate, Stage};
use crate::support::text_of;

/// A stage whose legs are short, with a tool that ends when the gate opens.
async fn slow(limit: Option<(&str, usize)>) -> (Stage, Gate) {
    let mut stage = Stage::with(|config| {
        let config = config
            .timer("leg_max", "100ms")
            .timer("leg_grace", "100ms")
            .timer("stretch_grace", "1s");
        match limit {
            Some((name, value)) => config.limit(name, value),
            None => config,
        }
    })
    .await;
    // Without roots: a leg is not to end before its session is there.
    stage.client = stage.client.able(json!({"elicitation": {}}));
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("slow", move |_| {
        let gate = script_gate.clone();
        async move {
            gate.passed().await;
            Ending::text("done")
        }
    });
    (stage, gate)
}

/// The state of a reply that brings nothing else.
fn state_alone(reply: &Reply) -> Value {
    let result = &reply.message["result"];
    assert_eq!(result["resultType"], "input_required", "{}", reply.message);
    assert!(result.get("inputRequests").is_none(), "{result}");
    result["requestState"].clone()
}

fn next(request: &Request, state: &Value) -> Request {
    request.clone().param("requestState", state.clone())
}

#[tokio::test]
async fn a_slow_call_goes_on_over_its_legs() {
    let (stage, gate) = slow(None).await;
    let request = stage.client.tool("slow", json!({"n": 1}));
    let first = state_alone(&request.send().await);
    let second = state_alone(&next(&request, &first).send().await);
    assert_ne!(first, second);
    // The same leg again gets the same.
    assert_eq!(state_alone(&next(&request, &first).send().await), second);
    let last = next(&request, &second).open().await;
    gate.open();
    assert_eq!(text_of(last.finish().await.result()), "done");
    assert_eq!(stage.puppet.starts("slow"), 1);
    stage.ends().await;
}

#[tokio::test]
async fn what_ends_between_two_legs_is_there_for_the_next() {
    let (stage, gate) = slow(None).await;
    let request = stage.client.tool("slow", json!({}));
    let state = state_alone(&request.send().await);
    gate.open();
    stage.gateway.metric_is("holdfast_calls", 0).await;
    for _ in 0..2 {
        let reply = next(&request, &state).send().await;
        assert_eq!(text_of(reply.result()), "done");
    }
    stage.ends().await;
}

#[tokio::test]
async fn a_client_that_leaves_between_its_legs_is_noticed() {
    let (stage, _gate) = slow(None).await;
    let request = stage.client.tool("slow", json!({}));
    let state = state_alone(&request.send().await);
    drop(next(&request, &state).open().await);
    stage.cancelled(1).await;
    state_alone(&request.send().await);
    stage.cancelled(2).await;
    stage.ends().await;
}

/// Clients stop after some rounds, and at the bound of holds a running call is not put at risk: the leg stays open.
#[tokio::test]
async fn a_leg_that_is_not_to_be_stretched_stays_open() {
    for (limit, rounds) in [(("stretch_rounds_max", 1), 1), (("holds_max", 1), 0)] {
        let (stage, gate) = slow(Some(limit)).await;
        let holder = (rounds == 0).then(|| stage.client.tool("name", json!({})));
        let held = match &holder {
            Some(holder) => Some(holder.send().await.asked()),
            None => None,
        };
        let mut request = stage.client.tool("slow", json!({}));
        for _ in 0..rounds {
            request = next(&request, &state_alone(&request.send().await));
        }
        let last = request.open().await;
        // Only time can show that nothing comes.
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
        gate.open();
        assert_eq!(text_of(last.finish().await.result()), "done", "{limit:?}");
        if let (Some(holder), Some(held)) = (&holder, &held) {
            let ada = crate::support::accept(json!({"name": "Ada"}));
            holder.answer(held, ada).send().await.result();
        }
        stage.ends().await;
    }
}

#[tokio::test]
async fn lists_are_not_stretched() {
    let stage = Stage::with(|config| config.timer("leg_max", "50ms")).await;
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.on("tools/list", "", move |_| {
        let gate = script_gate.clone();
        async move {
            gate.passed().await;
            Ending::Result(json!({"tools": []}))
        }
    });
    let leg = stage.client.request("tools/list", json!({})).open().await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    gate.open();
    assert_eq!(leg.finish().await.result()["tools"], json!([]));
    stage.ends().await;
}
