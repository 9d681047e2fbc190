//! Pauses before something that broke is tried again.

use std::time::Duration;

/// Something that lasted for so long was no failure: the pauses begin anew. Arbitrary: what is broken fails at
/// once, or when it is first spoken to.
const STEADY: Duration = Duration::from_secs(1);

/// The pauses before a broken stream is opened again. Short enough to go unnoticed, and so long that a server which
/// comes back is not overrun.
const STREAM_PAUSE_FIRST: Duration = Duration::from_millis(100);
const STREAM_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The longest pause that a peer may wish for. As long as clients wait: with more, nobody would be left to see the end.
const WISH_MAX: Duration = Duration::from_secs(60);

/// Pauses that grow while what follows them does not last.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    pause: Duration,
    /// What the peer asked for.
    wish: Duration,
}

impl Backoff {
    /// The pauses before a broken stream is opened again.
    #[must_use]
    pub const fn of_streams() -> Self {
        Self::new(STREAM_PAUSE_FIRST, STREAM_PAUSE_MAX)
    }

    /// The first pause, doubled up to the longest.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            pause: first,
            wish: Duration::ZERO,
        }
    }

    /// The peer wants no shorter pauses.
    pub fn peer_wants(&mut self, pause: Duration) {
        self.wish = pause.min(WISH_MAX);
    }

    /// Whether something that lasted for so long was no failure.
    #[must_use]
    pub fn is_steady(lasted: Duration) -> bool {
        lasted >= STEADY
    }

    /// What there was meanwhile was no failure.
    pub fn begin_anew(&mut self) {
        self.pause = self.first;
    }

    /// The pause after something that lasted for so long.
    pub fn after(&mut self, lasted: Duration) -> Duration {
        if Self::is_steady(lasted) {
            self.begin_anew();
        }
        let pause = self.pause.max(self.wish);
        self.pause = (self.pause * 2).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_begin_anew_and_are_never_shorter_than_the_peer_wants() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(5000));
        let (short, long) = (Duration::ZERO, STEADY);
        assert_eq!(
            [0; 3].map(|_| backoff.after(short)),
            [ms(100), ms(200), ms(400)]
        );
        assert_eq!(backoff.after(long), ms(100));
        backoff.after(short);
        backoff.begin_anew();
        assert_eq!(backoff.after(short), ms(100));
        let pauses: Vec<_> = (0..10).map(|_| backoff.after(short)).collect();
        assert_eq!((pauses[0], pauses[9]), (ms(200), ms(5000)));
        backoff.peer_wants(ms(30_000));
        assert_eq!(backoff.after(long), ms(30_000));
        backoff.peer_wants(Duration::MAX);
        assert_eq!(backoff.after(short), WISH_MAX);
    }
}
