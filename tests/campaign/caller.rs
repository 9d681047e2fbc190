//! The client of one call: it does what the schedule says, by the rules of the README. What it is told can be sent again
//! it sends again, the same; after any other error it has done with the call, unless that says that nothing has run.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::plan::{Beginning, CallPlan, Ms, Other, SLOTS, Turn};
use super::record::{Attempt, Ending, Issue, Kind, Outcome};
use super::server;
use super::stand::Stand;
use crate::support::accept;
use crate::support::client::{Client, OpenLeg, Request};

/// How often a call is made that did not run.
const ATTEMPTS_MAX: usize = 12;

/// How long the same is sent again. Longer than any fault lasts with what follows from it.
const PERSISTENCE: Duration = Duration::from_secs(12);

/// The pause before.
const AGAIN_AFTER: Duration = Duration::from_millis(80);

/// More rounds than any call has.
const ROUNDS_MAX: usize = 40;

/// Plays one call of the schedule; what came of each time it was made.
pub(crate) async fn play(stand: Arc<Stand>, number: usize, plan: CallPlan) -> Vec<Attempt> {
    sleep(plan.at.span()).await;
    let mut attempts = Vec::new();
    for attempt in 0..ATTEMPTS_MAX {
        let caller = Caller::new(&stand, &plan, format!("c{number}.{attempt}"));
        let attempt = caller.calls().await;
        let has_not_run = matches!(
            attempt.last,
            Outcome::Nobody
                | Outcome::Unreached(_)
                | Outcome::Lost {
                    may_have_run: false,
                    ..
                }
        );
        attempts.push(attempt);
        if !has_not_run {
            break;
        }
        sleep(AGAIN_AFTER).await;
    }
    attempts
}

/// How far a client is with one of its turns.
#[derive(Clone, Copy, Default)]
struct Stage {
    has_begun: bool,
    is_played: bool,
}

/// A re-issue as a client can send it wherever it wants.
#[derive(Clone)]
struct Reissue {
    request: Request,
    state: String,
    round: usize,
    answers: Value,
}

struct Caller {
    stand: Arc<Stand>,
    plan: CallPlan,
    tag: String,
    request: Request,
    stages: Vec<Stage>,
    issues: Vec<Issue>,
    late: JoinSet<Issue>,
}

impl Caller {
    fn new(stand: &Arc<Stand>, plan: &CallPlan, tag: String) -> Self {
        let (tool, arguments) = server::arguments(plan, &tag);
        // Where it calls is said when it is sent.
        let client = client(plan, ([127, 0, 0, 1], 0).into());
        let mut request = client.tool(tool, arguments);
        if plan.wants_progress {
            request = request.meta("progressToken", json!(tag));
        }
        Self {
            stand: Arc::clone(stand),
            plan: plan.clone(),
            stages: vec![Stage::default(); plan.asks.len()],
            tag,
            request,
            issues: Vec::new(),
            late: JoinSet::new(),
        }
    }

    /// Makes the call and goes on with it to its end.
    async fn calls(mut self) -> Attempt {
        let (ending, last) = self.goes_on().await;
        while let Some(late) = self.late.join_next().await {
            self.issues.push(late.unwrap());
        }
        self.stand
            .journal
            .note(format!("{} ends {ending:?}: {last}", self.tag));
        Attempt {
            tag: self.tag,
            is_repeatable: self.plan.is_repeatable,
            issues: self.issues,
            ending,
            last,
        }
    }

    async fn goes_on(&mut self) -> (Ending, Outcome) {
        let mut outcome = self.first_leg().await;
        if self.plan.leaves_at_once.is_some() {
            return (Ending::Left, outcome);
        }
        if outcome == Outcome::Broken {
            return (Ending::Unheard, outcome);
        }
        for round in 1..ROUNDS_MAX {
            let Outcome::Asked { state, messages } = &outcome else {
                break;
            };
            let (state, names) = (state.clone(), messages.keys().cloned().collect::<Vec<_>>());
            let Some(next) = self.answers(round, &state, &names).await else {
                return (Ending::Left, outcome);
            };
            outcome = next;
        }
        (Ending::Told, outcome)
    }

