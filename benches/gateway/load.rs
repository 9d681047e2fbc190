//! The load: so many clients at once, each making one call after the other, for a slice of time.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::channel::Transport;
use super::channel::client::Client;
use super::conversation::{self, Era, Tool};
use super::process::Process;

/// One variant of a run.
#[derive(Debug)]
pub(crate) struct Variant<'a> {
    pub(crate) name: &'static str,
    pub(crate) way: Way,
    pub(crate) tool: Tool,
    /// How many clients there are at once.
    pub(crate) clients: usize,
    /// What stands between the load and the upstream, if anything does.
    pub(crate) between: Option<&'a Process>,
    /// Nothing where each session has a process of its own.
    pub(crate) upstream: Option<&'a Process>,
}

/// How a variant's clients talk to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// In this era, over Streamable HTTP.
    Http(Era, SocketAddr),
    /// In the legacy era, over another transport.
    Channel(Transport),
}

/// One client that makes one call after the other.
#[derive(Debug)]
enum Talker {
    Http(Box<conversation::Talker>),
    Channel(Box<Client>),
}

impl Talker {
    async fn new(way: Way, tool: Tool) -> Self {
        match way {
            Way::Http(era, addr) => {
                Self::Http(Box::new(conversation::Talker::new(era, tool, addr).await))
            }
            Way::Channel(transport) => Self::Channel(Box::new(Client::new(transport, tool).await)),
        }
    }

    async fn call(&mut self, tool: Tool) {
        match (self, tool) {
            (Self::Http(talker), Tool::Asking) => talker.asked().await,
            (Self::Http(talker), Tool::Json | Tool::Events) => talker.plain().await,
            (Self::Channel(client), Tool::Asking) => client.asked().await,
            (Self::Channel(client), Tool::Json | Tool::Events) => client.plain().await,
        }
    }
}

/// What one slice showed.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// CPU of what stands between, for each call.
    pub(crate) cpu: Duration,
    /// CPU of the upstream, for each call.
    pub(crate) upstream_cpu: Duration,
}

/// Measures one slice.
pub(crate) async fn measure(variant: &Variant<'_>, slice: Duration) -> Sample {
    let mut talkers = Vec::new();
    for _ in 0..variant.clients {
        talkers.push(Talker::new(variant.way, variant.tool).await);
    }
    // Sessions and connections are warm before it counts.
    let (talkers, _) = spend(talkers, variant.tool, slice / 10).await;
    let cpu = || {
        let of = |process: Option<&Process>| process.map(Process::cpu).unwrap_or_default();
        (of(variant.between), of(variant.upstream))
    };
    let (before, start) = (cpu(), Instant::now());
    let (_, mut latencies) = spend(talkers, variant.tool, slice).await;
    let (after, elapsed) = (cpu(), start.elapsed());
    latencies.sort_unstable();
    let calls = u32::try_from(latencies.len()).unwrap();
    Sample {
        per_second: f64::from(calls) / elapsed.as_secs_f64(),
        p50: latencies[latencies.len() / 2],
        p99: latencies[latencies.len() * 99 / 100],
        cpu: (after.0 - before.0) / calls,
        upstream_cpu: (after.1 - before.1) / calls,
    }
}

/// Makes calls for a while; the latency of each.
async fn spend(talkers: Vec<Talker>, tool: Tool, span: Duration) -> (Vec<Talker>, Vec<Duration>) {
    let end = Instant::now() + span;
    let mut running = JoinSet::new();
    for mut talker in talkers {
        running.spawn(async move {
            let mut latencies = Vec::new();
            loop {
                let start = Instant::now();
                talker.call(tool).await;
                latencies.push(start.elapsed());
                if Instant::now() >= end {
                    return (talker, latencies);
                }
            }
        });
    }
    let (mut talkers, mut latencies) = (Vec::new(), Vec::new());
    for (talker, own) in running.join_all().await {
        talkers.push(talker);
        latencies.extend(own);
    }
    (talkers, latencies)
}
