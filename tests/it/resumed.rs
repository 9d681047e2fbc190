//! The stream with a call's answer is lost: where its events carry ids it is resumed, and the call goes on.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::client::{Client, META_LOG_LEVEL, OpenLeg, Request};
use crate::support::cutter::Cutter;
use crate::support::gateway::Config;
use crate::support::puppet::{
    Call, Credentials, Ending, EventIds, GeneralStream, Ledger, Manner, Out, Puppet, Resuming,
};
use crate::support::stage::{Gate, Stage, name_schema, usual};
use crate::support::{accept, form, text_of};

fn with_ids() -> Manner {
    Manner {
        event_ids: EventIds::With,
        ..Manner::default()
    }
}

/// The usual set with a proxy before the puppet.
async fn stage(manner: Manner, change: impl FnOnce(Config) -> Config) -> (Stage, Cutter) {
    let puppet = Puppet::start(manner).await;
    usual(&puppet);
    let cutter = Cutter::before(puppet.addr()).await;
    let gateway = change(Config::to(cutter.url())).start().await;
    let client = Client::of(&gateway);
    let stage = Stage {
        puppet,
        gateway,
        client,
    };
    (stage, cutter)
}

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

/// A tool that says that it runs and goes on when the gate opens.
fn slow(stage: &Stage) -> Gate {
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("slow", move |call| {
        let gate = script_gate.clone();
        async move {
            call.log("info", "started").await;
            gate.passed().await;
            Ending::text("done")
        }
    });
    gate
}

/// A leg of the slow tool, which is known to run: its first event has come.
async fn running(client: &Client) -> OpenLeg {
    let request = client.tool("slow", json!({}));
    let mut leg = request.meta(META_LOG_LEVEL, json!("info")).open().await;
    leg.event().await;
    leg
}

/// Waits for so many attempts to resume a stream.
async fn resumed(stage: &Stage, count: usize) {
    let has_come = |ledger: &Ledger| ledger.resumed().len() >= count;
    stage
        .puppet
        .until("the stream to be resumed", has_come)
        .await;
}

/// Waits until a response of a script is being written again.
async fn goes_on(stage: &Stage, count: usize) {
    let goes_on = |ledger: &Ledger| ledger.resumed().len() >= count && ledger.exchanges == 1;
    stage.puppet.until("the stream to go on", goes_on).await;
}

#[tokio::test]
async fn while_the_call_runs() {
    let (stage, cutter) = stage(with_ids(), |config| config).await;
    let gate = slow(&stage);
    let leg = running(&stage.client).await;
    for count in 1..=3 {
        cutter.cut();
        goes_on(&stage, count).await;
    }
    gate.open();
    assert_eq!(text_of(leg.finish().await.result()), "done");
    assert_eq!(stage.puppet.starts("slow"), 1);
    assert_eq!(stage.puppet.ledger().cancellations.len(), 0);
    stage.ends().await;
}

