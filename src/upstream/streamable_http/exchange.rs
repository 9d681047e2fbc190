//! What comes back for one request.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::BodyExt;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::resumption::{Attempt, Resumed, Resumption, Tried};
use super::{Standing, StreamableHttp, StreamableSession};
use crate::upstream::UpstreamError;
use crate::upstream::departure::Departure;
use crate::upstream::http::{
    EventStream, Inbound, Outbound, Responding, follow, has_type, is_event_stream, request_error,
};
use crate::wire::header;
use crate::wire::jsonrpc::Message;
use crate::wire::sse::Between;

/// Bounds the body of an error status that is read for a JSON-RPC error. Real ones are a few hundred bytes.
const ERROR_BODY_BYTES_MAX: usize = 64 << 10;

/// What comes back for one request.
#[derive(Debug)]
pub struct Exchange {
    pub(super) state: State,
    pub(super) session: Arc<StreamableSession>,
    pub(super) departure: Arc<Departure>,
    pub(super) session_id: Option<HeaderValue>,
    /// Where the server led the exchange, if it was one that may be led.
    pub(super) place: Option<Box<Uri>>,
    pub(super) standing: Standing,
    /// The server answered with a status that says that it has a bad moment.
    pub(super) has_bad_moment: bool,
    /// How an event stream is had again, of an exchange that opens no session.
    pub(super) resumption: Option<Box<Resumption>>,
}

#[derive(Debug)]
pub(super) enum State {
    Waiting {
        response: Responding,
        /// When the server has to have begun its answer, unless it showed otherwise that it is at work.
        begins_by: Option<Instant>,
    },
    /// The same for a request that follows redirects.
    Opening(Opening),
    /// A whole JSON body; `error` is what it means if it turns out to hold no message.
    Json {
        body: Inbound,
        read: BytesMut,
        bytes_max: usize,
        error: Option<UpstreamError>,
    },
    Events(Box<EventStream>),
    /// The stream was lost and is asked for again.
    Resuming(Attempt),
    Done,
}

/// A request that follows redirects, on its way.
pub(super) struct Opening(Pin<Box<dyn Future<Output = Opened> + Send + Sync>>);

type Opened = Result<Result<(Response<Inbound>, Uri), UpstreamError>, Elapsed>;

impl Opening {
    pub(super) fn new(
        server: Arc<StreamableHttp>,
        request: Request<Outbound>,
        begins_by: Instant,
    ) -> Self {
        Self(Box::pin(async move {
            timeout_at(begins_by, follow(&server.http, request)).await
        }))
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Opening(..)")
    }
}

