//! The configuration: a strict file form, turned whole into settings.
//!
//! `file::File` is what stands in TOML; [`Settings`] is what the rest of the program sees. Nothing is read
//! again later as raw text, nothing in [`Settings`] is optional that is not truly optional, and secrets are
//! masked when printed.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};

use crate::cache::results::ListCaching;
use crate::call::{CallLimits, MissingCapability};
use crate::hold::replay::Replays;
use crate::hold::seal::SealingKeys;
use crate::session::Binding;
use crate::translate::result::CacheHints;
use crate::upstream::{Access, Program};

mod access;
mod address;
mod backend;
mod cluster;
mod error;
mod file;
mod origin;
mod span;
#[cfg(test)]
mod tests;

use backend::Backend;

pub use cluster::{Advertised, ClusterSettings};
pub use error::ConfigError;
pub use file::{load, parse};

/// Everything `serve` needs to know.
#[derive(Debug)]
pub struct Settings {
    /// Where clients are served.
    pub listen: SocketAddr,
    /// Where `/healthz`, `/readyz` and `/metrics` are served, if anywhere.
    pub admin: Option<SocketAddr>,
    /// The keys that seal `requestState`.
    pub keys: Arc<SealingKeys>,
    /// The keys were drawn at start: states do not outlive the process.
    pub keys_are_random: bool,
    /// The file with the keys, if every user of the machine can read it.
    pub open_keys_file: Option<PathBuf>,
    /// What tells one caller from another.
    pub principal: PrincipalSource,
    /// What callers without credentials share.
    pub anonymous: Anonymous,
    /// `Origin` values that browsers may send besides loopback ones.
    pub allowed_origins: Vec<HeaderValue>,
    /// `Host` names that are served besides loopback ones when listening on loopback alone.
    pub allowed_hosts: Vec<String>,
    /// The server behind.
    pub backend: BackendSettings,
    /// What makes the process one of several replicas, if it is one.
    pub cluster: Option<ClusterSettings>,
    /// Threads that serve connections.
    pub threads: usize,
    /// The clocks of the process.
    pub timers: Timers,
    /// The bounds of the process.
    pub limits: Limits,
}

/// One configured server.
#[derive(Debug)]
pub struct BackendSettings {
    /// Its name in paths, logs and sealed states.
    pub name: String,
    /// Its legacy target.
    pub legacy: Legacy,
    /// What it has of its own towards the server.
    pub access: Arc<Access>,
    /// Tells the server, and whom it takes the gateway for, from any other.
    pub origin: Binding,
    /// Caching hints of its results.
    pub hints: CacheHints,
    /// Whether lists are answered from memory within their time to live.
    pub lists: ListCaching,
    /// What becomes of a question that its client cannot be asked.
    pub missing_capability: MissingCapability,
    /// Which of its lost calls are run again.
    pub replays: Replays,
}

/// A legacy server.
#[derive(Clone, PartialEq, Eq)]
pub enum Legacy {
    /// At a URL, over HTTP.
    Http(Uri),
    /// At a URL, over WebSocket.
    WebSocket(Uri),
    /// A program that speaks stdio.
    Program(Program),
}

/// As it may be shown: without query, arguments and environment, which may be secrets.
impl fmt::Display for Legacy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(uri) | Self::WebSocket(uri) => {
                let (scheme, authority) = (uri.scheme_str(), uri.authority());
                if let (Some(scheme), Some(authority)) = (scheme, authority) {
                    write!(formatter, "{scheme}://{authority}")?;
                }
                formatter.write_str(uri.path())
            }
            Self::Program(program) => program.fmt(formatter),
        }
    }
}

impl fmt::Debug for Legacy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// What tells one caller from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrincipalSource {
    /// The digest of the `Authorization` value.
    Authorization,
    /// A header that a trusted proxy in front sets.
    Header(HeaderName),
}

/// What callers without credentials share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anonymous {
    /// Warm sessions, with each other.
    Shared,
    /// Nothing: each call gets a session of its own, closed after it.
    Isolated,
    /// They are not served.
    Refuse,
}

