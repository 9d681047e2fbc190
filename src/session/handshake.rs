//! Opening a legacy session: `initialize`, `notifications/initialized`, the general stream.
//!
//! Spec: 2025-11-25 basic/lifecycle, "Initialization" and "Version Negotiation".

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio::time::timeout;

use super::Number;
use super::SessionKey;
use crate::observe::chain;
use crate::translate::discover::ServerIdentity;
use crate::upstream::UpstreamError;
use crate::upstream::streamable_http::{Attribution, StreamableHttp};
use crate::wire::error::ErrorObject;
use crate::wire::jsonrpc::{self, Message, UpstreamId};
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
    upstream: &StreamableHttp,
    key: &SessionKey,
    credentials: Option<HeaderValue>,
    (session, id): (Number, UpstreamId),
    within: Duration,
) -> Result<(Attribution, ServerIdentity), HandshakeError> {
    let mut attribution = Attribution {
        credentials,
        ..Attribution::default()
    };
    let shaken = timeout(within, shake_hands(upstream, key, id, &mut attribution)).await;
    match shaken.unwrap_or_else(|_| Err(UpstreamError::Timeout.into())) {
        Ok(identity) => Ok((attribution, identity)),
        Err(error) => {
            if attribution.session_id.is_some()
                && let Err(error) = upstream.delete(&attribution).await
            {
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

/// Both messages of the handshake; what is known of the session so far stands in `attribution`.
async fn shake_hands(
    upstream: &StreamableHttp,
    key: &SessionKey,
    id: UpstreamId,
    attribution: &mut Attribution,
) -> Result<ServerIdentity, HandshakeError> {
    let mut exchange = upstream.request(attribution, initialize(key, id).into(), HeaderMap::new());
    let answered = exchange.answered().await;
    attribution.session_id = exchange.session_id().cloned();
    answered?;
    let identity = loop {
        let message = exchange.next_message().await?.ok_or(UpstreamError::Ended)?;
        if let Some(identity) = initialized(&message, id)? {
            break identity;
        }
    };
    if &*identity.protocol_version >= legacy::FIRST_WITH_VERSION_HEADER {
        attribution.protocol_version = HeaderValue::from_str(&identity.protocol_version).ok();
    }
    let notification = jsonrpc::notification(legacy::INITIALIZED, None);
    upstream.send(attribution, notification.into()).await?;
    Ok(identity)
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
