//! The life of one call as a state machine: events in, actions out.
//!
//! A call runs from its first leg to its final reply, over however many legs. Time enters as a [`Moment`],
//! sealing as a [`Seal`]; there is no I/O, no clock and no task here. The shell (`hold::driver`) feeds events
//! and carries actions out in order.
//!
//! What it guarantees, whatever comes in which order:
//! - every leg gets exactly one reply, every question at most one answer;
//! - an answer leaves only after it was validated against the question it answers;
//! - once ended it absorbs everything, and before it ends the server was told if it was left waiting.
//!
//! Spec: 2026-07-28 basic/patterns/mrtr and cancellation; 2025-11-25 client/*, basic/utilities/*.

use std::time::Duration;

use crate::wire::jsonrpc::UpstreamId;

mod asking;
mod ending;
mod event;
mod heard;
mod kept;
mod machine;
mod question;
mod recall;
mod reissue;
mod remembered;
mod replay;
mod reply;
mod rounds;
#[cfg(test)]
mod tests;
mod trail;

pub use event::{Action, Anew, Answers, Event, Leg, LegId, Origin, SessionFate};
pub use kept::{Kept, Reading};
pub use machine::{Call, CallSpec};
pub use recall::lost;
pub use reply::{AuthChallenge, Loss, Reply, already_answered, failed, unreached};
pub use rounds::{AnswersDigest, Round, Rounds, Verdict};
pub use trail::{Asked, Footing, Open, OpenQuestion, Position, Trail};

/// A point in time as the shell counts it: the time since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl std::ops::Add<Duration> for Moment {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }
}

/// What becomes of a question that its client cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingCapability {
    /// The call ends, and its client is told what it would have to declare (−32021).
    #[default]
    Error,
    /// The server is told that the question was declined, or refused where it is no elicitation, and the call goes
    /// on: the tool's own way to do without reaches the client.
    Decline,
}

/// The clocks and bounds of a call; see the configuration for where each number comes from.
#[derive(Clone, Debug)]
pub struct CallLimits {
    /// After a question, for how long others may still join it in one result.
    pub gather_quiet: Duration,
    /// The longest that gathering may take altogether.
    pub gather_max: Duration,
    /// How long a parked call waits for its re-issue.
    pub hold_ttl: Duration,
    /// How long a re-issued leg whose client went away keeps running for a repeat to join.
    pub leg_grace: Duration,
    /// How long a server may stay silent while a leg waits for it.
    pub upstream_silence_max: Duration,
    /// How long a leg of a call that could be asked something waits before it is answered with a state alone.
    pub leg_max: Duration,
    /// How long a call that was answered with a state alone waits for its next leg, which comes at once or never.
    pub stretch_grace: Duration,
    /// Rounds after which a leg is not stretched any more, but stays open.
    pub stretch_rounds_max: u32,
    /// How many questions of one call may be open at once.
    pub questions_max: usize,
    /// How often one call may be run anew after error −32042.
    pub reruns_max: u32,
    /// How many bytes a call that may be run again keeps of what its client answered.
    pub replay_answers_max: usize,
    /// What becomes of a question that the client cannot be asked.
    pub missing_capability: MissingCapability,
}

/// What a call says of itself in a `requestState`.
#[derive(Debug)]
pub struct Sealing<'a> {
    /// The round whose answers it is to bring back.
    pub round: Round,
    /// Within what time.
    pub valid_for: Duration,
    /// The legacy call has ended and the re-issue starts it anew.
    pub rerun: bool,
    /// The server may have started the present run of the call.
    pub has_departed: bool,
    /// The id of its request towards the server.
    pub request: UpstreamId,
    /// The questions that are open, whoever they are shown to.
    pub open: Vec<OpenQuestion<'a>>,
    /// What it has to be run again with should it be lost; nothing if it never is.
    pub kept: Option<Kept>,
}

/// Seals the `requestState` of a round; the shell injects keys, randomness and wall-clock time.
pub trait Seal {
    /// The sealed state that a re-issue must bring back. `None` when it cannot be sealed: the call then cannot be
    /// held.
    fn seal(&self, sealing: Sealing<'_>) -> Option<String>;

    /// Whether one more call could be held: at the bound a running call is not put at risk by being parked.
    fn has_room(&self) -> bool;

    /// Whether the call is run again should it be lost.
    fn may_replay(&self) -> bool;
}
