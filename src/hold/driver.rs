//! The driver of one call: feeds the state machine from its session, its legs and the clock, and carries its
//! actions out.
//!
//! The first leg drives its call on its own task, so that a plain call spawns nothing: dropped there (its client
//! went away), the driver cancels the call upstream. A call that streams or is held moves to a task of its own,
//! where re-issues reach it through its mailbox.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::backend::Backend;
use super::holdseal::HoldSeal;
use super::order::{Answer, Order, UpstreamRequest};
use super::{LegEvent, LegSink, Reissue, leg_channel};
use crate::call::{Answers, Call, CallSpec, Event, LegId, Loss, Origin};
use crate::observe::GaugeGuard;
use crate::session::{Caller, Lease};
use crate::upstream::UpstreamError;
use crate::upstream::streamable_http::Exchange;
use crate::wire::jsonrpc::{self, Message};
use crate::wire::object::RawObject;

mod actions;
mod waits;

use waits::{general_message, in_flight, leg_gone, next_message, next_reissue, sleep_until};

type Sending = Pin<Box<dyn Future<Output = Sent> + Send>>;

/// A one-way message to the server, and whether the call can go on without it.
struct Outgoing {
    message: Bytes,
    is_needed: bool,
}

/// How sending it went.
struct Sent {
    result: Result<(), UpstreamError>,
    was_needed: bool,
}

struct Driver {
    backend: Arc<Backend>,
    caller: Arc<Caller>,
    call: Call,
    seal: HoldSeal,
    request: UpstreamRequest,
    lease: Option<Lease>,
    exchange: Option<Exchange>,
    /// The request has yet to go up.
    is_due: bool,
    /// The server sent something for this request: it has started.
    has_started: bool,
    /// Its session was replaced once: a server that forgets at once again will not be tried a third time.
    is_replaced: bool,
    outbox: VecDeque<Outgoing>,
    sending: Option<Sending>,
    /// The leg on whose task the driver runs, with what it has yet to hear.
    first: Option<(LegId, VecDeque<LegEvent>)>,
    legs: Vec<(LegId, LegSink)>,
    mailbox: Option<mpsc::Receiver<Reissue>>,
    held: Option<GaugeGuard>,
    _counted: (GaugeGuard, TaskTrackerToken),
}

/// What happened next to a call.
enum Happened {
    Message(Origin, Bytes),
    ExchangeOver(Option<UpstreamError>),
    Sent(Sent),
    Reissued(Box<Reissue>),
    LegGone(LegId),
    Timer,
    Stop,
}

/// Makes a call on behalf of its first leg.
///
/// Not to be cancelled and resumed: dropping the future means that the client went away.
pub async fn make(backend: &Arc<Backend>, order: Order) -> Answer {
    let lease = match backend.lease(&order.caller, order.method).await {
        Ok(lease) => lease,
        Err(reply) => return Answer::Reply(reply),
    };
    if let Some(level) = order.leg.log_level {
        lease.want_logs(level).await;
    }
    let mut driver = Driver::new(Arc::clone(backend), order, lease);
    driver.hear_strays();
    loop {
        let happened = driver.happens_here().await;
        driver.apply(happened).await;
        let Some((_, heard)) = &mut driver.first else {
            continue;
        };
        match heard.pop_front() {
            None => {}
            Some(LegEvent::Note(first)) => return driver.stream(first),
            Some(LegEvent::Reply(reply)) => {
                driver.first = None;
                if !driver.call.is_ended() {
                    driver.detach();
                }
                return Answer::Reply(reply);
            }
        }
    }
}

impl Driver {
    fn new(backend: Arc<Backend>, order: Order, lease: Lease) -> Self {
        let Order {
            method,
            caller,
            request,
            leg,
            params,
            responses,
        } = order;
        let spec = CallSpec {
            id: request.id,
            method,
            capabilities: caller.key.capabilities.clone(),
            identity: Arc::clone(lease.identity()),
            hints: method.is_cacheable().then_some(backend.hints),
            supplied: responses,
        };
        let first = Some((leg.id, VecDeque::new()));
        let call = Call::new(spec, Arc::clone(&backend.limits), leg, backend.clock.now());
        Self {
            seal: HoldSeal::new(&backend, method, caller.key.principal, params),
            _counted: (backend.metrics.calls.count(), backend.calls.token()),
            exchange: None,
            is_due: true,
            lease: Some(lease),
            backend,
            caller,
            call,
            request,
            has_started: false,
            is_replaced: false,
            outbox: VecDeque::new(),
            sending: None,
            first,
            legs: Vec::new(),
            mailbox: None,
            held: None,
        }
    }

    /// The next thing that happens, on the first leg's own task. Cancel-safe.
    async fn happens_here(&mut self) -> Happened {
        let deadline = self
            .call
            .deadline()
            .map(|moment| self.backend.clock.instant(moment));
        tokio::select! {
            biased;
            () = self.backend.stop.cancelled() => Happened::Stop,
            sent = in_flight(&mut self.sending) => Happened::Sent(sent),
            happened = next_message(&mut self.exchange) => happened,
            message = general_message(&mut self.lease) => Happened::Message(Origin::Session, message),
            () = sleep_until(deadline) => Happened::Timer,
        }
    }

