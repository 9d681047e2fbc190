//! A configured server as its calls see it: its sessions, its holds, its clocks and bounds.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Clock;
use super::registry::Registry;
use super::seal::SealingKeys;
use crate::call::CallLimits;
use crate::observe::Metrics;
use crate::session::Pool;
use crate::translate::result::CacheHints;

/// One backend.
#[derive(Debug)]
pub struct Backend {
    /// Its name in paths, logs and sealed states.
    pub name: String,
    /// Its sessions.
    pub pool: Arc<Pool>,
    /// Its held calls and remembered outcomes.
    pub registry: Registry,
    /// What seals its states.
    pub keys: SealingKeys,
    /// The clock that moments are counted by.
    pub clock: Clock,
    /// The clocks and bounds of its calls.
    pub limits: Arc<CallLimits>,
    /// Caching hints of its results.
    pub hints: CacheHints,
    /// How long the outcome of a re-issued call is remembered.
    pub outcome_ttl: Duration,
    /// Where its background work runs.
    pub tasks: TaskTracker,
    /// Cancelled when everything has to end now.
    pub stop: CancellationToken,
    /// What it counts.
    pub metrics: Arc<Metrics>,
}
