//! What clients reach: HTTP and stdio, one admission for both, their bounds and their forms of answer.
//!
//! Other replicas reach the same endpoint by a listener of their own.
//!
//! It knows nothing of servers and their transports. Inner layers never mention status codes; `reply` maps
//! every way a leg can end to one. Spec: 2026-07-28 basic/transports.

mod admin;
mod admission;
mod body;
mod elsewhere;
mod guard;
mod http;
mod message;
mod replicas;
mod reply;
mod server;
mod stdio;
mod workers;

pub use http::{Front, FrontTerms};
pub use replicas::{ReplicaTerms, serve_replicas};
pub use server::{Terms, bind, serve_admin, serve_clients};
pub use stdio::{ClientGone, StdioTerms, serve_stdio};
pub use workers::Workers;
