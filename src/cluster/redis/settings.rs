//! How Redis is used.

use std::fmt;
use std::time::Duration;

use super::RedisUrl;

/// How Redis is used.
#[derive(Clone)]
pub struct RedisSettings {
    /// Where it is.
    pub url: RedisUrl,
    /// What every key begins with, so that gateways can share one Redis.
    pub prefix: String,
    /// How long an operation may take: no longer than half of what announcements last, or a single slow one would make a
    /// replica that lives look dead.
    pub limit: Duration,
    /// How often it is tried while it is down; no shorter than the limit.
    pub probe_pause: Duration,
    /// For how long announcements have to come without a gap before one who is not alive counts as dead: no less than the
    /// `ttl` of announcements. Zero for a Redis that never loses anything nor stands still.
    pub settle: Duration,
    /// Authorities (PEM) to trust over TLS instead of the machine's.
    pub authorities: Option<Vec<u8>>,
}

/// A re-issue waits for an operation: far more than a Redis needs that is well, far less than a client waits.
const LIMIT_MAX: Duration = Duration::from_secs(1);

impl RedisSettings {
    /// The usual settings, where announcements last for `replica_ttl` and come four times in it at least. After an outage
    /// then each replica has been heard of before any other can take it for dead: an announcement that went out while
    /// Redis was away is given up after half of that time, Redis is left alone for as long, and the next one follows within
    /// a quarter of it.
    #[must_use]
    pub fn new(url: RedisUrl, replica_ttl: Duration) -> Self {
        let limit = LIMIT_MAX.min(replica_ttl / 2);
        Self {
            url,
            prefix: "holdfast:".to_owned(),
            limit,
            probe_pause: limit,
            settle: replica_ttl.max(2 * limit + replica_ttl / 4),
            authorities: None,
        }
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RedisSettings")
            .field("url", &self.url)
            .field("prefix", &self.prefix)
            .field("limit", &self.limit)
            .field("probe_pause", &self.probe_pause)
            .field("settle", &self.settle)
            .field("authorities", &self.authorities.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted from a good announcement: the next is due after a quarter of its span, is late, and is made anew.
    #[test]
    fn a_single_slow_operation_makes_no_replica_look_dead() {
        let url: RedisUrl = "redis://127.0.0.1".parse().unwrap();
        for millis in [100, 600, 5000, 60_000] {
            let replica_ttl = Duration::from_millis(millis);
            let settings = RedisSettings::new(url.clone(), replica_ttl);
            let said_again = replica_ttl / 4 + settings.limit;
            assert!(said_again <= replica_ttl * 3 / 4, "{millis}");
            assert!(settings.limit <= LIMIT_MAX);
            // It was tried in vain, then not for a while, and then came the next announcement.
            let comes_back = settings.limit + settings.probe_pause + replica_ttl / 4;
            assert!(settings.settle >= replica_ttl.max(comes_back), "{millis}");
        }
    }
}
