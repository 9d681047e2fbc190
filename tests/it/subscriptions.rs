//! `subscriptions/listen` in front of sessions that say what has changed, or do not.

use serde_json::{Value, json};

use crate::support::client::{Client, OpenLeg, Request};
use crate::support::gateway::Config;
use crate::support::puppet::{Ending, GeneralStream, Ledger, Manner, Out, Puppet, Session};
use crate::support::stage::Stage;

pub(crate) const ID: &str = "io.modelcontextprotocol/subscriptionId";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
pub(crate) const TOOLS: &str = "notifications/tools/list_changed";
pub(crate) const UPDATED: &str = "notifications/resources/updated";

/// A puppet that announces every change it can notify.
pub(crate) fn announcing() -> Manner {
    let changes = json!({"listChanged": true});
    Manner {
        capabilities: json!({
            "tools": changes, "prompts": changes,
            "resources": {"listChanged": true, "subscribe": true},
        }),
        ..Manner::default()
    }
}

/// A stage whose puppet takes subscriptions to `arena:one` and `arena:two`.
pub(crate) async fn watched(manner: Manner) -> Stage {
    watched_with(manner, |config| config).await
}

async fn watched_with(manner: Manner, change: impl FnOnce(Config) -> Config) -> Stage {
    let stage = Stage::set(manner, change).await;
    for uri in ["arena:one", "arena:two"] {
        for method in ["resources/subscribe", "resources/unsubscribe"] {
            let agrees = |_| async { Ending::Result(json!({})) };
            stage.puppet.on(method, uri, agrees);
        }
    }
    stage
}

pub(crate) fn listen(client: &Client, filter: Value) -> Request {
    client.request("subscriptions/listen", json!({"notifications": filter}))
}

/// Opens a subscription and returns it with what is honoured of it.
pub(crate) async fn opened(client: &Client, filter: Value) -> (OpenLeg, Value) {
    let request = listen(client, filter);
    let mut leg = request.open().await;
    let first = leg.event().await;
    assert_eq!(first["method"], ACKNOWLEDGED, "{first}");
    assert_eq!(first["params"]["_meta"][ID], request.message()["id"]);
    let honoured = first["params"]["notifications"].clone();
    (leg, honoured)
}

pub(crate) async fn says(session: &Session, method: &str, params: Value) {
    let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
    session.put(Out::Event(message.to_string())).await;
}

/// Asserts what the next notification is.
pub(crate) async fn hears(leg: &mut OpenLeg, method: &str, uri: Option<&str>) {
    let event = leg.event().await;
    assert_eq!(event["method"], method, "{event}");
    assert_eq!(event["params"]["uri"].as_str(), uri, "{event}");
    assert!(!event["params"]["_meta"][ID].is_null(), "{event}");
}

pub(crate) fn asked(ledger: &Ledger, method: &str) -> Vec<String> {
    let of = |record: &crate::support::puppet::Record| record.body["params"]["uri"].to_string();
    ledger.requests(method).iter().map(of).collect()
}

#[tokio::test]
async fn what_changes_is_told_to_those_who_asked() {
    let stage = watched(announcing()).await;
    let filter =
        json!({"toolsListChanged": true, "resourceSubscriptions": ["arena:one", "arena:none"]});
    let (mut leg, honoured) = opened(&stage.client, filter).await;
    assert_eq!(
        honoured,
        json!({"toolsListChanged": true, "resourceSubscriptions": ["arena:one"]}),
        "what the server refuses is left out"
    );
    let session = &stage.puppet.sessions()[0];
    says(session, "notifications/prompts/list_changed", json!({})).await;
    says(session, UPDATED, json!({"uri": "arena:two"})).await;
    says(session, TOOLS, json!({"_meta": {"k": 1}})).await;
    says(session, UPDATED, json!({"uri": "arena:one/part"})).await;
    let event = leg.event().await;
    assert_eq!(
        (&event["method"], &event["params"]["_meta"]["k"]),
        (&json!(TOOLS), &json!(1))
    );
    hears(&mut leg, UPDATED, Some("arena:one/part")).await;
    drop(leg);
    stage.gateway.metric_is("holdfast_subscriptions", 0).await;
    stage.ends().await;
}

