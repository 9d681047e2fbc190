//! A lost call of a tool that its operator calls safe is run again, with the answers that its client has given already.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::support::client::{Asked, Client, Reply, Request};
use crate::support::cutter::Cutter;
use crate::support::gateway::{Config, Gateway};
use crate::support::puppet::{Ending, EventIds, Ledger, Manner, Puppet, Resuming};
use crate::support::stage::{name_schema, usual};
use crate::support::{accept, form, text_of};

mod within;

/// One process after the other, in front of a server.
struct Relay {
    puppet: Puppet,
    config: Config,
}

impl Relay {
    /// Of a server that can resume nothing, with lost calls run again.
    async fn new() -> Self {
        Self::of(Manner::default(), "always").await
    }

    async fn of(manner: Manner, replay: &str) -> Self {
        let puppet = Puppet::start(manner).await;
        usual(&puppet);
        let keys = format!("[{:?}]", STANDARD.encode([1; 32]));
        let config = Config::of(&puppet)
            .top("keys", &keys)
            .backend("replay", &format!("{replay:?}"));
        Self { puppet, config }
    }

    /// The next process; the one before is killed.
    async fn next(&self, before: Gateway) -> Gateway {
        before.kill().await;
        self.config.start().await
    }

    fn answers(&self) -> usize {
        self.puppet.ledger().answers.len()
    }

    /// The end of a test: runs that were lost are over too.
    async fn ends(self, gateway: Gateway) {
        gateway.settled().await;
        let runs = |ledger: &Ledger| ledger.running == 0;
        self.puppet.until("all runs to end", runs).await;
        assert_eq!(gateway.terminate().await, 0);
        self.is_content();
    }

    /// The same while a call is held, here or at the server alone.
    async fn ends_held(self, gateway: Gateway) {
        gateway.kill().await;
        self.is_content();
    }

    fn is_content(&self) {
        // Those that were killed have left sessions behind, with calls on them.
        self.puppet.forget_sessions();
        self.puppet.is_content();
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

fn is_lost(reply: &Reply) {
    let error = reply.error(200, -32602);
    assert_eq!(error["data"]["reason"], "lost", "{error}");
}

/// Tools with these annotations, as listed.
fn annotate(puppet: &Puppet, tools: &[(&str, Value)]) {
    let tools: Vec<_> = tools
        .iter()
        .map(|(name, annotations)| {
            json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations})
        })
        .collect();
    puppet.on("tools/list", "", move |_| {
        let tools = json!({ "tools": tools });
        async move { Ending::Result(tools) }
    });
}

/// Counts the runs of a tool: in which one it is.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicUsize>);