#[tokio::test]
async fn while_it_is_held() {
    let (stage, cutter) = stage(with_ids(), |config| config).await;
    let request = stage.client.tool("three", json!({}));
    let mut leg = request.clone();
    for (count, property) in [(1, "name"), (2, "city"), (3, "street")] {
        let asked = leg.send().await.asked();
        assert_eq!(asked.keys(), [property]);
        cutter.cut();
        goes_on(&stage, count).await;
        leg = request.answer(&asked, accept(json!({property: "York"})));
    }
    let reply = leg.send().await;
    assert_eq!(text_of(reply.result()), r#""York" "York" "York""#);
    assert_eq!((stage.puppet.starts("three"), stage.answers()), (1, 3));
    stage.ends().await;
}

/// Two questions with a word before each, and then the result, cut before or after one of the events, or closed.
async fn interrupted(call: Call, at: usize, how: Out) -> Ending {
    let mut said = Vec::new();
    for (count, property) in ["name", "city"].into_iter().enumerate() {
        call.log("info", property).await;
        if at == 3 * count {
            call.put(how.clone()).await;
        }
        let id = call
            .pose("elicitation/create", form(property, name_schema()))
            .await;
        if at == 3 * count + 1 {
            call.put(how.clone()).await;
        }
        said.push(call.answer(&id).await.said(property));
        if at == 3 * count + 2 {
            call.put(how.clone()).await;
        }
    }
    Ending::text(said.join(" "))
}

#[tokio::test]
async fn at_each_event() {
    let stage = Stage::of(with_ids()).await;
    for how in [Out::Cut, Out::End] {
        for at in 0..6 {
            let how = how.clone();
            stage.puppet.tool("interrupted", move |call| {
                interrupted(call, at, how.clone())
            });
            let request = stage
                .client
                .tool("interrupted", json!({}))
                .meta(META_LOG_LEVEL, json!("info"));
            let first = request.send().await;
            let asked = first.asked();
            let second = request.answer(&asked, ada()).send().await;
            let asked = second.asked();
            assert_eq!(asked.keys(), ["city"], "{at}");
            let city = accept(json!({"city": "York"}));
            let last = request.answer(&asked, city).send().await;
            assert_eq!(text_of(last.result()), r#""Ada" "York""#, "{at}");
            let logs = [&first, &second, &last].map(|leg| leg.noted("notifications/message").len());
            assert_eq!(logs.iter().sum::<usize>(), 2, "{at}: {logs:?}");
        }
    }
    assert_eq!(
        (stage.puppet.starts("interrupted"), stage.answers()),
        (12, 24)
    );
    assert!(stage.puppet.ledger().resumed().len() >= 12);
    stage.ends().await;
}

/// Wherever the bytes of a response end, nothing of it is missing and nothing comes twice. Before its first event it is
/// as good as a stream without ids.
#[tokio::test]
async fn at_many_bytes() {
    // Nothing but the call's own bytes is to be counted, so there is no general stream.
    let manner = Manner {
        general_stream: GeneralStream::Refused,
        ..with_ids()
    };
    let (stage, cutter) = stage(manner, |config| config.timer("session_idle", "60s")).await;
    stage.puppet.tool("talks", |call| async move {
        for word in ["one", "two", "three"] {
            call.log("info", word).await;
        }
        Ending::text("done")
    });
    let request = stage.client.tool("talks", json!({}));
    let request = request.meta(META_LOG_LEVEL, json!("info"));
    request.send().await.result();
    let before = cutter.carried();
    request.send().await.result();
    let whole = cutter.carried() - before;
    let (mut lost, mut kept) = (0, 0);
    // Not a divisor of the length of any event.
    for length in (1..whole).step_by(11) {
        // After a loss there is another session: it is to be there, and to know the level, before anything is cut.
        request.send().await.result();
        // And the server's answer to the end of the lost one has gone through.
        stage.gateway.metric_is("holdfast_sessions", 1).await;
        cutter.cut_after(length);
        let reply = request.send().await;
        assert!(
            !cutter.is_to_cut(),
            "{length} of {whole} bytes were not cut"
        );
        if reply.message.get("result").is_none() {
            assert!(length < whole / 2, "{length} of {whole} bytes");
            reply.lost(true);
            lost += 1;
        } else {
            assert_eq!(text_of(reply.result()), "done");
            let logs = reply.noted("notifications/message");
            let words: Vec<_> = logs.iter().map(|log| log["data"].as_str()).collect();
            assert_eq!(words, [Some("one"), Some("two"), Some("three")], "{length}");
            kept += 1;
        }
    }
    assert!(lost > 3 && kept > 20, "{lost} lost, {kept} kept");
    assert_eq!(stage.puppet.starts("talks"), 2 * (lost + kept) + 2);
    stage.closes().await;
}

/// What a server asks for before it closes a stream on purpose is not shortened.
#[tokio::test]
async fn closed_on_purpose() {
    let stage = Stage::of(with_ids()).await;
    stage.puppet.tool("polled", |call| async move {
        call.log("info", "started").await;
        call.put(Out::Raw(b"retry: 700\n\n".to_vec())).await;
        call.put(Out::End).await;
        let closed = Instant::now();
        call.until(|ledger| !ledger.resumed().is_empty()).await;
        Ending::Result(json!({"content": [], "pause": closed.elapsed().as_secs_f64() * 1000.0}))
    });
    let reply = stage.client.call("polled").await;
    let pause = reply.result()["pause"].as_f64().unwrap();
    assert!(pause >= 690.0, "{pause} ms");
    stage.ends().await;
}

/// The old stream still counts as open, the server is busy, something in front of it has lost it: that passes.
#[tokio::test]
async fn at_a_bad_moment() {
    let stage = Stage::of(with_ids()).await;
    let next = [409, 503, 429, 502].map(Resuming::Status);
    stage.puppet.resuming(&next, Resuming::Offered);
    stage.puppet.tool("cut", |call| async move {
        call.log("info", "started").await;
        call.put(Out::Cut).await;
        Ending::text("done")
    });
    assert_eq!(text_of(stage.client.call("cut").await.result()), "done");
    let resumed = stage.puppet.ledger().resumed();
    assert!(resumed.len() >= 5, "{resumed:?}");
    let last = resumed.last().unwrap();
    assert!(resumed.iter().all(|id| id == last), "{resumed:?}");
    stage.ends().await;
}

/// A server that has ids and resumes nothing is not asked again, and no refusal makes a client believe that nothing ran.
#[tokio::test]
async fn a_server_that_refuses() {
    for status in [400, 401, 403, 404, 405] {
        let (stage, cutter) = stage(with_ids(), |config| config).await;
        stage.puppet.resuming(&[], Resuming::Status(status));
        let gate = slow(&stage);
        let leg = running(&stage.client).await;
        cutter.cut();
        let reply = leg.finish().await;
        reply.lost(true);
        let message = reply.message["error"]["message"].as_str().unwrap();
        assert!(message.contains("could not be resumed"), "{message}");
        assert_eq!(stage.puppet.ledger().resumed().len(), 1, "{status}");
        let request = stage.client.tool("name", json!({}));
        let asked = request.send().await.asked();
        cutter.cut();
        resumed(&stage, 2).await;
        request.answer(&asked, ada()).send().await.lost(true);
        assert_eq!(stage.puppet.starts("name"), 1);
        gate.open();
        stage.ends().await;
    }
}

#[tokio::test]
async fn a_stream_without_ids() {
    let (stage, cutter) = stage(Manner::default(), |config| config).await;
    let gate = slow(&stage);
    let leg = running(&stage.client).await;
    cutter.cut();
    leg.finish().await.lost(true);
    let request = stage.client.tool("name", json!({}));
    let asked = request.send().await.asked();
    cutter.cut();
    request.answer(&asked, ada()).send().await.lost(true);
    assert_eq!(
        (stage.puppet.starts("slow"), stage.puppet.starts("name")),
        (1, 1)
    );
    assert_eq!(stage.puppet.ledger().resumed().len(), 0);
    gate.open();
    stage.ends().await;
}

#[tokio::test]
async fn a_server_that_is_gone_for_good() {
    let brief = |config: Config| config.timer("resume_max", "300ms");
    let (stage, cutter) = stage(with_ids(), brief).await;
    slow(&stage);
    let leg = running(&stage.client).await;
    let held = stage.client.tool("name", json!({}));
    let asked = held.send().await.asked();
    cutter.close(true);
    cutter.cut();
    leg.finish().await.lost(true);
    held.answer(&asked, ada()).send().await.lost(true);
    stage.gateway.settled().await;
    assert_eq!(stage.gateway.terminate().await, 0);
}

/// A server that is there and has nothing to say any more is not asked for ever.
#[tokio::test]
async fn nothing_new_again_and_again() {
    for (then, attempts_max) in [(Resuming::Empty, 8), (Resuming::Silence, 3)] {
        let brief = |config: Config| {
            config
                .timer("resume_max", "500ms")
                .timer("send_timeout", "200ms")
        };
        let stage = Stage::set(with_ids(), brief).await;
        stage.puppet.resuming(&[], then);
        stage.puppet.tool("cut", |call| async move {
            call.log("info", "started").await;
            call.put(Out::Cut).await;
            Ending::text("never heard")
        });
        stage.client.call("cut").await.lost(true);
        let attempts = stage.puppet.ledger().resumed().len();
        assert!(
            (2..=attempts_max).contains(&attempts),
            "{then:?}: {attempts}"
        );
        stage.ends().await;
    }
}

#[tokio::test]
async fn with_refreshed_credentials() {
    let manner = Manner {
        credentials: Credentials::MayChange,
        ..with_ids()
    };
    let change = |config: Config| config.top("principal", "\"header:X-User\"");
    let stage = Stage::set(manner, change).await;
    stage.puppet.tool("cut", |call| async move {
        let answer = call.elicit(form("name", name_schema())).await;
        call.put(Out::Cut).await;
        Ending::text(answer.said("name"))
    });
    let old = stage.client.clone().named("old-token");
    let request = old.tool("cut", json!({})).header("x-user", "ada");
    let asked = request.send().await.asked();
    let refreshed = stage.client.clone().named("new-token");
    let reissue = request.answer(&asked, ada()).by(&refreshed);
    assert_eq!(text_of(reissue.send().await.result()), "\"Ada\"");
    let records = stage.puppet.ledger().records.clone();
    let resumed = records.iter().rev().find(|record| {
        let id = record.head.value("last-event-id");
        id.is_some_and(|id| id.starts_with("post-"))
    });
    let authorization = resumed.and_then(|record| record.head.value("authorization"));
    assert_eq!(authorization, Some("Bearer new-token"));
    stage.ends().await;
}

/// A tool whose stream is closed for a minute.
fn paused(stage: &Stage) -> Request {
    stage.puppet.tool("paused", |call| async move {
        call.pose("elicitation/create", form("name", name_schema()))
            .await;
        call.put(Out::Raw(b"retry: 60000\n\n".to_vec())).await;
        call.put(Out::End).await;
        Ending::Stall
    });
    stage.client.tool("paused", json!({}))
}

/// Waits until the puppet writes nothing any more.
async fn is_closed(stage: &Stage) {
    let is_closed = |ledger: &Ledger| ledger.exchanges == 0;
    stage
        .puppet
        .until("the stream to be closed", is_closed)
        .await;
}

#[tokio::test]
async fn a_client_that_goes_away_during_the_pause() {
    let stage = Stage::of(with_ids()).await;
    stage.puppet.tool("polled", |call| async move {
        call.put(Out::Raw(b"retry: 60000\n\n".to_vec())).await;
        call.put(Out::End).await;
        std::future::pending().await
    });
    let leg = stage.client.tool("polled", json!({})).open().await;
    stage.started("polled", 1).await;
    is_closed(&stage).await;
    drop(leg);
    stage.cancelled(1).await;
    assert_eq!(stage.puppet.ledger().resumed().len(), 0);
    stage.ends().await;
}

#[tokio::test]
async fn shutdown_during_the_pause() {
    let stage = Stage::set(with_ids(), |config| {
        config.timer("shutdown_deadline", "100ms")
    })
    .await;
    paused(&stage).send().await.asked();
    is_closed(&stage).await;
    let begun = Instant::now();
    assert_eq!(stage.gateway.terminate().await, 0);
    assert!(begun.elapsed() < Duration::from_secs(10));
    stage.puppet.settled().await;
    assert_eq!(stage.puppet.ledger().cancellations.len(), 1);
}

/// Servers replay what was asked before, if they have lost count. Each question is answered once.
#[tokio::test]
async fn questions_that_come_again() {
    let stage = Stage::of(with_ids()).await;
    stage.puppet.tool("repeats", |call| async move {
        let question = |id: u64, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let [name, refused, withdrawn] = [
            question(70, "elicitation/create", form("name", name_schema())),
            question(71, "no/such/method", json!({})),
            question(72, "elicitation/create", form("city", name_schema())),
        ];
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 72}});
        let all = [&name, &refused, &withdrawn, &cancelled];
        for message in all {
            call.send(message.clone()).await;
        }
        let answer = call.answer(&json!(70)).await;
        call.answer(&json!(71)).await;
        for message in all {
            call.send(message.clone()).await;
        }
        Ending::text(answer.said("name"))
    });
    let request = stage.client.tool("repeats", json!({}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["name"]);
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "\"Ada\"");
    assert_eq!(stage.answers(), 2);
    stage.ends().await;
}