/// The clocks. Each default says where its number comes from.
#[derive(Debug, Clone)]
pub struct Timers {
    /// The clocks of a call, see [`CallLimits`].
    pub call: CallTimers,
    /// How long the outcome of a re-issued call is remembered for a repeat.
    pub outcome_ttl: Duration,
    /// How long a session without a call stays open.
    pub session_idle: Duration,
    /// How long a server may take for its handshake.
    pub initialize_timeout: Duration,
    /// How long the server's GET stream may take to open before calls go ahead without it.
    pub get_stream_wait: Duration,
    /// How long a caller waits for a free session at the bound.
    pub session_wait: Duration,
    /// How long a question outside any call waits for the next call before it is refused.
    pub stray_question_max: Duration,
    /// How long a subscription waits for the server to agree to it before it is acknowledged.
    pub subscribe_timeout: Duration,
    /// How long connecting to a server may take.
    pub connect_timeout: Duration,
    /// How long a server over HTTP may take to begin its answer to a request, connecting included.
    pub first_byte_timeout: Duration,
    /// How long a server's answer is asked for again whose stream was lost, while nothing is heard of the server.
    pub resume_max: Duration,
    /// How long a one-way message to a server may take to be accepted.
    pub send_timeout: Duration,
    /// How often a server over WebSocket is pinged. Silent from one ping to the next, it is gone.
    pub ping_interval: Duration,
    /// How long a server's process may take to end, first by itself and then when it was asked to; and how long what it
    /// started may after it.
    pub stop_grace: Duration,
    /// How long an idle connection to a server is kept for reuse.
    pub upstream_idle: Duration,
    /// How long a client may take to send its request head, and its body.
    pub client_read_timeout: Duration,
    /// How long an idle connection of a client is kept.
    pub client_idle: Duration,
    /// How long a client may take to read more of its response.
    pub client_write_timeout: Duration,
    /// How often a quiet event stream to a client carries a comment.
    pub keep_alive: Duration,
    /// How long shutdown waits for running and held calls.
    pub shutdown_deadline: Duration,
}

/// The clocks of a call.
#[derive(Debug, Clone)]
pub struct CallTimers {
    /// See [`CallLimits::gather_quiet`].
    pub gather_quiet: Duration,
    /// See [`CallLimits::gather_max`].
    pub gather_max: Duration,
    /// See [`CallLimits::hold_ttl`].
    pub hold_ttl: Duration,
    /// See [`CallLimits::leg_grace`].
    pub leg_grace: Duration,
    /// See [`CallLimits::leg_max`].
    pub leg_max: Duration,
    /// See [`CallLimits::stretch_grace`].
    pub stretch_grace: Duration,
    /// See [`CallLimits::upstream_silence_max`].
    pub upstream_silence_max: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            call: CallTimers::default(),
            // Clients give up on a leg after 60 s and then repeat it, if at all.
            outcome_ttl: Duration::from_secs(120),
            // Python servers drop idle sessions after 30 minutes; most conversations pause for less than five.
            session_idle: Duration::from_secs(300),
            // As long as the SDKs wait for one answer.
            initialize_timeout: Duration::from_secs(60),
            // The SDK servers answer at once; some send no head before their first event.
            get_stream_wait: Duration::from_secs(1),
            // Well within the 60 s after which clients give up.
            session_wait: Duration::from_secs(10),
            // Well within the 60 s after which SDK servers give up on a question.
            stray_question_max: Duration::from_secs(30),
            // A client waits for the acknowledgement as long as for any answer: stay well below its minute.
            subscribe_timeout: Duration::from_secs(10),
            // A packet lost twice; a server that is farther away is not there.
            connect_timeout: Duration::from_secs(10),
            // Servers that answer in JSON begin when the tool is done: as long as silence is borne.
            first_byte_timeout: Duration::from_secs(300),
            // Time for a server or what is in front of it to be restarted; nobody should wait longer for what may be gone.
            resume_max: Duration::from_secs(120),
            // Servers accept before they act; arbitrary beyond that.
            send_timeout: Duration::from_secs(30),
            // Below what middleboxes bear of silence, and as often as servers themselves ping (uvicorn).
            ping_interval: Duration::from_secs(20),
            // Real servers end within milliseconds; what is left of them is waited for at the end, three times as long at
            // most. Arbitrary beyond that.
            stop_grace: Duration::from_secs(1),
            // Node closes idle connections after 5 s: stay below, or a request meets the closing.
            upstream_idle: Duration::from_secs(4),
            // As nginx does (client_header_timeout, client_body_timeout).
            client_read_timeout: Duration::from_secs(60),
            // As nginx does (keepalive_timeout 75 s).
            client_idle: Duration::from_secs(75),
            // As long as a client may take to send.
            client_write_timeout: Duration::from_secs(60),
            // As the SDK servers do; below the 30 s of the most impatient middleboxes.
            keep_alive: Duration::from_secs(15),
            // Kubernetes kills after 30 s by default.
            shutdown_deadline: Duration::from_secs(25),
        }
    }
}

impl Default for CallTimers {
    fn default() -> Self {
        Self {
            // Questions asked together arrive within a millisecond of each other from most servers; Python ones on a
            // busy machine take up to twenty, since some go out on the GET stream and some on the call's own.
            gather_quiet: Duration::from_millis(30),
            // A person does not notice a fifth of a second.
            gather_max: Duration::from_millis(200),
            // A person may take ten minutes to answer; half as much again.
            hold_ttl: Duration::from_secs(900),
            // A client reconnects within seconds, or not at all.
            leg_grace: Duration::from_secs(10),
            // SDK clients give up on a leg after a minute.
            leg_max: Duration::from_secs(45),
            // Time for a client to find the network again.
            stretch_grace: Duration::from_secs(60),
            // Five times what clients wait by default: a tool that is silent for longer is lost.
            upstream_silence_max: Duration::from_secs(300),
        }
    }
}

