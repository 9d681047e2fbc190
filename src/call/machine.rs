//! The state machine of a call: what the server does to it.
//!
//! Phases: running → gathering → parked → running …, then ended. How its client is asked is in `asking`, what a
//! re-issue does in `reissue`, the ways out are in `ending`.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::event::{Action, Event, Leg, LegId, Origin, SessionFate};
use super::heard::{Heard, Recall};
use super::question::Questions;
use super::reply::{Loss, Reply, failed, missing};
use super::rounds::{Round, Rounds};
use super::{CallLimits, Moment, Seal};
use crate::translate::capability::{Capability, ClientCapabilities};
use crate::translate::discover::ServerIdentity;
use crate::translate::input_request::{self, InputRequest, NotAsked};
use crate::translate::result::{self, CacheHints};
use crate::translate::{self, notification};
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::{self, Message, ServerId, UpstreamId};
use crate::wire::legacy;
use crate::wire::modern::Method;

/// What a call is about.
#[derive(Debug)]
pub struct CallSpec {
    /// The id and progress token of its request towards the server.
    pub id: UpstreamId,
    /// What the client asked for.
    pub method: Method,
    /// What the client can be asked.
    pub capabilities: ClientCapabilities,
    /// Caching hints of its result, where the method has them.
    pub hints: Option<CacheHints>,
    /// The raw `inputResponses` that its first leg already brought.
    pub supplied: Option<Box<RawValue>>,
}

/// Where a call stands.
#[derive(Debug)]
pub(super) enum Phase {
    /// The server works; it is given up on when it stays silent beyond `silent_until`.
    Running { silent_until: Moment },
    /// Questions came; they are asked at `until`, or earlier than `latest` if others follow.
    Gathering { until: Moment, latest: Moment },
    /// The client was asked; without a re-issue the call is abandoned at `until`.
    Parked { until: Moment },
    /// Over.
    Ended,
}

/// What a call has of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upstream {
    /// No session: not yet, or not any more.
    Away,
    /// A session, on which the server works on the request or waits for answers.
    Live,
    /// The server ended its call and wants visits first: the re-issue runs the request anew, unless a visit was
    /// declined. Then it would only ask again.
    ToRerun { is_declined: bool },
}

/// One call. See the [module](super) for what it guarantees.
#[derive(Debug)]
pub struct Call {
    pub(super) spec: CallSpec,
    pub(super) limits: Arc<CallLimits>,
    pub(super) phase: Phase,
    pub(super) legs: Vec<Leg>,
    pub(super) questions: Questions,
    /// What the server asked on the present session.
    pub(super) heard: Heard,
    pub(super) rounds: Rounds,
    /// Why answers to questions that are asked again were not taken.
    pub(super) rejected: Vec<(Box<str>, String)>,
    /// The roots this call's client gave, for a server that asks again.
    pub(super) roots: Option<Box<str>>,
    /// The latest progress that no leg has heard.
    pub(super) progress: Option<Box<RawValue>>,
    /// When the legs are answered with a state alone, so that they do not last longer than clients and
    /// middleboxes bear.
    pub(super) stretch_at: Option<Moment>,
    /// Until when a call without a leg waits for a repeat.
    pub(super) grace: Option<Moment>,
    /// Who the server is; known once a session is leased.
    pub(super) identity: Arc<ServerIdentity>,
    /// What the call has of its server.
    pub(super) upstream: Upstream,
    /// The request went up: the server may have started it.
    pub(super) has_departed: bool,
    pub(super) reruns: u32,
    /// What the server is to say again of a call that was taken over.
    pub(super) recall: Recall,
    pub(super) actions: VecDeque<Action>,
}

impl Call {
    /// A call that is made on behalf of its first leg; it has no session yet.
    #[must_use]
    pub fn new(spec: CallSpec, limits: Arc<CallLimits>, leg: Leg, now: Moment) -> Self {
        let silent_until = now + limits.upstream_silence_max;
        let mut call = Self::idle(spec, limits, Phase::Running { silent_until });
        call.legs.push(leg);
        call.begin_leg(now);
        call
    }

