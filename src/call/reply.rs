//! How a leg ends, and the errors that are a gateway's own.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use crate::translate::capability::Capability;
use crate::wire::error::{self, ErrorObject};

/// How a leg ends.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A modern result, complete or asking for input, as raw JSON.
    Result(Bytes),
    /// A JSON-RPC error.
    Error(Arc<ErrorObject>),
    /// The server wants other credentials; the client must see its challenge as it is.
    Challenge(Arc<AuthChallenge>),
}

impl Reply {
    /// An error reply.
    #[must_use]
    pub fn error(error: ErrorObject) -> Self {
        Self::Error(Arc::new(error))
    }

    /// How many bytes remembering it costs.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Result(result) => result.len(),
            Self::Error(error) => {
                error.message.len() + error.data.as_deref().map_or(0, |data| data.get().len())
            }
            Self::Challenge(challenge) => challenge
                .www_authenticate
                .iter()
                .map(|value| value.len())
                .sum(),
        }
    }
}

/// A 401 or 403 of the server (2025-11-25 basic/authorization): holdfast is the server's address to its
/// clients, so the challenge goes to the client unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthChallenge {
    /// 403 instead of 401.
    pub forbidden: bool,
    /// The `WWW-Authenticate` values, as they came.
    pub www_authenticate: Vec<Box<[u8]>>,
    /// Who wants credentials, in words for the client.
    pub why: &'static str,
}

/// Why the server's answer will not come.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Loss {
    /// The server wants other credentials.
    #[error("the server refuses the credentials")]
    Challenge(Arc<AuthChallenge>),
    /// Anything else.
    #[error("{message}")]
    Failed {
        /// One sentence for the client, without addresses or other internals.
        message: String,
        /// Whether the server may have started the call.
        may_have_run: bool,
    },
}

impl Loss {
    /// Whether the server may have started the call.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Challenge(_) => false,
            Self::Failed { may_have_run, .. } => *may_have_run,
        }
    }
}

impl From<Loss> for Reply {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Challenge(challenge) => Self::Challenge(challenge),
            Loss::Failed {
                message,
                may_have_run,
            } => Self::error(
                ErrorObject::new(error::INTERNAL_ERROR, message)
                    .with_data(&json!({"reason": "lost", "mayHaveRun": may_have_run})),
            ),
        }
    }
}

/// The error that names a capability the client did not declare (−32021).
pub(super) fn missing(capability: Capability) -> Reply {
    Reply::error(
        ErrorObject::new(
            error::MISSING_CLIENT_CAPABILITY,
            "the server asks for something that needs a capability the client did not declare",
        )
        .with_data(&json!({"requiredCapabilities": capability.as_client_capabilities()})),
    )
}

/// The error of a call that went wrong here; `may_have_run` as in [`Loss::Failed`].
#[must_use]
pub fn failed(message: &str, may_have_run: bool) -> Reply {
    Loss::Failed {
        message: message.to_owned(),
        may_have_run,
    }
    .into()
}

/// The error of a re-issue that cannot be served at the moment and has changed nothing: its call is as it was, and the
/// same request may be sent again.
#[must_use]
pub fn unreached(why: &str) -> Reply {
    Reply::error(
        ErrorObject::new(error::INTERNAL_ERROR, why).with_data(&json!({"reason": "unreached"})),
    )
}

/// The refusal of a state whose round was answered otherwise, or is long over.
#[must_use]
pub fn already_answered() -> Reply {
    Reply::error(
        ErrorObject::new(
            error::INVALID_PARAMS,
            "this requestState was answered before, and otherwise",
        )
        .with_data(&json!({"reason": "answered"})),
    )
}