#[tokio::test]
async fn changes_are_told_from_whichever_session_they_come() {
    let stage = Stage::of(announcing()).await;
    stage.puppet.tool("change", |call| async move {
        says(&call.session, TOOLS, json!({})).await;
        call.send(json!({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}))
            .await;
        Ending::text("changed")
    });
    let (ada, eve) = (
        stage.client.clone().named("ada"),
        stage.client.clone().named("eve"),
    );
    let all = json!({"toolsListChanged": true, "promptsListChanged": true});
    let (mut of_ada, _) = opened(&ada, all.clone()).await;
    let (mut of_ada_again, _) = opened(&ada.clone().able(json!({})), all.clone()).await;
    let (of_eve, _) = opened(&eve, all).await;
    ada.call("change").await.result();
    for leg in [&mut of_ada, &mut of_ada_again] {
        let mut heard = [leg.event().await, leg.event().await];
        heard.sort_by_key(|event| event["method"].to_string());
        assert_eq!(heard[0]["method"], "notifications/prompts/list_changed");
        assert_eq!(heard[1]["method"], TOOLS);
    }
    stage.gateway.signal_end();
    let heard = of_eve.finish().await;
    assert_eq!(
        heard.notes.len(),
        1,
        "the acknowledgement alone: {:?}",
        heard.notes
    );
    drop((of_ada, of_ada_again));
    assert_eq!(stage.gateway.ended().await, 0);
    stage.puppet.settled().await;
}

#[tokio::test]
async fn a_resource_is_subscribed_once_for_all_its_listeners() {
    let stage = watched(announcing()).await;
    let filter = json!({"resourceSubscriptions": ["arena:one"]});
    let (first, _) = opened(&stage.client, filter.clone()).await;
    let (mut second, honoured) = opened(&stage.client, filter.clone()).await;
    assert_eq!(honoured, filter);
    assert_eq!(
        asked(&stage.puppet.ledger(), "resources/subscribe").len(),
        1
    );
    drop(first);
    stage.gateway.metric_is("holdfast_subscriptions", 1).await;
    says(
        &stage.puppet.sessions()[0],
        UPDATED,
        json!({"uri": "arena:one"}),
    )
    .await;
    hears(&mut second, UPDATED, Some("arena:one")).await;
    assert!(asked(&stage.puppet.ledger(), "resources/unsubscribe").is_empty());
    drop(second);
    let is_told = |ledger: &Ledger| asked(ledger, "resources/unsubscribe") == ["\"arena:one\""];
    stage
        .puppet
        .until("the end of the subscription", is_told)
        .await;
    stage.ends().await;
}

/// Servers of a widely used SDK tell of their lists and announce that they do not. Clients pass over what was not
/// acknowledged, so that it has to be before the first change comes.
#[tokio::test]
async fn lists_of_features_that_are_not_announced_to_change_are_honoured() {
    let stage = watched(Manner {
        capabilities: json!({"tools": {"listChanged": false}, "resources": {"subscribe": false}}),
        ..Manner::default()
    })
    .await;
    let filter = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["arena:two"],
    });
    let (mut leg, honoured) = opened(&stage.client, filter).await;
    let expected = json!({"toolsListChanged": true, "resourceSubscriptions": ["arena:two"]});
    assert_eq!(honoured, expected, "it has no prompts");
    says(&stage.puppet.sessions()[0], TOOLS, json!({})).await;
    hears(&mut leg, TOOLS, None).await;
    drop(leg);
    stage.ends().await;
}

/// Whatever a server says of itself, what was seen to arrive counts.
#[tokio::test]
async fn what_was_seen_to_arrive_is_honoured() {
    let stage = watched(Manner {
        capabilities: json!({"resources": {}}),
        ..Manner::default()
    })
    .await;
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["arena:two"]});
    let (mut leg, honoured) = opened(&stage.client, filter.clone()).await;
    assert_eq!(honoured, json!({"resourceSubscriptions": ["arena:two"]}));
    says(&stage.puppet.sessions()[0], TOOLS, json!({})).await;
    hears(&mut leg, TOOLS, None).await;
    let (_again, honoured) = opened(&stage.client, filter).await;
    assert_eq!(honoured["toolsListChanged"], true);
    drop((leg, _again));
    stage.ends().await;
}

#[tokio::test]
async fn a_server_without_a_stream_of_its_own_promises_nothing() {
    let manner = Manner {
        general_stream: GeneralStream::Refused,
        ..announcing()
    };
    let stage = watched(manner).await;
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["arena:one"]});
    let (leg, honoured) = opened(&stage.client, filter).await;
    assert_eq!(honoured, json!({}));
    assert!(asked(&stage.puppet.ledger(), "resources/subscribe").is_empty());
    drop(leg);
    stage.ends().await;
}

