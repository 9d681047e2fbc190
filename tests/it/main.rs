//! The integration tests: the real binary between a puppet of a legacy server and a raw modern client.
//!
//! Each module is a behaviour. There are no fixed ports and no sleeps as synchronisation; tests of calls end with
//! `nothing_is_left`, on both sides.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says so by panicking; helpers outside #[test] are no exception"
)]

mod access;
mod admission;
mod answers;
mod channels;
mod cli;
mod crowd;
mod cuts;
mod deploy;
mod faults;
mod golden;
mod held;
mod hop;
mod late;
mod legs;
mod log_levels;
mod memory;
mod parallel;
mod param_headers;
mod plain;
mod pool;
mod probe;
mod program;
mod progress;
mod properties;
mod puppetry;
mod questions;
mod replay;
mod replayed;
mod replicas;
mod restarts;
mod resumed;
mod returned;
mod roots;
mod sessions;
mod shared;
mod shutdown;
mod state;
mod stdio_front;
mod stretch;
mod subscription_losses;
mod subscriptions;
mod support;
mod taken_over;
mod terminal;
mod tidy;
mod tls;
mod url_error;
mod warm;
mod websocket;
