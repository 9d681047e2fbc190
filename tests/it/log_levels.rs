//! `logging/setLevel` upstream follows what the live requests of a session want.

use serde_json::{Value, json};

use crate::support::client::{META_LOG_LEVEL, Request};
use crate::support::puppet::{Ending, GeneralStream, Manner, Puppet};
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, form};

/// The levels that a puppet was asked for.
fn asked(puppet: &Puppet) -> Vec<Value> {
    let asked = puppet.ledger().requests("logging/setLevel");
    asked
        .iter()
        .map(|set| set.body["params"]["level"].clone())
        .collect()
}

fn hears(request: &Request, level: &str) -> Request {
    request.clone().meta(META_LOG_LEVEL, json!(level))
}

async fn warm(manner: Manner) -> Stage {
    Stage::set(manner, |config| config.timer("session_idle", "60s")).await
}

/// A server that filters, as the SDKs' do: the level of the session is known when the answer comes.
#[tokio::test]
async fn the_level_is_there_before_the_answer_that_it_came_with() {
    let stage = warm(Manner::default()).await;
    stage.puppet.tool("logs", |call| async move {
        call.elicit(form("name", name_schema())).await;
        call.until(|ledger| !ledger.requests("logging/setLevel").is_empty())
            .await;
        call.log("debug", "after").await;
        Ending::text("done")
    });
    let request = stage.client.tool("logs", json!({}));
    let asked_for = request.send().await.asked();
    assert!(asked(&stage.puppet).is_empty(), "no leg wanted any");
    let answer = request.answer(&asked_for, accept(json!({"name": "Ada"})));
    let reply = hears(&answer, "debug").send().await;
    assert_eq!(reply.noted("notifications/message").len(), 1);
    let order: Vec<_> = {
        let ledger = stage.puppet.ledger();
        let posts = ledger.records.iter().filter(|record| record.verb == "POST");
        posts.map(|record| record.method().to_owned()).collect()
    };
    let set = order.iter().position(|method| method == "logging/setLevel");
    let answered = order.iter().rposition(String::is_empty);
    assert!(set < answered, "{order:?}");
    stage.closes().await;
}

/// Several requests share a session where the server has no general stream: its level is the lowest that any of those
/// that live wants.
#[tokio::test]
async fn the_lowest_level_that_is_wanted_counts() {
    let stage = warm(Manner {
        general_stream: GeneralStream::Refused,
        ..Manner::default()
    })
    .await;
    let gates = [Gate::default(), Gate::default()];
    for (tool, gate) in ["one", "two"].into_iter().zip(gates.clone()) {
        stage.puppet.tool(tool, move |call| {
            let gate = gate.clone();
            async move {
                gate.passed().await;
                call.log("debug", "detail").await;
                call.log("error", "trouble").await;
                Ending::text("done")
            }
        });
    }
    let error = hears(&stage.client.tool("one", json!({})), "error")
        .open()
        .await;
    stage.started("one", 1).await;
    let debug = hears(&stage.client.tool("two", json!({})), "debug")
        .open()
        .await;
    stage.started("two", 1).await;
    assert_eq!(asked(&stage.puppet), ["error", "debug"]);
    gates[1].open();
    let heard = debug.finish().await;
    assert_eq!(heard.noted("notifications/message").len(), 2);
    let is_raised =
        |ledger: &crate::support::puppet::Ledger| ledger.requests("logging/setLevel").len() == 3;
    stage
        .puppet
        .until("the level to be raised again", is_raised)
        .await;
    assert_eq!(asked(&stage.puppet), ["error", "debug", "error"]);
    gates[0].open();
    let heard = error.finish().await;
    assert_eq!(
        heard.noted("notifications/message").len(),
        1,
        "its own level counts"
    );
    // Nobody is left: the level stays, and is what the next one wants.
    hears(&stage.client.tool("echo", json!({})), "error")
        .send()
        .await
        .result();
    assert_eq!(asked(&stage.puppet).len(), 3);
    stage.closes().await;
}

/// A server that never answers `logging/setLevel` costs a session its patience once.
#[tokio::test]
async fn a_server_that_takes_no_level_is_asked_once() {
    let stage = warm(Manner::default()).await;
    stage
        .puppet
        .on("logging/setLevel", "", |_| async { Ending::Stall });
    for level in ["error", "debug", "info"] {
        hears(&stage.client.tool("echo", json!({})), level)
            .send()
            .await
            .result();
    }
    assert_eq!(asked(&stage.puppet), ["error"]);
    // What was asked is never answered.
    stage.gateway.metric_is("holdfast_calls", 0).await;
    assert_eq!(stage.gateway.terminate().await, 0);
}
