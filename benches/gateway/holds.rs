//! What a held call costs while nobody answers: resident memory, open files, CPU.

use std::time::Duration;

use futures_util::future::join_all;
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

/// Connections that hold and finish at once: each hold takes the time in which questions are gathered.
const TALKERS: usize = 128;

/// Begins `count` calls, shared out among the talkers; the states of each.
async fn hold(talkers: &mut [Talker], count: usize) -> Vec<Vec<String>> {
    let share = count.div_ceil(talkers.len());
    let holding = talkers.iter_mut().map(|talker| async move {
        let mut states = Vec::with_capacity(share);
        for _ in 0..share {
            states.push(talker.first_leg().await);
        }
        states
    });
    join_all(holding).await
}

/// Finishes what `hold` began.
async fn finish(talkers: &mut [Talker], states: &[Vec<String>]) {
    let finishing = talkers
        .iter_mut()
        .zip(states)
        .map(|(talker, states)| async move {
            for state in states {
                talker.second_leg(state).await;
            }
        });
    join_all(finishing).await;
}

/// Holds many calls, weighs them, and finishes them all.
pub(crate) async fn memory(sizes: &Sizes, open_files: u64) {
    let holds = sizes
        .holds
        .min(usize::try_from(open_files.saturating_sub(OTHER_FILES)).unwrap());
    let upstream = peers::upstream();
    let gateway = peers::gateway(&upstream);
    let mut talkers = Vec::new();
    for _ in 0..TALKERS {
        talkers.push(Talker::new(Era::Modern, Tool::Asking, gateway.addr).await);
    }
    let warm = hold(&mut talkers, WARM_UP).await;
    finish(&mut talkers, &warm).await;
    let (resident, files) = (gateway.process.resident(), gateway.process.open_files());
    let start = Instant::now();
    let states = hold(&mut talkers, holds).await;
    let held_in = start.elapsed();
    let grown = gateway.process.resident() as f64 - resident as f64;
    let more_files = gateway.process.open_files() as f64 - files as f64;
    let cpu = gateway.process.cpu();
    tokio::time::sleep(WATCHED).await;
    let idle_cpu = gateway.process.cpu() - cpu;
    let start = Instant::now();
    finish(&mut talkers, &states).await;
    let finished_in = start.elapsed();
    let holds = states.iter().map(Vec::len).sum::<usize>();
    let count = holds as f64;
    println!(
        "\n{holds} holds: {:.1} KiB resident and {:.2} open files each (from {:.1} MiB), held in {held_in:.1?}",
        grown / 1024.0 / count,
        more_files / count,
        resident as f64 / f64::from(1 << 20),
    );
    println!("while nobody answers: {idle_cpu:.0?} of CPU in {WATCHED:.0?}");
    println!(
        "all finished in {finished_in:.1?}; {:.1} MiB resident after it",
        gateway.process.resident() as f64 / f64::from(1 << 20),
    );
}
