//! How it ends: the input ends, a signal comes, nobody reads; and subscriptions, which last until then.

use serde_json::{Value, json};

use super::{Desk, cancellation, waiting};
use crate::subscriptions::{ID, TOOLS, UPDATED, announcing, asked, listen, says};
use crate::support::client::Request;
use crate::support::puppet::{Ending, Ledger, Manner};
use crate::support::{accept, eventually, text_of};

/// More than a pipe and all queues hold.
const LARGE: usize = 15 << 20;

/// A desk whose puppet takes subscriptions to `arena:one`, with a subscription that is acknowledged.
async fn subscribed() -> (Desk, Request) {
    let mut desk = Desk::set(announcing(), |config| config).await;
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let agrees = |_| async { Ending::Result(json!({})) };
        desk.puppet.on(method, "arena:one", agrees);
    }
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["arena:one"]});
    let request = listen(&desk.client, filter.clone());
    desk.gateway.send(&request).await;
    let first = desk.gateway.next().await;
    let acknowledged = "notifications/subscriptions/acknowledged";
    assert_eq!(first["method"], acknowledged, "{first}");
    assert_eq!(first["params"]["notifications"], filter);
    assert_eq!(first["params"]["_meta"][ID], request.message()["id"]);
    (desk, request)
}

async fn hears(desk: &mut Desk, subscription: &Request, method: &str) {
    let note = desk.gateway.next().await;
    assert_eq!(note["method"], method, "{note}");
    assert_eq!(
        note["params"]["_meta"][ID],
        subscription.message()["id"],
        "{note}"
    );
}

/// Asserts that a message closes the stream of a subscription.
fn is_torn_down(message: &Value, id: u64) {
    assert_eq!(message["method"], "notifications/cancelled", "{message}");
    assert_eq!(message["params"]["requestId"], id, "{message}");
    assert_eq!(message["params"]["_meta"][ID], id, "{message}");
}

fn told_to_unsubscribe(ledger: &Ledger) -> bool {
    asked(ledger, "resources/unsubscribe") == ["\"arena:one\""]
}

#[tokio::test]
async fn a_subscription_lasts_until_it_is_cancelled() {
    let (mut desk, subscription) = subscribed().await;
    let session = desk.puppet.sessions()[0].clone();
    says(&session, TOOLS, json!({})).await;
    hears(&mut desk, &subscription, TOOLS).await;
    let echo = desk.sent("echo").await;
    desk.gateway.result(&echo).await;
    says(&session, UPDATED, json!({"uri": "arena:one"})).await;
    hears(&mut desk, &subscription, UPDATED).await;
    desk.gateway.say(&cancellation(&subscription)).await;
    desk.puppet
        .until("the end of the subscription", told_to_unsubscribe)
        .await;
    says(&session, TOOLS, json!({})).await;
    let echo = desk.sent("echo").await;
    desk.gateway.result(&echo).await;
    desk.ends().await;
}

#[tokio::test]
async fn subscriptions_are_told_apart() {
    let (mut desk, first) = subscribed().await;
    let second = listen(&desk.client, json!({"toolsListChanged": true}));
    desk.gateway.send(&second).await;
    desk.gateway.next().await;
    says(&desk.puppet.sessions()[0], TOOLS, json!({})).await;
    let mut heard = Vec::new();
    for _ in 0..2 {
        let note = desk.gateway.next().await;
        assert_eq!(note["method"], TOOLS);
        heard.push(note["params"]["_meta"][ID].as_u64().unwrap());
    }
    heard.sort_unstable();
    let ids = [&first, &second].map(|request| request.message()["id"].as_u64().unwrap());
    assert_eq!(heard, ids);
    desk.gateway.signal_end();
    for _ in 0..2 {
        let message = desk.gateway.next().await;
        let id = message["id"].as_u64().unwrap();
        assert!(ids.contains(&id), "{message}");
        assert_eq!(message["result"]["_meta"][ID], id, "{message}");
        is_torn_down(&desk.gateway.next().await, id);
    }
    let ended = desk.gateway.ended().await;
    assert_eq!((ended.code, ended.rest), (0, vec![]));
    desk.puppet.settled().await;
}

#[tokio::test]
async fn the_end_of_the_input_ends_everything() {
    let (mut desk, subscription) = subscribed().await;
    let held = desk.sent("name").await;
    desk.gateway.asked(&held).await;
    let gate = waiting(&desk.puppet, "waits");
    let running = desk.sent("waits").await;
    desk.started("waits", 1).await;
    desk.gateway.shut();
    let ended = desk.gateway.ended().await;
    assert_eq!(ended.code, 0, "{}", ended.log);
    let of = |request: &Request| -> Vec<&Value> {
        let id = &request.message()["id"];
        let of_request = |message: &&Value| message["id"] == *id;
        ended.rest.iter().filter(of_request).collect()
    };
    assert_eq!(ended.rest.len(), 3, "{:?}", ended.rest);
    assert_eq!(of(&subscription)[0]["result"]["resultType"], "complete");
    assert_eq!(of(&running)[0]["error"]["data"]["reason"], "lost");
    desk.puppet.settled().await;
    let ledger = desk.puppet.ledger();
    assert_eq!(ledger.cancellations.len(), 2, "the call and the held one");
    assert_eq!(ledger.deletes, ledger.sessions_opened);
    drop(gate);
}

