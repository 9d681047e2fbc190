//! JSON-RPC, SSE, line and header codecs, and both eras' names and numbers.
//!
//! Everything here is a pure function of bytes: no sockets, no clock, no tokio. Payloads stay raw JSON
//! (`serde_json::value::RawValue`): what need not change is never parsed into a tree and never
//! re-serialized, so numbers and key order survive. Any input yields a value or an error, never a panic.

pub mod error;
pub mod garbled;
pub mod header;
pub mod jsonrpc;
pub mod legacy;
pub mod line;
pub mod modern;
pub mod object;
pub mod sse;
pub mod trace;
