//! The gateway that `serve` and `stdio` put behind their fronts: built from settings, ended in good order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Failure;
use holdfast::cache::commons::{Bounds, Commons};
use holdfast::cache::naming::Naming;
use holdfast::cache::results::Memory;
use holdfast::cache::tools::{self, Tools};
use holdfast::config::{self, Legacy, Settings};
use holdfast::hold::Clock;
use holdfast::hold::backend::Backend;
use holdfast::hold::registry::Registry;
use holdfast::hold::seal::{ReplicaId, random_bytes};
use holdfast::hold::shared::Shared;
use holdfast::observe::{Counter, Metrics};
use holdfast::route::Gateway;
use holdfast::session::{Changes, Pool, PoolSettings};
use holdfast::subscription::{SubscriptionLimits, Subscriptions};
use holdfast::upstream::{
    HttpTarget, ProcessLimits, Stdio, Target, TransportLimits, WebSocket, stop_max,
};

/// How long the pause between two looks for idle sessions and old outcomes may be. Arbitrary: short beside the default
/// clocks, which count in minutes, and a look is cheap.
const SWEEP_MAX: Duration = Duration::from_secs(1);

/// How long clients may take to hear how their calls ended, once nothing else is waited for.
/// Arbitrary: they are written already, and only a client that does not read needs longer.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// How long the last farewells to servers may take after the deadline, besides what the processes of a server that is a
/// program have to end. With the default deadline of 25 s and the second above it stays below the 30 s that Kubernetes gives.
const FAREWELL_MAX: Duration = Duration::from_secs(3);

/// What stands behind the front, whichever that is.
#[derive(Debug, Args)]
pub(crate) struct BackendArgs {
    /// The server behind, as http(s)://HOST:PORT/PATH or ws(s)://HOST:PORT/PATH
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "command"])]
    upstream: Option<String>,
    /// Serve what this file configures
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    config: Option<PathBuf>,
    /// The server behind, a program that speaks stdio, with its arguments
    #[arg(last = true, value_names = ["COMMAND", "ARGS"])]
    command: Vec<String>,
}

impl BackendArgs {
    /// The settings that they choose; addresses given here go before those of a file.
    pub(crate) fn settings(
        &self,
        listen: Option<SocketAddr>,
        admin: Option<SocketAddr>,
    ) -> Result<Settings, Failure> {
        let settings = match (&self.config, &self.upstream) {
            (Some(file), _) => config::load(file, listen, admin),
            (None, Some(upstream)) => Settings::for_upstream(upstream, listen, admin),
            (None, None) if self.command.is_empty() => {
                // clap would name `--upstream` alone.
                return Err(Failure::Usage(anyhow!(
                    "wants a server: --upstream URL, --config FILE, or -- COMMAND ARGS…"
                )));
            }
            (None, None) => Settings::for_command(self.command.clone(), listen, admin),
        };
        settings.map_err(|error| Failure::Usage(error.into()))
    }
}

/// SIGTERM and SIGINT, as often as they come.
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    /// The next signal. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// The next signal, as a reason to hurry. Cancel-safe.
    pub(crate) async fn second(&mut self) -> &'static str {
        self.next().await;
        "a second signal"
    }
}

/// Who this process is to others, and in the states that it seals.
///
/// # Errors
/// When the operating system gives no randomness.
pub(crate) fn identity() -> anyhow::Result<ReplicaId> {
    random_bytes().map(ReplicaId).context("no identity")
}

/// What serves behind a front.
#[derive(Debug)]
pub(crate) struct Core {
    /// Where the front brings its requests.
    pub(crate) gateway: Arc<Gateway>,
    /// Where the front's connections run: the end waits until they have said their last words.
    pub(crate) connections: TaskTracker,
    /// Cancelled when no more is taken from clients; what is being said to them is said to its end.
    pub(crate) stop: CancellationToken,
    /// Cancelled when connections have to end as they are.
    pub(crate) cut: CancellationToken,
    /// Background work. It ends with `stop`.
    pub(crate) tasks: TaskTracker,
    backend: Arc<Backend>,
    deadline: Duration,
    farewell_max: Duration,
}

