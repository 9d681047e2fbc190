//! `holdfast serve`: the gateway in front of one server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Failure, LogFormat};
use holdfast::cache::results::Memory;
use holdfast::cache::tools::Tools;
use holdfast::config::{self, Settings};
use holdfast::hold::Clock;
use holdfast::hold::backend::Backend;
use holdfast::hold::registry::Registry;
use holdfast::listen::{self, Front, Terms, Workers};
use holdfast::observe::{Count, Metrics};
use holdfast::route::Gateway;
use holdfast::session::{Pool, PoolSettings};
use holdfast::subscription::{SubscriptionLimits, Subscriptions};
use holdfast::upstream::streamable_http::TransportLimits;

/// How often idle sessions and old outcomes are looked for, at most.
const SWEEP_MAX: Duration = Duration::from_secs(1);

/// How long clients may take to hear that their calls were cancelled.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// How long the last farewells to servers may take after the deadline.
const FAREWELL_MAX: Duration = Duration::from_secs(3);

/// Options of `holdfast serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The server behind, as http://HOST:PORT/PATH
    #[arg(
        long,
        value_name = "URL",
        required_unless_present = "config",
        conflicts_with = "config"
    )]
    upstream: Option<String>,
    /// Serve what this file configures
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:8080, or as configured]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where /healthz, /readyz and /metrics are served [default: nowhere, or as configured]
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// How log lines are written to standard error
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
}

pub(super) fn run(args: &ServeArgs) -> Result<(), Failure> {
    args.log_format.install();
    let settings = settings(args).map_err(|error| Failure::Usage(error.into()))?;
    if settings.keys_are_random {
        tracing::warn!(
            "no sealing key is configured: a random one is used, which no other process knows and no restart keeps"
        );
    }
    let (backend, upstream) = (
        settings.backend.name.clone(),
        settings.backend.legacy.clone(),
    );
    super::scheduler()?.block_on(async {
        // Before the ready line: whoever reads it may send a signal at once.
        let mut signals = Signals::new().map_err(Failure::Runtime)?;
        let running = start(settings).await.map_err(Failure::Runtime)?;
        tracing::info!(backend, %upstream, "serving");
        if let Some(admin) = running.admin {
            eprintln!("holdfast admin on http://{admin}");
        }
        eprintln!("holdfast listening on http://{}/mcp", running.address);
        signals.next().await;
        running.shutdown(signals.next()).await;
        Ok(())
    })
}

fn settings(args: &ServeArgs) -> Result<Settings, config::ConfigError> {
    match (&args.config, &args.upstream) {
        (Some(file), _) => config::load(file, args.listen, args.admin),
        (None, upstream) => Settings::for_upstream(
            upstream.as_deref().unwrap_or_default(),
            args.listen,
            args.admin,
        ),
    }
}

/// SIGTERM and SIGINT, as often as they come.
pub(super) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
        })
    }

    /// The next signal. Cancel-safe.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// A gateway that serves.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where clients reach it.
    pub(crate) address: SocketAddr,
    /// Where its admin listener is, if it has one.
    pub(crate) admin: Option<SocketAddr>,
    gateway: Arc<Gateway>,
    backend: Arc<Backend>,
    workers: Arc<Workers>,
    terms: Terms,
    deadline: Duration,
}

/// Starts a gateway; it serves when this returns.
///
/// # Errors
/// When an address is not to be had.
pub(crate) async fn start(settings: Settings) -> anyhow::Result<Running> {
    let bound = |address| async move {
        listen::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))
    };
    let (listener, address) = bound(settings.listen).await?;
    let admin = match settings.admin {
        Some(admin) => Some(bound(admin).await?),
        None => None,
    };
    let (deadline, threads) = (settings.timers.shutdown_deadline, settings.threads);
    let metrics = Metrics::new();
    let terms = Terms {
        connections_max: settings.limits.connections_max,
        client_idle: settings.timers.client_idle,
        client_write_timeout: settings.timers.client_write_timeout,
        count: metrics.connections.clone(),
        connections: TaskTracker::new(),
        stop: CancellationToken::new(),
        cut: CancellationToken::new(),
    };
    let front = Front::terms_of(&settings, address.ip().is_loopback());
    let (principal, anonymous) = (settings.principal.clone(), settings.anonymous);
    let limits = SubscriptionLimits {
        subscriptions_max: settings.limits.subscriptions_max,
        // One half at most: calls need some too.
        sessions_max: (settings.limits.sessions_max / 2).max(1),
        uris_max: settings.limits.subscription_uris_max,
        subscribe_timeout: settings.timers.subscribe_timeout,
    };
    let sweep_every = settings
        .timers
        .session_idle
        .min(settings.timers.outcome_ttl)
        / 2;
    let tasks = TaskTracker::new();
    let backend = Arc::new(backend(settings, metrics, &tasks, &terms.stop));
    let subscriptions = Arc::new(Subscriptions::new(Arc::clone(&backend), limits));
    let gateway = Gateway::new(Arc::clone(&backend), subscriptions, principal, anonymous);
    let gateway = Arc::new(gateway);
    let front = Arc::new(front.before(Arc::clone(&gateway)));
    let workers = Workers::start(threads).context("no threads to serve with")?;
    let workers = Arc::new(workers);
    let serving = listen::serve_clients(listener, terms.clone(), front, Arc::clone(&workers));
    tasks.spawn(serving);
    let admin = admin.map(|(listener, admin)| {
        // Not counted: whoever reads the metrics would find himself in them.
        let terms = Terms {
            count: Count::default(),
            ..terms.clone()
        };
        tasks.spawn(listen::serve_admin(listener, terms, Arc::clone(&gateway)));
        admin
    });
    tasks.spawn(sweep(
        Arc::clone(&backend),
        sweep_every.clamp(Duration::from_millis(20), SWEEP_MAX),
    ));
    Ok(Running {
        address,
        admin,
        gateway,
        backend,
        workers,
        terms,
        deadline,
    })
}

