//! One run of one schedule, from its seed to its report.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::caller;
use super::draw;
use super::plan::Schedule;
use super::record::{Attempt, Outcome};
use super::stand::{Counted, REPLICA, Stand};
use super::verdict::{Evidence, Verdict};

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) is_calm: bool,
    pub(crate) lasted: Duration,
    pub(crate) results: usize,
    pub(crate) legs: usize,
    /// How often legs were sent again.
    pub(crate) again: usize,
    pub(crate) excuses: BTreeMap<&'static str, usize>,
    pub(crate) counted: Counted,
    pub(crate) has_failed: bool,
    /// Faults, with all that helps to understand them.
    pub(crate) told: String,
}

/// Runs the schedule of a seed.
pub(crate) async fn run(seed: u64, tell: bool) -> Report {
    let schedule = draw::schedule(seed);
    let mut tasks = JoinSet::new();
    let given = schedule.clone();
    tasks.spawn(async move { played(&given, tell).await });
    match tasks.join_next().await {
        Some(Ok(report)) => report,
        other => Report {
            seed,
            is_calm: schedule.is_calm(),
            lasted: Duration::ZERO,
            results: 0,
            legs: 0,
            again: 0,
            excuses: BTreeMap::new(),
            counted: Counted::default(),
            has_failed: true,
            told: format!("the run itself broke off: {other:?}\n{schedule}"),
        },
    }
}

async fn played(schedule: &Schedule, tell: bool) -> Report {
    let stand = Stand::up(schedule).await;
    let (attempts, broken) = acted(schedule, &stand).await;
    let mut verdict = rested(schedule, &stand, &attempts).await;
    verdict.faults.extend(broken);
    let issues = attempts.iter().flat_map(|attempt| &attempt.issues);
    let is_result = |attempt: &&Attempt| matches!(attempt.last, Outcome::Result(_));
    Report {
        seed: schedule.seed,
        is_calm: schedule.is_calm(),
        lasted: stand.journal.now(),
        results: attempts.iter().filter(is_result).count(),
        legs: issues.clone().count(),
        again: issues.map(|issue| issue.sends - 1).sum(),
        excuses: std::mem::take(&mut verdict.excuses),
        counted: verdict.counted,
        has_failed: !verdict.faults.is_empty(),
        told: match tell || !verdict.faults.is_empty() {
            true => told(schedule, &stand, &verdict.faults).await,
            false => String::new(),
        },
    }
}

/// Clients call while faults happen.
async fn acted(schedule: &Schedule, stand: &Arc<Stand>) -> (Vec<Attempt>, Vec<String>) {
    let mut calls = JoinSet::new();
    for (number, plan) in schedule.calls.iter().enumerate() {
        calls.spawn(caller::play(Arc::clone(stand), number, plan.clone()));
    }
    let begun = Instant::now();
    let faults = async {
        tokio::join!(
            stand.processes(&schedule.processes, begun),
            stand.store(&schedule.store, begun),
            stand.lines(&schedule.lines, begun),
        )
    };
    let called = async {
        let (mut attempts, mut broken) = (Vec::new(), Vec::new());
        while let Some(call) = calls.join_next().await {
            match call {
                Ok(call) => attempts.extend(call),
                Err(error) => broken.push(format!("a client broke off: {error}")),
            }
        }
        (attempts, broken)
    };
    tokio::join!(called, faults).0
}

/// Everything comes to rest and is judged.
async fn rested(schedule: &Schedule, stand: &Stand, attempts: &[Attempt]) -> Judged {
    let mut faults = Vec::new();
    faults.extend(stand.rests().await.err());
    let ended = stand.ended();
    let endless = stand.endless_keys().await;
    if !endless.is_empty() {
        faults.push(format!("keys in Redis have no end: {endless}"));
    }
    let counted = stand.counted().await;
    faults.extend(stand.down().await);
    let open: Vec<_> = stand
        .puppet
        .sessions()
        .iter()
        .map(|session| session.id.clone())
        .collect();
    let logs = stand.logs().await;
    let posed = stand.book.lock().unwrap().clone();
    let ledger = stand.puppet.ledger();
    let evidence = Evidence {
        schedule,
        attempts,
        ledger: &ledger,
        posed: &posed,
        ended: &ended,
        logs: &logs,
        open_sessions: &open,
    };
    let Verdict {
        faults: found,
        excuses,
    } = evidence.judge();
    faults.extend(found);
    Judged {
        faults,
        excuses,
        counted,
    }
}

struct Judged {
    faults: Vec<String>,
    excuses: BTreeMap<&'static str, usize>,
    counted: Counted,
}

/// All that helps to understand a failure.
async fn told(schedule: &Schedule, stand: &Stand, faults: &[String]) -> String {
    let mut told = format!("{schedule}\n{}\n", stand.journal);
    for record in &stand.puppet.ledger().records {
        let value = |name| record.head.value(name).unwrap_or("-");
        let (replica, session) = (value(REPLICA), value("mcp-session-id"));
        let (verb, after, text) = (&record.verb, value("last-event-id"), &record.text);
        let _ = writeln!(told, "  {replica} {session} {verb} {after} {text}");
    }
    told += &stand.logs().await;
    for fault in faults {
        let _ = writeln!(told, "FAULT: {fault}");
    }
    let seed = schedule.seed;
    let _ = writeln!(
        told,
        "again: cargo test --test campaign -- --seed {seed} --schedules 1 --times 20"
    );
    told
}