impl Core {
    /// Builds a gateway and starts what it does in the background.
    /// `replica` is who it is, `shared` what it knows together with other processes.
    pub(crate) fn start(settings: Settings, replica: ReplicaId, shared: Arc<dyn Shared>) -> Self {
        let deadline = settings.timers.shutdown_deadline;
        let farewell_max = match settings.backend.legacy {
            Legacy::Program(_) => FAREWELL_MAX + stop_max(settings.timers.stop_grace),
            Legacy::Http(_) | Legacy::WebSocket(_) => FAREWELL_MAX,
        };
        let (principal, anonymous) = (settings.principal.clone(), settings.anonymous);
        let limits = SubscriptionLimits {
            subscriptions_max: settings.limits.subscriptions_max,
            // One half at most: calls need some too.
            sessions_max: (settings.sessions_max() / 2).max(1),
            uris_max: settings.limits.subscription_uris_max,
            subscribe_timeout: settings.timers.subscribe_timeout,
        };
        let sweep_every = settings
            .timers
            .session_idle
            .min(settings.timers.outcome_ttl)
            / 2;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let backend = Arc::new(backend(settings, (replica, shared), &tasks, &stop));
        let subscriptions = Arc::new(Subscriptions::new(Arc::clone(&backend), limits));
        let gateway = Gateway::new(Arc::clone(&backend), subscriptions, principal, anonymous);
        tasks.spawn(sweep(
            Arc::clone(&backend),
            sweep_every.clamp(Duration::from_millis(20), SWEEP_MAX),
        ));
        Self {
            gateway: Arc::new(gateway),
            connections: TaskTracker::new(),
            stop,
            cut: CancellationToken::new(),
            tasks,
            backend,
            deadline,
            farewell_max,
        }
    }

    /// The server that stands behind.
    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// Ends the gateway: new calls are refused, running and held ones may finish until the deadline or until
    /// `hurry` says why they may not, then they are left to another process or cancelled; responses are sent to their end; all sessions are
    /// closed.
    pub(crate) async fn shutdown(self, hurry: impl Future<Output = &'static str>) {
        let (calls, connections) = (&self.backend.calls, &self.connections);
        self.gateway.drain();
        let mut time_is_up = std::pin::pin!(async {
            tokio::select! {
                () = tokio::time::sleep(self.deadline) => "the deadline",
                why = hurry => why,
            }
        });
        calls.close();
        if !calls.is_empty() {
            let (running, deadline) = (calls.len(), self.deadline);
            tracing::info!(
                running,
                ?deadline,
                "waiting for calls to end; a second signal ends the wait"
            );
        }
        let mut open = 0;
        let is_late = tokio::select! {
            biased;
            () = calls.wait() => false,
            why = time_is_up.as_mut() => {
                open = calls.len() as u64;
                tracing::warn!(why, open, "calls have no more time");
                true
            }
        };
        self.stop.cancel();
        connections.close();
        let last_words = async {
            if !is_late {
                time_is_up.await;
            }
            tokio::time::sleep(LAST_WORDS_MAX).await;
        };
        tokio::select! {
            biased;
            () = connections.wait() => {}
            () = last_words => tracing::warn!("responses are cut short"),
        }
        self.cut.cancel();
        // Calls end first, so that their sessions are closed with the others.
        let farewell = async {
            calls.wait().await;
            if is_late {
                let left = self.backend.metrics.left.get();
                let cancelled = open.saturating_sub(left);
                tracing::warn!(
                    left,
                    cancelled,
                    "calls were left to other processes, or cancelled"
                );
            }
            self.backend.pool.close_all();
            self.backend.tasks.close();
            self.backend.tasks.wait().await;
        };
        if tokio::time::timeout(self.farewell_max, farewell)
            .await
            .is_err()
        {
            tracing::warn!("some sessions could not be closed in time");
        }
    }
}

/// The id of the first request to a server: each process has its own million or more. Requests of several processes may
/// come on one session; and some servers keep the events of all sessions by the ids of requests alone, and would resume
/// one call with what belongs to another. All are integers that a double can tell apart.
fn first_id(replica: ReplicaId) -> u64 {
    let [a, b, c, d, ..] = replica.0;
    (u64::from(u32::from_be_bytes([a, b, c, d])) << 20) + 1
}

