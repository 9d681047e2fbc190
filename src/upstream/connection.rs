//! What a session has of its server, whatever the transport: requests with their exchanges, one-way messages, the
//! general stream, the end.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio_util::sync::CancellationToken;

use super::UpstreamError;
use super::channel::{self, Channel, Claim};
use super::http::EventStream;
use super::streamable_http::{self, StreamableSession};
use crate::wire::jsonrpc::UpstreamId;
use crate::wire::sse::{Between, Event};

/// What a session has of its server.
#[derive(Debug)]
pub enum Connection {
    /// Over Streamable HTTP each request has a stream of its own.
    Http(Arc<StreamableSession>),
    /// Over every other transport all messages share one channel.
    Channel(Channel),
}

impl Connection {
    /// Sends a request with these headers besides its own; the exchange yields what comes back.
    #[must_use]
    pub fn request(
        &self,
        id: UpstreamId,
        body: Bytes,
        headers: HeaderMap,
        claim: Claim,
    ) -> Exchange {
        match self {
            Self::Http(session) => Exchange::Http(session.request(body, headers)),
            Self::Channel(channel) => Exchange::Channel(channel.request(id, body, claim)),
        }
    }

    /// Sends a one-way message: a notification or a response. Done when it went up, over HTTP when the server
    /// accepted it.
    ///
    /// # Errors
    /// When it was not accepted; whether the server acted on it, [`UpstreamError::may_have_run`] says.
    pub async fn send(&self, message: Bytes) -> Result<(), UpstreamError> {
        match self {
            Self::Http(session) => session.send(message).await,
            Self::Channel(channel) => channel.send(message).await,
        }
    }

    /// Opens the general stream, anew each time; `None` when the server offers none.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub async fn general_stream(&self) -> Result<Option<GeneralStream>, UpstreamError> {
        match self {
            Self::Http(session) => {
                let stream = session.open_stream(None).await?;
                Ok(stream.map(|stream| GeneralStream::Http(Box::new(stream))))
            }
            Self::Channel(channel) => channel.general().map(GeneralStream::Channel).map(Some),
        }
    }

    /// From now on it speaks with these credentials, where the transport has any: a refreshed token reaches the server.
    pub fn renew(&self, credentials: Option<&HeaderValue>) {
        match self {
            Self::Http(session) => session.renew(credentials),
            Self::Channel(channel) => channel.renew(credentials),
        }
    }

    /// Takes the session in that the server opened with the exchange of `initialize`.
    pub fn opened_by(&self, exchange: &Exchange) {
        if let (Self::Http(session), Exchange::Http(exchange)) = (self, exchange) {
            session.opened_by(exchange);
        }
    }

    /// Takes in which revision the server picked.
    pub fn speaks(&self, revision: &str) {
        match self {
            Self::Http(session) => session.speaks(revision),
            Self::Channel(channel) => channel.speaks(revision),
        }
    }

    /// Reads the stream again that answers a request which went up before, from after this event; nothing where that
    /// cannot be.
    #[must_use]
    pub fn resume(&self, after: &str) -> Option<Exchange> {
        match self {
            Self::Http(session) => Some(Exchange::Http(session.resume(after))),
            Self::Channel(_) => None,
        }
    }

    /// The session as the server knows it, where the transport has names for sessions and the server gave one.
    #[must_use]
    pub fn session_id(&self) -> Option<HeaderValue> {
        match self {
            Self::Http(session) => session.session_id(),
            Self::Channel(_) => None,
        }
    }

    /// Whether it is known to be over: the server reads nothing from it any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self {
            Self::Http(_) => false,
            Self::Channel(channel) => channel.is_over(),
        }
    }

    /// Why nothing comes on it any more, where it is over or the server has forgotten the session.
    #[must_use]
    pub fn why_over(&self) -> UpstreamError {
        match self {
            Self::Http(_) => UpstreamError::SessionGone,
            Self::Channel(channel) => channel.why_over(),
        }
    }

    /// Whether messages share one channel, where nothing but an id ties them to a request.
    #[must_use]
    pub fn is_channel(&self) -> bool {
        matches!(self, Self::Channel(_))
    }

    /// What ends it soon after this is cancelled, whoever has it and whatever waits to be sent; nothing where there is
    /// nothing to end but the server's own memory.
    pub fn ends_with(
        &self,
        closing: &CancellationToken,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        match self {
            Self::Http(_) => None,
            Self::Channel(channel) => Some(channel.ends_with(closing.clone())),
        }
    }

    /// Ends it, and with it the session. Done when the server knows, or its process is gone.
    ///
    /// # Errors
    /// When the server could not be told.
    pub async fn close(&self) -> Result<(), UpstreamError> {
        match self {
            Self::Http(session) => session.close().await,
            Self::Channel(channel) => {
                channel.close().await;
                Ok(())
            }
        }
    }
}

