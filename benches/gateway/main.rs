//! What the gateway costs: plain calls against the direct way and against nginx, held calls, both over each other
//! transport against the direct way, memory of holds.
//!
//! Everything runs on this machine at once: a fast legacy server (this program again, as a child), the gateway,
//! nginx if it is installed, and the load. Variants are measured in turns (A B C, A B C, …) and medians are
//! printed, so that a noisy neighbour meets all of them. The steady figure is CPU per call; throughput and
//! latency share the cores with the load itself and mean something as ratios only. Nothing here passes or fails.
//!
//! `cargo bench` runs all; `cargo bench -- plain held transports holds` some. Sizes: `HOLDFAST_BENCH_ROUNDS` (5),
//! `HOLDFAST_BENCH_SLICE_MS` (1500), `HOLDFAST_BENCH_CONNECTIONS` (16), `HOLDFAST_BENCH_HOLDS` (10000).
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_macros,
    reason = "a bench that cannot go on stops, and its figures are its output"
)]

use std::time::Duration;

mod channel;
mod conversation;
mod holds;
mod load;
mod peers;
mod process;
mod tables;
mod transports;
mod upstream;
mod wire;

/// How much is measured.
#[derive(Clone, Debug)]
struct Sizes {
    rounds: usize,
    slice: Duration,
    connections: usize,
    holds: usize,
}

impl Sizes {
    fn from_environment() -> Self {
        let number = |name: &str, default: usize| {
            let given = std::env::var(format!("HOLDFAST_BENCH_{name}")).ok();
            given.map_or(default, |text| text.parse().unwrap())
        };
        Self {
            rounds: number("ROUNDS", 5),
            slice: Duration::from_millis(number("SLICE_MS", 1500) as u64),
            connections: number("CONNECTIONS", 16),
            holds: number("HOLDS", 10_000),
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let open_files = process::raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    match arguments.first().map(String::as_str) {
        Some(upstream::ARGUMENT) => return runtime.block_on(upstream::serve()),
        Some(channel::server::SOCKETS) => {
            return runtime.block_on(channel::server::serve_sockets());
        }
        Some(channel::server::STDIO) => return channel::server::serve_stdio(),
        _ => {}
    }
    let wanted = |part: &str| {
        let mut named = arguments
            .iter()
            .filter(|argument| !argument.starts_with('-'))
            .peekable();
        named.peek().is_none() || named.any(|name| name == part)
    };
    let sizes = Sizes::from_environment();
    println!(
        "{sizes:?}, {} CPUs, {open_files} open files",
        process::cpus()
    );
    runtime.block_on(async {
        let tables = tables::Wanted {
            plain: wanted("plain"),
            held: wanted("held"),
        };
        if tables.plain || tables.held {
            tables::calls(&sizes, tables).await;
        }
        if wanted("transports") {
            transports::calls(&sizes).await;
        }
        if wanted("holds") {
            holds::memory(&sizes, open_files).await;
        }
    });
}