/// The server behind.
fn target(settings: &Settings, tasks: &TaskTracker) -> Target {
    let (timers, limits) = (&settings.timers, &settings.limits);
    let transport = TransportLimits {
        connect_timeout: timers.connect_timeout,
        send_timeout: timers.send_timeout,
        first_byte_timeout: timers.first_byte_timeout,
        resume_max: timers.resume_max,
        ping_interval: timers.ping_interval,
        upstream_idle: timers.upstream_idle,
        upstream_streams_max: limits.upstream_streams_max,
        message_bytes_max: limits.message_bytes_max,
        body_bytes_max: limits.body_bytes_max,
    };
    let access = Arc::clone(&settings.backend.access);
    match settings.backend.legacy.clone() {
        Legacy::Http(uri) => Target::Http(HttpTarget::new(uri, transport, access, tasks.clone())),
        Legacy::WebSocket(uri) => {
            Target::WebSocket(WebSocket::new(uri, transport, access, tasks.clone()))
        }
        Legacy::Program(program) => {
            let process = ProcessLimits {
                message_bytes_max: limits.message_bytes_max,
                send_timeout: timers.send_timeout,
                stop_grace: timers.stop_grace,
            };
            let server = Stdio::new(&settings.backend.name, program, process, tasks.clone());
            Target::Stdio(Arc::new(server))
        }
    }
}

fn backend(
    settings: Settings,
    (replica, shared): (ReplicaId, Arc<dyn Shared>),
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Backend {
    let (limits, metrics) = (settings.call_limits(), Metrics::new());
    let timers = &settings.timers;
    let pool_settings = PoolSettings {
        sessions_max: settings.sessions_max(),
        session_idle: timers.session_idle,
        initialize_timeout: timers.initialize_timeout,
        get_stream_wait: timers.get_stream_wait,
        session_wait: timers.session_wait,
        stray_question_max: timers.stray_question_max,
        first_id: first_id(replica),
    };
    let pool = Pool::new(
        target(&settings, tasks),
        pool_settings,
        tasks.clone(),
        Arc::clone(&metrics),
    );
    let changes = Arc::clone(pool.changes());
    let commons = commons(
        &settings,
        &shared,
        &changes,
        (tasks, metrics.learned.clone()),
    );
    if let Some(commons) = commons.clone() {
        tasks.spawn(commons.tell(stop.clone()));
    }
    Backend {
        name: settings.backend.name,
        memory: Memory::new(
            settings.backend.hints,
            settings.backend.lists,
            settings.limits.cache_bytes_max,
            (Arc::clone(&changes), commons.clone()),
        ),
        tools: Tools::new(changes, commons),
        pool: Arc::new(pool),
        registry: Registry::new(settings.limits.holds_max, settings.limits.outcome_bytes_max),
        keys: settings.keys,
        clock: Clock::start(),
        limits,
        replays: settings.backend.replays,
        hints: settings.backend.hints,
        outcome_ttl: timers.outcome_ttl,
        calls: TaskTracker::new(),
        tasks: tasks.clone(),
        stop: stop.clone(),
        metrics,
        replica,
        shared,
    }
}

/// What replicas have in common of what the server says.
fn commons(
    settings: &Settings,
    shared: &Arc<dyn Shared>,
    changes: &Arc<Changes>,
    (tasks, found): (&TaskTracker, Counter),
) -> Option<Arc<Commons>> {
    let backend = &settings.backend;
    let naming = Naming::new(&settings.keys, &backend.name, backend.origin)?;
    let bounds = Bounds {
        ttl_max: Duration::from_millis(backend.hints.ttl_ms).max(tools::SHARED_FOR),
        bytes_max: settings.limits.cache_bytes_max,
    };
    let (shared, changes) = (Arc::clone(shared), Arc::clone(changes));
    let commons = Commons::new(shared, naming, changes, bounds, (tasks.clone(), found));
    commons.map(Arc::new)
}

async fn sweep(backend: Arc<Backend>, every: Duration) {
    let mut ticks = tokio::time::interval(every);
    loop {
        tokio::select! {
            () = backend.stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        backend.pool.sweep();
        backend.registry.sweep(backend.clock.now());
    }
}