/// The bounds. Each default says where its number comes from.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest body of a client.
    pub body_bytes_max: usize,
    /// The largest message of a server.
    pub message_bytes_max: usize,
    /// Calls that wait for a re-issue at once.
    pub holds_max: usize,
    /// Processes of a server that run at once: its sessions, if it is a program.
    pub processes_max: usize,
    /// Sessions with a server that are open at once.
    pub sessions_max: usize,
    /// Streams that are open on one HTTP/2 connection to a server at once.
    pub upstream_streams_max: usize,
    /// Connections of clients at once.
    pub connections_max: usize,
    /// Subscriptions of clients at once.
    pub subscriptions_max: usize,
    /// Resources that one subscription may name.
    pub subscription_uris_max: usize,
    /// Questions of one call that are open at once.
    pub questions_max: usize,
    /// Rounds after which a slow call's leg stays open instead of being answered with a state alone.
    pub stretch_rounds_max: u32,
    /// How often one call is run anew after error −32042.
    pub reruns_max: u32,
    /// Bytes of what its client answered that a call which may be run again keeps, in memory and in its `requestState`.
    pub replay_answers_max: usize,
    /// Bytes of discovery and lists that are answered from memory; what is used least gives way.
    pub cache_bytes_max: usize,
    /// Bytes of remembered outcomes; the oldest give way.
    pub outcome_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // As the SDK servers do.
            body_bytes_max: 4 << 20,
            // Four times what a client may send: results carry images and files.
            message_bytes_max: 16 << 20,
            // What one process is built for.
            holds_max: 50_000,
            // Real servers take 30 to 100 MB each.
            processes_max: 32,
            // As many as the usual limit of open files allows.
            sessions_max: 20_000,
            // RFC 9113 recommends that servers allow no fewer than 100, and that is what most do; half of it leaves
            // room for streams whose end the server has not heard of yet.
            upstream_streams_max: 50,
            // The same.
            connections_max: 20_000,
            // Half of the connections: calls need some too.
            subscriptions_max: 10_000,
            // Each costs the server a request when the subscription opens. Arbitrary beyond that.
            subscription_uris_max: 1_000,
            // A form asks a person; nobody answers more at once. Arbitrary.
            questions_max: 32,
            // Clients stop after ten rounds, and a question or two may come as well.
            stretch_rounds_max: 6,
            // Clients stop after ten rounds.
            reruns_max: 8,
            // Some thirty forms. Clients send the state back with each re-issue, and proxies in front allow a body more.
            replay_answers_max: 4 << 10,
            // Some thousand lists.
            cache_bytes_max: 64 << 20,
            // Some hundred large results.
            outcome_bytes_max: 64 << 20,
        }
    }
}

impl Settings {
    /// Settings for one backend with everything else at its default, as `serve --upstream` uses them.
    ///
    /// # Errors
    /// When the operating system gives no randomness for a key, or the URL cannot be served.
    pub fn for_upstream(
        upstream: &str,
        listen: Option<SocketAddr>,
        admin: Option<SocketAddr>,
    ) -> Result<Self, ConfigError> {
        let settings = file::for_backend(Backend::at(upstream), listen, admin);
        settings.map_err(|error| error.of_option("--upstream"))
    }

    /// The same for a program that speaks stdio.
    ///
    /// # Errors
    /// When the operating system gives no randomness for a key, or the command cannot be one.
    pub fn for_command(
        command: Vec<String>,
        listen: Option<SocketAddr>,
        admin: Option<SocketAddr>,
    ) -> Result<Self, ConfigError> {
        let settings = file::for_backend(Backend::of(command), listen, admin);
        settings.map_err(|error| error.of_option("COMMAND"))
    }

    /// How many sessions with the server may be open at once.
    #[must_use]
    pub fn sessions_max(&self) -> usize {
        let limits = &self.limits;
        match self.backend.legacy {
            Legacy::Http(_) | Legacy::WebSocket(_) => limits.sessions_max,
            Legacy::Program(_) => limits.processes_max.min(limits.sessions_max),
        }
    }

    /// The bounds of one call.
    #[must_use]
    pub fn call_limits(&self) -> Arc<CallLimits> {
        let timers = &self.timers.call;
        Arc::new(CallLimits {
            gather_quiet: timers.gather_quiet,
            gather_max: timers.gather_max,
            hold_ttl: timers.hold_ttl,
            leg_grace: timers.leg_grace,
            leg_max: timers.leg_max,
            stretch_grace: timers.stretch_grace,
            stretch_rounds_max: self.limits.stretch_rounds_max,
            upstream_silence_max: timers.upstream_silence_max,
            questions_max: self.limits.questions_max,
            reruns_max: self.limits.reruns_max,
            replay_answers_max: self.limits.replay_answers_max,
            missing_capability: self.backend.missing_capability,
        })
    }
}

/// Where `serve` listens unless it is told otherwise.
#[must_use]
pub fn default_listen() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 8080).into()
}
