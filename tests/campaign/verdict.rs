//! What must be true of a run, whatever happened in it.
//!
//! The server's ledger and its book say what was started, asked and answered; the clients' records say what they were
//! told. Where a call did not end in its result, something that the README allows must have been the reason.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Value, json};

use super::plan::Schedule;
use super::record::{Attempt, Ending, Issue, Kind, Outcome};
use super::server::Posed;
use super::stand::{HOLD_TTL, REPLICA};
use crate::support::puppet::{Given, Ledger};

/// What a run left to be judged.
pub(crate) struct Evidence<'a> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) attempts: &'a [Attempt],
    pub(crate) ledger: &'a Ledger,
    pub(crate) posed: &'a [Posed],
    /// The replicas that ended before the run did.
    pub(crate) ended: &'a [String],
    /// What replicas wrote.
    pub(crate) logs: &'a str,
    /// Sessions that are open in the end.
    pub(crate) open_sessions: &'a [String],
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) faults: Vec<String>,
    /// Why calls had no result, and how many.
    pub(crate) excuses: BTreeMap<&'static str, usize>,
}

impl Evidence<'_> {
    pub(crate) fn judge(&self) -> Verdict {
        let mut verdict = Verdict::default();
        self.starts(&mut verdict);
        self.answers(&mut verdict);
        self.sessions(&mut verdict);
        for attempt in self.attempts {
            self.right_call(attempt, &mut verdict);
            self.true_errors(attempt, &mut verdict);
            self.same_outcomes(attempt, &mut verdict);
            self.liveness(attempt, &mut verdict);
        }
        verdict
    }

    /// How often the tool was started for an attempt.
    fn started(&self, tag: &str) -> usize {
        let is_of = |start: &&(String, Value)| start.1["arguments"]["tag"] == tag;
        self.ledger.starts.iter().filter(is_of).count()
    }

    /// No tool is started twice.
    fn starts(&self, verdict: &mut Verdict) {
        for Attempt { tag, .. } in self.attempts {
            let started = self.started(tag);
            if started > 1 {
                verdict.fault(format!("{tag} was started {started} times"));
            }
        }
    }

    /// Each answer is delivered once, to the question that it was given to.
    fn answers(&self, verdict: &mut Verdict) {
        let mut given: HashMap<(&str, String), Vec<&Given>> = HashMap::new();
        for answer in &self.ledger.answers {
            let key = (answer.session.as_str(), answer.id.to_string());
            given.entry(key).or_default().push(answer);
        }
        let mut doubled = 0;
        for ((session, id), answers) in &given {
            let is_it = |posed: &&Posed| posed.session == *session && posed.id == answers[0].id;
            let Some(posed) = self.posed.iter().find(is_it) else {
                verdict.fault(format!("{session}/{id} was answered and never asked"));
                continue;
            };
            for answer in answers {
                self.is_of_its_client(posed, &answer.response, verdict);
            }
            if answers.len() > 1 {
                match self.may_be_doubled() {
                    true => doubled += 1,
                    false => verdict.fault(format!(
                        "{} was answered {} times in {}: {answers:?}",
                        posed.name,
                        answers.len(),
                        posed.tag
                    )),
                }
            }
        }
        if doubled > 0 {
            let why =
                "a question was answered again, because Redis had no note when its replica ended";
            verdict.excuses.insert(why, doubled);
        }
        let complaints = self.ledger.violations.iter();
        // A session whose `initialize` was cut off is closed before anybody could know its revision.
        let fails = self.schedule.cuts() || self.schedule.ends_replicas();
        let may_be = |complaint: &&String| {
            (doubled > 0 && complaint.contains("a second answer"))
                || (self.schedule.cuts() && complaint.ends_with("MCP-Protocol-Version is None"))
                || (self.schedule.cuts() && complaint.contains("cancelled that was never made"))
                // A server does not notice at once that nobody reads.
                || (fails && complaint.ends_with("a second general stream was opened"))
                // The end of a session overtakes what came before it on another connection, and is said again when that breaks.
                || ((self.schedule.rolls() || self.schedule.cuts())
                    && complaint.ends_with("used after it was deleted"))
        };
        let complaints: Vec<_> = complaints.filter(|complaint| !may_be(complaint)).collect();
        if !complaints.is_empty() {
            verdict.fault(format!("the server complains: {complaints:?}"));
        }
    }

    /// What the README says of notes: what was not noted can be answered again, and otherwise, once its replica has ended.
    fn may_be_doubled(&self) -> bool {
        self.schedule.store_fails() && self.schedule.ends_replicas()
    }

    /// An answer that reached a question is one that this call's client gave to it.
    fn is_of_its_client(&self, posed: &Posed, response: &Value, verdict: &mut Verdict) {
        let Some(attempt) = self.attempts.iter().find(|one| one.tag == posed.tag) else {
            return verdict.fault(format!("{} is nobody's call", posed.tag));
        };
        let result = &response["result"];
        let was_given = attempt
            .issues
            .iter()
            .any(|issue| issue.answers[&posed.name] == *result);
        let is_wrong = result["content"] == "x";
        // What the gateway says for a call that is over.
        let is_farewell = *result == json!({"action": "cancel"}) && !attempt.has_result();
        if is_wrong || !(was_given || is_farewell) {
            verdict.fault(format!(
                "{} of {} was answered {response}",
                posed.name, posed.tag
            ));
        }
    }

    /// A session that is open is one of a replica that has ended.
    fn sessions(&self, verdict: &mut Verdict) {
        let (mut openers, mut users, mut opened) = (HashMap::new(), HashMap::new(), 0);
        for record in &self.ledger.records {
            let replica = record.head.value(REPLICA).unwrap_or_default();
            if record.method() == "initialize" {
                opened += 1;
                openers.insert(format!("session-{opened}"), replica);
            } else if let Some(session) = record.head.value("mcp-session-id") {
                users.insert(session.to_owned(), replica);
            }
        }
        for session in self.open_sessions {
            // Of one whose `initialize` was cut off nobody knows the name.
            let Some(user) = users.get(session).copied() else {
                if !self.schedule.cuts()
                    && !self.ended.iter().any(|ended| ended == openers[session])
                {
                    verdict.fault(format!("{session} was opened and never used"));
                }
                continue;
            };
            let has_ended = |replica: &str| self.ended.iter().any(|ended| ended == replica);
            let could_not =
                self.schedule.cuts() && self.logs.contains("could not be closed at the server");
            // One that calls shared is left to its server when they are taken over.
            let is_left = !self.schedule.server.has_general_stream && has_ended(openers[session]);
            if !has_ended(user) && !could_not && !is_left {
                verdict.fault(format!("{session} of replica {user} is left open"));
            }
        }
    }

    /// A client is shown the questions of its own call, and its own result.
    fn right_call(&self, attempt: &Attempt, verdict: &mut Verdict) {
        for issue in &attempt.issues {
            match &issue.outcome {
                Outcome::Asked { messages, .. } => {
                    let is_other = |(name, message): &(&String, &String)| {
                        **message != format!("{} {name}", attempt.tag)
                    };
                    if let Some((_, message)) = messages.iter().find(is_other) {
                        verdict.fault(format!("{} is asked {message:?}", attempt.tag));
                    }
                }
                Outcome::Result(text) => self.right_result(attempt, text, verdict),
                _ => {}
            }
        }
    }

    fn right_result(&self, attempt: &Attempt, text: &str, verdict: &mut Verdict) {
        let result: Value = serde_json::from_str(text).unwrap_or_default();
        let said = result["said"].as_array().cloned().unwrap_or_default();
        let asked = self.schedule.calls.get(attempt.call()).map_or(0, |call| {
            call.asks
                .iter()
                .map(|ask| ask.form.questions())
                .sum::<usize>()
        });
        let is_right = result["tag"] == attempt.tag.as_str()
            && said.len() == asked
            && said.iter().enumerate().all(|(at, said)| {
                let name = format!("q{at}");
                attempt
                    .issues
                    .iter()
                    .any(|issue| says(&issue.answers[&name], &name) == *said)
            });
        if !is_right {
            verdict.fault(format!("{} has the result {text}", attempt.tag));
        }
    }

    /// What an error says is so.
    fn true_errors(&self, attempt: &Attempt, verdict: &mut Verdict) {
        let has_started = self.started(&attempt.tag) > 0;
        let tag = &attempt.tag;
        for issue in &attempt.issues {
            let is_true = match &issue.outcome {
                Outcome::Lost { may_have_run, .. } => *may_have_run || !has_started,
                Outcome::Refused { reason, is_safe } => match reason.as_str() {
                    "lost" => match is_safe {
                        Some(true) => attempt.is_repeatable || !has_started,
                        // A leg may be stretched before it is known what the tool says.
                        Some(false) => !attempt.is_repeatable || attempt.was_stretched_first(),
                        None => false,
                    },
                    "answered" => attempt.may_be_answered(issue),
                    "expired" => issue.ended >= HOLD_TTL - Duration::from_secs(1),
                    _ => false,
                },
                Outcome::Odd(_) => false,
                Outcome::Unreached(_) | Outcome::Broken | Outcome::Nobody
                    if issue.kind != Kind::First =>
                {
                    false
                }
                _ => true,
            };
            if !is_true {
                let outcome = &issue.outcome;
                verdict.fault(format!(
                    "{tag} {:?} of round {} is told {outcome:?}, and that is not so",
                    issue.kind, issue.round
                ));
            }
        }
    }

    /// The same re-issue is told the same.
    fn same_outcomes(&self, attempt: &Attempt, verdict: &mut Verdict) {
        for issue in &attempt.issues {
            let of_same = |other: &&Issue| {
                other.kind != Kind::Late
                    && other.round == issue.round
                    && other.answers == issue.answers
            };
            for other in attempt.issues.iter().filter(of_same) {
                let is_same = other.outcome.is_same(&issue.outcome);
                let is_over = issue.kind == Kind::Late && issue.outcome.is_answered();
                let is_forgotten =
                    self.may_be_forgotten() && other.outcome.is_lost() != issue.outcome.is_lost();
                if !is_same && !is_over && !is_forgotten {
                    verdict.fault(format!(
                        "{}: {:?} of round {} is told {:?}, and {:?} is told {:?}",
                        attempt.tag,
                        other.kind,
                        issue.round,
                        other.outcome,
                        issue.kind,
                        issue.outcome
                    ));
                }
            }
        }
    }

    /// What the README says of outcomes: others learn of them after the client, and through Redis.
    fn may_be_forgotten(&self) -> bool {
        let schedule = self.schedule;
        schedule.kills() || (schedule.ends_replicas() && schedule.store_fails())
    }

    /// A call without a result has an excuse.
    fn liveness(&self, attempt: &Attempt, verdict: &mut Verdict) {
        if attempt.has_result() {
            return;
        }
        match self.excuse(attempt) {
            Some(why) => *verdict.excuses.entry(why).or_default() += 1,
            None => verdict.fault(format!(
                "{} has no result and no excuse: {:?} {:?}",
                attempt.tag, attempt.ending, attempt.last
            )),
        }
    }

    fn excuse(&self, attempt: &Attempt) -> Option<&'static str> {
        let Schedule { server, .. } = self.schedule;
        let (schedule, has_started) = (self.schedule, self.started(&attempt.tag) > 0);
        let fails = schedule.ends_replicas() || schedule.cuts();
        match &attempt.last {
            _ if attempt.ending == Ending::Left => Some("its client left"),
            _ if attempt.ending == Ending::Unheard => (schedule.kills()
                || (schedule.rolls() && !has_started))
                .then_some("its replica was killed before a first reply"),
            Outcome::Lost {
                may_have_run: false,
                ..
            } if fails => Some("it did not run, and is made again"),
            Outcome::Lost { .. } | Outcome::Refused { .. } if fails && !server.resumes => {
                Some("the server cannot resume it")
            }
            Outcome::Lost { .. } if schedule.rolls() => Some("it ran when its replica had to end"),
            // Its state was sealed before the server had said anything that can be read again.
            Outcome::Refused { .. } if schedule.ends_replicas() && attempt.was_stretched_last() => {
                Some("its replica ended before its server had begun to answer")
            }
            Outcome::Lost { .. } if schedule.cuts() => Some("its request or an answer was cut off"),
            Outcome::Lost { .. } if schedule.kills() && self.is_noted_alone(attempt) => {
                Some("its replica was killed between a note and the answer")
            }
            last if last.is_lost() && self.may_be_forgotten() && self.got_somewhere(attempt) => {
                Some("its replica ended before another could learn how the call went")
            }
            _ => None,
        }
    }

    /// An answer of the client did not reach the server.
    fn is_noted_alone(&self, attempt: &Attempt) -> bool {
        self.posed
            .iter()
            .filter(|posed| posed.tag == attempt.tag)
            .any(|posed| {
                let was_given = attempt
                    .issues
                    .iter()
                    .any(|issue| issue.answers.get(&posed.name).is_some());
                was_given && !self.has_answer(posed)
            })
    }

    /// An answer of the client reached the server, or one of its legs heard how the call went.
    fn got_somewhere(&self, attempt: &Attempt) -> bool {
        let mut posed = self.posed.iter().filter(|posed| posed.tag == attempt.tag);
        attempt.got_somewhere() || posed.any(|posed| self.has_answer(posed))
    }

    fn has_answer(&self, posed: &Posed) -> bool {
        self.ledger.answers.iter().any(|given| {
            given.session == posed.session
                && given.id == posed.id
                && given.response["result"]["action"] != "cancel"
        })
    }
}

