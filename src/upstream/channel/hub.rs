//! Who gets what comes in on a channel.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::Claim;
use crate::upstream::error::{ChannelEnd, UpstreamError};
use crate::wire::garbled;
use crate::wire::jsonrpc::{self, Message, UpstreamId};
use crate::wire::legacy;
use crate::wire::object::RawObject;

/// Messages that wait for one exchange, and for the reader of the general stream. Both read at once; more only keep
/// the channel from being read meanwhile.
const ARRIVING_MAX: usize = 16;

/// Who gets what comes in.
#[derive(Debug)]
pub(in crate::upstream) struct Hub {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    waiting: HashMap<UpstreamId, Waiting>,
    /// The request that gets what no id ties to another.
    claimant: Option<UpstreamId>,
    /// The first and the newest id that went up, if any did: what is between them may have been ours once.
    given: Option<(UpstreamId, UpstreamId)>,
    general: Option<mpsc::Sender<Bytes>>,
    end: Option<Arc<ChannelEnd>>,
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Waiting {
    arriving: mpsc::Sender<Bytes>,
    claim: Claim,
}

impl Hub {
    /// One on which nothing waits, and its general stream.
    pub(in crate::upstream) fn new() -> (Arc<Self>, mpsc::Receiver<Bytes>) {
        let (general, general_out) = mpsc::channel(ARRIVING_MAX);
        let state = State {
            waiting: HashMap::new(),
            claimant: None,
            given: None,
            general: Some(general),
            end: None,
        };
        let hub = Self {
            state: Mutex::new(state),
        };
        (Arc::new(hub), general_out)
    }

    /// Lets a request wait; nothing when the channel is over.
    pub(super) fn enter(&self, id: UpstreamId, claim: Claim) -> Option<mpsc::Receiver<Bytes>> {
        let mut state = self.lock();
        if state.end.is_some() {
            return None;
        }
        let (arriving, arriving_out) = mpsc::channel(ARRIVING_MAX);
        state.waiting.insert(id, Waiting { arriving, claim });
        let (first, newest) = state.given.unwrap_or((id, id));
        state.given = Some((first.min(id), newest.max(id)));
        if claim == Claim::All {
            state.claimant = Some(id);
        }
        Some(arriving_out)
    }

    /// It does not wait any more.
    pub(super) fn leave(&self, id: UpstreamId) {
        self.lock().leave(id);
    }

    /// Gives what came in to whom it concerns, and waits for those that are slow to take it.
    pub(in crate::upstream) async fn arrived(&self, bytes: Bytes) {
        for message in jsonrpc::batch(bytes) {
            let taker = self.lock().taker_of(&message);
            match taker {
                // Whoever has left meanwhile does not want it any more.
                Some(taker) => drop(taker.send(message).await),
                None => tracing::debug!("a message of the server that concerns nobody is dropped"),
            }
        }
    }

    /// The channel is over: whoever waits is told why.
    pub(in crate::upstream) fn over(&self, end: ChannelEnd) {
        let mut state = self.lock();
        if state.end.is_none() {
            state.end = Some(Arc::new(end));
        }
        state.waiting.clear();
        state.general = None;
    }

    pub(super) fn is_over(&self) -> bool {
        self.lock().end.is_some()
    }

    pub(super) fn end(&self) -> Option<Arc<ChannelEnd>> {
        self.lock().end.clone()
    }

    /// Why a message that was on its way did not go.
    pub(super) fn why_over(&self) -> UpstreamError {
        self.end().map_or(UpstreamError::Ended, UpstreamError::Over)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn leave(&mut self, id: UpstreamId) -> Option<mpsc::Sender<Bytes>> {
        if self.claimant == Some(id) {
            self.claimant = None;
        }
        self.waiting.remove(&id).map(|waiting| waiting.arriving)
    }

    fn taker_of(&mut self, message: &[u8]) -> Option<mpsc::Sender<Bytes>> {
        match Message::parse(message) {
            Ok(Message::Result { id, .. }) => self.leave(UpstreamId::of(id)?),
            Ok(Message::Error { id, .. }) => self.refused(id),
            Ok(Message::Notification { method, params }) if method == legacy::PROGRESS => {
                let params = RawObject::of(params?).ok()?;
                let id = params.member("progressToken").and_then(UpstreamId::of)?;
                self.waiting
                    .get(&id)
                    .map(|waiting| waiting.arriving.clone())
            }
            Ok(Message::Request { .. } | Message::Notification { .. }) => self.claiming(),
            // A response that is not understood is still the end of its request.
            Err(_) => {
                let waits = garbled::answered(message).and_then(|id| self.leave(id));
                waits.or_else(|| self.claiming())
            }
        }
    }

    /// Real servers answer some requests with an error under another id or none. It is the answer of the one request
    /// that waits, unless it may belong to an older one that was given up.
    fn refused(&mut self, id: Option<&RawValue>) -> Option<mpsc::Sender<Bytes>> {
        let id = id.and_then(UpstreamId::of);
        let was_given = |id: &UpstreamId| {
            self.given
                .is_some_and(|(first, newest)| (first..=newest).contains(id))
        };
        if let Some(id) = id.filter(was_given) {
            return self.leave(id);
        }
        self.leave(self.only()?)
    }

    /// Whoever gets what no id ties to a request. Of several that do not claim it none can be told to be meant.
    fn claiming(&self) -> Option<mpsc::Sender<Bytes>> {
        let claimant = self.claimant.or_else(|| self.only());
        let claimant = claimant.and_then(|id| self.waiting.get(&id));
        let claimant = claimant.filter(|waiting| waiting.claim != Claim::Response);
        let arriving = claimant.map(|waiting| &waiting.arriving);
        arriving.or(self.general.as_ref()).cloned()
    }

    /// The request that waits, if it is the only one.
    fn only(&self) -> Option<UpstreamId> {
        let mut waiting = self.waiting.keys();
        match (waiting.next(), waiting.next()) {
            (Some(&only), None) => Some(only),
            _ => None,
        }
    }
}
