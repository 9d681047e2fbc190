//! What is known of a server's questions for roots, and what it was given.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many sessions have to stay silent one after the other before it is believed of all: a server has bad moments.
const SILENCES_MAX: u32 = 2;

/// How long it is believed then. Trying again costs one call the wait for a question, and not to try a session for each
/// call; the number is arbitrary.
const BELIEVED_FOR: Duration = Duration::from_secs(600);

/// Where a server of a session asked for roots; the later ones beat the earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asks {
    /// The session is new: the server may ask yet.
    #[default]
    Unknown,
    /// It had the time to ask, and did not.
    Not,
    /// In calls only.
    InCalls,
    /// While a call was running, where nothing says whether that was the reason: it may be slow to ask by itself.
    InDoubt,
    /// By itself.
    ByItself,
}

/// Where a server asks for roots, as far as its sessions have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Habit {
    /// Nothing has shown it.
    #[default]
    Unknown,
    /// It asked while a call was running: the next new session shows whether that was the reason.
    InDoubt,
    /// In calls only.
    InCalls,
    /// By itself, on its last new session.
    ByItself,
}

/// What a session has to do with roots.
#[derive(Debug, Default)]
pub(super) struct SessionRoots {
    asks: Asks,
    /// The last `ListRootsResult` that it was given: it may keep it.
    given: Option<Box<str>>,
}

impl SessionRoots {
    /// The server has asked.
    pub(super) fn were_asked(&mut self, asks: Asks) {
        self.asks = self.asks.max(asks);
    }

    /// Whether the server keeps the roots that some client gave.
    pub(super) fn are_kept(&self) -> bool {
        self.given.is_some()
    }

    /// Where the server asks, as far as it is known.
    pub(super) fn asks(&self) -> Asks {
        self.asks
    }

    /// The server had the time to ask by itself.
    pub(super) fn were_waited_for(&mut self) {
        self.asks = self.asks.max(Asks::Not);
    }

    /// Takes in what the server is given; whether that is news to it.
    pub(super) fn give(&mut self, roots: &str) -> bool {
        let is_new = self.given.as_deref() != Some(roots);
        if is_new {
            self.given = Some(roots.into());
        }
        is_new
    }
}

/// What is known of a server, whatever its sessions.
#[derive(Debug, Default)]
pub(super) struct RootsHabits(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    habit: Habit,
    /// How often it did not ask again when it was told to, since it last did.
    silences: u32,
    silent_at: Option<Instant>,
}

impl RootsHabits {
    /// Where it asks.
    pub(super) fn habit(&self) -> Habit {
        self.lock().habit
    }

    /// Takes in whether it asked by itself on a new session, which was watched for as long as this habit wants.
    pub(super) fn was_watched(&self, watched_for: Habit, by_itself: bool) {
        let habit = &mut self.lock().habit;
        if by_itself {
            *habit = Habit::ByItself;
        } else if *habit == watched_for {
            *habit = match watched_for {
                Habit::InDoubt | Habit::InCalls => Habit::InCalls,
                Habit::Unknown | Habit::ByItself => Habit::Unknown,
            };
        }
    }

    /// It asked while a call was running.
    pub(super) fn is_doubtful(&self) {
        let habit = &mut self.lock().habit;
        if *habit == Habit::Unknown {
            *habit = Habit::InDoubt;
        }
    }

    /// Takes in whether it asked again when it was told to.
    pub(super) fn was_told(&self, asks_again: bool) {
        let mut known = self.lock();
        if asks_again {
            known.silences = 0;
        } else {
            known.silences = known.silences.saturating_add(1);
            known.silent_at = Some(Instant::now());
        }
    }

    /// Whether a session on which roots were given is of no further use.
    pub(super) fn keeps_for_ever(&self) -> bool {
        let known = self.lock();
        let is_recent = |at: Instant| at.elapsed() < BELIEVED_FOR;
        known.silences >= SILENCES_MAX && known.silent_at.is_some_and(is_recent)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_silence_condemns_nobody_and_two_not_for_ever() {
        let habits = RootsHabits::default();
        for asks_again in [false, true, false] {
            habits.was_told(asks_again);
            assert!(!habits.keeps_for_ever());
        }
        habits.was_told(false);
        assert!(habits.keeps_for_ever());
        tokio::time::advance(BELIEVED_FOR).await;
        assert!(!habits.keeps_for_ever(), "it is tried again");
        habits.was_told(false);
        assert!(habits.keeps_for_ever());
        tokio::time::advance(BELIEVED_FOR).await;
        habits.was_told(true);
        habits.was_told(false);
        assert!(!habits.keeps_for_ever());
    }

    #[test]
    fn a_watch_that_began_before_the_doubt_does_not_settle_it() {
        let habits = RootsHabits::default();
        habits.is_doubtful();
        habits.was_watched(Habit::Unknown, false);
        assert_eq!(habits.habit(), Habit::InDoubt);
        habits.was_watched(Habit::InDoubt, false);
        assert_eq!(habits.habit(), Habit::InCalls);
        habits.is_doubtful();
        assert_eq!(habits.habit(), Habit::InCalls);
        habits.was_watched(Habit::InCalls, true);
        assert_eq!(habits.habit(), Habit::ByItself);
    }
}
