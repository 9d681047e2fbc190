//! Bodies: reading a client's within its bound, writing ours without copying large payloads.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout_at;

/// Payloads up to this size are copied behind their envelope and go out in one write; larger ones go out as they
/// are. One memory page: copying it costs less than a second frame.
const COPY_BYTES_MAX: usize = 4096;

/// A response body.
pub(super) enum ResponseBody {
    /// Known pieces, sent in order.
    Pieces([Bytes; 3]),
    /// An event stream.
    Events(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// What another replica answers, passed on as it comes. When it breaks off, so does the response.
    Forwarded(Incoming),
}

impl ResponseBody {
    pub(super) fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    pub(super) fn whole(bytes: Bytes) -> Self {
        Self::Pieces([bytes, Bytes::new(), Bytes::new()])
    }

    /// `head`, `payload` and `tail` in one body.
    pub(super) fn spliced(mut head: Vec<u8>, payload: Bytes, tail: &'static [u8]) -> Self {
        if payload.len() <= COPY_BYTES_MAX {
            head.reserve(payload.len() + tail.len());
            head.extend_from_slice(&payload);
            head.extend_from_slice(tail);
            return Self::whole(head.into());
        }
        Self::Pieces([head.into(), payload, Bytes::from_static(tail)])
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Pieces(pieces) => {
                let next = pieces
                    .iter_mut()
                    .find(|piece| !piece.is_empty())
                    .map(std::mem::take);
                Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
            }
            Self::Events(events) => events
                .as_mut()
                .poll_next(context)
                .map(|next| next.map(|bytes| Ok(Frame::data(bytes)))),
            Self::Forwarded(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pieces(pieces) => pieces.iter().all(Bytes::is_empty),
            Self::Events(_) => false,
            Self::Forwarded(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pieces(pieces) => {
                SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum())
            }
            Self::Events(_) => SizeHint::default(),
            Self::Forwarded(body) => body.size_hint(),
        }
    }
}

/// Why a body was not read.
pub(super) enum Unread {
    TooLarge,
    TooSlow,
    Broken,
}

/// Reads a whole body of at most `bytes_max` bytes within `time`.
pub(super) async fn read(
    mut body: Incoming,
    bytes_max: usize,
    time: Duration,
) -> Result<Bytes, Unread> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(Unread::TooLarge);
    }
    let deadline = tokio::time::Instant::now() + time;
    let first = match timeout_at(deadline, frame(&mut body)).await {
        Ok(first) => first?.unwrap_or_default(),
        Err(_) => return Err(Unread::TooSlow),
    };
    if first.len() > bytes_max {
        return Err(Unread::TooLarge);
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut whole = BytesMut::from(&first[..]);
    let rest = async {
        while let Some(data) = frame(&mut body).await? {
            if whole.len() + data.len() > bytes_max {
                return Err(Unread::TooLarge);
            }
            whole.extend_from_slice(&data);
        }
        Ok(())
    };
    match timeout_at(deadline, rest).await {
        Ok(read) => read.map(|()| whole.freeze()),
        Err(_) => Err(Unread::TooSlow),
    }
}

async fn frame(body: &mut Incoming) -> Result<Option<Bytes>, Unread> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}
