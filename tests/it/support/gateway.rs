//! The real binary as a child process: started on free ports, watched, asked for its metrics, ended.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio_util::task::TaskTracker;

use super::http1::Reader;
use super::puppet::Puppet;
use super::{eventually, signal, within};

/// The command line of `program.py` with these manners.
pub(crate) fn program<'a>(manners: &[&'a str]) -> Vec<&'a str> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/program.py");
    [&["python3", program], manners].concat()
}

/// A configuration file in the making. What a test does not set is short enough for a test.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    backend: Vec<(String, String)>,
    top: Vec<(String, String)>,
    timers: Vec<(String, String)>,
    limits: Vec<(String, String)>,
    cluster: Vec<(String, String)>,
}

impl Config {
    /// One backend: the puppet.
    pub(crate) fn of(puppet: &Puppet) -> Self {
        Self::to(puppet.url())
    }

    /// One backend at a URL.
    pub(crate) fn to(legacy: String) -> Self {
        Self::behind("legacy", format!("{legacy:?}"))
    }

    /// One backend that is `program.py` with these manners.
    pub(crate) fn program(manners: &[&str]) -> Self {
        Self::command(&program(manners))
    }

    /// One backend that is a program.
    pub(crate) fn command(command: &[&str]) -> Self {
        Self::behind("command", format!("{command:?}"))
    }

    fn behind(name: &str, server: String) -> Self {
        let empty = Vec::new;
        let config = Self {
            backend: vec![(name.to_owned(), server)],
            top: empty(),
            timers: empty(),
            limits: empty(),
            cluster: empty(),
        };
        // Idle sessions go soon, so that a test can wait for zero.
        config
            .backend("name", "\"puppet\"")
            .timer("session_idle", "200ms")
    }

    /// A value of `[timers]`, like "50ms".
    pub(crate) fn timer(mut self, name: &str, value: &str) -> Self {
        set(&mut self.timers, name, format!("{value:?}"));
        self
    }

    /// A value of `[limits]`.
    pub(crate) fn limit(mut self, name: &str, value: usize) -> Self {
        set(&mut self.limits, name, value.to_string());
        self
    }

    /// A value at the top, as TOML.
    pub(crate) fn top(mut self, name: &str, toml: &str) -> Self {
        set(&mut self.top, name, toml.to_owned());
        self
    }

    /// One of several replicas, with this key alone.
    pub(crate) fn replica(self, key: [u8; 32]) -> Self {
        let keys = format!("[{:?}]", STANDARD.encode(key));
        self.top("keys", &keys)
            .cluster("listen", "\"127.0.0.1:0\"")
            .cluster("redis", "\"redis://127.0.0.1:1\"")
    }

    /// A value of `[cluster]`, as TOML.
    pub(crate) fn cluster(mut self, name: &str, toml: &str) -> Self {
        set(&mut self.cluster, name, toml.to_owned());
        self
    }

    /// A value of the backend, as TOML.
    pub(crate) fn backend(mut self, name: &str, toml: &str) -> Self {
        set(&mut self.backend, name, toml.to_owned());
        self
    }

    fn text(&self) -> String {
        let lines = |values: &[(String, String)]| {
            values
                .iter()
                .fold(String::new(), |mut text, (name, value)| {
                    let _ = writeln!(text, "{name} = {value}");
                    text
                })
        };
        let cluster = match &self.cluster[..] {
            [] => String::new(),
            values => format!("[cluster]\n{}", lines(values)),
        };
        format!(
            "{}\n[[backend]]\n{}\n[timers]\n{}\n[limits]\n{}\n{cluster}",
            lines(&self.top),
            lines(&self.backend),
            lines(&self.timers),
            lines(&self.limits),
        )
    }

    /// Writes the file.
    pub(crate) fn write(&self) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdfast-{}-{number}.toml", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, self.text()).unwrap();
        path
    }

    /// Writes the file and starts the gateway with it.
    pub(crate) async fn start(&self) -> Gateway {
        let path = self.write();
        let arguments = ["--config".to_owned(), path.display().to_string()];
        let gateway = Gateway::start(&arguments).await;
        // It was read when the gateway was ready, and is never read again.
        let _ = std::fs::remove_file(path);
        gateway
    }
}

fn set(values: &mut Vec<(String, String)>, name: &str, value: String) {
    values.retain(|(known, _)| known != name);
    values.push((name.to_owned(), value));
}

/// A running gateway. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    listen: SocketAddr,
    admin: SocketAddr,
    cluster: Option<SocketAddr>,
    log: Arc<Mutex<String>>,
    reading: TaskTracker,
}

impl Gateway {
    /// `serve --upstream URL`, without a file.
    pub(crate) async fn for_upstream(url: &str) -> Self {
        Self::start(&["--upstream".to_owned(), url.to_owned()]).await
    }

    async fn start(arguments: &[String]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .env("RUST_LOG", "info,holdfast::session=debug")
            .arg("serve")
            .args(arguments)
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let ready = ready(&mut lines, &log);
        let (listen, admin, cluster) = within("the gateway to start", ready).await;
        let reading = TaskTracker::new();
        let written = Arc::clone(&log);
        reading.spawn(async move { while line(&mut lines, &written).await.is_some() {} });
        reading.close();
        Self {
            child,
            listen,
            admin,
            cluster,
            log,
            reading,
        }
    }

