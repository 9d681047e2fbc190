//! A replica that holds nothing: whatever clients send it goes on to the one that is under test.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast::cluster::hop::{Hop, HopError, Pulse};
use holdfast::cluster::identity::Identity;
use holdfast::hold::seal::SealingKeys;
use http::{Request, Response};
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::client::Client;
use super::gateway::Gateway;

/// The way to a replica with this key.
fn hop(key: [u8; 32]) -> Hop {
    let identity = Identity::of(&SealingKeys::new(&[key]).unwrap()).unwrap();
    let pulse = Pulse {
        ping_interval: Duration::from_secs(1),
        silence_max: Duration::from_secs(10),
    };
    Hop::new(
        identity,
        pulse,
        TaskTracker::new(),
        CancellationToken::new(),
    )
}

/// A running one. Dropped, it ends with all its connections.
#[derive(Debug)]
pub(crate) struct Replica {
    addr: SocketAddr,
    _end: DropGuard,
}

impl Replica {
    /// In front of `gateway`, with this key.
    pub(crate) async fn before(gateway: &Gateway, key: [u8; 32]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (hop, to) = (Arc::new(hop(key)), gateway.cluster().to_string());
        let (end, tasks) = (CancellationToken::new(), TaskTracker::new());
        let ended = end.clone();
        tasks.clone().spawn(async move {
            let accepting = async {
                while let Ok((stream, _)) = listener.accept().await {
                    let (hop, to) = (Arc::clone(&hop), to.clone());
                    let service = service_fn(move |request| {
                        let (hop, to) = (Arc::clone(&hop), to.clone());
                        async move { Ok::<_, Infallible>(forward(&hop, &to, request).await) }
                    });
                    let serving =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    tasks.spawn(ended.clone().run_until_cancelled_owned(serving));
                }
            };
            ended.run_until_cancelled(accepting).await;
        });
        Self {
            addr,
            _end: end.drop_guard(),
        }
    }

    /// Where clients reach it.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        Client::at(self.addr)
    }
}

async fn forward(
    hop: &Hop,
    to: &str,
    request: Request<Incoming>,
) -> Response<Either<Incoming, Empty<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let forwarded: Result<_, HopError> = hop.forward(to, &head, body).await;
    match forwarded {
        Ok(response) => response.map(Either::Left),
        Err(_) => {
            let mut response = Response::new(Either::Right(Empty::new()));
            *response.status_mut() = http::StatusCode::BAD_GATEWAY;
            response
        }
    }
}
