//! How a driver carries out what its call wants done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{Driver, Outgoing, Sending, Sent, Stay, Upstream};
use crate::call::{Action, Anew, Event, LegId, Reply, Rounds, SessionFate, failed};
use crate::hold::backend::Backend;
use crate::hold::order::UpstreamRequest;
use crate::hold::registry::MAILBOX_MAX;
use crate::hold::seal::HoldId;
use crate::hold::shared::{OUTCOME_BYTES_MAX, Unavailable};
use crate::hold::{LegEvent, Reissue};
use crate::observe::chain;
use crate::session::{Lease, Sender};

/// How long a cancellation waits for the server to begin its answer to the request. Servers that stream begin
/// at once; one that answers with one JSON body is told after this.
const ANSWER_WAIT: Duration = Duration::from_millis(500);

/// The pause before other processes are told again how a call ended, while what they share is out of reach. Arbitrary: it is
/// asked nothing meanwhile, and repeats come to this process, where its calls are known.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Messages that wait to be sent to the server. More wait only if it talks faster than it listens.
const OUTBOX_MAX: usize = 256;

impl Driver {
    /// Carries out what the call wants done.
    pub(super) fn carry_out(&mut self) {
        while let Some(action) = self.call.next_action() {
            match action {
                Action::Answer(message) => self.post(message, true),
                Action::Tell(message) => self.post(message, false),
                Action::Cancel(message) => self.cancel(message),
                Action::Notify(leg, message) => self.notify(leg, message),
                Action::Reply(leg, reply) => self.reply(leg, reply),
                Action::Release(fate) => self.release(fate),
                Action::Start(why) => self.start_anew(why),
                Action::End => self.upstream = Upstream::Over,
            }
        }
        if self.call.is_parked() {
            // The re-issue brings the request again; a hold must not keep a large body alive.
            self.again = None;
            self.unchecked = None;
        }
        let Some(lease) = self.upstream.lease() else {
            return;
        };
        if let Some(roots) = self.call.roots()
            && lease.gives_roots(roots)
        {
            self.takes_in_roots = matches!(self.upstream, Upstream::Due(_));
        }
        if self.sending.is_none()
            && let Some(Outgoing { message, is_needed }) = self.outbox.pop_front()
        {
            let sender = lease.sender();
            self.sending = Some(Box::pin(async move {
                Sent {
                    result: sender.send(message).await,
                    was_needed: is_needed,
                }
            }));
        }
        // The request waits until questions that were there before it are answered and have gone up.
        if self.sending.is_none() && self.call.is_running() {
            self.depart();
        }
    }

    /// The request goes up once more, on another session and under another id.
    fn start_anew(&mut self, why: Anew) {
        let Some(again) = &self.again else {
            return self.feed(Event::Abandon("the call has ended"));
        };
        let id = self.backend.pool.next_id();
        self.request = again.request(id, self.call.method());
        self.call.starts_as(id);
        let mut hold = None;
        if why == Anew::Lost {
            hold = self.held.as_ref().and_then(|_| self.seal.hold());
            let runs = self.call.runs();
            tracing::info!(
                backend = self.backend.name,
                ?hold,
                runs,
                "a lost call is run again"
            );
            self.backend.metrics.replayed.inc();
        }
        self.is_replaced = false;
        self.seal.begins_session();
        self.begin(hold);
    }

    /// Lets what is to be sent wait for something.
    pub(super) fn send_after(&mut self, settled: impl Future<Output = ()> + Send + 'static) {
        let before = self.sending.take();
        self.sending = Some(Box::pin(async move {
            let sent = async {
                match before {
                    Some(sending) => sending.await,
                    None => Sent {
                        result: Ok(()),
                        was_needed: false,
                    },
                }
            };
            futures_util::future::join(sent, settled).await.0
        }));
    }

