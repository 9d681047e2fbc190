//! One HTTP exchange of a client, open until it is finished or dropped.

use std::io::{ErrorKind, Result};
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::reply::Reply;
use crate::support::http1::{Framing, Head, Reader, find};
use crate::support::within;

/// A leg whose reply is still to come. Dropped, its connection is closed.
#[derive(Debug)]
pub(crate) struct OpenLeg {
    writer: OwnedWriteHalf,
    reader: Reader<OwnedReadHalf>,
    /// The JSON-RPC message it sent.
    request: Value,
    head: Option<(Head, Framing)>,
    body: Vec<u8>,
    /// Where the next event of `body` begins.
    at: usize,
}

impl OpenLeg {
    /// Sends `bytes` on a connection of its own. A peer that stops reading is no failure: it may have said
    /// all it has to say.
    pub(crate) async fn open(addr: SocketAddr, bytes: &[u8], request: Value) -> Self {
        Self::try_open(addr, bytes, request).await.unwrap()
    }

    /// The same, where perhaps nobody is there.
    pub(crate) async fn try_open(addr: SocketAddr, bytes: &[u8], request: Value) -> Result<Self> {
        let stream = within("a connection", TcpStream::connect(addr)).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        let reader = Reader::new(reader);
        let mut leg = Self {
            writer,
            reader,
            request,
            head: None,
            body: Vec::new(),
            at: 0,
        };
        leg.write(bytes).await;
        Ok(leg)
    }

    /// Sends more bytes.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let _ = within("the peer to read", self.writer.write_all(bytes)).await;
    }

    /// Says that nothing more will be sent.
    pub(crate) async fn shut(&mut self) {
        let _ = self.writer.shutdown().await;
    }

    /// Waits for the head of the response: nothing when the connection ends without one.
    async fn head(&mut self) -> Result<Option<&Head>> {
        if self.head.is_none() {
            let Some(head) = within("a response", self.reader.head()).await? else {
                return Ok(None);
            };
            let framing = head.response_framing();
            self.head = Some((head, framing));
        }
        Ok(self.head.as_ref().map(|(head, _)| head))
    }

    /// Reads a little more of the body; whether there was more.
    async fn try_more(&mut self) -> Result<bool> {
        self.head().await?;
        let Some((_, framing)) = &mut self.head else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        let part = within("the response to go on", self.reader.part(framing)).await?;
        let is_more = part.is_some();
        self.body.extend(part.unwrap_or_default());
        Ok(is_more)
    }

    /// The same; a connection that breaks is an end as well.
    async fn more(&mut self) -> bool {
        self.try_more().await.unwrap_or(false)
    }

    /// Waits for the next message of an event stream.
    pub(crate) async fn event(&mut self) -> Value {
        loop {
            if let Some(end) = find(&self.body[self.at..], b"\n\n") {
                let text = String::from_utf8_lossy(&self.body[self.at..self.at + end]).into_owned();
                self.at += end + 2;
                if let Some(data) = data_of(&text) {
                    return serde_json::from_str(&data).unwrap();
                }
                continue;
            }
            assert!(
                self.more().await,
                "no further event after {:?}",
                self.text()
            );
        }
    }

    /// Waits until the stream has carried `count` comments.
    pub(crate) async fn comments(&mut self, count: usize) {
        while self
            .text()
            .lines()
            .filter(|line| line.starts_with(':'))
            .count()
            < count
        {
            assert!(self.more().await, "no comment in {:?}", self.text());
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Reads the reply to its end and checks it against the spec.
    pub(crate) async fn finish(self) -> Reply {
        let request = self.request.clone();
        let reply = self.try_finish().await;
        reply.unwrap_or_else(|error| panic!("no whole response to {request}: {error}"))
    }

    /// The same, where perhaps no reply comes, or one that breaks off.
    pub(crate) async fn try_finish(mut self) -> Result<Reply> {
        while self.try_more().await? {}
        let (head, _) = self.head.ok_or(ErrorKind::UnexpectedEof)?;
        Ok(Reply::checked(head, self.body, &self.request))
    }

    /// The body as it came.
    pub(crate) async fn raw(mut self) -> String {
        while self.more().await {}
        self.text()
    }

    /// The status of the response; nothing when the connection ends without one.
    pub(crate) async fn status(mut self) -> Option<u16> {
        let head = self.head().await.ok().flatten();
        head.map(|head| head.word(1).parse().unwrap())
    }
}

/// The data of an event; nothing for a comment.
pub(super) fn data_of(event: &str) -> Option<String> {
    let mut data: Option<String> = None;
    for line in event.lines() {
        if let Some(value) = line.strip_prefix("data:") {
            let value = value.strip_prefix(' ').unwrap_or(value);
            data = Some(data.map_or_else(|| value.to_owned(), |before| before + "\n" + value));
        } else {
            // Ids would make clients come back with GET; other fields mean nothing here.
            assert!(
                line.starts_with(':') || line == "event: message",
                "a field: {line:?}"
            );
        }
    }
    data
}
