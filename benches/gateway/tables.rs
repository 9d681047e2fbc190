//! The tables: medians of each variant and the ratios that count.

use std::time::Duration;

use super::Sizes;
use super::conversation::{Era, Tool};
use super::load::{Sample, Variant, Way, measure};
use super::peers::{self, Peer};

/// Which tables are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) plain: bool,
    pub(crate) held: bool,
}

/// Plain calls and held calls, in turns.
pub(crate) async fn calls(sizes: &Sizes, wanted: Wanted) {
    let upstream = peers::upstream();
    let gateway = peers::gateway(&upstream);
    let nginx = peers::nginx(&upstream);
    if nginx.is_none() {
        println!("nginx is not installed: no comparison with it");
    }
    let variants = variants(sizes, &upstream, &gateway, nginx.as_ref(), wanted);
    let medians = medians(sizes, &variants).await;
    ratios(&medians);
    println!(
        "gateway after it: {:.1} MiB resident, {} open files",
        gateway.process.resident() as f64 / f64::from(1 << 20),
        gateway.process.open_files(),
    );
}

/// Measures the variants in turns; prints and returns the medians.
pub(crate) async fn medians(sizes: &Sizes, variants: &[Variant<'_>]) -> Vec<Row> {
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); variants.len()];
    for round in 0..sizes.rounds {
        // Every other round runs backwards: nobody always follows the same neighbour.
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            samples[at].push(measure(&variants[at], sizes.slice).await);
        }
    }
    let medians: Vec<Row> = variants
        .iter()
        .zip(&samples)
        .map(|(variant, samples)| Row::of(variant.name, samples))
        .collect();
    println!(
        "\n{:<20}{:>10}{:>11}{:>11}{:>13}{:>18}",
        "medians", "calls/s", "p50 µs", "p99 µs", "CPU µs/call", "upstream CPU µs"
    );
    for row in &medians {
        row.print();
    }
    println!();
    medians
}

/// Held calls at once for each plain call at once. A held call spends most of its time in the pause in which questions
/// are gathered. Only as many at once as keep the machine busy say what one costs: an idle machine pays for falling
/// asleep and waking up.
const HELD_AT_ONCE: usize = 24;

fn variants<'a>(
    sizes: &Sizes,
    upstream: &'a Peer,
    gateway: &'a Peer,
    nginx: Option<&'a Peer>,
    wanted: Wanted,
) -> Vec<Variant<'a>> {
    let mut variants = Vec::new();
    // Held calls are compared with plain ones: these run in any case.
    let mut tools = vec![
        (
            Tool::Json,
            ["json direct", "json nginx", "json holdfast"],
            wanted.plain,
        ),
        (
            Tool::Events,
            ["sse direct", "sse nginx", "sse holdfast"],
            wanted.plain,
        ),
    ];
    if wanted.held {
        tools.push((
            Tool::Asking,
            ["question direct", "question nginx", "held holdfast"],
            true,
        ));
    }
    for (tool, [direct, through_nginx, through_holdfast], compared) in tools {
        let variant = |name, era, between: Option<&'a Peer>| {
            let is_held = matches!((era, tool), (Era::Modern, Tool::Asking));
            Variant {
                name,
                way: Way::Http(era, between.unwrap_or(upstream).addr),
                tool,
                clients: sizes.connections * if is_held { HELD_AT_ONCE } else { 1 },
                between: between.map(|peer| &peer.process),
                upstream: Some(&upstream.process),
            }
        };
        if compared {
            variants.push(variant(direct, Era::Legacy, None));
            variants.extend(nginx.map(|peer| variant(through_nginx, Era::Legacy, Some(peer))));
        }
        variants.push(variant(through_holdfast, Era::Modern, Some(gateway)));
    }
    variants
}

/// Medians of one variant.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) per_second: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) cpu: f64,
    upstream_cpu: f64,
}

impl Row {
    fn of(name: &'static str, samples: &[Sample]) -> Self {
        let median = |value: fn(&Sample) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self {
            name,
            per_second: median(|sample| sample.per_second),
            p50: median(|sample| micros(sample.p50)),
            p99: median(|sample| micros(sample.p99)),
            cpu: median(|sample| micros(sample.cpu)),
            upstream_cpu: median(|sample| micros(sample.upstream_cpu)),
        }
    }

    /// What counts of it, as ratios to another.
    pub(crate) fn against(&self, other: &Self) -> String {
        format!(
            "throughput ×{:.2}, p50 ×{:.2}, p99 ×{:.2}",
            self.per_second / other.per_second,
            self.p50 / other.p50,
            self.p99 / other.p99,
        )
    }

    fn print(&self) {
        let Self {
            name,
            per_second,
            p50,
            p99,
            cpu,
            upstream_cpu,
        } = self;
        println!(
            "{name:<20}{per_second:>10.0}{p50:>11.0}{p99:>11.0}{cpu:>13.1}{upstream_cpu:>18.1}"
        );
    }
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

fn ratios(rows: &[Row]) {
    let row = |name: &str| rows.iter().find(|row| row.name == name);
    for kind in ["json", "sse"] {
        let Some(ours) = row(&format!("{kind} holdfast")) else {
            continue;
        };
        for other in ["direct", "nginx"] {
            let Some(theirs) = row(&format!("{kind} {other}")) else {
                continue;
            };
            print!("{kind} holdfast / {other}: {}", ours.against(theirs));
            match theirs.cpu > 0.0 {
                true => println!(", CPU ×{:.2}", ours.cpu / theirs.cpu),
                false => println!(),
            }
        }
    }
    let Some(held) = row("held holdfast") else {
        return;
    };
    for kind in ["json", "sse"] {
        if let Some(plain) = row(&format!("{kind} holdfast")) {
            let three = 3.0 * plain.cpu;
            println!(
                "held call / three plain {kind} calls: gateway CPU ×{:.2}",
                held.cpu / three
            );
        }
    }
    if let Some(native) = row("question nginx") {
        println!(
            "held call / native question through nginx: CPU ×{:.2}",
            held.cpu / native.cpu
        );
    }
}
