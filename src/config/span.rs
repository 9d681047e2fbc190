//! Spans of time in the file form.

use std::time::Duration;

use humantime::format_duration;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The longest span: ten years, which no process lives. Moments that are so far away can still be told, and spans be added
/// up and multiplied.
const SPAN_MAX: Duration = Duration::from_secs(10 * 31_557_600);

/// A duration as people write it: `45s`, `10m`, `250ms`.
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match humantime::parse_duration(&text) {
            Ok(span) if span > SPAN_MAX => Err(Error::custom(format_args!(
                "must be at most {}",
                format_duration(SPAN_MAX)
            ))),
            Ok(span) => Ok(Self(span)),
            Err(error) => Err(Error::custom(error)),
        }
    }
}
