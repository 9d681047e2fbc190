//! Request bodies that know whether they left.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use crate::upstream::departure::Departure;

/// The request was given up before its body left: a server that gets less than a whole body runs nothing.
#[derive(Debug, thiserror::Error)]
#[error("the request was given up before it was sent")]
pub(in crate::upstream) struct GivenUp;

/// A request body that leaves only if the request was not given up before.
#[derive(Debug)]
pub(in crate::upstream) struct Outbound {
    pub(in crate::upstream) body: Full<Bytes>,
    pub(in crate::upstream) departure: Arc<Departure>,
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = GivenUp;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GivenUp>>> {
        if !self.departure.go() {
            return Poll::Ready(Some(Err(GivenUp)));
        }
        Pin::new(&mut self.body)
            .poll_frame(context)
            .map_err(|never| match never {})
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
