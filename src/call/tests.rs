//! The state machine driven as data: named paths. `simulation` drives it in any order at all.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::translate::capability::ClientCapabilities;
use crate::wire::jsonrpc::{Message, ServerId, UpstreamId};
use crate::wire::modern::{LogLevel, Method};
use crate::wire::object::RawObject;

mod replayed;
mod simulation;
mod stretching;
mod taken_over;

/// States are their round in words; the machine never looks inside.
struct PlainSeal;

impl Seal for PlainSeal {
    fn seal(&self, sealing: Sealing<'_>) -> Option<String> {
        let rerun = if sealing.rerun { " rerun" } else { "" };
        Some(format!("{}{rerun}", sealing.round.0))
    }

    fn has_room(&self) -> bool {
        true
    }

    fn may_replay(&self) -> bool {
        true
    }
}

const ALL: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}"#;

fn limits() -> CallLimits {
    CallLimits {
        gather_quiet: Duration::from_millis(10),
        gather_max: Duration::from_millis(50),
        hold_ttl: Duration::from_secs(900),
        leg_grace: Duration::from_secs(10),
        leg_max: Duration::from_secs(20),
        stretch_grace: Duration::from_secs(60),
        stretch_rounds_max: 2,
        upstream_silence_max: Duration::from_secs(40),
        questions_max: 4,
        reruns_max: 2,
        replay_answers_max: 400,
        missing_capability: MissingCapability::Error,
    }
}

/// A call under test: everything it did so far.
struct Bench {
    call: Call,
    now: Moment,
    legs: u64,
    /// What was done since the last look, one line each.
    done: Vec<String>,
    replies: HashMap<u64, usize>,
    answered: HashMap<String, usize>,
    ends: usize,
    /// What the server was answered, and what the client was told last: a result, or an error's data.
    given: Vec<Value>,
    told: Value,
    /// What the next re-issue brings has reached the server before.
    were_given: bool,
}

impl Bench {
    fn new(method: Method, capabilities: &str) -> Self {
        let mut bench = Self::without_session(method, capabilities);
        bench.departs();
        bench
    }

    fn without_session(method: Method, capabilities: &str) -> Self {
        Self::beginning(spec(method, capabilities))
    }

    fn beginning(spec: CallSpec) -> Self {
        Self::of(Call::new(
            spec,
            Arc::new(limits()),
            leg(1),
            Moment::default(),
        ))
    }

    fn of(call: Call) -> Self {
        Self {
            call,
            now: Moment::default(),
            legs: 1,
            done: Vec::new(),
            replies: HashMap::new(),
            answered: HashMap::new(),
            ends: 0,
            given: Vec::new(),
            told: Value::Null,
            were_given: false,
        }
    }

    /// The call gets a session and its request goes up.
    fn departs(&mut self) {
        for event in [Event::Leased(Arc::default()), Event::Departed] {
            self.call.handle(self.now, event, &PlainSeal);
        }
    }

    fn feed(&mut self, event: Event<'_>) {
        let was_ended = self.call.is_ended();
        self.call.handle(self.now, event, &PlainSeal);
        while let Some(action) = self.call.next_action() {
            assert!(!was_ended, "an ended call did something: {action:?}");
            if matches!(action, Action::Start(_)) {
                self.call.starts_as(UpstreamId(100 + self.legs));
                self.departs();
            }
            self.note(action);
        }
    }

