//! Legacy sessions: handshake, pool, lease, capability sets, roots.
//!
//! A session is initialized with exactly its caller's capabilities and belongs to that caller's principal;
//! both together are its [`SessionKey`]. A call that may be asked something has its session for itself,
//! unless the server offers no general stream: then every question comes on the stream of its own call.
//! Spec: 2025-11-25 basic/lifecycle, basic/transports "Session Management".

use http::HeaderValue;
use serde::{Deserialize, Serialize};

use crate::translate::capability::ClientCapabilities;

mod changes;
mod error;
mod general_stream;
mod handshake;
mod home;
mod inbox;
mod lease;
mod live;
mod logs;
mod opening;
mod pool;
mod principal;
mod rooted;
mod roots;
mod shelf;
mod takeover;
mod watched;
mod watching;
mod wishes;

pub use changes::{Audience, Changes, Ear, Hearing};
pub use error::LeaseError;
pub use handshake::HandshakeError;
pub use home::AskError;
pub use lease::{Lease, Sender};
pub use pool::{Pool, PoolSettings};
pub use principal::{Binding, Principal};
pub use shelf::LeaseMode;
pub use watching::{ASKING_MAX, Keeping, Standing};

/// Numbers sessions in log lines: the server's own ids are as good as credentials.
type Number = u64;

/// Whom a session serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// Whose calls.
    pub principal: Principal,
    /// What the client can be asked, as the server was told.
    pub capabilities: ClientCapabilities,
}

/// A session as its server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionName {
    /// `Mcp-Session-Id`, if the server gave one.
    pub id: Option<Box<str>>,
    /// The revision that it picked.
    pub revision: Box<str>,
    /// Other calls may be under way on it.
    pub is_shared: bool,
}

/// The caller of one leg.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whom a session must serve to serve this caller.
    pub key: SessionKey,
    /// `Authorization` as it came; it goes to the server as it is.
    pub credentials: Option<HeaderValue>,
    /// This caller shares its session with no other call, not even with its own next one.
    pub isolated: bool,
}
