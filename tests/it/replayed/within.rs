//! The same within one process: the connection, the session or the server is lost, and the gateway is not.

use serde_json::json;

use super::{Runs, held, said};
use crate::program;
use crate::support::client::META_LOG_LEVEL;
use crate::support::gateway::Config;
use crate::support::puppet::{Ending, Out};
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{form, text_of};

/// A gateway that runs every lost call again.
async fn stage() -> Stage {
    Stage::with(|config| config.backend("replay", "\"always\"")).await
}

#[tokio::test]
async fn a_call_whose_stream_is_lost_while_it_is_held_is_run_again_by_its_re_issue() {
    let stage = stage().await;
    let (runs, gate) = (Runs::default(), Gate::default());
    let passed = gate.clone();
    stage.puppet.tool("cut", move |call| {
        let (run, gate) = (runs.next(), passed.clone());
        async move {
            let name = call.elicit(form("name", name_schema())).await.said("name");
            let city = call.pose("elicitation/create", form("city", name_schema()));
            let city = city.await;
            if run == 1 {
                gate.passed().await;
                return Ending::Cut;
            }
            Ending::text(format!("{name} {}", call.answer(&city).await.said("city")))
        }
    });
    let (request, asked) = held(&stage.gateway, "cut").await;
    let asked = request.answer(&asked, said("name", "Ada")).send().await;
    let asked = asked.asked();
    gate.open();
    stage.gateway.metric_is("holdfast_lost_total", 1).await;
    stage.gateway.metric_is("holdfast_sessions", 0).await;
    assert_eq!(stage.puppet.starts("cut"), 1, "nobody waits for it");
    let reply = request.answer(&asked, said("city", "Rome")).send().await;
    assert_eq!(text_of(reply.result()), r#""Ada" "Rome""#);
    assert_eq!(stage.puppet.starts("cut"), 2);
    assert_eq!(stage.gateway.metric("holdfast_replayed_total").await, 1);
    stage.ends().await;
}

#[tokio::test]
async fn a_call_that_is_lost_in_the_middle_of_a_leg_is_run_again_at_once() {
    let stage = stage().await;
    let runs = Runs::default();
    stage.puppet.tool("cut", move |call| {
        let run = runs.next();
        async move {
            call.progress(1).await;
            call.progress(2).await;
            call.log("info", "at it").await;
            let name = call.elicit(form("name", name_schema())).await.said("name");
            if run == 1 {
                return Ending::Cut;
            }
            call.progress(3).await;
            Ending::text(format!("{name} in run {run}"))
        }
    });
    let request = stage.client.tool("cut", json!({}));
    let request = request
        .meta("progressToken", json!("p"))
        .meta(META_LOG_LEVEL, json!("info"));
    let asked = request.send().await.asked();
    let reply = request.answer(&asked, said("name", "Ada")).send().await;
    assert_eq!(text_of(reply.result()), r#""Ada" in run 2"#);
    // The second leg hears of the second run alone, from its beginning.
    let told = reply.noted("notifications/progress");
    let told: Vec<_> = told.iter().map(|note| note["progress"].clone()).collect();
    assert_eq!(told, [1, 2, 3]);
    assert_eq!(reply.noted("notifications/message").len(), 1);
    assert_eq!((stage.puppet.starts("cut"), stage.answers()), (2, 2));
    stage.ends().await;
}

#[tokio::test]
async fn a_first_leg_may_be_run_again_too_and_no_leg_is_told_of_progress_twice() {
    let stage = stage().await;
    let runs = Runs::default();
    stage.puppet.tool("cut", move |call| {
        let run = runs.next();
        async move {
            for step in 1..=run {
                call.progress(u64::try_from(step).unwrap()).await;
            }
            match run {
                3 => Ending::text(call.arguments().to_string()),
                _ => Ending::Cut,
            }
        }
    });
    let request = stage.client.tool("cut", json!({"a": 1}));
    let reply = request.meta("progressToken", json!("p")).send().await;
    assert_eq!(text_of(reply.result()), r#"{"a":1}"#);
    let told = reply.noted("notifications/progress");
    let told: Vec<_> = told.iter().map(|note| note["progress"].clone()).collect();
    assert_eq!(told, [1, 2, 3]);
    assert_eq!(stage.puppet.starts("cut"), 3);
    stage.ends().await;
}

#[tokio::test]
async fn a_call_that_is_lost_again_and_again_is_given_up_after_three_more_runs() {
    let stage = stage().await;
    stage.puppet.tool("cut", |_| async { Ending::Cut });
    stage.client.call("cut").await.lost(true);
    assert_eq!(stage.puppet.starts("cut"), 4);
    assert_eq!(stage.gateway.metric("holdfast_replayed_total").await, 3);
    stage.ends().await;
}

#[tokio::test]
async fn what_a_server_answers_is_never_run_again() {
    let stage = stage().await;
    let error = json!({"code": -32000, "message": "no"});
    let endings = [
        ("an error", Ending::Error(error)),
        (
            "an error result",
            Ending::Result(json!({"content": [], "isError": true})),
        ),
        ("no object", Ending::Result(json!([]))),
    ];
    for (tool, ending) in endings {
        stage.puppet.tool(tool, move |_| {
            let ending = ending.clone();
            async move { ending }
        });
        stage.client.call(tool).await;
        assert_eq!(stage.puppet.starts(tool), 1, "{tool}");
    }
    for status in [400, 500, 503] {
        let tool = format!("status {status}");
        stage.puppet.tool(&tool, move |call| async move {
            call.put(Out::Whole(status, "text/plain", Vec::new())).await;
            Ending::Nothing
        });
        assert!(stage.client.call(&tool).await.is_error());
        assert_eq!(stage.puppet.starts(&tool), 1, "{tool}");
    }
    stage.ends().await;
}

#[tokio::test]
async fn a_client_that_goes_away_has_no_call_to_be_run_again() {
    let stage = stage().await;
    let gate = Gate::default();
    let passed = gate.clone();
    stage.puppet.tool("slow", move |_| {
        let gate = passed.clone();
        async move {
            gate.passed().await;
            Ending::Cut
        }
    });
    let leg = stage.client.tool("slow", json!({})).open().await;
    stage.started("slow", 1).await;
    drop(leg);
    stage.cancelled(1).await;
    gate.open();
    stage.gateway.metric_is("holdfast_calls", 0).await;
    assert_eq!(stage.puppet.starts("slow"), 1);
    stage.ends().await;
}

#[tokio::test]
async fn a_program_that_dies_over_a_held_call_runs_it_again() {
    let replayed = |config: Config| config.backend("replay", "\"always\"");
    let (gateway, client) = program::stage(&[], replayed).await;
    let request = client.tool("ask", json!({}));
    let asked = request.send().await.asked();
    program::kill(&program::processes(&gateway, 1).await);
    gateway.metric_is("holdfast_lost_total", 1).await;
    let reply = request.answer(&asked, said("name", "Ada")).send().await;
    assert_eq!(text_of(reply.result()), r#"{"name": "Ada"}"#);
    program::processes(&gateway, 2).await;
    gateway.settled().await;
    assert_eq!(gateway.terminate().await, 0);
}
