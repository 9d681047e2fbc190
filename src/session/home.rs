//! What a session in use needs of the pool that it goes back to, and requests of the gateway's own.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::inbox::Inbox;
use super::live::Session;
use crate::call::SessionFate;
use crate::upstream::UpstreamError;
use crate::upstream::streamable_http::Exchange;
use crate::wire::jsonrpc::{self, Message, UpstreamId};

/// Where a session goes when its call lets it go.
pub(super) trait Home: std::fmt::Debug + Send + Sync {
    /// An id for a request to the server, unique over all its sessions.
    fn next_id(&self) -> UpstreamId;

    /// Runs something in the background.
    fn run(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Refuses a question that came outside any call.
    fn refuse(&self, session: &Arc<Session>, message: &[u8]);

    /// Takes a session back, with its inbox if the call had it for itself.
    fn take_back(&self, session: &Arc<Session>, inbox: Option<Inbox>, fate: SessionFate);
}

/// Asks a server for something of the gateway's own; the answer is the whole message, a result.
pub(super) fn ask(
    home: &dyn Home,
    session: &Session,
    method: &str,
    params: &[u8],
) -> impl Future<Output = Result<Bytes, UpstreamError>> + Send + use<> {
    let id = home.next_id();
    let request = jsonrpc::request(id, method, params).into();
    let attribution = session.attribution();
    let exchange = session
        .upstream
        .request(&attribution, request, HeaderMap::new());
    answered(exchange, id)
}

async fn answered(mut exchange: Exchange, id: UpstreamId) -> Result<Bytes, UpstreamError> {
    while let Some(message) = exchange.next_message().await? {
        match Message::parse(&message) {
            Ok(Message::Result { id: answered, .. }) if id.matches(answered) => return Ok(message),
            Ok(Message::Error { .. }) => break,
            _ => {}
        }
    }
    Err(UpstreamError::Ended)
}
