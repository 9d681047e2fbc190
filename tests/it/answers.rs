//! What a client answers is checked before the server sees it; what does not fit is asked again.

use serde_json::{Value, json};

use crate::support::puppet::Ending;
use crate::support::stage::Stage;
use crate::support::{accept, form, text_of};

/// Answers that are no proper answer to the question for a name.
fn wrong_names() -> Vec<(&'static str, Value)> {
    vec![
        ("nothing", json!({})),
        ("an unknown action", json!({"action": "perhaps"})),
        ("an action that is no text", json!({"action": 1})),
        ("accept without content", json!({"action": "accept"})),
        ("content that is no object", accept(json!("Ada"))),
        ("content as null", accept(Value::Null)),
        ("content without the property", accept(json!({}))),
        ("a number for a text", accept(json!({"name": 5}))),
        ("null for a text", accept(json!({"name": null}))),
        ("too short a text", accept(json!({"name": "A"}))),
        ("too long a text", accept(json!({"name": "A".repeat(41)}))),
        ("an object for a text", accept(json!({"name": {}}))),
        (
            "the answer to sampling",
            json!({"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}),
        ),
        ("the answer to roots", json!({"roots": []})),
    ]
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_again() {
    let stage = Stage::new().await;
    let request = stage.client.tool("name", json!({}));
    let mut asked = request.send().await.asked();
    for (what, wrong) in wrong_names() {
        let again = request.answer(&asked, wrong).send().await;
        assert_eq!(
            again.message["result"]["resultType"], "input_required",
            "{what}: {}",
            again.message
        );
        let again = again.asked();
        assert_eq!(again.keys(), ["name"], "{what}");
        assert_eq!(again.question(), asked.question(), "{what}");
        assert_eq!(stage.answers(), 0, "{what} reached the server");
        asked = again;
    }
    let reply = request
        .answer(&asked, accept(json!({"name": "Ada"})))
        .send()
        .await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!((stage.puppet.starts("name"), stage.answers()), (1, 1));
    stage.ends().await;
}

#[tokio::test]
async fn a_missing_answer_is_asked_again() {
    let stage = Stage::new().await;
    let request = stage.client.tool("name", json!({}));
    let asked = request.send().await.asked();
    let again = request.again(&asked, json!({})).send().await.asked();
    assert_eq!(again.keys(), ["name"]);
    let bare = request.again(&again, json!({})).edit(|body| {
        body["params"]
            .as_object_mut()
            .unwrap()
            .remove("inputResponses");
    });
    let again = bare.send().await.asked();
    assert_eq!(again.keys(), ["name"]);
    let reply = request
        .answer(&again, accept(json!({"name": "Ada"})))
        .send()
        .await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    stage.ends().await;
}

#[tokio::test]
async fn unknown_keys_are_ignored() {
    let stage = Stage::new().await;
    let request = stage.client.tool("name", json!({}));
    let asked = request.send().await.asked();
    let responses = json!({
        "name": accept(json!({"name": "Ada"})),
        "other": accept(json!({"name": "Eve"})),
        "": {},
    });
    let reply = request.again(&asked, responses).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!(stage.answers(), 1);
    stage.ends().await;
}

/// Of two answers one is good: it goes up, the other is asked again, and the good one is not asked again.
#[tokio::test]
async fn a_good_answer_counts_beside_a_bad_one() {
    for (bad, what) in [
        (Some(accept(json!({"size": "nine"}))), "wrong"),
        (None, "missing"),
    ] {
        let stage = Stage::new().await;
        let request = stage.client.tool("two", json!({}));
        let asked = request.send().await.asked();
        let mut responses = json!({"color": accept(json!({"color": "red"}))});
        if let Some(bad) = bad {
            responses["size"] = bad;
        }
        let again = request.again(&asked, responses).send().await.asked();
        assert_eq!(again.keys(), ["size"], "{what}");
        stage
            .puppet
            .until("the good answer", |ledger| ledger.answers.len() == 1)
            .await;
        let reply = request
            .answer(&again, accept(json!({"size": 9})))
            .send()
            .await;
        assert_eq!(text_of(reply.result()), "\"red\" 9", "{what}");
        assert_eq!(stage.answers(), 2, "{what}");
        stage.ends().await;
    }
}

#[tokio::test]
async fn answers_to_sampling_and_roots_are_checked() {
    let stage = Stage::new().await;
    let messages = json!([{"role": "user", "content": {"type": "text", "text": "?"}}]);
    let sampled =
        json!({"role": "assistant", "content": {"type": "text", "text": "!"}, "model": "m"});
    let without = |key: &str| {
        let mut sampled = sampled.clone();
        sampled.as_object_mut().unwrap().remove(key);
        sampled
    };
    let sampling_wrong = vec![
        json!({}),
        without("role"),
        without("content"),
        without("model"),
        json!({"action": "accept", "content": {}}),
        json!({"role": "assistant", "content": 5, "model": "m"}),
        json!({"role": "wizard", "content": {"type": "text", "text": "!"}, "model": "m"}),
    ];
    let roots_wrong = vec![
        json!({}),
        json!({"roots": {}}),
        json!({"roots": [5]}),
        json!({"roots": [{"name": "no uri"}]}),
        json!({"roots": [{"uri": 5}]}),
    ];
    for (method, params, wrongs, right) in [
        (
            "sampling/createMessage",
            json!({"messages": messages, "maxTokens": 9}),
            sampling_wrong,
            sampled.clone(),
        ),
        (
            "roots/list",
            json!({}),
            roots_wrong,
            json!({"roots": [{"uri": "file:///home"}]}),
        ),
    ] {
        stage.puppet.tool("asks", move |call| {
            let params = params.clone();
            async move { Ending::text(call.ask(method, params).await.result().to_string()) }
        });
        let request = stage.client.tool("asks", json!({}));
        let before = stage.answers();
        let mut asked = request.send().await.asked();
        for wrong in wrongs {
            let again = request.answer(&asked, wrong.clone()).send().await;
            assert_eq!(
                again.message["result"]["resultType"], "input_required",
                "{wrong}: {}",
                again.message
            );
            assert_eq!(stage.answers(), before, "{wrong} reached the server");
            asked = again.asked();
        }
        let reply = request.answer(&asked, right.clone()).send().await;
        assert_eq!(
            serde_json::from_str::<Value>(text_of(reply.result())).unwrap(),
            right
        );
    }
    stage.ends().await;
}

#[tokio::test]
async fn forms_are_held_to_their_schema() {
    let stage = Stage::new().await;
    for (schema, right, wrong) in [
        (json!({"type": "boolean"}), json!(true), json!("yes")),
        (
            json!({"type": "integer", "minimum": 1, "maximum": 60}),
            json!(60),
            json!(61),
        ),
        (json!({"type": "number"}), json!(0.5), json!("0.5")),
        (
            json!({"type": "string", "enum": ["red", "green"]}),
            json!("red"),
            json!("blue"),
        ),
        (
            json!({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}),
            json!("a"),
            json!("b"),
        ),
        (
            json!({"type": "string", "format": "email"}),
            json!("a@example.com"),
            json!("nobody"),
        ),
        (
            json!({"type": "string", "format": "uri"}),
            json!("https://example.com/"),
            json!("not a uri"),
        ),
        (
            json!({"type": "string", "format": "date"}),
            json!("2026-07-28"),
            json!("July"),
        ),
        (
            json!({"type": "string", "pattern": "^[A-Z]{3}$"}),
            json!("ABC"),
            json!("abcd"),
        ),
        (
            json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["x", "y", "z"]}}),
            json!(["x", "y"]),
            json!(["x", "y", "z"]),
        ),
    ] {
        let asks = schema.clone();
        stage.puppet.tool("asks", move |call| {
            let asks = asks.clone();
            async move { Ending::text(call.elicit(form("value", asks)).await.said("value")) }
        });
        let request = stage.client.tool("asks", json!({}));
        let asked = request.send().await.asked();
        let again = request
            .answer(&asked, accept(json!({"value": wrong})))
            .send()
            .await;
        assert_eq!(
            again.message["result"]["resultType"], "input_required",
            "{wrong} for {schema}"
        );
        let reply = request
            .answer(&again.asked(), accept(json!({"value": right})))
            .send()
            .await;
        assert_eq!(text_of(reply.result()), right.to_string(), "{schema}");
    }
    stage.ends().await;
}

