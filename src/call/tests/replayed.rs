//! Calls that are run again after they were lost.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::call::machine::Upstream;
use crate::wire::error::{ErrorObject, HEADER_MISMATCH};

fn replayable(kept: Kept) -> CallSpec {
    CallSpec {
        kept: Some(kept),
        ..spec(Method::ToolsCall, ALL)
    }
}

/// A call that is on its way.
fn bench() -> Bench {
    let mut bench = Bench::beginning(replayable(Kept::default()));
    bench.departs();
    bench
}

fn loss() -> Event<'static> {
    Event::Lost(Loss::Failed {
        message: "m".into(),
        may_have_run: true,
    })
}

/// A form with one word.
fn question(id: usize, message: &str) -> String {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let params = json!({"message": message, "requestedSchema": schema});
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})
        .to_string()
}

fn word(word: &str) -> String {
    json!({"a": {"action": "accept", "content": {"a": word}}}).to_string()
}

fn done(bench: &mut Bench) {
    let id = bench.call.id().0.to_string();
    bench.server(&DONE.replace('7', &id));
}

/// The call as another process finds it whose latest state says this.
fn elsewhere(bench: &Bench, round: u32, why: Anew) -> Bench {
    let kept = bench.call.to_keep().unwrap();
    let parked = (Round(round), why);
    let limits = Arc::new(limits());
    Bench::of(Call::lost_elsewhere(
        replayable(kept),
        limits,
        parked,
        Moment::default(),
    ))
}

#[test]
fn a_call_that_is_lost_in_a_leg_is_run_again_in_it() {
    let mut bench = bench();
    bench.server(&question(0, "m"));
    bench.waits();
    bench.reissues(1, &word("Ada"));
    bench.did(&["reply 1 asks a as 1", "result 0"]);
    bench.feed(loss());
    bench.did(&["cancel", "retire", "start again"]);
    // The next session counts anew.
    bench.server(&question(0, "m"));
    bench.did(&["result 0"]);
    assert_eq!(bench.given[0], bench.given[1]);
    bench.server(&question(1, "m"));
    bench.waits();
    bench.did(&["reply 2 asks a as 2"]);
}

#[test]
fn a_call_that_is_lost_while_it_gathers_lets_go_of_what_it_gathered() {
    let mut bench = bench();
    bench.server(&question(0, "m"));
    bench.feed(loss());
    bench.did(&["result 0", "cancel", "retire", "start again"]);
    done(&mut bench);
    bench.did(&["reuse", "reply 1 done", "end"]);
}

#[test]
fn a_call_that_is_lost_while_it_is_parked_is_run_again_by_its_re_issue() {
    let mut bench = bench();
    bench.server(&question(0, "m"));
    bench.waits();
    bench.feed(loss());
    bench.did(&["reply 1 asks a as 1", "result 0", "cancel", "retire"]);
    assert!(bench.call.is_parked());
    bench.reissues(1, &word("Ada"));
    bench.did(&["start again"]);
    bench.server(&question(0, "m"));
    bench.did(&["result 0"]);
    assert_eq!(bench.given[1]["result"]["content"]["a"], "Ada");
}

#[test]
fn nobody_waits_for_ever_for_the_re_issue_of_a_lost_call() {
    let mut bench = bench();
    bench.server(&question(0, "m"));
    bench.waits();
    bench.feed(loss());
    bench.done.clear();
    bench.waits();
    bench.did(&["end"]);
}