    fn depart(&mut self) {
        match std::mem::replace(&mut self.upstream, Upstream::Over) {
            Upstream::Due(lease) if std::mem::take(&mut self.takes_in_roots) => {
                self.send_after(lease.roots_taken_in());
                self.upstream = Upstream::Due(lease);
            }
            Upstream::Due(lease) => {
                let UpstreamRequest { id, body, headers } = self.request.clone();
                let exchange = lease.request(id, body, headers);
                self.upstream = Upstream::Open {
                    lease,
                    exchange,
                    has_started: false,
                };
                self.feed(Event::Departed);
            }
            other => self.upstream = other,
        }
    }

    fn post(&mut self, message: Vec<u8>, is_needed: bool) {
        if self.outbox.len() >= OUTBOX_MAX {
            if is_needed {
                self.feed(Event::Abandon("the server asks faster than it listens"));
            } else {
                tracing::debug!("a courtesy is left out: the server talks faster than it listens");
            }
            return;
        }
        self.outbox.push_back(Outgoing {
            message: message.into(),
            is_needed,
        });
    }

    /// A request that has not left by now never will; only of others does the server have to be told.
    fn cancel(&mut self, message: Vec<u8>) {
        if let Upstream::Open { exchange, .. } = &self.upstream
            && exchange.give_up()
        {
            self.post(message, false);
        }
    }

    pub(super) fn notify(&mut self, leg: LegId, message: Bytes) {
        if let Some((first, heard)) = &mut self.first
            && *first == leg
        {
            heard.push_back(LegEvent::Note(message));
        } else if let Some((_, sink)) = self.legs.iter().find(|(attached, _)| *attached == leg)
            && sink.notes.try_send(message).is_err()
        {
            self.backend.metrics.notes_dropped.inc();
            tracing::debug!("a notification is dropped: the client is too slow");
        }
    }

    pub(super) fn reply(&mut self, leg: LegId, reply: Reply) {
        let reply = self.held_for(reply);
        if let (Some(place), Reply::Result(result)) = (self.place.take(), &reply) {
            let now = self.backend.clock.now();
            self.backend.memory.remember(place, result, now);
        }
        if let Some((first, heard)) = &mut self.first
            && *first == leg
        {
            heard.push_back(LegEvent::Reply(reply));
        } else if let Some(at) = self.legs.iter().position(|(attached, _)| *attached == leg) {
            let (_, sink) = self.legs.swap_remove(at);
            // A client that has gone hears nothing; should it come back, the registry remembers.
            let _ = sink.reply.send(reply);
        }
    }

    /// The reply, after the call was entered as a hold if it asks for input. A call that cannot be held is
    /// abandoned, and its client told so.
    fn held_for(&mut self, reply: Reply) -> Reply {
        if self.held.is_some() || !self.call.is_parked() {
            return reply;
        }
        let (sender, mailbox) = mpsc::channel(MAILBOX_MAX);
        let Some(hold) = self.seal.hold() else {
            return reply;
        };
        match self.backend.registry.enter(hold, sender) {
            Ok(()) => {
                self.mailbox = Some(mailbox);
                self.held = Some(self.backend.metrics.holds.count());
                self.seal.settle();
                reply
            }
            Err(full) => {
                tracing::warn!(backend = self.backend.name, "a call is refused: {full}");
                self.feed(Event::Abandon("too many calls wait for input at once"));
                failed(&full.to_string(), true)
            }
        }
    }

