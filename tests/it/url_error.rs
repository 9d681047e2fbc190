//! Error −32042: the legacy call has ended, the client visits pages, the re-issue runs the call anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::puppet::{Ending, Puppet};
use crate::support::stage::Stage;
use crate::support::text_of;

fn visits(urls: &[&str]) -> Value {
    let visit = |(at, url): (usize, &&str)| json!({"mode": "url", "message": "Sign in first.", "elicitationId": format!("e-{at}"), "url": url});
    let elicitations: Vec<_> = urls.iter().enumerate().map(visit).collect();
    json!({"code": -32042, "message": "Sign in.", "data": {"elicitations": elicitations}})
}

/// A tool that wants `times` visits before it runs.
fn guarded(puppet: &Puppet, times: usize) {
    let count = Arc::new(AtomicUsize::new(0));
    puppet.tool("guarded", move |call| {
        let count = Arc::clone(&count);
        async move {
            if count.fetch_add(1, Ordering::SeqCst) < times {
                return Ending::Error(visits(&["https://example.com/in"]));
            }
            Ending::text(format!("welcome {}", call.arguments()["who"]))
        }
    });
}

#[tokio::test]
async fn the_reissue_runs_the_call_anew() {
    let stage = Stage::new().await;
    guarded(&stage.puppet, 1);
    let request = stage.client.tool("guarded", json!({"who": "Ada"}));
    let asked = request.send().await.asked();
    let question = asked.question();
    assert_eq!(question["method"], "elicitation/create");
    let params =
        json!({"mode": "url", "message": "Sign in first.", "url": "https://example.com/in"});
    assert_eq!(question["params"], params);
    // Nothing runs while the person signs in.
    assert_eq!(stage.puppet.ledger().exchanges, 0);
    let reply = request
        .answer(&asked, json!({"action": "accept"}))
        .send()
        .await;
    assert_eq!(text_of(reply.result()), "welcome \"Ada\"");
    assert_eq!((stage.puppet.starts("guarded"), stage.answers()), (2, 0));
    stage.ends().await;
}

#[tokio::test]
async fn several_visits_are_asked_at_once() {
    let stage = Stage::new().await;
    stage.puppet.tool("guarded", |_| async {
        Ending::Error(visits(&["https://example.com/1", "https://example.com/2"]))
    });
    let request = stage.client.tool("guarded", json!({}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["elicitation", "elicitation_2"]);
    let half = json!({"elicitation": {"action": "accept"}});
    let again = request.again(&asked, half).send().await.asked();
    assert_eq!(again.keys(), ["elicitation_2"]);
    assert_eq!(stage.puppet.starts("guarded"), 1);
    let declined = request
        .answer(&again, json!({"action": "decline"}))
        .send()
        .await;
    assert_eq!(declined.result()["isError"], true);
    assert_eq!(
        stage.puppet.starts("guarded"),
        1,
        "a declined visit runs nothing"
    );
    stage.ends().await;
}

#[tokio::test]
async fn a_repeated_reissue_runs_once() {
    let stage = Stage::new().await;
    guarded(&stage.puppet, 1);
    let request = stage.client.tool("guarded", json!({"who": "Ada"}));
    let asked = request.send().await.asked();
    let reissue = request.answer(&asked, json!({"action": "accept"}));
    let repeat = request.answer(&asked, json!({"action": "accept"}));
    let (first, second) = tokio::join!(reissue.send(), repeat.send());
    assert_eq!(text_of(first.result()), text_of(second.result()));
    assert_eq!(text_of(repeat.send().await.result()), "welcome \"Ada\"");
    assert_eq!(stage.puppet.starts("guarded"), 2);
    stage.ends().await;
}

#[tokio::test]
async fn a_server_that_never_has_enough_is_given_up_on() {
    let stage = Stage::with(|config| config.limit("reruns_max", 3)).await;
    guarded(&stage.puppet, usize::MAX);
    let request = stage.client.tool("guarded", json!({}));
    let mut reply = request.send().await;
    for _ in 0..3 {
        let asked = reply.asked();
        reply = request
            .answer(&asked, json!({"action": "accept"}))
            .send()
            .await;
    }
    reply.lost(false);
    assert_eq!(stage.puppet.starts("guarded"), 4);
    stage.ends().await;
}

#[tokio::test]
async fn a_client_that_cannot_visit_is_told_what_is_needed() {
    let stage = Stage::new().await;
    guarded(&stage.puppet, 1);
    let client = stage.client.clone().able(json!({"elicitation": {}}));
    let reply = client.call("guarded").await;
    let needed = &reply.error(400, -32021)["data"]["requiredCapabilities"];
    assert_eq!(*needed, json!({"elicitation": {"url": {}}}));
    stage.ends().await;
}

/// What has the code and not the data stays an error, under a code that the modern era allows.
#[tokio::test]
async fn a_malformed_one_stays_an_error() {
    let stage = Stage::new().await;
    for data in [
        Value::Null,
        json!({}),
        json!({"elicitations": []}),
        json!({"elicitations": [{"mode": "url", "message": "no url"}]}),
        json!({"elicitations": [{"mode": "form", "message": "m", "requestedSchema": {}}]}),
    ] {
        let error = json!({"code": -32042, "message": "Sign in.", "data": data});
        stage.puppet.tool("guarded", move |_| {
            let error = error.clone();
            async move { Ending::Error(error) }
        });
        let reply = stage.client.call("guarded").await;
        let error = &reply.message["error"];
        assert!(error.is_object(), "{}", reply.message);
        assert!(
            !(-32099..=-32020).contains(&error["code"].as_i64().unwrap()),
            "{error}"
        );
    }
    stage.ends().await;
}
