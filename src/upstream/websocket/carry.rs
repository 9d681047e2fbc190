//! Carrying the messages of one session over its WebSocket, and letting go of it.
//!
//! Whichever way it ends, whoever waits is told first. Then the server gets its close frame: 1000 at the end of the
//! session, 1009 after a message that was too large, 1003 after one that is no text, 1007 and 1002 after one that
//! breaks the protocol; one that closed before gets its own frame back.
//! Spec: RFC 6455 sections 5.5 and 7.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::upstream::channel::{Carriage, Hub, Parcel};
use crate::upstream::error::{ChannelEnd, UpstreamError};

/// How long the server may take to close in its turn. Arbitrary: a few round trips, on any network.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// The bounds of a connection; see [`super::TransportLimits`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) ping_interval: Duration,
    pub(super) message_bytes_max: usize,
}

/// What becomes of the connection when nothing is carried any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    /// There is nobody to tell.
    Drop,
    /// The server closed it: the library sends its frame back.
    Answer,
    /// The server is told why.
    Close(CloseCode),
}

/// Carries messages until either side ends the connection.
pub(super) async fn carry<S>(
    socket: WebSocketStream<S>,
    parcels: mpsc::Receiver<Parcel>,
    Carriage { hub, end }: Carriage,
    bounds: Bounds,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut stream) = socket.split();
    let pulse = Pulse::default();
    let farewell = {
        // Dropped after the end is known: senders whose messages did not go look there for the reason.
        let mut writing = std::pin::pin!(write(&mut sink, parcels, &pulse, bounds.ping_interval));
        let (ended, farewell) = tokio::select! {
            over = read(&mut stream, &hub, &pulse, bounds.message_bytes_max) => over,
            ended = writing.as_mut() => (ended, Farewell::Drop),
            () = end.wanted.cancelled() => (ChannelEnd::Stopped, Farewell::Close(CloseCode::Normal)),
        };
        hub.over(ended);
        farewell
    };
    if farewell != Farewell::Drop
        && let Ok(socket) = sink.reunite(stream)
    {
        // One that does not close in its turn is cut off.
        let _ = timeout(CLOSE_WAIT, part(socket, farewell)).await;
    }
    end.done.cancel();
}

/// Closes the connection as the protocol wants it. Cancelled, it leaves a connection that is dropped next.
async fn part<S>(mut socket: WebSocketStream<S>, farewell: Farewell)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if let Farewell::Close(code) = farewell {
        let reason = Utf8Bytes::default();
        if socket
            .close(Some(CloseFrame { code, reason }))
            .await
            .is_err()
        {
            return;
        }
    }
    while let Some(Ok(_)) = socket.next().await {}
    // After an error the library reads no more. But a connection that is dropped with something unread in it is reset,
    // and the frame may be lost with it.
    let _ = tokio::io::copy(socket.get_mut(), &mut tokio::io::sink()).await;
}

/// Reads messages up to the end; how it ended, and what the server is told of it. Cancelled, it may lose a message: then
/// the channel is over.
async fn read<S>(
    stream: &mut SplitStream<WebSocketStream<S>>,
    hub: &Hub,
    pulse: &Pulse,
    bytes_max: usize,
) -> (ChannelEnd, Farewell)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let message = stream.next().await;
        pulse.set(Pulse::HEARD);
        match message {
            Some(Ok(Message::Text(text))) => {
                pulse.set(Pulse::BUSY);
                hub.arrived(Bytes::from(text)).await;
                pulse.set(Pulse::HEARD);
            }
            Some(Ok(Message::Binary(_))) => {
                let what = "it sent a binary frame";
                let farewell = Farewell::Close(CloseCode::Unsupported);
                return (ChannelEnd::Broken(what.into()), farewell);
            }
            // Pings are answered by the library.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
            Some(Ok(Message::Close(frame))) => {
                let reason = frame.map(|frame| format!("{frame}").into());
                return (ChannelEnd::Closed(reason), Farewell::Answer);
            }
            Some(Err(error)) => return broken(error, bytes_max),
            None => return (ChannelEnd::Closed(None), Farewell::Drop),
        }
    }
}

/// What an error of reading means.
fn broken(error: Error, bytes_max: usize) -> (ChannelEnd, Farewell) {
    let farewell = match &error {
        Error::Capacity(_) => {
            let ended = ChannelEnd::TooLarge { bytes_max };
            return (ended, Farewell::Close(CloseCode::Size));
        }
        Error::Utf8(_) => Farewell::Close(CloseCode::Invalid),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Farewell::Drop,
        Error::Protocol(_) => Farewell::Close(CloseCode::Protocol),
        _ => Farewell::Drop,
    };
    (ChannelEnd::Broken(error.into()), farewell)
}

/// Writes messages, and pings between them, until that is not possible or the server is found to be gone. Cancelled, it
/// may leave a message unsent, whose sender is told how the channel ended.
async fn write<S>(
    sink: &mut SplitSink<WebSocketStream<S>, Message>,
    mut parcels: mpsc::Receiver<Parcel>,
    pulse: &Pulse,
    ping_interval: Duration,
) -> ChannelEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut pings = interval_at(Instant::now() + ping_interval, ping_interval);
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
                if !pulse.beats() {
                    return ChannelEnd::Broken("it does not answer pings".into());
                }
                let sent = sink.send(Message::Ping(Bytes::new())).await;
                // It has the whole of an interval to answer, however long the ping took to go.
                pings.reset();
                sent
            }
        };
        if let Err(error) = sent {
            return ChannelEnd::Broken(error.into());
        }
    }
}

/// Whether the server was heard since the last ping.
#[derive(Debug)]
struct Pulse(AtomicU8);

impl Default for Pulse {
    fn default() -> Self {
        Self(AtomicU8::new(Self::HEARD))
    }
}

impl Pulse {
    const SILENT: u8 = 0;
    const HEARD: u8 = 1;
    /// What it said is being taken by whom it concerns. Until then nothing more is heard, and that is not its fault.
    const BUSY: u8 = 2;

    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }

    /// Whether it is alive as far as is known. From now on it has to be heard anew.
    fn beats(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        let heard = self
            .0
            .compare_exchange(Self::HEARD, Self::SILENT, relaxed, relaxed);
        heard != Err(Self::SILENT)
    }
}

#[cfg(test)]
mod tests;
