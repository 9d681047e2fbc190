//! A call that is taken over from a process that is gone: it hears first where it stands.
//!
//! The server says its open questions again, and perhaps more that the other process did not live to pass on: an answer
//! that reached the server, or even the result. Only then re-issues are taken in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc;

use super::{Driver, Stay, Upstream};
use crate::call::{Call, Event, Loss, Moment, lost};
use crate::hold::Mail;
use crate::hold::backend::Backend;
use crate::hold::holdseal::HoldSeal;
use crate::hold::order::UpstreamRequest;
use crate::session::{Caller, Lease};
use crate::upstream::Exchange;

/// How long a server may take to say its open questions again. Real ones do so with the first bytes of the stream; the
/// client waits meanwhile.
const RECALL_MAX: Duration = Duration::from_secs(10);

/// What a call hears before re-issues are taken in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Recall {
    /// Questions that are open come.
    Awaited { by: Moment },
    /// All have come, and others may follow at once.
    Listening { until: Moment, by: Moment },
}

impl Recall {
    pub(super) fn deadline(&self) -> Moment {
        match self {
            Self::Awaited { by } => *by,
            Self::Listening { until, .. } => *until,
        }
    }
}

/// A call as it was taken over.
pub(in crate::hold) struct TakenOver {
    /// The call, parked.
    pub(in crate::hold) call: Call,
    /// What seals its further states.
    pub(in crate::hold) seal: HoldSeal,
    /// On whose behalf.
    pub(in crate::hold) caller: Arc<Caller>,
    /// Its session and the stream of its answer, read again; nothing when it is to be run again.
    pub(in crate::hold) stream: Option<(Lease, Exchange)>,
}

impl TakenOver {
    /// Drives the call on, on a task of its own; re-issues reach it through `mailbox`.
    pub(in crate::hold) fn go_on(self, backend: &Arc<Backend>, mailbox: mpsc::Receiver<Mail>) {
        let by = backend.clock.now() + RECALL_MAX;
        let recall = self.stream.as_ref().map(|_| Recall::Awaited { by });
        let request = UpstreamRequest {
            id: self.call.id(),
            body: Bytes::new(),
            headers: HeaderMap::new(),
        };
        let mut driver = Driver {
            backend: Arc::clone(backend),
            caller: self.caller,
            call: self.call,
            seal: self.seal,
            request,
            again: None,
            unchecked: None,
            listing: None,
            place: None,
            log_level: None,
            upstream: match self.stream {
                Some((lease, exchange)) => Upstream::Open {
                    lease,
                    exchange,
                    has_started: true,
                },
                None => Upstream::Over,
            },
            is_replaced: false,
            takes_in_roots: false,
            has_complained: false,
            outbox: std::collections::VecDeque::new(),
            sending: None,
            first: None,
            legs: Vec::new(),
            mailbox: Some(mailbox),
            held: Some(backend.metrics.holds.count()),
            recall,
            stay: Stay::Here,
            _counted: (backend.metrics.calls.count(), backend.calls.token()),
        };
        driver.recall_goes_on();
        driver.detach();
    }
}

impl Driver {
    /// Something was heard: whether that was all shows when nothing follows.
    pub(super) fn recall_goes_on(&mut self) {
        let Some(Recall::Awaited { by } | Recall::Listening { by, .. }) = self.recall else {
            return;
        };
        if !self.call.is_recalling() {
            let until = self.backend.clock.now() + self.backend.limits.gather_quiet;
            let until = until.min(by);
            self.recall = Some(Recall::Listening { until, by });
        }
    }

    /// Re-issues are taken in from now on, unless the server has kept silent.
    pub(super) fn recall_in_time(&mut self) {
        let now = self.backend.clock.now();
        match self.recall {
            Some(Recall::Awaited { by }) if by <= now => self.lose_recalled(),
            Some(Recall::Listening { until, .. }) if until <= now => self.recall = None,
            Some(_) | None => {}
        }
    }

    /// The server does not go on where the call stood.
    pub(super) fn lose_recalled(&mut self) {
        self.recall = None;
        self.backend.metrics.lost.inc();
        let why = "the call was cut off, and its server does not resume it";
        let is_safe = self.seal.is_safe_to_repeat();
        self.feed(match self.call.may_be_replayed(&self.seal) {
            true => Event::Lost(Loss::Failed {
                message: why.to_owned(),
                may_have_run: true,
            }),
            false => Event::Refused(lost(why, is_safe)),
        });
    }
}
