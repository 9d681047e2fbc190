//! The listener for other replicas: the same endpoint as clients reach, over TLS and HTTP/2.
//!
//! Nobody is let in who does not show a key that was derived from a sealing key. What is let in is trusted with one thing
//! alone: that the replica which a client did reach has checked `Origin` and `Host`. All else is checked here as for
//! clients.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::body::ResponseBody;
use super::server::{Terms, accept};
use super::{Front, Workers};
use crate::cluster::hop::{
    CONNECTION_WINDOW_BYTES, HEAD_BYTES_MAX, Pulse, STREAM_WINDOW_BYTES, STREAMS_MAX, Tracked,
};
use crate::cluster::identity::Identity;
use crate::observe::{Count, Counter, chain};
use crate::route::Came;

#[cfg(test)]
mod tests;

/// Connections at once. A replica has one, and for a moment two; the rest is room for strangers, who do not keep theirs.
const REPLICA_CONNECTIONS_MAX: usize = 1024;

/// What serving replicas needs besides what serving anybody does.
#[derive(Debug, Clone)]
pub struct ReplicaTerms {
    /// Who is one.
    pub identity: Identity,
    /// How soon one is missed.
    pub pulse: Pulse,
    /// Counts those that are let in.
    pub count: Count,
    /// Counts those that are not.
    pub strangers: Counter,
}

/// Serves other replicas on the threads of `workers` until told to stop.
pub async fn serve_replicas(
    listener: TcpListener,
    terms: Terms,
    replicas: ReplicaTerms,
    front: Arc<Front>,
    workers: Arc<Workers>,
) {
    let answer = move |request| {
        let front = Arc::clone(&front);
        async move { front.answer(request, Came::Forwarded).await }
    };
    accept_replicas(listener, terms, replicas, Some(workers), answer).await;
}

/// Has what replicas send answered by `answer`.
async fn accept_replicas<F, A>(
    listener: TcpListener,
    terms: Terms,
    replicas: ReplicaTerms,
    workers: Option<Arc<Workers>>,
    answer: F,
) where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    let terms = Terms {
        connections_max: REPLICA_CONNECTIONS_MAX,
        // Not before they are let in.
        count: Count::default(),
        ..terms
    };
    let serve = move |stream, terms: Terms| {
        let (replicas, answer) = (replicas.clone(), answer.clone());
        async move {
            let let_in = tokio::select! {
                biased;
                () = terms.stop.cancelled() => return,
                let_in = let_in(stream, &replicas) => let_in,
            };
            if let Some(stream) = let_in {
                let _counted = replicas.count.count();
                serve(stream, terms, replicas.pulse, answer).await;
            }
        }
    };
    accept(listener, terms, workers, serve).await;
}

/// The stream of somebody who has shown a right key. Cancel-safe as far as it matters: dropped before it is done, the
/// connection is closed with it, and nobody is counted, neither as let in nor as a stranger.
async fn let_in(stream: TcpStream, replicas: &ReplicaTerms) -> Option<TlsStream<TcpStream>> {
    let _ = stream.set_nodelay(true);
    let peer = stream.peer_addr().ok();
    let acceptor = TlsAcceptor::from(replicas.identity.server());
    let why = match timeout(replicas.pulse.silence_max, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => chain(&error),
        Err(_) => "it took too long".to_owned(),
    };
    replicas.strangers.inc();
    tracing::debug!(?peer, why, "no replica: a connection is closed");
    None
}

async fn serve<F, A>(stream: TlsStream<TcpStream>, terms: Terms, pulse: Pulse, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let connection = http2::Builder::new(Tracked(terms.connections))
        .timer(TokioTimer::new())
        .keep_alive_interval(pulse.ping_interval)
        .keep_alive_timeout(pulse.silence_max)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(STREAM_WINDOW_BYTES as usize)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        // The clients of a replica may all go at once. That is no attack: whoever is here has the key.
        .max_pending_accept_reset_streams(STREAMS_MAX as usize)
        .max_local_error_reset_streams(None)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = terms.stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = terms.cut.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        let error = chain(&error);
        tracing::debug!(error, "a connection of a replica ended badly");
    }
}
