//! Era to era, as pure functions: requests, results, input requests and responses, notifications, errors
//! and discovery. See docs/mapping.md for the map; each file names the clause it follows.
//!
//! Nothing here does I/O or knows a session. Payloads are spliced as raw JSON, never rebuilt from a tree.

pub mod capability;
pub mod discover;
pub mod error;
pub mod input_request;
pub mod input_response;
pub mod notification;
pub mod param_header;
pub mod request;
pub mod result;
pub mod schema;
pub mod subscription;
