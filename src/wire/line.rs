//! Lines of a byte stream: one message each, as the stdio transport frames them.
//!
//! A line that is longer than its bound is reported once and skipped without being kept. Blank lines are nobody's
//! message and passed over. What follows the last line end is no line: its writer went away in the middle of it.
//! Spec: 2026-07-28 basic/transports/stdio.

use bytes::{Buf, Bytes, BytesMut};
use memchr::{memchr, memchr2};

/// Cuts a stream of bytes into lines.
#[derive(Debug)]
pub struct Lines {
    bytes_max: usize,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    /// The line that is being read was reported as too long.
    is_skipping: bool,
}

/// One line, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// It is here. It has memory of its own: a call that keeps a part of it keeps no other's line alive.
    Whole(Bytes),
    /// It is too long.
    TooLong,
}

impl Lines {
    /// No bytes yet; lines may have `bytes_max` of them.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            buffer: BytesMut::new(),
            searched: 0,
            is_skipping: false,
        }
    }

    /// The longest line that is kept.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Where the next bytes of the stream are to be appended.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next line, unless more bytes are needed for it.
    pub fn next_line(&mut self) -> Option<Line> {
        while let Some(at) = memchr(b'\n', &self.buffer[self.searched..]) {
            let end = self.searched + at;
            let line = if self.is_skipping {
                None
            } else {
                self.line(end)
            };
            self.buffer.advance(end + 1);
            self.searched = 0;
            self.is_skipping = false;
            if line.is_some() {
                return line;
            }
        }
        self.searched = self.buffer.len();
        let is_too_long = self.searched > self.bytes_max;
        if self.is_skipping || is_too_long {
            self.buffer.clear();
            self.searched = 0;
        }
        let is_news = is_too_long && !std::mem::replace(&mut self.is_skipping, true);
        is_news.then_some(Line::TooLong)
    }

    /// The line that ends here, unless it is blank.
    fn line(&self, end: usize) -> Option<Line> {
        let line = &self.buffer[..end];
        if line.len() > self.bytes_max {
            return Some(Line::TooLong);
        }
        let line = line.trim_ascii();
        (!line.is_empty()).then(|| Line::Whole(Bytes::copy_from_slice(line)))
    }
}

/// A message as one line, with its end. Payloads are left as their peers wrote them, and some peers indent: within JSON
/// a line end can only stand between tokens, where a space says the same.
#[must_use]
pub fn one_line(message: impl Into<Vec<u8>>) -> Vec<u8> {
    let mut message = message.into();
    let mut start = 0;
    while let Some(at) = memchr2(b'\n', b'\r', &message[start..]) {
        message[start + at] = b' ';
        start += at + 1;
    }
    message.push(b'\n');
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_is_one_line() {
        for (message, expected) in [
            ("{}", "{}\n"),
            ("{\r\n  \"a\": [\n1]\n}", "{    \"a\": [ 1] }\n"),
            ("\n\n", "  \n"),
        ] {
            assert_eq!(one_line(message), expected.as_bytes(), "{message:?}");
        }
    }

    /// What the lines of `parts` are, each part being read at once.
    fn lines<'a>(bytes_max: usize, parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<Line> {
        let mut lines = Lines::new(bytes_max);
        let mut found = Vec::new();
        for part in parts {
            lines.buffer().extend_from_slice(part);
            while let Some(line) = lines.next_line() {
                found.push(line);
            }
        }
        found
    }

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn lines_are_told_apart_wherever_the_input_is_cut() {
        let input =
            b"{\"a\":1}\r\n\n  \n0123456789\n01234567890\nb\n01234567890123456789\n\nc\nunfinished";
        let expected = [
            whole("{\"a\":1}"),
            whole("0123456789"),
            Line::TooLong,
            whole("b"),
            Line::TooLong,
            whole("c"),
        ];
        assert_eq!(lines(10, [&input[..]]), expected);
        assert_eq!(lines(10, input.chunks(1)), expected);
        for first in 0..input.len() {
            let (start, rest) = input.split_at(first);
            assert_eq!(lines(10, [start, rest]), expected, "cut at {first}");
        }
    }

    #[test]
    fn what_is_too_long_is_not_kept() {
        let mut lines = Lines::new(100);
        for round in 0..1000 {
            lines.buffer().extend_from_slice(&[b'x'; 64]);
            let line = lines.next_line();
            assert_eq!(line.is_some(), round == 1, "it is said once");
            assert!(lines.buffer().len() <= 164);
        }
        assert!(lines.buffer().capacity() < 1000);
        lines.buffer().extend_from_slice(b"\nend\n");
        assert_eq!(lines.next_line(), Some(whole("end")));
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            input in "[ab \r\n]{0,60}",
            cuts in prop::collection::vec(0_usize..60, 0..8),
        ) {
            let input = input.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).collect();
            cuts.sort_unstable();
            cuts.push(input.len());
            let mut start = 0;
            let parts = cuts.into_iter().map(|cut| {
                let part = &input[start..cut];
                start = cut;
                part
            });
            let cut: Vec<Line> = lines(7, parts);
            prop_assert_eq!(cut, lines(7, [input]));
        }
    }
}
