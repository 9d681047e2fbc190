//! The file form of the configuration: strict TOML, and its way into settings.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::address;
use super::backend::Backend;
use super::cluster::Cluster;
use super::error::{ConfigError, wrong};
use super::span::Span;
use super::{Anonymous, Limits, PrincipalSource, Settings, Timers, default_listen};
use crate::hold::seal::{BadKey, REPLAY_BYTES_MAX, SealingKeys};

/// Reads a configuration file; addresses of the command line go before those of the file.
///
/// # Errors
/// When it cannot be read or is wrong in any part.
pub fn load(
    path: &Path,
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
) -> Result<Settings, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.display().to_string(),
        source,
    })?;
    let settings = form(&text).and_then(|file| file.overridden(listen, admin).into_settings());
    settings.map_err(|error| error.of_file(path))
}

/// Reads a configuration.
///
/// # Errors
/// When it is wrong in any part.
pub fn parse(text: &str) -> Result<Settings, ConfigError> {
    form(text)?.into_settings()
}

fn form(text: &str) -> Result<File, ConfigError> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = &text[..error.span().map_or(0, |span| span.start).min(text.len())];
        ConfigError::Form {
            path: None,
            line: before.matches('\n').count() + 1,
            column: before.chars().rev().take_while(|c| *c != '\n').count() + 1,
            why: unquoted(error.message()).trim().replace('\n', " "),
        }
    })
}

/// A message without the text that it finds to be of the wrong type: a key, or a token, that stands where a list or a
/// table of them is wanted must not be shown.
fn unquoted(message: &str) -> Cow<'_, str> {
    let parts = message.split_once("string \"").and_then(|(before, rest)| {
        let (_, after) = rest.rsplit_once('"')?;
        Some(format!("{before}string{after}"))
    });
    parts.map_or(Cow::Borrowed(message), Cow::Owned)
}

/// Settings for one backend with everything else at its default.
///
/// # Errors
/// As [`Settings::for_upstream`].
pub(super) fn for_backend(
    backend: Backend,
    listen: Option<SocketAddr>,
    admin: Option<SocketAddr>,
) -> Result<Settings, ConfigError> {
    File {
        backend: vec![backend],
        ..File::default()
    }
    .overridden(listen, admin)
    .into_settings()
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, deserialize_with = "address::optional")]
    listen: Option<SocketAddr>,
    #[serde(default, deserialize_with = "address::optional")]
    admin: Option<SocketAddr>,
    threads: Option<usize>,
    keys: Option<Vec<String>>,
    keys_file: Option<PathBuf>,
    principal: Option<String>,
    anonymous: Option<AnonymousName>,
    #[serde(default)]
    allowed_origins: Vec<String>,
    #[serde(default)]
    allowed_hosts: Vec<String>,
    #[serde(default)]
    backend: Vec<Backend>,
    cluster: Option<Cluster>,
    #[serde(default)]
    timers: TimersTable,
    #[serde(default)]
    limits: LimitsTable,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AnonymousName {
    Shared,
    Isolated,
    Refuse,
}

fn positive<T: Default + PartialEq>(field: &'static str, value: T) -> Result<T, ConfigError> {
    if value == T::default() {
        Err(wrong(field, "must be more than zero"))
    } else {
        Ok(value)
    }
}

/// Bounds a count of things that live in one process: more than any machine has room for.
const COUNT_MAX: usize = 1 << 30;

fn counted(field: &'static str, count: usize) -> Result<usize, ConfigError> {
    if count > COUNT_MAX {
        return Err(wrong(field, format!("must be at most {COUNT_MAX}")));
    }
    Ok(count)
}

/// What a state may carry of answers.
fn replayed(bytes: usize) -> Result<usize, ConfigError> {
    if bytes > REPLAY_BYTES_MAX {
        let why = format!("must be at most {REPLAY_BYTES_MAX}");
        return Err(wrong("replay_answers_max", why));
    }
    Ok(bytes)
}