    /// Where clients are served.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.listen
    }

    /// Where other replicas are served.
    pub(crate) fn cluster(&self) -> SocketAddr {
        self.cluster.unwrap()
    }

    /// What it wrote to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until it has written this to standard error.
    pub(crate) async fn says(&self, what: &str) {
        let said = || async { self.log().contains(what) };
        eventually(&format!("the log to say {what:?}"), said).await;
    }

    /// Answers GET of the admin listener.
    pub(crate) async fn admin(&self, path: &str) -> (u16, String) {
        within("the admin listener", get(self.admin, path)).await
    }

    /// What it counts.
    pub(crate) async fn metrics(&self) -> Metrics {
        let (status, text) = self.admin("/metrics").await;
        assert_eq!(status, 200, "{text}");
        Metrics(text)
    }

    /// The value of a metric without labels, for instance `holdfast_sessions`.
    pub(crate) async fn metric(&self, name: &str) -> i64 {
        self.metrics().await.value(name)
    }

    /// Waits until a metric has a value.
    pub(crate) async fn metric_is(&self, name: &str, expected: i64) {
        let reached = || async { self.metric(name).await == expected };
        eventually(&format!("{name} = {expected}"), reached).await;
    }

    /// Waits until nothing is going on: no call, no hold, no session.
    pub(crate) async fn settled(&self) {
        for metric in ["holdfast_calls", "holdfast_holds", "holdfast_sessions"] {
            self.metric_is(metric, 0).await;
        }
        self.is_sound();
    }

    /// Fails when the gateway panicked.
    pub(crate) fn is_sound(&self) {
        let log = self.log();
        assert!(!log.contains("panicked"), "the gateway panicked:\n{log}");
    }

    /// Kills it on the spot: nothing is said to anybody.
    pub(crate) async fn kill(mut self) {
        signal(&self.child, Signal::KILL);
        let _ = within("the gateway to end", self.child.wait()).await;
    }

    /// Stands still, with its connections open.
    pub(crate) fn freeze(&self) {
        signal(&self.child, Signal::STOP);
    }

    /// Goes on.
    pub(crate) fn thaw(&self) {
        signal(&self.child, Signal::CONT);
    }

    /// Sends SIGTERM without waiting for the end.
    pub(crate) fn signal_end(&self) {
        signal(&self.child, Signal::TERM);
    }

    /// Waits for the end and returns the exit code.
    pub(crate) async fn ended(mut self) -> i32 {
        let status = within("the gateway to end", self.child.wait())
            .await
            .unwrap();
        within("the gateway's last words", self.reading.wait()).await;
        self.is_sound();
        status.code().unwrap_or(-1)
    }

    /// Waits for a clean end and returns all that it wrote to standard error.
    pub(crate) async fn log_to_the_end(self) -> String {
        let log = Arc::clone(&self.log);
        assert_eq!(self.ended().await, 0);
        let log = log.lock().unwrap();
        log.clone()
    }

    /// Sends SIGTERM and returns the exit code.
    pub(crate) async fn terminate(self) -> i32 {
        self.signal_end();
        self.ended().await
    }
}

/// What a gateway counted at one moment.
#[derive(Debug)]
pub(crate) struct Metrics(String);

impl Metrics {
    /// The value of a metric without labels.
    pub(crate) fn value(&self, name: &str) -> i64 {
        let Self(text) = self;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("no metric {name} in\n{text}"));
        value.trim().parse().unwrap()
    }
}

/// Waits for the lines that name the addresses; the one for replicas comes before the last, if at all.
async fn ready(
    lines: &mut BufReader<ChildStderr>,
    log: &Mutex<String>,
) -> (SocketAddr, SocketAddr, Option<SocketAddr>) {
    let (mut listen, mut admin, mut cluster) = (None, None, None);
    loop {
        if let (Some(listen), Some(admin)) = (listen, admin) {
            return (listen, admin, cluster);
        }
        let Some(line) = line(lines, log).await else {
            panic!(
                "the gateway ended before it was ready:\n{}",
                log.lock().unwrap()
            );
        };
        if let Some(url) = line.split("holdfast listening on http://").nth(1) {
            listen = url
                .trim()
                .strip_suffix("/mcp")
                .and_then(|addr| addr.parse().ok());
        } else if let Some(addr) = line.split("holdfast admin on http://").nth(1) {
            admin = addr.trim().parse().ok();
        } else if let Some(addr) = line.split("holdfast cluster on ").nth(1) {
            cluster = addr.trim().parse().ok();
        }
    }
}

/// The next line, which goes into the log.
pub(super) async fn line(
    lines: &mut BufReader<ChildStderr>,
    log: &Mutex<String>,
) -> Option<String> {
    let mut line = String::new();
    match lines.read_line(&mut line).await {
        Ok(0) | Err(_) => None,
        Ok(_) => {
            log.lock().unwrap().push_str(&line);
            Some(line)
        }
    }
}

async fn get(addr: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reader = Reader::new(stream);
    let head = reader.head().await.unwrap().unwrap();
    let body = reader.body(head.response_framing()).await.unwrap();
    (
        head.word(1).parse().unwrap(),
        String::from_utf8(body).unwrap(),
    )
}
