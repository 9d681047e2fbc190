//! Letting a server ask for roots before a call goes up.
//!
//! A server that asks for roots outside of any call keeps the answer, and serves with it whatever call comes on the
//! session. So it gets the occasion to ask before a call goes up whose client has roots: on a new session by a moment's
//! wait, and where somebody's roots were given before by `notifications/roots/list_changed`. A server that does not ask
//! again then keeps what it was given, and the session serves nobody any more.
//! Spec: 2025-11-25 client/roots, "Root List Changes".

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Caller;
use super::error::LeaseError;
use super::home::Home;
use super::lease::Lease;
use super::pool::Pool;
use super::roots::{Asks, Habit, RootsHabits};
use super::shelf::LeaseMode;
use crate::call::{Origin, SessionFate};
use crate::wire::jsonrpc;
use crate::wire::legacy;

/// How long a server may take to answer a ping. One that never does is not waited for longer. Arbitrary: far beyond what
/// an idle server needs.
const PING_MAX: Duration = Duration::from_secs(1);

/// How long a new session is watched after it has answered a ping: its question may come on another connection.
/// Arbitrary: beyond a round trip, and short, as every new session pays it.
const QUIET: Duration = Duration::from_millis(100);

/// How long a server may take to ask of which is known that it asks by itself. Arbitrary: generous, as the wait ends with
/// its question.
const FIRST_MAX: Duration = Duration::from_secs(1);

/// How long it may take where it is in doubt whether it asks by itself. It decides for all its sessions to come whether
/// they are waited on, so it is as generous as the next one. The number is arbitrary.
const DOUBT_MAX: Duration = Duration::from_secs(3);

/// How long a server may take to ask again. It decides whether its sessions can be used again at all.
/// Arbitrary: about what a person bears for once.
const AGAIN_MAX: Duration = Duration::from_secs(3);

/// What a server gets to take new roots in before a call goes up: real ones look at each directory first, and answer
/// pings meanwhile. Arbitrary: nothing says when one is done, and each call with other roots pays it.
const TAKING_IN: Duration = Duration::from_millis(250);

/// What stands for the roots of a server that was refused them: nobody's.
const NONE_GIVEN: &str = "";

/// What came of waiting for a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Asked,
    Silence,
    /// Nothing can come any more. It says nothing of what the server does.
    Over,
}

impl Pool {
    /// A session for a call whose client has roots, on which the server had the occasion to ask for them.
    ///
    /// # Errors
    /// When none can be had within the bounds.
    pub async fn lease_with_roots(self: &Arc<Self>, caller: &Caller) -> Result<Lease, LeaseError> {
        let habits = self.roots_habits();
        if !habits.keeps_for_ever() {
            let mut lease = self.lease(caller, LeaseMode::Exclusive).await?;
            if lease.lets_ask_for_roots(habits).await {
                return Ok(lease);
            }
            let session = lease.number();
            tracing::debug!(
                session,
                "it keeps the roots of an earlier call: it is given up"
            );
            lease.set_fate(SessionFate::Retire);
        }
        let mut lease = self.lease(caller, LeaseMode::Rootless).await?;
        // Nobody's roots are kept there, whether it asks or not.
        lease.lets_ask_for_roots(habits).await;
        Ok(lease)
    }
}

impl Lease {
    /// Gives the server the occasion to ask for the roots of the next call; whether it keeps no others.
    async fn lets_ask_for_roots(&mut self, habits: &RootsHabits) -> bool {
        let (asks, has_kept) = {
            let roots = self.session.roots();
            (roots.asks(), roots.are_kept())
        };
        match asks {
            Asks::Unknown => {
                self.watch_for_roots(habits).await;
                true
            }
            Asks::Not => true,
            Asks::InCalls => self.asks_in_time().await,
            Asks::ByItself => self.asks_again(habits).await || !has_kept,
            Asks::InDoubt => match habits.habit() {
                Habit::InCalls => self.asks_in_time().await,
                Habit::ByItself => self.asks_again(habits).await || !has_kept,
                // The next new session shows what this one does.
                Habit::Unknown | Habit::InDoubt => !has_kept,
            },
        }
    }

