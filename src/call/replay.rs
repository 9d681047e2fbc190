//! The state machine of a call: how it is run again after it was lost, where its operator allows that.
//!
//! The request goes up once more on another session, in the same leg or, if the call was parked, in the next. What its client
//! has answered so far is given again to the same questions (see [`super::kept`]); another one is asked anew.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::event::{Action, Anew, Origin, SessionFate};
use super::kept::{Kept, Reading, Reserve};
use super::machine::{Call, CallSpec, Phase, Upstream};
use super::reply::{Loss, Reply, failed};
use super::rounds::{Round, Rounds};
use super::{CallLimits, Moment, Seal};
use crate::translate::input_request::{InputKind, InputRequest};
use crate::translate::{input_response, notification};
use crate::wire::error;
use crate::wire::jsonrpc::ServerId;
use crate::wire::object::RawObject;

impl Call {
    /// A call that another process has lost, parked in `round`: its re-issue runs it again, after visits to pages if that is
    /// what it was parked for.
    #[must_use]
    pub fn lost_elsewhere(
        spec: CallSpec,
        limits: Arc<CallLimits>,
        (round, why): (Round, Anew),
        now: Moment,
    ) -> Self {
        let until = now + limits.hold_ttl;
        let mut call = Self::idle(spec, limits, Phase::Parked { until });
        call.rounds = Rounds::resumed(round);
        call.upstream = Upstream::ToRun(why);
        if let Some(reserve) = &mut call.reserve {
            reserve.is_lost();
        }
        call
    }

    /// Whether it is run again if it is lost.
    #[must_use]
    pub fn may_be_replayed(&self, seal: &dyn Seal) -> bool {
        let has_runs_left = |reserve: &Reserve| reserve.kept.has_runs_left();
        self.reserve.as_deref().is_some_and(has_runs_left) && seal.may_replay()
    }

    /// How often it was run again.
    #[must_use]
    pub fn runs(&self) -> u8 {
        self.reserve
            .as_deref()
            .map_or(0, |reserve| reserve.kept.runs)
    }

    /// Whether the server may have started it, in any run.
    pub(super) fn may_have_run(&self) -> bool {
        self.has_departed || self.ran_before()
    }

    /// Whether the server may have started it in a run that was lost.
    pub(super) fn ran_before(&self) -> bool {
        self.runs() > 0 || matches!(self.upstream, Upstream::ToRun(Anew::Lost))
    }

    /// What a state is to say of it, as it is now.
    pub(super) fn to_keep(&self) -> Option<Kept> {
        let reserve = self.reserve.as_deref()?;
        Some(reserve.to_keep(self.questions.readings()))
    }

    /// Its answer will not come, as the way on which it was to come is broken: it is run again, in this leg or the next.
    pub(super) fn on_lost(&mut self, now: Moment, loss: Loss, seal: &dyn Seal) {
        let loss = self.of_all_runs(loss);
        if !loss.may_have_run() || !self.may_be_replayed(seal) {
            return self.on_failed(loss);
        }
        if let Some(reserve) = &mut self.reserve {
            // Of a call that was taken over, the server may not have said again what is open.
            let awaited = |(key, _): &(Box<str>, _)| self.recall.awaits(key);
            reserve.kept.open.retain(awaited);
            reserve.kept.open.extend(self.questions.readings());
            reserve.is_lost();
        }
        self.rejected.clear();
        // What may have run may still be running.
        self.leave_server("the connection was lost");
        if std::mem::replace(&mut self.upstream, Upstream::Away) == Upstream::Live {
            self.actions.push_back(Action::Release(SessionFate::Retire));
        }
        self.has_departed = false;
        if self.is_parked() {
            self.upstream = Upstream::ToRun(Anew::Lost);
            return;
        }
        self.run(now);
        self.replay_now();
    }

    /// Its answer will not come, or is of no use.
    pub(super) fn on_failed(&mut self, loss: Loss) {
        let loss = self.of_all_runs(loss);
        // What may have run may still be running: the server is told, for what that is worth.
        if loss.may_have_run() {
            self.abandon(loss.into());
        } else {
            self.finish(loss.into(), SessionFate::Retire);
        }
    }

