//! What makes a process one of several replicas: where the others reach it, and where they find each other.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::Authority;
use serde::Deserialize;

use super::access::{certificates_in, read};
use super::address::address;
use super::error::{ConfigError, wrong};
use super::span::Span;
use crate::cluster::redis::RedisUrl;

/// How often a replica says that it lives. What Redis has to bear is one short command in that time for each.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// How long a replica may say nothing before it counts as gone: four heartbeats may be lost, and a process that stands
/// still for a second or two is not robbed of its calls.
const REPLICA_TTL: Duration = Duration::from_secs(5);

/// How the names of all that replicas keep in Redis begin.
const REDIS_PREFIX: &str = "holdfast:";

/// What makes a process one of several replicas.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// Where other replicas are served.
    pub listen: SocketAddr,
    /// Where they reach it.
    pub advertise: Advertised,
    /// Where replicas find each other.
    pub redis: RedisUrl,
    /// Authorities (PEM) to trust there over TLS instead of the machine's.
    pub redis_authorities: Option<Vec<u8>>,
    /// How the names of all that they keep there begin.
    pub redis_prefix: String,
    /// How often a replica says that it lives.
    pub heartbeat: Duration,
    /// How long it may say nothing before it counts as gone.
    pub replica_ttl: Duration,
}

/// Under which address other replicas reach this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// A name or an IP; one of IPv6 in brackets.
    host: String,
    /// That of the listener unless there is another.
    port: Option<u16>,
}

impl Advertised {
    /// The address, of a listener that is bound to `bound`.
    #[must_use]
    pub fn at(&self, bound: SocketAddr) -> String {
        let port = self.port.unwrap_or(bound.port());
        format!("{}:{port}", self.host)
    }

    /// A host, or a host and a port.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (host, port) = match text.parse::<IpAddr>() {
            Ok(address) => (bracketed(address), None),
            Err(_) => {
                let authority = text
                    .parse::<Authority>()
                    .ok()
                    .filter(|authority| !text.contains('@') && !authority.host().is_empty())
                    .ok_or("is no host, and no host and port")?;
                // A port that is none is not read as one, and not missed either.
                let port = authority.port_u16();
                if authority.as_str() != authority.host() && port.is_none_or(|port| port == 0) {
                    return Err("has a port that is none");
                }
                (authority.host().to_owned(), port)
            }
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_unspecified())
        {
            return Err("is an address that nobody can reach");
        }
        Ok(Self { host, port })
    }
}

fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// The file form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cluster {
    #[serde(deserialize_with = "address")]
    listen: SocketAddr,
    advertise: Option<String>,
    advertise_host_env: Option<String>,
    redis: Option<String>,
    redis_env: Option<String>,
    redis_file: Option<PathBuf>,
    redis_ca_file: Option<PathBuf>,
    redis_prefix: Option<String>,
    heartbeat: Option<Span>,
    replica_ttl: Option<Span>,
}