/// Declares a table of optional values and how it overrides the defaults.
macro_rules! overrides {
    ($table:ident over $target:ty { $($field:ident : $kind:ty => $($path:ident).+ = $convert:expr),+ $(,)? }) => {
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        struct $table { $($field: Option<$kind>),+ }

        impl $table {
            /// The defaults with what the table says; every value must be positive.
            fn over(self, mut target: $target) -> Result<$target, ConfigError> {
                $(if let Some(value) = self.$field {
                    let value = positive(stringify!($field), $convert(value)?)?;
                    target.$($path).+ = value;
                })+
                Ok(target)
            }
        }
    };
}

overrides!(TimersTable over Timers {
    gather_quiet: Span => call.gather_quiet = |span: Span| Ok::<_, ConfigError>(span.0),
    gather_max: Span => call.gather_max = |span: Span| Ok::<_, ConfigError>(span.0),
    hold_ttl: Span => call.hold_ttl = |span: Span| Ok::<_, ConfigError>(span.0),
    leg_grace: Span => call.leg_grace = |span: Span| Ok::<_, ConfigError>(span.0),
    leg_max: Span => call.leg_max = |span: Span| Ok::<_, ConfigError>(span.0),
    stretch_grace: Span => call.stretch_grace = |span: Span| Ok::<_, ConfigError>(span.0),
    upstream_silence_max: Span => call.upstream_silence_max = |span: Span| Ok::<_, ConfigError>(span.0),
    outcome_ttl: Span => outcome_ttl = |span: Span| Ok::<_, ConfigError>(span.0),
    session_idle: Span => session_idle = |span: Span| Ok::<_, ConfigError>(span.0),
    initialize_timeout: Span => initialize_timeout = |span: Span| Ok::<_, ConfigError>(span.0),
    get_stream_wait: Span => get_stream_wait = |span: Span| Ok::<_, ConfigError>(span.0),
    session_wait: Span => session_wait = |span: Span| Ok::<_, ConfigError>(span.0),
    stray_question_max: Span => stray_question_max = |span: Span| Ok::<_, ConfigError>(span.0),
    subscribe_timeout: Span => subscribe_timeout = |span: Span| Ok::<_, ConfigError>(span.0),
    connect_timeout: Span => connect_timeout = |span: Span| Ok::<_, ConfigError>(span.0),
    first_byte_timeout: Span => first_byte_timeout = |span: Span| Ok::<_, ConfigError>(span.0),
    resume_max: Span => resume_max = |span: Span| Ok::<_, ConfigError>(span.0),
    send_timeout: Span => send_timeout = |span: Span| Ok::<_, ConfigError>(span.0),
    ping_interval: Span => ping_interval = |span: Span| Ok::<_, ConfigError>(span.0),
    stop_grace: Span => stop_grace = |span: Span| Ok::<_, ConfigError>(span.0),
    upstream_idle: Span => upstream_idle = |span: Span| Ok::<_, ConfigError>(span.0),
    client_read_timeout: Span => client_read_timeout = |span: Span| Ok::<_, ConfigError>(span.0),
    client_idle: Span => client_idle = |span: Span| Ok::<_, ConfigError>(span.0),
    client_write_timeout: Span => client_write_timeout = |span: Span| Ok::<_, ConfigError>(span.0),
    keep_alive: Span => keep_alive = |span: Span| Ok::<_, ConfigError>(span.0),
    shutdown_deadline: Span => shutdown_deadline = |span: Span| Ok::<_, ConfigError>(span.0),
});

overrides!(LimitsTable over Limits {
    body_bytes_max: usize => body_bytes_max = Ok::<_, ConfigError>,
    message_bytes_max: usize => message_bytes_max = Ok::<_, ConfigError>,
    holds_max: usize => holds_max = |count| counted("holds_max", count),
    processes_max: usize => processes_max = |count| counted("processes_max", count),
    sessions_max: usize => sessions_max = |count| counted("sessions_max", count),
    upstream_streams_max: usize => upstream_streams_max = |count| counted("upstream_streams_max", count),
    connections_max: usize => connections_max = |count| counted("connections_max", count),
    subscriptions_max: usize => subscriptions_max = |count| counted("subscriptions_max", count),
    subscription_uris_max: usize => subscription_uris_max = |count| counted("subscription_uris_max", count),
    questions_max: usize => questions_max = |count| counted("questions_max", count),
    stretch_rounds_max: u32 => stretch_rounds_max = Ok::<_, ConfigError>,
    reruns_max: u32 => reruns_max = Ok::<_, ConfigError>,
    replay_answers_max: usize => replay_answers_max = replayed,
    cache_bytes_max: usize => cache_bytes_max = Ok::<_, ConfigError>,
    outcome_bytes_max: usize => outcome_bytes_max = Ok::<_, ConfigError>,
});

