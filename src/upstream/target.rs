//! A configured server, and which transport it was found to speak.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use ::http::{HeaderValue, Uri};
use tokio_util::task::TaskTracker;

use super::access::Access;
use super::connection::Connection;
use super::error::UpstreamError;
use super::http::{HttpClient, TransportLimits};
use super::http_sse::HttpSse;
use super::stdio::Stdio;
use super::streamable_http::StreamableHttp;
use super::websocket::WebSocket;

/// A configured server.
#[derive(Debug)]
pub enum Target {
    /// At an `http(s)://` URL, of which only trying shows which transport is there.
    Http(HttpTarget),
    /// At a `ws(s)://` URL.
    WebSocket(WebSocket),
    /// A program.
    Stdio(Arc<Stdio>),
}

/// How a server can be spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP, from revision 2025-03-26 on.
    StreamableHttp,
    /// HTTP+SSE of revision 2024-11-05.
    HttpSse,
    /// WebSocket.
    WebSocket,
    /// Standard input and output.
    Stdio,
}

impl fmt::Display for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::StreamableHttp => "Streamable HTTP",
            Self::HttpSse => "HTTP+SSE",
            Self::WebSocket => "WebSocket",
            Self::Stdio => "stdio",
        })
    }
}

/// A server over either of the HTTP transports.
#[derive(Debug)]
pub struct HttpTarget {
    streamable: Arc<StreamableHttp>,
    sse: Arc<HttpSse>,
    found: Mutex<Option<Found>>,
}

/// What was found, and when.
#[derive(Debug, Clone, Copy)]
struct Found {
    transport: Transport,
    at: SystemTime,
    /// The last attempt to open a session failed: which transport it is has to be found again.
    is_doubtful: bool,
}

impl HttpTarget {
    /// The server at `uri`. It is asked nothing before a session is wanted.
    #[must_use]
    pub fn new(uri: Uri, limits: TransportLimits, access: Arc<Access>, tasks: TaskTracker) -> Self {
        let http = Arc::new(HttpClient::new(limits, access));
        let streamable = StreamableHttp::new(uri.clone(), Arc::clone(&http));
        Self {
            streamable: Arc::new(streamable),
            sse: Arc::new(HttpSse::new(uri, http, tasks)),
            found: Mutex::default(),
        }
    }

    fn found(&self) -> MutexGuard<'_, Option<Found>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target {
    /// The transports that the server may speak, the likeliest first.
    #[must_use]
    pub fn transports(&self) -> &'static [Transport] {
        match self {
            Self::Http(http) => match *http.found() {
                Some(Found {
                    transport: Transport::HttpSse,
                    is_doubtful: false,
                    ..
                }) => &[Transport::HttpSse, Transport::StreamableHttp],
                _ => &[Transport::StreamableHttp, Transport::HttpSse],
            },
            Self::WebSocket(_) => &[Transport::WebSocket],
            Self::Stdio(_) => &[Transport::Stdio],
        }
    }

    /// Whether all messages of a session share one channel, as far as is known. What became doubtful still holds for the
    /// sessions that are open.
    #[must_use]
    pub fn uses_channels(&self) -> bool {
        match self {
            Self::Http(http) => http
                .found()
                .is_some_and(|found| found.transport != Transport::StreamableHttp),
            Self::WebSocket(_) | Self::Stdio(_) => true,
        }
    }

    /// Remembers that the server speaks this, as a session over it shows.
    pub fn was_found(&self, transport: Transport) {
        let Self::Http(http) = self else { return };
        let now = SystemTime::now();
        let mut found = http.found();
        let before = found.replace(Found {
            transport,
            at: now,
            is_doubtful: false,
        });
        drop(found);
        match before {
            Some(before) if before.transport == transport => {}
            before => {
                let before = before.map(|Found { transport, at, .. }| {
                    format!(
                        "{transport} until {}",
                        humantime::format_rfc3339_seconds(at)
                    )
                });
                tracing::info!(%transport, before, "the transport of the server is found");
            }
        }
    }

    /// No session could be opened. What was remembered may be over even if nothing shows it: a server that was upgraded
    /// may leave the old transport's GET without an answer.
    pub fn has_failed(&self) {
        if let Self::Http(http) = self
            && let Some(found) = &mut *http.found()
        {
            found.is_doubtful = true;
        }
    }

    /// The connection of a session that another process opened over Streamable HTTP.
    ///
    /// # Errors
    /// When the server speaks otherwise, or the backend should have a token and has none.
    pub async fn adopt(
        &self,
        session_id: Option<HeaderValue>,
        revision: &str,
        credentials: Option<HeaderValue>,
    ) -> Result<Connection, UpstreamError> {
        let Self::Http(http) = self else {
            return Err(UpstreamError::SessionGone);
        };
        let adopting = http.streamable.adopt(session_id, revision, credentials);
        let session = adopting.await?;
        Ok(Connection::Http(Arc::new(session)))
    }

    /// A connection for one session, on which nothing was said yet.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn connect(
        &self,
        transport: Transport,
        credentials: Option<HeaderValue>,
    ) -> Result<Connection, UpstreamError> {
        let channel = match self {
            Self::Http(http) if transport == Transport::StreamableHttp => {
                return http
                    .streamable
                    .connect(credentials)
                    .await
                    .map(|session| Connection::Http(Arc::new(session)));
            }
            Self::Http(http) => http.sse.connect(credentials).await,
            Self::WebSocket(server) => server.connect(credentials).await,
            Self::Stdio(server) => server.connect().await,
        };
        channel.map(Connection::Channel)
    }
}
