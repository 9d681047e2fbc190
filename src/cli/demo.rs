//! `holdfast demo`: a built-in legacy server with tools that ask, the gateway in front of it, and a guided walk.
//!
//! Nothing else has to be installed. After the walk it keeps serving, so that a person can repeat it with `curl`
//! or `holdfast call`; with `--once` it exits.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args;

use super::gateway::Signals;
use super::serve::{self, Running};
use super::{Failure, LogFormat};
use holdfast::config::{self, Settings};

mod server;
mod session;
mod tools;
mod walk;

/// How long held calls are waited for at the end: whoever ends a demo is not waiting for anybody's money.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(1);

/// Options of `holdfast demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Exit after the walk: 0 when every step went as it should
    #[arg(long)]
    once: bool,
    /// Where the gateway listens [default: 127.0.0.1:8080, with --once a free port]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// How log lines are written to standard error
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
}

pub(super) fn run(args: &DemoArgs) -> Result<(), Failure> {
    args.log_format
        .install_from("warn,holdfast::cli::gateway=error");
    super::runtime()?
        .block_on(demonstrate(args))
        .map_err(Failure::Runtime)
}

async fn demonstrate(args: &DemoArgs) -> anyhow::Result<()> {
    let server = server::Server::start().await?;
    let gateway = gateway(args, &server.url()).await?;
    let endpoint = format!("http://{}/mcp", gateway.address);
    let walked = walk::walk(&server.url(), &endpoint).await;
    let mut signals = Signals::new()?;
    if walked.is_ok() && !args.once {
        walk::invite(&endpoint)?;
        signals.next().await;
    }
    gateway.shutdown(signals.second()).await;
    server.shutdown().await;
    walked
}

/// The gateway, as `holdfast serve --upstream URL` would start it.
async fn gateway(args: &DemoArgs, upstream: &str) -> anyhow::Result<Running> {
    let listen = match args.listen {
        Some(listen) => listen,
        None if args.once => (Ipv4Addr::LOCALHOST, 0).into(),
        None => config::default_listen(),
    };
    let mut settings = Settings::for_upstream(upstream, Some(listen), None)?;
    settings.timers.shutdown_deadline = SHUTDOWN_DEADLINE;
    serve::start(settings).await
}