impl Cluster {
    /// `others` are the addresses of the other listeners.
    pub(super) fn into_settings(
        self,
        keys_are_random: bool,
        others: &[(&'static str, Option<SocketAddr>)],
    ) -> Result<ClusterSettings, ConfigError> {
        if keys_are_random {
            let why = "wants `keys`, the same for every replica; `holdfast keygen` prints one";
            return Err(wrong("cluster", why));
        }
        let is_taken = |other: Option<SocketAddr>| {
            self.listen.port() != 0 && other.is_some_and(|other| other == self.listen)
        };
        if let Some((field, _)) = others.iter().find(|(_, other)| is_taken(*other)) {
            let why = format!("is the address of `{field}`");
            return Err(wrong("cluster.listen", why));
        }
        let heartbeat = span("cluster.heartbeat", self.heartbeat, HEARTBEAT)?;
        let replica_ttl = span("cluster.replica_ttl", self.replica_ttl, REPLICA_TTL)?;
        if replica_ttl < 4 * heartbeat {
            let why = "must be four heartbeats at least: one may be lost, and after an outage one be late";
            return Err(wrong("cluster.replica_ttl", why));
        }
        let redis_prefix = self.redis_prefix.unwrap_or_else(|| REDIS_PREFIX.to_owned());
        if redis_prefix.is_empty() {
            return Err(wrong("cluster.redis_prefix", "is empty"));
        }
        let redis = redis(self.redis, self.redis_env, self.redis_file)?;
        let redis_authorities = self.redis_ca_file.map(|path| authorities(&path, &redis));
        Ok(ClusterSettings {
            listen: self.listen,
            advertise: advertised(self.listen, self.advertise, self.advertise_host_env)?,
            redis,
            redis_authorities: redis_authorities.transpose()?,
            redis_prefix,
            heartbeat,
            replica_ttl,
        })
    }
}

fn span(field: &'static str, span: Option<Span>, usual: Duration) -> Result<Duration, ConfigError> {
    match span.map_or(usual, |span| span.0) {
        Duration::ZERO => Err(wrong(field, "must be more than zero")),
        span => Ok(span),
    }
}

fn advertised(
    listen: SocketAddr,
    given: Option<String>,
    env: Option<String>,
) -> Result<Advertised, ConfigError> {
    let (field, text) = match (given, env) {
        (Some(_), Some(_)) => {
            let why = "does not go with `advertise`";
            return Err(wrong("cluster.advertise_host_env", why));
        }
        (Some(text), None) => ("cluster.advertise", text),
        (None, Some(name)) => {
            let field = "cluster.advertise_host_env";
            (field, variable(field, &name)?)
        }
        (None, None) if listen.ip().is_unspecified() => {
            let why = "is missing: other replicas cannot reach this one at the address of `listen`; say the host and \
                       port where they do, or with `advertise_host_env` the variable that holds the host";
            return Err(wrong("cluster.advertise", why));
        }
        (None, None) => ("cluster.listen", bracketed(listen.ip())),
    };
    Advertised::parse(text.trim()).map_err(|why| wrong(field, format!("{text:?} {why}")))
}

fn redis(
    url: Option<String>,
    env: Option<String>,
    file: Option<PathBuf>,
) -> Result<RedisUrl, ConfigError> {
    let (field, url) = match (url, env, file) {
        (Some(url), None, None) => ("cluster.redis", url),
        (None, Some(name), None) => {
            let field = "cluster.redis_env";
            (field, variable(field, &name)?)
        }
        (None, None, Some(path)) => {
            let field = "cluster.redis_file";
            let read = std::fs::read_to_string(&path);
            let why = |error| wrong(field, format!("cannot read {}: {error}", path.display()));
            (field, read.map_err(why)?)
        }
        (None, None, None) => {
            let why = "is missing: it is where replicas find each other; or say `redis_env` or `redis_file`";
            return Err(wrong("cluster.redis", why));
        }
        _ => {
            let why = "goes with neither `redis_env` nor `redis_file`, nor they with each other";
            return Err(wrong("cluster.redis", why));
        }
    };
    // It is not quoted: it may hold a password.
    let url = url.trim().parse::<RedisUrl>();
    url.map_err(|error| wrong(field, format!("is of no use: {error}")))
}

fn authorities(path: &Path, redis: &RedisUrl) -> Result<Vec<u8>, ConfigError> {
    let field = "cluster.redis_ca_file";
    if !redis.is_tls() {
        return Err(wrong(field, "is for rediss:// alone"));
    }
    let pem = read(field, path)?;
    certificates_in(&pem, field, path)?;
    Ok(pem)
}

fn variable(field: &'static str, name: &str) -> Result<String, ConfigError> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(wrong(field, format!("{name:?} is no name of a variable")));
    }
    match std::env::var(name) {
        Ok(value) if !value.trim().is_empty() => Ok(value),
        Ok(_) => Err(wrong(field, format!("the variable {name} is empty"))),
        Err(std::env::VarError::NotPresent) => {
            Err(wrong(field, format!("the variable {name} is not set")))
        }
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(wrong(field, format!("the variable {name} is no text")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Settings, parse};
    use super::*;

    const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn text(top: &str, cluster: &str) -> String {
        let backend = "[[backend]]\nlegacy = \"http://127.0.0.1:3000/mcp\"";
        format!("{top}\n{backend}\n[cluster]\n{cluster}\n")
    }

    fn settings(cluster: &str) -> Result<Settings, ConfigError> {
        parse(&text(&format!("keys = [\"{KEY}\"]"), cluster))
    }

    fn cluster(lines: &str) -> ClusterSettings {
        settings(lines).unwrap().cluster.unwrap()
    }

    const LEAST: &str = "listen = \"127.0.0.1:9443\"\nredis = \"redis://127.0.0.1\"";

    #[test]
    fn a_listener_and_redis_are_enough() {
        let cluster = cluster(LEAST);
        assert_eq!(cluster.advertise.at(cluster.listen), "127.0.0.1:9443");
        assert_eq!(cluster.redis.to_string(), "redis://127.0.0.1");
        assert_eq!(cluster.redis_prefix, "holdfast:");
        assert_eq!(cluster.heartbeat, Duration::from_secs(1));
        assert_eq!(cluster.replica_ttl, Duration::from_secs(5));
    }

    #[test]
    fn values_override_defaults() {
        let cluster = cluster(&format!(
            "{LEAST}\nredis_prefix = \"billing:\"\nheartbeat = \"200ms\"\nreplica_ttl = \"1s\""
        ));
        assert_eq!(cluster.redis_prefix, "billing:");
        assert_eq!(cluster.heartbeat, Duration::from_millis(200));
        assert_eq!(cluster.replica_ttl, Duration::from_secs(1));
    }

    #[test]
    fn the_address_for_others_is_what_they_can_reach() {
        let bound = "0.0.0.0:7000".parse().unwrap();
        for (given, expected) in [
            ("10.0.0.7", "10.0.0.7:7000"),
            ("10.0.0.7:1", "10.0.0.7:1"),
            ("fd00::7", "[fd00::7]:7000"),
            ("[fd00::7]", "[fd00::7]:7000"),
            ("[fd00::7]:1", "[fd00::7]:1"),
            ("holdfast-0.holdfast", "holdfast-0.holdfast:7000"),
            ("holdfast-0.holdfast:1", "holdfast-0.holdfast:1"),
        ] {
            assert_eq!(Advertised::parse(given).unwrap().at(bound), expected);
        }
        for bad in [
            "",
            ":1",
            "a:",
            "a:0",
            "a:65536",
            "a:b",
            "a b",
            "u@a:1",
            "0.0.0.0",
            "0.0.0.0:1",
            "::",
            "[::]:1",
            "http://a",
        ] {
            assert!(Advertised::parse(bad).is_err(), "{bad}");
        }
        let own = cluster(&LEAST.replace("127.0.0.1:9443", "[::1]:0"));
        assert_eq!(own.advertise.at("[::1]:5".parse().unwrap()), "[::1]:5");
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_way_out() {
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        let said = refused(&text("", LEAST));
        assert!(said.starts_with("`cluster`: wants `keys`"), "{said}");
        let everywhere = LEAST.replace("127.0.0.1:9443", "0.0.0.0:9443");
        let twice = format!("{LEAST}\nredis_env = \"A\"");
        let secure = LEAST.replace("redis://", "rediss://");
        let keys = format!("keys = [\"{KEY}\"]");
        for (lines, expected) in [
            ("listen = \"127.0.0.1:1\"", "`cluster.redis`: is missing"),
            ("redis = \"redis://a\"", "missing field `listen`"),
            (&twice, "`cluster.redis`: goes with neither"),
            (&everywhere, "`cluster.advertise`: is missing: other"),
            (
                &format!("{everywhere}\nadvertise = \"0.0.0.0:1\""),
                "that nobody can reach",
            ),
            (
                &format!("{everywhere}\nadvertise = \"a\"\nadvertise_host_env = \"B\""),
                "`cluster.advertise_host_env`: does not go",
            ),
            (
                &format!("{everywhere}\nadvertise_host_env = \"HOLDFAST_TEST_UNSET\""),
                "the variable HOLDFAST_TEST_UNSET is not set",
            ),
            (
                &format!("{LEAST}\nheartbeat = \"3s\""),
                "`cluster.replica_ttl`: must be four",
            ),
            (
                &format!("{LEAST}\nheartbeat = \"26ms\"\nreplica_ttl = \"100ms\""),
                "`cluster.replica_ttl`: must be four",
            ),
            (
                &format!("{LEAST}\nredis_ca_file = \"ca.pem\""),
                "`cluster.redis_ca_file`: is for rediss:// alone",
            ),
            (
                &format!("{secure}\nredis_ca_file = \"/nowhere/at/all\""),
                "`cluster.redis_ca_file`: cannot read",
            ),
            (
                &format!("{secure}\nredis_ca_file = \"Cargo.toml\""),
                "`cluster.redis_ca_file`: Cargo.toml holds no certificate",
            ),
            (
                &format!("{LEAST}\nheartbeat = \"0s\""),
                "`cluster.heartbeat`: must be more",
            ),
            (&format!("{LEAST}\nredis_prefix = \"\""), "is empty"),
            (&format!("{LEAST}\nnodes = 3"), "unknown field"),
            (
                &LEAST.replace("127.0.0.1:9443", "127.0.0.1:8080"),
                "`cluster.listen`: is the address of `listen`",
            ),
        ] {
            let said = refused(&text(&keys, lines));
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn redis_comes_from_a_file_as_well_and_is_never_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "rediss://:s3cret@redis:6380/1\n").unwrap();
        let lines = format!("listen = \"127.0.0.1:1\"\nredis_file = {:?}", file.path());
        let settings = settings(&lines).unwrap();
        assert!(!format!("{settings:?}").contains("s3cret"));
        let redis = settings.cluster.unwrap().redis;
        assert!(redis.is_tls() && !redis.to_string().contains("s3cret"));
        for bad in ["http://:s3cret@redis/", "s3cret", "redis://h:s3cret/"] {
            std::fs::write(file.path(), bad).unwrap();
            let said = parse(&text(&format!("keys = [\"{KEY}\"]"), &lines));
            let said = said.unwrap_err().to_string();
            assert!(
                said.starts_with("`cluster.redis_file`: is of no use"),
                "{said}"
            );
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
}
