//! Just enough HTTP/1.1 for both ends of a test, on bytes that the test controls.
//!
//! A library would repair or refuse what the tests send on purpose; this reads well-formed messages and
//! leaves the writing to whoever wants it malformed.

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The start line and the headers of a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) start: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter(|line| !line.is_empty())
            .map(|line| match line.split_once(':') {
                Some((name, value)) => Ok((name.to_ascii_lowercase(), value.trim().to_owned())),
                None => Err(invalid(format!("a header without a colon: {line:?}"))),
            })
            .collect::<Result<_>>()?;
        Ok(Self { start, headers })
    }

    /// The first value of a header.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The word at `at` of the start line.
    pub(crate) fn word(&self, at: usize) -> &str {
        self.start.split(' ').nth(at).unwrap_or_default()
    }

    /// How the body of a response with this head is delimited.
    pub(crate) fn response_framing(&self) -> Framing {
        match self.word(1) {
            "204" | "304" => Framing::Done,
            _ => self.framing(Framing::UntilClose),
        }
    }

    /// How the body of a request with this head is delimited.
    pub(crate) fn request_framing(&self) -> Framing {
        self.framing(Framing::Done)
    }

    fn framing(&self, otherwise: Framing) -> Framing {
        if self.value("transfer-encoding").is_some() {
            return Framing::Chunked {
                left: 0,
                first: true,
            };
        }
        let length = self
            .value("content-length")
            .and_then(|value| value.parse().ok());
        length.map_or(otherwise, Framing::Length)
    }
}

/// How much of a body is still to come.
#[derive(Debug)]
pub(crate) enum Framing {
    Length(usize),
    Chunked { left: usize, first: bool },
    UntilClose,
    Done,
}

/// A reader of messages. Every method is cancel-safe: what was read stays in the buffer.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    inner: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            buffer: Vec::new(),
        }
    }

    /// The next head; nothing when the peer closed between two messages.
    pub(crate) async fn head(&mut self) -> Result<Option<Head>> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.drain(..end + 4);
                return Head::parse(&text).map(Some);
            }
            if !self.fill().await? {
                return match self.buffer.len() {
                    0 => Ok(None),
                    _ => Err(ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// The next bytes of a body; nothing at its end.
    pub(crate) async fn part(&mut self, framing: &mut Framing) -> Result<Option<Vec<u8>>> {
        loop {
            match framing {
                Framing::Done => return Ok(None),
                Framing::Length(0) => *framing = Framing::Done,
                Framing::Length(left) if !self.buffer.is_empty() => {
                    let part = self.take(*left);
                    *left -= part.len();
                    return Ok(Some(part));
                }
                Framing::Chunked { left: 0, first } => {
                    let Some(size) = self.chunk_size(*first)? else {
                        self.fill_or_fail().await?;
                        continue;
                    };
                    *framing = match size {
                        0 => Framing::Done,
                        left => Framing::Chunked { left, first: false },
                    };
                }
                Framing::Chunked { left, .. } if !self.buffer.is_empty() => {
                    let part = self.take(*left);
                    *left -= part.len();
                    return Ok(Some(part));
                }
                Framing::UntilClose if !self.buffer.is_empty() => {
                    return Ok(Some(std::mem::take(&mut self.buffer)));
                }
                Framing::UntilClose => {
                    if !self.fill().await? {
                        *framing = Framing::Done;
                    }
                }
                Framing::Length(_) | Framing::Chunked { .. } => self.fill_or_fail().await?,
            }
        }
    }

    /// A whole body.
    pub(crate) async fn body(&mut self, mut framing: Framing) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(part) = self.part(&mut framing).await? {
            body.extend(part);
        }
        Ok(body)
    }

    /// Done when the peer has closed its side or reset the connection.
    pub(crate) async fn closed(&mut self) {
        while let Ok(true) = self.fill().await {}
    }

    /// Reads the line with a chunk's size, and the empty line after the last chunk; nothing while it is not
    /// there in full.
    fn chunk_size(&mut self, first: bool) -> Result<Option<usize>> {
        let start = if first { 0 } else { 2 };
        let Some(line) = self
            .buffer
            .get(start..)
            .and_then(|rest| find(rest, b"\r\n"))
        else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&self.buffer[start..start + line]).into_owned();
        let size = usize::from_str_radix(text.split(';').next().unwrap_or_default().trim(), 16)
            .map_err(|_| invalid(format!("no chunk size: {text:?}")))?;
        let mut end = start + line + 2;
        if size == 0 {
            if self.buffer.len() < end + 2 {
                return Ok(None);
            }
            end += 2;
        }
        self.buffer.drain(..end);
        Ok(Some(size))
    }

    fn take(&mut self, left: usize) -> Vec<u8> {
        let until = left.min(self.buffer.len());
        self.buffer.drain(..until).collect()
    }

    async fn fill_or_fail(&mut self) -> Result<()> {
        match self.fill().await? {
            true => Ok(()),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    async fn fill(&mut self) -> Result<bool> {
        Ok(self.inner.read_buf(&mut self.buffer).await? > 0)
    }
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

/// Where `needle` begins.
pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
