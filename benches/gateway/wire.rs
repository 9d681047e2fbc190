//! A bare HTTP/1.1 client connection: as little work as possible for the load, enough reading for its peers.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection that is kept alive.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// What was read of the current response.
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            read: Vec::with_capacity(8 << 10),
        }
    }

    /// Sends a request and reads its whole response.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> &str {
        self.send(request).await;
        while !is_whole(&self.read) {
            self.more().await;
        }
        self.text()
    }

    /// Sends a request.
    pub(crate) async fn send(&mut self, request: &[u8]) {
        self.read.clear();
        self.stream.write_all(request).await.unwrap();
    }

    /// Reads until the response holds `word`.
    pub(crate) async fn until(&mut self, word: &str) -> &str {
        while !self.text().contains(word) {
            self.more().await;
        }
        self.text()
    }

    /// Reads the response to its end.
    pub(crate) async fn rest(&mut self) -> &str {
        while !is_whole(&self.read) {
            self.more().await;
        }
        self.text()
    }

    /// Takes the data of the next event out of a stream that is not the end of a response. Its server sends each in a
    /// chunk of its own.
    pub(crate) async fn next_event(&mut self) -> String {
        const START: &str = "data: ";
        loop {
            let text = self.text();
            if let Some(start) = text.find(START)
                && let Some(length) = text[start..].find("\n\n")
            {
                let data = text[start + START.len()..start + length].to_owned();
                self.read.drain(..start + length);
                return data;
            }
            self.more().await;
        }
    }

    async fn more(&mut self) {
        let read = self.stream.read_buf(&mut self.read).await.unwrap();
        assert!(read > 0, "the peer closed after {:?}", self.text());
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.read).unwrap()
    }
}

/// Whether a response is complete: by its length, or by its last chunk.
fn is_whole(read: &[u8]) -> bool {
    let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return read.ends_with(b"\r\n0\r\n\r\n");
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
    read.len() >= end + 4 + length
}

/// A POST of JSON to the MCP endpoint.
pub(crate) fn post(headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    post_to("/mcp", headers, body)
}

/// A POST of JSON to some path.
pub(crate) fn post_to(path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: {}\r\n",
        body.len(),
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    format!("{head}\r\n{body}").into_bytes()
}

/// The text between two others.
pub(crate) fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let from = text
        .find(start)
        .unwrap_or_else(|| panic!("no {start:?} in {text:?}"))
        + start.len();
    let length = text[from..].find(end).unwrap();
    &text[from..from + length]
}
