//! The state machine of a call: what a re-issue does to it.
//!
//! Good answers go to the server, missing and bad ones are asked again together with whatever the server
//! asked meanwhile. Spec: 2026-07-28 basic/patterns/mrtr, "Error Handling".

use serde_json::json;
use serde_json::value::RawValue;

use super::event::{Action, Anew, Answers, Leg, SessionFate};
use super::machine::{Call, Upstream};
use super::question::Question;
use super::reply::{Reply, already_answered, failed};
use super::rounds::Verdict;
use super::{Moment, Seal};
use crate::translate::input_request::{InputKind, InputRequest};
use crate::translate::input_response::{self, Rejection};
use crate::translate::result;
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::{self, ServerId};
use crate::wire::modern::Method;
use crate::wire::object::{self, RawObject};

impl Call {
    pub(super) fn on_reissue(
        &mut self,
        now: Moment,
        leg: Leg,
        answers: Answers<'_>,
        seal: &dyn Seal,
    ) {
        match self.rounds.judge(answers.round, answers.digest) {
            Verdict::Replay(reply) => {
                self.grace = None;
                self.actions.push_back(Action::Reply(leg.id, reply));
            }
            Verdict::Answered => self
                .actions
                .push_back(Action::Reply(leg.id, already_answered())),
            Verdict::Join => {
                self.grace = None;
                self.legs.push(leg);
                if self.stretch_at.is_none() {
                    self.begin_leg(now);
                }
                self.tell_progress();
            }
            Verdict::Fresh => {
                self.grace = None;
                self.legs.push(leg);
                self.begin_leg(now);
                self.tell_progress();
                let kept = self.actions.len();
                let goes_on = self.take_answers(&answers.responses);
                if answers.were_given {
                    self.actions.truncate(kept);
                }
                self.bring(&answers.responses);
                self.spec.capabilities = answers.capabilities;
                self.go_on(now, goes_on, seal);
            }
        }
    }

    /// Whether an answer, or a refusal of ours, went to the server: it goes on then.
    fn take_answers(&mut self, responses: &RawObject<'_>) -> bool {
        let mut goes_on = false;
        for question in self.questions.take_shown() {
            let Some(response) = responses.member(&question.key) else {
                self.ask_again(question, "no answer was given");
                continue;
            };
            let params = question.request.params.as_deref();
            match input_response::check(question.request.kind, params, response) {
                Ok(()) => goes_on |= self.take_answer(question, response),
                Err(Rejection::BadSchema(why)) => {
                    // The server's fault: its question cannot be validated, so it cannot be answered.
                    goes_on = true;
                    if let Some(id) = &question.id {
                        let refusal = ErrorObject::new(error::INVALID_PARAMS, why);
                        self.tell(jsonrpc::error(id, &refusal));
                    }
                }
                Err(rejection) => {
                    let why = rejection.to_string();
                    self.ask_again(question, &why);
                }
            }
        }
        goes_on
    }

    /// Whether it went to the server. To questions of error −32042 nobody listens: they are kept in mind.
    fn take_answer(&mut self, question: Question, response: &RawValue) -> bool {
        match &question.id {
            Some(id) => self.take_answer_of(id, &question.request, response),
            None => {
                if let Upstream::ToRun(Anew::Visited { is_declined }) = &mut self.upstream {
                    *is_declined |= !input_response::is_accepted(response);
                }
            }
        }
        question.id.is_some()
    }

    /// Sends an answer up for the first time.
    pub(super) fn take_answer_of(
        &mut self,
        id: &ServerId,
        request: &InputRequest,
        response: &RawValue,
    ) {
        self.keep_answer(request, response);
        self.give(id, request.kind, response);
    }

    /// Sends an answer up; roots are kept for a server that asks for them again within this call.
    pub(super) fn give(&mut self, id: &ServerId, kind: InputKind, response: &RawValue) {
        if kind == InputKind::Roots {
            self.roots = Some(response.get().into());
        }
        self.actions
            .push_back(Action::Answer(jsonrpc::result(id, response.get())));
    }

    /// The answer that the first leg brought along for this question, if it fits. Each is given once.
    pub(super) fn supplied_answer(&mut self, request: &InputRequest) -> Option<Box<RawValue>> {
        let supplied = self.spec.supplied.take()?;
        let members = RawObject::of(&supplied).ok()?;
        let key = self.questions.free_key(&request.wanted_key);
        let response = members.member(&key).filter(|response| {
            input_response::check(request.kind, request.params.as_deref(), response).is_ok()
        });
        let mut left = b"{".to_vec();
        for (name, value) in members
            .iter()
            .filter(|(name, _)| response.is_none() || **name != *key)
        {
            object::push_member(&mut left, name, value.get().as_bytes());
        }
        left.push(b'}');
        self.spec.supplied = String::from_utf8(left)
            .ok()
            .and_then(|text| RawValue::from_string(text).ok());
        response.map(ToOwned::to_owned)
    }

    fn ask_again(&mut self, question: Question, why: &str) {
        self.rejected.push((question.key.clone(), why.to_owned()));
        self.questions.keep(question);
    }

    fn go_on(&mut self, now: Moment, goes_on: bool, seal: &dyn Seal) {
        if self.questions.is_empty() {
            self.run(now);
            if let Upstream::ToRun(why) = self.upstream {
                self.upstream = Upstream::Away;
                self.run_anew(why);
            }
        } else if goes_on {
            // The server may ask more now that it was answered: one round for all of it.
            self.run(now);
            self.gather(now);
        } else {
            self.ask(now, seal);
        }
    }

    fn run_anew(&mut self, why: Anew) {
        match why {
            Anew::Visited { is_declined: true } => {
                self.finish(self.declined(), SessionFate::Reuse);
            }
            Anew::Visited { is_declined: false } => {
                self.reruns += 1;
                self.actions.push_back(Action::Start(why));
            }
            Anew::Lost => self.replay_now(),
        }
    }

    /// The end of a call whose visit the person refused. A tool's own way to say so is an error result.
    fn declined(&self) -> Reply {
        const TEXT: &str =
            "The visit that the server asked for was declined, so the request was not run.";
        if self.spec.method != Method::ToolsCall {
            return failed(TEXT, self.ran_before());
        }
        let text = json!({"content": [{"type": "text", "text": TEXT}], "isError": true});
        let info = self.identity.server_info.as_deref();
        serde_json::value::to_raw_value(&text)
            .ok()
            .and_then(|raw| result::complete(Method::ToolsCall, &raw, info, None).ok())
            .map_or_else(
                || failed(TEXT, false),
                |result| Reply::Result(result.into()),
            )
    }
}
