//! The one channel of a session, on transports where a response does not come on its request's own stream: stdio,
//! HTTP+SSE, WebSocket.
//!
//! What comes in is told apart by ids: responses and progress go to the exchange of their request. Everything else goes
//! to the one request that claims all, if there is one, in the order in which it came, else to the general stream.
//! An exchange that is dropped leaves nothing behind. A full queue holds the server up, it loses nothing.
//!
//! How messages leave is the transport's affair: it is the channel's [`Way`], and feeds the [`Hub`] with what arrives.
//! Spec: 2025-11-25 basic/transports, "stdio" and "Custom Transports"; 2024-11-05 basic/transports, "HTTP with SSE".

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::departure::Departure;
use super::error::UpstreamError;
use crate::wire::jsonrpc::UpstreamId;

mod hub;

pub(super) use hub::Hub;

/// Messages on their way out of one channel. A server that does not read holds up its callers, whose own clocks run.
const OUTGOING_MAX: usize = 64;

/// How long farewells may take when no channel is wanted any more. Arbitrary: a server that reads takes them in a
/// moment, and one that does not must not keep its process from being ended in time.
const FAREWELLS_MAX: Duration = Duration::from_millis(500);

/// A message on its way out.
pub(super) type Sending = Pin<Box<dyn Future<Output = Result<(), UpstreamError>> + Send>>;

/// How messages leave.
pub(super) trait Way: fmt::Debug + Send + Sync {
    /// Sends a message unless it is given up before; done when it went up. Dropped, it may still go.
    fn send(&self, message: Bytes, departure: Arc<Departure>) -> Sending;

    /// From now on it speaks with these credentials.
    fn renew(&self, _credentials: Option<&HeaderValue>) {}

    /// Takes in which revision the server picked.
    fn speaks(&self, _revision: &str) {}
}

/// Whose the messages are that no id ties to a request, while a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This request's: its call has the session for itself.
    All,
    /// This request's while it is the only one, else nobody's.
    Own,
    /// Nobody's: the request is for something that a server asks nothing about.
    Response,
}

/// The one channel of a session. Dropped, it is ended.
#[derive(Debug)]
pub struct Channel {
    way: Box<dyn Way>,
    hub: Arc<Hub>,
    general: Mutex<Option<mpsc::Receiver<Bytes>>>,
    send_timeout: Duration,
    end: Ending,
    _end_with_it: DropGuard,
}

/// How a channel is ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Ending {
    /// Cancelled when this side wants it to end.
    pub(super) wanted: CancellationToken,
    /// Cancelled when nothing of it is left.
    pub(super) done: CancellationToken,
    /// The server has opened a session on it: until then it was good for nothing.
    pub(super) was_good: Arc<AtomicBool>,
}

/// What whoever carries a channel has of it: what arrives is given to the hub, and the end is as `end` says.
#[derive(Debug)]
pub(super) struct Carriage {
    pub(super) hub: Arc<Hub>,
    pub(super) end: Ending,
}

impl Channel {
    /// A channel whose messages leave by `way`.
    pub(super) fn new(way: impl Way + 'static, send_timeout: Duration) -> (Self, Carriage) {
        Self::with(|_| Box::new(way), send_timeout)
    }

    /// A channel whose messages leave one after the other, as they come out of the queue.
    pub(super) fn queued(send_timeout: Duration) -> (Self, Carriage, mpsc::Receiver<Parcel>) {
        let (parcels, out) = mpsc::channel(OUTGOING_MAX);
        let queue = |hub: &Arc<Hub>| {
            let hub = Arc::clone(hub);
            Box::new(Queue { parcels, hub }) as Box<dyn Way>
        };
        let (channel, carriage) = Self::with(queue, send_timeout);
        (channel, carriage, out)
    }

    fn with(
        way: impl FnOnce(&Arc<Hub>) -> Box<dyn Way>,
        send_timeout: Duration,
    ) -> (Self, Carriage) {
        let (hub, general) = Hub::new();
        let end = Ending::default();
        let channel = Self {
            way: way(&hub),
            hub: Arc::clone(&hub),
            general: Mutex::new(Some(general)),
            send_timeout,
            _end_with_it: end.wanted.clone().drop_guard(),
            end: end.clone(),
        };
        (channel, Carriage { hub, end })
    }

    pub(super) fn request(&self, id: UpstreamId, body: Bytes, claim: Claim) -> Exchange {
        let departure = Arc::new(Departure::default());
        let arriving = self.hub.enter(id, claim);
        let sending = arriving
            .is_some()
            .then(|| self.way.send(body, Arc::clone(&departure)));
        Exchange {
            id,
            hub: Arc::clone(&self.hub),
            arriving,
            sending,
            departure,
        }
    }

