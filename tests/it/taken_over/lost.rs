//! Held calls with which nobody can go on.

use serde_json::{Value, json};

use super::*;

/// Why a re-issue was refused, and whether the call may be made again.
fn lost(reply: &Reply) -> bool {
    let error = reply.error(200, -32602);
    assert_eq!(error["data"]["reason"], "lost", "{error}");
    error["data"]["safeToRetry"].as_bool().unwrap()
}

/// What it says of a call that cannot be taken over, whose tool is annotated so.
async fn lost_with(annotations: Value, lose: impl Fn(&Puppet)) -> bool {
    let relay = Relay::new().await;
    let tools = json!({"tools": [
        {"name": "name", "inputSchema": {"type": "object"}, "annotations": annotations},
    ]});
    relay.puppet.on("tools/list", "", move |_| {
        let tools = tools.clone();
        async move { Ending::Result(tools) }
    });
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    first.kill().await;
    lose(&relay.puppet);
    let second = relay.start().await;
    let request = at(&second, &request).answer(&asked, said("name", "Ada"));
    let is_safe = lost(&request.send().await);
    assert_eq!(lost(&request.send().await), is_safe);
    assert_eq!((relay.puppet.starts("name"), relay.answers()), (1, 0));
    second.settled().await;
    assert_eq!(second.terminate().await, 0);
    is_safe
}

#[tokio::test]
async fn a_call_whose_session_is_gone_is_lost_and_its_client_told_whether_to_start_again() {
    let gone = Puppet::forget_sessions;
    assert!(!lost_with(json!({}), gone).await);
    assert!(!lost_with(json!({"destructiveHint": true}), gone).await);
    assert!(lost_with(json!({"readOnlyHint": true}), gone).await);
    assert!(lost_with(json!({"idempotentHint": true}), gone).await);
}

#[tokio::test]
async fn a_call_whose_server_does_not_resume_it_is_lost() {
    for status in [400, 404, 405] {
        let refuses = |puppet: &Puppet| puppet.resuming(&[], Resuming::Status(status));
        assert!(!lost_with(json!({}), refuses).await, "{status}");
    }
}

#[tokio::test]
async fn a_call_whose_server_gives_no_event_ids_is_lost_with_its_process() {
    let relay = Relay::of(Manner::default()).await;
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    let reply = at(&second, &request).answer(&asked, said("name", "Ada"));
    assert!(!lost(&reply.send().await));
    assert_eq!((relay.puppet.starts("name"), relay.answers()), (1, 0));
    second.settled().await;
}

#[tokio::test]
async fn a_call_that_ran_after_its_state_was_sealed_is_not_called_safe_to_repeat() {
    let mut relay = Relay::of(Manner::default()).await;
    let (listed, run) = (Gate::default(), Gate::default());
    let (may_list, may_end) = (listed.clone(), run.clone());
    relay.puppet.on("tools/list", "", move |_| {
        let gate = may_list.clone();
        async move {
            gate.passed().await;
            Ending::Result(json!({"tools": []}))
        }
    });
    relay.puppet.tool("slow", move |_| {
        let gate = may_end.clone();
        async move {
            gate.passed().await;
            Ending::text("done")
        }
    });
    relay.config = relay.config.timer("leg_max", "100ms");
    let first = relay.start().await;
    let request = Client::of(&first).tool("slow", json!({}));
    // The tools are still being listed: nothing has gone up.
    let state = request.send().await.message["result"]["requestState"].clone();
    assert_eq!(relay.puppet.starts("slow"), 0);
    let reissue = request.param("requestState", state);
    let leg = reissue.open().await;
    listed.open();
    relay
        .puppet
        .until("the tool to start", |ledger| {
            ledger.starts.iter().any(|(name, _)| name == "slow")
        })
        .await;
    let second = relay.next(first).await;
    drop(leg);
    let reply = at(&second, &reissue).send().await;
    assert!(!lost(&reply), "it has run");
    run.open();
    second.settled().await;
    assert_eq!(second.terminate().await, 0);
}
