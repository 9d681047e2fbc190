//! What becomes of subscriptions when a session, its stream, the server or the gateway goes.

use serde_json::json;

use crate::subscriptions::{
    ID, TOOLS, UPDATED, announcing, asked, hears, listen, opened, says, watched,
};
use crate::support::puppet::{Ledger, Out};
use crate::support::stage::Stage;

#[tokio::test]
async fn a_subscription_outlives_its_session() {
    let stage = watched(announcing()).await;
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["arena:one"]});
    let (mut leg, _) = opened(&stage.client, filter).await;
    stage.puppet.forget_sessions();
    // What changed meanwhile is not known, so everything may have.
    hears(&mut leg, TOOLS, None).await;
    hears(&mut leg, UPDATED, Some("arena:one")).await;
    let is_again = |ledger: &Ledger| asked(ledger, "resources/subscribe").len() == 2;
    stage
        .puppet
        .until("the resource to be subscribed again", is_again)
        .await;
    says(
        &stage.puppet.sessions()[0],
        UPDATED,
        json!({"uri": "arena:one"}),
    )
    .await;
    hears(&mut leg, UPDATED, Some("arena:one")).await;
    drop(leg);
    stage.ends().await;
}

#[tokio::test]
async fn a_stream_that_was_cut_may_have_missed_something() {
    let stage = watched(announcing()).await;
    let filter =
        json!({"toolsListChanged": true, "resourceSubscriptions": ["arena:one", "arena:none"]});
    let (mut leg, _) = opened(&stage.client, filter).await;
    stage.puppet.sessions()[0].put(Out::Cut).await;
    hears(&mut leg, TOOLS, None).await;
    hears(&mut leg, UPDATED, Some("arena:one")).await;
    // What was refused was not promised, and is not told.
    says(
        &stage.puppet.sessions()[0],
        UPDATED,
        json!({"uri": "arena:one/last"}),
    )
    .await;
    hears(&mut leg, UPDATED, Some("arena:one/last")).await;
    drop(leg);
    stage.ends().await;
}

#[tokio::test]
async fn a_challenge_ends_a_subscription() {
    let stage = watched(announcing()).await;
    let (leg, _) = opened(&stage.client, json!({"toolsListChanged": true})).await;
    stage.puppet.refuse_streams(401);
    stage.puppet.sessions()[0].put(Out::End).await;
    leg.finish().await.error(200, -32603);
    stage.gateway.metric_is("holdfast_subscriptions", 0).await;
    stage.ends().await;
}

#[tokio::test]
async fn a_server_that_falls_silent_for_good_ends_a_subscription() {
    let stage = watched(announcing()).await;
    let (leg, _) = opened(&stage.client, json!({"toolsListChanged": true})).await;
    stage.puppet.refuse_streams(405);
    stage.puppet.sessions()[0].put(Out::End).await;
    leg.finish().await.error(200, -32603);
    stage.ends().await;
}

#[tokio::test]
async fn the_end_of_the_gateway_ends_subscriptions_in_good_order() {
    let stage = watched(announcing()).await;
    let request = listen(
        &stage.client,
        json!({"resourceSubscriptions": ["arena:one"]}),
    );
    let mut leg = request.open().await;
    leg.event().await;
    stage.gateway.signal_end();
    let reply = leg.finish().await;
    let meta = &reply.result()["_meta"];
    assert_eq!(meta[ID], request.message()["id"]);
    assert_eq!(meta["io.modelcontextprotocol/serverInfo"]["name"], "puppet");
    assert_eq!(stage.gateway.ended().await, 0);
    stage.puppet.settled().await;
    assert_eq!(stage.puppet.ledger().deletes, 1);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_at_once() {
    let stage = Stage::of(announcing()).await;
    stage.puppet.die();
    let reply = listen(&stage.client, json!({"toolsListChanged": true}))
        .send()
        .await;
    reply.lost(false);
    stage.gateway.settled().await;
}