    pub(super) async fn send(&self, message: Bytes) -> Result<(), UpstreamError> {
        if self.is_over() {
            return Err(UpstreamError::SessionGone);
        }
        let sending = self.way.send(message, Arc::default());
        timeout(self.send_timeout, sending)
            .await
            .map_err(|_| UpstreamError::Timeout)?
    }

    /// What belongs to no request; there is one such stream, which cannot be opened again.
    pub(super) fn general(&self) -> Result<General, UpstreamError> {
        let mut general = self.general.lock().unwrap_or_else(PoisonError::into_inner);
        general
            .take()
            .map(General)
            .ok_or(UpstreamError::SessionGone)
    }

    pub(super) fn renew(&self, credentials: Option<&HeaderValue>) {
        self.way.renew(credentials);
    }

    pub(super) fn speaks(&self, revision: &str) {
        self.end.was_good.store(true, Ordering::Release);
        self.way.speaks(revision);
    }

    pub(super) fn is_over(&self) -> bool {
        self.hub.is_over()
    }

    pub(super) fn why_over(&self) -> UpstreamError {
        self.hub.why_over()
    }

    /// Ends it soon after this is cancelled, whoever has it and whatever waits to be sent. Done when it is ended, by that
    /// or otherwise.
    pub(super) fn ends_with(
        &self,
        closing: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let Ending { wanted, done, .. } = self.end.clone();
        async move {
            let time_is_up = async {
                closing.cancelled().await;
                sleep(FAREWELLS_MAX).await;
            };
            tokio::select! {
                () = time_is_up => wanted.cancel(),
                () = done.cancelled() => {}
            }
        }
    }

    /// Ends it. Done when nothing of it is left.
    pub(super) async fn close(&self) {
        self.end.wanted.cancel();
        self.end.done.cancelled().await;
    }
}

/// What comes back for one request.
pub struct Exchange {
    id: UpstreamId,
    hub: Arc<Hub>,
    /// Nothing if the channel was over before.
    arriving: Option<mpsc::Receiver<Bytes>>,
    sending: Option<Sending>,
    departure: Arc<Departure>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Exchange");
        shown.field("id", &self.id).finish_non_exhaustive()
    }
}

impl Exchange {
    /// See [`super::Exchange::next_message`]. Cancel-safe: what is on its way stays on its way.
    pub(super) async fn next_message(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        let Some(arriving) = &mut self.arriving else {
            return Err(UpstreamError::SessionGone);
        };
        let arrived = loop {
            let Some(sending) = &mut self.sending else {
                break arriving.recv().await;
            };
            tokio::select! {
                biased;
                arrived = arriving.recv() => break arrived,
                sent = sending => {
                    self.sending = None;
                    sent?;
                }
            }
        };
        match (arrived, self.hub.end()) {
            (None, Some(end)) => Err(UpstreamError::Over(end)),
            (arrived, _) => Ok(arrived),
        }
    }

    pub(super) fn was_sent(&self) -> bool {
        self.departure.has_gone()
    }

    pub(super) fn give_up(&self) -> bool {
        self.departure.give_up()
    }

    /// Waits until the request went up. Cancel-safe.
    pub(super) async fn departed(&mut self) -> Result<(), UpstreamError> {
        if self.arriving.is_none() {
            return Err(UpstreamError::SessionGone);
        }
        if let Some(sending) = &mut self.sending {
            let sent = sending.await;
            self.sending = None;
            sent?;
        }
        Ok(())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.hub.leave(self.id);
    }
}

/// What belongs to no request.
#[derive(Debug)]
pub struct General(mpsc::Receiver<Bytes>);

impl General {
    /// The next message, raw; nothing when the channel is over. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }
}

/// A message on its way to whoever writes one after the other.
#[derive(Debug)]
pub(super) struct Parcel {
    message: Bytes,
    departure: Arc<Departure>,
    done: oneshot::Sender<Result<(), UpstreamError>>,
}

impl Parcel {
    /// What is to be written, and where its end is told; nothing if it was given up meanwhile.
    pub(super) fn go(self) -> Option<(Bytes, oneshot::Sender<Result<(), UpstreamError>>)> {
        self.departure.go().then_some((self.message, self.done))
    }
}

/// The way of a transport that writes one message after the other.
#[derive(Debug)]
struct Queue {
    parcels: mpsc::Sender<Parcel>,
    hub: Arc<Hub>,
}

impl Way for Queue {
    fn send(&self, message: Bytes, departure: Arc<Departure>) -> Sending {
        let (parcels, hub) = (self.parcels.clone(), Arc::clone(&self.hub));
        Box::pin(async move {
            let (done, is_done) = oneshot::channel();
            let parcel = Parcel {
                message,
                departure,
                done,
            };
            if parcels.send(parcel).await.is_err() {
                return Err(UpstreamError::SessionGone);
            }
            is_done.await.unwrap_or_else(|_| Err(hub.why_over()))
        })
    }
}

#[cfg(test)]
mod tests;
