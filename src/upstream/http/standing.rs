//! What a refusal of the server means to a session, by how the two stand to each other.

use http::{HeaderMap, StatusCode};

use super::classify;
use crate::upstream::UpstreamError;

/// The server refused the token that the backend has of its own.
#[derive(Debug, thiserror::Error)]
#[error("the server refuses the backend's bearer token (HTTP status {0})")]
struct Refused(u16);

/// How a session and its server stand to each other.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Standing {
    /// The server gave the session an id.
    pub(in crate::upstream) has_session: bool,
    /// `initialize` was answered.
    pub(in crate::upstream) is_open: bool,
    /// The backend's own token goes to the server instead of the client's.
    pub(in crate::upstream) has_own: bool,
}

impl Standing {
    /// What a status that is no success means; nothing for a success.
    pub(in crate::upstream) fn refusal(
        self,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<UpstreamError> {
        classify(status, headers, self.has_session).map(|error| self.judged(error))
    }

    /// A challenge of the backend's own token is nothing that a client could answer. One that comes when the session was
    /// open before means most likely that the token was rotated: the session is as good as forgotten, and the next one
    /// begins with the token of then.
    pub(in crate::upstream) fn judged(self, error: UpstreamError) -> UpstreamError {
        match error {
            UpstreamError::Challenge(challenge) if self.has_own => {
                if self.is_open && !challenge.forbidden {
                    return UpstreamError::SessionGone;
                }
                let status = if challenge.forbidden { 403 } else { 401 };
                UpstreamError::OwnCredentials(Refused(status).into())
            }
            other => other,
        }
    }
}