impl Runs {
    fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

fn pay(amount: usize) -> Value {
    let mut params = form("agreed", json!({"type": "boolean"}));
    params["message"] = json!(format!("Pay {amount} EUR?"));
    params
}

#[tokio::test]
async fn a_call_that_died_with_its_process_is_run_again_with_the_answers_it_had() {
    let relay = Relay::new().await;
    let first = relay.config.start().await;
    let (request, asked) = held(&first, "three").await;
    let asked = request.answer(&asked, said("name", "Ada")).send().await;
    let asked = asked.asked();
    assert_eq!(asked.key(), "city");
    let second = relay.next(first).await;
    // Of three questions two are known by now, and the third is asked.
    let request = at(&second, &request);
    let reissue = request.answer(&asked, said("city", "Rome"));
    let third = reissue.send().await.asked();
    assert_eq!(third.key(), "street");
    assert_eq!(reissue.send().await.asked().state, third.state);
    let last = request.answer(&third, said("street", "Via Appia"));
    let reply = last.send().await;
    assert_eq!(text_of(reply.result()), r#""Ada" "Rome" "Via Appia""#);
    assert_eq!((relay.puppet.starts("three"), relay.answers()), (2, 4));
    assert_eq!(second.metric("holdfast_replayed_total").await, 1);
    let log = second.log();
    assert!(log.contains("a lost call is run again"), "{log}");
    assert!(!log.contains("Rome") && !log.contains("Ada"), "{log}");
    relay.ends(second).await;
}

#[tokio::test]
async fn every_round_may_be_run_again_by_another_process_and_the_fourth_is_lost() {
    let relay = Relay::new().await;
    let mut gateway = relay.config.start().await;
    let runs = Runs::default();
    relay.puppet.tool("ever other", move |call| {
        let run = runs.next();
        async move {
            call.elicit(pay(run)).await;
            Ending::text("paid")
        }
    });
    let (request, mut asked) = held(&gateway, "ever other").await;
    let agreed = accept(json!({"agreed": true}));
    for run in 2..=4 {
        gateway = relay.next(gateway).await;
        let reissue = at(&gateway, &request).answer(&asked, agreed.clone());
        asked = reissue.send().await.asked();
        // Who agreed to one amount has not agreed to another.
        let message = &asked.question()["params"]["message"];
        assert_eq!(*message, format!("Pay {run} EUR?"));
    }
    assert_eq!(relay.answers(), 0);
    gateway = relay.next(gateway).await;
    let reissue = at(&gateway, &request).answer(&asked, agreed);
    is_lost(&reissue.send().await);
    assert_eq!(relay.puppet.starts("ever other"), 4);
    relay.ends(gateway).await;
}

#[tokio::test]
async fn the_same_re_issue_twice_at_once_runs_it_again_once() {
    let relay = Relay::new().await;
    let first = relay.config.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    let request = at(&second, &request).answer(&asked, said("name", "Ada"));
    let replies = tokio::join!(request.send(), request.send(), request.send());
    for reply in [replies.0, replies.1, replies.2] {
        assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    }
    assert_eq!((relay.puppet.starts("name"), relay.answers()), (2, 1));
    relay.ends(second).await;
}

#[tokio::test]
async fn what_is_asked_twice_is_answered_in_the_order_in_which_it_was() {
    let relay = Relay::new().await;
    relay.puppet.tool("twice", |call| async move {
        let mut said = Vec::new();
        for _ in 0..3 {
            said.push(call.elicit(form("name", name_schema())).await.said("name"));
        }
        Ending::text(said.join(" "))
    });
    let first = relay.config.start().await;
    let (request, asked) = held(&first, "twice").await;
    let asked = request.answer(&asked, said("name", "Ada")).send().await;
    let decline = json!({"action": "decline"});
    let asked = request.answer(&asked.asked(), decline).send().await.asked();
    let second = relay.next(first).await;
    let reply = at(&second, &request).answer(&asked, said("name", "Eve"));
    assert_eq!(
        text_of(reply.send().await.result()),
        r#""Ada" decline "Eve""#
    );
    assert_eq!((relay.puppet.starts("twice"), relay.answers()), (2, 5));
    relay.ends(second).await;
}

#[tokio::test]
async fn a_bad_answer_to_a_lost_question_is_asked_again_by_the_next_run() {
    let relay = Relay::new().await;
    let first = relay.config.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    let request = at(&second, &request);
    let reply = request.answer(&asked, said("name", "x")).send().await;
    let rejected = &reply.message["result"]["_meta"]["holdfast/rejected"]["name"];
    assert!(rejected.is_string(), "{}", reply.message);
    let good = request.answer(&reply.asked(), said("name", "Ada"));
    assert_eq!(text_of(good.send().await.result()), "name: \"Ada\"");
    assert_eq!((relay.puppet.starts("name"), relay.answers()), (2, 1));
    relay.ends(second).await;
}

#[tokio::test]
async fn answers_beyond_the_bound_are_asked_anew() {
    let mut relay = Relay::new().await;
    relay.config = relay.config.limit("replay_answers_max", 80);
    let first = relay.config.start().await;
    let (request, asked) = held(&first, "three").await;
    let ada = request.answer(&asked, said("name", "Ada")).send().await;
    let long = "R".repeat(40);
    let rome = request.answer(&ada.asked(), said("city", &long));
    let asked = rome.send().await.asked();
    let second = relay.next(first).await;
    let request = at(&second, &request);
    // The first is given again; there was no room for the second, nor to say which the third was.
    let reissue = request.answer(&asked, said("street", "Via Appia"));
    let again = reissue.send().await.asked();
    assert_eq!((again.key(), relay.answers()), ("city", 3));
    let asked = request.answer(&again, said("city", "Rome")).send().await;
    assert_eq!(asked.asked().key(), "street");
    relay.ends_held(second).await;
}

#[tokio::test]
async fn only_annotated_tools_are_run_again_where_that_is_wanted_and_named_ones_as_they_are_named()
{
    let mut relay = Relay::of(Manner::default(), "annotated").await;
    let named = r#"{ never = { replay = "never" }, always = { replay = "always" } }"#;
    relay.config = relay.config.backend("tools", named);
    annotate(
        &relay.puppet,
        &[
            ("plain", json!({})),
            ("destructive", json!({"destructiveHint": true})),
            ("reads", json!({"readOnlyHint": true})),
            ("never", json!({"readOnlyHint": true})),
            ("same", json!({"idempotentHint": true})),
            ("always", json!({"destructiveHint": true})),
        ],
    );
    let first = relay.config.start().await;
    let mut calls = Vec::new();
    for (tool, is_run) in [
        ("plain", false),
        ("destructive", false),
        ("reads", true),
        ("never", false),
        ("same", true),
        ("always", true),
    ] {
        relay.puppet.tool(tool, |call| async move {
            let answer = call.elicit(form("name", name_schema())).await;
            Ending::text(format!("name: {}", answer.said("name")))
        });
        let (request, asked) = held(&first, tool).await;
        calls.push((tool, is_run, request, asked));
    }
    let second = relay.next(first).await;
    for (tool, is_run, request, asked) in calls {
        let reissue = at(&second, &request).answer(&asked, said("name", "Ada"));
        let reply = reissue.send().await;
        match is_run {
            true => assert_eq!(text_of(reply.result()), "name: \"Ada\"", "{tool}"),
            false => is_lost(&reply),
        }
        let starts = relay.puppet.starts(tool);
        assert_eq!(starts, 1 + usize::from(is_run), "{tool}");
    }
    relay.ends_held(second).await;
}

#[tokio::test]
async fn prompts_and_resources_count_as_annotated() {
    let relay = Relay::of(Manner::default(), "annotated").await;
    relay.puppet.on("prompts/get", "greet", |call| async move {
        let answer = call.elicit(form("name", name_schema())).await;
        let text = json!({"type": "text", "text": answer.said("name")});
        Ending::Result(json!({"messages": [{"role": "user", "content": text}]}))
    });
    let first = relay.config.start().await;
    let client = Client::of(&first);
    let request = client.request("prompts/get", json!({"name": "greet"}));
    let asked = request.send().await.asked();
    let second = relay.next(first).await;
    let reply = at(&second, &request).answer(&asked, said("name", "Ada"));
    let reply = reply.send().await;
    let text = &reply.result()["messages"][0]["content"]["text"];
    assert_eq!(*text, "\"Ada\"");
    relay.ends(second).await;
}

#[tokio::test]
async fn an_operator_who_has_changed_their_mind_is_heeded() {
    let mut relay = Relay::new().await;
    let first = relay.config.start().await;
    let (request, asked) = held(&first, "name").await;
    relay.config = relay.config.backend("replay", "\"annotated\"");
    let second = relay.next(first).await;
    let reissue = at(&second, &request).answer(&asked, said("name", "Ada"));
    is_lost(&reissue.send().await);
    assert_eq!(relay.puppet.starts("name"), 1);
    relay.ends_held(second).await;
}

#[tokio::test]
async fn a_call_whose_session_the_server_has_forgotten_is_run_again_and_not_resumed() {
    let resumable = Manner {
        event_ids: EventIds::With,
        ..Manner::default()
    };
    let relay = Relay::of(resumable, "always").await;
    let mut gateway = relay.config.start().await;
    let (request, mut asked) = held(&gateway, "three").await;
    // The second process takes the call over, with the answers of the first; the third finds nothing to take over.
    gateway = relay.next(gateway).await;
    let again = at(&gateway, &request).answer(&asked, said("name", "Ada"));
    asked = again.send().await.asked();
    assert_eq!(gateway.metric("holdfast_taken_over_total").await, 1);
    relay.puppet.resuming(&[], Resuming::Status(404));
    gateway = relay.next(gateway).await;
    let again = at(&gateway, &request).answer(&asked, said("city", "Rome"));
    let third = again.send().await.asked();
    assert_eq!((third.key(), relay.answers()), ("street", 3));
    assert_eq!(relay.puppet.starts("three"), 2);
    relay.ends_held(gateway).await;
}

#[tokio::test]
async fn a_server_that_resumes_a_stream_and_says_nothing_on_it_has_lost_the_call() {
    let resumable = Manner {
        event_ids: EventIds::With,
        ..Manner::default()
    };
    let mut relay = Relay::of(resumable, "always").await;
    relay.config = relay.config.timer("resume_max", "200ms");
    let first = relay.config.start().await;
    let (request, asked) = held(&first, "name").await;
    relay.puppet.resuming(&[], Resuming::Empty);
    let second = relay.next(first).await;
    let reissue = at(&second, &request).answer(&asked, said("name", "Ada"));
    assert_eq!(text_of(reissue.send().await.result()), "name: \"Ada\"");
    assert_eq!(relay.puppet.starts("name"), 2);
    relay.ends(second).await;
}

#[tokio::test]
async fn a_server_that_is_away_when_its_call_is_to_be_run_again_can_be_there_later() {
    let mut relay = Relay::new().await;
    let cutter = Cutter::before(relay.puppet.addr()).await;
    relay.config = relay
        .config
        .backend("legacy", &format!("{:?}", cutter.url()));
    let first = relay.config.start().await;
    let (request, asked) = held(&first, "name").await;
    let second = relay.next(first).await;
    cutter.close(true);
    let reissue = at(&second, &request).answer(&asked, said("name", "Ada"));
    reissue.send().await.unreached();
    cutter.close(false);
    assert_eq!(text_of(reissue.send().await.result()), "name: \"Ada\"");
    assert_eq!((relay.puppet.starts("name"), relay.answers()), (2, 1));
    relay.ends(second).await;
}

#[tokio::test]
async fn a_process_that_is_told_to_end_leaves_its_holds_to_be_run_again() {
    let mut relay = Relay::new().await;
    relay.config = relay.config.timer("shutdown_deadline", "100ms");
    let first = relay.config.start().await;
    let (request, asked) = held(&first, "name").await;
    assert_eq!(first.terminate().await, 0);
    // The server was told that nobody waits for this run.
    relay.puppet.settled().await;
    assert_eq!(relay.puppet.ledger().cancellations.len(), 1);
    let second = relay.config.start().await;
    let reissue = at(&second, &request).answer(&asked, said("name", "Ada"));
    assert_eq!(text_of(reissue.send().await.result()), "name: \"Ada\"");
    assert_eq!(relay.puppet.starts("name"), 2);
    second.settled().await;
    // That the first run was ended properly the next process cannot know.
    for violation in &relay.puppet.ledger().violations {
        assert_eq!(violation, "session-1: used after it was deleted");
    }
}

#[tokio::test]
async fn a_visit_for_which_a_call_waited_may_be_made_after_its_process_has_died() {
    let relay = Relay::new().await;
    let runs = Runs::default();
    relay.puppet.tool("guarded", move |_| {
        let run = runs.next();
        async move {
            let visit = json!({"mode": "url", "message": "Sign in.", "elicitationId": "e", "url": "https://example.com/"});
            let data = json!({"elicitations": [visit]});
            match run % 2 {
                1 => Ending::Error(json!({"code": -32042, "message": "Sign in.", "data": data})),
                _ => Ending::text("welcome"),
            }
        }
    });
    let mut gateway = relay.config.start().await;
    let (request, asked) = held(&gateway, "guarded").await;
    gateway = relay.next(gateway).await;
    let reissue = at(&gateway, &request).answer(&asked, json!({"action": "accept"}));
    assert_eq!(text_of(reissue.send().await.result()), "welcome");
    let (request, asked) = held(&gateway, "guarded").await;
    gateway = relay.next(gateway).await;
    let reissue = at(&gateway, &request).answer(&asked, json!({"action": "decline"}));
    assert_eq!(reissue.send().await.result()["isError"], true);
    assert_eq!(relay.puppet.starts("guarded"), 3);
    relay.ends(gateway).await;
}
