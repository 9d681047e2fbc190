//! What happened in a run and when, for whoever has to understand a failure.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// Lines in the order they happened.
#[derive(Debug)]
pub(crate) struct Journal {
    begun: Instant,
    lines: Mutex<Vec<(Duration, String)>>,
}

impl Journal {
    /// One that begins now.
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            lines: Mutex::default(),
        }
    }

    /// How long the run lasts by now.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn note(&self, what: impl Into<String>) {
        let now = self.now();
        self.lines.lock().unwrap().push((now, what.into()));
    }
}

impl fmt::Display for Journal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, what) in &*self.lines.lock().unwrap() {
            writeln!(formatter, "  {:>8.1} ms  {what}", at.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}