    /// A server that asks in calls is told, in case that it remembers. The next call is asked as the last one was.
    async fn asks_in_time(&self) -> bool {
        self.tell_roots_changed().await;
        true
    }

    async fn watch_for_roots(&mut self, habits: &RootsHabits) {
        // Without a general stream there is nothing outside of calls.
        if self.inbox().is_some() {
            let pinged = timeout(PING_MAX, self.ask(legacy::PING, b"{}")).await;
            tracing::trace!(is_answered = pinged.is_ok(), "a new session was pinged");
            let habit = habits.habit();
            match self.hears_of_roots(first_max(habit)).await {
                Heard::Asked => habits.was_watched(habit, true),
                Heard::Silence => habits.was_watched(habit, false),
                Heard::Over => {}
            }
        }
        self.session.roots().were_waited_for();
    }

    async fn asks_again(&mut self, habits: &RootsHabits) -> bool {
        match self.hears_of_roots(Duration::ZERO).await {
            Heard::Asked => return true,
            Heard::Over => return false,
            Heard::Silence => {}
        }
        if !self.tell_roots_changed().await {
            return false;
        }
        let heard = self.hears_of_roots(AGAIN_MAX).await;
        match heard {
            Heard::Asked => habits.was_told(true),
            Heard::Silence => habits.was_told(false),
            Heard::Over => {}
        }
        heard == Heard::Asked
    }

    /// Whether a question for roots waits on the session, or comes in time.
    async fn hears_of_roots(&mut self, within: Duration) -> Heard {
        let Some(inbox) = self.inbox() else {
            return Heard::Over;
        };
        let asked = timeout(within, inbox.asked(legacy::ROOTS_LIST)).await;
        match asked {
            Ok(true) => Heard::Asked,
            Ok(false) => Heard::Over,
            Err(_) if self.session.is_gone() => Heard::Over,
            Err(_) => Heard::Silence,
        }
    }

    /// Whether the server took it.
    async fn tell_roots_changed(&self) -> bool {
        let message = jsonrpc::notification(legacy::ROOTS_LIST_CHANGED, None);
        self.sender().send(message.into()).await.is_ok()
    }

    /// The server has asked for roots. What comes beside a call's own stream may have been asked because of the call, or
    /// by a server that is slow to ask by itself and keeps what it is told for other calls.
    pub fn was_asked_for_roots(&self, origin: Origin) {
        let asks = match origin {
            Origin::Stray => Asks::ByItself,
            Origin::Exchange if !self.is_on_channel() => Asks::InCalls,
            Origin::Exchange | Origin::Session => Asks::InDoubt,
        };
        self.session.roots().were_asked(asks);
        if asks == Asks::InDoubt {
            self.home.roots_habits().is_doubtful();
        }
    }

    /// The server has asked for roots during a request in which nothing can be asked, and surely not because of it. It has to
    /// ask again before a call whose client has some, or it goes on without.
    pub fn refuses_roots(&self) {
        let mut roots = self.session.roots();
        roots.were_asked(Asks::ByItself);
        roots.give(NONE_GIVEN);
    }

    /// Takes in which roots the server is given; whether they are new to it.
    #[must_use]
    pub fn gives_roots(&self, roots: &str) -> bool {
        self.session.roots().give(roots)
    }

    /// Done when the server had the time to take in the roots that it was given.
    pub fn roots_taken_in(&self) -> impl Future<Output = ()> + Send + use<> {
        let ping = self.ask(legacy::PING, b"{}");
        async move {
            let answered = timeout(PING_MAX, ping).await;
            tracing::trace!(is_answered = answered.is_ok(), "roots were given");
            sleep(TAKING_IN).await;
        }
    }
}

/// How long a new session is watched.
fn first_max(habit: Habit) -> Duration {
    match habit {
        Habit::Unknown | Habit::InCalls => QUIET,
        Habit::InDoubt => DOUBT_MAX,
        Habit::ByItself => FIRST_MAX,
    }
}
