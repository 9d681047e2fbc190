//! The `holdfast` binary: parses the command line, runs one command, exits with its code.

use std::process::ExitCode;

use crate::cli::Cli;
use clap::Parser;

mod cli;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::run(Cli::parse())
}
