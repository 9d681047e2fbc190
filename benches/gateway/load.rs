//! The load: so many clients at once, each making one call after the other, for a slice of time.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Sizes;
use super::conversation::{Era, Talker, Tool};
use super::peers::Peer;

/// One variant of a run.
#[derive(Debug)]
pub(crate) struct Variant<'a> {
    pub(crate) name: &'static str,
    pub(crate) era: Era,
    pub(crate) tool: Tool,
    /// Whom the load talks to.
    pub(crate) addr: SocketAddr,
    /// What stands between the load and the upstream, if anything does.
    pub(crate) between: Option<&'a Peer>,
    pub(crate) upstream: &'a Peer,
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

/// Held calls at once for each plain call at once.
const HELD_AT_ONCE: usize = 24;

/// Measures one slice.
pub(crate) async fn measure(variant: &Variant<'_>, sizes: &Sizes) -> Sample {
    // A held call spends most of its time in the pause in which questions are gathered. Only as many at once as
    // keep the machine busy say what one costs: an idle machine pays for falling asleep and waking up.
    let is_held = matches!((variant.era, variant.tool), (Era::Modern, Tool::Asking));
    let connections = sizes.connections * if is_held { HELD_AT_ONCE } else { 1 };
    let mut talkers = Vec::new();
    for _ in 0..connections {
        talkers.push(Talker::new(variant.era, variant.tool, variant.addr).await);
    }
    // Sessions and connections are warm before it counts.
    let (talkers, _) = spend(talkers, variant.tool, sizes.slice / 10).await;
    let cpu = || {
        let between = variant
            .between
            .map(|peer| peer.process.cpu())
            .unwrap_or_default();
        (between, variant.upstream.process.cpu())
    };
    let (before, start) = (cpu(), Instant::now());
    let (_, mut latencies) = spend(talkers, variant.tool, sizes.slice).await;
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
                match tool {
                    Tool::Asking => talker.asked().await,
                    Tool::Json | Tool::Events => talker.plain().await,
                }
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
