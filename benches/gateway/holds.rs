//! What a held call costs while nobody answers: resident memory, open files, CPU.

use std::time::Duration;

use tokio::time::Instant;

use super::Sizes;
use super::conversation::{Era, Talker, Tool};
use super::peers;

/// Open files the gateway needs besides one for each hold.
const OTHER_FILES: u64 = 400;

/// For how long the holds are watched doing nothing.
const WATCHED: Duration = Duration::from_secs(3);

/// Calls that warm the allocator up, so that the first growth is not counted as the holds'.
const WARM_UP: usize = 200;

/// Holds many calls, weighs them, and finishes them all.
pub(crate) async fn memory(sizes: &Sizes, open_files: u64) {
    let holds = sizes
        .holds
        .min(usize::try_from(open_files.saturating_sub(OTHER_FILES)).unwrap());
    let upstream = peers::upstream();
    let gateway = peers::gateway(&upstream);
    let mut talkers = Vec::new();
    for _ in 0..sizes.connections {
        talkers.push(Talker::new(Era::Modern, Tool::Asking, gateway.addr).await);
    }
    let mut warm = Vec::new();
    for at in 0..WARM_UP {
        warm.push(talkers[at % sizes.connections].first_leg().await);
    }
    for (at, state) in warm.iter().enumerate() {
        talkers[at % sizes.connections].second_leg(state).await;
    }
    let (resident, files) = (gateway.process.resident(), gateway.process.open_files());
    let start = Instant::now();
    let mut states = Vec::new();
    for at in 0..holds {
        states.push(talkers[at % sizes.connections].first_leg().await);
    }
    let held_in = start.elapsed();
    let grown = gateway.process.resident() - resident;
    let more_files = gateway.process.open_files() - files;
    let cpu = gateway.process.cpu();
    tokio::time::sleep(WATCHED).await;
    let idle_cpu = gateway.process.cpu() - cpu;
    let start = Instant::now();
    for (at, state) in states.iter().enumerate() {
        talkers[at % sizes.connections].second_leg(state).await;
    }
    let finished_in = start.elapsed();
    let count = holds as f64;
    println!(
        "\n{holds} holds: {:.1} KiB resident and {:.2} open files each (from {:.1} MiB), held in {held_in:.1?}",
        grown as f64 / 1024.0 / count,
        more_files as f64 / count,
        resident as f64 / f64::from(1 << 20),
    );
    println!("while nobody answers: {idle_cpu:.0?} of CPU in {WATCHED:.0?}");
    println!(
        "all finished in {finished_in:.1?}; {:.1} MiB resident after it",
        gateway.process.resident() as f64 / f64::from(1 << 20),
    );
}