    fn note(&mut self, action: Action) {
        let line = match action {
            Action::Answer(message) | Action::Tell(message) => {
                let message: Value = serde_json::from_slice(&message).unwrap();
                *self.answered.entry(message["id"].to_string()).or_default() += 1;
                let what = ["result", "error"]
                    .into_iter()
                    .find(|kind| message.get(*kind).is_some());
                self.given.push(message.clone());
                format!("{} {}", what.unwrap(), message["id"])
            }
            Action::Cancel(_) => "cancel".to_owned(),
            Action::Notify(leg, _) => format!("notify {}", leg.0),
            Action::Reply(leg, reply) => {
                *self.replies.entry(leg.0).or_default() += 1;
                self.told = match &reply {
                    Reply::Result(result) => serde_json::from_slice(result).unwrap(),
                    Reply::Error(error) => {
                        let data = error.data.as_deref().map_or("null", RawValue::get);
                        serde_json::from_str(data).unwrap()
                    }
                    Reply::Challenge(_) => Value::Null,
                };
                format!("reply {} {}", leg.0, summary(&reply))
            }
            Action::Release(fate) => format!("{fate:?}").to_lowercase(),
            Action::Start(Anew::Visited { .. }) => "start".to_owned(),
            Action::Start(Anew::Lost) => "start again".to_owned(),
            Action::End => {
                self.ends += 1;
                "end".to_owned()
            }
        };
        self.done.push(line);
    }

    fn server(&mut self, message: &str) {
        let message = Message::parse(message.as_bytes()).unwrap();
        self.feed(Event::Server(Origin::Exchange, message));
    }

    fn asks(&mut self, id: u32, property: &str) {
        self.server(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{{"message":"m","requestedSchema":{{"type":"object","properties":{{"{property}":{{"type":"boolean"}}}},"required":["{property}"]}}}}}}"#
        ));
    }

    fn waits(&mut self) {
        self.now = self.call.deadline().unwrap_or(self.now).max(self.now);
        self.feed(Event::Timer);
    }

    fn reissues(&mut self, round: u32, responses: &str) -> u64 {
        self.legs += 1;
        let mut digest = [0_u8; 16];
        for (at, byte) in responses.bytes().enumerate() {
            digest[at % 16] = digest[at % 16].wrapping_mul(31) ^ byte;
        }
        let answers = Answers {
            round: Round(round),
            digest: AnswersDigest(digest),
            responses: RawObject::parse(responses.as_bytes()).unwrap(),
            capabilities: ClientCapabilities::parse(&raw(ALL)).unwrap(),
            were_given: std::mem::take(&mut self.were_given),
        };
        self.feed(Event::Reissue(leg(self.legs), answers));
        self.legs
    }

    /// What was done since the last look.
    fn did(&mut self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut self.done), expected);
    }
}

fn spec(method: Method, capabilities: &str) -> CallSpec {
    CallSpec {
        id: UpstreamId(7),
        method,
        capabilities: ClientCapabilities::parse(&raw(capabilities)).unwrap(),
        hints: None,
        supplied: None,
        kept: None,
    }
}

fn raw(text: &str) -> Box<RawValue> {
    serde_json::from_str(text).unwrap()
}

fn leg(id: u64) -> Leg {
    Leg {
        id: LegId(id),
        progress_token: Some(raw("1")),
        log_level: Some(LogLevel::Info),
    }
}

/// A reply in a word or two: `done`, `asks a b as STATE`, or the error's reason or code.
fn summary(reply: &Reply) -> String {
    match reply {
        Reply::Result(result) => {
            let result: Value = serde_json::from_slice(result).unwrap();
            match result["inputRequests"].as_object() {
                None if result["resultType"] == "input_required" => {
                    format!("waits as {}", result["requestState"].as_str().unwrap())
                }
                None => "done".to_owned(),
                Some(requests) => {
                    let keys: Vec<&str> = requests.keys().map(String::as_str).collect();
                    format!(
                        "asks {} as {}",
                        keys.join(" "),
                        result["requestState"].as_str().unwrap()
                    )
                }
            }
        }
        Reply::Error(error) => {
            let data: Value = error.data.as_ref().map_or(Value::Null, |data| {
                serde_json::from_str(data.get()).unwrap()
            });
            data["reason"]
                .as_str()
                .map_or_else(|| error.code.to_string(), str::to_owned)
        }
        Reply::Challenge(_) => "challenge".to_owned(),
    }
}

const DONE: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#;
/// Error −32042 that wants `count` visits.
fn visits(id: u64, count: usize) -> String {
    let visit = r#"{"mode":"url","message":"m","url":"https://e.x/","elicitationId":"1"}"#;
    let visits = vec![visit; count].join(",");
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32042,"message":"m","data":{{"elicitations":[{visits}]}}}}}}"#
    )
}

