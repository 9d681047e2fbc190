//! Server-sent events: an incremental decoder and an encoder.
//!
//! The decoder follows the HTML standard's event stream interpretation: LF, CRLF and CR end a line, comments
//! are skipped, `data` lines are joined with a line feed. An event whose data stands on one line within one
//! chunk is handed out without a copy. Lines and events are bounded by the caller's limit.

use bytes::{Bytes, BytesMut};
use memchr::memchr2;

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The joined `data` lines. Empty for a priming event, which carries an id alone.
    pub data: Bytes,
    /// The `id` field of this event, if it had one.
    pub id: Option<Box<str>>,
    /// The `event` field: `message` unless the sender says otherwise.
    pub name: Option<Box<str>>,
    /// The `retry` field, in milliseconds.
    pub retry_ms: Option<u64>,
}

/// Where something that was heard stands on its stream, as far as events have ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Between {
    /// The latest id before it.
    pub before: Option<Box<str>>,
    /// The latest id with it.
    pub at: Option<Box<str>>,
}

impl Between {
    /// The next event is heard.
    pub fn go_on(&mut self, id: Option<Box<str>>) {
        match id {
            // The standard: an empty one takes back what was said before.
            Some(id) if id.is_empty() => self.before = self.at.take(),
            Some(id) => self.before = self.at.replace(id),
            None => self.before.clone_from(&self.at),
        }
    }
}

/// An event or a line grew beyond the limit.
#[derive(Debug, thiserror::Error)]
#[error("an event is larger than {bytes_max} bytes")]
pub struct TooLarge {
    bytes_max: usize,
}

/// Turns chunks of an event stream into events, wherever the chunks are cut.
#[derive(Debug)]
pub struct Decoder {
    chunk: Bytes,
    /// The part of a line that earlier chunks brought.
    line: BytesMut,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    /// Nothing was read yet: a byte order mark may come.
    at_start: bool,
    pending: Pending,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Pending {
    data: Option<Bytes>,
    id: Option<Box<str>>,
    name: Option<Box<str>>,
    retry_ms: Option<u64>,
}

impl Decoder {
    /// A decoder that refuses events of more than `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            chunk: Bytes::new(),
            line: BytesMut::new(),
            after_cr: false,
            at_start: true,
            pending: Pending::default(),
            bytes_max,
        }
    }

    /// Feeds the next chunk. Call [`Decoder::next_event`] until it yields nothing before feeding another.
    pub fn feed(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "the chunk before was not used up");
        self.chunk = chunk;
    }

    /// The next complete event, or nothing until more is fed.
    ///
    /// # Errors
    /// When a line or an event grows beyond the limit; the stream is then of no more use.
    pub fn next_event(&mut self) -> Result<Option<Event>, TooLarge> {
        while let Some(line) = self.next_line()? {
            if !line.is_empty() {
                self.field(line)?;
                continue;
            }
            let pending = std::mem::take(&mut self.pending);
            if pending.data.is_some() || pending.id.is_some() || pending.retry_ms.is_some() {
                return Ok(Some(Event {
                    data: pending.data.unwrap_or_default(),
                    id: pending.id,
                    name: pending.name,
                    retry_ms: pending.retry_ms,
                }));
            }
        }
        Ok(None)
    }

    fn next_line(&mut self) -> Result<Option<Bytes>, TooLarge> {
        if self.after_cr && !self.chunk.is_empty() {
            self.after_cr = false;
            if self.chunk[0] == b'\n' {
                self.chunk = self.chunk.slice(1..);
            }
        }
        let Some(end) = memchr2(b'\n', b'\r', &self.chunk) else {
            let part = std::mem::take(&mut self.chunk);
            self.bounded(self.line.len() + part.len())?;
            self.line.extend_from_slice(&part);
            return Ok(None);
        };
        self.after_cr = self.chunk[end] == b'\r';
        self.bounded(self.line.len() + end)?;
        let mut line = self.chunk.split_to(end);
        self.chunk = self.chunk.slice(1..);
        if !self.line.is_empty() {
            self.line.extend_from_slice(&line);
            line = std::mem::take(&mut self.line).freeze();
        }
        if std::mem::take(&mut self.at_start) && line.starts_with(b"\xef\xbb\xbf") {
            line = line.slice(3..);
        }
        Ok(Some(line))
    }

    fn field(&mut self, line: Bytes) -> Result<(), TooLarge> {
        let colon = memchr::memchr(b':', &line).unwrap_or(line.len());
        let mut start = (colon + 1).min(line.len());
        if line.get(start) == Some(&b' ') {
            start += 1;
        }
        let (name, value) = (&line[..colon], line.slice(start..));
        match name {
            b"data" => match self.pending.data.take() {
                None => self.pending.data = Some(value),
                Some(before) => {
                    self.bounded(before.len() + 1 + value.len())?;
                    let mut joined = match before.try_into_mut() {
                        Ok(owned) => owned,
                        Err(shared) => BytesMut::from(&shared[..]),
                    };
                    joined.extend_from_slice(b"\n");
                    joined.extend_from_slice(&value);
                    self.pending.data = Some(joined.freeze());
                }
            },
            // An id with a NUL is ignored, as the standard says; one that is no text cannot be sent back.
            b"id" if !value.contains(&0) => {
                self.pending.id = std::str::from_utf8(&value).ok().map(Into::into);
            }
            b"event" => self.pending.name = std::str::from_utf8(&value).ok().map(Into::into),
            b"retry" => {
                self.pending.retry_ms = std::str::from_utf8(&value)
                    .ok()
                    .and_then(|digits| digits.parse().ok());
            }
            _ => {}
        }
        Ok(())
    }

    fn bounded(&self, bytes: usize) -> Result<(), TooLarge> {
        if bytes > self.bytes_max {
            return Err(TooLarge {
                bytes_max: self.bytes_max,
            });
        }
        Ok(())
    }
}

