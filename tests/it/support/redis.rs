//! A real Redis as a child process, on a socket of its own: stopped, killed and started again as a test likes.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast::cluster::redis::{Redis, RedisSettings, RedisUrl};
use holdfast::hold::seal::SealingKeys;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::{GLANCE, signal, within};

/// A running `redis-server`. Dropped, it is killed, and its folder is gone.
#[derive(Debug)]
pub(crate) struct RedisServer {
    folder: TempDir,
    options: Vec<String>,
    child: Child,
}

impl RedisServer {
    /// One that keeps nothing on disk.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// One with more options, as on its command line.
    pub(crate) async fn start_with(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options: Vec<_> = options.iter().map(|&option| option.to_owned()).collect();
        let child = spawn(&folder, &options);
        let mut server = Self {
            folder,
            options,
            child,
        };
        server.ready().await;
        server
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// For `redis+unix`, which needs no port.
    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Settings for a test: nobody waits for announcements, and every replica is forgotten only by its own `ttl`.
    pub(crate) fn settings(&self) -> RedisSettings {
        RedisSettings {
            // Far more than an operation takes on a busy machine.
            limit: Duration::from_secs(10),
            probe_pause: Duration::from_secs(1),
            ..RedisSettings::new(self.url().parse::<RedisUrl>().unwrap(), Duration::ZERO)
        }
    }

    /// What replicas share, through this server.
    pub(crate) fn shared(&self) -> Redis {
        shared(self.settings())
    }

    /// Answers a command, as `redis-cli` prints it.
    pub(crate) async fn cli(&self, arguments: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .arg("-s")
            .arg(self.socket())
            .args(arguments)
            .output();
        let output = within("redis-cli", output).await;
        let output = output.unwrap_or_else(|error| panic!("{MISSING}: {error}"));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Stands still, with its connections open.
    pub(crate) fn freeze(&self) {
        signal(&self.child, Signal::STOP);
    }

    /// Goes on.
    pub(crate) fn thaw(&self) {
        signal(&self.child, Signal::CONT);
    }

    /// Dies, with all that it had in memory.
    pub(crate) async fn kill(&mut self) {
        within("redis-server to die", self.child.kill())
            .await
            .unwrap();
    }

    /// Starts again at the same place.
    pub(crate) async fn restart(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        self.child = spawn(&self.folder, &self.options);
        self.ready().await;
    }

    /// Waits until it answers.
    async fn ready(&mut self) {
        let ready = async {
            loop {
                let answer = self.cli(&["ping"]).await;
                if answer == "PONG" || answer.starts_with("NOAUTH") {
                    break;
                }
                if let Some(status) = self.child.try_wait().unwrap() {
                    panic!("redis-server ended at once, with {status}");
                }
                sleep(GLANCE).await;
            }
        };
        within("redis-server to start", ready).await;
    }
}

const MISSING: &str = "these tests need redis-server and redis-cli (Debian packages redis-server and redis-tools; \
                       tests/run installs them)";

/// What replicas share, with these settings and the keys of all tests.
pub(crate) fn shared(settings: RedisSettings) -> Redis {
    Redis::new(settings, keys()).unwrap()
}

/// The keys of all tests.
pub(crate) fn keys() -> Arc<SealingKeys> {
    Arc::new(SealingKeys::new(&[[7; 32]]).unwrap())
}

/// A name that no other test uses on a server of many.
pub(crate) fn fresh_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test-{}:", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn spawn(folder: &TempDir, options: &[String]) -> Child {
    let started = Command::new("redis-server")
        .args(["--port", "0", "--unixsocket", "redis.sock"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .args(options)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    started.unwrap_or_else(|error| panic!("{MISSING}: {error}"))
}
