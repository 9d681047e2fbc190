//! Sockets of clients: accepting within a bound, serving, and letting go at the end.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::ResponseBody;
use super::workers::Place;
use super::{Front, Workers, admin};
use crate::observe::{Count, chain};
use crate::route::{Came, Gateway};

/// The pause after a failed accept: out of file descriptors is cured by waiting, not by spinning.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Listens at `address`.
///
/// # Errors
/// When the address is not to be had.
pub async fn bind(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// What accepting needs besides a listener.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Connections at once.
    pub connections_max: usize,
    /// How long a connection may be idle, or take for a request head.
    pub client_idle: Duration,
    /// How long a client may take to read more of its response.
    pub client_write_timeout: Duration,
    /// Counts them.
    pub count: Count,
    /// Where they run.
    pub connections: TaskTracker,
    /// Cancelled when no more are accepted; those that are open end with the response they are sending.
    pub stop: CancellationToken,
    /// Cancelled when they have to end as they are.
    pub cut: CancellationToken,
}

/// Serves modern clients on the threads of `workers` until told to stop.
pub async fn serve_clients(
    listener: TcpListener,
    terms: Terms,
    front: Arc<Front>,
    workers: Arc<Workers>,
) {
    let answer = move |request| {
        let front = Arc::clone(&front);
        async move { front.answer(request, Came::FromClient).await }
    };
    let serve = move |stream, terms| serve(stream, terms, answer.clone());
    accept(listener, terms, Some(workers), serve).await;
}

/// Serves the admin listener until told to stop.
pub async fn serve_admin(listener: TcpListener, terms: Terms, gateway: Arc<Gateway>) {
    let answer = move |request| admin::answer(Arc::clone(&gateway), request);
    let serve = move |stream, terms| serve(stream, terms, answer.clone());
    accept(listener, terms, None, serve).await;
}

/// Accepts connections until told to stop and has each served by `serve`, on a thread of `workers` or else here.
pub(super) async fn accept<F, S>(
    listener: TcpListener,
    terms: Terms,
    workers: Option<Arc<Workers>>,
    serve: F,
) where
    F: Fn(TcpStream, Terms) -> S + Clone + Send + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(terms.connections_max));
    loop {
        let accepted = tokio::select! {
            biased;
            () = terms.stop.cancelled() => return,
            // At the bound new connections wait in the kernel's queue.
            Ok(place) = Arc::clone(&places).acquire_owned() => {
                tokio::select! {
                    biased;
                    () = terms.stop.cancelled() => return,
                    accepted = listener.accept() => accepted.map(|(stream, _)| (stream, place)),
                }
            }
        };
        match accepted {
            Ok((stream, place)) => {
                let thread = workers.as_deref().and_then(Workers::place);
                let here = Handle::current();
                let scheduler = thread.as_ref().map_or(&here, Place::scheduler).clone();
                let (terms, serve) = (terms.clone(), serve.clone());
                let counted = terms.count.count();
                let connections = terms.connections.clone();
                let serving = async move {
                    match moved(stream) {
                        Ok(stream) => serve(stream, terms).await,
                        Err(error) => tracing::warn!(%error, "a connection was not accepted"),
                    }
                    drop((place, thread, counted));
                };
                connections.spawn_on(serving, &scheduler);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The stream, waited for by the thread that this runs on.
fn moved(stream: TcpStream) -> std::io::Result<TcpStream> {
    TcpStream::from_std(stream.into_std()?)
}

/// Serves a client's connection.
pub(super) async fn serve<F, A>(stream: TcpStream, terms: Terms, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    // Without it answers of a few bytes may wait for an acknowledgement.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(terms.client_write_timeout));
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(terms.client_idle)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
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
        tracing::debug!(error, "a connection ended badly");
    }
}
