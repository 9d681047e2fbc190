//! A held call outlives the process that held it, where its server can resume: another process with the same key takes
//! it over, whatever became of the first.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::support::client::{Asked, Client, Reply, Request};
use crate::support::gateway::{Config, Gateway};
use crate::support::puppet::{Ending, EventIds, GeneralStream, Manner, Puppet, Resuming};
use crate::support::stage::{Gate, name_schema, usual};
use crate::support::{accept, form, text_of};

mod lost;

fn resumable() -> Manner {
    Manner {
        event_ids: EventIds::With,
        ..Manner::default()
    }
}

fn keys(numbers: &[u8]) -> String {
    let keys = numbers.iter().map(|n| STANDARD.encode([*n; 32]));
    format!("{:?}", keys.collect::<Vec<_>>())
}

/// A server that can resume, and gateways in front of it, one after the other.
struct Relay {
    puppet: Puppet,
    config: Config,
}

impl Relay {
    async fn of(manner: Manner) -> Self {
        let puppet = Puppet::start(manner).await;
        usual(&puppet);
        let config = Config::of(&puppet).top("keys", &keys(&[1]));
        Self { puppet, config }
    }

    async fn new() -> Self {
        Self::of(resumable()).await
    }

    async fn start(&self) -> Gateway {
        self.config.start().await
    }

    /// The next process; the one before is killed.
    async fn next(&self, before: Gateway) -> Gateway {
        before.kill().await;
        self.start().await
    }

    fn answers(&self) -> usize {
        self.puppet.ledger().answers.len()
    }

    async fn ends(self, gateway: Gateway) {
        gateway.settled().await;
        assert!(self.puppet.ledger().deletes > 0, "sessions are closed");
        assert_eq!(gateway.terminate().await, 0);
        // Those that were killed have left idle sessions behind.
        self.puppet.forget_sessions();
        self.puppet.settled().await;
    }
}

/// Who asks, wherever the gateway is now.
fn at(gateway: &Gateway, request: &Request) -> Request {
    request.clone().by(&Client::of(gateway))
}

fn said(property: &str, value: &str) -> Value {
    accept(json!({ property: value }))
}

async fn held(gateway: &Gateway, tool: &str) -> (Request, Asked) {
    let request = Client::of(gateway).tool(tool, json!({}));
    let asked = request.send().await.asked();
    (request, asked)
}

#[tokio::test]
async fn a_call_that_was_held_when_its_process_was_killed_is_finished_by_the_next() {
    let relay = Relay::new().await;
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    assert!(asked.state.len() <= 512, "{} bytes", asked.state.len());
    let second = relay.next(first).await;
    let reply = at(&second, &request).answer(&asked, said("name", "Ada"));
    assert_eq!(text_of(reply.send().await.result()), "name: \"Ada\"");
    assert_eq!((relay.puppet.starts("name"), relay.answers()), (1, 1));
    assert_eq!(second.metric("holdfast_taken_over_total").await, 1);
    // The same again gets the same.
    assert_eq!(text_of(reply.send().await.result()), "name: \"Ada\"");
    relay.ends(second).await;
}

/// Such stores are copied from an SDK: of two events in one millisecond it depends on chance which sorts first.
#[tokio::test]
async fn a_question_that_its_server_does_not_repeat_is_carried_along() {
    let relay = Relay::of(Manner {
        event_ids: EventIds::Unsorted,
        ..Manner::default()
    })
    .await;
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    let reissue = at(&second, &request).answer(&asked, said("name", "Ada"));
    assert_eq!(text_of(reissue.send().await.result()), "name: \"Ada\"");
    assert_eq!((relay.puppet.starts("name"), relay.answers()), (1, 1));
    relay.ends(second).await;
}

