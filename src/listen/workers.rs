//! The threads that serve connections, each with a scheduler of its own.
//!
//! A connection stays with the thread that it was given to, and so does what its requests spawn, down to the connections
//! to servers. A plain call then wakes no other thread, which costs a third less than one scheduler for all threads
//! does (measured with `cargo bench`). Connections are given to the thread that has the fewest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// The threads of a gateway. They end with [`Workers::end`].
#[derive(Debug)]
pub struct Workers {
    lanes: Vec<Lane>,
    end: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Clone)]
struct Lane {
    scheduler: Handle,
    connections: Arc<AtomicUsize>,
}

/// A connection's place on a thread, until it is dropped.
#[derive(Debug)]
pub(super) struct Place(Lane);

impl Workers {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    /// When the operating system gives no thread, or nothing to wait for sockets with.
    pub fn start(count: usize) -> std::io::Result<Self> {
        let mut workers = Self {
            lanes: Vec::new(),
            end: CancellationToken::new(),
            threads: Vec::new(),
        };
        for number in 0..count.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            workers.lanes.push(Lane {
                scheduler: runtime.handle().clone(),
                connections: Arc::default(),
            });
            let end = workers.end.clone();
            let thread = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || {
                    runtime.block_on(end.cancelled_owned());
                    // A name that is still looked up must not hold up the end.
                    runtime.shutdown_background();
                })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// A place on the thread with the fewest connections.
    pub(super) fn place(&self) -> Option<Place> {
        let load = |lane: &&Lane| lane.connections.load(Ordering::Relaxed);
        let lane = self.lanes.iter().min_by_key(load)?.clone();
        lane.connections.fetch_add(1, Ordering::Relaxed);
        Some(Place(lane))
    }

    /// Ends the threads and what still runs on them.
    pub fn end(self) {
        self.end.cancel();
        for thread in self.threads {
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl Place {
    /// What runs on the thread is spawned here.
    pub(super) fn scheduler(&self) -> &Handle {
        &self.0.scheduler
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_spread_and_their_threads_end() {
        let workers = Workers::start(2).unwrap();
        let places: Vec<_> = (0..4).filter_map(|_| workers.place()).collect();
        let loads = |workers: &Workers| -> Vec<usize> {
            let lanes = workers.lanes.iter();
            lanes
                .map(|lane| lane.connections.load(Ordering::Relaxed))
                .collect()
        };
        assert_eq!(loads(&workers), [2, 2]);
        let (first, _) = places.split_at(2);
        let is_elsewhere = |place: &Place| place.scheduler().id() != places[0].scheduler().id();
        assert!(first.iter().any(is_elsewhere));
        drop(places);
        assert_eq!(loads(&workers), [0, 0]);
        workers.end();
    }
}
