//! `holdfast serve`: the gateway in front of one server, for clients over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::Args;

use super::gateway::{BackendArgs, Core, Signals};
use super::{Failure, LogFormat, tell};
use holdfast::config::{self, Settings};
use holdfast::listen::{self, Front, Terms, Workers};
use holdfast::observe::Count;

/// Options of `holdfast serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    backend: BackendArgs,
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
    let settings = args.backend.settings(args.listen, args.admin);
    let settings = settings.map_err(|error| Failure::Usage(error.into()))?;
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
            tell(format_args!("holdfast admin on http://{admin}"));
        }
        tell(format_args!(
            "holdfast listening on http://{}/mcp",
            running.address
        ));
        signals.next().await;
        running.shutdown(signals.second()).await;
        Ok(())
    })
}

/// A gateway that serves.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where clients reach it.
    pub(crate) address: SocketAddr,
    /// Where its admin listener is, if it has one.
    pub(crate) admin: Option<SocketAddr>,
    core: Core,
    workers: Arc<Workers>,
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
    let (timers, threads) = (settings.timers.clone(), settings.threads);
    let connections_max = settings.limits.connections_max;
    let front = Front::terms_of(&settings, address.ip().is_loopback());
    let workers = Workers::start(threads).context("no threads to serve with")?;
    let workers = Arc::new(workers);
    let core = Core::start(settings);
    let terms = Terms {
        connections_max,
        client_idle: timers.client_idle,
        client_write_timeout: timers.client_write_timeout,
        count: core.gateway.metrics().connections.clone(),
        connections: core.connections.clone(),
        stop: core.stop.clone(),
        cut: core.cut.clone(),
    };
    let front = Arc::new(front.before(Arc::clone(&core.gateway), None));
    let serving = listen::serve_clients(listener, terms.clone(), front, Arc::clone(&workers));
    core.tasks.spawn(serving);
    let admin = admin.map(|(listener, admin)| {
        // Not counted: whoever reads the metrics would find himself in them.
        let terms = Terms {
            count: Count::default(),
            ..terms
        };
        let serving = listen::serve_admin(listener, terms, Arc::clone(&core.gateway));
        core.tasks.spawn(serving);
        admin
    });
    Ok(Running {
        address,
        admin,
        core,
        workers,
    })
}

impl Running {
    /// Ends the gateway; see [`Core::shutdown`].
    pub(crate) async fn shutdown(self, hurry: impl Future<Output = &'static str>) {
        self.core.shutdown(hurry).await;
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