#[tokio::test]
async fn every_round_may_come_to_another_process() {
    let relay = Relay::new().await;
    let mut gateway = relay.start().await;
    let (request, mut asked) = held(&gateway, "three").await;
    for (property, value) in [("name", "Ada"), ("city", "Rome"), ("street", "Via Appia")] {
        gateway = relay.next(gateway).await;
        let request = at(&gateway, &request);
        // It is checked by what the server says again.
        let bad = request.answer(&asked, said(property, "x")).send().await;
        let again = bad.asked();
        assert_eq!(again.key(), property);
        gateway = relay.next(gateway).await;
        let request = at(&gateway, &request);
        let reply = request.answer(&again, said(property, value)).send().await;
        if property == "street" {
            let text = text_of(reply.result()).to_owned();
            assert_eq!(text, r#""Ada" "Rome" "Via Appia""#);
        } else {
            asked = reply.asked();
        }
    }
    assert_eq!((relay.puppet.starts("three"), relay.answers()), (1, 3));
    relay.ends(gateway).await;
}

#[tokio::test]
async fn a_question_on_the_general_stream_is_carried_along() {
    let relay = Relay::new().await;
    relay.puppet.tool("aside", |call| async move {
        call.log("info", "it begins").await;
        let params = form("name", name_schema());
        let answer = call.ask_generally("elicitation/create", params).await;
        Ending::text(format!("name: {}", answer.said("name")))
    });
    let first = relay.start().await;
    let (request, asked) = held(&first, "aside").await;
    let second = relay.next(first).await;
    let request = at(&second, &request);
    let again = request.answer(&asked, said("name", "x")).send().await;
    let again = again.asked();
    assert_eq!(relay.answers(), 0, "it was checked");
    let reply = request.answer(&again, said("name", "Ada")).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    relay.ends(second).await;
}

#[tokio::test]
async fn of_two_questions_one_may_be_answered_before_and_one_after() {
    let relay = Relay::new().await;
    let first = relay.start().await;
    let (request, asked) = held(&first, "two").await;
    let one = json!({"color": said("color", "red")});
    let asked = request.again(&asked, one).send().await.asked();
    assert_eq!((asked.key(), relay.answers()), ("size", 1));
    let second = relay.next(first).await;
    let two = json!({"size": accept(json!({"size": 4}))});
    let reply = at(&second, &request).again(&asked, two).send().await;
    assert_eq!(text_of(reply.result()), "\"red\" 4");
    assert_eq!(relay.answers(), 2);
    relay.ends(second).await;
}

#[tokio::test]
async fn the_same_re_issue_twice_at_once_gives_the_answer_once() {
    let relay = Relay::new().await;
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    let request = at(&second, &request).answer(&asked, said("name", "Ada"));
    let replies = tokio::join!(request.send(), request.send(), request.send());
    for reply in [replies.0, replies.1, replies.2] {
        assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    }
    assert_eq!((relay.puppet.starts("name"), relay.answers()), (1, 1));
    relay.ends(second).await;
}

#[tokio::test]
async fn a_result_that_came_while_nobody_listened_is_what_the_re_issue_gets() {
    let relay = Relay::new().await;
    let gate = Gate::default();
    let passed = gate.clone();
    relay.puppet.tool("impatient", move |call| {
        let gate = passed.clone();
        async move {
            let params = form("name", name_schema());
            call.pose("elicitation/create", params).await;
            gate.passed().await;
            Ending::text("gave up waiting")
        }
    });
    let first = relay.start().await;
    let (request, asked) = held(&first, "impatient").await;
    first.kill().await;
    gate.open();
    relay
        .puppet
        .until("the tool to end", |ledger| ledger.running == 0)
        .await;
    let second = relay.start().await;
    let reply = at(&second, &request).answer(&asked, said("name", "Ada"));
    assert_eq!(text_of(reply.send().await.result()), "gave up waiting");
    assert_eq!(relay.answers(), 0);
    relay.ends(second).await;
}

#[tokio::test]
async fn a_slow_call_that_was_only_told_to_wait_goes_on_too() {
    let mut relay = Relay::new().await;
    relay.config = relay.config.timer("leg_max", "100ms");
    let gate = Gate::default();
    let passed = gate.clone();
    relay.puppet.tool("slow", move |call| {
        let gate = passed.clone();
        async move {
            call.log("info", "it begins").await;
            gate.passed().await;
            Ending::text("done")
        }
    });
    let first = relay.start().await;
    // Without roots: the leg is not to end before the request went up.
    let client = Client::of(&first).able(json!({"elicitation": {}}));
    let request = client.tool("slow", json!({}));
    let told = request.send().await;
    let state = told.message["result"]["requestState"].clone();
    let second = relay.next(first).await;
    let request = at(&second, &request).param("requestState", state);
    let leg = request.open().await;
    gate.open();
    assert_eq!(text_of(leg.finish().await.result()), "done");
    assert_eq!(relay.puppet.starts("slow"), 1);
    relay.ends(second).await;
}

#[tokio::test]
async fn a_process_that_is_told_to_end_leaves_its_holds_to_the_next() {
    let mut relay = Relay::new().await;
    relay.config = relay.config.timer("shutdown_deadline", "100ms");
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    first.signal_end();
    let said_at_last = first.log_to_the_end().await;
    assert!(
        said_at_last.contains("left=1 cancelled=0"),
        "{said_at_last}"
    );
    assert_eq!(relay.puppet.ledger().cancellations.len(), 0);
    let second = relay.start().await;
    let reply = at(&second, &request).answer(&asked, said("name", "Ada"));
    assert_eq!(text_of(reply.send().await.result()), "name: \"Ada\"");
    assert_eq!((relay.puppet.starts("name"), relay.answers()), (1, 1));
    relay.ends(second).await;
}

#[tokio::test]
async fn keys_can_be_rotated_without_losing_a_hold() {
    let mut relay = Relay::new().await;
    let mut gateway = relay.start().await;
    let (request, asked) = held(&gateway, "three").await;
    relay.config = relay.config.top("keys", &keys(&[2, 1]));
    gateway = relay.next(gateway).await;
    let request = at(&gateway, &request);
    let asked = request.answer(&asked, said("name", "Ada")).send().await;
    let asked = asked.asked();
    relay.config = relay.config.top("keys", &keys(&[2]));
    gateway = relay.next(gateway).await;
    let request = at(&gateway, &request);
    let asked = request.answer(&asked, said("city", "Rome")).send().await;
    asked.asked();
    assert_eq!(relay.puppet.starts("three"), 1);
    gateway.kill().await;
}

#[tokio::test]
async fn a_server_that_has_not_noticed_the_end_of_the_first_is_asked_again() {
    let relay = Relay::new().await;
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    let busy = [Resuming::Status(409), Resuming::Status(503)];
    relay.puppet.resuming(&busy, Resuming::Offered);
    let reply = at(&second, &request).answer(&asked, said("name", "Ada"));
    assert_eq!(text_of(reply.send().await.result()), "name: \"Ada\"");
    assert_eq!(relay.puppet.ledger().resumed().len(), 3);
    relay.ends(second).await;
}

#[tokio::test]
async fn a_call_that_cannot_be_resumed_yet_can_be_later() {
    let mut relay = Relay::new().await;
    relay.config = relay.config.timer("resume_max", "200ms");
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    relay.puppet.resuming(&[], Resuming::Status(409));
    let request = at(&second, &request).answer(&asked, said("name", "Ada"));
    request.send().await.unreached();
    relay.puppet.resuming(&[], Resuming::Offered);
    assert_eq!(text_of(request.send().await.result()), "name: \"Ada\"");
    assert_eq!((relay.puppet.starts("name"), relay.answers()), (1, 1));
    relay.ends(second).await;
}

#[tokio::test]
async fn a_session_that_is_left_to_others_makes_nothing_forgotten_of_its_server() {
    let mut relay = Relay::new().await;
    relay.config = relay.config.timer("resume_max", "200ms");
    relay.config = relay.config.backend("ttl", "\"60s\"");
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    let discover = Client::of(&second).request("server/discover", json!({}));
    discover.send().await.result();
    relay.puppet.resuming(&[], Resuming::Status(409));
    let request = at(&second, &request).answer(&asked, said("name", "Ada"));
    request.send().await.unreached();
    discover.send().await.result();
    assert_eq!(second.metric("holdfast_recalled_total").await, 1);
    relay.puppet.resuming(&[], Resuming::Offered);
    request.send().await.result();
    relay.ends(second).await;
}

#[tokio::test]
async fn nobody_else_can_take_a_call_over() {
    let relay = Relay::new().await;
    let first = relay.start().await;
    let ada = |gateway: &Gateway| Client::of(gateway).named("ada");
    let request = ada(&first).tool("name", json!({}));
    let asked = request.send().await.asked();
    let second = relay.next(first).await;
    let eve = request.clone().by(&Client::of(&second).named("eve"));
    let refused = eve.answer(&asked, said("name", "Eve")).send().await;
    refused.refused("principal");
    assert!(relay.puppet.ledger().resumed().is_empty());
    let reply = request
        .by(&ada(&second))
        .answer(&asked, said("name", "Ada"));
    assert_eq!(text_of(reply.send().await.result()), "name: \"Ada\"");
    relay.ends(second).await;
}

#[tokio::test]
async fn a_client_that_goes_away_while_its_call_is_taken_over_can_come_back() {
    let relay = Relay::new().await;
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    relay.puppet.resuming(&[], Resuming::Status(409));
    let request = at(&second, &request).answer(&asked, said("name", "Ada"));
    let leg = request.open().await;
    relay
        .puppet
        .until("the server to be asked", |ledger| {
            !ledger.resumed().is_empty()
        })
        .await;
    drop(leg);
    relay.puppet.resuming(&[], Resuming::Offered);
    assert_eq!(text_of(request.send().await.result()), "name: \"Ada\"");
    assert_eq!(relay.answers(), 1);
    relay.ends(second).await;
}

/// The only session there may be belongs to a call that runs, and then to nobody: it gives way.
#[tokio::test]
async fn a_session_that_becomes_idle_makes_room_for_one_that_is_taken_over() {
    let mut relay = Relay::new().await;
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    relay.config = relay
        .config
        .top("threads", "1")
        .limit("sessions_max", 1)
        .timer("session_idle", "60s")
        .timer("session_wait", "60s");
    let gate = Gate::default();
    let passed = gate.clone();
    relay.puppet.on("prompts/list", "", move |_| {
        let gate = passed.clone();
        async move {
            gate.passed().await;
            Ending::Result(json!({"prompts": []}))
        }
    });
    let second = relay.next(first).await;
    let client = Client::of(&second);
    let list = client.request("prompts/list", json!({})).open().await;
    relay
        .puppet
        .until("the list to be asked for", |ledger| {
            !ledger.requests("prompts/list").is_empty()
        })
        .await;
    let leg = at(&second, &request).answer(&asked, said("name", "Ada"));
    let leg = leg.open().await;
    // On the same thread, and behind it: now it waits for room.
    let nowhere = client.tool("echo", json!({})).path("/other").open().await;
    assert_eq!(nowhere.status().await, Some(404));
    gate.open();
    list.finish().await.result();
    assert_eq!(text_of(leg.finish().await.result()), "name: \"Ada\"");
    relay.ends(second).await;
}

#[tokio::test]
async fn a_server_without_a_general_stream_is_resumed_too() {
    let relay = Relay::of(Manner {
        general_stream: GeneralStream::Refused,
        ..resumable()
    })
    .await;
    let first = relay.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    let reply = at(&second, &request).answer(&asked, said("name", "Ada"));
    assert_eq!(text_of(reply.send().await.result()), "name: \"Ada\"");
    relay.ends(second).await;
}

#[tokio::test]
async fn calls_that_shared_a_session_are_taken_over_one_by_one() {
    let relay = Relay::of(Manner {
        general_stream: GeneralStream::Refused,
        ..resumable()
    })
    .await;
    let first = relay.start().await;
    let (one, asked_one) = held(&first, "name").await;
    let (two, asked_two) = held(&first, "two").await;
    assert_eq!(relay.puppet.ledger().sessions_opened, 1);
    let second = relay.next(first).await;
    let reply = at(&second, &one).answer(&asked_one, said("name", "Ada"));
    assert_eq!(text_of(reply.send().await.result()), "name: \"Ada\"");
    second.settled().await;
    // The end of one is not the end of the other.
    let answers = json!({"color": said("color", "red"), "size": accept(json!({"size": 4}))});
    let reply = at(&second, &two).again(&asked_two, answers).send().await;
    assert_eq!(text_of(reply.result()), "\"red\" 4");
    relay.ends(second).await;
}
