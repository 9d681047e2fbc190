//! What the process counts, and how errors are written down. Nothing here holds up a request.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

pub use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tracing::Span;

use crate::wire::trace::TraceParent;

/// A gauge of things that exist; each is counted while its guard lives.
#[derive(Debug, Clone, Default)]
pub struct Count(Gauge<i64, AtomicI64>);

/// Counts one thing until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard(Gauge<i64, AtomicI64>);

impl Count {
    /// Counts one more.
    #[must_use]
    pub fn count(&self) -> GaugeGuard {
        self.0.inc();
        GaugeGuard(self.0.clone())
    }

    /// How many there are.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.0.get()
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The span of a client's request. One that belongs to a trace is in every log line about it; of others it is worth
/// its while only to who looks for details.
#[must_use]
pub fn request_span(method: &'static str, trace: Option<TraceParent<'_>>) -> Span {
    match trace {
        Some(TraceParent {
            trace_id,
            parent_id,
        }) => tracing::info_span!("request", method, trace_id, parent_id),
        None => tracing::debug_span!("request", method),
    }
}

/// An error and its causes on one line, for a log line or a terminal.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// What the process counts. All gauges go back to zero when nothing is going on; counters only grow.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Sessions with servers, opening ones included.
    pub sessions: Count,
    /// Calls that wait for a re-issue or run on behalf of one.
    pub holds: Count,
    /// Calls from their first leg to their end.
    pub calls: Count,
    /// Connections of clients.
    pub connections: Count,
    /// Connections of other replicas.
    pub replica_connections: Count,
    /// Subscriptions of clients.
    pub subscriptions: Count,
    /// Requests of clients that were not admitted.
    pub refused: Counter,
    /// Calls that lost their server.
    pub lost: Counter,
    /// Held calls that were taken over from a process that is gone.
    pub taken_over: Counter,
    /// Runs of lost calls after the first.
    pub replayed: Counter,
    /// Messages of servers that were not understood.
    pub misheard: Counter,
    /// Notifications that a client was too slow for.
    pub notes_dropped: Counter,
    /// Requests that were answered from memory.
    pub recalled: Counter,
    /// What other replicas had read of servers, and was found instead of being asked for.
    pub learned: Counter,
    /// Requests that were sent on to the replica that holds their call.
    pub forwarded: Counter,
    /// Connections that were not let in at the listener for replicas.
    pub strangers: Counter,
    /// Calls that were left to another process at the end of this one. For the log alone: who would read it any more?
    pub left: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("holdfast");
        let mut gauge = |name: &str, help: &str| {
            let count = Count::default();
            registry.register(name, help, count.0.clone());
            count
        };
        let sessions = gauge("sessions", "Sessions with servers");
        let asked = "Calls that were asked something and have not ended";
        let holds = gauge("holds", asked);
        let calls = gauge("calls", "Calls in progress, held ones included");
        let connections = gauge("connections", "Connections of clients");
        let replica_connections = gauge("replica_connections", "Connections of other replicas");
        let subscriptions = gauge("subscriptions", "Subscriptions of clients");
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        Self {
            sessions,
            holds,
            calls,
            connections,
            replica_connections,
            subscriptions,
            refused: counter("refused", "Requests that were not admitted"),
            lost: counter("lost", "Calls that lost their server"),
            taken_over: counter(
                "taken_over",
                "Held calls taken over from a process that is gone",
            ),
            replayed: counter("replayed", "Runs of lost calls after the first"),
            misheard: counter("misheard", "Messages of servers that were not understood"),
            notes_dropped: counter(
                "notes_dropped",
                "Notifications that a client was too slow for",
            ),
            recalled: counter("recalled", "Requests that were answered from memory"),
            learned: counter(
                "learned",
                "Lists and discovery that were found with other replicas",
            ),
            forwarded: counter(
                "forwarded",
                "Requests that were sent on to the replica that holds their call",
            ),
            strangers: counter(
                "strangers",
                "Connections that were not let in at the listener for replicas",
            ),
            left: Counter::default(),
            registry,
        }
    }
}

impl Metrics {
    /// A fresh set, shared by everything that counts.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// All metrics in the OpenMetrics text format.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}
