//! The sum of all runs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::run::Report;

/// After so many failures nobody reads more.
const FAILURES_MAX: usize = 5;

/// How often it is said how far the campaign is.
const SAID_EVERY: usize = 100;

/// What came of all runs so far.
#[derive(Debug)]
pub(crate) struct Tally {
    begun: Instant,
    runs: usize,
    calm: usize,
    results: usize,
    legs: usize,
    again: usize,
    forwarded: i64,
    taken_over: i64,
    excuses: BTreeMap<&'static str, usize>,
    longest: (Duration, u64),
    lasted: Duration,
    failed: Vec<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            runs: 0,
            calm: 0,
            results: 0,
            legs: 0,
            again: 0,
            forwarded: 0,
            taken_over: 0,
            excuses: BTreeMap::new(),
            longest: (Duration::ZERO, 0),
            lasted: Duration::ZERO,
            failed: Vec::new(),
        }
    }

    /// Takes a report in; a failure is printed at once.
    pub(crate) fn add(&mut self, report: Report) {
        self.runs += 1;
        self.calm += usize::from(report.is_calm);
        self.results += report.results;
        self.legs += report.legs;
        self.again += report.again;
        self.forwarded += report.counted.forwarded;
        self.taken_over += report.counted.taken_over;
        self.lasted += report.lasted;
        self.longest = self.longest.max((report.lasted, report.seed));
        for (why, count) in report.excuses {
            *self.excuses.entry(why).or_default() += count;
        }
        if report.has_failed {
            self.failed.push(report.seed);
            println!("seed {} failed", report.seed);
        }
        print!("{}", report.told);
        if self.runs.is_multiple_of(SAID_EVERY) {
            println!("{} runs in {:.0?}", self.runs, self.begun.elapsed());
        }
    }

    /// Whether no more runs should begin.
    pub(crate) fn is_enough(&self) -> bool {
        self.failed.len() >= FAILURES_MAX
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.begun.elapsed();
        let runs = u32::try_from(self.runs.max(1)).unwrap_or(u32::MAX);
        writeln!(
            formatter,
            "{} runs, {} of them without any fault but clients', in {took:.1?}",
            self.runs, self.calm
        )?;
        let (longest, seed) = self.longest;
        writeln!(
            formatter,
            "a run lasted {:.1?}, at most {longest:.1?} (seed {seed})",
            self.lasted / runs
        )?;
        writeln!(
            formatter,
            "{} calls ended in their results, over {} legs, of which some were sent again, {} times in all",
            self.results, self.legs, self.again
        )?;
        writeln!(
            formatter,
            "replicas that lived to the end sent {} requests on and took {} calls over",
            self.forwarded, self.taken_over
        )?;
        for (why, count) in &self.excuses {
            writeln!(formatter, "{count:>7}  {why}")?;
        }
        match &self.failed[..] {
            [] => writeln!(formatter, "no fault was found"),
            seeds => writeln!(formatter, "FAILED: seeds {seeds:?}"),
        }
    }
}
