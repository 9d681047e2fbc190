//! The general stream of a session: the GET on which a server sends what belongs to no request.
//!
//! Pings are answered at once. Questions wait in the session's inbox for the call that has the session;
//! notifications reach that call too and are dropped when there is none. A broken stream is opened again,
//! after its last event id if it had one.
//! Spec: 2025-11-25 basic/transports, "Listening for Messages from the Server".

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::lease::Session;
use crate::upstream::UpstreamError;
use crate::upstream::streamable_http::EventStream;
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::{self, Message, ServerId};
use crate::wire::legacy;

/// Messages that wait for a call. Real servers ask one or two things at a time.
pub(super) const QUEUE_MAX: usize = 64;

/// The first pause before a broken stream is opened again, doubled up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Reads the stream until the session ends or the server offers no stream any more.
pub(super) async fn listen(
    session: Weak<Session>,
    opened: Option<EventStream>,
    inbox: mpsc::Sender<Bytes>,
    end: CancellationToken,
) {
    let mut resume = Resume {
        last_event_id: None,
        pause: PAUSE_FIRST,
    };
    let reading = async {
        let mut opened = opened;
        loop {
            let stream = match opened.take() {
                Some(stream) => Ok(Some(stream)),
                None => reopen(&session, &resume).await,
            };
            match stream {
                Ok(Some(stream)) => read(&session, stream, &inbox, &mut resume).await,
                Ok(None) => return,
                Err(UpstreamError::SessionGone) => {
                    if let Some(session) = session.upgrade() {
                        session.mark_gone();
                    }
                    return;
                }
                Err(error) => tracing::debug!(%error, "the general stream is not to be had"),
            }
            tokio::time::sleep(resume.pause).await;
            resume.pause = (resume.pause * 2).min(PAUSE_MAX);
        }
    };
    tokio::select! {
        () = end.cancelled() => {}
        () = reading => {}
    }
}

struct Resume {
    last_event_id: Option<Box<str>>,
    pause: Duration,
}

async fn reopen(
    session: &Weak<Session>,
    resume: &Resume,
) -> Result<Option<EventStream>, UpstreamError> {
    let Some(session) = session.upgrade() else {
        return Ok(None);
    };
    let (upstream, attribution) = (session.upstream.clone(), session.attribution());
    drop(session);
    upstream
        .open_stream(&attribution, resume.last_event_id.as_deref())
        .await
}

async fn read(
    session: &Weak<Session>,
    mut stream: EventStream,
    inbox: &mpsc::Sender<Bytes>,
    resume: &mut Resume,
) {
    loop {
        let event = match stream.next_event().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "the general stream broke");
                return;
            }
        };
        resume.pause = event
            .retry_ms
            .map_or(PAUSE_FIRST, Duration::from_millis)
            .min(PAUSE_MAX);
        if event.id.is_some() {
            resume.last_event_id = event.id;
        }
        let Some(session) = session.upgrade() else {
            return;
        };
        for message in jsonrpc::batch(event.data) {
            if !message.is_empty() {
                take(&session, message, inbox).await;
            }
        }
    }
}

async fn take(session: &Session, message: Bytes, inbox: &mpsc::Sender<Bytes>) {
    let refusal = match Message::parse(&message) {
        Ok(Message::Request { id, method, .. }) => {
            let Some(id) = ServerId::new(id) else { return };
            if method == legacy::PING {
                Some(jsonrpc::result(&id, "{}"))
            } else if !session.key.capabilities.may_be_asked() {
                let error = ErrorObject::new(error::METHOD_NOT_FOUND, "the client cannot be asked");
                Some(jsonrpc::error(&id, &error))
            } else if inbox.try_send(detached(&message)).is_err() {
                let error = ErrorObject::new(error::INTERNAL_ERROR, "too many questions wait");
                Some(jsonrpc::error(&id, &error))
            } else {
                None
            }
        }
        Ok(Message::Notification { method, .. }) => {
            let concerns_a_call = session.is_exclusive.load(Ordering::Acquire);
            if (concerns_a_call || method == legacy::CANCELLED)
                && inbox.try_send(detached(&message)).is_err()
            {
                tracing::warn!(%method, "a notification is dropped: the call is too slow");
            }
            None
        }
        Ok(Message::Result { .. } | Message::Error { .. }) => None,
        Err(error) => {
            tracing::warn!(%error, "a message on the general stream is not understood");
            None
        }
    };
    if let Some(refusal) = refusal
        && let Err(error) = session
            .upstream
            .send(&session.attribution(), refusal.into())
            .await
    {
        tracing::debug!(%error, "an answer on the general stream was not taken");
    }
}

/// A copy of its own: a message that waits must not keep a whole read buffer alive.
fn detached(message: &Bytes) -> Bytes {
    Bytes::copy_from_slice(message)
}
