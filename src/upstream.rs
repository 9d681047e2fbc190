//! Transports to legacy servers, one file each. They move JSON-RPC messages and know nothing of their meaning.
//!
//! Spec: 2025-11-25 basic/transports.

use std::sync::Arc;

use crate::call::{AuthChallenge, Loss};
use crate::observe::chain;

pub mod streamable_http;

/// Why a server's answer will not come.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No connection: nothing was sent.
    #[error("the server cannot be reached")]
    Connect(#[source] hyper_util::client::legacy::Error),
    /// The connection broke before the response head.
    #[error("the connection to the server broke before it answered")]
    Request(#[source] hyper_util::client::legacy::Error),
    /// The connection broke within the response.
    #[error("the connection to the server broke in the middle of its answer")]
    Body(#[source] hyper::Error),
    /// The response ended before the answer was complete.
    #[error("the server ended its answer too early")]
    Ended,
    /// The server does not know the session (404): it refused the message unread.
    #[error("the server has forgotten the session")]
    SessionGone,
    /// The server wants other credentials (401, 403).
    #[error("the server refuses the credentials")]
    Challenge(Arc<AuthChallenge>),
    /// Any other status that is no success.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    /// A body that is neither JSON nor an event stream.
    #[error("the server's answer is neither JSON nor an event stream")]
    ContentType,
    /// A message beyond the limit.
    #[error("the server's answer is larger than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The server took too long.
    #[error("the server did not answer in time")]
    Timeout,
}

impl UpstreamError {
    /// Whether the server may have acted on the request: only then is it unsafe to send it again.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Connect(_) | Self::SessionGone | Self::Challenge(_) => false,
            Self::Status(status) => *status >= 500,
            Self::Request(_)
            | Self::Body(_)
            | Self::Ended
            | Self::ContentType
            | Self::TooLarge { .. }
            | Self::Timeout => true,
        }
    }

    /// What the call it ends is told. Causes are logged here: they name addresses, which clients must not see.
    #[must_use]
    pub fn to_loss(&self, backend: &str) -> Loss {
        if let Self::Challenge(challenge) = self {
            return Loss::Challenge(Arc::clone(challenge));
        }
        tracing::warn!(backend, error = chain(self), "a call lost its server");
        Loss::Failed {
            message: self.to_string(),
            may_have_run: self.may_have_run(),
        }
    }
}