    async fn first_leg(&mut self) -> Outcome {
        self.stand.journal.note(format!("{} is called", self.tag));
        let (mut slot, until) = (self.plan.to, Instant::now() + PERSISTENCE);
        let mut sends = 0;
        let outcome = loop {
            sends += 1;
            let sent = sent(&self.stand, &self.plan, &self.request, slot);
            let outcome = match self.plan.leaves_at_once {
                None => sent.await,
                Some(after) => timeout(after.span(), sent).await.unwrap_or(Outcome::Broken),
            };
            self.stand
                .journal
                .note(format!("{} at {slot}: {outcome}", self.tag));
            if outcome != Outcome::Nobody || Instant::now() >= until {
                break outcome;
            }
            slot = (slot + 1) % SLOTS;
            sleep(AGAIN_AFTER).await;
        };
        self.issues.push(Issue {
            kind: Kind::First,
            round: 0,
            answers: json!({}),
            sends,
            ended: self.stand.journal.now(),
            outcome: outcome.clone(),
        });
        outcome
    }

    /// Answers a round, in the way that the schedule wants; nothing when nobody is there to answer it.
    async fn answers(&mut self, round: usize, state: &str, names: &[String]) -> Option<Outcome> {
        let turn = names.iter().find_map(|name| self.turn(name));
        let Some((at, turn)) = turn else {
            let reissue = self.reissue(round, state, json!({}));
            return Some(self.settles(&reissue, round % SLOTS).await);
        };
        sleep(turn.thinks.span()).await;
        if turn.abandons {
            return None;
        }
        let stage = &mut self.stages[at];
        if !std::mem::replace(&mut stage.has_begun, true) {
            let first = match turn.begins {
                Beginning::Wrongly => Some(all(names, |_| accept(json!("x")))),
                Beginning::InPart => Some(all(&names[..1], |name| self.answer(name, &turn))),
                Beginning::Rightly => None,
            };
            if let Some(first) = first {
                let reissue = self.reissue(round, state, first);
                return Some(self.settles(&reissue, turn.to).await);
            }
        }
        let is_first = !std::mem::replace(&mut self.stages[at].is_played, true);
        let answers = all(names, |name| self.answer(name, &turn));
        let reissue = self.reissue(round, state, answers);
        if !is_first {
            return Some(self.settles(&reissue, turn.to).await);
        }
        Some(self.plays(&turn, &reissue, names).await)
    }

    /// Sends a re-issue together with all that is to come with it.
    async fn plays(&mut self, turn: &Turn, reissue: &Reissue, names: &[String]) -> Outcome {
        if let Some(after) = turn.leaves {
            self.leaves(reissue, turn.to, after).await;
        }
        let rival = turn.rival.map(|other| {
            let says = |name: &str| accept(json!({name: format!("{} {name} rival", self.tag)}));
            let rival = self.reissue(reissue.round, &reissue.state, all(names, says));
            self.other(Kind::Rival, rival, other)
        });
        let twin = turn
            .twin
            .map(|other| self.other(Kind::Twin, reissue.clone(), other));
        let main = Other {
            after: Ms(0),
            to: turn.to,
        };
        let main = self.other(Kind::Main, reissue.clone(), main);
        let (main, twin, rival) =
            tokio::join!(main, OptionFuture::from(twin), OptionFuture::from(rival));
        if let Some(other) = turn.late {
            let late = self.other(Kind::Late, reissue.clone(), other);
            self.late.spawn(late);
        }
        let mut outcome = main.outcome.clone();
        if let Some(rival) = &rival
            && outcome.is_answered()
        {
            outcome = rival.outcome.clone();
        }
        self.issues
            .extend([Some(main), twin, rival].into_iter().flatten());
        outcome
    }

