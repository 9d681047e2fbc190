//! The state machine of a call: how it is taken over from a process that is gone.
//!
//! It begins parked, in the round that its `requestState` names. Of the questions that are open the server says some
//! again, others stand in the state; a re-issue is taken in when all are known.

use std::sync::Arc;

use serde_json::json;

use super::machine::{Call, CallSpec, Phase, Upstream};
use super::reply::Reply;
use super::rounds::{AnswersDigest, Round, Rounds};
use super::trail::Asked;
use super::{CallLimits, Moment};
use crate::translate::discover::ServerIdentity;
use crate::translate::input_request::InputRequest;
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::ServerId;
use crate::wire::object::RawObject;

/// The refusal of a state whose call cannot be found or taken over any more; `is_safe` says that nothing speaks against
/// making the call again.
#[must_use]
pub fn lost(why: &str, is_safe: bool) -> Reply {
    Reply::error(
        ErrorObject::new(error::INVALID_PARAMS, why)
            .with_data(&json!({"reason": "lost", "safeToRetry": is_safe})),
    )
}

impl Call {
    /// A call as another process left it, parked in `round`. Its session is there, its request went up; nothing when
    /// `asked` does not fit.
    #[must_use]
    pub fn taken_over(
        spec: CallSpec,
        limits: Arc<CallLimits>,
        identity: Arc<ServerIdentity>,
        (round, asked): (Round, Vec<Asked>),
        now: Moment,
    ) -> Option<Self> {
        let until = now + limits.hold_ttl;
        let mut call = Self::idle(spec, limits, Phase::Parked { until });
        call.identity = identity;
        call.upstream = Upstream::Live;
        call.has_departed = true;
        call.rounds = Rounds::resumed(round);
        for Asked { id, open } in asked {
            match open {
                None => call.recall.settled.push(id),
                Some(open) => match open.entry {
                    None => call.recall.awaited.push((id, open.key)),
                    Some(entry) => call.questions.restore(id, open.key, question(&entry)?),
                },
            }
        }
        Some(call)
    }

    /// Whether it has yet to hear questions again that its client may answer.
    #[must_use]
    pub fn is_recalling(&self) -> bool {
        !self.recall.awaited.is_empty() && !self.is_ended()
    }

    /// The latest answers that it has taken.
    #[must_use]
    pub fn answered(&self) -> Option<(Round, AnswersDigest)> {
        self.rounds.answered()
    }

    /// Whether a re-issue of this round knows of more than the call does.
    #[must_use]
    pub fn is_behind(&self, round: Round) -> bool {
        self.rounds.is_behind(round)
    }

    /// Whether the server waits for an answer to this request.
    #[must_use]
    pub fn is_open(&self, id: &ServerId) -> bool {
        self.questions.knows(id) || self.recall.awaited.iter().any(|(awaited, _)| awaited == id)
    }
}

/// An entry of `inputRequests`, read back.
fn question(entry: &str) -> Option<InputRequest> {
    let members = RawObject::parse(entry.as_bytes()).ok()?;
    InputRequest::parse(&members.string("method")?, members.member("params")).ok()
}
