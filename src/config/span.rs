//! Spans of time in the file form.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// A duration as people write it: `45s`, `10m`, `250ms`.
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}