#[test]
fn what_a_re_issue_brings_to_a_lost_call_is_checked_when_the_question_comes_again() {
    let mut bench = bench();
    bench.server(&question(0, "m"));
    bench.waits();
    let mut bench = elsewhere(&bench, 1, Anew::Lost);
    bench.reissues(1, r#"{"a":{"action":"accept","content":{"a":5}}}"#);
    bench.server(&question(0, "m"));
    bench.waits();
    bench.did(&["start again", "reply 2 asks a as 2"]);
    let rejected = &bench.told["_meta"]["holdfast/rejected"]["a"];
    assert!(rejected.is_string(), "{}", bench.told);
}

#[test]
fn a_call_that_others_lost_has_the_answers_that_it_had() {
    let mut bench = bench();
    for (id, name) in ["Ada", "Bob"].into_iter().enumerate() {
        bench.server(&question(id, name));
        bench.waits();
        bench.reissues(u32::try_from(id).unwrap() + 1, &word(name));
    }
    bench.server(&question(2, "Cid"));
    bench.waits();
    let mut bench = elsewhere(&bench, 3, Anew::Lost);
    bench.were_given = true;
    bench.reissues(3, &word("Cid"));
    bench.did(&["start again"]);
    // In another order than before.
    for (id, name) in ["Cid", "Bob", "Ada"].into_iter().enumerate() {
        bench.server(&question(id, name));
        bench.did(&[&format!("result {id}")]);
        assert_eq!(bench.given[id]["result"]["content"]["a"], *name);
    }
    // A state of this run says so again.
    let mut again = elsewhere(&bench, 3, Anew::Lost);
    again.reissues(3, "{}");
    again.server(&question(0, "Bob"));
    again.did(&["start again", "result 0"]);
    assert_eq!(bench.call.runs(), 1);
    assert_eq!(again.call.runs(), 2);
}

#[test]
fn a_call_is_run_again_three_times_at_most() {
    let mut bench = bench();
    for _ in 0..3 {
        bench.feed(loss());
        bench.did(&["cancel", "retire", "start again"]);
    }
    bench.feed(loss());
    bench.did(&["cancel", "retire", "reply 1 lost", "end"]);
}

/// What of a call that was run again is said when it cannot be run once more: it may have run.
#[test]
fn a_run_that_does_not_come_about_hides_no_run_before_it() {
    let never = || Loss::Failed {
        message: "m".into(),
        may_have_run: false,
    };
    for last in [
        Event::Refused(failed("no session", false)),
        Event::Failed(never()),
        Event::Abandon("the end"),
    ] {
        let mut bench = bench();
        bench.feed(loss());
        bench.done.clear();
        bench.feed(last);
        assert_eq!(bench.told["mayHaveRun"], true, "{:?}", bench.done);
    }
    // Nothing was sent, and nothing is run again for it.
    let mut bench = bench();
    bench.feed(Event::Lost(never()));
    bench.did(&["retire", "reply 1 lost", "end"]);
    assert_eq!(bench.told["mayHaveRun"], false);
}

#[test]
fn a_challenge_and_a_refusal_of_the_request_are_told_as_they_are() {
    let challenge = AuthChallenge {
        forbidden: false,
        www_authenticate: Vec::new(),
        why: "",
    };
    let mismatch = ErrorObject::new(HEADER_MISMATCH, "m");
    for (reply, expected) in [
        (Reply::error(mismatch), "reply 1 -32020"),
        (Reply::Challenge(Arc::new(challenge)), "reply 1 challenge"),
    ] {
        let mut bench = bench();
        bench.feed(loss());
        bench.done.clear();
        bench.feed(Event::Refused(reply));
        bench.did(&["retire", expected, "end"]);
    }
}

#[test]
fn what_is_answered_with_nonsense_is_not_run_again() {
    let mut bench = bench();
    bench.feed(Event::Failed(Loss::Failed {
        message: "m".into(),
        may_have_run: true,
    }));
    bench.did(&["cancel", "retire", "reply 1 lost", "end"]);
}

#[test]
fn a_call_that_is_put_off_lets_its_server_go_and_tells_nobody_an_outcome() {
    let mut bench = bench();
    bench.server(&question(0, "m"));
    bench.waits();
    bench.done.clear();
    bench.feed(Event::PutOff);
    bench.did(&["result 0", "cancel", "retire", "end"]);
    let mut rounds = bench.call.take_rounds();
    let verdict = rounds.judge(Round(1), AnswersDigest([1; 16]));
    assert!(matches!(verdict, Verdict::Fresh), "{verdict:?}");
}

#[test]
fn visits_are_made_before_a_call_that_another_process_parked_runs_anew() {
    let mut parked = bench();
    parked.server(&visits(7, 2));
    for (responses, expected) in [
        (
            r#"{"elicitation":{"action":"accept"},"elicitation_2":{"action":"accept"}}"#,
            "start",
        ),
        (
            r#"{"elicitation":{"action":"accept"},"elicitation_2":{"action":"decline"}}"#,
            "reply 2 done",
        ),
    ] {
        let mut bench = elsewhere(&parked, 1, Anew::Visited { is_declined: false });
        bench.reissues(1, responses);
        assert_eq!(bench.done[0], expected);
    }
}

#[test]
fn roots_are_given_again_whoever_asks_for_them() {
    const ROOTS: &str = r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#;
    let mut bench = bench();
    bench.server(ROOTS);
    bench.waits();
    bench.reissues(1, r#"{"roots":{"roots":[{"uri":"file:///a"}]}}"#);
    let mut bench = elsewhere(&bench, 1, Anew::Lost);
    bench.reissues(1, "{}");
    let stray = Message::parse(ROOTS.as_bytes()).unwrap();
    bench.feed(Event::Server(Origin::Stray, stray));
    bench.did(&["start again", "result 0"]);
}

#[test]
fn a_question_that_was_there_before_the_request_is_not_answered_from_memory() {
    let mut bench = bench();
    bench.server(&question(0, "m"));
    bench.waits();
    bench.reissues(1, &word("Ada"));
    bench.feed(loss());
    bench.done.clear();
    let stray = question(0, "m");
    let stray = Message::parse(stray.as_bytes()).unwrap();
    bench.feed(Event::Server(Origin::Stray, stray));
    bench.did(&[]);
    bench.server(&question(1, "m"));
    bench.did(&["result 1"]);
}

/// One step of a life with losses.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask(usize),
    Wait,
    Answer,
    Lose,
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize).prop_map(Step::Ask),
        3 => Just(Step::Wait),
        3 => Just(Step::Answer),
        1 => Just(Step::Lose),
        1 => Just(Step::Move),
    ]
}

