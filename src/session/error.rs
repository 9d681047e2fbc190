//! Why there is no session for a call.

use std::sync::Arc;

use super::handshake::HandshakeError;

/// Why there is no session for a call. The call was not sent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LeaseError {
    /// As many sessions are open as may be.
    #[error("all sessions with the server are in use")]
    Exhausted,
    /// The handshake failed.
    #[error(transparent)]
    Handshake(Arc<HandshakeError>),
    /// The process is going down.
    #[error("the gateway is shutting down")]
    Closing,
}

impl From<HandshakeError> for LeaseError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Closing => Self::Closing,
            error => Self::Handshake(Arc::new(error)),
        }
    }
}
