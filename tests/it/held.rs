//! A call that is asked something is held: the client is asked, its re-issue finishes the same call.

use serde_json::{Value, json};

use crate::support::client::Request;
use crate::support::puppet::{Answers, Ending, EventIds, GeneralStream, Manner};
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, form, text_of};

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

/// Calls `tool`, answers its only question with `ada`, expects `expected`.
async fn one_question(stage: &Stage, tool: &str, expected: &str) {
    let request = stage.client.tool(tool, json!({"a": 1}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["name"]);
    let params = &asked.question()["params"];
    assert_eq!(asked.question()["method"], "elicitation/create");
    assert_eq!(params["mode"], "form");
    assert_eq!(params["message"], "Please give name.");
    assert_eq!(
        params["requestedSchema"]["properties"]["name"],
        name_schema()
    );
    assert_eq!(stage.gateway.metric("holdfast_holds").await, 1);
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), expected);
    assert_eq!((stage.puppet.starts(tool), stage.answers()), (1, 1));
}

#[tokio::test]
async fn one_question_on_the_calls_own_stream() {
    let stage = Stage::new().await;
    one_question(&stage, "name", "name: \"Ada\"").await;
    stage.ends().await;
}

#[tokio::test]
async fn one_question_on_the_general_stream() {
    let stage = Stage::new().await;
    one_question(&stage, "generally", "name: \"Ada\"").await;
    stage.ends().await;
}

#[tokio::test]
async fn in_every_manner() {
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        for (event_ids, line_end, chunk_bytes) in [
            (EventIds::With, "\n", usize::MAX),
            (EventIds::With, "\r\n", 3),
            (EventIds::Without, "\r\n", usize::MAX),
            (EventIds::Without, "\n", 1),
        ] {
            let manner = Manner {
                revision,
                event_ids,
                line_end,
                chunk_bytes,
                ..Manner::default()
            };
            let stage = Stage::of(manner).await;
            one_question(&stage, "name", "name: \"Ada\"").await;
            let request = stage.client.tool("generally", json!({}));
            let asked = request.send().await.asked();
            let reply = request.answer(&asked, ada()).send().await;
            assert_eq!(text_of(reply.result()), "name: \"Ada\"");
            stage.ends().await;
        }
    }
}

#[tokio::test]
async fn without_a_general_stream() {
    let manner = Manner {
        general_stream: GeneralStream::Refused,
        ..Manner::default()
    };
    let stage = Stage::of(manner).await;
    one_question(&stage, "name", "name: \"Ada\"").await;
    stage.ends().await;
}

/// A server that answers in JSON can ask on the general stream alone.
#[tokio::test]
async fn a_server_that_answers_in_json() {
    let stage = Stage::of(Manner {
        answers: Answers::Json,
        ..Manner::default()
    })
    .await;
    one_question(&stage, "generally", "name: \"Ada\"").await;
    stage.ends().await;
}