    /// The next thing that happens, on a task of its own. Cancel-safe.
    async fn happens(&mut self) -> Happened {
        let deadline = self
            .call
            .deadline()
            .map(|moment| self.backend.clock.instant(moment));
        tokio::select! {
            biased;
            () = self.backend.stop.cancelled() => Happened::Stop,
            () = sleep_until(deadline) => Happened::Timer,
            leg = leg_gone(&self.legs) => Happened::LegGone(leg),
            reissue = next_reissue(&mut self.mailbox) => Happened::Reissued(Box::new(reissue)),
            sent = in_flight(&mut self.sending) => Happened::Sent(sent),
            happened = next_message(&mut self.exchange) => happened,
            message = general_message(&mut self.lease) => Happened::Message(Origin::Session, message),
        }
    }

    async fn apply(&mut self, happened: Happened) {
        match happened {
            Happened::Message(origin, message) => {
                self.has_started |= origin == Origin::Exchange;
                for message in jsonrpc::batch(message) {
                    match Message::parse(&message) {
                        Ok(message) => self.feed(Event::Server(origin, message)),
                        Err(error) => {
                            let backend = self.backend.name.as_str();
                            tracing::warn!(backend, %error, "a message of the server is not understood");
                        }
                    }
                }
            }
            Happened::ExchangeOver(Some(UpstreamError::SessionGone))
                if !self.has_started && !self.is_replaced =>
            {
                self.replace_session().await;
            }
            Happened::ExchangeOver(error) => self.lose(error.unwrap_or(UpstreamError::Ended)),
            Happened::Sent(Sent { result, was_needed }) => {
                self.sending = None;
                match result {
                    Err(error) if was_needed => self.lose(error),
                    Err(error) => tracing::debug!(%error, "the server did not take a courtesy"),
                    Ok(()) => {}
                }
            }
            Happened::Reissued(reissue) => self.reissue(*reissue),
            Happened::LegGone(leg) => {
                self.legs.retain(|(attached, _)| *attached != leg);
                self.feed(Event::LegGone(leg));
            }
            Happened::Timer => self.feed(Event::Timer),
            Happened::Stop => self.feed(Event::Abandon("the gateway is shutting down")),
        }
        if self.carry_out() {
            self.start_anew().await;
        }
    }

    /// The call cannot go on. What is known of its request beats what the error alone can say.
    fn lose(&mut self, error: UpstreamError) {
        let was_sent = self.exchange.as_ref().is_some_and(Exchange::was_sent);
        let loss = match error.into_loss(&self.backend.name) {
            Loss::Failed {
                message,
                may_have_run,
            } => {
                let may_have_run = self.has_started || (was_sent && may_have_run);
                Loss::Failed {
                    message,
                    may_have_run,
                }
            }
            challenge @ Loss::Challenge(_) => challenge,
        };
        self.feed(Event::Lost(loss));
    }

    fn feed(&mut self, event: Event<'_>) {
        self.call
            .handle(self.backend.clock.now(), event, &self.seal);
    }

    /// Takes in the questions that waited on the session, then starts.
    fn hear_strays(&mut self) {
        let strays = self
            .lease
            .as_mut()
            .map(Lease::take_strays)
            .unwrap_or_default();
        for stray in strays {
            if let Ok(message) = Message::parse(&stray) {
                self.feed(Event::Server(Origin::Session, message));
            }
        }
        self.carry_out();
    }

    fn reissue(&mut self, reissue: Reissue) {
        let Reissue {
            leg,
            round,
            digest,
            responses,
            rerun,
            caller,
            sink,
        } = reissue;
        self.legs.push((leg.id, sink));
        self.caller = caller;
        if let Some(lease) = &self.lease {
            lease.renew(&self.caller);
        }
        let responses = RawObject::parse(&responses).unwrap_or_default();
        let capabilities = self.caller.key.capabilities.clone();
        let rerun_id = rerun.as_ref().map(|request| request.id);
        let answers = Answers {
            round,
            digest,
            responses,
            capabilities,
            rerun_id,
        };
        self.feed(Event::Reissue(leg, answers));
        if let Some(request) = rerun.filter(|request| request.id == self.call.id()) {
            self.request = request;
        }
    }

    /// The server refused the request unread because it has forgotten the session: the same request goes up
    /// once more, on another one. What it sent before is nothing, so nothing can happen twice.
    async fn replace_session(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.mark_gone();
        }
        self.exchange = None;
        self.is_replaced = true;
        if self.start_anew().await {
            tracing::debug!(
                backend = self.backend.name,
                "a forgotten session is replaced"
            );
        }
    }

    async fn start_anew(&mut self) -> bool {
        match self.backend.lease(&self.caller, self.call.method()).await {
            Ok(lease) => {
                self.exchange = Some(lease.request(self.request.body.clone()));
                self.lease = Some(lease);
                true
            }
            Err(reply) => {
                self.feed(Event::Refused(reply));
                self.carry_out();
                false
            }
        }
    }

    /// Goes on as a stream to the first leg, on a task of its own.
    fn stream(mut self, first: Bytes) -> Answer {
        let (sink, rest) = leg_channel();
        if let Some((leg, heard)) = self.first.take() {
            self.legs.push((leg, sink));
            for event in heard {
                match event {
                    LegEvent::Note(note) => self.notify(leg, note),
                    LegEvent::Reply(reply) => self.reply(leg, reply),
                }
            }
        }
        self.detach();
        Answer::Stream { first, rest }
    }

    fn detach(self) {
        let tasks = self.backend.tasks.clone();
        tasks.spawn(self.run());
    }

    async fn run(mut self) {
        while !self.call.is_ended() {
            let happened = self.happens().await;
            self.apply(happened).await;
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.call.is_ended() {
            // Dropped on its first leg's task: the client went away.
            self.feed(Event::Abandon("the client went away"));
            self.carry_out();
        }
        self.leave_outcome();
    }
}
