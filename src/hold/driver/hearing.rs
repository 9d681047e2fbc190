//! What a driver makes of what its server says, and of its silence.

use bytes::Bytes;

use super::{Driver, Upstream};
use crate::call::{Event, Loss, Origin};
use crate::observe::chain;
use crate::session::Lease;
use crate::translate::subscription::Change;
use crate::upstream::UpstreamError;
use crate::wire::garbled;
use crate::wire::jsonrpc::{self, Message, ServerId};
use crate::wire::legacy;

impl Driver {
    /// Takes in an event of the server.
    pub(super) fn hear(&mut self, origin: Origin, message: Bytes) {
        if let Upstream::Open { has_started, .. } = &mut self.upstream {
            *has_started = true;
            // It will not be sent again, and may be large.
            self.request.body = Bytes::new();
            self.request.headers.clear();
        }
        let is_repeated = origin == Origin::Exchange && self.seal.trail.is_repeated();
        let mut asked = Vec::new();
        for message in jsonrpc::batch(message) {
            match Message::parse(&message) {
                Ok(Message::Notification { .. }) if is_repeated => {}
                Ok(Message::Notification { method, params })
                    if let Some(change) = Change::parse(&method, params) =>
                {
                    if let Some(lease) = self.upstream.lease() {
                        lease.publish(&change);
                    }
                }
                Ok(message) => {
                    if let Message::Request { id, .. } = &message {
                        asked.extend(ServerId::new(id));
                        self.note_session();
                    }
                    self.note_roots(origin, &message);
                    if let (Some(listing), Message::Result { id, result }) =
                        (&self.listing, &message)
                        && self.call.id().matches(id)
                    {
                        let tools = &self.backend.tools;
                        tools.passed(&self.caller.key, listing, result);
                    }
                    self.feed(Event::Server(origin, message));
                }
                Err(error) => self.misheard(&message, &error),
            }
        }
        if origin == Origin::Exchange
            && self.call.may_ask()
            && let Upstream::Open { exchange, .. } = &self.upstream
        {
            let call = &self.call;
            self.seal.trail.heard(exchange.heard_between(), asked);
            self.seal.trail.settle(|id| call.is_open(id));
        }
        self.recall_goes_on();
    }

    /// From now on states say on what session the call is, and how far its stream was read.
    pub(super) fn note_session(&mut self) {
        if self.seal.session.is_none() {
            self.seal.session = self.upstream.lease().and_then(Lease::session_name);
        }
        if let Upstream::Open { exchange, .. } = &self.upstream {
            self.seal.trail.reaches(exchange.heard_between().at);
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
            self.feed(Event::Failed(Loss::Failed {
                message: "the server's answer is not understood".to_owned(),
                may_have_run: true,
            }));
        }
    }

    /// The exchange yields nothing more.
    pub(super) fn exchange_over(&mut self, error: Option<UpstreamError>) {
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
            return self.begin(None);
        }
        if self.recall.is_some() {
            return self.lose_recalled();
        }
        self.lose(error.unwrap_or(UpstreamError::Ended));
    }

    /// The call cannot go on. What is known of its request beats what the error alone can say.
    pub(super) fn lose(&mut self, error: UpstreamError) {
        let (was_sent, has_started) = match &self.upstream {
            Upstream::Open {
                exchange,
                has_started,
                ..
            } => (exchange.was_sent(), *has_started),
            Upstream::Leasing(_) | Upstream::Due(_) | Upstream::Over => (false, false),
        };
        let is_cut = error.is_cut();
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
        self.feed(match is_cut {
            true => Event::Lost(loss),
            false => Event::Failed(loss),
        });
    }
}
