//! What happens to a call, and what it wants done.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::reply::{Loss, Reply};
use super::rounds::{AnswersDigest, Round};
use crate::translate::capability::ClientCapabilities;
use crate::translate::discover::ServerIdentity;
use crate::wire::jsonrpc::Message;
use crate::wire::modern::LogLevel;
use crate::wire::object::RawObject;

/// One HTTP request of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LegId(pub u64);

/// What a leg wants to hear besides its reply.
#[derive(Clone, Debug)]
pub struct Leg {
    /// Which leg it is.
    pub id: LegId,
    /// The token under which its client wants progress.
    pub progress_token: Option<Box<RawValue>>,
    /// From which level its client wants log messages; none without it.
    pub log_level: Option<LogLevel>,
}

/// Where a server's message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The stream that answers the call's own request.
    Exchange,
    /// The session's general stream, while the call has the session for itself.
    Session,
    /// The same, sent before the call's own request went up: it was caused by something else.
    Stray,
}

/// Something that happened to a call.
#[derive(Debug)]
pub enum Event<'a> {
    /// The call has got a session with this server: at its start, and again when it runs anew.
    Leased(Arc<ServerIdentity>),
    /// Its request went up.
    Departed,
    /// The server sent a message.
    Server(Origin, Message<'a>),
    /// The way on which its answer was to come is broken.
    Lost(Loss),
    /// What came instead of its answer is of no use.
    Failed(Loss),
    /// The request could not be sent at all.
    Refused(Reply),
    /// A further leg brought a `requestState` of this call.
    Reissue(Leg, Answers<'a>),
    /// The client of a leg went away.
    LegGone(LegId),
    /// The moment that [`super::Call::deadline`] named has come.
    Timer,
    /// This side cannot go on, and why: end now.
    Abandon(&'static str),
    /// Another process goes on with the call, or may: end here without a word to the server.
    LetGo,
    /// Another process runs the call again, or may: end here, and let the server end it too.
    PutOff,
}

/// Why a request runs anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anew {
    /// The server ended its call and wanted visits first (error −32042). One that was declined keeps it from running: the
    /// server would only ask again.
    Visited {
        /// One was.
        is_declined: bool,
    },
    /// It was lost.
    Lost,
}

/// What a re-issue brings.
#[derive(Debug)]
pub struct Answers<'a> {
    /// The round its state was sealed for.
    pub round: Round,
    /// Tells its `inputResponses` from others.
    pub digest: AnswersDigest,
    /// Its `inputResponses`.
    pub responses: RawObject<'a>,
    /// What its client can be asked: it need not be what the leg before declared.
    pub capabilities: ClientCapabilities,
    /// A process that is gone has given these answers to the server, or was about to: they are not given again.
    pub were_given: bool,
}

/// Something to do, in the order given.
#[derive(Debug)]
pub enum Action {
    /// Send the client's answer to the server: without it the call cannot go on.
    Answer(Vec<u8>),
    /// Send the server something it can do without: a pong, a refusal.
    Tell(Vec<u8>),
    /// Send the server the cancellation of its request, if that went up at all: some servers never answer
    /// again after a cancellation of what they do not know.
    Cancel(Vec<u8>),
    /// Send a notification to a leg.
    Notify(LegId, Bytes),
    /// Give a leg its reply; it is over then.
    Reply(LegId, Reply),
    /// The exchange is over: let the session go.
    Release(SessionFate),
    /// Run the request anew, under an id of its own: see [`super::Call::starts_as`].
    Start(Anew),
    /// The call has ended: nothing follows.
    End,
}

/// What becomes of the session that a call used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionFate {
    /// It is as good as before.
    Reuse,
    /// The server may still be busy with the call: it serves nobody else.
    Retire,
}
