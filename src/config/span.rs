//! Spans of time in the file form.

use std::fmt;
use std::time::Duration;

use humantime::format_duration;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// The longest span: ten years, which no process lives. Moments that are so far away can still be told, and spans be added
/// up and multiplied.
const SPAN_MAX: Duration = Duration::from_secs(10 * 31_557_600);

/// A duration as people write it: `45s`, `10m`, `250ms`.
pub(super) struct Span(pub(super) Duration);

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration with its unit, such as \"10s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        match humantime::parse_duration(text) {
            Ok(span) if span > SPAN_MAX => Err(E::custom(format_args!(
                "must be at most {}",
                format_duration(SPAN_MAX)
            ))),
            Ok(span) => Ok(Span(span)),
            Err(error) => Err(E::custom(error)),
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(SpanVisitor)
    }
}
