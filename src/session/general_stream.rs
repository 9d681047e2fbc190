//! The general stream of a session: the GET on which a server sends what belongs to no request.
//!
//! Pings are answered at once, and so is what nobody can be asked. Questions wait in the session's inbox for the
//! call that has the session; notifications reach that call too and are dropped when there is none, except changes of
//! lists and resources: those are for all listeners of the session's principal. A broken stream
//! is opened again, but never resumed: widely used servers keep the events of all sessions' general streams under one
//! name, and would repeat on this one what they have asked other people.
//! Spec: 2025-11-25 basic/transports, "Listening for Messages from the Server".

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::inbox::{STRAY_BYTES_MAX, Slot};
use super::live::{Session, StreamState};
use super::roots::Asks;
use crate::observe::chain;
use crate::translate::input_request::{InputKind, InputRequest, NotAsked};
use crate::translate::subscription::Change;
use crate::upstream::{Backoff, GeneralStream, UpstreamError};
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::{self, Message, ServerId};
use crate::wire::legacy;

/// Answers to the server that may be on their way at once. To a server that asks faster nothing is said.
const ANSWERS_MAX: usize = 8;

/// Reads the general stream of one session.
pub(super) struct Listener {
    session: Weak<Session>,
    inbox: Slot,
    tasks: TaskTracker,
    answers: Arc<Semaphore>,
    backoff: Backoff,
    has_complained: bool,
}

impl Listener {
    pub(super) fn new(session: &Arc<Session>, inbox: Slot, tasks: TaskTracker) -> Self {
        Self {
            session: Arc::downgrade(session),
            inbox,
            tasks,
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
            backoff: Backoff::of_streams(),
            has_complained: false,
        }
    }

    /// Reads the stream until the session ends or the server offers no stream any more. Cancelled, the reading may lose
    /// what has arrived and was not taken yet: at the end of the session there is nobody left to hear it.
    pub(super) async fn listen(mut self, opened: Option<GeneralStream>, end: CancellationToken) {
        tokio::select! {
            () = end.cancelled() => {}
            () = self.read_again_and_again(opened) => {}
        }
    }

    /// Not cancel-safe: see [`Self::listen`].
    async fn read_again_and_again(&mut self, mut opened: Option<GeneralStream>) {
        // One that was not open from the beginning may have missed something before it is.
        let mut was_open = opened.is_none();
        loop {
            let begun = Instant::now();
            let stream = match opened.take() {
                Some(stream) => Ok(Some(stream)),
                None => self.open().await,
            };
            match stream {
                Ok(Some(stream)) => {
                    if std::mem::replace(&mut was_open, true) {
                        self.opened_anew();
                    }
                    self.stands(StreamState::Hears);
                    self.read(stream).await;
                    // There is nothing to open again: whoever waits on the session hears of it at once.
                    if let Some(session) = self.session.upgrade()
                        && session.connection.is_over()
                    {
                        return session.mark_gone();
                    }
                }
                Ok(None) => return self.stands(StreamState::Gone),
                Err(UpstreamError::SessionGone) => {
                    if let Some(session) = self.session.upgrade() {
                        session.mark_gone();
                    }
                    return;
                }
                Err(UpstreamError::Challenge(challenge)) => {
                    self.stands(StreamState::Challenged(challenge));
                }
                Err(error) => self.say(&error, "the general stream is not to be had"),
            }
            tokio::time::sleep(self.backoff.after(begun.elapsed())).await;
        }
    }

    /// Nobody knows what the server said while there was no stream.
    fn opened_anew(&self) {
        if let Some(session) = self.session.upgrade() {
            session.has_missed();
        }
    }

    fn stands(&self, state: StreamState) {
        if let Some(session) = self.session.upgrade() {
            let is_new = |known: &mut StreamState| {
                let is_new = *known != state;
                *known = state;
                is_new
            };
            session.stream_state().send_if_modified(is_new);
        }
    }

    async fn open(&self) -> Result<Option<GeneralStream>, UpstreamError> {
        let Some(session) = self.session.upgrade() else {
            return Ok(None);
        };
        let connection = Arc::clone(&session.connection);
        // A server may take for ever to open it.
        drop(session);
        connection.general_stream().await
    }

