//! The fault campaign: seeded schedules of calls, answers, repeats, cuts, deaths and outages against three replicas of
//! the real binary, a real Redis, and a server that keeps count of everything that is done to it.
//!
//! Many runs go on at once, each with replicas, a Redis and a server of its own, so that their waits overlap. A schedule
//! is a pure function of its seed; what comes of it depends on real time as well, so a seed that failed once is best run
//! many times. `draw` makes schedules, `stand` carries faults out, `caller` is a client, `verdict` judges.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a run that cannot go on says so by panicking, and the program reports to a person"
)]

mod caller;
mod draw;
mod journal;
mod options;
mod plan;
mod record;
mod run;
mod server;
mod stand;
mod tally;
mod verdict;

#[path = "../it"]
mod it {
    #[allow(
        dead_code,
        unused_imports,
        reason = "the integration tests use what the campaign does not"
    )]
    pub(crate) mod support;
}
use it::support;

use std::process::ExitCode;

use options::Options;
use tally::Tally;
use tokio::task::JoinSet;

fn main() -> ExitCode {
    let options = match Options::parsed() {
        Ok(Some(options)) => options,
        // Somebody wants to know which tests this program has, in the manner of Rust's own: none, it is one of its own.
        Ok(None) => return ExitCode::SUCCESS,
        Err(code) => return code,
    };
    if options.show {
        for seed in options.seeds() {
            print!("{}", draw::schedule(seed));
        }
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tally = runtime.block_on(campaign(&options));
    print!("{tally}");
    match tally.has_failed() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Runs all schedules, so many at once.
async fn campaign(options: &Options) -> Tally {
    let mut tally = Tally::new();
    let mut runs = JoinSet::new();
    let mut seeds = options.seeds().into_iter();
    loop {
        while runs.len() < options.jobs
            && !tally.is_enough()
            && let Some(seed) = seeds.next()
        {
            runs.spawn(run::run(seed, options.tell));
        }
        let Some(report) = runs.join_next().await else {
            return tally;
        };
        tally.add(report.unwrap());
    }
}
