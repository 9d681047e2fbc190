//! The file form of one backend, and its way into settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use serde::Deserialize;

use super::access::Own;
use super::error::{ConfigError, wrong};
use super::span::Span;
use super::{BackendSettings, Legacy};
use crate::cache::results::ListCaching;
use crate::call::MissingCapability;
use crate::hold::replay::{Replay, Replays};
use crate::translate::result::{CacheHints, CacheScope};
use crate::upstream::Program;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Backend {
    name: Option<String>,
    legacy: Option<String>,
    command: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    pass_env: Option<Vec<String>>,
    cwd: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    client_cert_file: Option<PathBuf>,
    client_key_file: Option<PathBuf>,
    headers: Option<BTreeMap<String, String>>,
    bearer_env: Option<String>,
    bearer_file: Option<PathBuf>,
    ttl: Option<Span>,
    cache_scope: Option<ScopeName>,
    cache_lists: Option<bool>,
    missing_capability: Option<MissingName>,
    replay: Option<ReplayName>,
    #[serde(default)]
    tools: BTreeMap<String, Tool>,
}

/// What is said of one tool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    replay: Option<ReplayName>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReplayName {
    Never,
    Annotated,
    Always,
}

impl From<ReplayName> for Replay {
    fn from(name: ReplayName) -> Self {
        match name {
            ReplayName::Never => Self::Never,
            ReplayName::Annotated => Self::Annotated,
            ReplayName::Always => Self::Always,
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MissingName {
    Error,
    Decline,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScopeName {
    Private,
    Public,
}

impl Backend {
    /// One at a URL.
    pub(super) fn at(url: &str) -> Self {
        Self {
            legacy: Some(url.to_owned()),
            ..Self::default()
        }
    }

    /// One that is a program.
    pub(super) fn of(command: Vec<String>) -> Self {
        Self {
            command: Some(command),
            ..Self::default()
        }
    }

    pub(super) fn into_settings(mut self) -> Result<BackendSettings, ConfigError> {
        let name = self.name.clone().unwrap_or_else(|| "default".to_owned());
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || name == "mcp" || !name.bytes().all(fits) {
            return Err(wrong(
                "backend.name",
                "wants letters, digits, `-`, `_`, `.`, and not \"mcp\"",
            ));
        }
        let ttl = self.ttl.as_ref().map_or(Duration::ZERO, |span| span.0);
        let ttl_ms = ttl.as_millis();
        let lists = match self.cache_lists {
            Some(true) if ttl_ms == 0 => {
                return Err(wrong(
                    "backend.cache_lists",
                    "wants a `ttl` of more than zero",
                ));
            }
            Some(true) => ListCaching::On,
            Some(false) | None => ListCaching::Off,
        };
        let missing_capability = match self.missing_capability {
            None | Some(MissingName::Error) => MissingCapability::Error,
            Some(MissingName::Decline) => MissingCapability::Decline,
        };
        let hints = CacheHints {
            ttl_ms: u64::try_from(ttl_ms).map_err(|_| wrong("backend.ttl", "is too long"))?,
            scope: match self.cache_scope {
                None | Some(ScopeName::Private) => CacheScope::Private,
                Some(ScopeName::Public) => CacheScope::Public,
            },
        };
        let replays = self.replays();
        let own = self.own();
        let legacy = self.legacy()?;
        let (access, origin) = own.into_access(&legacy)?;
        Ok(BackendSettings {
            name,
            access: Arc::new(access),
            origin,
            legacy,
            hints,
            lists,
            missing_capability,
            replays,
        })
    }

    fn replays(&mut self) -> Replays {
        let tools = std::mem::take(&mut self.tools).into_iter();
        let named = tools.filter_map(|(name, tool)| Some((name.into(), tool.replay?.into())));
        Replays {
            usual: self.replay.map_or(Replay::Never, Replay::from),
            tools: named.collect(),
        }
    }

    fn own(&mut self) -> Own {
        Own {
            ca_file: self.ca_file.take(),
            client_cert_file: self.client_cert_file.take(),
            client_key_file: self.client_key_file.take(),
            headers: self.headers.take().unwrap_or_default(),
            bearer_env: self.bearer_env.take(),
            bearer_file: self.bearer_file.take(),
        }
    }

    fn legacy(self) -> Result<Legacy, ConfigError> {
        let is_of_program = self.env.is_some() || self.pass_env.is_some() || self.cwd.is_some();
        match (self.legacy, self.command) {
            (Some(_), Some(_)) => Err(wrong("backend", "has both `legacy` and `command`")),
            (None, None) => Err(wrong(
                "backend",
                "wants a server: `legacy`, a URL, or `command`",
            )),
            (Some(_), None) if is_of_program => Err(wrong(
                "backend",
                "has `env`, `pass_env` or `cwd` but no `command`",
            )),
            (Some(url), None) => at(&url),
            (None, Some(command)) => {
                let env = self.env.unwrap_or_default();
                let pass_env = self.pass_env.unwrap_or_default();
                program(command, env, pass_env, self.cwd)
            }
        }
    }
}

fn program(
    command: Vec<String>,
    env: BTreeMap<String, String>,
    pass_env: Vec<String>,
    cwd: Option<PathBuf>,
) -> Result<Legacy, ConfigError> {
    let mut words = command.into_iter();
    let command = words.next().filter(|command| !command.is_empty());
    let command = command.ok_or_else(|| wrong("command", "is empty"))?;
    let arguments: Vec<String> = words.collect();
    if command.contains('\0') || arguments.iter().any(|word| word.contains('\0')) {
        return Err(wrong("command", "has a NUL in it"));
    }
    let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
    if let Some(name) = env.keys().find(|name| !is_name(name)) {
        return Err(wrong("env", format!("{name:?} is no name of a variable")));
    }
    if let Some((name, _)) = env.iter().find(|(_, value)| value.contains('\0')) {
        return Err(wrong(
            "env",
            format!("the value of {name:?} has a NUL in it"),
        ));
    }
    if let Some(name) = pass_env.iter().find(|name| !is_name(name)) {
        let why = format!("{name:?} is no name of a variable");
        return Err(wrong("pass_env", why));
    }
    Ok(Legacy::Program(Program {
        command,
        arguments,
        env: env.into_iter().collect(),
        pass_env,
        cwd,
    }))
}

fn at(text: &str) -> Result<Legacy, ConfigError> {
    let unlike = |error| {
        let why = format!("is no URL, such as http://127.0.0.1:3000/mcp: {error}");
        wrong("legacy", why)
    };
    let url = url::Url::parse(text).map_err(unlike)?;
    match url.scheme() {
        "http" | "https" | "ws" | "wss" => {}
        scheme => {
            return Err(wrong(
                "legacy",
                format!("this version speaks http(s):// and ws(s):// to servers, not {scheme}://"),
            ));
        }
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(
            "legacy",
            "must not carry credentials; clients' own go through, or see `bearer_file`",
        ));
    }
    let uri: Uri = url
        .as_str()
        .parse()
        .map_err(|error| wrong("legacy", format!("is no URL: {error}")))?;
    Ok(match url.scheme() {
        "ws" | "wss" => Legacy::WebSocket(uri),
        _ => Legacy::Http(uri),
    })
}