const YES: &str = r#"{"a":{"action":"accept","content":{"a":true}}}"#;

#[test]
fn a_plain_call_is_answered_and_its_session_reused() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.server(DONE);
    bench.did(&["reuse", "reply 1 done", "end"]);
    bench.server(DONE);
    bench.did(&[]);
}

#[test]
fn a_question_is_asked_after_a_quiet_moment_and_its_answer_goes_up() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.asks(0, "a");
    bench.asks(1, "b");
    bench.did(&[]);
    bench.waits();
    bench.did(&["reply 1 asks a b as 1"]);
    assert!(bench.call.is_parked());
    bench.reissues(
        1,
        r#"{"a":{"action":"accept","content":{"a":true}},"b":{"action":"decline"}}"#,
    );
    bench.did(&["result 0", "result 1"]);
    bench.server(DONE);
    bench.did(&["reuse", "reply 2 done", "end"]);
}

#[test]
fn bad_and_missing_answers_are_asked_again_and_good_ones_go_up_once() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.asks(0, "a");
    bench.asks(1, "b");
    bench.waits();
    bench.reissues(
        1,
        r#"{"a":{"action":"accept","content":{"a":"yes"}},"x":{}}"#,
    );
    bench.did(&["reply 1 asks a b as 1", "reply 2 asks a b as 2"]);
    bench.reissues(2, YES);
    bench.did(&["result 0"]);
    bench.waits();
    bench.did(&["reply 3 asks b as 3"]);
}

#[test]
fn a_repeat_joins_or_replays_and_another_answer_is_refused() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.asks(0, "a");
    bench.waits();
    bench.reissues(1, YES);
    bench.reissues(1, YES);
    bench.reissues(1, "{}");
    bench.did(&["reply 1 asks a as 1", "result 0", "reply 4 answered"]);
    bench.asks(1, "b");
    bench.waits();
    bench.did(&["reply 2 asks b as 2", "reply 3 asks b as 2"]);
    bench.reissues(1, YES);
    bench.did(&["reply 5 asks b as 2"]);
}

#[test]
fn a_first_leg_that_goes_away_is_cancelled_at_once() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.asks(0, "a");
    bench.feed(Event::LegGone(LegId(1)));
    bench.did(&["result 0", "cancel", "retire", "end"]);
}

#[test]
fn a_reissued_leg_that_goes_away_has_a_grace() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.asks(0, "a");
    bench.waits();
    let gone = bench.reissues(1, YES);
    bench.feed(Event::LegGone(LegId(gone)));
    bench.did(&["reply 1 asks a as 1", "result 0"]);
    let back = bench.reissues(1, YES);
    bench.feed(Event::LegGone(LegId(back)));
    bench.did(&[]);
    bench.waits();
    bench.did(&["cancel", "retire", "end"]);
}

#[test]
fn a_server_that_gives_up_leaves_its_result_for_the_late_answer() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.asks(0, "a");
    bench.waits();
    bench
        .server(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}"#);
    bench.server(DONE);
    bench.did(&["reply 1 asks a as 1", "reuse", "end"]);
    let mut rounds = bench.call.take_rounds();
    let Verdict::Replay(reply) = rounds.judge(Round(1), AnswersDigest([1; 16])) else {
        panic!("no outcome");
    };
    assert_eq!(summary(&reply), "done");
}

