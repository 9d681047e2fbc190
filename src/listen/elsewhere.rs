//! The search for the replica that answers a request in the place of this one.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::{self, Reply};
use crate::cluster::hop::HopError;
use crate::hold::seal::random_bytes;
use crate::observe::chain;
use crate::upstream::Backoff;

/// The pauses before a request is served again whose replica did not answer. A client waits meanwhile, and whether that
/// one is gone is looked up in Redis, for each request that waits.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How it went so far with the replicas that were to answer one request.
#[derive(Debug)]
pub(super) struct Search {
    pauses: Backoff,
    failing: Option<Failing>,
}

/// A replica that does not answer.
#[derive(Debug)]
struct Failing {
    address: String,
    since: Instant,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            pauses: Backoff::new(PAUSE_FIRST, PAUSE_MAX),
            failing: None,
        }
    }
}

impl Search {
    /// Takes in that the replica at `address` did not answer an attempt that began at `begun`; for how long it has not
    /// answered now. The time in which it did serve the request, before it broke off, does not count: a leg may last, and
    /// its replica may die at the end of it.
    pub(super) fn failed(&mut self, address: &str, begun: Instant, error: &HopError) -> Duration {
        let now = Instant::now();
        let (why, is_retry_safe) = (chain(error), error.is_retry_safe());
        match &mut self.failing {
            Some(failing) if failing.address == address => {
                tracing::debug!(
                    address,
                    why,
                    is_retry_safe,
                    "another replica still does not answer"
                );
                if was_served(error, begun) {
                    failing.since = now;
                }
                now - failing.since
            }
            failing => {
                tracing::warn!(
                    address,
                    why,
                    is_retry_safe,
                    "another replica did not answer"
                );
                *failing = Some(Failing {
                    address: address.to_owned(),
                    since: now,
                });
                self.pauses.begin_anew();
                Duration::ZERO
            }
        }
    }

    /// The pause before the next attempt. Requests that wait for the same replica do not all come at once.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.pauses.after(Duration::ZERO);
        let [drawn] = random_bytes().unwrap_or_default();
        pause / 2 + pause / 2 * u32::from(drawn) / u32::from(u8::MAX)
    }
}

/// Whether the request was under way for longer than a replica takes that breaks it off at once.
fn was_served(error: &HopError, begun: Instant) -> bool {
    !error.is_retry_safe() && Backoff::is_steady(begun.elapsed())
}

/// The reply to a leg whose call is held by a replica that did not answer. Addresses are not the client's business, nor
/// is whether the other replica has seen the leg: repeated, it joins what runs or gets the remembered outcome.
pub(super) fn unreached() -> Reply {
    call::unreached("the replica that holds this call cannot be reached")
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn unreached() -> HopError {
        HopError::Address("x".to_owned())
    }

    /// However long the first attempt was served.
    #[tokio::test(start_paused = true)]
    async fn time_counts_from_the_first_failure() {
        let ms = Duration::from_millis;
        let mut search = Search::default();
        let begun = Instant::now();
        advance(ms(30_000)).await;
        assert_eq!(search.failed("a", begun, &unreached()), ms(0));
        advance(ms(300)).await;
        assert_eq!(search.failed("a", Instant::now(), &unreached()), ms(300));
        // Another one has it by now.
        advance(ms(300)).await;
        assert_eq!(search.failed("b", Instant::now(), &unreached()), ms(0));
        advance(ms(300)).await;
        assert_eq!(search.failed("b", begun, &unreached()), ms(300));
    }

    #[test]
    fn pauses_grow_and_differ() {
        let mut searches: [Search; 32] = std::array::from_fn(|_| Search::default());
        let mut max = PAUSE_FIRST;
        for _ in 0..6 {
            let pauses = searches.each_mut().map(Search::pause);
            assert!(
                pauses.iter().all(|pause| (max / 2..=max).contains(pause)),
                "{pauses:?}"
            );
            assert!(pauses.iter().any(|pause| *pause != pauses[0]));
            max = PAUSE_MAX.min(2 * max);
        }
    }
}
