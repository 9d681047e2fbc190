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
use super::order::{Again, Answer, Order, UpstreamRequest, crowded};
use super::seal::HoldId;
use super::{LegEvent, LegSink, Mail, Reissue, leg_channel};
use crate::cache::results::Place;
use crate::cache::tools::{Listing, Unchecked};
use crate::call::{Answers, Call, CallSpec, Event, LegId, Origin, Reply};
use crate::observe::{GaugeGuard, chain};
use crate::session::{Caller, Lease};
use crate::upstream::{Exchange, UpstreamError};
use crate::wire::modern::LogLevel;
use crate::wire::object::RawObject;

mod actions;
mod hearing;
mod recall;
mod waits;

use recall::Recall;
pub(super) use recall::TakenOver;
use waits::{Inputs, leg_gone, next_mail, sleep_until};

/// Legs that may wait for one call at once. A call has one client: more than a few are repeats.
const LEGS_MAX: usize = 64;

type Sending = Pin<Box<dyn Future<Output = Sent> + Send>>;
type Leasing = Pin<Box<dyn Future<Output = Result<Lease, NoLease>> + Send>>;

/// Why a call gets no session.
enum NoLease {
    /// There is none to be had.
    Refused(Reply),
    /// Another process has the call by now.
    Moved,
}

impl From<Reply> for NoLease {
    fn from(reply: Reply) -> Self {
        Self::Refused(reply)
    }
}

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

/// Whether the call stays with this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    Here,
    /// The process ends: the call is left to another as soon as what was noted as given has been given.
    Leaving,
    /// The same, of a call that was yet to hear where it stands: nothing is given any more.
    LeavingUnheard,
}

struct Driver {
    backend: Arc<Backend>,
    caller: Arc<Caller>,
    call: Call,
    seal: HoldSeal,
    request: UpstreamRequest,
    /// What it is made of, if it may have to run anew in this leg.
    again: Option<Box<Again>>,
    /// What has to be checked before the request goes up.
    unchecked: Option<Box<Unchecked>>,
    /// The request is for the list of tools from its beginning.
    listing: Option<Listing>,
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
    mailbox: Option<mpsc::Receiver<Mail>>,
    held: Option<GaugeGuard>,
    /// A call that was taken over hears first where it stands: before that no answer can be judged.
    recall: Option<Recall>,
    stay: Stay,
    _counted: (GaugeGuard, TaskTrackerToken),
}

