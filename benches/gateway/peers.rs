//! The processes of a run: the upstream, the gateway, nginx where it is installed.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use super::channel::server;
use super::process::Process;
use super::upstream;

/// A process that serves on an address.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) process: Process,
    pub(crate) addr: SocketAddr,
}

/// The legacy server: this program again.
pub(crate) fn upstream() -> Peer {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let process = Process::start(command.arg(upstream::ARGUMENT));
    let addr = process.says(upstream::READY).parse().unwrap();
    Peer { process, addr }
}

/// The server over HTTP+SSE and WebSocket, with their addresses: this program again.
pub(crate) fn channels() -> (Process, SocketAddr, SocketAddr) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let process = Process::start(command.arg(server::SOCKETS));
    let sse = process.says(server::SSE_READY).parse().unwrap();
    let websocket = process.says(server::WEBSOCKET_READY).parse().unwrap();
    (process, sse, websocket)
}

/// The gateway in front of it.
pub(crate) fn gateway(upstream: &Peer) -> Peer {
    gateway_with(&[
        "--upstream".to_owned(),
        format!("http://{}/mcp", upstream.addr),
    ])
}

/// The gateway, started with these arguments.
pub(crate) fn gateway_with(arguments: &[String]) -> Peer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .env("RUST_LOG", "warn");
    let process = Process::start(&mut command);
    let url = process.says("holdfast listening on http://");
    let addr = url.strip_suffix("/mcp").unwrap().parse().unwrap();
    Peer { process, addr }
}

/// nginx as a plain reverse proxy in front of the upstream, tuned as one would: workers for all cores, warm
/// connections, no buffering, no access log. Nothing when it is not installed.
pub(crate) fn nginx(upstream: &Peer) -> Option<Peer> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-nginx");
    std::fs::create_dir_all(&folder).unwrap();
    // nginx cannot say which port it was given: a port that was free a moment ago has to do.
    let addr = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let folder_text = folder.display();
    let configuration = format!(
        "worker_processes auto;
error_log stderr notice;
pid {folder_text}/pid;
worker_rlimit_nofile 16384;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {folder_text}/body;
  proxy_temp_path {folder_text}/proxy;
  fastcgi_temp_path {folder_text}/fastcgi;
  uwsgi_temp_path {folder_text}/uwsgi;
  scgi_temp_path {folder_text}/scgi;
  keepalive_requests 100000000;
  tcp_nodelay on;
  upstream legacy {{ server {}; keepalive 64; keepalive_requests 100000000; }}
  server {{
    listen {addr} reuseport;
    location / {{
      proxy_pass http://legacy;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
    }}
  }}
}}
",
        upstream.addr,
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, configuration).unwrap();
    let mut command = Command::new("nginx");
    command
        .arg("-p")
        .arg(&folder)
        .arg("-c")
        .arg(&file)
        .args(["-g", "daemon off;"]);
    if Command::new("nginx").arg("-v").output().is_err() {
        return None;
    }
    let process = Process::start(&mut command);
    process.says("start worker process ");
    Some(Peer { process, addr })
}
