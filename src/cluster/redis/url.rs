//! The address of a Redis, which may hold a password.

use std::fmt;
use std::str::FromStr;

use redis::ConnectionInfo;
use redis::IntoConnectionInfo;
use url::Url;

/// Why an address of a Redis is not taken. It never repeats the address.
#[derive(Debug, thiserror::Error)]
pub enum BadRedisUrl {
    /// Not a URL, or of another kind.
    #[error("it has to look like redis://HOST, rediss://HOST (TLS) or redis+unix:///SOCKET")]
    Form,
    /// What stands behind the `#`.
    #[error(
        "there is no way to trust a Redis without its certificate: nothing may stand behind a `#`"
    )]
    Fragment,
    /// The client library does not take it. What it says could repeat a part of the address.
    #[error("its host, its database, its user or its password cannot be used")]
    Part,
}

/// The address of a Redis: `redis://`, `rediss://` (TLS) or `redis+unix://`, with user and password as the case may be.
/// It shows neither of them.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    url: Url,
}

impl FromStr for RedisUrl {
    type Err = BadRedisUrl;

    fn from_str(text: &str) -> Result<Self, BadRedisUrl> {
        let url = Url::parse(text).map_err(|_| BadRedisUrl::Form)?;
        let is_known = match url.scheme() {
            "redis" | "rediss" => url.host_str().is_some_and(|host| !host.is_empty()),
            "redis+unix" => url.path().len() > 1,
            _ => false,
        };
        if !is_known {
            return Err(BadRedisUrl::Form);
        }
        if url.fragment().is_some() {
            return Err(BadRedisUrl::Fragment);
        }
        let this = Self { url };
        this.connection()?;
        Ok(this)
    }
}

impl RedisUrl {
    /// For the client library.
    pub(super) fn connection(&self) -> Result<ConnectionInfo, BadRedisUrl> {
        let connection = self.url.clone().into_connection_info();
        connection.map_err(|_| BadRedisUrl::Part)
    }

    /// Whether it asks for TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "rediss"
    }
}

impl fmt::Display for RedisUrl {
    /// Without user, password and options.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.url.scheme();
        let host = self.url.host_str().unwrap_or_default();
        write!(formatter, "{scheme}://{host}")?;
        if let Some(port) = self.url.port() {
            write!(formatter, ":{port}")?;
        }
        formatter.write_str(self.url.path())
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_and_keep_their_secrets() {
        for (text, shown) in [
            ("redis://cache", "redis://cache"),
            ("redis://:pa%73s@cache:7000/2", "redis://cache:7000/2"),
            ("rediss://user:pass@[::1]:7000", "rediss://[::1]:7000"),
            (
                "redis+unix:///run/redis.sock?pass=pass",
                "redis+unix:///run/redis.sock",
            ),
        ] {
            let url: RedisUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("RedisUrl({shown})"));
        }
        let url: RedisUrl = "redis://:pa%73s@cache:7000/2".parse().unwrap();
        let connection = url.connection().unwrap();
        assert_eq!(connection.redis_settings().password(), Some("pass"));
        assert_eq!(connection.redis_settings().db(), 2);
    }

    #[test]
    fn other_addresses_are_refused_without_repeating_them() {
        for text in [
            "",
            "secret",
            "http://secret",
            "redis://",
            "redis:secret",
            "redis+unix://",
            "redis://secret/secret",
            "redis://:secret@0.0.0.0",
            "redis://:secret%ff@host",
            "redis://host?protocol=secret",
            "rediss://:secret@host#insecure",
        ] {
            let refused = text.parse::<RedisUrl>().unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{text}: {refused}");
        }
    }
}
