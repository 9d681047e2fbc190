//! SIGTERM: new work stops, what runs is finished or cancelled within a deadline, no session stays open.

use serde_json::json;

use crate::program::{is_alive, numbers, pause, processes};
use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::puppet::{Ending, Handshake, Ledger, Manner, OnCancel, Puppet};
use crate::support::stage::{Gate, Stage};
use crate::support::{accept, eventually, text_of};

#[tokio::test]
async fn without_work_it_ends_at_once() {
    let stage = Stage::new().await;
    assert_eq!(stage.gateway.terminate().await, 0);
    stage.puppet.settled().await;
}

#[tokio::test]
async fn warm_sessions_are_deleted() {
    let stage = Stage::with(|config| config.timer("session_idle", "60s")).await;
    for name in ["alice", "bob", "carol"] {
        stage.client.clone().named(name).call("echo").await.result();
    }
    assert_eq!(stage.gateway.terminate().await, 0);
    stage.puppet.settled().await;
    assert_eq!(stage.puppet.ledger().deletes, 3);
}

fn waits(puppet: &Puppet) -> Gate {
    let gate = Gate::default();
    let script_gate = gate.clone();
    puppet.tool("waits", move |_| {
        let gate = script_gate.clone();
        async move {
            gate.passed().await;
            Ending::text("done")
        }
    });
    gate
}

/// While it drains, the gateway still takes re-issues of held calls, but no new call.
async fn new_work_is_refused(stage: &Stage) {
    let refused = || async {
        stage
            .client
            .request("tools/list", json!({}))
            .send()
            .await
            .is_error()
    };
    eventually("new work to be refused", refused).await;
}

#[tokio::test]
async fn a_running_call_is_finished() {
    let stage = Stage::with(|config| config.timer("shutdown_deadline", "60s")).await;
    let gate = waits(&stage.puppet);
    let leg = stage.client.tool("waits", json!({})).open().await;
    stage.started("waits", 1).await;
    stage.gateway.signal_end();
    new_work_is_refused(&stage).await;
    gate.open();
    assert_eq!(text_of(leg.finish().await.result()), "done");
    assert_eq!(stage.gateway.ended().await, 0);
    stage.puppet.settled().await;
    assert_eq!(stage.puppet.ledger().cancellations.len(), 0);
}

#[tokio::test]
async fn a_running_call_is_cancelled_at_the_deadline() {
    for on_cancel in [
        OnCancel::FallSilent,
        OnCancel::AnswerError,
        OnCancel::Ignore,
    ] {
        let manner = Manner {
            on_cancel,
            ..Manner::default()
        };
        let stage = Stage::set(manner, |config| config.timer("shutdown_deadline", "200ms")).await;
        let gate = waits(&stage.puppet);
        let leg = stage.client.tool("waits", json!({})).open().await;
        stage.started("waits", 1).await;
        assert_eq!(stage.gateway.terminate().await, 0);
        assert_eq!(
            stage.puppet.ledger().cancellations.len(),
            1,
            "{on_cancel:?}"
        );
        // The client is told, or at least let go.
        let status = leg.status().await;
        assert!(matches!(status, None | Some(200)), "{status:?}");
        gate.open();
        stage.puppet.settled().await;
    }
}

#[tokio::test]
async fn a_held_call_is_let_go() {
    let stage = Stage::with(|config| config.timer("shutdown_deadline", "200ms")).await;
    for tool in ["name", "generally"] {
        stage.client.call(tool).await.asked();
    }
    stage.gateway.signal_end();
    let said_at_last = stage.gateway.log_to_the_end().await;
    assert!(
        said_at_last.contains("left=0 cancelled=2"),
        "{said_at_last}"
    );
    stage.puppet.settled().await;
    let ledger = stage.puppet.ledger();
    assert_eq!(ledger.answers.len(), 2, "both questions were cancelled");
    for given in &ledger.answers {
        assert_eq!(
            given.response["result"]["action"], "cancel",
            "{}",
            given.response
        );
    }
}

