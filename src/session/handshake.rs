//! Opening a legacy session: `initialize`, `notifications/initialized`, the general stream.
//!
//! Spec: 2025-11-25 basic/lifecycle, "Initialization" and "Version Negotiation".

use bytes::Bytes;
use http::HeaderValue;

use super::SessionKey;
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

/// Runs the handshake; on success the server counts the session as open.
pub(super) async fn open(
    upstream: &StreamableHttp,
    key: &SessionKey,
    credentials: Option<HeaderValue>,
    id: UpstreamId,
) -> Result<(Attribution, ServerIdentity), HandshakeError> {
    let mut attribution = Attribution {
        credentials,
        ..Attribution::default()
    };
    let mut exchange = upstream.request(&attribution, initialize(key, id).into());
    let identity = loop {
        let message = exchange.next_message().await?.ok_or(UpstreamError::Ended)?;
        if let Some(identity) = initialized(&message, id)? {
            break identity;
        }
    };
    attribution.session_id = exchange.session_id().cloned();
    if &*identity.protocol_version >= legacy::FIRST_WITH_VERSION_HEADER {
        attribution.protocol_version = HeaderValue::from_str(&identity.protocol_version).ok();
    }
    let notification = jsonrpc::notification(legacy::INITIALIZED, None);
    if let Err(error) = upstream.send(&attribution, notification.into()).await {
        // The server counts a session that will never be used: end it, as far as that still works.
        let _ = upstream.delete(&attribution).await;
        return Err(error.into());
    }
    Ok((attribution, identity))
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
