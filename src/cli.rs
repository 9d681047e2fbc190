//! The command line: one file per command, exit codes, log set-up.
//!
//! It decides nothing about the protocol. Exit codes: 0 clean, 1 failure at run time, 2 wrong use or
//! wrong configuration (clap itself exits with 2), each with one clear line on standard error.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

mod call;
mod client;
mod demo;
pub(crate) mod gateway;
mod keygen;
pub(crate) mod serve;
mod stdio;
mod terminal;

/// What every command ends with when it does not end well.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Something failed while running: exit code 1.
    #[error(transparent)]
    Runtime(anyhow::Error),
    /// The command line or the configuration is wrong: exit code 2.
    #[error(transparent)]
    Usage(anyhow::Error),
}

/// A migration gateway for the Model Context Protocol.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve modern clients in front of a legacy server.
    Serve(serve::ServeArgs),
    /// Serve one modern client on standard input and output in front of a legacy server.
    Stdio(stdio::StdioArgs),
    /// Watch it work: a built-in legacy server, the gateway in front of it, a guided walk.
    Demo(demo::DemoArgs),
    /// Call a tool as a modern client and answer what it asks in the terminal.
    Call(call::CallArgs),
    /// Say whether a configuration can be served.
    CheckConfig(serve::CheckConfigArgs),
    /// Print a fresh sealing key for `keys` in the configuration.
    Keygen,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// Logs go to standard error from now on, filtered by `RUST_LOG`, by default from `info` on.
    fn install(self) {
        self.install_from("info");
    }

    /// The same with another default filter.
    fn install_from(self, default: &str) {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(std::io::stderr().is_terminal())
            // Or it would panic where standard error is closed or full.
            .log_internal_errors(false)
            .with_writer(std::io::stderr);
        // A second installation, as by a test, changes nothing.
        let _ = match self {
            Self::Text => lines.try_init(),
            Self::Json => lines.json().try_init(),
        };
    }
}

/// Says a line on standard error. Whoever has closed it does not want to know, and keeps nobody from being served.
fn tell(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A scheduler on this thread alone, for what has threads of its own.
fn scheduler() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime does not start")
        .map_err(Failure::Runtime)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime does not start")
        .map_err(Failure::Runtime)
}

/// Runs the chosen command to its end and says how the process exits.
pub(crate) fn run(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Stdio(args) => stdio::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Call(args) => call::run(&args),
        Command::CheckConfig(args) => serve::check_config(&args),
        Command::Keygen => keygen::run(),
    };
    let (error, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Runtime(error)) => (error, 1),
        Err(Failure::Usage(error)) => (error, 2),
    };
    // Some errors quote a server.
    tell(format_args!(
        "holdfast: {}",
        terminal::plain(&format!("{error:#}"))
    ));
    ExitCode::from(code)
}