/// A request that waits for a free stream of an HTTP/2 connection would still go once there is one: a session could be
/// opened that nobody knows of.
impl Drop for Exchange {
    fn drop(&mut self) {
        self.departure.give_up();
    }
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
        loop {
            match &mut self.state {
                State::Waiting { .. } | State::Opening(_) => self.answered().await?,
                State::Json {
                    body,
                    read,
                    bytes_max,
                    ..
                } => {
                    collect(body, read, *bytes_max).await?;
                    let State::Json { read, error, .. } =
                        std::mem::replace(&mut self.state, State::Done)
                    else {
                        return Ok(None);
                    };
                    let message = read.freeze();
                    return match error {
                        Some(error) if !is_error_response(&message) => Err(error),
                        _ => Ok(Some(message)),
                    };
                }
                State::Events(stream) => match stream.next_event().await {
                    Ok(Some(event)) => {
                        if event.id.is_some() {
                            self.session.saw_event_id();
                        }
                        let data = match &mut self.resumption {
                            Some(resumption) => resumption.hear(event),
                            None => Some(event.data).filter(|data| !data.is_empty()),
                        };
                        if data.is_some() {
                            return Ok(data);
                        }
                    }
                    // It would be as large the next time.
                    Err(error @ UpstreamError::TooLarge { .. }) => return Err(error),
                    lost => self.lost(lost.err())?,
                },
                State::Resuming(attempt) => {
                    let tried = attempt.tried().await;
                    self.tried(tried)?;
                }
                State::Done => return Ok(None),
            }
        }
    }

    /// The event stream is over without the response.
    fn lost(&mut self, why: Option<UpstreamError>) -> Result<(), UpstreamError> {
        self.state = State::Done;
        let next = match &mut self.resumption {
            Some(resumption) => resumption.lost(why),
            None => Err(why),
        };
        match next {
            Ok(attempt) => self.state = State::Resuming(attempt),
            Err(Some(error)) => return Err(error),
            Err(None) => {}
        }
        Ok(())
    }

    /// See [`super::super::Exchange::has_begun`].
    pub fn has_begun(&self) -> bool {
        match self.state {
            State::Waiting { .. } | State::Opening(_) => false,
            // A server that gives ids gives one before it says anything.
            State::Events(_) => {
                !self.session.gives_event_ids() || self.heard_between() != Between::default()
            }
            State::Json { .. } | State::Resuming(_) | State::Done => true,
        }
    }

    /// See [`super::super::Exchange::heard_between`].
    pub fn heard_between(&self) -> Between {
        let resumption = self.resumption.as_ref();
        resumption.map_or_else(Between::default, |resumption| resumption.between().clone())
    }

    /// See [`super::super::Exchange::resumed`].
    pub async fn resumed(&mut self) -> Result<(), UpstreamError> {
        while let State::Resuming(attempt) = &mut self.state {
            let tried = attempt.tried().await;
            self.tried(tried)?;
        }
        Ok(())
    }

    /// Takes in how an attempt to resume the stream went.
    fn tried(&mut self, tried: Tried) -> Result<(), UpstreamError> {
        self.state = State::Done;
        if let Some(resumption) = &mut self.resumption {
            self.state = match resumption.tried(tried)? {
                Resumed::Stream(stream) => State::Events(Box::new(stream)),
                Resumed::Again(attempt) => State::Resuming(attempt),
            };
        }
        Ok(())
    }

    /// Whether the request went on its way: from then on the server may have it.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        self.departure.has_gone()
    }

    /// Gives the request up if it has not gone; whether it had. What has not gone by now never will.
    #[must_use]
    pub fn give_up(&self) -> bool {
        self.departure.give_up()
    }

    /// See [`super::super::Exchange::has_bad_moment`].
    pub fn has_bad_moment(&self) -> bool {
        self.has_bad_moment
    }

    /// See [`super::super::Exchange::heard_of_server`].
    pub fn heard_of_server(&mut self) {
        if let State::Waiting { begins_by, .. } = &mut self.state {
            *begins_by = None;
        }
    }

    /// Waits until the server has begun to answer: from then on it knows the request. Cancel-safe.
    ///
    /// # Errors
    /// When the answer will not come.
    pub async fn answered(&mut self) -> Result<(), UpstreamError> {
        let begun = match &mut self.state {
            State::Waiting {
                response,
                begins_by,
            } => {
                let response = match begins_by {
                    Some(begins_by) => timeout_at(*begins_by, response).await,
                    None => Ok(response.await),
                };
                response.map(|response| response.map_err(request_error))
            }
            State::Opening(opening) => (&mut opening.0).await.map(|opened| {
                opened.map(|(response, place)| {
                    self.place = Some(Box::new(place));
                    response
                })
            }),
            State::Json { .. } | State::Events(_) | State::Resuming(_) | State::Done => {
                return Ok(());
            }
        };
        let begun = begun.unwrap_or_else(|late| {
            Err(if self.departure.give_up() {
                UpstreamError::Timeout
            } else {
                // Not even a connection, or a stream of one, was to be had.
                UpstreamError::Connect(late.into())
            })
        });
        self.state = State::Done;
        self.state = self.opened(begun?)?;
        Ok(())
    }

    fn opened(&mut self, response: Response<Inbound>) -> Result<State, UpstreamError> {
        let (head, body) = response.into_parts();
        let bytes_max = self.session.message_bytes_max();
        self.session_id = head.headers.get(header::SESSION_ID).cloned();
        self.has_bad_moment = matches!(head.status.as_u16(), 408 | 429 | 500..);
        let is_json = has_type(&head.headers, "application/json");
        let error = self.standing.refusal(head.status, &head.headers);
        match error {
            // A refusal may still say why, as a JSON-RPC error.
            Some(error @ UpstreamError::Status(_)) if is_json => Ok(State::Json {
                body,
                read: BytesMut::new(),
                bytes_max: ERROR_BODY_BYTES_MAX,
                error: Some(error),
            }),
            Some(error) => Err(error),
            None if is_json => {
                let length = head.headers.get(http::header::CONTENT_LENGTH);
                let length = length
                    .and_then(|value| value.to_str().ok()?.parse().ok())
                    .unwrap_or(0);
                let read = BytesMut::with_capacity(bytes_max.min(length));
                Ok(State::Json {
                    body,
                    read,
                    bytes_max,
                    error: None,
                })
            }
            None if is_event_stream(&head.headers) => {
                if self.standing.is_open {
                    let session = Arc::clone(&self.session);
                    self.resumption = Some(Box::new(Resumption::new(session)));
                }
                let stream = EventStream::new(body, bytes_max);
                Ok(State::Events(Box::new(stream)))
            }
            None => Err(UpstreamError::ContentType),
        }
    }
}

fn is_error_response(message: &[u8]) -> bool {
    matches!(Message::parse(message), Ok(Message::Error { .. }))
}

/// Reads the rest of a body. Cancel-safe: what was read is in `read`.
async fn collect(
    body: &mut Inbound,
    read: &mut BytesMut,
    bytes_max: usize,
) -> Result<(), UpstreamError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(UpstreamError::Body)?.into_data() {
            if read.len() + data.len() > bytes_max {
                return Err(UpstreamError::TooLarge { bytes_max });
            }
            read.extend_from_slice(&data);
        }
    }
    Ok(())
}
