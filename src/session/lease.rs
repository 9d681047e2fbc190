//! A session while a call uses it, and what becomes of it afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::HeaderMap;

use super::changes::Audience;
use super::home::{AskError, Home, ask};
use super::inbox::Inbox;
use super::live::{Session, StreamState};
use super::logs::Wish;
use super::{Caller, SessionName};
use crate::call::{AuthChallenge, SessionFate};
use crate::translate::discover::ServerIdentity;
use crate::translate::subscription::Change;
use crate::upstream::{Claim, Exchange, UpstreamError};
use crate::wire::jsonrpc::UpstreamId;
use crate::wire::modern::LogLevel;

/// A session in use. Dropped, it goes back to its pool or is closed.
#[derive(Debug)]
pub struct Lease {
    pub(super) home: Arc<dyn Home>,
    pub(super) session: Arc<Session>,
    /// Present while the call has the session for itself.
    inbox: Option<Inbox>,
    fate: SessionFate,
    /// The log messages that its request wants.
    pub(super) wish: Option<Wish>,
    /// The session serves this call alone and ends with it.
    isolated: bool,
}

impl Lease {
    pub(super) fn new(
        home: Arc<dyn Home>,
        session: Arc<Session>,
        inbox: Option<Inbox>,
        isolated: bool,
    ) -> Self {
        session
            .is_exclusive
            .store(inbox.is_some(), Ordering::Release);
        Self {
            home,
            session,
            inbox,
            fate: SessionFate::Reuse,
            wish: None,
            isolated,
        }
    }