/// What happened next to a call.
enum Happened {
    Leased(Result<Lease, NoLease>),
    Message(Origin, Bytes),
    ExchangeOver(Option<UpstreamError>),
    SessionOver(UpstreamError),
    Sent(Sent),
    Reissued(Box<Reissue>),
    Moved,
    Forgotten,
    NoMoreMail,
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
            listing,
            place,
            responses,
        } = order;
        let seal = HoldSeal::new(&backend, method, &caller, params.clone());
        let kept = seal.nothing_kept();
        let again = || Again {
            params,
            headers: request.headers.clone(),
            unchecked: None,
        };
        let again = kept.is_some().then(|| Box::new(again()));
        let spec = CallSpec {
            id: request.id,
            method,
            capabilities: caller.key.capabilities.clone(),
            hints: method.is_cacheable().then_some(backend.hints),
            supplied: responses,
            kept,
        };
        let (first, log_level) = (Some((leg.id, VecDeque::new())), leg.log_level);
        let call = Call::new(spec, Arc::clone(&backend.limits), leg, backend.clock.now());
        let mut driver = Self {
            seal,
            _counted: (backend.metrics.calls.count(), backend.calls.token()),
            upstream: Upstream::Over,
            backend,
            caller,
            call,
            request,
            again,
            unchecked,
            listing,
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
            recall: None,
            stay: Stay::Here,
        };
        driver.begin(None);
        driver
    }

    /// Goes for a session; the request goes up when it is there. A `hold` has to be this process' own still.
    fn begin(&mut self, hold: Option<HoldId>) {
        let (backend, caller) = (Arc::clone(&self.backend), Arc::clone(&self.caller));
        let (method, log_level) = (self.call.method(), self.log_level);
        let unchecked = self.unchecked.take();
        self.upstream = Upstream::Leasing(Box::pin(async move {
            if let Some(hold) = hold
                && backend.has_moved(hold).await
            {
                return Err(NoLease::Moved);
            }
            let mut lease = backend.lease(&caller, method, log_level).await?;
            if let Some(call) = unchecked {
                let tools = &backend.tools;
                tools.read_and_check(&lease, &caller, &call).await?;
            }
            if log_level.is_some() {
                lease.want_logs(log_level).await;
            }
            Ok(lease)
        }));
    }

    /// The next thing that happens. Cancel-safe.
    async fn happens(&mut self) -> Happened {
        let recall = self.recall.as_ref().map(Recall::deadline);
        let deadline = [self.call.deadline(), recall]
            .into_iter()
            .flatten()
            .min()
            .map(|moment| self.backend.clock.instant(moment));
        let reads_mail = self.recall.is_none() || self.stay != Stay::Here;
        let mut inputs = Inputs::of(&self.call, &mut self.upstream, &mut self.sending);
        // Time and clients come before the server: one that never stops talking must not be all that is heard.
        tokio::select! {
            biased;
            () = self.backend.stop.cancelled(), if self.stay == Stay::Here => Happened::Stop,
            () = sleep_until(deadline) => Happened::Timer,
            leg = leg_gone(&self.legs) => Happened::LegGone(leg),
            mail = next_mail(&mut self.mailbox), if reads_mail => mail,
            happened = inputs.next() => happened,
        }
    }

    fn apply(&mut self, happened: Happened) {
        match happened {
            Happened::Leased(Ok(lease)) => self.leased(lease),
            Happened::Leased(Err(NoLease::Moved)) => self.let_go(),
            Happened::Leased(Err(NoLease::Refused(reply))) => {
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
            Happened::Reissued(reissue) if self.stay == Stay::LeavingUnheard => {
                self.give_back(&reissue);
            }
            Happened::Reissued(reissue) => self.reissue(*reissue),
            Happened::Moved => self.moved(),
            Happened::Forgotten => self.note_again(),
            Happened::NoMoreMail => self.mailbox = None,
            Happened::LegGone(leg) => {
                self.legs.retain(|(attached, _)| *attached != leg);
                self.feed(Event::LegGone(leg));
            }
            Happened::Timer => self.time_has_come(),
            Happened::Stop => self.stop(),
        }
        self.carry_out();
        self.leave_when_done();
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
        self.seal.begins_session();
        self.feed(Event::Leased(Arc::clone(lease.identity())));
        self.upstream = Upstream::Due(lease);
        for stray in strays {
            self.hear(Origin::Stray, stray);
        }
    }

    fn feed(&mut self, event: Event<'_>) {
        self.call
            .handle(self.backend.clock.now(), event, &self.seal);
        let call = &self.call;
        self.seal.trail.settle(|id| call.is_open(id));
    }

    fn time_has_come(&mut self) {
        // The call may be stretched: its state says on what session.
        self.note_session();
        self.recall_in_time();
        // A question on the general stream may come before the answer to the request begins: until then nothing says
        // where that can be read again.
        let is_begun = match &self.upstream {
            Upstream::Open { exchange, .. } => exchange.has_begun(),
            Upstream::Leasing(_) | Upstream::Due(_) | Upstream::Over => true,
        };
        if !is_begun && self.call.postpone(self.backend.clock.now()) {
            return;
        }
        self.feed(Event::Timer);
    }

    fn reissue(&mut self, reissue: Reissue) {
        let Reissue {
            leg,
            round,
            digest,
            responses,
            again,
            caller,
            were_given,
            sink,
        } = reissue;
        if self.call.is_behind(round) {
            // It was taken over from an older state than this client has: it is taken over again, from that one.
            return self.let_go();
        }
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
        if let Some(mut again) = again {
            self.unchecked = again.unchecked.take();
            self.again = Some(Box::new(again));
        }
        let answers = Answers {
            round,
            digest,
            responses,
            capabilities,
            were_given,
        };
        self.feed(Event::Reissue(leg, answers));
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