/// A comment that keeps a quiet stream open; receivers ignore it.
pub const KEEP_ALIVE: &[u8] = b":\n\n";

/// Appends one event with `data`. Line ends inside the data (legal JSON white space) become further `data`
/// lines, which the receiver joins again.
pub fn push_event(out: &mut Vec<u8>, data: &[u8]) {
    out.reserve(data.len() + 8);
    let mut rest = data;
    loop {
        let end = memchr2(b'\n', b'\r', rest);
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
        out.push(b'\n');
        match end {
            Some(end) if rest[end..].starts_with(b"\r\n") => rest = &rest[end + 2..],
            Some(end) => rest = &rest[end + 1..],
            None => break,
        }
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 1 << 20;

    fn decode(chunks: impl IntoIterator<Item = Vec<u8>>) -> Vec<Event> {
        let mut decoder = Decoder::new(LIMIT);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.feed(Bytes::from(chunk));
            while let Some(event) = decoder.next_event().unwrap() {
                events.push(event);
            }
        }
        events
    }

    fn data(text: &str) -> Vec<String> {
        decode([text.as_bytes().to_vec()])
            .into_iter()
            .map(|event| String::from_utf8(event.data.to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn all_line_ends_and_comments_are_understood() {
        for (text, expected) in [
            ("data: a\n\n", vec!["a"]),
            ("data: a\r\n\r\n", vec!["a"]),
            ("data: a\r\r", vec!["a"]),
            ("data:a\n\ndata:  b\n\n", vec!["a", " b"]),
            (": ping\n\ndata: a\n\n", vec!["a"]),
            ("data: a\ndata: b\n\n", vec!["a\nb"]),
            ("data: a\ndata\ndata: c\n\n", vec!["a\n\nc"]),
            ("\u{feff}data: a\n\n", vec!["a"]),
            ("event: x\n\n", vec![]),
            ("unknown: x\ndata: a\n\n", vec!["a"]),
            ("data: never ended\n", vec![]),
        ] {
            assert_eq!(data(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_priming_event_has_an_id_and_no_data() {
        let events = decode([b"id: 1_0\ndata:\nretry: 250\n\n".to_vec()]);
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].id.as_deref(), Some("1_0"));
        assert_eq!(events[0].retry_ms, Some(250));
        assert!(events[0].data.is_empty());
    }

    #[test]
    fn an_event_beyond_the_limit_is_refused() {
        for text in [
            "data: 123456789\n\n",
            "data: 1234\ndata: 5678\n\n",
            "0123456789abcdef",
        ] {
            let mut decoder = Decoder::new(8);
            decoder.feed(Bytes::copy_from_slice(text.as_bytes()));
            assert!(decoder.next_event().is_err(), "{text}");
        }
    }

    #[test]
    fn a_stream_cut_at_every_byte_reads_the_same() {
        let text = b"\xef\xbb\xbfid: 7\r\ndata: {\"a\":1,\r\ndata: \"b\":2}\r\n\r\n: c\n\nevent: e\rdata: x\r\r";
        let whole = decode([text.to_vec()]);
        assert_eq!(whole.len(), 2);
        for cut in 0..text.len() {
            assert_eq!(
                decode([text[..cut].to_vec(), text[cut..].to_vec()]),
                whole,
                "cut at {cut}"
            );
        }
        assert_eq!(decode(text.iter().map(|byte| vec![*byte])), whole);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            texts in prop::collection::vec("[^\r]*", 1..5),
            cut in 1_usize..20,
        ) {
            let mut stream = Vec::new();
            for text in &texts {
                push_event(&mut stream, text.as_bytes());
            }
            let events = decode(stream.chunks(cut).map(<[u8]>::to_vec));
            let decoded: Vec<_> =
                events.iter().map(|e| String::from_utf8(e.data.to_vec()).unwrap()).collect();
            prop_assert_eq!(decoded, texts);
        }

        #[test]
        fn any_bytes_are_survived(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let mut decoder = Decoder::new(64);
            'chunks: for chunk in chunks {
                decoder.feed(Bytes::from(chunk));
                loop {
                    match decoder.next_event() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => break 'chunks,
                    }
                }
            }
        }
    }
}
