//! What the campaign is told to do.

use std::process::ExitCode;

use clap::Parser;

/// Runs seeded schedules of faults against three replicas.
#[derive(Debug, Parser)]
#[command(name = "campaign")]
pub(crate) struct Options {
    /// How many schedules; their seeds follow each other
    #[arg(long, default_value_t = 1000)]
    schedules: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each schedule is run
    #[arg(long, default_value_t = 1)]
    times: usize,
    /// How many runs go on at once
    #[arg(long, default_value_t = 24)]
    pub(crate) jobs: usize,
    /// Print what happened in each run, whatever came of it
    #[arg(long)]
    pub(crate) tell: bool,
    /// Only print the schedules
    #[arg(long)]
    pub(crate) show: bool,
}

impl Options {
    /// The command line; nothing when it asks for a list of tests.
    pub(crate) fn parsed() -> Result<Option<Self>, ExitCode> {
        if std::env::args().any(|argument| argument == "--list") {
            return Ok(None);
        }
        Self::try_parse().map(Some).map_err(|error| {
            let _ = error.print();
            match error.use_stderr() {
                true => ExitCode::from(2),
                false => ExitCode::SUCCESS,
            }
        })
    }

    /// The seed of each run.
    pub(crate) fn seeds(&self) -> Vec<u64> {
        let seeds = self.seed..self.seed.saturating_add(self.schedules);
        seeds
            .flat_map(|seed| std::iter::repeat_n(seed, self.times))
            .collect()
    }
}