#[tokio::test]
async fn three_rounds() {
    let stage = Stage::new().await;
    let request = stage.client.tool("three", json!({}));
    let mut leg = request.clone();
    let mut states = Vec::new();
    for (property, value) in [
        ("name", "Ada"),
        ("city", "London"),
        ("street", "St James's"),
    ] {
        let asked = leg.send().await.asked();
        assert_eq!(asked.keys(), [property]);
        states.push(asked.state.clone());
        leg = request.answer(&asked, accept(json!({property: value})));
    }
    let reply = leg.send().await;
    assert_eq!(text_of(reply.result()), r#""Ada" "London" "St James's""#);
    states.dedup();
    assert_eq!(states.len(), 3, "every round has a state of its own");
    assert_eq!((stage.puppet.starts("three"), stage.answers()), (1, 3));
    stage.ends().await;
}

#[tokio::test]
async fn several_questions_are_gathered() {
    let stage = Stage::new().await;
    let request = stage.client.tool("two", json!({}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["color", "size"]);
    let responses =
        json!({"color": accept(json!({"color": "red"})), "size": accept(json!({"size": 9}))});
    let reply = request.again(&asked, responses).send().await;
    assert_eq!(text_of(reply.result()), "\"red\" 9");
    assert_eq!(stage.answers(), 2);
    stage.ends().await;
}

#[tokio::test]
async fn questions_of_one_key_get_keys_of_their_own() {
    let stage = Stage::new().await;
    stage.puppet.tool("same", |call| async move {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(
                call.pose("elicitation/create", form("name", name_schema()))
                    .await,
            );
        }
        let mut said = Vec::new();
        for id in &ids {
            said.push(call.answer(id).await.said("name"));
        }
        Ending::text(said.join(" "))
    });
    let request = stage.client.tool("same", json!({}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["name", "name_2", "name_3"]);
    let name = |name: &str| accept(json!({"name": name}));
    let responses = json!({"name": name("One"), "name_2": name("Two"), "name_3": name("Three")});
    let reply = request.again(&asked, responses).send().await;
    assert_eq!(text_of(reply.result()), r#""One" "Two" "Three""#);
    stage.ends().await;
}

#[tokio::test]
async fn every_method_that_may_ask() {
    let stage = Stage::with(|config| {
        config
            .backend("ttl", "\"5s\"")
            .backend("cache_scope", "\"public\"")
    })
    .await;
    for (method, name) in [
        ("prompts/get", "greeting"),
        ("resources/read", "puppet://secret"),
    ] {
        stage.puppet.on(method, name, |call| async move {
            let answer = call.elicit(form("name", name_schema())).await;
            Ending::Result(json!({"said": answer.said("name")}))
        });
        let params = if method == "prompts/get" {
            json!({"name": name})
        } else {
            json!({"uri": name})
        };
        let request = stage.client.request(method, params);
        let asked = request.send().await.asked();
        let reply = request.answer(&asked, ada()).send().await;
        assert_eq!(reply.result()["said"], "\"Ada\"");
        if method == "resources/read" {
            // The schema wants the hints; a retry is not to be cached, so they say "stale at once".
            assert_eq!(reply.result()["ttlMs"], 0);
            assert_eq!(reply.result()["cacheScope"], "private");
        }
    }
    stage.ends().await;
}

#[tokio::test]
async fn no_is_an_answer_too() {
    let stage = Stage::new().await;
    for action in ["decline", "cancel"] {
        let request = stage.client.tool("name", json!({}));
        let asked = request.send().await.asked();
        let reply = request
            .answer(&asked, json!({"action": action}))
            .send()
            .await;
        assert_eq!(text_of(reply.result()), format!("name: {action}"));
    }
    stage.ends().await;
}

#[tokio::test]
async fn every_kind_of_question() {
    let stage = Stage::new().await;
    let messages =
        json!([{"role": "user", "content": {"type": "text", "text": "Capital of France?"}}]);
    let sampling = json!({"messages": messages, "maxTokens": 64, "includeContext": "none"});
    let url = json!({"mode": "url", "message": "Sign in.", "url": "https://example.com/in", "elicitationId": "e-1"});
    let sampled =
        json!({"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"});
    let roots = json!({"roots": [{"uri": "file:///home", "name": "home"}]});
    for (method, params, key, answer) in [
        ("sampling/createMessage", sampling, "sampling", sampled),
        ("roots/list", json!({}), "roots", roots),
        (
            "elicitation/create",
            url,
            "elicitation",
            json!({"action": "accept"}),
        ),
    ] {
        let asks = params.clone();
        stage.puppet.tool("asks", move |call| {
            let asks = asks.clone();
            async move { Ending::text(call.ask(method, asks).await.result().to_string()) }
        });
        let request = stage.client.tool("asks", json!({}));
        let asked = request.send().await.asked();
        assert_eq!(asked.keys(), [key]);
        assert_eq!(asked.question()["method"], method);
        let shown = &asked.question()["params"];
        assert!(shown.get("elicitationId").is_none(), "{shown}");
        for (name, value) in params.as_object().unwrap() {
            assert!(
                name == "elicitationId" || shown[name] == *value,
                "{name} in {shown}"
            );
        }
        let reply = request.answer(&asked, answer.clone()).send().await;
        let given: Value = serde_json::from_str(text_of(reply.result())).unwrap();
        assert_eq!(given, answer);
    }
    stage.ends().await;
}

/// The roots of one call answer the same question again within it; the next call is asked anew.
#[tokio::test]
async fn roots_are_asked_once_in_a_call() {
    let stage = Stage::new().await;
    stage.puppet.tool("roots", |call| async move {
        let mut seen = Vec::new();
        for _ in 0..15 {
            let answer = call.ask("roots/list", json!({})).await;
            seen.push(answer.result()["roots"][0]["uri"].to_string());
        }
        seen.dedup();
        Ending::text(seen.join(" "))
    });
    for uri in ["file:///one", "file:///two"] {
        let request = stage.client.tool("roots", json!({}));
        let asked = request.send().await.asked();
        let reply = request
            .answer(&asked, json!({"roots": [{"uri": uri}]}))
            .send()
            .await;
        assert_eq!(text_of(reply.result()), format!("\"{uri}\""));
    }
    stage.ends().await;
}

#[tokio::test]
async fn a_question_is_withdrawn() {
    let stage = Stage::new().await;
    stage.puppet.tool("changes", |call| async move {
        let first = call
            .pose("elicitation/create", form("name", name_schema()))
            .await;
        let params = json!({"requestId": first, "reason": "changed my mind"});
        call.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
            .await;
        let answer = call.elicit(form("city", name_schema())).await;
        Ending::text(answer.said("city"))
    });
    let request = stage.client.tool("changes", json!({}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["city"]);
    let reply = request
        .answer(&asked, accept(json!({"city": "London"})))
        .send()
        .await;
    assert_eq!(text_of(reply.result()), "\"London\"");
    assert_eq!(stage.answers(), 1);
    stage.ends().await;
}

/// A server that asks more while its first question is on the table.
#[tokio::test]
async fn a_late_question_joins_the_next_round() {
    let stage = Stage::new().await;
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("late", move |call| {
        let gate = script_gate.clone();
        async move {
            let first = call
                .pose("elicitation/create", form("name", name_schema()))
                .await;
            gate.passed().await;
            let second = call
                .pose("elicitation/create", form("city", name_schema()))
                .await;
            let name = call.answer(&first).await.said("name");
            Ending::text(format!(
                "{name} {}",
                call.answer(&second).await.said("city")
            ))
        }
    });
    let request = stage.client.tool("late", json!({}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["name"]);
    gate.open();
    let asked = request.answer(&asked, ada()).send().await.asked();
    assert_eq!(asked.keys(), ["city"]);
    let reply = request
        .answer(&asked, accept(json!({"city": "London"})))
        .send()
        .await;
    assert_eq!(text_of(reply.result()), "\"Ada\" \"London\"");
    assert_eq!(stage.answers(), 2);
    stage.ends().await;
}

#[tokio::test]
async fn pings_are_answered_while_nobody_is_there() {
    let stage = Stage::new().await;
    stage.puppet.tool("pings", |call| async move {
        let own = call.ask("ping", json!({})).await;
        let general = call.ask_generally("ping", json!({})).await;
        let question = call
            .pose("elicitation/create", form("name", name_schema()))
            .await;
        let parked = call.ask("ping", json!({})).await;
        let name = call.answer(&question).await.said("name");
        let pongs = [own, general, parked]
            .map(|pong| pong.result().to_string())
            .join(" ");
        Ending::text(format!("{pongs} {name}"))
    });
    let request = stage.client.tool("pings", json!({}));
    let asked = request.send().await.asked();
    // The third ping is answered while the call is parked.
    stage
        .puppet
        .until("three pongs", |ledger| ledger.answers.len() == 3)
        .await;
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "{} {} {} \"Ada\"");
    stage.ends().await;
}

#[tokio::test]
async fn a_hint_of_the_server_names_the_key() {
    let stage = Stage::new().await;
    stage.puppet.tool("hints", |call| async move {
        let mut params = form("name", name_schema());
        params["_meta"] = json!({"holdfast/inputKey": "passenger"});
        Ending::text(call.elicit(params).await.said("name"))
    });
    let request: Request = stage.client.tool("hints", json!({}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["passenger"]);
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "\"Ada\"");
    stage.ends().await;
}
