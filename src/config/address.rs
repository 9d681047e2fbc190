//! Addresses to listen on in the file form.

use std::fmt;
use std::net::SocketAddr;

use serde::Deserializer;
use serde::de::{Error, Visitor};

struct AddressVisitor;

impl Visitor<'_> for AddressVisitor {
    type Value = SocketAddr;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an IP address and a port, such as \"127.0.0.1:8080\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SocketAddr, E> {
        let why = "must be an IP address and a port, such as \"127.0.0.1:8080\"";
        text.parse().map_err(|_| E::custom(why))
    }
}

/// An IP address and a port: names are not looked up.
pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    deserializer.deserialize_str(AddressVisitor)
}

/// The same, of a field that may be missing.
pub(super) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    address(deserializer).map(Some)
}