/// A schema of the server that cannot be used is the server's fault: it is told, nothing is fetched, and
/// nobody waits for ever.
#[tokio::test]
async fn schemas_that_cannot_be_used_are_refused_to_the_server() {
    let stage = Stage::new().await;
    let reference = json!({"$ref": format!("http://{}/schema.json", stage.puppet.addr())});
    for schema in [
        reference,
        json!({"type": 5}),
        json!({"type": "string", "pattern": "("}),
    ] {
        let asks = schema.clone();
        stage.puppet.tool("asks", move |call| {
            let asks = asks.clone();
            async move { Ending::text(call.elicit(form("value", asks)).await.said("value")) }
        });
        let request = stage.client.tool("asks", json!({}));
        let mut reply = request.send().await;
        if reply.message["result"]["resultType"] == "input_required" {
            reply = request
                .answer(&reply.asked(), accept(json!({"value": "x"})))
                .send()
                .await;
        }
        assert!(
            text_of(reply.result()).starts_with("error"),
            "{schema}: {}",
            reply.message
        );
    }
    let fetched = stage
        .puppet
        .ledger()
        .records
        .iter()
        .any(|record| record.head.word(1) != "/mcp");
    assert!(!fetched, "a schema was fetched");
    stage.ends().await;
}

/// Answers that come with the first leg are kept until the server asks under their key.
#[tokio::test]
async fn answers_given_in_advance_save_a_round() {
    let stage = Stage::new().await;
    let request = stage.client.tool("name", json!({}));
    let good = json!({"name": accept(json!({"name": "Ada"}))});
    let reply = request.clone().param("inputResponses", good).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    let bad = json!({"name": accept(json!({"name": 5})), "other": {}});
    let request = stage.client.tool("name", json!({}));
    let asked = request
        .clone()
        .param("inputResponses", bad)
        .send()
        .await
        .asked();
    let reply = request
        .answer(&asked, accept(json!({"name": "Ada"})))
        .send()
        .await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    stage.ends().await;
}