    /// Lets the session go. One that is to end does so after the server was told what it still has to be told;
    /// one that is reused is free at once, as the client's next call may already be on its way.
    pub(super) fn release(&mut self, fate: SessionFate) {
        let (mut lease, mut exchange) = match std::mem::replace(&mut self.upstream, Upstream::Over)
        {
            Upstream::Due(lease) => (lease, None),
            Upstream::Open {
                lease, exchange, ..
            } => (lease, Some(exchange)),
            Upstream::Leasing(_) | Upstream::Over => return,
        };
        lease.set_fate(fate);
        let (sending, mut outbox) = (self.sending.take(), std::mem::take(&mut self.outbox));
        let doubtful = (fate == SessionFate::Retire).then(|| self.shared_hold());
        let doubtful = doubtful.flatten();
        if sending.is_none() && outbox.is_empty() && doubtful.is_none() {
            return;
        }
        let sender = lease.sender();
        let until_told = (fate == SessionFate::Retire).then_some(lease);
        let backend = Arc::clone(&self.backend);
        self.backend.tasks.spawn(async move {
            if let (Some(hold), Some(lease)) = (doubtful, &until_told)
                && !backend.owns(hold).await
            {
                tracing::warn!(?hold, "a held call was taken over by another replica");
                lease.leave();
                outbox.retain(|outgoing| outgoing.is_needed);
            }
            if let Some(exchange) = &mut exchange {
                // On another connection a cancellation could overtake its request.
                let _ = tokio::time::timeout(ANSWER_WAIT, exchange.answered()).await;
            }
            send_all(sender, sending, outbox).await;
            drop(until_told);
        });
    }

    /// This process ends: a call that another one can take over or run again is left to it, any other is ended in good
    /// order.
    pub(super) fn stop(&mut self) {
        // One that runs is taken over by the repeat of its leg, where it is noted that its answers were given.
        let is_noted = self.backend.shared.has_others();
        if self.seal.can_be_taken_over() && (self.call.is_parked() || is_noted) {
            self.stay = match self.recall {
                None => Stay::Leaving,
                Some(_) => Stay::LeavingUnheard,
            };
            if let Some(mailbox) = &mut self.mailbox {
                mailbox.close();
            }
            return;
        }
        if self.call.is_parked() && self.can_be_run_elsewhere() {
            tracing::info!(
                backend = self.backend.name,
                hold = ?self.seal.hold(),
                "a held call is left for another process to run again"
            );
            self.backend.metrics.left.inc();
            self.forget_hold();
            return self.feed(Event::PutOff);
        }
        self.feed(Event::Abandon("the gateway is shutting down"));
    }

    /// Leaves the call to another process once all mail was taken in and all answers have gone up.
    pub(super) fn leave_when_done(&mut self) {
        let has_more = self.mailbox.is_some() || self.sending.is_some() || !self.outbox.is_empty();
        if self.stay == Stay::Here || has_more || self.call.is_ended() {
            return;
        }
        tracing::info!(
            backend = self.backend.name,
            hold = ?self.seal.hold(),
            "a held call is left for another process"
        );
        self.backend.metrics.left.inc();
        self.let_go();
        self.carry_out();
    }

    /// The answers of a re-issue were noted, and are not given here.
    pub(super) fn give_back(&self, reissue: &Reissue) {
        if reissue.were_given {
            return;
        }
        if let Some(hold) = self.seal.hold() {
            let backend = Arc::clone(&self.backend);
            let (round, digest) = (reissue.round, reissue.digest);
            self.backend
                .tasks
                .spawn(async move { backend.take_back(hold, round, digest).await });
        }
    }

    fn can_be_run_elsewhere(&self) -> bool {
        self.call.may_be_replayed(&self.seal) && self.backend.keys.are_lasting()
    }

    /// The call goes on in another process, or may.
    fn forget_hold(&mut self) {
        if let (Some(_), Some(hold)) = (self.held.take(), self.seal.hold()) {
            self.backend.registry.forget(hold);
        }
    }

    /// Another process has the call by now, or has told its client that it is lost.
    pub(super) fn moved(&mut self) {
        if self.seal.can_be_taken_over() {
            return self.let_go();
        }
        // Nobody else can tell its server.
        self.forget_hold();
        self.feed(Event::Abandon("another process took this one for gone"));
    }

    /// Notes again which answers were taken.
    pub(super) fn note_again(&self) {
        if let (Some(hold), Some((round, digest))) = (self.seal.hold(), self.call.answered()) {
            let noting = Arc::clone(&self.backend).note_later(hold, round, digest);
            self.backend.tasks.spawn(noting);
        }
    }