#[test]
fn a_visit_first_means_a_fresh_run_after_it() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.server(&visits(7, 1));
    bench.did(&["reuse", "reply 1 asks elicitation as 1 rerun"]);
    bench.reissues(1, r#"{"elicitation":{"action":"accept"}}"#);
    bench.did(&["start"]);
    assert_eq!(bench.call.id(), UpstreamId(102));
    bench.server(&visits(102, 1));
    bench.did(&["reuse", "reply 2 asks elicitation as 2 rerun"]);
    bench.reissues(2, r#"{"elicitation":{"action":"decline"}}"#);
    bench.did(&["reply 3 done", "end"]);
}

#[test]
fn a_visit_declined_in_any_round_keeps_the_call_from_running_anew() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.server(&visits(7, 2));
    bench.did(&["reuse", "reply 1 asks elicitation elicitation_2 as 1 rerun"]);
    bench.reissues(1, r#"{"elicitation":{"action":"decline"}}"#);
    bench.did(&["reply 2 asks elicitation_2 as 2 rerun"]);
    bench.reissues(2, r#"{"elicitation_2":{"action":"accept"}}"#);
    bench.did(&["reply 3 done", "end"]);
}

#[test]
fn visits_are_bounded_and_a_session_with_open_questions_is_not_reused() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.server(&visits(7, 5));
    bench.did(&["reuse", "reply 1 lost", "end"]);
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.asks(0, "a");
    bench.server(&visits(7, 1));
    bench.did(&["retire", "reply 1 asks elicitation as 1 rerun"]);
}

#[test]
fn answers_brought_along_are_for_the_calls_own_questions() {
    let question = r#"{"jsonrpc":"2.0","id":ID,"method":"elicitation/create","params":{"message":"m","requestedSchema":{"properties":{"a":{"type":"boolean"}}}}}"#;
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.call.spec.supplied = Some(raw(YES));
    let stray = question.replace("ID", "0");
    let stray = Message::parse(stray.as_bytes()).unwrap();
    bench.feed(Event::Server(Origin::Stray, stray));
    bench.waits();
    bench.did(&["reply 1 asks a as 1"]);
    bench.reissues(1, r#"{"a":{"action":"decline"}}"#);
    bench.did(&["result 0"]);
    bench.server(&question.replace("ID", "1"));
    bench.did(&["result 1"]);
}

#[test]
fn a_question_beyond_the_clients_capabilities_ends_the_call() {
    let mut bench = Bench::new(Method::ToolsCall, r#"{"roots":{}}"#);
    bench.asks(0, "a");
    bench.did(&["error 0", "cancel", "retire", "reply 1 -32021", "end"]);
}

#[test]
fn a_question_beyond_the_clients_capabilities_can_be_declined_instead() {
    let mut bench = Bench::new(Method::ToolsCall, r#"{"elicitation":{"form":{}}}"#);
    let declining = CallLimits {
        missing_capability: MissingCapability::Decline,
        ..limits()
    };
    bench.call.limits = Arc::new(declining);
    bench.server(r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://e.x/","elicitationId":"1"}}"#);
    bench.server(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
    bench.did(&["result 0", "error 1"]);
    bench.asks(2, "a");
    bench.waits();
    bench.did(&["reply 1 asks a as 1"]);
    bench.server(DONE);
    bench.did(&["retire", "end"]);
}

#[test]
fn nothing_is_asked_during_a_list() {
    let mut bench = Bench::new(Method::ToolsList, ALL);
    bench.asks(0, "a");
    bench.server(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    bench.server(r#"{"jsonrpc":"2.0","id":2,"method":"tasks/list"}"#);
    bench.did(&["error 0", "result 1", "error 2"]);
}

#[test]
fn time_ends_what_nobody_ends() {
    let mut silent = Bench::new(Method::ToolsList, ALL);
    silent.waits();
    silent.did(&["cancel", "retire", "reply 1 lost", "end"]);
    let mut held = Bench::new(Method::ToolsCall, ALL);
    held.asks(0, "a");
    held.waits();
    held.waits();
    held.did(&["reply 1 asks a as 1", "result 0", "cancel", "retire", "end"]);
}

#[test]
fn progress_reaches_the_leg_that_is_there() {
    const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
    const LOG: &str =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"LEVEL","data":1}}"#;
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.server(PROGRESS);
    bench.server(&LOG.replace("LEVEL", "debug"));
    bench.server(&LOG.replace("LEVEL", "warning"));
    bench.did(&["notify 1", "notify 1"]);
    bench.asks(0, "a");
    bench.waits();
    bench.server(PROGRESS);
    bench.server(&LOG.replace("LEVEL", "warning"));
    bench.did(&["reply 1 asks a as 1"]);
    bench.reissues(1, YES);
    bench.did(&["notify 2", "result 0"]);
}
