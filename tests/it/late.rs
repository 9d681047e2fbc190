//! A server that gives up waiting: its final result is what the late re-issue gets.

use serde_json::{Value, json};

use crate::support::puppet::Ending;
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, form, text_of};

/// A tool that asks and then gives up when the gate opens, without an answer.
fn impatient(stage: &Stage, gate: &Gate, says_so: bool) {
    let gate = gate.clone();
    stage.puppet.tool("impatient", move |call| {
        let gate = gate.clone();
        async move {
            let id = call.pose("elicitation/create", form("name", name_schema())).await;
            gate.passed().await;
            if says_so {
                let params = json!({"requestId": id, "reason": "timeout"});
                call.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
                    .await;
            }
            Ending::Result(json!({"content": [{"type": "text", "text": "gave up"}], "isError": true}))
        }
    });
}

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

#[tokio::test]
async fn the_late_reissue_gets_the_servers_last_word() {
    for says_so in [true, false] {
        let stage = Stage::new().await;
        let gate = Gate::default();
        impatient(&stage, &gate, says_so);
        let request = stage.client.tool("impatient", json!({}));
        let asked = request.send().await.asked();
        gate.open();
        stage.gateway.metric_is("holdfast_calls", 0).await;
        let reply = request.answer(&asked, ada()).send().await;
        assert_eq!(text_of(reply.result()), "gave up");
        assert_eq!(reply.result()["isError"], true);
        // The same again, and other answers not.
        let again = request.answer(&asked, ada()).send().await;
        assert_eq!(text_of(again.result()), "gave up");
        request
            .answer(&asked, accept(json!({"name": "Eve"})))
            .send()
            .await
            .refused("answered");
        assert_eq!(stage.answers(), 0, "nobody waits for the answer any more");
        assert_eq!(stage.puppet.starts("impatient"), 1);
        stage.ends().await;
    }
}

/// The server gives up while the client's answer is on its way: one of both wins, nothing is said twice.
#[tokio::test]
async fn giving_up_and_answering_at_once() {
    let stage = Stage::new().await;
    let gate = Gate::default();
    impatient(&stage, &gate, true);
    for _ in 0..50 {
        let request = stage.client.tool("impatient", json!({}));
        let asked = request.send().await.asked();
        let reissue = request.answer(&asked, ada());
        gate.open();
        let reply = reissue.send().await;
        assert_eq!(text_of(reply.result()), "gave up");
    }
    stage.ends().await;
}

/// An error of the server is a last word too.
#[tokio::test]
async fn the_late_reissue_gets_the_servers_error() {
    let stage = Stage::new().await;
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("fails", move |call| {
        let gate = script_gate.clone();
        async move {
            call.pose("elicitation/create", form("name", name_schema()))
                .await;
            gate.passed().await;
            Ending::Error(json!({"code": -32603, "message": "out of patience"}))
        }
    });
    let request = stage.client.tool("fails", json!({}));
    let asked = request.send().await.asked();
    gate.open();
    stage.gateway.metric_is("holdfast_calls", 0).await;
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(reply.error(200, -32603)["message"], "out of patience");
    stage.ends().await;
}

/// A withdrawn question whose server goes on: the re-issue's answer is dropped, the leg waits for the end.
#[tokio::test]
async fn the_server_goes_on_without_the_answer() {
    let stage = Stage::new().await;
    let (withdraw, finish) = (Gate::default(), Gate::default());
    let gates = (withdraw.clone(), finish.clone());
    stage.puppet.tool("goes-on", move |call| {
        let (withdraw, finish) = gates.clone();
        async move {
            let id = call
                .pose("elicitation/create", form("name", name_schema()))
                .await;
            withdraw.passed().await;
            let params = json!({"requestId": id});
            call.send(
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
            )
            .await;
            // The pong says that the withdrawal has been read.
            call.ask("ping", json!({})).await;
            finish.passed().await;
            Ending::text("without you")
        }
    });
    let request = stage.client.tool("goes-on", json!({}));
    let asked = request.send().await.asked();
    withdraw.open();
    stage
        .puppet
        .until("the pong", |ledger| ledger.answers.len() == 1)
        .await;
    let leg = request.answer(&asked, ada()).open().await;
    finish.open();
    assert_eq!(text_of(leg.finish().await.result()), "without you");
    assert_eq!(stage.answers(), 1, "only the pong");
    stage.ends().await;
}
