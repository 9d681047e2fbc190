//! What clients reach: HTTP with its admission, its bounds and its two forms of answer.
//!
//! It knows nothing of servers and their transports. Inner layers never mention status codes; `reply` maps
//! every way a leg can end to one. Spec: 2026-07-28 basic/transports/streamable-http.

mod admin;
mod admission;
mod body;
mod guard;
mod http;
mod reply;
mod server;
mod workers;

pub use http::{Front, FrontTerms};
pub use server::{Terms, bind, serve_admin, serve_clients};
pub use workers::Workers;