/// What comes back for one request.
#[derive(Debug)]
pub enum Exchange {
    /// On its own response.
    Http(streamable_http::Exchange),
    /// On the session's channel.
    Channel(channel::Exchange),
}

impl Exchange {
    /// The next message, raw; nothing after the last. The caller knows by the message whether it is the last:
    /// a stream that ends without a response yields nothing too.
    ///
    /// Cancel-safe: what was read so far is kept.
    ///
    /// # Errors
    /// When the answer will not come.
    pub async fn next_message(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        match self {
            Self::Http(exchange) => exchange.next_message().await,
            Self::Channel(exchange) => exchange.next_message().await,
        }
    }

    /// Whether the request went on its way: from then on the server may have it.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        match self {
            Self::Http(exchange) => exchange.was_sent(),
            Self::Channel(exchange) => exchange.was_sent(),
        }
    }

    /// Whether the server has begun to answer, where the answer has a stream of its own; with an event id if it gives any.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        match self {
            Self::Http(exchange) => exchange.has_begun(),
            Self::Channel(_) => true,
        }
    }

    /// Where the message that was yielded last stands on its stream.
    #[must_use]
    pub fn heard_between(&self) -> Between {
        match self {
            Self::Http(exchange) => exchange.heard_between(),
            Self::Channel(_) => Between::default(),
        }
    }

    /// Waits until the stream that is read again is open. Cancel-safe.
    ///
    /// # Errors
    /// When the server does not resume it.
    pub async fn resumed(&mut self) -> Result<(), UpstreamError> {
        match self {
            Self::Http(exchange) => exchange.resumed().await,
            Self::Channel(_) => Ok(()),
        }
    }

    /// Gives the request up if it has not gone; whether it had. What has not gone by now never will.
    #[must_use]
    pub fn give_up(&self) -> bool {
        match self {
            Self::Http(exchange) => exchange.give_up(),
            Self::Channel(exchange) => exchange.give_up(),
        }
    }

    /// Whether what it yields came with a status that says that the server has a bad moment: a later request may go well.
    #[must_use]
    pub fn has_bad_moment(&self) -> bool {
        match self {
            Self::Http(exchange) => exchange.has_bad_moment(),
            Self::Channel(_) => false,
        }
    }

    /// The server has shown on another way that it is at work: when it begins its answer is its own affair.
    pub fn heard_of_server(&mut self) {
        if let Self::Http(exchange) = self {
            exchange.heard_of_server();
        }
    }

    /// Waits until a later message cannot overtake the request: over HTTP until the server has begun to answer, else
    /// until it went up. Cancel-safe.
    ///
    /// # Errors
    /// When the answer will not come.
    pub async fn answered(&mut self) -> Result<(), UpstreamError> {
        match self {
            Self::Http(exchange) => exchange.answered().await,
            Self::Channel(exchange) => exchange.departed().await,
        }
    }
}

/// What a server sends that belongs to no request.
#[derive(Debug)]
pub enum GeneralStream {
    /// On a stream of its own.
    Http(Box<EventStream>),
    /// On the session's channel.
    Channel(channel::General),
}

impl GeneralStream {
    /// The next event; nothing at the end of the stream. Cancel-safe.
    ///
    /// # Errors
    /// When the connection broke or an event is too large.
    pub async fn next_event(&mut self) -> Result<Option<Event>, UpstreamError> {
        match self {
            Self::Http(stream) => stream.next_event().await,
            Self::Channel(general) => Ok(general.next().await.map(|data| Event {
                data,
                id: None,
                name: None,
                retry_ms: None,
            })),
        }
    }
}