    /// Ends the call here without a word to its server: its session is another process' from now on.
    pub(super) fn let_go(&mut self) {
        if let Some(lease) = self.upstream.lease_mut() {
            lease.leave();
            lease.set_fate(SessionFate::Retire);
        }
        self.send_what_is_needed();
        self.forget_hold();
        self.feed(Event::LetGo);
    }

    /// Answers that count as given go up, whoever goes on with the call.
    fn send_what_is_needed(&mut self) {
        let (sending, mut outbox) = (self.sending.take(), std::mem::take(&mut self.outbox));
        outbox.retain(|outgoing| outgoing.is_needed);
        let Some(sender) = self.upstream.lease().map(Lease::sender) else {
            return;
        };
        if sending.is_some() || !outbox.is_empty() {
            self.backend.tasks.spawn(send_all(sender, sending, outbox));
        }
    }

    /// The hold of a call that another replica may have taken over while this one counted as gone.
    fn shared_hold(&self) -> Option<HoldId> {
        let may_be_shared = self.held.is_some()
            && self.seal.can_be_taken_over()
            && self.backend.shared.has_others();
        may_be_shared.then(|| self.seal.hold()).flatten()
    }

    /// Leaves the outcome behind for re-issues. Those that are still in the mailbox find it when that is gone.
    pub(super) fn leave_outcome(&mut self) {
        if self.held.take().is_none() {
            return;
        }
        let Some(hold) = self.seal.hold() else { return };
        let rounds = self.call.take_rounds();
        let ttl = if rounds.is_awaited() {
            self.backend.limits.hold_ttl
        } else {
            self.backend.outcome_ttl
        };
        self.share_outcome(hold, &rounds, ttl);
        self.backend
            .registry
            .end(hold, rounds, self.backend.clock.now() + ttl);
    }

    /// Tells other processes, beside everything else.
    fn share_outcome(&self, hold: HoldId, rounds: &Rounds, ttl: Duration) {
        let backend = Arc::clone(&self.backend);
        let is_kept = backend.shared.has_others() && rounds.weight() <= OUTCOME_BYTES_MAX;
        let outcome = is_kept.then(|| rounds.to_bytes());
        let untold = backend.calls.token();
        self.backend.tasks.spawn(async move {
            let outcome = outcome.map(Bytes::from);
            let told = backend.tell_outcome(hold, outcome.clone(), ttl).await;
            // A process that is to end does not wait for what may be away for long.
            drop(untold);
            let Err(error) = told else { return };
            let error = chain(&error);
            tracing::warn!(?hold, error, "an outcome is known to this process alone");
            let mut is_told = false;
            // As many wait as are remembered here, and no longer.
            while !is_told
                && backend.stop.run_until_cancelled(sleep(TELL_AFTER)).await == Some(())
                && backend.registry.remembers(hold)
            {
                let told = backend.tell_outcome(hold, outcome.clone(), ttl).await;
                is_told = told.is_ok();
            }
        });
    }
}

impl Backend {
    async fn tell_outcome(
        &self,
        hold: HoldId,
        outcome: Option<Bytes>,
        ttl: Duration,
    ) -> Result<(), Unavailable> {
        let (shared, me) = (&self.shared, self.replica);
        let has_others = shared.has_others();
        // In this order: a record that is gone would let the answers be given again.
        if let Some(outcome) = outcome {
            shared.remember(hold, me, outcome, ttl).await?;
        }
        let keep = if has_others { ttl } else { Duration::ZERO };
        shared.release(hold, me, keep).await
    }
}

/// Sends what is on its way to a server, and then what waits.
async fn send_all(sender: Sender, sending: Option<Sending>, outbox: VecDeque<Outgoing>) {
    if let Some(sending) = sending {
        let _ = sending.await;
    }
    for Outgoing { message, .. } in outbox {
        if let Err(error) = sender.send(message).await {
            let error = chain(&error);
            tracing::debug!(error, "a last message did not reach the server");
        }
    }
}
