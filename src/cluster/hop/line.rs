//! One connection to another replica: TCP, TLS, HTTP/2. Opened once for all who want it, shared until it ends.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::TaskTracker;

use super::{CONNECTION_WINDOW_BYTES, HEAD_BYTES_MAX, Pulse, STREAM_WINDOW_BYTES, STREAMS_MAX};
use crate::cluster::identity::{Identity, nameless};
use crate::observe::chain;

type Sender = SendRequest<Full<Bytes>>;
type Outcome = Option<Result<Sender, Arc<LineError>>>;

/// Why there is no connection to a replica.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The address leads nowhere.
    #[error("no connection")]
    Connect(#[source] std::io::Error),
    /// One side does not accept the other's key.
    #[error("the keys do not go together")]
    Key(#[source] std::io::Error),
    /// There is something else.
    #[error("no replica answers there")]
    Stranger(#[source] std::io::Error),
    /// It did not go on in time.
    #[error("no answer in time")]
    Silence,
    /// It was open, and ended before anything could be sent.
    #[error("the connection has ended")]
    Ended(#[source] hyper::Error),
    /// It was given up because this process ends.
    #[error("this replica is ending")]
    Ending,
}

/// A connection that is open, or being opened.
#[derive(Clone)]
pub(super) struct Line(watch::Receiver<Outcome>);

impl fmt::Debug for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Line(..)")
    }
}

impl Line {
    /// Whether something can be sent on it, now or soon.
    pub(super) fn is_of_use(&self) -> bool {
        match &*self.0.borrow() {
            None => self.0.has_changed().is_ok(),
            Some(Ok(sender)) => !sender.is_closed(),
            Some(Err(_)) => false,
        }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Waits until it is open. Cancel-safe; the others who wait for it are not disturbed.
    pub(super) async fn opened(mut self) -> Result<Sender, Arc<LineError>> {
        let Ok(outcome) = self.0.wait_for(Option::is_some).await else {
            return Err(Arc::new(LineError::Ending));
        };
        outcome
            .clone()
            .unwrap_or_else(|| Err(Arc::new(LineError::Ending)))
    }
}

/// What opening a connection needs.
pub(super) struct Opening {
    pub(super) address: String,
    pub(super) identity: Identity,
    pub(super) pulse: Pulse,
    pub(super) tasks: TaskTracker,
}

impl Opening {
    /// The connection, and what opens it and carries it to its end.
    pub(super) fn begin(self) -> (Line, impl Future<Output = ()> + Send) {
        let (told, line) = watch::channel(None);
        let running = async move {
            let address = self.address.clone();
            let opened = timeout(self.pulse.silence_max, self.connect()).await;
            let stream = match opened.unwrap_or(Err(LineError::Silence)) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::debug!(address, error = chain(&error), "a replica is not reached");
                    told.send_replace(Some(Err(Arc::new(error))));
                    return;
                }
            };
            let (sender, connection) = match self.handshake(stream).await {
                Ok(both) => both,
                Err(error) => {
                    told.send_replace(Some(Err(Arc::new(LineError::Ended(error)))));
                    return;
                }
            };
            tracing::debug!(address, "connected to a replica");
            told.send_replace(Some(Ok(sender)));
            match connection.await {
                Ok(()) => tracing::debug!(address, "a connection to a replica has ended"),
                Err(error) => {
                    let error = chain(&error);
                    tracing::debug!(address, error, "a connection to a replica broke");
                }
            }
        };
        (Line(line), running)
    }

    /// Connects, and waits for the other side's first word: it comes when that side has accepted our key, which TLS 1.3
    /// itself does not tell.
    async fn connect(&self) -> Result<TlsStream<TcpStream>, LineError> {
        let stream = TcpStream::connect(&self.address).await;
        let stream = stream.map_err(LineError::Connect)?;
        let _ = stream.set_nodelay(true);
        let connector = TlsConnector::from(self.identity.client());
        let stream = connector.connect(nameless(), stream).await;
        let mut stream = stream.map_err(unaccepted)?;
        if stream.fill_buf().await.map_err(unaccepted)?.is_empty() {
            return Err(unaccepted(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(stream)
    }

    async fn handshake(
        self,
        stream: TlsStream<TcpStream>,
    ) -> hyper::Result<(Sender, impl Future<Output = hyper::Result<()>> + Send)> {
        http2::Builder::new(Tracked(self.tasks))
            .timer(TokioTimer::new())
            .keep_alive_interval(self.pulse.ping_interval)
            .keep_alive_timeout(self.pulse.silence_max)
            // Or a dead replica would be found by the next leg.
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX)
            // Clients may all go at once. What is still heard of their legs must not count as misbehaviour.
            .max_concurrent_reset_streams(STREAMS_MAX as usize)
            .max_local_error_reset_streams(None)
            .handshake(TokioIo::new(stream))
            .await
    }
}

/// TLS says by its errors whether somebody who speaks it refused, or was refused.
fn unaccepted(error: std::io::Error) -> LineError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(
            rustls::Error::AlertReceived(_)
            | rustls::Error::InvalidCertificate(_)
            | rustls::Error::PeerIncompatible(_),
        ) => LineError::Key(error),
        _ => LineError::Stranger(error),
    }
}

/// Spawns what HTTP/2 wants to run besides its connection where the end waits for it.
#[derive(Clone, Debug)]
pub struct Tracked(pub TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
