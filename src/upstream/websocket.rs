//! WebSocket: one JSON-RPC message a text frame, subprotocol `mcp`.
//!
//! A custom transport in the spec's words; this is what the Python SDK speaks. Reading and writing go on side by side:
//! a server that does not read while it writes must not bring both sides to a stand. A connection on which nothing
//! comes, not even the answer to a ping, is over. At `wss://` it runs within TLS, as the backend has it.
//! Spec: 2025-11-25 basic/transports, "Custom Transports"; RFC 6455.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderValue, Uri};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{Connector, client_async_tls_with_config};
use tokio_util::task::TaskTracker;

use super::access::Access;
use super::channel::Channel;
use super::error::{TooSlow, UpstreamError};
use super::http::{Standing, TransportLimits};
use super::tls::Tls;

mod carry;

use carry::{Bounds, carry};

/// The subprotocol that is asked for.
const SUBPROTOCOL: HeaderValue = HeaderValue::from_static("mcp");

/// The one protocol that carries the handshake, by its name in ALPN: a server that speaks HTTP/2 too has to choose.
const HTTP1: &[u8] = b"http/1.1";

/// What may wait to be written besides the largest message: other small ones, and the answers to pings. A server that
/// sends pings and takes nothing gets no more answers than this.
const WRITE_BUFFER_SPARE: usize = 512 << 10;

/// What a connection runs on: one that takes nothing of what is written for too long is broken.
type Patient<S> = Pin<Box<TimeoutStream<S>>>;

/// One server over WebSocket.
#[derive(Debug)]
pub struct WebSocket {
    uri: Uri,
    limits: TransportLimits,
    access: Arc<Access>,
    tls: Option<Tls>,
    tasks: TaskTracker,
}

impl WebSocket {
    /// A client of the server at `uri`. Connections are carried on `tasks`.
    #[must_use]
    pub fn new(uri: Uri, limits: TransportLimits, access: Arc<Access>, tasks: TaskTracker) -> Self {
        Self {
            uri,
            limits,
            tls: access.tls.as_ref().map(|tls| tls.offering(&[HTTP1])),
            access,
            tasks,
        }
    }

    /// Opens a connection for one session.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub(super) async fn connect(
        &self,
        credentials: Option<HeaderValue>,
    ) -> Result<Channel, UpstreamError> {
        let request = self.uri.clone().into_client_request();
        let mut request = request.map_err(|error| UpstreamError::Connect(error.into()))?;
        let headers = request.headers_mut();
        headers.insert(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
        for (name, value) in &self.access.headers {
            headers.insert(name, value.clone());
        }
        let credentials = self.access.credentials(credentials).await?;
        let standing = Standing {
            has_session: false,
            is_open: false,
            has_own: credentials.is_own,
        };
        if let Some(credentials) = credentials.value {
            headers.insert(AUTHORIZATION, credentials);
        }
        let bytes_max = self.limits.message_bytes_max;
        let config = bounded(bytes_max, self.limits.body_bytes_max);
        // The plain connector refuses wss://, should the backend have no TLS for it.
        let connector = match &self.tls {
            Some(tls) => Connector::Rustls(tls.config()),
            None => Connector::Plain,
        };
        let connecting = async {
            let tcp = patient(dial(&self.uri).await?, self.limits.ping_interval);
            client_async_tls_with_config(request, tcp, Some(config), Some(connector)).await
        };
        let within = self.limits.connect_timeout;
        let connected = timeout(within, Box::pin(connecting)).await;
        let (stream, _) = connected
            .map_err(|_| UpstreamError::Connect(TooSlow(within).into()))?
            .map_err(|error| refused(error, standing))?;
        let (channel, carriage, parcels) = Channel::queued(self.limits.send_timeout);
        let bounds = Bounds {
            ping_interval: self.limits.ping_interval,
            message_bytes_max: bytes_max,
        };
        self.tasks.spawn(carry(stream, parcels, carriage, bounds));
        Ok(channel)
    }
}

/// What may be read and be waiting to be written.
fn bounded(message_bytes_max: usize, body_bytes_max: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(message_bytes_max))
        .max_frame_size(Some(message_bytes_max))
        .max_write_buffer_size(body_bytes_max + WRITE_BUFFER_SPARE)
}

/// A connection to where `uri` says, without TLS.
async fn dial(uri: &Uri) -> io::Result<TcpStream> {
    let default = if uri.scheme_str() == Some("wss") {
        443
    } else {
        80
    };
    let host = uri.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(default))).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The same stream, on which writing fails when the server takes nothing for as long as it may be silent: pings that
/// cannot be written tell nothing.
fn patient<S: AsyncRead + AsyncWrite>(stream: S, ping_interval: Duration) -> Patient<S> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(2 * ping_interval));
    Box::pin(stream)
}

/// Why there is no connection.
fn refused(error: Error, standing: Standing) -> UpstreamError {
    match error {
        Error::Http(response) => {
            let status = response.status();
            let refusal = standing.refusal(status, response.headers());
            // A success that is not 101 is none.
            refusal.unwrap_or(UpstreamError::Status(status.as_u16()))
        }
        Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(error)) => {
            UpstreamError::Subprotocol(error.into())
        }
        other => UpstreamError::Connect(other.into()),
    }
}