/// A held call whose client comes back on a connection that is still open, while the gateway drains.
#[tokio::test]
async fn a_held_call_may_finish_during_the_drain() {
    let stage = Stage::with(|config| config.timer("shutdown_deadline", "60s")).await;
    let gate = waits(&stage.puppet);
    let running = stage.client.tool("waits", json!({})).open().await;
    stage.started("waits", 1).await;
    let request = stage.client.tool("name", json!({}));
    let asked = request.send().await.asked();
    let mut reissue = request
        .answer(&asked, accept(json!({"name": "Ada"})))
        .bytes();
    let last = reissue.split_off(reissue.len() - 1);
    let mut leg = crate::support::client::OpenLeg::open(
        stage.gateway.addr(),
        &reissue,
        serde_json::Value::Null,
    )
    .await;
    stage.gateway.signal_end();
    new_work_is_refused(&stage).await;
    leg.write(&last).await;
    let reply = leg.raw().await;
    assert!(reply.contains(r#"name: \"Ada\""#), "{reply}");
    gate.open();
    assert_eq!(text_of(running.finish().await.result()), "done");
    assert_eq!(stage.gateway.ended().await, 0);
    stage.puppet.settled().await;
}

/// A server that answers nothing any more does not keep the gateway from ending.
#[tokio::test]
async fn a_dead_server_does_not_keep_it() {
    let stage = Stage::with(|config| {
        config
            .timer("shutdown_deadline", "200ms")
            .timer("send_timeout", "500ms")
    })
    .await;
    stage.client.call("name").await.asked();
    stage.puppet.die();
    assert_eq!(stage.gateway.terminate().await, 0);
}

#[tokio::test]
async fn a_call_whose_session_is_still_being_opened_is_told() {
    let manner = Manner {
        handshake: Handshake::Stalls,
        ..Manner::default()
    };
    let stage = Stage::set(manner, |config| config.timer("shutdown_deadline", "300ms")).await;
    let legs = [
        stage.client.tool("echo", json!({})).open().await,
        stage
            .client
            .request("server/discover", json!({}))
            .open()
            .await,
    ];
    let has_begun = |ledger: &Ledger| !ledger.records.is_empty();
    stage.puppet.until("the handshake", has_begun).await;
    stage.gateway.metric_is("holdfast_connections", 2).await;
    stage.gateway.signal_end();
    for leg in legs {
        // Nothing shows whether the other was read before the signal: it has not run either way.
        let reply = leg.finish().await;
        let told = &reply.message["error"]["data"];
        assert_eq!(*told, json!({"reason": "lost", "mayHaveRun": false}));
    }
    assert_eq!(stage.gateway.ended().await, 0);
}

/// The handshake may take a minute. What was started for it is ended in good order all the same, and at once.
#[tokio::test]
async fn a_program_that_is_still_being_opened_is_ended_with_all_it_started() {
    let silent = "sleep 600 & echo child $! >&2; echo pid $$ >&2; wait";
    let gateway = Config::command(&["sh", "-c", silent])
        .timer("shutdown_deadline", "200ms")
        .timer("stop_grace", "100ms")
        .start()
        .await;
    let leg = Client::of(&gateway).tool("echo", json!({})).open().await;
    let all = || [numbers(&gateway, "child"), numbers(&gateway, "pid")].concat();
    eventually("the processes", || async { all().len() == 2 }).await;
    let all = all();
    gateway.signal_end();
    leg.finish().await.lost(false);
    let log = gateway.log_to_the_end().await;
    assert!(!log.contains("could not be closed"), "{log}");
    assert!(!all.iter().any(|pid| is_alive(*pid)), "{all:?}");
}

/// Its pipe takes only a part of the request: what is to follow, the cancellation too, can never be sent.
#[tokio::test]
async fn a_program_that_reads_nothing_is_ended_with_all_it_started() {
    let gateway = Config::program(&["offspring"])
        .timer("session_idle", "60s")
        .timer("shutdown_deadline", "200ms")
        .timer("stop_grace", "100ms")
        .start()
        .await;
    let client = Client::of(&gateway);
    client.call("echo").await.result();
    let pids = processes(&gateway, 1).await;
    let all = [numbers(&gateway, "offspring"), pids.clone()].concat();
    assert_eq!(all.len(), 2);
    pause(pids[0]);
    let large = json!({"large": "x".repeat(300 << 10)});
    let leg = client.tool("echo", large).open().await;
    gateway.metric_is("holdfast_calls", 1).await;
    gateway.signal_end();
    leg.finish().await;
    let log = gateway.log_to_the_end().await;
    assert!(!log.contains("could not be closed"), "{log}");
    assert!(!all.iter().any(|pid| is_alive(*pid)), "{all:?}");
}

#[tokio::test]
async fn a_response_is_sent_to_its_end() {
    let stage = Stage::with(|config| config.timer("shutdown_deadline", "60s")).await;
    stage
        .puppet
        .tool("large", |_| async { Ending::text("x".repeat(LARGE)) });
    let leg = stage.client.tool("large", json!({})).open().await;
    stage.started("large", 1).await;
    // The call is over, its client has yet to read.
    stage.gateway.metric_is("holdfast_calls", 0).await;
    stage.gateway.signal_end();
    // That nothing is cut meanwhile, only time can show.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(text_of(leg.finish().await.result()).len(), LARGE);
    assert_eq!(stage.gateway.ended().await, 0);
    stage.puppet.settled().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_let_go() {
    let stage = Stage::with(|config| config.timer("client_write_timeout", "200ms")).await;
    stage
        .puppet
        .tool("large", |_| async { Ending::text("x".repeat(LARGE)) });
    let leg = stage.client.tool("large", json!({})).open().await;
    stage.started("large", 1).await;
    stage.gateway.metric_is("holdfast_connections", 0).await;
    drop(leg);
    stage.ends().await;
}

/// More than the buffers of two sockets hold.
const LARGE: usize = 15 << 20;