    fn of_all_runs(&self, loss: Loss) -> Loss {
        match loss {
            Loss::Failed {
                message,
                may_have_run,
            } => Loss::Failed {
                message,
                may_have_run: may_have_run || self.ran_before(),
            },
            challenge @ Loss::Challenge(_) => challenge,
        }
    }

    /// The request could not be sent. Of a call that was lost before, that is not all there is to say.
    pub(super) fn on_refused(&mut self, reply: Reply) {
        let is_own = |reply: &Reply| matches!(reply, Reply::Error(error) if error.code == error::INTERNAL_ERROR);
        let reply = if self.ran_before() && is_own(&reply) {
            failed("the call was lost, and could not be run again", true)
        } else {
            reply
        };
        self.finish(reply, SessionFate::Retire);
    }

    /// Runs it again.
    pub(super) fn replay_now(&mut self) {
        if let Some(reserve) = &mut self.reserve {
            reserve.kept.runs = reserve.kept.runs.saturating_add(1);
        }
        self.actions.push_back(Action::Start(Anew::Lost));
    }

    /// Takes in what answers the questions that were open when the call was lost.
    pub(super) fn bring(&mut self, responses: &RawObject<'_>) {
        let Some(reserve) = &mut self.reserve else {
            return;
        };
        let open = std::mem::take(&mut reserve.kept.open);
        let Upstream::ToRun(why) = &mut self.upstream else {
            return;
        };
        for (key, reading) in open {
            if let Some(response) = responses.member(&key) {
                if let Anew::Visited { is_declined } = why {
                    *is_declined |= !input_response::is_accepted(response);
                }
                reserve.bring(reading, response);
            }
        }
    }

    /// Keeps an answer that goes to the server, in case the call has to be run again.
    pub(super) fn keep_answer(&mut self, request: &InputRequest, response: &RawValue) {
        if let Some(reserve) = &mut self.reserve {
            reserve.keep(Reading::of(request), response);
        }
    }

    /// Answers a question with what its client has said before: in a run that was lost, or along with its request.
    /// Whether it did.
    pub(super) fn answers_by_itself(
        &mut self,
        origin: Origin,
        id: &ServerId,
        request: &InputRequest,
    ) -> bool {
        // What was there before the request is another call's question, or the session's own. Roots are the same for all.
        if origin == Origin::Stray && request.kind != InputKind::Roots {
            return false;
        }
        if let Some((response, is_checked)) = self.replayed_answer(request) {
            match is_checked {
                true => self.give(id, request.kind, &response),
                false => self.take_answer_of(id, request, &response),
            }
            return true;
        }
        if origin == Origin::Stray {
            return false;
        }
        let supplied = self.supplied_answer(request);
        if let Some(response) = &supplied {
            self.take_answer_of(id, request, response);
        }
        supplied.is_some()
    }

    /// The answer that is to be given again, if this question was answered before; and whether it was checked then.
    fn replayed_answer(&mut self, request: &InputRequest) -> Option<(Box<RawValue>, bool)> {
        let reserve = self
            .reserve
            .as_deref_mut()
            .filter(|reserve| reserve.has_answers())?;
        let (response, is_checked) = reserve.take(Reading::of(request))?;
        let params = request.params.as_deref();
        match input_response::check(request.kind, params, &response) {
            Ok(()) => Some((response, is_checked)),
            Err(why) => {
                let key = self.questions.free_key(&request.wanted_key);
                self.rejected.push((key, why.to_string()));
                None
            }
        }
    }

    /// Whether the present leg has been told of as much progress before, by a run that was lost.
    pub(super) fn was_told(&mut self, progress: &RawValue) -> bool {
        let Some(reserve) = &mut self.reserve else {
            return false;
        };
        let Some(progress) = notification::progress_of(progress) else {
            return false;
        };
        if reserve.told.is_some_and(|told| progress <= told) {
            return reserve.kept.runs > 0;
        }
        reserve.told = Some(progress);
        false
    }

    /// Another leg counts anew.
    pub(super) fn forget_progress(&mut self) {
        if let Some(reserve) = &mut self.reserve {
            reserve.told = None;
        }
    }
}