/// What the server said while there was no stream is not known, unless the stream has event ids.
/// A server that wants other credentials in the middle: only the client can help, and is told.
/// So it is with a server that offers no stream any more.
/// Two capability sets of one principal have sessions of their own, and each hears what was subscribed on any.
#[tokio::test]
async fn listeners_of_other_capabilities_subscribe_on_their_own_session() {
    let stage = watched(announcing()).await;
    let other = stage.client.clone().able(json!({}));
    let (one, _) = opened(
        &stage.client,
        json!({"resourceSubscriptions": ["arena:one"]}),
    )
    .await;
    let (two, honoured) = opened(&other, json!({"resourceSubscriptions": ["arena:two"]})).await;
    assert_eq!(honoured, json!({"resourceSubscriptions": ["arena:two"]}));
    let mut subscribed = asked(&stage.puppet.ledger(), "resources/subscribe");
    subscribed.sort();
    assert_eq!(subscribed, ["\"arena:one\"", "\"arena:two\""], "each once");
    drop((one, two));
    let are_gone = |ledger: &Ledger| asked(ledger, "resources/unsubscribe").len() == 2;
    stage.puppet.until("the end of both", are_gone).await;
    stage.ends().await;
}

/// Servers of the SDKs tell a change to the session that caused it, if that one subscribed: so it does.
#[tokio::test]
async fn what_a_call_changes_is_told_on_its_own_session() {
    let stage = watched_with(announcing(), |config| config.timer("session_idle", "60s")).await;
    stage.puppet.tool("bump", |call| async move {
        let id = call.session.id.clone();
        let is_subscribed = |ledger: &Ledger| {
            let asked = ledger.requests("resources/subscribe");
            let mut of = asked.iter().map(|asked| asked.head.value("mcp-session-id"));
            of.any(|of| of == Some(id.as_str()))
        };
        call.until(is_subscribed).await;
        says(&call.session, UPDATED, json!({"uri": "arena:one"})).await;
        Ending::text("bumped")
    });
    let (mut leg, _) = opened(
        &stage.client,
        json!({"resourceSubscriptions": ["arena:one"]}),
    )
    .await;
    for _ in 0..2 {
        stage.client.call("bump").await.result();
        hears(&mut leg, UPDATED, Some("arena:one")).await;
    }
    let asked = asked(&stage.puppet.ledger(), "resources/subscribe").len();
    assert_eq!(asked, 2, "once on each session");
    drop(leg);
    stage.gateway.metric_is("holdfast_subscriptions", 0).await;
    stage.closes().await;
}

#[tokio::test]
async fn quiet_subscriptions_are_kept_alive() {
    let stage = Stage::set(announcing(), |config| config.timer("keep_alive", "20ms")).await;
    let (mut leg, _) = opened(&stage.client, json!({"toolsListChanged": true})).await;
    leg.comments(3).await;
    drop(leg);
    stage.ends().await;
}

/// A listener that does not read holds up neither the server nor another listener, and costs a bounded amount: what it
/// reads at last is less than what there was.
#[tokio::test]
async fn a_listener_that_does_not_read_holds_up_nobody() {
    const PARTS: usize = 4000;
    // Fewer than may wait for a listener that reads.
    const BATCH: usize = 100;
    let stage = watched(announcing()).await;
    let filter = json!({"resourceSubscriptions": ["arena:one", "arena:two"]});
    let mut slow = listen(&stage.client, filter.clone()).open().await;
    let (mut quick, _) = opened(&stage.client, filter).await;
    let session = stage.puppet.sessions()[0].clone();
    let padding = "x".repeat(7000);
    let parts: Vec<_> = (0..PARTS).map(|part| format!("arena:one/{part}")).collect();
    for batch in parts.chunks(BATCH) {
        for uri in batch {
            says(&session, UPDATED, json!({"uri": uri, "padding": padding})).await;
        }
        for uri in batch {
            hears(&mut quick, UPDATED, Some(uri)).await;
        }
    }
    says(&session, UPDATED, json!({"uri": "arena:two"})).await;
    hears(&mut quick, UPDATED, Some("arena:two")).await;
    let (mut heard, mut last) = (0, Value::Null);
    while last != "arena:two" {
        last = slow.event().await["params"]["uri"].clone();
        heard += 1;
    }
    assert!(
        heard < PARTS,
        "{heard} of {PARTS}: it was never held up itself"
    );
    drop((slow, quick));
    stage.ends().await;
}

