//! Request bodies that know whether they left.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

/// Whether a request went on its way, decided once by whoever comes first: the connection that takes its body,
/// or the caller that gives it up.
#[derive(Debug, Default)]
pub(super) struct Departure(AtomicU8);

impl Departure {
    const AT_HOME: u8 = 0;
    pub(super) const GONE: u8 = 1;
    pub(super) const GIVEN_UP: u8 = 2;

    /// Settles it as `outcome` unless it is settled otherwise; what it is then.
    pub(super) fn settle(&self, outcome: u8) -> u8 {
        self.0
            .compare_exchange(Self::AT_HOME, outcome, Ordering::AcqRel, Ordering::Acquire)
            .map_or_else(|settled| settled, |_| outcome)
    }

    pub(super) fn has_gone(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::GONE
    }
}

/// The request was given up before its body left: a server that gets less than a whole body runs nothing.
#[derive(Debug, thiserror::Error)]
#[error("the request was given up before it was sent")]
pub(super) struct GivenUp;

/// A request body that leaves only if the request was not given up before.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) body: Full<Bytes>,
    pub(super) departure: Arc<Departure>,
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = GivenUp;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GivenUp>>> {
        if self.departure.settle(Departure::GONE) == Departure::GIVEN_UP {
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