/// What is said of a file without a server.
const NO_BACKEND: &str = "there is none: add [[backend]] and below it legacy = \"http://127.0.0.1:3000/mcp\", the URL of your \
    server, or command = [\"node\", \"server.js\"]";

impl File {
    fn overridden(self, listen: Option<SocketAddr>, admin: Option<SocketAddr>) -> Self {
        Self {
            listen: listen.or(self.listen),
            admin: admin.or(self.admin),
            ..self
        }
    }

    fn into_settings(self) -> Result<Settings, ConfigError> {
        let listen = self.listen.unwrap_or_else(default_listen);
        let (keys, keys_are_random) = match (self.keys, &self.keys_file) {
            (Some(_), Some(_)) => return Err(wrong("keys_file", "does not go with `keys`")),
            (Some(keys), None) => (KeyTexts::listed(&keys).into_keys()?, false),
            (None, Some(path)) => (KeyTexts::in_file(path)?.into_keys()?, false),
            (None, None) => (SealingKeys::random()?, true),
        };
        let open_keys_file = self.keys_file.filter(|path| is_open_to_all(path));
        let mut backends = self.backend.into_iter();
        let backend = backends
            .next()
            .ok_or_else(|| wrong("backend", NO_BACKEND))?;
        if backends.next().is_some() {
            return Err(wrong(
                "backend",
                "this version serves one backend; run one process for each",
            ));
        }
        let origins = self.allowed_origins.iter().map(|origin| {
            let is_origin = url::Url::parse(origin)
                .is_ok_and(|url| url.origin().ascii_serialization() == *origin);
            let value = HeaderValue::from_str(origin).ok().filter(|_| is_origin);
            value.ok_or_else(|| {
                let why = format!("{origin:?} is not of the form https://host[:port]");
                wrong("allowed_origins", why)
            })
        });
        if let Some(host) = self
            .allowed_hosts
            .iter()
            .find(|host| host.contains(['/', ':']))
        {
            let why = format!("{host:?} is not a bare host name");
            return Err(wrong("allowed_hosts", why));
        }
        let others = [("listen", Some(listen)), ("admin", self.admin)];
        let cluster = self
            .cluster
            .map(|cluster| cluster.into_settings(keys_are_random, &others));
        Ok(Settings {
            cluster: cluster.transpose()?,
            listen,
            admin: admin(self.admin, listen)?,
            keys: Arc::new(keys),
            keys_are_random,
            open_keys_file,
            threads: threads(self.threads)?,
            principal: principal(self.principal.as_deref())?,
            anonymous: anonymous(self.anonymous, listen),
            allowed_origins: origins.collect::<Result<_, _>>()?,
            allowed_hosts: self
                .allowed_hosts
                .iter()
                .map(|host| host.to_ascii_lowercase())
                .collect(),
            backend: backend.into_settings()?,
            timers: timers(self.timers)?,
            limits: self.limits.over(Limits::default())?,
        })
    }
}

/// The pause after a question is bounded by how long questions are gathered at all.
fn timers(table: TimersTable) -> Result<Timers, ConfigError> {
    let timers = table.over(Timers::default())?;
    let (quiet, max) = (timers.call.gather_quiet, timers.call.gather_max);
    if quiet > max {
        let why = format!("{quiet:?} is more than `gather_max`, {max:?}");
        return Err(wrong("gather_quiet", why));
    }
    Ok(timers)
}

/// More threads than any machine has cores.
const THREADS_MAX: usize = 1024;

