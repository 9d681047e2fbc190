//! stdio: the server is a program that this one starts, each session a process of it.
//!
//! One JSON-RPC message a line, on the process's standard input and output. Lines that are no JSON (banners) are
//! logged and skipped, standard error is logged. A process that ends by itself ends its session: whoever waits is
//! told, and the next one is started after a pause that grows while processes do not last, or no session can be opened
//! with them. One that was good and is not needed any more makes pauses begin anew. It has its input closed; if that
//! does not end it, it is asked (SIGTERM) and then made to (SIGKILL), with everything that it started and that stayed
//! in its process group.
//! Spec: 2025-11-25 basic/transports, "stdio"; basic/lifecycle, "Shutdown".

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::backoff::Backoff;
use super::channel::Channel;
use super::error::UpstreamError;

mod process;
mod program;

pub use process::stop_max;
pub use program::Program;

use process::Process;

/// The first pause before a program that did not last is started again: who waits for it does not notice. Arbitrary.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest one. Well below the minute that clients wait.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The clocks and bounds of processes; see the configuration.
#[derive(Debug, Clone)]
pub struct ProcessLimits {
    /// The longest line of the server.
    pub message_bytes_max: usize,
    /// How long a one-way message may take to be written.
    pub send_timeout: Duration,
    /// How long a process may take to end, first by itself and then when it was asked to; and how long what it started
    /// may after it.
    pub stop_grace: Duration,
}

/// A program that speaks stdio.
#[derive(Debug)]
pub struct Stdio {
    backend: Box<str>,
    program: Program,
    limits: ProcessLimits,
    tasks: TaskTracker,
    restarts: Mutex<Restarts>,
}

/// When the program may be started again.
#[derive(Debug)]
struct Restarts {
    backoff: Backoff,
    /// When a process ended by itself that the pause is for.
    failed_at: Option<Instant>,
    not_before: Option<Instant>,
}

/// There is no such program, no such folder to start it in, or it may not be run.
#[derive(Debug, thiserror::Error)]
#[error("`{command}` cannot be started")]
struct NotStarted {
    command: String,
    #[source]
    source: std::io::Error,
}

/// What has become of a process.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It was good, and is not needed any more.
    Unwanted,
    /// It ended by itself.
    Fell,
    /// However it ended, no session was opened with it.
    Useless,
}

impl Stdio {
    /// The program of a backend. Its processes are looked after on `tasks`.
    #[must_use]
    pub fn new(backend: &str, program: Program, limits: ProcessLimits, tasks: TaskTracker) -> Self {
        Self {
            backend: backend.into(),
            program,
            limits,
            tasks,
            restarts: Mutex::new(Restarts {
                backoff: Backoff::new(PAUSE_FIRST, PAUSE_MAX),
                failed_at: None,
                not_before: None,
            }),
        }
    }

    /// Starts a process for one session.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Channel, UpstreamError> {
        // Others may have failed while this one waited.
        while let Some(moment) = self.pause_end() {
            tokio::time::sleep_until(moment).await;
        }
        let (channel, carriage, parcels) = Channel::queued(self.limits.send_timeout);
        let process = Process::start(self, carriage);
        let process = process.map_err(|source| {
            let command = self.program.command.clone();
            UpstreamError::Connect(NotStarted { command, source }.into())
        })?;
        self.tasks.spawn(process.carry(parcels));
        Ok(channel)
    }

    /// Until when no process may be started, if that is yet to come.
    fn pause_end(&self) -> Option<Instant> {
        self.restarts()
            .not_before
            .filter(|moment| *moment > Instant::now())
    }

    /// Takes in what has become of a process that was started then. It is told at once, not when nothing of it is left:
    /// whoever comes meanwhile has to wait already, and how long it took to end is no merit.
    fn takes_in(&self, fate: Fate, started: Instant) {
        let mut restarts = self.restarts();
        let now = Instant::now();
        let lasted = match fate {
            Fate::Unwanted => return restarts.backoff.begin_anew(),
            Fate::Fell => now - started,
            Fate::Useless => Duration::ZERO,
        };
        // Processes that were running side by side and fall together have failed once.
        if restarts.failed_at.is_some_and(|failed| started <= failed) {
            return;
        }
        restarts.failed_at = Some(now);
        let pause = restarts.backoff.after(lasted);
        restarts.not_before = Some(now + pause);
        drop(restarts);
        let backend = &self.backend;
        tracing::info!(%backend, ?pause, ?fate, "a process of the server did not last: the next one waits");
    }

    fn restarts(&self) -> std::sync::MutexGuard<'_, Restarts> {
        self.restarts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
