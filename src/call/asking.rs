//! The state machine of a call: how its client is asked, or told to come back.
//!
//! Spec: 2026-07-28 basic/patterns/mrtr, "Server Requirements".

use bytes::Bytes;

use super::machine::{Call, Phase, Upstream};
use super::reply::{Reply, missing};
use super::{MissingCapability, Moment, Seal, Sealing};
use crate::translate::input_request::{InputKind, InputRequest};
use crate::translate::result;
use crate::wire::error;
use crate::wire::jsonrpc::{self, ServerId};

/// What a server is told whose client lacks a capability.
const LACKING: &str = "the client did not declare the capability this needs";

impl Call {
    /// Whether its client is asked something, or is about to be.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Waits a little for further questions; while parked they wait for the re-issue anyway.
    pub(super) fn gather(&mut self, now: Moment) {
        let quiet = now + self.limits.gather_quiet;
        match &mut self.phase {
            Phase::Running { .. } => {
                let latest = now + self.limits.gather_max;
                self.phase = Phase::Gathering {
                    until: quiet.min(latest),
                    latest,
                };
            }
            Phase::Gathering { until, latest } => *until = quiet.min(*latest),
            Phase::Parked { .. } | Phase::Ended => {}
        }
    }

    /// Waits a little longer before it asks, if that is what is due and it may: whether it does.
    pub fn postpone(&mut self, now: Moment) -> bool {
        let Phase::Gathering { until, latest } = &mut self.phase else {
            return false;
        };
        let other_is_due = self.grace.is_some_and(|grace| grace <= now);
        if other_is_due || *until > now || *latest <= now {
            return false;
        }
        *until = (now + self.limits.gather_quiet).min(*latest);
        true
    }

    /// The client lacks what a question needs: the server is told, and what the backend's operator chose happens.
    pub(super) fn cannot_ask(&mut self, id: &ServerId, request: &InputRequest) {
        let is_elicitation = matches!(request.kind, InputKind::ElicitForm | InputKind::ElicitUrl);
        match self.limits.missing_capability {
            MissingCapability::Decline if is_elicitation => {
                self.tell(jsonrpc::result(id, r#"{"action":"decline"}"#));
            }
            MissingCapability::Decline => self.refuse(id, error::INVALID_REQUEST, LACKING),
            MissingCapability::Error => {
                self.refuse(id, error::INVALID_REQUEST, LACKING);
                self.abandon(missing(request.needs));
            }
        }
    }

    /// Asks the client all open questions: every leg gets them, the call is parked.
    pub(super) fn ask(&mut self, now: Moment, seal: &dyn Seal) {
        // A re-issue may come from a client that can be asked less than the one before.
        for question in self.questions.take_lacking(&self.spec.capabilities) {
            match &question.id {
                Some(id) => self.cannot_ask(id, &question.request),
                None => self.abandon(missing(question.request.needs)),
            }
        }
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        if self.questions.is_empty() {
            return self.run(now);
        }
        // A re-issue that comes to another process finds them all as they are now.
        let requests = self.questions.show();
        let Some(state) = self.sealed(seal) else {
            return self.give_up("the call cannot be held");
        };
        let info = self.identity.server_info.as_deref();
        let rejected = std::mem::take(&mut self.rejected);
        let reply = result::input_required(Some(&requests), &state, info, &rejected);
        self.park(now + self.limits.hold_ttl, reply.into());
    }

    /// Answers the legs with a state alone: their client comes back at once and goes on waiting. Where that cannot
    /// be, or nobody waits, the legs stay as they are.
    pub(super) fn stretch(&mut self, now: Moment, seal: &dyn Seal) {
        self.stretch_at = None;
        if self.legs.is_empty() || !seal.has_room() {
            return;
        }
        if let Some(state) = self.sealed(seal) {
            let info = self.identity.server_info.as_deref();
            let reply = result::input_required(None, &state, info, &[]);
            self.park(now + self.limits.stretch_grace, reply.into());
        }
    }

    /// The state of the next round.
    fn sealed(&mut self, seal: &dyn Seal) -> Option<String> {
        if !seal.may_replay() {
            self.reserve = None;
        }
        seal.seal(Sealing {
            round: self.rounds.next(),
            valid_for: self.limits.hold_ttl,
            rerun: matches!(self.upstream, Upstream::ToRun(_)),
            has_departed: self.has_departed,
            request: self.spec.id,
            open: self.questions.open_ones().collect(),
            kept: self.to_keep(),
        })
    }

    fn park(&mut self, until: Moment, reply: Bytes) {
        let reply = Reply::Result(reply);
        self.rounds.ask(&reply);
        self.reply_to_all(&reply);
        self.phase = Phase::Parked { until };
    }
}