    /// The number by which log lines name its session.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.session.number
    }

    /// Who the server is.
    #[must_use]
    pub fn identity(&self) -> &Arc<ServerIdentity> {
        &self.session.identity
    }

    /// Sends a request of a call with the trace context of its client.
    #[must_use]
    pub fn request(&self, id: UpstreamId, body: Bytes, trace: HeaderMap) -> Exchange {
        let claim = match self.inbox {
            Some(_) => Claim::All,
            // What a server asks of such a client waits for a call that can be asked.
            None if self.session.key.capabilities.may_be_asked() => Claim::Response,
            None => Claim::Own,
        };
        self.session.connection.request(id, body, trace, claim)
    }

    /// Reads the stream again that answers a request which went up before, from after this event; nothing where that
    /// cannot be.
    #[must_use]
    pub fn resume(&self, after: &str) -> Option<Exchange> {
        self.session.connection.resume(after)
    }

    /// The session as its server knows it, by which another process can take it over; nothing where that cannot be.
    #[must_use]
    pub fn session_name(&self) -> Option<SessionName> {
        if self.is_on_channel() {
            return None;
        }
        let id = match self.session.connection.session_id() {
            Some(id) => Some(id.to_str().ok()?.into()),
            None => None,
        };
        Some(SessionName {
            id,
            revision: self.identity().protocol_version.clone(),
        })
    }

    /// Whether the call has the session for itself.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.inbox.is_some()
    }

    /// What waits on the session; nothing while it is shared.
    pub(super) fn inbox(&mut self) -> Option<&mut Inbox> {
        self.inbox.as_mut()
    }

    /// A sender of one-way messages that lives independently of the lease.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender {
            session: Arc::clone(&self.session),
        }
    }

    /// The next message on the general stream; never one while the session is shared. Cancel-safe.
    pub async fn general_message(&mut self) -> Bytes {
        match &mut self.inbox {
            Some(inbox) => inbox.next().await,
            None => std::future::pending().await,
        }
    }

    /// What waits on the session for a call that can be asked.
    #[must_use]
    pub fn take_strays(&mut self) -> Vec<Bytes> {
        self.inbox.as_mut().map(Inbox::take).unwrap_or_default()
    }

    /// Asks the server for something of the gateway's own; the answer is the whole message, a result. `params` is a
    /// complete JSON object.
    ///
    /// # Errors
    /// When it answers otherwise.
    pub fn ask(
        &self,
        method: &str,
        params: &[u8],
    ) -> impl Future<Output = Result<Bytes, AskError>> + Send + use<> {
        ask(&self.home, &self.session, method, params)
    }

    /// Whether all messages of the session share one channel.
    #[must_use]
    pub fn is_on_channel(&self) -> bool {
        self.session.connection.is_channel()
    }

    /// Whether the server can say something on the session that belongs to no request.
    #[must_use]
    pub fn has_general_stream(&self) -> bool {
        self.session.has_general_stream
    }

    /// Who may hear of what comes on the session.
    #[must_use]
    pub fn audience(&self) -> Audience {
        self.session.audience()
    }

    /// Tells those who may hear it of a change that the server notified on a request's stream.
    pub fn publish(&self, change: &Change) {
        self.session.publish(change);
    }

    /// Done when the server has forgotten the session, or its channel is over. Cancel-safe.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        self.session.gone().clone().cancelled_owned()
    }

    /// Why it is gone.
    #[must_use]
    pub fn why_gone(&self) -> UpstreamError {
        self.session.connection.why_over()
    }

    /// Done when the server offers no general stream any more, or wants other credentials for it; those it wants.
    /// Cancel-safe.
    pub fn deafened(&self) -> impl Future<Output = Option<Arc<AuthChallenge>>> + Send + use<> {
        let mut stream = self.session.stream_state().subscribe();
        async move {
            // The sender lives as long as the session, which the lease holds.
            let state = stream.wait_for(|state| *state != StreamState::Hears).await;
            match state.as_deref() {
                Ok(StreamState::Challenged(challenge)) => Some(Arc::clone(challenge)),
                Ok(StreamState::Hears | StreamState::Gone) | Err(_) => None,
            }
        }
    }

    /// Done when something that the server said on the general stream may have been missed. Cancel-safe.
    pub fn missed(&self) -> impl Future<Output = ()> + Send + use<> {
        let session = Arc::clone(&self.session);
        async move { session.missed().notified().await }
    }

    /// Refuses a question that came on the general stream and that nobody can be asked.
    pub fn refuse(&self, message: &[u8]) {
        self.home.refuse(&self.session, message);
    }

    /// From which level this request wants log messages, as far as the server has any.
    #[must_use]
    pub fn wanted_logs(&self) -> Option<LogLevel> {
        self.wish.as_ref().map(Wish::level)
    }

    /// Asks the server for the log messages that this request wants, none for `None`, instead of those that it wanted
    /// before. Done when the server has agreed, or was given time to; without being awaited nothing is asked.
    pub fn want_logs(
        &mut self,
        level: Option<LogLevel>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let level = level.filter(|_| self.identity().declares("logging"));
        self.wish = level.map(|level| Wish::of(&self.home, &self.session, level));
        let granted = self.wish.as_ref().map(Wish::granted);
        async move {
            if let Some(granted) = granted {
                granted.await;
            }
        }
    }

    /// From now on the session speaks with the credentials of this leg's caller.
    pub fn renew(&self, caller: &Caller) {
        self.session.connection.renew(caller.credentials.as_ref());
    }

    /// The server has forgotten the session: nobody else gets it.
    pub fn mark_gone(&self) {
        self.session.mark_gone();
    }

    /// The session is left to another process: nobody here uses or ends it.
    pub fn leave(&self) {
        self.session.leave();
    }

    /// Says what becomes of the session when the lease is dropped.
    pub fn set_fate(&mut self, fate: SessionFate) {
        self.fate = fate;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.wish = None;
        let inbox = self.inbox.take();
        let fate = if self.isolated {
            SessionFate::Retire
        } else {
            self.fate
        };
        self.home.take_back(&self.session, inbox, fate);
    }
}

/// Sends one-way messages of a call to the server of its session.
#[derive(Debug, Clone)]
pub struct Sender {
    session: Arc<Session>,
}

impl Sender {
    /// Sends one message; done when the server accepted it.
    ///
    /// # Errors
    /// When it was not accepted.
    pub async fn send(&self, message: Bytes) -> Result<(), UpstreamError> {
        let sent = self.session.connection.send(message).await;
        if matches!(sent, Err(UpstreamError::SessionGone)) {
            self.session.mark_gone();
        }
        sent
    }
}
