//! WebSocket: one JSON-RPC message a text frame, subprotocol `mcp`.
//!
//! A custom transport in the spec's words; this is what the Python SDK speaks. Reading and writing go on side by side:
//! a server that does not read while it writes must not bring both sides to a stand. A connection on which nothing
//! comes, not even the answer to a ping, is over. At `wss://` it runs within TLS, as the backend has it.
//! Spec: 2025-11-25 basic/transports, "Custom Transports"; RFC 6455.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderValue, Uri};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{interval_at, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, client_async_tls_with_config};
use tokio_util::task::TaskTracker;

use super::access::Access;
use super::channel::{Carriage, Channel, Hub, Parcel};
use super::error::{ChannelEnd, TooSlow, UpstreamError};
use super::http::{Standing, TransportLimits};
use super::tls::Tls;

/// The subprotocol that is asked for.
const SUBPROTOCOL: HeaderValue = HeaderValue::from_static("mcp");

/// The one protocol that carries the handshake, by its name in ALPN: a server that speaks HTTP/2 too has to choose.
const HTTP1: &[u8] = b"http/1.1";

/// How often the server is pinged; silent until the next ping, it is gone. Below what middleboxes bear of silence, and
/// as often as servers themselves ping (uvicorn: 20 s).
const PING_EVERY: Duration = Duration::from_secs(20);

/// How long the server may take to close in its turn.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

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
        let config = WebSocketConfig::default()
            .max_message_size(Some(bytes_max))
            .max_frame_size(Some(bytes_max));
        // The plain connector refuses wss://, should the backend have no TLS for it.
        let connector = match &self.tls {
            Some(tls) => Connector::Rustls(tls.config()),
            None => Connector::Plain,
        };
        let connecting = async {
            let tcp = dial(&self.uri).await?;
            client_async_tls_with_config(request, tcp, Some(config), Some(connector)).await
        };
        let within = self.limits.connect_timeout;
        let connected = timeout(within, Box::pin(connecting)).await;
        let (stream, _) = connected
            .map_err(|_| UpstreamError::Connect(TooSlow(within).into()))?
            .map_err(|error| refused(error, standing))?;
        let (channel, carriage, parcels) = Channel::queued(self.limits.send_timeout);
        self.tasks
            .spawn(carry(stream, parcels, carriage, bytes_max));
        Ok(channel)
    }
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

/// Why there is no connection.
fn refused(error: Error, standing: Standing) -> UpstreamError {
    match error {
        Error::Http(response) => {
            let status = response.status();
            let refusal = standing.refusal(status, response.headers());
            // A success that is not 101 is none.
            refusal.unwrap_or(UpstreamError::Status(status.as_u16()))
        }
        other => UpstreamError::Connect(other.into()),
    }
}

/// Carries messages until either side ends the connection.
async fn carry(
    stream: Stream,
    parcels: mpsc::Receiver<Parcel>,
    Carriage { hub, end }: Carriage,
    bytes_max: usize,
) {
    let (mut sink, mut stream) = stream.split();
    let is_alive = AtomicBool::new(true);
    let code = {
        // Dropped after the end is known: senders whose messages did not go look there for the reason.
        let mut writing = std::pin::pin!(write(&mut sink, parcels, &is_alive));
        let (ended, code) = tokio::select! {
            ended = read(&mut stream, &hub, &is_alive, bytes_max) => ended,
            ended = writing.as_mut() => (ended, None),
            () = end.wanted.cancelled() => (ChannelEnd::Stopped, Some(CloseCode::Normal)),
        };
        hub.over(ended);
        code
    };
    if let Some(code) = code {
        let closing = async {
            let frame = CloseFrame {
                code,
                reason: Utf8Bytes::default(),
            };
            if sink.send(Message::Close(Some(frame))).await.is_ok() {
                while let Some(Ok(_)) = stream.next().await {}
            }
        };
        // One that does not close in its turn is cut off.
        let _ = timeout(CLOSE_WAIT, closing).await;
    }
    end.done.cancel();
}

/// Reads messages up to the end; how it ended, and what the server is told of it.
async fn read(
    stream: &mut SplitStream<Stream>,
    hub: &Hub,
    is_alive: &AtomicBool,
    bytes_max: usize,
) -> (ChannelEnd, Option<CloseCode>) {
    loop {
        let message = stream.next().await;
        is_alive.store(true, Ordering::Relaxed);
        match message {
            Some(Ok(Message::Text(text))) => hub.arrived(Bytes::from(text)).await,
            Some(Ok(Message::Binary(_))) => {
                let what = "it sent a binary frame";
                return (
                    ChannelEnd::Broken(what.into()),
                    Some(CloseCode::Unsupported),
                );
            }
            // Pings are answered by the library.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Close(frame))) => {
                let reason = frame.map(|frame| format!("{frame}").into());
                return (ChannelEnd::Closed(reason), None);
            }
            Some(Err(Error::Capacity(_))) => {
                return (ChannelEnd::TooLarge { bytes_max }, Some(CloseCode::Size));
            }
            Some(Err(error)) => return (ChannelEnd::Broken(error.into()), None),
            None => return (ChannelEnd::Closed(None), None),
        }
    }
}

/// Writes messages, and pings between them, until that is not possible or the server is found to be gone.
async fn write(
    sink: &mut SplitSink<Stream, Message>,
    mut parcels: mpsc::Receiver<Parcel>,
    is_alive: &AtomicBool,
) -> ChannelEnd {
    let mut pings = interval_at(tokio::time::Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let sent = tokio::select! {
            Some(parcel) = parcels.recv() => {
                let Some((message, done)) = parcel.go() else { continue };
                let Ok(text) = Utf8Bytes::try_from(message) else {
                    let error = UpstreamError::Request("the message is no text".into());
                    // Whoever sent it may have gone.
                    let _ = done.send(Err(error));
                    continue;
                };
                let sent = sink.send(Message::Text(text)).await;
                if sent.is_ok() {
                    let _ = done.send(Ok(()));
                }
                sent
            }
            _ = pings.tick() => {
                if !is_alive.swap(false, Ordering::Relaxed) {
                    return ChannelEnd::Broken("it does not answer pings".into());
                }
                sink.send(Message::Ping(Bytes::new())).await
            }
        };
        if let Err(error) = sent {
            return ChannelEnd::Broken(error.into());
        }
    }
}
