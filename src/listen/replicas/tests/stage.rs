//! What these tests stand on: a replica that answers as it is told, one that forwards, a wire that can be cut.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::AsyncWriteExt;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::*;
use crate::cluster::hop::Hop;
use crate::hold::seal::SealingKeys;
use crate::listen::reply;
use crate::listen::{elsewhere, server};
use crate::wire::jsonrpc::ClientId;

/// Bounds every wait: far beyond what anything takes on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const PULSE: Pulse = Pulse {
    ping_interval: Duration::from_millis(100),
    // A busy machine is not to be taken for a dead one.
    silence_max: Duration::from_secs(2),
};

pub(super) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

pub(super) fn identity(keys: &[u8]) -> Identity {
    let keys: Vec<_> = keys.iter().map(|byte| [*byte; 32]).collect();
    Identity::of(&SealingKeys::new(&keys).unwrap()).unwrap()
}

pub(super) fn hop(keys: &[u8]) -> Hop {
    Hop::new(
        identity(keys),
        PULSE,
        TaskTracker::new(),
        CancellationToken::new(),
    )
}

pub(super) fn request(path: &str) -> (Parts, Bytes) {
    let request = Request::post(path).body(()).unwrap();
    (request.into_parts().0, Bytes::from_static(b"{}"))
}

pub(super) async fn bound() -> (TcpListener, SocketAddr) {
    server::bind((std::net::Ipv4Addr::LOCALHOST, 0).into())
        .await
        .unwrap()
}

fn terms(cut: &CancellationToken) -> Terms {
    Terms {
        connections_max: 10,
        client_idle: PATIENCE,
        client_write_timeout: PATIENCE,
        count: Count::default(),
        connections: TaskTracker::new(),
        stop: cut.child_token(),
        cut: cut.clone(),
    }
}

/// A replica that others reach.
pub(super) struct Owner {
    address: SocketAddr,
    keys: Vec<u8>,
    replicas: ReplicaTerms,
    terms: Terms,
    accepting: TaskTracker,
    _end: DropGuard,
}

impl Owner {
    pub(super) async fn start<F, A>(keys: &[u8], answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Response<ResponseBody>> + Send + 'static,
    {
        Self::start_at((std::net::Ipv4Addr::LOCALHOST, 0).into(), keys, answer).await
    }

    async fn start_at<F, A>(address: SocketAddr, keys: &[u8], answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Response<ResponseBody>> + Send + 'static,
    {
        let (listener, address) = server::bind(address).await.unwrap();
        let end = CancellationToken::new();
        let replicas = ReplicaTerms {
            identity: identity(keys),
            pulse: PULSE,
            count: Count::default(),
            strangers: Counter::default(),
        };
        let terms = terms(&end);
        let accepting = TaskTracker::new();
        accepting.spawn(accept_replicas(
            listener,
            terms.clone(),
            replicas.clone(),
            None,
            answer,
        ));
        Self {
            address,
            keys: keys.to_vec(),
            replicas,
            terms,
            accepting,
            _end: end.drop_guard(),
        }
    }

    /// Ends it in good order, and starts another in its place.
    pub(super) async fn restarted<F, A>(self, answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Response<ResponseBody>> + Send + 'static,
    {
        self.terms.stop.cancel();
        self.accepting.close();
        within(self.accepting.wait()).await;
        self.terms.connections.close();
        within(self.terms.connections.wait()).await;
        Self::start_at(self.address, &self.keys, answer).await
    }

    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends all connections as they are.
    pub(super) fn kill(&self) {
        self.terms.cut.cancel();
    }

    pub(super) fn connections(&self) -> i64 {
        self.replicas.count.now()
    }

    pub(super) async fn has_turned_away(&self, count: u64) {
        let counted = async {
            while self.replicas.strangers.get() != count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        within(counted).await;
        assert_eq!(self.connections(), 0);
    }
}

/// A replica that clients reach, which sends everything on to another.
pub(super) struct Near {
    address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    _end: DropGuard,
}

impl Near {
    pub(super) async fn start(hop: Hop, to: &str) -> Self {
        let (listener, address) = bound().await;
        let (hop, to): (Arc<Hop>, Arc<str>) = (Arc::new(hop), to.into());
        let answer = move |request: Request<Incoming>| {
            let (hop, to) = (Arc::clone(&hop), Arc::clone(&to));
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let id = serde_json::value::to_raw_value(&1).unwrap();
                let id = ClientId::new(&id).unwrap();
                match hop.forward(&to, &head, body).await {
                    Ok(response) => response.map(ResponseBody::Forwarded),
                    Err(_) => reply::whole(&id, elsewhere::unreached()),
                }
            }
        };
        let end = CancellationToken::new();
        let serve = move |stream, terms| server::serve(stream, terms, answer.clone());
        let tasks = TaskTracker::new();
        tasks.spawn(accept(listener, terms(&end), None, serve));
        Self {
            address,
            client: Client::builder(TokioExecutor::new()).build_http(),
            _end: end.drop_guard(),
        }
    }

    /// What a client gets.
    pub(super) async fn ask(&self, path: &str, body: Bytes) -> Response<Incoming> {
        let uri = format!("http://{}{path}", self.address);
        let request = Request::post(uri).body(Full::new(body)).unwrap();
        within(self.client.request(request)).await.unwrap()
    }
}

/// A way to `to` that carries nothing any more once it is frozen, and does not say so.
pub(super) async fn proxied(to: String) -> (String, CancellationToken) {
    let (listener, address) = bound().await;
    let frozen = CancellationToken::new();
    let freezing = frozen.clone();
    TaskTracker::new().spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = TcpStream::connect(to).await.unwrap();
        let copying = tokio::io::copy_bidirectional(&mut near, &mut far);
        freezing.run_until_cancelled(copying).await;
        std::future::pending::<()>().await;
    });
    (address.to_string(), frozen)
}

/// Something that is no replica, and says so.
pub(super) async fn talking(said: &'static [u8]) -> SocketAddr {
    let (listener, address) = bound().await;
    TaskTracker::new().spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(said).await.unwrap();
        std::future::pending::<()>().await;
    });
    address
}
