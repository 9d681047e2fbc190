//! Redis over TCP and over TLS, through a front on a port of the system's choice.

use std::net::SocketAddr;
use std::time::Duration;

use holdfast::cluster::redis::{Redis, RedisError, RedisSettings};
use holdfast::hold::shared::Shared;
use holdfast::observe::chain;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::{A, mine, wanted_by};
use crate::support::eventually;
use crate::support::gateway::Config;
use crate::support::redis::{RedisServer, keys, shared};
use crate::support::tls::{Authority, Front};

/// Passes on what comes to the server. Ends when the guard is dropped.
async fn front(server: &RedisServer, acceptor: Option<TlsAcceptor>) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (end, tasks, socket) = (
        CancellationToken::new(),
        TaskTracker::new(),
        server.socket(),
    );
    let ended = end.clone();
    tasks
        .clone()
        .spawn(ended.clone().run_until_cancelled_owned(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, socket) = (acceptor.clone(), socket.clone());
                tasks.spawn(ended.clone().run_until_cancelled_owned(async move {
                    let Ok(redis) = UnixStream::connect(socket).await else {
                        return;
                    };
                    match acceptor {
                        None => pass(client, redis).await,
                        Some(acceptor) => {
                            if let Ok(client) = acceptor.accept(client).await {
                                pass(client, redis).await;
                            }
                        }
                    }
                }));
            }
        }));
    (addr, end.drop_guard())
}

async fn pass(mut client: impl AsyncRead + AsyncWrite + Unpin, mut redis: UnixStream) {
    let _ = copy_bidirectional(&mut client, &mut redis).await;
}

fn settings(server: &RedisServer, url: &str) -> RedisSettings {
    RedisSettings {
        url: url.parse().unwrap(),
        ..server.settings()
    }
}

#[tokio::test]
async fn over_tcp_with_user_password_and_database() {
    let server =
        RedisServer::start_with(&["--user", "holdfast", "on", ">right", "~*", "+@all"]).await;
    let (addr, _guard) = front(&server, None).await;
    let url = format!("redis://holdfast:right@{addr}/3");
    let redis = shared(settings(&server, &url));
    assert_eq!(redis.claim(wanted_by(A)).await.unwrap(), mine(0, None));
    assert_eq!(server.cli(&["-n", "3", "dbsize"]).await, "1");
}

#[tokio::test]
async fn over_tls_to_those_alone_whose_authority_is_trusted() {
    let server = RedisServer::start().await;
    let authority = Authority::new();
    let (addr, _guard) = front(&server, Some(authority.acceptor(Front::Http1))).await;
    let url = format!("rediss://localhost:{}", addr.port());
    let trusting = |authorities| RedisSettings {
        authorities,
        probe_pause: Duration::ZERO,
        ..settings(&server, &url)
    };
    let redis = shared(trusting(Some(authority.pem().into_bytes())));
    assert_eq!(redis.claim(wanted_by(A)).await.unwrap(), mine(0, None));
    for authorities in [None, Some(Authority::new().pem().into_bytes())] {
        let refused = shared(trusting(authorities)).claim(wanted_by(A)).await;
        let said = chain(&refused.unwrap_err());
        assert!(said.contains("certificate"), "{said}");
    }
    let bad = Redis::new(trusting(Some(b"no certificate".to_vec())), keys());
    assert!(matches!(bad, Err(RedisError::Authorities)), "{bad:?}");
}

/// As a configuration says it.
#[tokio::test]
async fn a_replica_finds_the_others_over_tls_with_an_authority_of_their_own() {
    let server = RedisServer::start().await;
    let authority = Authority::new();
    let (addr, _guard) = front(&server, Some(authority.acceptor(Front::Http1))).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority.pem()).unwrap();
    let gateway = Config::to("http://127.0.0.1:1/mcp".to_owned())
        .replica([1; 32])
        .cluster("redis", &format!("\"rediss://localhost:{}\"", addr.port()))
        .cluster("redis_ca_file", &format!("{:?}", file.path()))
        .start()
        .await;
    let is_there = || async { !server.cli(&["keys", "*replica:*"]).await.is_empty() };
    eventually("the replica to be announced", is_there).await;
    assert_eq!(gateway.terminate().await, 0);
    assert!(server.cli(&["keys", "*replica:*"]).await.is_empty());
}
