//! `requestState` in hostile hands: what no key sealed, what is too old, what belongs to somebody or something
//! else is refused, says why, and touches nothing.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::support::client::{Asked, Client, Request};
use crate::support::gateway::Config;
use crate::support::puppet::{Manner, Puppet};
use crate::support::stage::Stage;
use crate::support::{accept, eventually, text_of};

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

/// A held call and its first leg.
async fn held(client: &Client) -> (Request, Asked) {
    let request = client.tool("name", json!({"n": 1}));
    let asked = request.send().await.asked();
    (request, asked)
}

/// The call is as it was before: its own client finishes it.
async fn untouched(stage: Stage, request: &Request, asked: &Asked) {
    assert_eq!((stage.puppet.starts("name"), stage.answers()), (1, 0));
    let reply = request.answer(asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    stage.ends().await;
}

#[tokio::test]
async fn it_is_short_and_says_nothing() {
    let stage = Stage::new().await;
    let client = stage.client.clone().named("secret-token");
    let request = client.tool("name", json!({"card": "4111-1111"}));
    let asked = request.send().await.asked();
    assert!(asked.state.len() <= 512);
    let decoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(&asked.state);
    for bytes in [
        asked.state.clone().into_bytes(),
        decoded.unwrap_or_default(),
    ] {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // Long enough that random text has none of them.
        for word in [
            "secret-token",
            "4111-1111",
            "tools/call",
            "puppet",
            "session-",
        ] {
            assert!(!text.contains(word), "{word} can be read");
        }
    }
    request.answer(&asked, ada()).send().await.result();
    stage.ends().await;
}

#[tokio::test]
async fn the_same_question_never_has_the_same_state() {
    let stage = Stage::new().await;
    let mut states = std::collections::HashSet::new();
    for _ in 0..20 {
        let (request, asked) = held(&stage.client).await;
        assert!(states.insert(asked.state.clone()));
        request.answer(&asked, ada()).send().await.result();
    }
    stage.ends().await;
}

#[tokio::test]
async fn every_truncation_is_refused() {
    let stage = Stage::new().await;
    let (request, asked) = held(&stage.client).await;
    for length in 0..asked.state.len() {
        let state = asked.state[..length].to_owned();
        request
            .answer(
                &Asked {
                    state,
                    ..asked.clone()
                },
                ada(),
            )
            .send()
            .await
            .refused("tampered");
    }
    untouched(stage, &request, &asked).await;
}

#[tokio::test]
async fn every_changed_character_is_refused() {
    let stage = Stage::new().await;
    let (request, asked) = held(&stage.client).await;
    for at in 0..asked.state.len() {
        for other in ["A", "_", "=", "\u{0}", "é"] {
            let mut state = asked.state.clone();
            state.replace_range(at..=at, other);
            if state == asked.state {
                continue;
            }
            request
                .answer(
                    &Asked {
                        state,
                        ..asked.clone()
                    },
                    ada(),
                )
                .send()
                .await
                .refused("tampered");
        }
    }
    untouched(stage, &request, &asked).await;
}

#[tokio::test]
async fn what_was_never_sealed_is_refused() {
    let stage = Stage::new().await;
    let (request, asked) = held(&stage.client).await;
    let longer = |tail: &str| asked.state.clone() + tail;
    for state in [
        String::new(),
        "x".to_owned(),
        longer("A"),
        longer("AAAA"),
        longer("="),
        longer(" "),
        longer(&asked.state),
        asked.state.to_uppercase(),
        asked.state.chars().rev().collect(),
        "A".repeat(100_000),
        "{\"hold\":1}".to_owned(),
        "\u{1F600}".to_owned(),
    ] {
        let state = Asked {
            state,
            ..asked.clone()
        };
        request
            .answer(&state, ada())
            .send()
            .await
            .refused("tampered");
    }
    untouched(stage, &request, &asked).await;
}

#[tokio::test]
async fn an_expired_one_is_refused_and_the_server_told() {
    let stage = Stage::with(|config| config.timer("hold_ttl", "500ms")).await;
    let (request, asked) = held(&stage.client).await;
    stage
        .puppet
        .until("an answer or a cancellation", |ledger| ledger.running == 0)
        .await;
    let is_expired = || async {
        let reply = request.answer(&asked, ada()).send().await;
        // Until the second is over it may be lost; it never is served.
        let error = &reply.message["error"];
        assert!(error.is_object(), "{}", reply.message);
        error["data"]["reason"] == "expired"
    };
    eventually("the state to expire", is_expired).await;
    {
        let ledger = stage.puppet.ledger();
        let answer = &ledger.answers[0].response;
        assert_eq!(answer["result"]["action"], "cancel", "{answer}");
        assert_eq!(ledger.starts.len(), 1);
    }
    stage.ends().await;
}

#[tokio::test]
async fn another_principal_is_refused() {
    let stage = Stage::new().await;
    let alice = stage.client.clone().named("alice");
    let (request, asked) = held(&alice).await;
    for other in [
        stage.client.clone().named("bob"),
        stage.client.clone().named("alice2"),
        stage.client.clone().named("ALICE"),
        stage.client.clone(),
    ] {
        let stolen = request.answer(&asked, ada()).by(&other);
        stolen.send().await.refused("principal");
    }
    untouched(stage, &request, &asked).await;
}

/// Behind a proxy that names the caller, a refreshed token goes on with its own hold.
#[tokio::test]
async fn a_refreshed_token_resumes_where_a_header_names_the_caller() {
    let manner = Manner {
        credentials: crate::support::puppet::Credentials::MayChange,
        ..Manner::default()
    };
    let stage = Stage::set(manner, |config| {
        config.top("principal", "\"header:X-User\"")
    })
    .await;
    let old = stage.client.clone().named("old-token");
    let request = old.tool("name", json!({"n": 1})).header("x-user", "ada");
    let asked = request.send().await.asked();
    let refreshed = stage.client.clone().named("new-token");
    let reissue = request.answer(&asked, ada()).by(&refreshed);
    reissue
        .clone()
        .header("x-user", "eve")
        .send()
        .await
        .refused("principal");
    assert_eq!(stage.answers(), 0);
    assert_eq!(text_of(reissue.send().await.result()), "name: \"Ada\"");
    let answered = stage.puppet.ledger().records.iter().any(|record| {
        record.body.get("result").is_some()
            && record.head.value("authorization") == Some("Bearer new-token")
    });
    assert!(answered, "the answer went up with the refreshed token");
    stage.ends().await;
}

#[tokio::test]
async fn another_request_is_refused() {
    let stage = Stage::new().await;
    let (request, asked) = held(&stage.client).await;
    let answered = request.answer(&asked, ada());
    let arguments = |value: Value| answered.clone().param("arguments", value);
    let tool = answered
        .clone()
        .param("name", json!("echo"))
        .header("mcp-name", "echo");
    let mut without = answered.clone();
    without = without.edit(|body| {
        body["params"].as_object_mut().unwrap().remove("arguments");
    });
    let prompt = stage.client.request(
        "prompts/get",
        json!({"name": "name", "arguments": {"n": 1}}),
    );
    for (what, other) in [
        ("another tool", tool),
        ("other arguments", arguments(json!({"n": 2}))),
        ("more arguments", arguments(json!({"n": 1, "m": 1}))),
        ("no arguments", arguments(json!({}))),
        ("a text for a number", arguments(json!({"n": "1"}))),
        ("arguments left out", without),
        ("another method", prompt.answer(&asked, ada())),
        (
            "a further member",
            answered.clone().param("extra", json!(1)),
        ),
    ] {
        let reply = other.send().await;
        assert_eq!(
            reply.message["error"]["data"]["reason"], "request",
            "{what}: {}",
            reply.message
        );
        reply.refused("request");
    }
    untouched(stage, &request, &asked).await;
}

/// The same values in another order, and another `_meta`, are the same request.
#[tokio::test]
async fn order_does_not_make_another_request() {
    let stage = Stage::new().await;
    let request = stage
        .client
        .tool("name", json!({"b": {"y": 1, "x": 2}, "a": 1}));
    let asked = request.send().await.asked();
    let reissue = request
        .answer(&asked, ada())
        .meta("progressToken", json!("p"));
    let body = reissue.message().to_string();
    let ordered = body.replace(
        r#"{"a":1,"b":{"x":2,"y":1}}"#,
        r#"{ "b":{"y":1,"x":2}, "a":1 }"#,
    );
    assert_ne!(body, ordered);
    let reply = reissue.raw(ordered).open().await.raw().await;
    assert!(reply.contains(r#"name: \"Ada\""#), "{reply}");
    stage.ends().await;
}

fn key(byte: u8) -> String {
    STANDARD.encode([byte; 32])
}

fn keyed(puppet: &Puppet, keys: &[u8]) -> Config {
    let keys: Vec<_> = keys
        .iter()
        .map(|byte| format!("\"{}\"", key(*byte)))
        .collect();
    Config::of(puppet).top("keys", &format!("[{}]", keys.join(", ")))
}

/// What each gateway says to a state that another one sealed with key 1.
#[tokio::test]
async fn states_of_other_gateways() {
    let puppet = Puppet::start(Manner::default()).await;
    puppet.tool("name", |call| async move {
        let asked = call
            .elicit(crate::support::form("name", json!({"type": "string"})))
            .await;
        crate::support::puppet::Ending::text(asked.said("name"))
    });
    let sealing = keyed(&puppet, &[1]).start().await;
    let (request, asked) = held(&Client::of(&sealing)).await;
    for (what, config, reason) in [
        ("the same key", keyed(&puppet, &[1]), "lost"),
        (
            "the key behind a newer one",
            keyed(&puppet, &[2, 1]),
            "lost",
        ),
        ("another key", keyed(&puppet, &[2]), "tampered"),
        ("a random key", Config::of(&puppet), "tampered"),
        (
            "another backend",
            keyed(&puppet, &[1]).backend("name", "\"other\""),
            "request",
        ),
    ] {
        let other = config.start().await;
        let reply = request
            .answer(&asked, ada())
            .by(&Client::of(&other))
            .send()
            .await;
        let error = &reply.message["error"];
        assert_eq!(error["data"]["reason"], reason, "{what}: {error}");
        assert_eq!(other.terminate().await, 0);
    }
    assert_eq!(puppet.starts("name"), 1);
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "\"Ada\"");
    assert_eq!(sealing.terminate().await, 0);
    puppet.settled().await;
}

/// Where a proxy names callers, those that it does not name are told apart by their credentials, and two names are
/// none.
#[tokio::test]
async fn a_caller_that_is_not_named_once() {
    let stage = Stage::with(|config| config.top("principal", "\"header:X-User\"")).await;
    let (alice, bob) = (
        stage.client.clone().named("alice"),
        stage.client.clone().named("bob"),
    );
    let request = alice.tool("name", json!({}));
    let asked = request.send().await.asked();
    let reissue = request.answer(&asked, ada());
    reissue.clone().by(&bob).send().await.refused("principal");
    // A proxy's name is not the same as a token that reads like it.
    let named = reissue.clone().without("authorization");
    named
        .header("x-user", "Bearer alice")
        .send()
        .await
        .refused("principal");
    for twice in [
        alice
            .tool("echo", json!({}))
            .also("x-user", "ada")
            .also("x-user", "eve"),
        alice
            .tool("echo", json!({}))
            .also("authorization", "Bearer eve"),
    ] {
        assert_eq!(twice.send().await.message["error"]["code"], -32600);
    }
    assert_eq!(text_of(reissue.send().await.result()), "name: \"Ada\"");
    stage.ends().await;
}