    /// Goes away in the leg.
    async fn leaves(&self, reissue: &Reissue, to: usize, after: Ms) {
        let sent = sent(&self.stand, &self.plan, &reissue.request, to);
        let _ = timeout(after.span(), sent).await;
        self.stand.journal.note(format!(
            "{} leaves round {} at {to}",
            self.tag, reissue.round
        ));
    }

    /// The question's turn, and its place.
    fn turn(&self, name: &str) -> Option<(usize, Turn)> {
        let number: usize = name.strip_prefix('q')?.parse().ok()?;
        let mut after = 0;
        self.plan.asks.iter().enumerate().find_map(|(at, ask)| {
            after += ask.form.questions();
            (number < after).then(|| (at, ask.turn.clone()))
        })
    }

    fn answer(&self, name: &str, turn: &Turn) -> Value {
        match turn.declines {
            true => json!({"action": "decline"}),
            false => accept(json!({name: format!("{} {name} main", self.tag)})),
        }
    }

    fn reissue(&self, round: usize, state: &str, answers: Value) -> Reissue {
        Reissue {
            request: self
                .request
                .clone()
                .param("requestState", json!(state))
                .param("inputResponses", answers.clone()),
            state: state.to_owned(),
            round,
            answers,
        }
    }

    /// Sends a re-issue until it is settled.
    async fn settles(&mut self, reissue: &Reissue, to: usize) -> Outcome {
        let main = Other { after: Ms(0), to };
        let issue = self.other(Kind::Main, reissue.clone(), main).await;
        let outcome = issue.outcome.clone();
        self.issues.push(issue);
        outcome
    }

    /// One of several re-issues.
    fn other(
        &self,
        kind: Kind,
        reissue: Reissue,
        other: Other,
    ) -> impl Future<Output = Issue> + Send + use<> {
        let (stand, plan, tag) = (Arc::clone(&self.stand), self.plan.clone(), self.tag.clone());
        async move {
            sleep(other.after.span()).await;
            let until = Instant::now() + PERSISTENCE;
            let (mut slot, mut sends) = (other.to, 0);
            let outcome = loop {
                sends += 1;
                let outcome = sent(&stand, &plan, &reissue.request, slot).await;
                stand.journal.note(format!(
                    "{tag} {kind:?} of round {} at {slot}: {outcome}",
                    reissue.round
                ));
                match outcome {
                    Outcome::Nobody | Outcome::Broken => slot = (slot + 1) % SLOTS,
                    Outcome::Unreached(_) => {}
                    outcome => break outcome,
                }
                if Instant::now() >= until {
                    break outcome;
                }
                sleep(AGAIN_AFTER).await;
            };
            Issue {
                kind,
                round: reissue.round,
                answers: reissue.answers,
                sends,
                ended: stand.journal.now(),
                outcome,
            }
        }
    }
}

/// Who makes a call, and where. Of the server's questions it knows those for forms.
fn client(plan: &CallPlan, addr: SocketAddr) -> Client {
    Client::at(addr)
        .named(&format!("client-{}", plan.by))
        .able(json!({"elicitation": {"form": {}}}))
}

/// An answer for each question.
fn all(names: &[String], answer: impl Fn(&str) -> Value) -> Value {
    let answers: Map<_, _> = names
        .iter()
        .map(|name| (name.clone(), answer(name)))
        .collect();
    Value::Object(answers)
}

/// What the replica of a slot says to a request.
async fn sent(stand: &Stand, plan: &CallPlan, request: &Request, slot: usize) -> Outcome {
    let Some(addr) = stand.addr(slot) else {
        return Outcome::Nobody;
    };
    let request = request.clone().by(&client(plan, addr));
    let leg = match request.try_open().await {
        Ok(leg) => leg,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Outcome::Nobody,
        Err(_) => return Outcome::Broken,
    };
    match OpenLeg::try_finish(leg).await {
        Ok(reply) => Outcome::of(&reply),
        Err(_) => Outcome::Broken,
    }
}
