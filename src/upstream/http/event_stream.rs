//! Event streams of a server.

use http_body_util::BodyExt;
use tokio::task::coop::consume_budget;

use super::Inbound;
use crate::upstream::UpstreamError;
use crate::wire::sse::{Decoder, Event};

/// An event stream of a server.
#[derive(Debug)]
pub struct EventStream {
    body: Inbound,
    decoder: Decoder,
    bytes_max: usize,
}

impl EventStream {
    pub(in crate::upstream) fn new(body: Inbound, bytes_max: usize) -> Self {
        Self {
            body,
            decoder: Decoder::new(bytes_max),
            bytes_max,
        }
    }

    /// The next event; nothing at the end of the stream. Cancel-safe.
    ///
    /// # Errors
    /// When the connection broke or an event is too large.
    pub(in crate::upstream) async fn next_event(&mut self) -> Result<Option<Event>, UpstreamError> {
        loop {
            // A server that never stops sending must leave the task room for everything else.
            consume_budget().await;
            let event = self.decoder.next_event();
            let bytes_max = self.bytes_max;
            if let Some(event) = event.map_err(|_| UpstreamError::TooLarge { bytes_max })? {
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame.map_err(UpstreamError::Body)?.into_data() {
                self.decoder.feed(data);
            }
        }
    }
}
