//! A call that is to be made, and how a leg of it is answered.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::value::RawValue;

use super::{LegEvent, LegStream};
use crate::cache::results::Place;
use crate::cache::tools::{Listing, Unchecked};
use crate::call::{Leg, Reply, unreached};
use crate::session::Caller;
use crate::translate::request;
use crate::wire::jsonrpc::UpstreamId;
use crate::wire::modern::Method;
use crate::wire::object::RawObject;

/// A request as it goes to a server.
#[derive(Debug, Clone)]
pub struct UpstreamRequest {
    /// Its id.
    pub id: UpstreamId,
    /// The whole message.
    pub body: Bytes,
    /// Headers of the client that go with it.
    pub headers: HeaderMap,
}

impl UpstreamRequest {
    /// The legacy twin of a modern request, under `id`.
    #[must_use]
    pub fn of(
        id: UpstreamId,
        method: Method,
        (params, meta): (&RawObject<'_>, &RawObject<'_>),
        headers: HeaderMap,
    ) -> Self {
        Self {
            id,
            body: request::to_legacy(id, method, params, meta).into(),
            headers,
        }
    }
}

/// What a request is made of that may have to go up once more, under another id.
#[derive(Clone, Debug)]
pub struct Again {
    /// The client's raw `params`.
    pub params: Bytes,
    /// Headers of the client that go with it.
    pub headers: HeaderMap,
    /// What of it has to be checked before it goes up.
    pub unchecked: Option<Box<Unchecked>>,
}

impl Again {
    pub(super) fn request(&self, id: UpstreamId, method: Method) -> UpstreamRequest {
        let params = RawObject::parse(&self.params).unwrap_or_default();
        let meta = params
            .member("_meta")
            .and_then(|raw| RawObject::of(raw).ok())
            .unwrap_or_default();
        UpstreamRequest::of(id, method, (&params, &meta), self.headers.clone())
    }
}

/// A call that is to be made.
#[derive(Debug)]
pub struct Order {
    /// What is asked for.
    pub method: Method,
    /// By whom.
    pub caller: Arc<Caller>,
    /// As it goes to the server.
    pub request: UpstreamRequest,
    /// The first leg.
    pub leg: Leg,
    /// The client's raw `params`, to which a state is bound.
    pub params: Bytes,
    /// What of it has to be checked before it goes up.
    pub unchecked: Option<Box<Unchecked>>,
    /// It asks for the list of tools from its beginning.
    pub listing: Option<Listing>,
    /// Where its result is to be remembered.
    pub place: Option<Place>,
    /// Answers that it brings along, as a raw `inputResponses` object.
    pub responses: Option<Box<RawValue>>,
}

/// How a leg is answered.
#[derive(Debug)]
pub enum Answer {
    /// The reply is the first thing to say.
    Reply(Reply),
    /// A notification comes first.
    Stream {
        /// It.
        first: Bytes,
        /// What follows.
        rest: LegStream,
    },
}

impl Answer {
    /// Waits for the first thing that a leg hears; nothing when its call ended without hearing of the leg.
    pub async fn of(mut leg: LegStream) -> Option<Self> {
        Some(match leg.next().await? {
            LegEvent::Note(first) => Self::Stream { first, rest: leg },
            LegEvent::Reply(reply) => Self::Reply(reply),
        })
    }
}

/// The refusal of one more repeat of a re-issue than may wait for its call.
pub(super) fn crowded() -> Reply {
    unreached("too many repeats of this request wait already")
}
