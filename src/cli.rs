//! The command line: one file per command, exit codes, log set-up.
//!
//! It decides nothing about the protocol. Exit codes: 0 clean, 1 failure at run time, 2 wrong use or
//! wrong configuration (clap itself exits with 2), each with one clear line on standard error.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod keygen;

/// What every command ends with when it does not end well.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
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
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a fresh sealing key for `keys` in the configuration.
    Keygen,
}

/// Runs the chosen command to its end and says how the process exits.
pub fn run(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        Command::Keygen => keygen::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Runtime(error)) => {
            eprintln!("holdfast: {error:#}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(error)) => {
            eprintln!("holdfast: {error:#}");
            ExitCode::from(2)
        }
    }
}
