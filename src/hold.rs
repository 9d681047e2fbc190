//! Held calls: their registry, the sealing of `requestState`, expiry, remembered outcomes, and the driver that
//! carries a call between its session and its legs.
//!
//! Nothing here knows HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::call::{AnswersDigest, Leg, Moment, Reply, Round};
use crate::session::Caller;
use order::Again;

pub mod backend;
pub mod driver;
mod holdseal;
pub mod order;
pub mod registry;
pub mod replay;
pub mod resume;
pub mod seal;
pub mod shared;
mod takeover;

/// Notifications that wait for a slow client of one leg. Beyond it they are dropped, the reply never is:
/// the protocol lets servers leave any of them out.
const NOTES_MAX: usize = 64;

/// The clock of the process: moments count from its start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment(self.start.elapsed())
    }

    /// The instant of a moment, for timers.
    #[must_use]
    pub fn instant(&self, moment: Moment) -> Instant {
        // Thirty years, as tokio counts "far away", where a configured span would overflow.
        const FAR: Duration = Duration::from_secs(86400 * 365 * 30);
        self.start
            .checked_add(moment.0)
            .unwrap_or_else(|| Instant::now() + FAR)
    }
}

/// What a leg hears, in order; after the reply nothing follows.
#[derive(Debug)]
pub enum LegEvent {
    /// A notification, as a complete JSON-RPC message.
    Note(Bytes),
    /// How the leg ends.
    Reply(Reply),
}

/// The driver's end of a leg.
#[derive(Debug)]
struct LegSink {
    notes: mpsc::Sender<Bytes>,
    reply: oneshot::Sender<Reply>,
}

/// The client's end of a leg. Dropped before the reply, the leg counts as gone.
#[derive(Debug)]
pub struct LegStream {
    notes: mpsc::Receiver<Bytes>,
    reply: oneshot::Receiver<Reply>,
}

impl LegStream {
    /// What comes next; nothing when the call was lost without a reply. Cancel-safe.
    pub async fn next(&mut self) -> Option<LegEvent> {
        match self.notes.recv().await {
            Some(note) => Some(LegEvent::Note(note)),
            None => (&mut self.reply).await.ok().map(LegEvent::Reply),
        }
    }
}

fn leg_channel() -> (LegSink, LegStream) {
    let (notes, notes_out) = mpsc::channel(NOTES_MAX);
    let (reply, reply_out) = oneshot::channel();
    (
        LegSink { notes, reply },
        LegStream {
            notes: notes_out,
            reply: reply_out,
        },
    )
}

/// What reaches the driver of a held call.
#[derive(Debug)]
pub enum Mail {
    /// A re-issue.
    Reissue(Box<Reissue>),
    /// Another process has taken the call over.
    Moved,
    /// What is noted of the call may have been forgotten.
    Forgotten,
}

/// A re-issue on its way to the driver of its call.
#[derive(Debug)]
pub struct Reissue {
    /// The new leg.
    pub leg: Leg,
    /// For which round its state was sealed.
    pub round: Round,
    /// Tells its answers from others.
    pub digest: AnswersDigest,
    /// Its raw `inputResponses` object.
    pub responses: Bytes,
    /// The request, if it may have to run anew.
    pub again: Option<Again>,
    /// Who brings it.
    pub caller: Arc<Caller>,
    /// Its answers are not given to the server: a process that is gone did so, or was about to.
    pub were_given: bool,
    sink: LegSink,
}
