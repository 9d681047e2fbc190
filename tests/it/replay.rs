//! A re-issue that comes again joins the running leg or gets the remembered outcome; the tool is started once
//! and each answer delivered once, whatever is repeated.

use serde_json::{Value, json};

use crate::support::client::{Asked, Request};
use crate::support::puppet::Ending;
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, eventually, form, text_of};

fn named(name: &str) -> Value {
    accept(json!({"name": name}))
}

/// A tool that asks for a name and waits for the gate before it ends.
fn slow(stage: &Stage) -> Gate {
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("slow", move |call| {
        let gate = script_gate.clone();
        async move {
            let answer = call.elicit(form("name", name_schema())).await;
            gate.passed().await;
            Ending::text(format!("slow {}", answer.said("name")))
        }
    });
    gate
}

async fn held(stage: &Stage, tool: &str) -> (Request, Asked) {
    let request = stage.client.tool(tool, json!({}));
    let asked = request.send().await.asked();
    (request, asked)
}

async fn answered(stage: &Stage, count: usize) {
    let is_answered = |ledger: &crate::support::puppet::Ledger| ledger.answers.len() >= count;
    stage.puppet.until("the answer", is_answered).await;
}

#[tokio::test]
async fn a_repeat_after_the_end_gets_the_outcome() {
    let stage = Stage::new().await;
    let (request, asked) = held(&stage, "name").await;
    for _ in 0..3 {
        let reply = request.answer(&asked, named("Ada")).send().await;
        assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    }
    request
        .answer(&asked, named("Eve"))
        .send()
        .await
        .refused("answered");
    request
        .answer(&asked, json!({"action": "cancel"}))
        .send()
        .await
        .refused("answered");
    request
        .again(&asked, json!({}))
        .send()
        .await
        .refused("answered");
    let reply = request.answer(&asked, named("Ada")).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!((stage.puppet.starts("name"), stage.answers()), (1, 1));
    stage.ends().await;
}

#[tokio::test]
async fn a_repeat_of_a_running_leg_joins_it() {
    let stage = Stage::new().await;
    let gate = slow(&stage);
    let (request, asked) = held(&stage, "slow").await;
    let first = request.answer(&asked, named("Ada")).open().await;
    answered(&stage, 1).await;
    let second = request.answer(&asked, named("Ada")).open().await;
    // Other answers meet a running leg: they are refused and do not stop it.
    request
        .answer(&asked, named("Eve"))
        .send()
        .await
        .refused("answered");
    gate.open();
    for leg in [first, second] {
        assert_eq!(text_of(leg.finish().await.result()), "slow \"Ada\"");
    }
    assert_eq!((stage.puppet.starts("slow"), stage.answers()), (1, 1));
    stage.ends().await;
}

#[tokio::test]
async fn two_identical_reissues_at_once() {
    let stage = Stage::new().await;
    for round in 1..=50 {
        let (request, asked) = held(&stage, "name").await;
        let (first, second) = (
            request.answer(&asked, named("Ada")),
            request.answer(&asked, named("Ada")),
        );
        let (first, second) = tokio::join!(first.send(), second.send());
        assert_eq!(text_of(first.result()), "name: \"Ada\"");
        assert_eq!(text_of(second.result()), "name: \"Ada\"");
        assert_eq!(
            (stage.puppet.starts("name"), stage.answers()),
            (round, round)
        );
    }
    stage.ends().await;
}

/// Of two different answers at once one is taken, the other refused.
#[tokio::test]
async fn two_different_reissues_at_once() {
    let stage = Stage::new().await;
    for round in 1..=50 {
        let (request, asked) = held(&stage, "name").await;
        let (ada, eve) = (
            request.answer(&asked, named("Ada")),
            request.answer(&asked, named("Eve")),
        );
        let (ada, eve) = tokio::join!(ada.send(), eve.send());
        let (taken, name, refused) = match ada.message.get("result") {
            Some(_) => (ada, "Ada", eve),
            None => (eve, "Eve", ada),
        };
        assert_eq!(text_of(taken.result()), format!("name: \"{name}\""));
        refused.refused("answered");
        assert_eq!(
            (stage.puppet.starts("name"), stage.answers()),
            (round, round)
        );
    }
    stage.ends().await;
}

