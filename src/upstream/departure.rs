//! Whether a message left, so that what has not left can be taken back.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether a request went on its way, decided once by whoever comes first: the connection that takes it, or the
/// caller that gives it up.
#[derive(Debug, Default)]
pub(super) struct Departure(AtomicU8);

impl Departure {
    const AT_HOME: u8 = 0;
    const GONE: u8 = 1;
    const GIVEN_UP: u8 = 2;

    /// Lets it go; false if it was given up before.
    pub(super) fn go(&self) -> bool {
        self.settle(Self::GONE) == Self::GONE
    }

    /// Gives it up; whether it had gone before.
    pub(super) fn give_up(&self) -> bool {
        self.settle(Self::GIVEN_UP) == Self::GONE
    }

    /// Whether it has gone.
    pub(super) fn has_gone(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::GONE
    }

    /// Settles it as `outcome` unless it is settled otherwise; what it is then.
    fn settle(&self, outcome: u8) -> u8 {
        self.0
            .compare_exchange(Self::AT_HOME, outcome, Ordering::AcqRel, Ordering::Acquire)
            .map_or_else(|settled| settled, |_| outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_first_decides() {
        let gone = Departure::default();
        assert!(gone.go() && gone.has_gone() && gone.give_up());
        let given_up = Departure::default();
        assert!(!given_up.give_up() && !given_up.go() && !given_up.has_gone());
    }
}
