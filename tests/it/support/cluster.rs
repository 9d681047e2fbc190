//! A server, Redis, and replicas in front of the one that know each other by the other.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::eventually;
use super::gateway::{Config, Gateway};
use super::puppet::{EventIds, Manner, Puppet};
use super::redis::RedisServer;
use super::stage::usual;

/// A server, Redis, and what is needed to start replicas.
pub(crate) struct Cluster {
    pub(crate) puppet: Puppet,
    pub(crate) redis: RedisServer,
    pub(crate) config: Config,
}

impl Cluster {
    pub(crate) async fn of(manner: Manner) -> Self {
        let puppet = Puppet::start(manner).await;
        usual(&puppet);
        let redis = RedisServer::start().await;
        let keys = format!("[{:?}]", STANDARD.encode([1; 32]));
        let config = Config::of(&puppet)
            .top("keys", &keys)
            .cluster("listen", "\"127.0.0.1:0\"")
            .cluster("redis", &format!("{:?}", redis.url()))
            .cluster("heartbeat", "\"150ms\"")
            .cluster("replica_ttl", "\"600ms\"");
        Self {
            puppet,
            redis,
            config,
        }
    }

    /// With a server that can resume.
    pub(crate) async fn new() -> Self {
        Self::of(Manner {
            event_ids: EventIds::With,
            ..Manner::default()
        })
        .await
    }

    /// So many, which know of each other.
    pub(crate) async fn replicas<const N: usize>(&self) -> [Gateway; N] {
        let mut replicas = Vec::new();
        for _ in 0..N {
            replicas.push(self.config.start().await);
        }
        self.keeps("replica", N).await;
        replicas.try_into().unwrap()
    }

    pub(crate) fn answers(&self) -> usize {
        self.puppet.ledger().answers.len()
    }

    /// What Redis keeps of this kind, by its keys.
    pub(crate) async fn kept(&self, kind: &str) -> Vec<String> {
        let pattern = format!("holdfast:{{shared}}:{kind}:*");
        let keys = self.redis.cli(&["KEYS", &pattern]).await;
        let keys = keys.lines().filter(|line| !line.is_empty());
        keys.map(str::to_owned).collect()
    }

    /// Waits until Redis keeps so many of this kind.
    pub(crate) async fn keeps(&self, kind: &str, count: usize) {
        let what = format!("{count} of {kind} in Redis");
        let are_kept = || async { self.kept(kind).await.len() == count };
        eventually(&what, are_kept).await;
    }

    /// The end of a test: nothing is held anywhere, and those that are left end well.
    pub(crate) async fn ends(self, replicas: impl IntoIterator<Item = Gateway>) {
        for replica in replicas {
            replica.settled().await;
            assert_eq!(replica.terminate().await, 0);
        }
        self.keeps("replica", 0).await;
        // Those that were killed have left sessions behind.
        self.puppet.forget_sessions();
        self.puppet.settled().await;
    }
}