#[tokio::test]
async fn callers_that_share_nothing_hear_their_own_session_alone() {
    let stage = Stage::set(announcing(), |config| {
        config.top("anonymous", "\"isolated\"")
    })
    .await;
    let (mut one, honoured) = opened(&stage.client, json!({"toolsListChanged": true})).await;
    assert_eq!(honoured, json!({"toolsListChanged": true}));
    let first = stage.puppet.sessions()[0].clone();
    let (mut two, _) = opened(&stage.client, json!({"toolsListChanged": true})).await;
    let sessions = stage.puppet.sessions();
    let second = sessions
        .iter()
        .find(|session| session.id != first.id)
        .unwrap();
    says(&first, TOOLS, json!({"_meta": {"of": 1}})).await;
    says(second, TOOLS, json!({"_meta": {"of": 2}})).await;
    for (leg, of) in [(&mut one, 1), (&mut two, 2)] {
        assert_eq!(leg.event().await["params"]["_meta"]["of"], of);
    }
    // A question that comes there can be put to nobody.
    let id = first.ask("roots/list", json!({})).await;
    stage
        .puppet
        .until("the refusal", |_| first.answer(&id).is_some())
        .await;
    assert_eq!(first.answer(&id).unwrap()["error"]["code"], -32603);
    drop((one, two));
    stage.ends().await;
}

#[tokio::test]
async fn subscriptions_are_bounded() {
    let stage = Stage::set(announcing(), |config| {
        config
            .limit("subscriptions_max", 1)
            .limit("subscription_uris_max", 2)
    })
    .await;
    let uris = json!({"resourceSubscriptions": ["a:1", "a:2", "a:3"]});
    listen(&stage.client, uris).send().await.error(200, -32602);
    let (leg, _) = opened(&stage.client, json!({"toolsListChanged": true})).await;
    let second = listen(&stage.client, json!({"toolsListChanged": true}));
    second.send().await.error(200, -32603);
    drop(leg);
    stage.gateway.metric_is("holdfast_subscriptions", 0).await;
    let (leg, _) = opened(&stage.client, json!({"toolsListChanged": true})).await;
    drop(leg);
    stage.ends().await;
}

#[tokio::test]
async fn filters_that_are_none_are_refused() {
    let stage = Stage::new().await;
    for filter in [json!(null), json!([]), json!({"toolsListChanged": "yes"})] {
        listen(&stage.client, filter)
            .send()
            .await
            .error(400, -32602);
    }
    let without = stage.client.request("subscriptions/listen", json!({}));
    without.send().await.error(400, -32602);
    assert_eq!(stage.puppet.ledger().sessions_opened, 0);
    stage.ends().await;
}

#[tokio::test]
async fn what_the_server_has_not_agreed_to_in_time_is_left_out() {
    let manner = announcing();
    let stage = Stage::set(manner, |config| config.timer("subscribe_timeout", "300ms")).await;
    stage
        .puppet
        .on("resources/subscribe", "arena:late", |_| async {
            Ending::Stall
        });
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["arena:late"]});
    let (mut leg, honoured) = opened(&stage.client, filter).await;
    assert_eq!(honoured, json!({"toolsListChanged": true}));
    says(&stage.puppet.sessions()[0], TOOLS, json!({})).await;
    hears(&mut leg, TOOLS, None).await;
    drop(leg);
    stage.gateway.metric_is("holdfast_subscriptions", 0).await;
    assert_eq!(stage.gateway.terminate().await, 0);
}

/// Listeners that come and go in any order leave nothing behind, neither here nor at the server.
#[tokio::test]
async fn listeners_that_come_and_go_leave_nothing_behind() {
    let stage = watched(announcing()).await;
    let puppet: &Puppet = &stage.puppet;
    let rounds = (0..40).map(|round| {
        let client = stage.client.clone().named(["ada", "eve"][round % 2]);
        async move {
            let uri = ["arena:one", "arena:two"][round / 2 % 2];
            let leg = listen(&client, json!({"resourceSubscriptions": [uri]}))
                .open()
                .await;
            if round % 3 > 0 {
                let mut leg = leg;
                leg.event().await;
            }
        }
    });
    futures_util::future::join_all(rounds).await;
    stage.gateway.metric_is("holdfast_subscriptions", 0).await;
    stage.gateway.metric_is("holdfast_sessions", 0).await;
    for uri in ["\"arena:one\"", "\"arena:two\""] {
        let count = |method| {
            let asked = asked(&puppet.ledger(), method);
            asked.iter().filter(|asked| *asked == uri).count()
        };
        assert_eq!(
            count("resources/subscribe"),
            count("resources/unsubscribe"),
            "{uri}"
        );
    }
    stage.ends().await;
}
