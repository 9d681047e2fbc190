//! Nobody waits for somebody else's request, whatever it is and whoever makes it.

use serde_json::{Value, json};

use crate::support::client::{Client, Request};
use crate::support::puppet::{Call, Ending, GeneralStream, Manner, Puppet};
use crate::support::stage::{Stage, name_schema};
use crate::support::{accept, form};

/// The word in a request that makes the server fall silent.
const STUCK: &str = "stuck";

/// Every method, with params that are answered or not.
fn methods(client: &Client, word: &str) -> Vec<Request> {
    let cursor = json!({"cursor": word});
    let reference = json!({"type": "ref/prompt", "name": "p"});
    [
        ("tools/list", cursor.clone()),
        ("prompts/list", cursor.clone()),
        ("resources/list", cursor.clone()),
        ("resources/templates/list", cursor),
        ("tools/call", json!({"name": word})),
        ("prompts/get", json!({"name": word})),
        ("resources/read", json!({"uri": word})),
        (
            "completion/complete",
            json!({"ref": reference, "argument": {"name": "a", "value": word}}),
        ),
    ]
    .map(|(method, params)| client.request(method, params))
    .into()
}

fn scripted(puppet: &Puppet) {
    let answers: [(&str, Value); 8] = [
        ("tools/list", json!({"tools": []})),
        ("prompts/list", json!({"prompts": []})),
        ("resources/list", json!({"resources": []})),
        ("resources/templates/list", json!({"resourceTemplates": []})),
        ("tools/call", json!({"content": []})),
        ("prompts/get", json!({"messages": []})),
        ("resources/read", json!({"contents": []})),
        ("completion/complete", json!({"completion": {"values": []}})),
    ];
    for (method, result) in answers {
        let run = move |call: Call| {
            let result = result.clone();
            async move {
                if call.request["params"].to_string().contains(STUCK) {
                    std::future::pending::<()>().await;
                }
                Ending::Result(result)
            }
        };
        for name in ["", "free", STUCK] {
            puppet.on(method, name, run.clone());
        }
    }
}

async fn nobody_waits(general_stream: GeneralStream) {
    let stage = Stage::set(
        Manner {
            general_stream,
            ..Manner::default()
        },
        |config| config.timer("leg_max", "60s"),
    )
    .await;
    scripted(&stage.puppet);
    stage.puppet.tool("held", |call| async move {
        call.elicit(form("name", name_schema())).await;
        Ending::text("answered")
    });
    let (ada, eve) = (
        stage.client.clone().named("ada"),
        stage.client.clone().named("eve"),
    );
    let held = ada.tool("held", json!({}));
    let asked = held.send().await.asked();
    // Every method of one client is stuck at the server, twice; every method of everybody is answered all the same.
    let mut open = Vec::new();
    for request in methods(&ada, STUCK).iter().chain(&methods(&ada, STUCK)) {
        open.push(request.open().await);
    }
    let stuck = open.len();
    let are_there = move |ledger: &crate::support::puppet::Ledger| ledger.running == stuck + 1;
    stage
        .puppet
        .until("all requests to be stuck", are_there)
        .await;
    for client in [&ada, &eve] {
        for request in methods(client, "free") {
            request.send().await.result();
        }
        client
            .request("server/discover", json!({}))
            .send()
            .await
            .result();
    }
    let answer = held.answer(&asked, accept(json!({"name": "Ada"})));
    answer.send().await.result();
    drop(open);
    stage.ends().await;
}

#[tokio::test]
async fn nobody_waits_for_anybody() {
    nobody_waits(GeneralStream::Offered).await;
}

#[tokio::test]
async fn nobody_waits_where_sessions_are_shared() {
    nobody_waits(GeneralStream::Refused).await;
}
