//! What is known of a server's questions for roots, and what it was given.

use std::sync::atomic::{AtomicBool, Ordering};

/// Where a server of a session asked for roots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asks {
    /// The session is new: the server may ask yet.
    #[default]
    Unknown,
    /// It had the time to ask, and did not.
    Not,
    /// In calls only.
    InCalls,
    /// By itself.
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
    /// The server has asked, by itself or within a call.
    pub(super) fn were_asked(&mut self, by_itself: bool) {
        let asks = if by_itself {
            Asks::ByItself
        } else {
            Asks::InCalls
        };
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
    /// It asked by itself on its last new session.
    asks_by_itself: AtomicBool,
    /// It did not ask again when it was told to.
    keeps_for_ever: AtomicBool,
}

impl RootsHabits {
    /// Whether it is to be expected to ask on a new session.
    pub(super) fn asks_by_itself(&self) -> bool {
        self.asks_by_itself.load(Ordering::Acquire)
    }

    /// Takes in whether it did so.
    pub(super) fn has_asked(&self, by_itself: bool) {
        self.asks_by_itself.store(by_itself, Ordering::Release);
    }

    /// It did not ask again when it was told to.
    pub(super) fn has_not_asked_again(&self) {
        self.keeps_for_ever.store(true, Ordering::Release);
    }

    /// Whether a session on which roots were given is of no further use.
    pub(super) fn keeps_for_ever(&self) -> bool {
        self.keeps_for_ever.load(Ordering::Acquire)
    }
}
