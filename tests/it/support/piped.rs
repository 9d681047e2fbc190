//! The real binary as a client starts it: `holdfast stdio` on pipes. Every line it writes must be one message.

use std::ffi::OsStr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio_util::task::TaskTracker;

use super::client::{Asked, Request};
use super::gateway::{Config, line};
use super::{signal, within};

/// A gateway that runs for one client, who holds the other ends of its pipes. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Piped {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    log: Arc<Mutex<String>>,
    reading: TaskTracker,
}

/// What it was like in the end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    /// The messages that were not read before.
    pub(crate) rest: Vec<Value>,
    pub(crate) log: String,
}

impl Piped {
    /// Starts with a configuration; it serves when this returns.
    pub(crate) async fn start(config: &Config) -> Self {
        let path = config.write();
        let piped = Self::launch(&[OsStr::new("--config"), path.as_os_str()]).await;
        // It was read when the gateway was ready, and is never read again.
        let _ = std::fs::remove_file(path);
        piped
    }

    /// `holdfast stdio -- COMMAND`, without a file.
    pub(crate) async fn in_front_of(command: &[&str]) -> Self {
        let arguments = [&["--"], command].concat();
        let arguments: Vec<_> = arguments.into_iter().map(OsStr::new).collect();
        Self::launch(&arguments).await
    }

    async fn launch(arguments: &[&OsStr]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .env("RUST_LOG", "info,holdfast::listen=debug")
            .arg("stdio")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let ready = async {
            while let Some(line) = line(&mut lines, &log).await {
                if line.contains("serving one client") {
                    return;
                }
            }
            panic!("it ended before it served:\n{}", log.lock().unwrap());
        };
        within("the gateway to start", ready).await;
        let reading = TaskTracker::new();
        let written = Arc::clone(&log);
        reading.spawn(async move { while line(&mut lines, &written).await.is_some() {} });
        reading.close();
        Self {
            input: child.stdin.take(),
            output: child.stdout.take().map(BufReader::new),
            child,
            log,
            reading,
        }
    }

    /// What it wrote to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Writes bytes as they are.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let input = self.input.as_mut().unwrap();
        within("the gateway to read", input.write_all(bytes.as_ref()))
            .await
            .unwrap();
    }

    /// Sends a message.
    pub(crate) async fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n")).await;
    }

    /// Sends a request.
    pub(crate) async fn send(&mut self, request: &Request) {
        self.say(request.message()).await;
    }

    /// Reads the next message; nothing at the end of the output.
    async fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = self.output.as_mut().unwrap().read_line(&mut line);
        if within("a message", read).await.unwrap() == 0 {
            return None;
        }
        assert!(line.ends_with('\n'), "not a whole line: {line:?}");
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        let is_request = message.get("id").is_some() && message.get("method").is_some();
        assert!(!is_request, "a modern server sends no requests: {message}");
        Some(message)
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Value {
        match self.read().await {
            Some(message) => message,
            None => panic!("no further message; {}", self.log.lock().unwrap()),
        }
    }

    /// The next message, which is the response to this request.
    pub(crate) async fn response(&mut self, request: &Request) -> Value {
        let message = self.next().await;
        let is_response = message.get("method").is_none();
        assert!(is_response, "not a response: {message}");
        assert_eq!(message["id"], request.message()["id"], "{message}");
        message
    }

    /// The result of this request, whose response is the next message.
    pub(crate) async fn result(&mut self, request: &Request) -> Value {
        let message = self.response(request).await;
        assert!(message.get("error").is_none(), "{message}");
        message["result"].clone()
    }

    /// What this request is answered with: a question.
    pub(crate) async fn asked(&mut self, request: &Request) -> Asked {
        let result = self.result(request).await;
        assert_eq!(result["resultType"], "input_required", "{result}");
        Asked {
            requests: result["inputRequests"].as_object().unwrap().clone(),
            state: result["requestState"].as_str().unwrap().to_owned(),
        }
    }

    /// Ends the input.
    pub(crate) fn shut(&mut self) {
        self.input = None;
    }

    /// Reads nothing any more: the output is closed.
    pub(crate) fn deafen(&mut self) {
        self.output = None;
    }

    /// Sends SIGTERM.
    pub(crate) fn signal_end(&self) {
        signal(&self.child, Signal::TERM);
    }

    /// Waits for the end without reading what is written.
    pub(crate) async fn ended_unread(mut self) -> Ended {
        let status = within("the gateway to end", self.child.wait()).await;
        let code = status.unwrap().code().unwrap_or(-1);
        within("the gateway's last words", self.reading.wait()).await;
        let log = self.log.lock().unwrap().clone();
        assert!(!log.contains("panicked"), "the gateway panicked:\n{log}");
        let rest = Vec::new();
        Ended { code, rest, log }
    }

    /// Reads to the end.
    pub(crate) async fn ended(mut self) -> Ended {
        let mut rest = Vec::new();
        if self.output.is_some() {
            while let Some(message) = self.read().await {
                rest.push(message);
            }
        }
        let ended = self.ended_unread().await;
        Ended { rest, ..ended }
    }

    /// Ends the input, and all is well: nothing was left to say.
    pub(crate) async fn leaves(mut self) {
        self.shut();
        let ended = self.ended().await;
        assert_eq!((ended.code, ended.rest), (0, Vec::new()), "{}", ended.log);
    }
}
