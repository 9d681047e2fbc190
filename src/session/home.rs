//! What a session in use needs of the pool that it goes back to, and requests of the gateway's own.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::inbox::Inbox;
use super::live::Session;
use super::roots::RootsHabits;
use crate::call::SessionFate;
use crate::translate::subscription::Change;
use crate::upstream::{Claim, Exchange, UpstreamError};
use crate::wire::error::ErrorObject;
use crate::wire::jsonrpc::{self, Message, ServerId, UpstreamId};
use crate::wire::legacy;

/// Where a session goes when its call lets it go.
pub(super) trait Home: std::fmt::Debug + Send + Sync {
    /// An id for a request to the server, unique over all its sessions.
    fn next_id(&self) -> UpstreamId;

    /// Runs something in the background.
    fn run(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// What is known of the server and roots.
    fn roots_habits(&self) -> &RootsHabits;

    /// Answers a ping, and refuses a question, that came outside any call.
    fn refuse(&self, session: &Arc<Session>, message: &[u8]);

    /// Takes a session back, with its inbox if the call had it for itself.
    fn take_back(&self, session: &Arc<Session>, inbox: Option<Inbox>, fate: SessionFate);
}

/// What a server is told that asks while nobody can be asked: a ping is answered, all else refused. Nothing for what is
/// no request.
pub(super) fn refusal(message: &[u8], code: i64, why: &str) -> Option<Vec<u8>> {
    let Ok(Message::Request { id, method, .. }) = Message::parse(message) else {
        return None;
    };
    let Some(id) = ServerId::new(id) else {
        return Some(jsonrpc::unusable_id(id));
    };
    if method == legacy::PING {
        return Some(jsonrpc::result(&id, "{}"));
    }
    Some(jsonrpc::error(&id, &ErrorObject::new(code, why)))
}

/// Why a server did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It said no.
    #[error("the server refuses")]
    Refused,
    /// It said nothing.
    #[error(transparent)]
    Lost(#[from] UpstreamError),
}

/// Asks a server for something of the gateway's own; the answer is the whole message, a result.
pub(super) fn ask(
    home: &Arc<dyn Home>,
    session: &Arc<Session>,
    method: &str,
    params: &[u8],
) -> impl Future<Output = Result<Bytes, AskError>> + Send + use<> {
    let id = home.next_id();
    let request = jsonrpc::request(id, method, params).into();
    let connection = &session.connection;
    let exchange = connection.request(id, request, HeaderMap::new(), Claim::Response);
    answered(Arc::clone(home), Arc::clone(session), exchange, id)
}

/// Reads up to the answer. What the server says beside it is heard as on the general stream.
async fn answered(
    home: Arc<dyn Home>,
    session: Arc<Session>,
    mut exchange: Exchange,
    id: UpstreamId,
) -> Result<Bytes, AskError> {
    while let Some(message) = exchange.next_message().await? {
        for message in jsonrpc::batch(message) {
            match Message::parse(&message) {
                Ok(Message::Result { id: answered, .. }) if id.matches(answered) => {
                    return Ok(message);
                }
                Ok(Message::Error { .. }) => return Err(AskError::Refused),
                Ok(Message::Notification { method, params }) => {
                    if let Some(change) = Change::parse(&method, params) {
                        session.publish(&change);
                    }
                }
                Ok(Message::Request { .. }) => home.refuse(&session, &message),
                Ok(Message::Result { .. }) | Err(_) => {}
            }
        }
    }
    Err(UpstreamError::Ended.into())
}
