//! How an answer of the puppet is written, well-formed or not.

use std::io::Result;
use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::store::Stream;
use super::{EventIds, Manner};

/// What a script puts on its response.
#[derive(Clone, Debug)]
pub(crate) enum Out {
    /// A whole response: status, content type, body.
    Whole(u16, &'static str, Vec<u8>),
    /// One event of an event stream.
    Event(String),
    /// Bytes into the body of the event stream, as they are.
    Raw(Vec<u8>),
    /// Bytes onto the connection, as they are: not even HTTP is taken care of.
    Bare(Vec<u8>),
    /// The event stream ends as it should; where events carry ids, what follows is had by resuming it.
    End,
    /// The connection ends in the middle.
    Cut,
}

/// Whether the connection can serve another request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum After {
    More,
    NextRequest,
    Close,
}

/// The writing side of one response.
#[derive(Debug)]
pub(super) struct Response<'a, W> {
    writer: &'a mut W,
    manner: &'a Manner,
    has_head: bool,
    events: usize,
    stream: String,
    /// Where its events are kept.
    stored: Option<Arc<Stream>>,
}

impl<'a, W: AsyncWrite + Unpin> Response<'a, W> {
    /// `stream` begins the ids of its events.
    pub(super) fn new(writer: &'a mut W, manner: &'a Manner, stream: String) -> Self {
        Self {
            writer,
            manner,
            has_head: false,
            events: 0,
            stream,
            stored: None,
        }
    }

    /// One that goes on with a stored stream.
    pub(super) fn stored(writer: &'a mut W, manner: &'a Manner, stream: Arc<Stream>) -> Self {
        let mut response = Self::new(writer, manner, stream.name.clone());
        response.stored = Some(stream);
        response
    }

    /// Begins with the events after the first `seen`.
    pub(super) async fn replay(&mut self, seen: usize) -> Result<()> {
        self.write_head().await?;
        let events = self.stored.as_ref().map(|stream| stream.events());
        let seen = match self.manner.event_ids {
            // What came later sorts before it.
            EventIds::Unsorted => usize::MAX,
            EventIds::With | EventIds::Without => seen,
        };
        for (at, data) in events.into_iter().flatten().enumerate().skip(seen) {
            self.write_event(at + 1, &data).await?;
        }
        Ok(())
    }

    pub(super) async fn put(&mut self, out: Out) -> Result<After> {
        match out {
            Out::Whole(status, kind, body) if !self.has_head => {
                whole(self.writer, status, &[("content-type", kind)], &body).await?;
                return Ok(After::NextRequest);
            }
            Out::Whole(_, _, body) => {
                // The stream has begun: the last word travels on it.
                let text = String::from_utf8_lossy(&body).into_owned();
                self.event(&text).await?;
                self.chunk(b"").await?;
                return Ok(After::NextRequest);
            }
            Out::Event(data) => self.event(&data).await?,
            Out::Raw(bytes) => {
                self.head().await?;
                self.chunk(&bytes).await?;
            }
            Out::Bare(bytes) => {
                self.has_head = true;
                self.writer.write_all(&bytes).await?;
                self.writer.flush().await?;
            }
            Out::End => {
                self.head().await?;
                self.chunk(b"").await?;
                return Ok(After::NextRequest);
            }
            Out::Cut => return Ok(After::Close),
        }
        Ok(After::More)
    }

    /// The head of an event stream, and the priming event if the manner has it.
    pub(super) async fn head(&mut self) -> Result<()> {
        if self.has_head {
            return Ok(());
        }
        self.write_head().await?;
        if self.manner.event_ids != EventIds::Without {
            self.event("").await?;
        }
        Ok(())
    }

    async fn write_head(&mut self) -> Result<()> {
        self.has_head = true;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        self.writer.write_all(head.as_bytes()).await?;
        self.writer.flush().await
    }

    async fn event(&mut self, data: &str) -> Result<()> {
        Box::pin(self.head()).await?;
        let at = match &self.stored {
            Some(stream) => stream.push(data),
            None => {
                self.events += 1;
                self.events
            }
        };
        self.write_event(at, data).await
    }

    async fn write_event(&mut self, at: usize, data: &str) -> Result<()> {
        let end = self.manner.line_end;
        let mut event = String::new();
        event += &match self.manner.event_ids {
            EventIds::With => format!("id: {}-{at}{end}", self.stream),
            EventIds::Unsorted => format!("id: {}-{}{end}", self.stream, 9999 - at),
            EventIds::Without => String::new(),
        };
        for line in data.split('\n') {
            event += &format!("data: {line}{end}");
        }
        event += end;
        for part in event.as_bytes().chunks(self.manner.chunk_bytes) {
            self.chunk(part).await?;
        }
        Ok(())
    }

    /// One chunk; an empty one is the last.
    async fn chunk(&mut self, bytes: &[u8]) -> Result<()> {
        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        self.writer.write_all(&framed).await?;
        self.writer.flush().await
    }
}

/// Writes a whole response.
pub(super) async fn whole<W: AsyncWrite + Unpin>(
    writer: &mut W,
    status: u16,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<()> {
    let mut head = format!(
        "HTTP/1.1 {status} Puppet\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut message = (head + "\r\n").into_bytes();
    message.extend_from_slice(body);
    writer.write_all(&message).await?;
    writer.flush().await
}
