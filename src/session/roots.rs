//! What is known of a server's questions for roots, and what it was given.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
pub(super) struct RootsHabits {
    habit: Mutex<Habit>,
    /// It did not ask again when it was told to.
    keeps_for_ever: AtomicBool,
}

impl RootsHabits {
    /// Where it asks.
    pub(super) fn habit(&self) -> Habit {
        *self.lock()
    }

    /// Takes in whether it asked by itself on a new session, which was watched for as long as this habit wants.
    pub(super) fn was_watched(&self, watched_for: Habit, by_itself: bool) {
        let mut habit = self.lock();
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
        let mut habit = self.lock();
        if *habit == Habit::Unknown {
            *habit = Habit::InDoubt;
        }
    }

    /// It did not ask again when it was told to.
    pub(super) fn has_not_asked_again(&self) {
        self.keeps_for_ever.store(true, Ordering::Release);
    }

    /// Whether a session on which roots were given is of no further use.
    pub(super) fn keeps_for_ever(&self) -> bool {
        self.keeps_for_ever.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Habit> {
        self.habit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