impl Verdict {
    pub(crate) fn fault(&mut self, what: String) {
        self.faults.push(what);
    }
}

impl Attempt {
    /// Which call of the schedule it is.
    fn call(&self) -> usize {
        let number = self.tag.trim_start_matches('c').split('.').next();
        number
            .and_then(|number| number.parse().ok())
            .unwrap_or_default()
    }

    /// Whether its last round was answered for another leg.
    fn got_somewhere(&self) -> bool {
        let last = self.issues.iter().map(|issue| issue.round).max();
        self.issues
            .iter()
            .any(|issue| Some(issue.round) == last && !issue.outcome.is_lost())
    }

    /// Whether its first state came without questions.
    fn was_stretched_first(&self) -> bool {
        let first = self.issues.iter().find(|issue| issue.kind == Kind::First);
        first.is_some_and(|first| matches!(&first.outcome, Outcome::Asked { messages, .. } if messages.is_empty()))
    }

    /// Whether its latest state came without questions.
    fn was_stretched_last(&self) -> bool {
        let asked = self.issues.iter().filter_map(|issue| match &issue.outcome {
            Outcome::Asked { messages, .. } => Some((issue.round, messages.is_empty())),
            _ => None,
        });
        asked.max().is_some_and(|(_, is_stretched)| is_stretched)
    }

    /// Whether this issue's round was answered otherwise, or the call has gone on.
    fn may_be_answered(&self, issue: &Issue) -> bool {
        self.issues.iter().any(|other| {
            (other.round == issue.round && other.answers != issue.answers)
                || other.round > issue.round
        })
    }
}

/// What the tool makes of an answer.
fn says(answer: &Value, name: &str) -> Value {
    match answer["action"].as_str() {
        Some("accept") => json!(answer["content"][name].to_string()),
        Some(action) => json!(action),
        None => Value::Null,
    }
}