/// A form without `required` may be answered without content.
#[tokio::test]
async fn an_empty_form_needs_no_content() {
    let stage = Stage::new().await;
    stage.puppet.tool("empty", |call| async move {
        let schema = json!({"type": "object", "properties": {}});
        let answer = call
            .elicit(json!({"message": "Go on?", "requestedSchema": schema}))
            .await;
        Ending::text(answer.result()["action"].to_string())
    });
    let request = stage.client.tool("empty", json!({}));
    let asked = request.send().await.asked();
    let reply = request.answer(&asked, accept(json!({}))).send().await;
    assert_eq!(text_of(reply.result()), "\"accept\"");
    stage.ends().await;
}

/// Depths that would overflow a stack are no answer, and no harm.
#[tokio::test]
async fn an_answer_of_any_depth_is_no_harm() {
    let stage = Stage::new().await;
    let request = stage.client.tool("name", json!({}));
    let mut asked = request.send().await.asked();
    for depth in [120, 200, 100_000] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let reissue = request.answer(&asked, accept(json!({"name": "here"})));
        let body = reissue.message().to_string().replace("\"here\"", &nested);
        let reply = reissue.raw(body).open().await.raw().await;
        assert!(reply.contains("input_required"), "{depth}: {reply}");
        let message: Value = serde_json::from_str(&reply).unwrap();
        asked.state = message["result"]["requestState"]
            .as_str()
            .unwrap()
            .to_owned();
    }
    let reply = request
        .answer(&asked, accept(json!({"name": "Ada"})))
        .send()
        .await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!(stage.answers(), 1);
    stage.ends().await;
}
