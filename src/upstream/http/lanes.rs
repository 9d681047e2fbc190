//! Several HTTP/2 connections to one server, so that calls which wait do not block those that would end them.
//!
//! The client of `hyper-util` puts all HTTP/2 streams to a server on one connection, and a server bounds how many of
//! them may be open. Held calls keep theirs for as long as a person thinks: at the bound, not even their answers
//! could go up. So each lane is a client with a connection of its own, and carries a counted part of what the server
//! allows; and what is answered at once has a lane to itself, where nothing waits for a person. Over HTTP/1.1 a lane is
//! a pool of connections like any other.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error, ResponseFuture};

use super::Outbound;
use super::connector::Connector;

/// The lanes of one thread to one server.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Streams that are open on a lane at once.
    streams_max: usize,
    lanes: RefCell<Vec<Lane>>,
    /// For one-way messages.
    brief: Client<Connector, Outbound>,
}

/// One client. Lanes are never taken down: there are as many as were needed at once, and idle ones have no connection.
#[derive(Debug)]
struct Lane {
    client: Client<Connector, Outbound>,
    streams: Arc<AtomicUsize>,
}

/// Room for one stream on a lane, given back when it is dropped.
#[derive(Debug)]
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lane {
    /// Room for one more stream, if there is any. Its thread alone takes some, so nothing changes between look and count.
    fn slot(&self, streams_max: usize) -> Option<Slot> {
        if self.streams.load(Ordering::Relaxed) >= streams_max {
            return None;
        }
        self.streams.fetch_add(1, Ordering::Relaxed);
        Some(Slot(Arc::clone(&self.streams)))
    }
}

impl Lanes {
    pub(super) fn new(streams_max: usize, brief: Client<Connector, Outbound>) -> Self {
        Self {
            streams_max,
            lanes: RefCell::default(),
            brief,
        }
    }

    /// Sends what is answered at once.
    pub(super) fn message(&self, request: Request<Outbound>) -> Responding {
        Responding::on_its_own(self.brief.request(request))
    }

    /// Sends a request on the first lane with room, or on a new one.
    pub(super) fn request(
        &self,
        request: Request<Outbound>,
        client: impl FnOnce() -> Client<Connector, Outbound>,
    ) -> Responding {
        let mut lanes = self.lanes.borrow_mut();
        for lane in lanes.iter() {
            if let Some(slot) = lane.slot(self.streams_max) {
                return Responding {
                    response: lane.client.request(request),
                    slot: Some(slot),
                };
            }
        }
        let client = client();
        let response = client.request(request);
        let streams = Arc::new(AtomicUsize::new(1));
        let slot = Some(Slot(Arc::clone(&streams)));
        lanes.push(Lane { client, streams });
        Responding { response, slot }
    }
}

/// A response that is yet to come.
#[derive(Debug)]
#[must_use = "a request that is not waited for is not sent"]
pub(in crate::upstream) struct Responding {
    response: ResponseFuture,
    slot: Option<Slot>,
}

impl Responding {
    /// One that needs no slot: over HTTP/1.1 each has a connection for itself, and one-way messages keep no stream.
    pub(super) fn on_its_own(response: ResponseFuture) -> Self {
        Self {
            response,
            slot: None,
        }
    }
}

impl Future for Responding {
    type Output = Result<Response<Inbound>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.response).poll(context);
        polled.map_ok(|response| {
            let _slot = self.slot.take();
            response.map(|body| Inbound { body, _slot })
        })
    }
}

/// A response body, which keeps its slot on the lane until it is dropped.
#[derive(Debug)]
pub(in crate::upstream) struct Inbound {
    body: Incoming,
    _slot: Option<Slot>,
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
