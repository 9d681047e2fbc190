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
use tracing::Instrument;

use super::backend::Backend;
use super::holdseal::HoldSeal;
use super::order::{Answer, Order, UpstreamRequest, crowded};
use super::{LegEvent, LegSink, Reissue, leg_channel};
use crate::cache::results::Place;
use crate::cache::tools::Unchecked;
use crate::call::{Answers, Call, CallSpec, Event, LegId, Loss, Origin, Reply};
use crate::observe::{GaugeGuard, chain};
use crate::session::{Caller, Lease};
use crate::translate::subscription::Change;
use crate::upstream::{Exchange, UpstreamError};
use crate::wire::garbled;
use crate::wire::jsonrpc::{self, Message};
use crate::wire::legacy;
use crate::wire::modern::LogLevel;
use crate::wire::object::RawObject;

mod actions;
mod waits;

use waits::{Inputs, leg_gone, next_reissue, sleep_until};

/// Legs that may wait for one call at once. A call has one client: more than a few are repeats.
const LEGS_MAX: usize = 64;

type Sending = Pin<Box<dyn Future<Output = Sent> + Send>>;
type Leasing = Pin<Box<dyn Future<Output = Result<Lease, Reply>> + Send>>;

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

/// What a call has of its server at the moment.
enum Upstream {
    /// A session is on its way.
    Leasing(Leasing),
    /// It is here; the request waits until the questions that were there before it are answered.
    Due(Lease),
    /// The request went up.
    Open {
        lease: Lease,
        exchange: Exchange,
        /// The server sent something since: it has the request.
        has_started: bool,
    },
    /// Nothing: the call was answered, or ends.
    Over,
}

impl Upstream {
    fn lease_mut(&mut self) -> Option<&mut Lease> {
        match self {
            Self::Due(lease) | Self::Open { lease, .. } => Some(lease),
            Self::Leasing(_) | Self::Over => None,
        }
    }

    fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Due(lease) | Self::Open { lease, .. } => Some(lease),
            Self::Leasing(_) | Self::Over => None,
        }
    }
}

