//! `holdfast stdio`: the gateway for one client that started it, on standard input and output.
//!
//! Standard output carries messages alone; logs go to standard error.

use std::io::ErrorKind;
use std::sync::Arc;

use anyhow::anyhow;
use clap::Args;

use super::gateway::{BackendArgs, Core, Signals, identity};
use super::{Failure, LogFormat};
use holdfast::config::{Anonymous, Settings};
use holdfast::hold::shared::memory::Memory;
use holdfast::listen::{self, ClientGone, StdioTerms};

/// Options of `holdfast stdio`.
#[derive(Debug, Args)]
pub(super) struct StdioArgs {
    #[command(flatten)]
    backend: BackendArgs,
    /// How log lines are written to standard error
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
}

pub(super) fn run(args: &StdioArgs) -> Result<(), Failure> {
    args.log_format.install();
    let mut settings = args.backend.settings(None, None)?;
    if settings.cluster.is_some() {
        return Err(Failure::Usage(anyhow!(
            "`cluster`: is for `holdfast serve`; this is a process of one client's own, and no other reaches its calls"
        )));
    }
    // Whatever a file says of strangers: here the only caller is whoever started this.
    settings.anonymous = Anonymous::Shared;
    let runtime = super::scheduler()?;
    let served = runtime.block_on(serve(settings));
    // A read of standard input cannot be called back; the end must not wait for it.
    runtime.shutdown_background();
    served.map_err(Failure::Runtime)
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let backend = settings.backend.name.clone();
    let upstream = settings.backend.legacy.clone();
    let (body_bytes_max, client_write_timeout) = (
        settings.limits.body_bytes_max,
        settings.timers.client_write_timeout,
    );
    let core = Core::start(settings, identity()?, Arc::new(Memory::default()));
    let terms = StdioTerms {
        body_bytes_max,
        client_write_timeout,
        connections: core.connections.clone(),
        stop: core.stop.clone(),
        cut: core.cut.clone(),
    };
    tracing::info!(backend, %upstream, "serving one client on standard input and output");
    let gateway = core.gateway.clone();
    let client = listen::serve_stdio(gateway, terms, tokio::io::stdin(), tokio::io::stdout());
    let mut client = std::pin::pin!(client);
    let mut gone = tokio::select! {
        gone = client.as_mut() => Some(gone),
        () = signals.next() => None,
    };
    // A client that has gone waits for nothing; one that is still there is served until calls have ended.
    let hurry = async {
        if gone.is_none() {
            tokio::select! {
                left = client.as_mut() => gone = Some(left),
                why = signals.second() => return why,
            }
        }
        "the client has gone"
    };
    core.shutdown(hurry).await;
    match gone {
        None | Some(ClientGone::Input) => Ok(()),
        Some(ClientGone::Output(error)) => match error.kind() {
            ErrorKind::BrokenPipe => Ok(()),
            ErrorKind::TimedOut => Err(anyhow!("the client does not read")),
            _ => Err(anyhow!(error).context("standard output cannot be written")),
        },
    }
}