#[tokio::test]
async fn what_is_being_said_is_said_to_its_end() {
    let mut desk = Desk::set(Manner::default(), |config| {
        config.timer("shutdown_deadline", "60s")
    })
    .await;
    let large = |_| async { Ending::text("x".repeat(LARGE)) };
    desk.puppet.tool("large", large);
    let request = desk.sent("large").await;
    desk.started("large", 1).await;
    let is_over = |ledger: &Ledger| ledger.exchanges == 0;
    desk.puppet.until("the call to end", is_over).await;
    desk.gateway.signal_end();
    // That nothing is cut meanwhile, only time can show.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    let result = desk.gateway.result(&request).await;
    assert_eq!(text_of(&result).len(), LARGE);
    let ended = desk.gateway.ended().await;
    assert_eq!((ended.code, ended.rest), (0, vec![]), "{}", ended.log);
    desk.puppet.settled().await;
}

#[tokio::test]
async fn a_signal_lets_calls_finish() {
    let mut desk = Desk::set(Manner::default(), |config| {
        config.timer("shutdown_deadline", "60s")
    })
    .await;
    let gate = waiting(&desk.puppet, "waits");
    let running = desk.sent("waits").await;
    let held = desk.sent("name").await;
    let asked = desk.gateway.asked(&held).await;
    desk.started("waits", 1).await;
    desk.gateway.signal_end();
    let gateway = tokio::sync::Mutex::new(desk.gateway);
    let list = desk.client.request("tools/list", json!({}));
    let refused = || async {
        let mut gateway = gateway.lock().await;
        gateway.send(&list).await;
        let message = gateway.response(&list).await;
        message.get("error").is_some()
    };
    eventually("new work to be refused", refused).await;
    let mut gateway = gateway.into_inner();
    let again = held.answer(&asked, accept(json!({"name": "Ada"})));
    gateway.send(&again).await;
    assert_eq!(text_of(&gateway.result(&again).await), r#"name: "Ada""#);
    gate.open();
    assert_eq!(text_of(&gateway.result(&running).await), "waits");
    // The input is still open.
    let ended = gateway.ended().await;
    assert_eq!((ended.code, ended.rest), (0, vec![]), "{}", ended.log);
    desk.puppet.settled().await;
    assert_eq!(desk.puppet.ledger().cancellations.len(), 0);
}

#[tokio::test]
async fn a_second_signal_or_the_end_of_the_input_hurries() {
    for hurries in [Desk::signals, Desk::shuts] {
        let mut desk = Desk::set(Manner::default(), |config| {
            config.timer("shutdown_deadline", "60s")
        })
        .await;
        let gate = waiting(&desk.puppet, "waits");
        let running = desk.sent("waits").await;
        desk.started("waits", 1).await;
        let subscription = listen(&desk.client, json!({}));
        desk.gateway.send(&subscription).await;
        desk.gateway.next().await;
        desk.gateway.signal_end();
        // It has heard: subscriptions end.
        desk.gateway.result(&subscription).await;
        let id = subscription.message()["id"].as_u64().unwrap();
        is_torn_down(&desk.gateway.next().await, id);
        hurries(&mut desk);
        let message = desk.gateway.response(&running).await;
        assert_eq!(message["error"]["data"]["mayHaveRun"], true, "{message}");
        let ended = desk.gateway.ended().await;
        assert_eq!((ended.code, ended.rest), (0, vec![]), "{}", ended.log);
        desk.puppet.settled().await;
        assert_eq!(desk.puppet.ledger().cancellations.len(), 1);
        drop(gate);
    }
}

impl Desk {
    fn signals(&mut self) {
        self.gateway.signal_end();
    }

    fn shuts(&mut self) {
        self.gateway.shut();
    }
}

#[tokio::test]
async fn a_closed_output_ends_it() {
    let mut desk = Desk::new().await;
    let gate = waiting(&desk.puppet, "waits");
    desk.sent("waits").await;
    desk.started("waits", 1).await;
    desk.gateway.deafen();
    desk.sent("echo").await;
    let ended = desk.gateway.ended().await;
    assert_eq!(ended.code, 0, "{}", ended.log);
    desk.puppet.settled().await;
    assert_eq!(desk.puppet.ledger().cancellations.len(), 1);
    drop(gate);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_let_go() {
    let mut desk = Desk::set(Manner::default(), |config| {
        config.timer("client_write_timeout", "300ms")
    })
    .await;
    let large = |_| async { Ending::text("x".repeat(LARGE)) };
    desk.puppet.tool("large", large);
    desk.sent("large").await;
    let ended = desk.gateway.ended_unread().await;
    assert_eq!(ended.code, 1, "{}", ended.log);
    let said = "holdfast: the client does not read";
    assert!(ended.log.contains(said), "{}", ended.log);
    desk.puppet.settled().await;
}
