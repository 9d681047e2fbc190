//! Callers with different credentials on one session-making server, interleaved thousands of times: never a
//! wrong question, never a wrong answer, never a tool started twice.

use std::collections::HashMap;

use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::puppet::{Call, Ending, GeneralStream, Manner};
use crate::support::stage::{Stage, name_schema};
use crate::support::{accept, form, text_of};

/// Calls of each caller.
const CALLS: usize = 1500;

/// Calls in flight at once.
const AT_ONCE: usize = 24;

/// Asks a question that names its caller twice: by the session's credentials and by the arguments.
async fn personal(call: Call, general: bool) -> Ending {
    let caller = call.session.credentials.clone().unwrap_or_default();
    let n = call.arguments()["n"].to_string();
    let mut params = form("secret", name_schema());
    params["message"] = json!(format!("{caller} {n}"));
    let answer = match general {
        true => call.ask_generally("elicitation/create", params).await,
        false => call.elicit(params).await,
    };
    Ending::text(format!("{caller} {n} {}", answer.said("secret")))
}

async fn conversation(client: &Client, name: &str, n: usize) {
    let tool = if n.is_multiple_of(2) {
        "personal"
    } else {
        "general"
    };
    let request = client.tool(tool, json!({"n": n}));
    if n.is_multiple_of(5) {
        let reply = client.tool("plain", json!({"n": n})).send().await;
        assert_eq!(text_of(reply.result()), format!("Bearer {name} {n}"));
    }
    let asked = request.send().await.asked();
    let question = asked.question()["params"]["message"].as_str().unwrap();
    assert_eq!(question, format!("Bearer {name} {n}"), "a wrong question");
    let secret = format!("{name} {n}");
    let reissue = request.answer(&asked, accept(json!({"secret": secret})));
    let reply = if n.is_multiple_of(7) {
        // A client that repeats itself.
        let (first, second) = tokio::join!(reissue.send(), reissue.send());
        assert_eq!(text_of(first.result()), text_of(second.result()));
        first
    } else {
        reissue.send().await
    };
    assert_eq!(
        text_of(reply.result()),
        format!("Bearer {name} {n} \"{secret}\""),
        "a wrong answer"
    );
}

async fn crowd(manner: Manner) {
    let stage = Stage::of(manner.clone()).await;
    let asks_generally = manner.general_stream == GeneralStream::Offered;
    stage.puppet.tool("personal", |call| personal(call, false));
    stage
        .puppet
        .tool("general", move |call| personal(call, asks_generally));
    stage.puppet.tool("plain", |call| async move {
        let caller = call.session.credentials.clone().unwrap_or_default();
        Ending::text(format!("{caller} {}", call.arguments()["n"]))
    });
    let (alice, bob) = (
        stage.client.clone().named("alice"),
        stage.client.clone().named("bob"),
    );
    let both = (0..CALLS).flat_map(|n| [(&alice, "alice", n), (&bob, "bob", n)]);
    stream::iter(both)
        .map(|(client, name, n)| conversation(client, name, n))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
    let mut answered: HashMap<(String, String), usize> = HashMap::new();
    let starts = {
        let ledger = stage.puppet.ledger();
        for given in &ledger.answers {
            *answered
                .entry((given.session.clone(), given.id.to_string()))
                .or_default() += 1;
        }
        ledger
            .starts
            .iter()
            .filter(|(tool, _)| tool != "plain")
            .count()
    };
    assert_eq!(starts, 2 * CALLS);
    assert_eq!(answered.len(), 2 * CALLS);
    assert!(answered.values().all(|times| *times == 1));
    stage.ends().await;
}

#[tokio::test]
async fn two_callers_interleaved() {
    crowd(Manner::default()).await;
}

#[tokio::test]
async fn two_callers_interleaved_without_general_streams() {
    crowd(Manner {
        general_stream: GeneralStream::Refused,
        ..Manner::default()
    })
    .await;
}

/// Clients that answer, decline, go away, come back, lie and repeat, all at once: in the end nothing is left.
#[tokio::test]
async fn a_disorderly_crowd_leaves_nothing() {
    let stage = Stage::with(|config| {
        config
            .timer("leg_grace", "50ms")
            .timer("hold_ttl", "2s")
            .timer("outcome_ttl", "1s")
    })
    .await;
    let callers: Vec<Client> = (0..4)
        .map(|n| stage.client.clone().named(&format!("caller-{n}")))
        .collect();
    let acts = (0..600_usize).map(|n| {
        let client = &callers[n % callers.len()];
        let other = &callers[(n + 1) % callers.len()];
        async move {
            let tool = ["name", "generally", "three", "two"][n % 4];
            let request = client.tool(tool, json!({"n": n}));
            match n % 9 {
                // Goes away at once.
                0 => drop(request.open().await),
                // Never comes back.
                1 => drop(request.send().await.asked()),
                _ => disorderly(&request.send().await.asked(), &request, other, n).await,
            }
        }
    });
    stream::iter(acts)
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
    stage.ends().await;
}

async fn disorderly(
    asked: &crate::support::client::Asked,
    request: &crate::support::client::Request,
    other: &Client,
    n: usize,
) {
    let content: Value = asked
        .requests
        .iter()
        .map(|(key, question)| {
            let properties = question["params"]["requestedSchema"]["properties"]
                .as_object()
                .unwrap();
            let content: serde_json::Map<_, _> = properties
                .iter()
                .map(|(name, schema)| {
                    let value = if schema["type"] == "integer" {
                        json!(9)
                    } else {
                        json!("Ada")
                    };
                    (name.clone(), value)
                })
                .collect();
            (key.clone(), accept(Value::Object(content)))
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    let reissue = request.again(asked, content);
    match n % 7 {
        0 => drop(reissue.open().await),
        1 => {
            reissue.clone().by(other).send().await.refused("principal");
            reissue.send().await;
        }
        2 => {
            request.again(asked, json!({})).send().await.asked();
        }
        3 => {
            let decline = json!({"action": "decline"});
            let declined = asked
                .requests
                .keys()
                .map(|key| (key.clone(), decline.clone()));
            request
                .again(asked, Value::Object(declined.collect()))
                .send()
                .await;
        }
        4 => {
            tokio::join!(reissue.send(), reissue.send(), reissue.send());
        }
        _ => {
            reissue.send().await;
        }
    }
}
