//! Servers and clients over the transports on which a session has one channel: standard streams, HTTP+SSE, WebSocket.

use std::net::SocketAddr;
use std::process::Command;

pub(crate) mod client;
pub(crate) mod server;

/// Where a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A process for each session.
    Stdio,
    /// The stream of a GET, and a POST for each message.
    HttpSse(SocketAddr),
    /// One socket for each session.
    WebSocket(SocketAddr),
}

impl Transport {
    /// What the gateway is started with to reach it.
    pub(crate) fn arguments(self) -> Vec<String> {
        match self {
            Self::Stdio => {
                let program = std::env::current_exe().unwrap().display().to_string();
                vec!["--".to_owned(), program, server::STDIO.to_owned()]
            }
            Self::HttpSse(addr) => vec!["--upstream".to_owned(), format!("http://{addr}/sse")],
            Self::WebSocket(addr) => vec!["--upstream".to_owned(), format!("ws://{addr}/")],
        }
    }
}

/// The program that serves one session on its standard streams.
fn program() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(server::STDIO);
    command
}