#[tokio::test]
async fn order_does_not_make_other_answers() {
    let stage = Stage::new().await;
    let (request, asked) = held(&stage, "two").await;
    let (color, size) = (accept(json!({"color": "red"})), accept(json!({"size": 9})));
    let (one, other) = (
        format!(r#"{{"color":{color},"size":{size}}}"#),
        format!(r#"{{ "size": {size}, "color": {color} }}"#),
    );
    for responses in [one, other] {
        let reissue = request.again(&asked, json!("here"));
        let body = reissue
            .message()
            .to_string()
            .replace("\"here\"", &responses);
        let reply = reissue.raw(body).open().await.raw().await;
        assert!(reply.contains(r#"\"red\" 9"#), "{reply}");
    }
    assert_eq!(stage.answers(), 2);
    stage.ends().await;
}

/// The state of a round that is over: its own answers get what they got, others are refused.
#[tokio::test]
async fn the_state_of_an_earlier_round() {
    let stage = Stage::new().await;
    let (request, first) = held(&stage, "three").await;
    let second = request.answer(&first, named("Ada")).send().await.asked();
    let again = request.answer(&first, named("Ada")).send().await.asked();
    assert_eq!((again.keys(), &again.state), (second.keys(), &second.state));
    request
        .answer(&first, named("Eve"))
        .send()
        .await
        .refused("answered");
    let city = accept(json!({"city": "London"}));
    let third = request.answer(&second, city).send().await.asked();
    request
        .answer(&first, named("Eve"))
        .send()
        .await
        .refused("answered");
    let street = accept(json!({"street": "St James's"}));
    let reply = request.answer(&third, street).send().await;
    assert_eq!(text_of(reply.result()), r#""Ada" "London" "St James's""#);
    request
        .answer(&first, named("Eve"))
        .send()
        .await
        .refused("answered");
    assert_eq!((stage.puppet.starts("three"), stage.answers()), (1, 3));
    stage.ends().await;
}

/// An answer that was not taken is asked again; its repeat gets the same question, not a new one.
#[tokio::test]
async fn a_repeat_of_a_wrong_answer_gets_the_same_question() {
    let stage = Stage::new().await;
    let (request, asked) = held(&stage, "name").await;
    let wrong = accept(json!({"name": 5}));
    let once = request.answer(&asked, wrong.clone()).send().await.asked();
    let twice = request.answer(&asked, wrong).send().await.asked();
    assert_eq!(once.state, twice.state);
    let reply = request.answer(&once, named("Ada")).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    assert_eq!(stage.answers(), 1);
    stage.ends().await;
}

#[tokio::test]
async fn outcomes_are_forgotten_in_time() {
    let stage = Stage::with(|config| config.timer("outcome_ttl", "100ms")).await;
    let (request, asked) = held(&stage, "name").await;
    request.answer(&asked, named("Ada")).send().await.result();
    let is_forgotten = || async {
        let reply = request.answer(&asked, named("Ada")).send().await;
        if reply.message.get("result").is_some() {
            return false;
        }
        reply.refused("lost");
        true
    };
    eventually("the outcome to be forgotten", is_forgotten).await;
    assert_eq!((stage.puppet.starts("name"), stage.answers()), (1, 1));
    stage.ends().await;
}

/// The outcome of a call belongs to the one who made it.
#[tokio::test]
async fn the_outcome_is_not_told_to_others() {
    let stage = Stage::new().await;
    let alice = stage.client.clone().named("alice");
    let request = alice.tool("name", json!({}));
    let asked = request.send().await.asked();
    let reissue = request.answer(&asked, named("Ada"));
    reissue.send().await.result();
    let bob = stage.client.clone().named("bob");
    reissue.by(&bob).send().await.refused("principal");
    stage.ends().await;
}

#[tokio::test]
async fn many_repeats_at_once_all_join() {
    let stage = Stage::new().await;
    let gate = slow(&stage);
    let (request, asked) = held(&stage, "slow").await;
    let reissue = request.answer(&asked, named("Ada"));
    let legs = futures_util::future::join_all((0..40).map(|_| reissue.open())).await;
    answered(&stage, 1).await;
    gate.open();
    for leg in legs {
        assert_eq!(text_of(leg.finish().await.result()), "slow \"Ada\"");
    }
    assert_eq!((stage.puppet.starts("slow"), stage.answers()), (1, 1));
    stage.ends().await;
}
