//! One modern client on a stream of lines: its requests run side by side, what each hears goes out line by line.
//!
//! There is no header layer and nobody else: the message is all there is to check, and its sender is the one caller
//! without credentials. A client cancels by saying so; from then on nothing is said of that request.
//! Spec: 2026-07-28 basic/transports/stdio, basic/patterns/cancellation.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use self::in_flight::{Entry, InFlight};
use self::outbox::{Gone, Last, Outbox};
use super::admission::{self, ClientMessage, Refusal};
use super::message::{self, Events};
use crate::hold::LegEvent;
use crate::hold::order::Answer;
use crate::route::{Admitted, Came, ClientHeaders, Gateway, Served};
use crate::translate::subscription;
use crate::wire::error;
use crate::wire::jsonrpc::ClientId;
use crate::wire::line::{Line, Lines};
use crate::wire::modern::CANCELLED;
use crate::wire::object::{self, RawObject};

mod in_flight;
mod outbox;

/// How much is read at once: what a pipe holds by default on Linux.
const READ_BYTES: usize = 64 << 10;

/// What serving a client on a stream needs besides the stream.
#[derive(Debug)]
pub struct StdioTerms {
    /// The longest line.
    pub body_bytes_max: usize,
    /// How long the client may take to read more.
    pub client_write_timeout: Duration,
    /// Where its requests run, and what writes to it.
    pub connections: TaskTracker,
    /// Cancelled when no more is read; what is being said is said to its end.
    pub stop: CancellationToken,
    /// Cancelled when even that has to end.
    pub cut: CancellationToken,
}

/// How a client went away.
#[derive(Debug)]
pub enum ClientGone {
    /// Its input ended.
    Input,
    /// It can be told nothing more.
    Output(io::Error),
}

/// Serves a client until it goes away. Its requests may still run then, and what is written may still be on its way;
/// both belong to `terms.connections`. Told to stop, it reads no more and waits to be dropped.
pub async fn serve_stdio<R, W>(
    gateway: Arc<Gateway>,
    terms: StdioTerms,
    input: R,
    output: W,
) -> ClientGone
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Send + 'static,
{
    let StdioTerms {
        body_bytes_max,
        client_write_timeout,
        connections,
        stop,
        cut,
    } = terms;
    let (outbox, lines) = outbox::outbox();
    let (broken, mut is_broken) = oneshot::channel();
    connections.spawn(async move {
        let written = tokio::select! {
            biased;
            () = cut.cancelled() => return,
            written = outbox::write(lines, output, client_write_timeout) => written,
        };
        if let Err(error) = written {
            // Nobody listens any more where the client's input ended first.
            let _ = broken.send(error);
        }
    });
    let front = Arc::new(StdioFront {
        gateway,
        in_flight: Arc::default(),
        outbox,
        requests: connections,
    });
    let gone = tokio::select! {
        biased;
        error = &mut is_broken => Some(error),
        () = stop.cancelled() => None,
        read = front.read(Lines::new(body_bytes_max), input) => match read {
            Ok(()) => return ClientGone::Input,
            Err(Gone) => Some(is_broken.await),
        },
    };
    // The writer ends when nobody has anything to say any more.
    drop(front);
    match gone {
        Some(error) => ClientGone::Output(error.unwrap_or_else(io::Error::other)),
        None => std::future::pending().await,
    }
}

/// What the requests of one client share.
#[derive(Debug)]
struct StdioFront {
    gateway: Arc<Gateway>,
    in_flight: Arc<InFlight>,
    outbox: Outbox,
    /// Where they run.
    requests: TaskTracker,
}

