//! Transports to legacy servers, one file each. They move JSON-RPC messages and know nothing of their meaning.
//!
//! A [`Target`] is a configured server. A session has a [`Connection`] to it, on which each request has an
//! [`Exchange`]. Over Streamable HTTP that is a response of its own; over all others it is cut out of the one
//! [`Channel`] that the session has.
//! Spec: 2025-11-25 basic/transports.

mod access;
mod backoff;
mod channel;
mod connection;
mod departure;
mod error;
mod http;
mod http_sse;
mod stdio;
mod streamable_http;
mod target;
mod tls;
mod websocket;

pub use access::{Access, Bearer, BearerError};
pub use backoff::Backoff;
pub use channel::{Channel, Claim};
pub use connection::{Connection, Exchange, GeneralStream};
pub use error::{ChannelEnd, Unfollowed, UpstreamError};
pub use http::{EventStream, TransportLimits};
pub use stdio::{ProcessLimits, Program, Stdio, stop_max};
pub use target::{HttpTarget, Target, Transport};
pub use tls::{Identity, Tls, TlsError, TlsMaterial};
pub use websocket::WebSocket;