    /// A call to which nothing has happened yet.
    pub(super) fn idle(spec: CallSpec, limits: Arc<CallLimits>, phase: Phase) -> Self {
        Self {
            spec,
            limits,
            phase,
            legs: Vec::new(),
            questions: Questions::default(),
            heard: Heard::default(),
            rounds: Rounds::default(),
            rejected: Vec::new(),
            roots: None,
            progress: None,
            grace: None,
            identity: Arc::default(),
            upstream: Upstream::Away,
            has_departed: false,
            reruns: 0,
            recall: Recall::default(),
            actions: VecDeque::new(),
            stretch_at: None,
        }
    }

    /// A leg begins to wait for the server.
    pub(super) fn begin_leg(&mut self, now: Moment) {
        let may_be_stretched =
            self.spec.method.may_ask() && self.rounds.next().0 <= self.limits.stretch_rounds_max;
        self.stretch_at = may_be_stretched.then(|| now + self.limits.leg_max);
    }

    /// The id of its current request towards the server.
    #[must_use]
    pub fn id(&self) -> UpstreamId {
        self.spec.id
    }

    /// Whether its client may be asked anything.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        self.spec.method.may_ask()
    }

    /// Whether it waits for a re-issue.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        matches!(self.phase, Phase::Parked { .. })
    }

    /// Whether nothing is asked at the moment: the server is at work, or could be.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Whether a round that was asked is later than all that is known here.
    #[must_use]
    pub fn is_behind(&self, round: Round) -> bool {
        self.rounds.next() <= round
    }

    /// When [`Event::Timer`] is due, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        let phase = match self.phase {
            Phase::Running { silent_until } => Some(silent_until),
            Phase::Gathering { until, .. } | Phase::Parked { until } => Some(until),
            Phase::Ended => None,
        }?;
        let stretch = self.stretch_at.filter(|_| self.is_running());
        let others = [self.grace, stretch].into_iter().flatten();
        Some(others.fold(phase, Moment::min))
    }

    /// The next thing to do, in order.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The `ListRootsResult` that its client gave.
    #[must_use]
    pub fn roots(&self) -> Option<&str> {
        self.roots.as_deref()
    }

    /// What it is about.
    #[must_use]
    pub fn method(&self) -> Method {
        self.spec.method
    }

    /// What re-issues of the ended call still have to be told.
    pub fn take_rounds(&mut self) -> Rounds {
        std::mem::take(&mut self.rounds)
    }

    /// Takes an event in; [`Call::next_action`] says what to do about it.
    pub fn handle(&mut self, now: Moment, event: Event<'_>, seal: &dyn Seal) {
        if self.is_ended() {
            return;
        }
        match event {
            Event::Leased(identity) => {
                self.identity = identity;
                self.heard.forget();
                self.upstream = Upstream::Live;
                // On a session that was forgotten the request was not read.
                self.has_departed = false;
                // A client that was told to come back meanwhile has to: the request waits for it.
                if !self.is_parked() {
                    self.run(now);
                }
            }
            Event::Departed => self.has_departed = true,
            Event::Server(origin, message) => self.on_server(now, origin, message, seal),
            // What may have run may still be running: the server is told, for what that is worth.
            Event::Lost(
                loss @ Loss::Failed {
                    may_have_run: true, ..
                },
            ) => self.abandon(loss.into()),
            Event::Lost(loss) => self.finish(loss.into(), SessionFate::Retire),
            Event::Refused(reply) => self.finish(reply, SessionFate::Retire),
            Event::Reissue(leg, answers) => self.on_reissue(now, leg, answers, seal),
            Event::LegGone(leg) => self.on_leg_gone(now, leg),
            Event::Timer => self.on_timer(now, seal),
            Event::Abandon(why) => self.give_up(why),
            Event::LetGo => self.let_go(),
        }
    }

    fn on_server(&mut self, now: Moment, origin: Origin, message: Message<'_>, seal: &dyn Seal) {
        if let Phase::Running { silent_until } = &mut self.phase {
            *silent_until = now + self.limits.upstream_silence_max;
        }
        match message {
            Message::Request { id, method, params } => match ServerId::new(id) {
                Some(id) => self.on_request(now, origin, id, &method, params),
                None => self.tell(jsonrpc::unusable_id(id)),
            },
            // What came before the request is about something else, unless it takes back a question that came before.
            Message::Notification { method, .. }
                if origin == Origin::Stray && method != legacy::CANCELLED => {}
            Message::Notification { method, params } => self.on_notification(now, &method, params),
            Message::Result { id, result } if self.spec.id.matches(id) => self.on_result(result),
            // Some servers answer a refused request under another id or none; on the call's own exchange
            // there is only one request it can be about.
            Message::Error { id, error }
                if origin == Origin::Exchange || id.is_some_and(|id| self.spec.id.matches(id)) =>
            {
                self.on_error(now, error, seal);
            }
            Message::Result { .. } | Message::Error { .. } => {
                tracing::warn!("a response to a request that was not made is ignored");
            }
        }
    }

    fn on_request(
        &mut self,
        now: Moment,
        origin: Origin,
        id: ServerId,
        method: &str,
        params: Option<&RawValue>,
    ) {
        if method == legacy::PING {
            return self.tell(jsonrpc::result(&id, "{}"));
        }
        // A pong too many does no harm, one that is missing may.
        let is_known = self.questions.knows(&id) || self.recall.was_settled(&id);
        if is_known || !self.heard.is_new(&id, method, params) {
            return;
        }
        let request = match InputRequest::parse(method, params) {
            Ok(request) => request,
            Err(NotAsked::UnknownMethod) => {
                return self.refuse(
                    &id,
                    error::METHOD_NOT_FOUND,
                    "the client does not serve this method",
                );
            }
            Err(NotAsked::Malformed(why)) => return self.refuse(&id, error::INVALID_PARAMS, why),
        };
        if !self.spec.method.may_ask() {
            return self.refuse(
                &id,
                error::INVALID_REQUEST,
                "nothing can be asked during this request",
            );
        }
        if let Some(key) = self.recall.take(&id) {
            return self.questions.restore(id, key, request);
        }
        if !self.spec.capabilities.has(request.needs) {
            return self.cannot_ask(&id, &request);
        }
        if let Some(roots) = self
            .roots
            .as_deref()
            .filter(|_| method == legacy::ROOTS_LIST)
        {
            return self
                .actions
                .push_back(Action::Answer(jsonrpc::result(&id, roots)));
        }
        if self.questions.len() >= self.limits.questions_max {
            return self.refuse(
                &id,
                error::INTERNAL_ERROR,
                "too many questions are open at once",
            );
        }
        // What was there before the request cannot be what its answers were brought along for.
        if origin != Origin::Stray
            && let Some(response) = self.supplied_answer(&request)
        {
            return self.take_answer_of(&id, request.kind, &response);
        }
        self.questions.open(Some(id), request);
        self.gather(now);
    }

    fn on_notification(&mut self, now: Moment, method: &str, params: Option<&RawValue>) {
        match method {
            legacy::CANCELLED => {
                let Some(id) = notification::cancelled_id(params) else {
                    return;
                };
                self.recall.withdraw(id);
                let withdrawn = self.questions.withdraw(id) && self.questions.is_empty();
                if withdrawn && matches!(self.phase, Phase::Gathering { .. }) {
                    self.run(now);
                }
            }
            legacy::PROGRESS if notification::is_progress_of(params, self.spec.id) => {
                self.progress = params.map(ToOwned::to_owned);
                self.tell_progress();
            }
            legacy::MESSAGE => {
                let (Some(level), Some(params)) = (notification::level(params), params) else {
                    return;
                };
                for leg in &self.legs {
                    if leg.log_level.is_some_and(|wanted| wanted <= level) {
                        let message = notification::message(params).into();
                        self.actions.push_back(Action::Notify(leg.id, message));
                    }
                }
            }
            // `notifications/elicitation/complete` is consumed: the modern era has no such message.
            // List changes and resource updates concern the session, not a call.
            _ => {}
        }
    }

    /// Tells the latest progress to the legs that want it; without any leg it waits for the next one.
    pub(super) fn tell_progress(&mut self) {
        if self.legs.is_empty() {
            return;
        }
        let Some(progress) = self.progress.take() else {
            return;
        };
        for leg in &self.legs {
            let told = leg.progress_token.as_deref();
            if let Some(message) = told.and_then(|token| notification::progress(&progress, token)) {
                self.actions
                    .push_back(Action::Notify(leg.id, message.into()));
            }
        }
    }

    fn on_result(&mut self, result: &RawValue) {
        // A retry depends on answers that are no part of the cache key: it must not be cached, yet the
        // schema wants the hints on every complete result (server/utilities/caching). So: stale at once.
        let stale = self.rounds.was_asked().then(CacheHints::default);
        let hints = self.spec.hints.map(|hints| stale.unwrap_or(hints));
        let info = self.identity.server_info.as_deref();
        let reply = match result::complete(self.spec.method, result, info, hints) {
            Ok(result) => Reply::Result(result.into()),
            Err(refusal) => failed(&refusal.to_string(), self.has_departed),
        };
        self.complete(reply);
    }

    fn on_error(&mut self, now: Moment, error: ErrorObject, seal: &dyn Seal) {
        let Some(requests) =
            input_request::from_url_error(&error).filter(|_| self.spec.method.may_ask())
        else {
            return self.complete(Reply::error(translate::error::to_modern(error)));
        };
        if !self.spec.capabilities.has(Capability::ElicitationUrl) {
            return self.complete(missing(Capability::ElicitationUrl));
        }
        if requests.len() > self.limits.questions_max {
            return self.complete(failed("the server asks for too many visits at once", false));
        }
        if self.is_parked() {
            // Its client is being asked something else and cannot be asked this on top.
            return self.complete(failed(
                "the server gave up waiting and asks for a visit first",
                false,
            ));
        }
        if self.reruns >= self.limits.reruns_max {
            return self.complete(failed(
                "the server asks for the same visit again and again",
                false,
            ));
        }
        let fate = self.fate();
        self.questions.take_all();
        for request in requests {
            self.questions.open(None, request);
        }
        self.upstream = Upstream::ToRerun { is_declined: false };
        self.has_departed = false;
        self.actions.push_back(Action::Release(fate));
        self.ask(now, seal);
    }

    pub(super) fn run(&mut self, now: Moment) {
        self.phase = Phase::Running {
            silent_until: now + self.limits.upstream_silence_max,
        };
    }

    fn on_leg_gone(&mut self, now: Moment, leg: LegId) {
        let before = self.legs.len();
        self.legs.retain(|attached| attached.id != leg);
        if self.legs.len() == before || !self.legs.is_empty() {
            return;
        }
        if self.rounds.was_answered() {
            self.grace = Some(now + self.limits.leg_grace);
        } else {
            self.give_up("the client went away");
        }
    }

    fn on_timer(&mut self, now: Moment, seal: &dyn Seal) {
        if self.grace.is_some_and(|grace| grace <= now) {
            return self.give_up("the client went away");
        }
        match self.phase {
            Phase::Running { .. } if self.stretch_at.is_some_and(|at| at <= now) => {
                self.stretch(now, seal);
            }
            Phase::Running { silent_until } if silent_until <= now => {
                self.give_up("the server did not answer in time");
            }
            Phase::Gathering { until, .. } if until <= now => self.ask(now, seal),
            Phase::Parked { until } if until <= now => {
                self.give_up("nobody answered in time");
            }
            Phase::Running { .. }
            | Phase::Gathering { .. }
            | Phase::Parked { .. }
            | Phase::Ended => {}
        }
    }

    pub(super) fn refuse(&mut self, id: &ServerId, code: i64, why: &str) {
        self.tell(jsonrpc::error(id, &ErrorObject::new(code, why)));
    }

    pub(super) fn tell(&mut self, message: Vec<u8>) {
        self.actions.push_back(Action::Tell(message));
    }
}
