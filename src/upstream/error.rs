//! Why a server's answer will not come.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{AuthChallenge, Loss};
use crate::observe::chain;

/// What is beneath an error, for the log alone: it names addresses, which clients must not see.
pub(super) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a server's answer will not come.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No connection, no process: nothing was sent.
    #[error("the server cannot be reached")]
    Connect(#[source] Cause),
    /// The connection broke before the response head.
    #[error("the connection to the server broke before it answered")]
    Request(#[source] Cause),
    /// The connection broke within the response.
    #[error("the connection to the server broke in the middle of its answer")]
    Body(#[source] hyper::Error),
    /// The response ended before the answer was complete.
    #[error("the server ended its answer too early")]
    Ended,
    /// The stream with the answer was lost, and the server does not or cannot resume it.
    #[error("the stream with the server's answer was lost and could not be resumed")]
    Unresumed(#[source] Box<Self>),
    /// The channel that the whole session used is over.
    #[error(transparent)]
    Over(Arc<ChannelEnd>),
    /// The server does not know the session (404), or the channel was over before: it has not read the message.
    #[error("the server has forgotten the session")]
    SessionGone,
    /// The server wants other credentials (401, 403).
    #[error("the server refuses the credentials")]
    Challenge(Arc<AuthChallenge>),
    /// The server has the gateway's own credentials to judge, not the client's, and there are none or it refuses them.
    #[error("the gateway's own credentials are not good for the server")]
    OwnCredentials(#[source] Cause),
    /// It does not choose the WebSocket subprotocol: nothing was sent.
    #[error("the server does not speak the WebSocket subprotocol `mcp`")]
    Subprotocol(#[source] Cause),
    /// A redirect that is not followed.
    #[error("the server redirects the request {0}")]
    Redirected(#[from] Unfollowed),
    /// Any other status that is no success.
    #[error("the server answered with HTTP status {0}")]
    Status(u16),
    /// A body that is neither JSON nor an event stream.
    #[error("the server's answer is neither JSON nor an event stream")]
    ContentType,
    /// The `endpoint` event that HTTP+SSE begins with is not as it should be: nothing was sent.
    #[error("the server's `endpoint` event {0}")]
    Endpoint(&'static str),
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

/// The server did not finish the handshakes in time.
#[derive(Debug, thiserror::Error)]
#[error("connecting took longer than {0:?}")]
pub(super) struct TooSlow(pub(super) Duration);

/// How the only channel of a session came to its end.
#[derive(Debug, thiserror::Error)]
pub enum ChannelEnd {
    /// The server's process ended, or closed its output.
    #[error("the server's process has ended")]
    Exited(#[source] Cause),
    /// The server closed it.
    #[error("the server closed its connection")]
    Closed(#[source] Option<Cause>),
    /// It broke.
    #[error("the connection to the server broke")]
    Broken(#[source] Cause),
    /// A message beyond the limit: what it answered cannot be known any more.
    #[error("the server sent a message larger than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// This side has ended it.
    #[error("the session with the server was closed")]
    Stopped,
}

/// How many redirects are followed one after the other. Real servers want one: a slash at the end, or a new path.
pub(super) const REDIRECTS_MAX: u32 = 3;

/// Why a redirect is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfollowed {
    /// It leads to another scheme, host or port.
    #[error("to another origin")]
    Elsewhere,
    /// It says not where it leads.
    #[error("without a place to go")]
    Nowhere,
    /// It is one too many.
    #[error("more than {REDIRECTS_MAX} times")]
    TooOften,
    /// The request was not to open anything, or the status would make another request of it.
    #[error("where that cannot be followed (HTTP status {0})")]
    Here(u16),
}

impl UpstreamError {
    /// Whether the server may have acted on the request: only then is it unsafe to send it again.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Connect(_)
            | Self::SessionGone
            | Self::Challenge(_)
            | Self::OwnCredentials(_)
            | Self::Subprotocol(_)
            | Self::Endpoint(_) => false,
            // 307 and 308 ask for the same request elsewhere; the others may come after it was run here.
            Self::Redirected(Unfollowed::Here(status)) => !matches!(status, 307 | 308),
            Self::Redirected(_) => false,
            Self::Status(status) => *status >= 500,
            Self::Request(_)
            | Self::Body(_)
            | Self::Ended
            // Whatever the attempt to resume it met: the request itself was being answered.
            | Self::Unresumed(_)
            | Self::Over(_)
            | Self::ContentType
            | Self::TooLarge { .. }
            | Self::Timeout => true,
        }
    }

    /// Whether it is the way to the server that broke, or the server that is gone: what else it may be, the server has
    /// answered, or is silent.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        match self {
            Self::Connect(_)
            | Self::Request(_)
            | Self::Body(_)
            | Self::Ended
            | Self::Unresumed(_)
            | Self::SessionGone => true,
            Self::Over(end) => match &**end {
                ChannelEnd::Exited(_) | ChannelEnd::Closed(_) | ChannelEnd::Broken(_) => true,
                ChannelEnd::TooLarge { .. } | ChannelEnd::Stopped => false,
            },
            Self::Challenge(_)
            | Self::OwnCredentials(_)
            | Self::Subprotocol(_)
            | Self::Redirected(_)
            | Self::Status(_)
            | Self::ContentType
            | Self::Endpoint(_)
            | Self::TooLarge { .. }
            | Self::Timeout => false,
        }
    }

    /// Whether the same may go better later, with nothing changed on this side.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            // A stream or body that merely ends says nothing: servers are restarted, and so is what stands before them.
            Self::Connect(_) | Self::Request(_) | Self::Body(_) | Self::Ended | Self::Timeout => {
                true
            }
            // 409 is what servers say to whom a lost stream still counts as open, 425 that it is too early. Of those
            // from 500 on, "not implemented" alone is for good.
            Self::Status(status) => {
                matches!(status, 408 | 409 | 425 | 429) || (*status >= 500 && *status != 501)
            }
            Self::Unresumed(why) => why.may_pass(),
            // Credentials are the business of whoever has others.
            Self::Challenge(_)
            | Self::OwnCredentials(_)
            | Self::SessionGone
            | Self::Over(_)
            | Self::Subprotocol(_)
            | Self::Redirected(_)
            | Self::ContentType
            | Self::Endpoint(_)
            | Self::TooLarge { .. } => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_judged_once() {
        for (status, may_pass) in [
            (400, false),
            (404, false),
            (405, false),
            (408, true),
            (409, true),
            (425, true),
            (429, true),
            (500, true),
            (501, false),
            (503, true),
        ] {
            assert_eq!(
                UpstreamError::Status(status).may_pass(),
                may_pass,
                "{status}"
            );
            let unresumed = UpstreamError::Unresumed(Box::new(UpstreamError::Status(status)));
            assert_eq!(unresumed.may_pass(), may_pass, "{status}");
        }
        assert!(UpstreamError::Ended.may_pass());
        assert!(!UpstreamError::SessionGone.may_pass());
    }
}