struct Driver {
    backend: Arc<Backend>,
    caller: Arc<Caller>,
    call: Call,
    seal: HoldSeal,
    request: UpstreamRequest,
    /// What has to be checked before the request goes up.
    unchecked: Option<Box<Unchecked>>,
    /// The request is for a list of tools from its beginning, made at this epoch.
    lists_tools: Option<u64>,
    /// Where its result is to be remembered.
    place: Option<Place>,
    /// From which level the leg that makes the request wants log messages.
    log_level: Option<LogLevel>,
    upstream: Upstream,
    /// Its session was replaced once: a server that forgets at once again will not be tried a third time.
    is_replaced: bool,
    /// The server was given new roots that it asked for by itself: it may take them in before the request goes up.
    takes_in_roots: bool,
    /// A message was not understood: it was said once.
    has_complained: bool,
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
    Leased(Result<Lease, Reply>),
    Message(Origin, Bytes),
    ExchangeOver(Option<UpstreamError>),
    SessionOver(UpstreamError),
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
    let mut driver = Driver::new(Arc::clone(backend), order);
    loop {
        let happened = driver.happens().await;
        driver.apply(happened);
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
    fn new(backend: Arc<Backend>, order: Order) -> Self {
        let Order {
            method,
            caller,
            request,
            leg,
            params,
            unchecked,
            lists_tools,
            place,
            responses,
        } = order;
        let spec = CallSpec {
            id: request.id,
            method,
            capabilities: caller.key.capabilities.clone(),
            hints: method.is_cacheable().then_some(backend.hints),
            supplied: responses,
        };
        let (first, log_level) = (Some((leg.id, VecDeque::new())), leg.log_level);
        let call = Call::new(spec, Arc::clone(&backend.limits), leg, backend.clock.now());
        let mut driver = Self {
            seal: HoldSeal::new(&backend, method, caller.key.principal, params),
            _counted: (backend.metrics.calls.count(), backend.calls.token()),
            upstream: Upstream::Over,
            backend,
            caller,
            call,
            request,
            unchecked,
            lists_tools,
            place,
            log_level,
            is_replaced: false,
            takes_in_roots: false,
            has_complained: false,
            outbox: VecDeque::new(),
            sending: None,
            first,
            legs: Vec::new(),
            mailbox: None,
            held: None,
        };
        driver.begin();
        driver
    }

    /// Goes for a session; the request goes up when it is there.
    fn begin(&mut self) {
        let (backend, caller) = (Arc::clone(&self.backend), Arc::clone(&self.caller));
        let (method, log_level) = (self.call.method(), self.log_level);
        let unchecked = self.unchecked.take();
        self.upstream = Upstream::Leasing(Box::pin(async move {
            let mut lease = backend.lease(&caller, method, log_level).await?;
            if let Some(call) = unchecked {
                let tools = &backend.tools;
                tools.read_and_check(&lease, &caller.key, &call).await?;
            }
            if log_level.is_some() {
                lease.want_logs(log_level).await;
            }
            Ok(lease)
        }));
    }

    /// The next thing that happens. Cancel-safe.
    async fn happens(&mut self) -> Happened {
        let deadline = self
            .call
            .deadline()
            .map(|moment| self.backend.clock.instant(moment));
        let mut inputs = Inputs::of(&self.call, &mut self.upstream, &mut self.sending);
        // Time and clients come before the server: one that never stops talking must not be all that is heard.
        tokio::select! {
            biased;
            () = self.backend.stop.cancelled() => Happened::Stop,
            () = sleep_until(deadline) => Happened::Timer,
            leg = leg_gone(&self.legs) => Happened::LegGone(leg),
            reissue = next_reissue(&mut self.mailbox) => Happened::Reissued(Box::new(reissue)),
            happened = inputs.next() => happened,
        }
    }

    fn apply(&mut self, happened: Happened) {
        match happened {
            Happened::Leased(Ok(lease)) => self.leased(lease),
            Happened::Leased(Err(reply)) => {
                self.upstream = Upstream::Over;
                self.feed(Event::Refused(reply));
            }
            Happened::Message(origin, message) => self.hear(origin, message),
            Happened::ExchangeOver(error) => self.exchange_over(error),
            Happened::SessionOver(error) => self.lose(error),
            Happened::Sent(Sent { result, was_needed }) => {
                self.sending = None;
                match result {
                    Err(error) if was_needed => self.lose(error),
                    Err(error) => {
                        let error = chain(&error);
                        tracing::debug!(error, "the server did not take a courtesy");
                    }
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
        self.carry_out();
    }

    /// Takes in the questions that waited on the session; unless they have to be answered first, the request goes
    /// up next.
    fn leased(&mut self, mut lease: Lease) {
        // A re-issue may have come since it was asked for.
        lease.renew(&self.caller);
        if lease.wanted_logs() != self.log_level {
            let settled = lease.want_logs(self.log_level);
            self.send_after(settled);
        }
        let strays = lease.take_strays();
        self.feed(Event::Leased(Arc::clone(lease.identity())));
        self.upstream = Upstream::Due(lease);
        for stray in strays {
            self.hear(Origin::Stray, stray);
        }
    }

    fn hear(&mut self, origin: Origin, message: Bytes) {
        if let Upstream::Open { has_started, .. } = &mut self.upstream {
            *has_started = true;
            // It will not be sent again, and may be large.
            self.request.body = Bytes::new();
            self.request.headers.clear();
        }
        for message in jsonrpc::batch(message) {
            match Message::parse(&message) {
                Ok(Message::Notification { method, params })
                    if let Some(change) = Change::parse(&method, params) =>
                {
                    if let Some(lease) = self.upstream.lease() {
                        lease.publish(&change);
                    }
                }
                Ok(message) => {
                    self.note_roots(origin, &message);
                    if let (Some(epoch), Message::Result { id, result }) =
                        (self.lists_tools, &message)
                        && self.call.id().matches(id)
                    {
                        self.backend.tools.passed(&self.caller.key, epoch, result);
                    }
                    self.feed(Event::Server(origin, message));
                }
                Err(error) => self.misheard(&message, &error),
            }
        }
    }

    fn note_roots(&self, origin: Origin, message: &Message<'_>) {
        if let Message::Request { method, .. } = message
            && *method == legacy::ROOTS_LIST
            && let Some(lease) = self.upstream.lease()
        {
            match self.call.may_ask() {
                true => lease.was_asked_for_roots(origin),
                false => lease.refuses_roots(),
            }
        }
    }

    /// Nonsense is passed over, unless it is the answer that the call waits for.
    fn misheard(&mut self, message: &[u8], error: &jsonrpc::NotAMessage) {
        self.backend.metrics.misheard.inc();
        let (backend, error) = (self.backend.name.as_str(), chain(error));
        let session = self.upstream.lease().map(Lease::number);
        if std::mem::replace(&mut self.has_complained, true) {
            tracing::debug!(
                backend,
                session,
                error,
                "a message of the server is not understood"
            );
        } else {
            tracing::warn!(
                backend,
                session,
                error,
                "a message of the server is not understood"
            );
        }
        if garbled::answered(message) == Some(self.call.id()) {
            self.feed(Event::Lost(Loss::Failed {
                message: "the server's answer is not understood".to_owned(),
                may_have_run: true,
            }));
        }
    }

    fn exchange_over(&mut self, error: Option<UpstreamError>) {
        if matches!(error, Some(UpstreamError::SessionGone))
            && !self.is_replaced
            && let Upstream::Open {
                lease,
                has_started: false,
                ..
            } = &self.upstream
        {
            // The server refused the request unread because it has forgotten the session: the same request goes
            // up once more, on another one. What it sent before is nothing, so nothing can happen twice.
            lease.mark_gone();
            tracing::debug!(
                backend = self.backend.name,
                "a forgotten session is replaced"
            );
            self.is_replaced = true;
            return self.begin();
        }
        self.lose(error.unwrap_or(UpstreamError::Ended));
    }

    /// The call cannot go on. What is known of its request beats what the error alone can say.
    fn lose(&mut self, error: UpstreamError) {
        let (was_sent, has_started) = match &self.upstream {
            Upstream::Open {
                exchange,
                has_started,
                ..
            } => (exchange.was_sent(), *has_started),
            Upstream::Leasing(_) | Upstream::Due(_) | Upstream::Over => (false, false),
        };
        let loss = match error.to_loss(&self.backend.name) {
            Loss::Failed {
                message,
                may_have_run,
            } => {
                let may_have_run = has_started || (was_sent && may_have_run);
                Loss::Failed {
                    message,
                    may_have_run,
                }
            }
            challenge @ Loss::Challenge(_) => challenge,
        };
        self.backend.metrics.lost.inc();
        self.feed(Event::Lost(loss));
    }

    fn feed(&mut self, event: Event<'_>) {
        self.call
            .handle(self.backend.clock.now(), event, &self.seal);
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
        if self.legs.len() >= LEGS_MAX {
            // Without a receiver its client has gone.
            let _ = sink.reply.send(crowded());
            return;
        }
        self.legs.push((leg.id, sink));
        self.caller = caller;
        if let Some(lease) = self.upstream.lease_mut() {
            lease.renew(&self.caller);
            if self.log_level != leg.log_level {
                let settled = lease.want_logs(leg.log_level);
                self.send_after(settled);
            }
        }
        self.log_level = leg.log_level;
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
        tasks.spawn(self.run().in_current_span());
    }

    async fn run(mut self) {
        while !self.call.is_ended() {
            let happened = self.happens().await;
            self.apply(happened);
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
