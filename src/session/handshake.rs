//! Opening a legacy session: `initialize`, `notifications/initialized`, the general stream.
//!
//! Spec: 2025-11-25 basic/lifecycle, "Initialization" and "Version Negotiation".

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio::time::{Instant, timeout_at};

use super::Number;
use super::SessionKey;
use crate::observe::chain;
use crate::translate::discover::ServerIdentity;
use crate::upstream::{Claim, Connection, Target, UpstreamError};
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::{self, Message, ServerId, UpstreamId};
use crate::wire::legacy;

/// Why no session could be opened. Nothing of a call was sent yet.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The transport failed.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The server answered `initialize` with an error.
    #[error("the server refused to open a session: {}", .0.message)]
    Refused(ErrorObject),
    /// The `InitializeResult` is not one.
    #[error("the server's answer to `initialize` is not understood")]
    Malformed,
    /// The server picked a revision that is no legacy one.
    #[error("the server wants protocol revision {0:?}, which is not spoken here")]
    Revision(Box<str>),
}

/// Runs the handshake; on success the server counts the session as open. A session that it opened in a handshake
/// that then failed is ended: nobody would ever use it.
pub(super) async fn open(
    target: &Target,
    key: &SessionKey,
    credentials: Option<HeaderValue>,
    (session, id): (Number, UpstreamId),
    within: Duration,
) -> Result<(Connection, ServerIdentity), HandshakeError> {
    let deadline = Instant::now() + within;
    let late = |_| HandshakeError::from(UpstreamError::Timeout);
    let connected = timeout_at(deadline, target.connect(credentials)).await;
    let connection = connected.map_err(late)??;
    let shaken = timeout_at(deadline, shake_hands(&connection, key, id)).await;
    match shaken.unwrap_or_else(|elapsed| Err(late(elapsed))) {
        Ok(identity) => Ok((connection, identity)),
        Err(error) => {
            if let Err(error) = connection.close().await {
                let error = chain(&error);
                tracing::debug!(
                    session,
                    error,
                    "it failed to open and could not be closed at the server"
                );
            }
            Err(error)
        }
    }
}

/// Both messages of the handshake.
async fn shake_hands(
    connection: &Connection,
    key: &SessionKey,
    id: UpstreamId,
) -> Result<ServerIdentity, HandshakeError> {
    let initialize = initialize(key, id).into();
    // What comes before the answer belongs to no call.
    let mut exchange = connection.request(id, initialize, HeaderMap::new(), Claim::All);
    let answered = exchange.answered().await;
    connection.opened_by(&exchange);
    answered?;
    let identity = loop {
        let message = exchange.next_message().await?.ok_or(UpstreamError::Ended)?;
        if let Some(identity) = initialized(&message, id)? {
            break identity;
        }
        if let Some(answer) = too_early(&message) {
            connection.send(answer.into()).await?;
        }
    };
    connection.speaks(&identity.protocol_version);
    let notification = jsonrpc::notification(legacy::INITIALIZED, None);
    connection.send(notification.into()).await?;
    Ok(identity)
}

/// What a server is told that asks before it has answered itself: it may only ping.
fn too_early(message: &[u8]) -> Option<Vec<u8>> {
    let Ok(Message::Request { id, method, .. }) = Message::parse(message) else {
        return None;
    };
    let id = ServerId::new(id)?;
    if method == legacy::PING {
        return Some(jsonrpc::result(&id, "{}"));
    }
    let why = "the session is not initialized yet";
    let error = ErrorObject::new(error::INVALID_REQUEST, why);
    Some(jsonrpc::error(&id, &error))
}

fn initialize(key: &SessionKey, id: UpstreamId) -> Vec<u8> {
    let params = format!(
        r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{{"name":"holdfast","version":"{}"}}}}"#,
        legacy::latest(),
        key.capabilities.as_json(),
        env!("CARGO_PKG_VERSION"),
    );
    jsonrpc::request(id, legacy::INITIALIZE, params.as_bytes())
}

/// Reads one message of the handshake; nothing when it is not the answer (some servers notify first).
fn initialized(message: &Bytes, id: UpstreamId) -> Result<Option<ServerIdentity>, HandshakeError> {
    match Message::parse(message) {
        Ok(Message::Result {
            id: answered,
            result,
        }) if id.matches(answered) => {
            let identity = ServerIdentity::parse(result).ok_or(HandshakeError::Malformed)?;
            if !legacy::REVISIONS.contains(&&*identity.protocol_version) {
                return Err(HandshakeError::Revision(identity.protocol_version));
            }
            Ok(Some(identity))
        }
        Ok(Message::Error { error, .. }) => Err(HandshakeError::Refused(error)),
        Ok(_) => Ok(None),
        Err(_) => Err(HandshakeError::Malformed),
    }
}
