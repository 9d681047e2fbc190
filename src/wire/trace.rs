//! The `traceparent` of W3C Trace Context: which trace a request belongs to, and which span of it sent it.
//!
//! It is read for holdfast's own spans alone; what goes on to the server goes as it came.
//! Spec: W3C Trace Context, "traceparent Header"; 2026-07-28 basic/index, "`_meta`".

/// The ids of a `traceparent`, in lowercase hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent<'a> {
    /// The trace.
    pub trace_id: &'a str,
    /// The span that sent the request.
    pub parent_id: &'a str,
}

impl<'a> TraceParent<'a> {
    /// Reads a `traceparent` of any version that is known to begin like the first one.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace_id) = (parts.next()?, parts.next()?);
        let (parent_id, flags) = (parts.next()?, parts.next()?);
        let is_hex = |part: &str, digits: usize| {
            part.len() == digits
                && part
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_set = |part: &str| part.bytes().any(|byte| byte != b'0');
        let is_right = is_hex(version, 2)
            && version != "ff"
            && (version != "00" || parts.next().is_none())
            && is_hex(trace_id, 32)
            && is_hex(parent_id, 16)
            && is_hex(flags, 2)
            && is_set(trace_id)
            && is_set(parent_id);
        is_right.then_some(Self {
            trace_id,
            parent_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const PARENT: &str = "b7ad6b7169203331";

    #[test]
    fn right_ones_are_read() {
        for (head, tail) in [
            ("00", "01"),
            ("00", "00"),
            ("cc", "01-what-the-future-brings"),
        ] {
            let text = format!("{head}-{TRACE}-{PARENT}-{tail}");
            let read = TraceParent::parse(&text).unwrap();
            assert_eq!((read.trace_id, read.parent_id), (TRACE, PARENT));
        }
    }

    #[test]
    fn wrong_ones_are_none() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            format!("00-{TRACE}-{PARENT}"),
            format!("00-{TRACE}-{PARENT}-01-more"),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("00-{zeros}-{PARENT}-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{PARENT}-1"),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