/// One for each core unless the file says otherwise.
fn threads(count: Option<usize>) -> Result<usize, ConfigError> {
    match count {
        Some(0) => Err(wrong("threads", "must be more than zero")),
        Some(count) if count > THREADS_MAX => {
            Err(wrong("threads", format!("must be at most {THREADS_MAX}")))
        }
        Some(count) => Ok(count),
        None => Ok(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)),
    }
}

/// The admin listener has an address of its own.
fn admin(admin: Option<SocketAddr>, listen: SocketAddr) -> Result<Option<SocketAddr>, ConfigError> {
    match admin {
        Some(admin) if admin == listen && admin.port() != 0 => {
            Err(wrong("admin", "is the address of `listen`"))
        }
        other => Ok(other),
    }
}

/// Keys as they are written, each with the place where it stands.
struct KeyTexts {
    field: &'static str,
    texts: Vec<(String, String)>,
}

impl KeyTexts {
    fn listed(keys: &[String]) -> Self {
        let numbered = keys.iter().enumerate();
        let texts = numbered.map(|(at, key)| (format!("number {}", at + 1), key.clone()));
        Self {
            field: "keys",
            texts: texts.collect(),
        }
    }

    /// One a line.
    fn in_file(path: &Path) -> Result<Self, ConfigError> {
        let (field, shown) = ("keys_file", path.display());
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|error| wrong(field, format!("cannot read {shown}: {error}")))?;
        let numbered = text.lines().map(str::trim).enumerate();
        let texts = numbered
            .filter(|(_, line)| !line.is_empty())
            .map(|(at, line)| (format!("line {} of {shown}", at + 1), line.to_owned()));
        let texts: Vec<_> = texts.collect();
        if texts.is_empty() {
            let why = format!("there is no key in {shown}; `holdfast keygen` prints one");
            return Err(wrong(field, why));
        }
        Ok(Self { field, texts })
    }

    fn into_keys(self) -> Result<SealingKeys, ConfigError> {
        let field = self.field;
        let wrong_key = |which: String, source: BadKey| ConfigError::Key {
            field,
            which,
            source,
        };
        let decode = |(place, text): (String, String)| -> Result<[u8; 32], ConfigError> {
            let bytes = STANDARD.decode(text.trim()).ok();
            match bytes.and_then(|bytes| bytes.try_into().ok()) {
                None => Err(wrong_key(place, BadKey::Form)),
                Some(key) if key == [0; 32] => Err(wrong_key(place, BadKey::Zero)),
                Some(key) => Ok(key),
            }
        };
        let keys = self.texts.into_iter().map(decode);
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        SealingKeys::new(&keys).map_err(|error| wrong_key("there is none".to_owned(), error))
    }
}

/// Whether every user of the machine can read it. It was read before: what cannot be told does not keep it from use.
fn is_open_to_all(path: &Path) -> bool {
    const READ_BY_OTHERS: u32 = 0o004;
    std::fs::metadata(path).is_ok_and(|file| file.mode() & READ_BY_OTHERS != 0)
}

fn principal(text: Option<&str>) -> Result<PrincipalSource, ConfigError> {
    match text {
        None | Some("authorization") => Ok(PrincipalSource::Authorization),
        Some(other) => other
            .strip_prefix("header:")
            .and_then(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            .map(PrincipalSource::Header)
            .ok_or_else(|| {
                wrong(
                    "principal",
                    "is neither \"authorization\" nor \"header:NAME\"",
                )
            }),
    }
}

/// Strangers must not share sessions: without a word of the operator, callers without credentials do so
/// only where nobody but this machine's users can call.
fn anonymous(name: Option<AnonymousName>, listen: SocketAddr) -> Anonymous {
    match name {
        Some(AnonymousName::Shared) => Anonymous::Shared,
        Some(AnonymousName::Isolated) => Anonymous::Isolated,
        Some(AnonymousName::Refuse) => Anonymous::Refuse,
        None if listen.ip().is_loopback() => Anonymous::Shared,
        None => Anonymous::Isolated,
    }
}