impl StdioFront {
    /// Takes line after line until the input ends.
    async fn read(
        self: &Arc<Self>,
        mut lines: Lines,
        mut input: impl AsyncRead + Unpin,
    ) -> Result<(), Gone> {
        let bytes_max = lines.bytes_max();
        loop {
            while let Some(line) = lines.next_line() {
                match line {
                    Line::Whole(line) => self.take(line).await?,
                    Line::TooLong => {
                        let why = format!("the message is larger than {bytes_max} bytes");
                        let refusal = Refusal::new(error::INVALID_REQUEST, why);
                        self.refuse(refusal).await?;
                    }
                }
            }
            let buffer = lines.buffer();
            buffer.reserve(READ_BYTES);
            match input.read_buf(buffer).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "the client's input cannot be read");
                    return Ok(());
                }
            }
        }
    }

    /// Takes a message in. What is refused at once waits here until the client reads, so that one who does not cannot
    /// make refusals pile up.
    async fn take(self: &Arc<Self>, line: Bytes) -> Result<(), Gone> {
        let refusal = match admission::read(&line) {
            Ok(ClientMessage::Request(request)) => match self.in_flight.enter(&request.id) {
                Ok(entry) => {
                    let answering = Arc::clone(self).answer(line.clone(), entry);
                    self.requests.spawn(answering);
                    return Ok(());
                }
                Err(refusal) => refusal,
            },
            Ok(ClientMessage::Notification { method, params }) => {
                if method == CANCELLED {
                    self.cancel(params);
                }
                return Ok(());
            }
            // Answered with an error, it could be taken for the answer to a request of the same id.
            Ok(ClientMessage::Response) => {
                tracing::debug!("a response is ignored: clients do not send any");
                return Ok(());
            }
            Err(refusal) => refusal,
        };
        self.refuse(refusal).await
    }

    /// Ends the request that a client does not want any more. What it does not name well, or too late, is ignored,
    /// as the spec wants.
    fn cancel(&self, params: Option<&RawValue>) {
        let params = params.and_then(|params| RawObject::of(params).ok());
        let params = params.unwrap_or_default();
        let is_known = params
            .member("requestId")
            .is_some_and(|id| self.in_flight.cancel(id));
        let reason = params.member("reason").and_then(object::string);
        tracing::debug!(
            is_known,
            reason = reason.as_deref(),
            "a request is cancelled"
        );
    }

    async fn refuse(&self, refusal: Refusal) -> Result<(), Gone> {
        self.outbox.put(self.refused(refusal)).await
    }

    fn refused(&self, refusal: Refusal) -> Vec<u8> {
        let refusal = refusal.noted(self.gateway.metrics());
        message::error_response(refusal.id.as_ref(), &refusal.error)
    }

    /// Answers a request, unless it is cancelled first: dropped, its leg counts as gone.
    async fn answer(self: Arc<Self>, line: Bytes, entry: Entry) {
        let cancelled = entry.cancelled();
        tokio::select! {
            biased;
            () = cancelled.cancelled() => {}
            // When the client is gone, so is its leg; the writer says why.
            Ok(()) | Err(Gone) = self.serve(&line, entry) => {}
        }
    }

    async fn serve(&self, line: &Bytes, entry: Entry) -> Result<(), Gone> {
        let admitted = match admitted(line) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                let last = Last::Response(self.refused(refusal));
                return self.outbox.put_last(last, entry).await;
            }
        };
        let id = admitted.id.clone();
        let span = admitted.span(ClientHeaders::NoLayer);
        let served = self
            .gateway
            .serve(admitted, ClientHeaders::NoLayer, line, Came::FromClient)
            .instrument(span.clone())
            .await;
        span.in_scope(|| tracing::debug!(with = served.name(), "answered"));
        let last = match served {
            Served::Leg(Answer::Reply(reply)) | Served::Refused(reply) => {
                Last::Response(message::response(&id, &reply))
            }
            Served::Leg(Answer::Stream { first, rest }) => {
                Last::Response(self.relay(&id, first, rest).await?)
            }
            // A process of one client's own has no replicas.
            Served::Elsewhere(_) => Last::Response(message::lost(&id)),
            // The spec wants a result of a subscription that ends (basic/patterns/subscriptions), and its stream closed,
            // which over stdio is a notification (basic/patterns/cancellation). In this order SDKs take it for a good end.
            Served::Subscription(first, rest) => {
                let response = self.relay(&id, first, rest).await?;
                Last::Closing(response, subscription::torn_down(&id))
            }
        };
        self.outbox.put_last(last, entry).await
    }

    /// Tells what comes before the response, and returns that. While the client does not read, this waits and the
    /// stream's own queue fills: it drops notifications then, as it does for a slow client over HTTP, and never the
    /// reply.
    async fn relay(
        &self,
        id: &ClientId,
        first: Bytes,
        mut rest: impl Events,
    ) -> Result<Vec<u8>, Gone> {
        self.outbox.put(first.into()).await?;
        loop {
            match rest.next().await {
                Some(LegEvent::Note(note)) => self.outbox.put(note.into()).await?,
                Some(LegEvent::Reply(reply)) => return Ok(message::response(id, &reply)),
                None => return Ok(message::lost(id)),
            }
        }
    }
}

/// The request in a line that was found to hold one. It is read once more, as what is admitted borrows from the line,
/// which belongs to the request's own task.
fn admitted(line: &[u8]) -> Result<Admitted<'_>, Refusal> {
    match admission::read(line)? {
        ClientMessage::Request(request) => request.admit(ClientHeaders::NoLayer),
        ClientMessage::Notification { .. } | ClientMessage::Response => {
            Err(Refusal::new(error::INVALID_REQUEST, "not a request"))
        }
    }
}
