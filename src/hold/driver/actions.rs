//! How a driver carries out what its call wants done.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{Driver, Outgoing, Sent};
use crate::call::{Action, Event, LegId, Loss, Reply, SessionFate, already_answered};
use crate::hold::order::lost;
use crate::hold::registry::{Found, MAILBOX_MAX};
use crate::hold::{LegEvent, Reissue};
use crate::upstream::streamable_http::Exchange;

/// How long a cancellation waits for the server to begin its answer to the request. Servers that stream begin
/// at once; one that answers with one JSON body is told after this.
const ANSWER_WAIT: Duration = Duration::from_millis(500);

impl Driver {
    /// Carries out what the call wants done; whether its request is to be sent anew.
    pub(super) fn carry_out(&mut self) -> bool {
        let mut start = false;
        while let Some(action) = self.call.next_action() {
            match action {
                Action::Answer(message) => self.post(message, true),
                Action::Tell(message) => self.post(message, false),
                Action::Cancel(message) => {
                    if self.exchange.as_ref().is_some_and(Exchange::give_up) {
                        self.post(message, false);
                    }
                }
                Action::Notify(leg, message) => self.notify(leg, message),
                Action::Reply(leg, reply) => self.reply(leg, reply),
                Action::Release(fate) => self.release(fate),
                Action::Start => start = true,
                Action::End => {}
            }
        }
        let Some(lease) = &self.lease else {
            return start;
        };
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
        if self.is_due && self.sending.is_none() && self.call.is_running() {
            self.is_due = false;
            self.exchange = Some(lease.request(self.request.body.clone()));
        }
        start
    }

    fn post(&mut self, message: Vec<u8>, is_needed: bool) {
        self.outbox.push_back(Outgoing {
            message: message.into(),
            is_needed,
        });
    }

    pub(super) fn notify(&mut self, leg: LegId, message: Bytes) {
        if let Some((first, heard)) = &mut self.first
            && *first == leg
        {
            heard.push_back(LegEvent::Note(message));
        } else if let Some((_, sink)) = self.legs.iter().find(|(attached, _)| *attached == leg)
            && sink.notes.try_send(message).is_err()
        {
            tracing::debug!("a notification is dropped: the client is too slow");
        }
    }

    pub(super) fn reply(&mut self, leg: LegId, reply: Reply) {
        let reply = self.held_for(reply);
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
                Loss::Failed {
                    message: full.to_string(),
                    may_have_run: true,
                }
                .into()
            }
        }
    }

    /// Lets the session go. One that is to end does so after the server was told what it still has to be told;
    /// one that is reused is free at once, as the client's next call may already be on its way.
    pub(super) fn release(&mut self, fate: SessionFate) {
        let mut exchange = self.exchange.take();
        let Some(mut lease) = self.lease.take() else {
            return;
        };
        lease.set_fate(fate);
        let (sending, outbox) = (self.sending.take(), std::mem::take(&mut self.outbox));
        if sending.is_none() && outbox.is_empty() {
            return;
        }
        let sender = lease.sender();
        let until_told = (fate == SessionFate::Retire).then_some(lease);
        self.backend.tasks.spawn(async move {
            if let Some(exchange) = &mut exchange {
                // On another connection a cancellation could overtake its request.
                let _ = tokio::time::timeout(ANSWER_WAIT, exchange.answered()).await;
            }
            if let Some(sending) = sending {
                let _ = sending.await;
            }
            for Outgoing { message, .. } in outbox {
                if let Err(error) = sender.send(message).await {
                    tracing::debug!(%error, "a farewell did not reach the server");
                }
            }
            drop(until_told);
        });
    }

    /// Leaves the outcome behind for re-issues, also for those that wait in the mailbox.
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
        self.backend
            .registry
            .end(hold, rounds, self.backend.clock.now() + ttl);
        let Some(mut mailbox) = self.mailbox.take() else {
            return;
        };
        mailbox.close();
        while let Ok(Reissue {
            round,
            digest,
            sink,
            ..
        }) = mailbox.try_recv()
        {
            let reply = match self.backend.registry.find(hold, round, digest) {
                Found::Outcome(reply) => reply,
                Found::Answered => already_answered(),
                Found::Live(_) | Found::Nothing => lost("the call has ended"),
            };
            let _ = sink.reply.send(reply);
        }
    }
}