fn backend(
    settings: Settings,
    metrics: Arc<Metrics>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Backend {
    let limits = settings.call_limits();
    let timers = &settings.timers;
    let pool_settings = PoolSettings {
        transport: TransportLimits {
            connect_timeout: timers.connect_timeout,
            send_timeout: timers.send_timeout,
            upstream_idle: timers.upstream_idle,
            message_bytes_max: settings.limits.message_bytes_max,
        },
        sessions_max: settings.limits.sessions_max,
        session_idle: timers.session_idle,
        initialize_timeout: timers.initialize_timeout,
        get_stream_wait: timers.get_stream_wait,
        session_wait: timers.session_wait,
        stray_question_max: timers.stray_question_max,
    };
    let pool = Pool::new(
        settings.backend.legacy,
        pool_settings,
        tasks.clone(),
        Arc::clone(&metrics),
    );
    Backend {
        name: settings.backend.name,
        memory: Memory::new(
            settings.backend.hints,
            settings.backend.lists,
            settings.limits.cache_bytes_max,
            Arc::clone(pool.changes()),
        ),
        tools: Tools::new(Arc::clone(pool.changes())),
        pool: Arc::new(pool),
        registry: Registry::new(settings.limits.holds_max, settings.limits.outcome_bytes_max),
        keys: settings.keys,
        clock: Clock::start(),
        limits,
        hints: settings.backend.hints,
        outcome_ttl: timers.outcome_ttl,
        calls: TaskTracker::new(),
        tasks: tasks.clone(),
        stop: stop.clone(),
        metrics,
    }
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

impl Running {
    /// Ends the gateway: new calls are refused, running and held ones may finish until the deadline or until
    /// `hurry` comes, then they are cancelled; responses are sent to their end; all sessions are closed.
    pub(crate) async fn shutdown(self, hurry: impl Future<Output = ()>) {
        let (calls, connections) = (&self.backend.calls, &self.terms.connections);
        self.gateway.drain();
        let mut time_is_up = std::pin::pin!(async {
            tokio::select! {
                () = tokio::time::sleep(self.deadline) => "the deadline",
                () = hurry => "a second signal",
            }
        });
        calls.close();
        if !calls.is_empty() {
            let (running, deadline) = (calls.len(), self.deadline);
            tracing::info!(
                running,
                ?deadline,
                "waiting for calls to end; a second signal cancels them"
            );
        }
        let is_late = tokio::select! {
            () = calls.wait() => false,
            why = time_is_up.as_mut() => {
                tracing::warn!(why, "calls are cancelled");
                true
            }
        };
        self.backend.stop.cancel();
        connections.close();
        let last_words = async {
            if is_late {
                tokio::time::sleep(LAST_WORDS_MAX).await;
            } else {
                let why = time_is_up.await;
                tracing::warn!(why, "responses are cut short");
            }
        };
        tokio::select! {
            () = connections.wait() => {}
            () = last_words => {}
        }
        self.terms.cut.cancel();
        // Calls end first, so that their sessions are closed with the others.
        let farewell = async {
            calls.wait().await;
            self.backend.pool.close_all();
            self.backend.tasks.close();
            self.backend.tasks.wait().await;
        };
        if tokio::time::timeout(FAREWELL_MAX, farewell).await.is_err() {
            tracing::warn!("some sessions could not be closed in time");
        }
        if let Some(workers) = Arc::into_inner(self.workers) {
            workers.end();
        }
    }
}

/// `holdfast check-config FILE`.
#[derive(Debug, Args)]
pub(crate) struct CheckConfigArgs {
    /// The file to check
    file: PathBuf,
}

pub(super) fn check_config(args: &CheckConfigArgs) -> Result<(), Failure> {
    let settings =
        config::load(&args.file, None, None).map_err(|error| Failure::Usage(error.into()))?;
    let summary = format!(
        "{}: backend {:?} at {}, listening on {}\n",
        args.file.display(),
        settings.backend.name,
        settings.backend.legacy,
        settings.listen
    );
    std::io::Write::write_all(&mut std::io::stdout(), summary.as_bytes())
        .map_err(|error| Failure::Runtime(anyhow!(error).context("standard output is closed")))
}
