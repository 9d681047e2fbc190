//! How an answer of the puppet is written, well-formed or not.

use std::io::Result;

use tokio::io::{AsyncWrite, AsyncWriteExt};

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
    /// The event stream ends as it should.
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
    events: u64,
    stream: String,
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
        }
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
        self.has_head = true;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        self.writer.write_all(head.as_bytes()).await?;
        if self.manner.event_ids == EventIds::With {
            self.event("").await?;
        }
        self.writer.flush().await
    }

    async fn event(&mut self, data: &str) -> Result<()> {
        Box::pin(self.head()).await?;
        let end = self.manner.line_end;
        let mut event = String::new();
        if self.manner.event_ids == EventIds::With {
            self.events += 1;
            event = format!("id: {}-{}{end}", self.stream, self.events);
        }
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