/// What a client of many words says, and what comes of it.
struct Life {
    bench: Bench,
    round: u32,
    /// The words, by the question that each answers.
    said: Vec<String>,
    /// In which order they were given for the first time.
    order: Vec<usize>,
    /// The questions of the present run.
    asked: Vec<String>,
    /// The words that were given in it.
    given: HashSet<usize>,
    runs: u8,
}

impl Life {
    fn takes(&mut self, step: Step) {
        let has_session = self.bench.call.upstream == Upstream::Live;
        match step {
            Step::Ask(which) if has_session => {
                let message = ["one", "two", "three"][which].to_owned();
                self.bench.server(&question(self.asked.len(), &message));
                self.asked.push(message);
            }
            Step::Wait if !self.bench.call.is_parked() => self.bench.waits(),
            Step::Answer if self.bench.call.is_parked() => self.answers(),
            Step::Lose if has_session => self.bench.feed(loss()),
            Step::Move if self.bench.call.is_parked() && self.bench.call.runs() < 3 => {
                self.bench = elsewhere(&self.bench, self.round, Anew::Lost);
            }
            _ => {}
        }
    }

    /// Each question gets a word of its own.
    fn answers(&mut self) {
        let mut responses = serde_json::Map::new();
        if let Some(requests) = self.bench.told["inputRequests"].as_object() {
            for (key, request) in requests {
                let message = request["params"]["message"].as_str().unwrap();
                let content = json!({"a": self.said.len().to_string()});
                self.said.push(message.to_owned());
                let response = json!({"action": "accept", "content": content});
                responses.insert(key.clone(), response);
            }
        }
        let responses = Value::Object(responses).to_string();
        self.bench.reissues(self.round, &responses);
    }

    /// Checks what was done by one step.
    fn is_right(&mut self) {
        for line in std::mem::take(&mut self.bench.done) {
            if line.starts_with("start again") {
                self.asked.clear();
                self.given.clear();
                self.runs += 1;
            }
            if let Some((_, state)) = line.rsplit_once(" as ") {
                self.round = state.parse().unwrap();
            }
        }
        for message in std::mem::take(&mut self.bench.given) {
            let Some(word) = message["result"]["content"]["a"].as_str() else {
                // Nobody answers it any more.
                continue;
            };
            let (word, id): (usize, _) = (word.parse().unwrap(), message["id"].as_u64().unwrap());
            let asked = &self.asked[usize::try_from(id).unwrap()];
            assert_eq!(*asked, self.said[word], "who answers what");
            assert!(self.given.insert(word), "{word} was given twice");
            let is_first = !self.order.contains(&word);
            self.order.extend(is_first.then_some(word));
            let at = |word: &usize| self.order.iter().position(|known| known == word);
            let same = self
                .given
                .iter()
                .filter(|other| self.said[**other] == *asked);
            assert_eq!(
                same.max_by_key(|other| at(other)),
                Some(&word),
                "out of order"
            );
        }
        assert!(self.runs <= 3);
    }
}

proptest! {
    #[test]
    fn an_answer_is_given_to_its_own_question_once_in_each_run_and_in_its_order(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut life = Life {
            bench: bench(),
            round: 0,
            said: Vec::new(),
            order: Vec::new(),
            asked: Vec::new(),
            given: HashSet::new(),
            runs: 0,
        };
        for step in steps {
            life.takes(step);
            life.is_right();
            if life.bench.call.is_ended() {
                break;
            }
            let kept = life.bench.call.to_keep().unwrap();
            let bytes = postcard::to_allocvec(&kept).unwrap().len();
            prop_assert!(bytes <= limits().replay_answers_max + 8, "{} bytes", bytes);
        }
        let bench = &mut life.bench;
        bench.feed(Event::Abandon("the end"));
        for leg in 2..=bench.legs {
            prop_assert_eq!(bench.replies.get(&leg), Some(&1), "leg {}", leg);
        }
    }
}