    async fn read(&mut self, mut stream: GeneralStream) {
        loop {
            let event = match stream.next_event().await {
                Ok(Some(event)) => event,
                Ok(None) => return,
                Err(error) => return self.say(&error, "the general stream broke"),
            };
            if let Some(retry_ms) = event.retry_ms {
                self.backoff.peer_wants(Duration::from_millis(retry_ms));
            }
            let Some(session) = self.session.upgrade() else {
                return;
            };
            for message in jsonrpc::batch(event.data) {
                if !message.is_empty() {
                    self.take(&session, &message);
                }
            }
        }
    }

    fn take(&mut self, session: &Arc<Session>, message: &Bytes) {
        match Message::parse(message) {
            Ok(Message::Request { id, method, params }) => {
                let Some(id) = ServerId::new(id) else {
                    return self.answer(session, jsonrpc::unusable_id(id));
                };
                if method == legacy::PING {
                    return self.answer(session, jsonrpc::result(&id, "{}"));
                }
                let request = InputRequest::parse(&method, params);
                if let Err(error) = self.question(session, message, request) {
                    self.answer(session, jsonrpc::error(&id, &error));
                }
            }
            Ok(Message::Notification { method, params }) => {
                if let Some(change) = Change::parse(&method, params) {
                    return session.publish(&change);
                }
                let concerns_a_call = session.is_exclusive.load(Ordering::Acquire);
                let is_heard = concerns_a_call || method == legacy::CANCELLED;
                if is_heard && !self.inbox.put(message) {
                    let session = session.number;
                    tracing::warn!(session, %method, "a notification is dropped: the call is too slow");
                }
            }
            Ok(Message::Result { .. } | Message::Error { .. }) => {}
            Err(error) => {
                let session = session.number;
                if std::mem::replace(&mut self.has_complained, true) {
                    tracing::debug!(session, %error, "a message on the general stream is not understood");
                } else {
                    tracing::warn!(session, %error, "a message on the general stream is not understood");
                }
            }
        }
    }

    /// Lets a question wait for its call, unless no call of this session's client could ask it.
    fn question(
        &self,
        session: &Session,
        message: &Bytes,
        request: Result<InputRequest, NotAsked>,
    ) -> Result<(), ErrorObject> {
        let refused = |code, why: &str| Err(ErrorObject::new(code, why));
        let request = match request {
            Ok(request) => request,
            Err(NotAsked::UnknownMethod) => {
                return refused(
                    error::METHOD_NOT_FOUND,
                    "the client does not serve this method",
                );
            }
            Err(NotAsked::Malformed(why)) => return refused(error::INVALID_PARAMS, why),
        };
        let is_stray = !session.is_exclusive.load(Ordering::Acquire);
        // A call that runs decides for itself.
        if is_stray && !session.key.capabilities.has(request.needs) {
            let why = "the client did not declare the capability this needs";
            return refused(error::INVALID_REQUEST, why);
        }
        if is_stray && message.len() > STRAY_BYTES_MAX {
            let why = "no call is running, and the question is too large to wait for one";
            return refused(error::INTERNAL_ERROR, why);
        }
        if is_stray && request.kind == InputKind::Roots {
            session.roots().were_asked(Asks::ByItself);
        }
        if self.inbox.put(message) {
            Ok(())
        } else {
            refused(error::INTERNAL_ERROR, "too many questions wait")
        }
    }

    /// Answers beside the stream: a server that is slow to listen must not keep it from being read.
    fn answer(&self, session: &Arc<Session>, answer: Vec<u8>) {
        let Ok(place) = Arc::clone(&self.answers).try_acquire_owned() else {
            let session = session.number;
            return tracing::debug!(session, "an answer is left out: the server does not listen");
        };
        let session = Arc::clone(session);
        self.tasks.spawn(async move {
            session.tell(answer.into()).await;
            drop(place);
        });
    }

    fn say(&self, error: &UpstreamError, what: &str) {
        let session = self.session.upgrade().map(|session| session.number);
        tracing::debug!(session, error = chain(error), "{what}");
    }
}
