//! `server/discover`, answered from a legacy session's `InitializeResult`.
//!
//! Spec: 2026-07-28 server/discover; 2025-11-25 basic/lifecycle.

use serde_json::value::RawValue;

use super::result::{CacheHints, push_meta};
use crate::wire::modern;
use crate::wire::object::{self, RawObject};

/// What a legacy server said of itself in its `InitializeResult`, as raw JSON.
#[derive(Clone, Debug, Default)]
pub struct ServerIdentity {
    /// The revision it picked.
    pub protocol_version: Box<str>,
    /// Its `ServerCapabilities`.
    pub capabilities: Option<Box<RawValue>>,
    /// Its `Implementation`.
    pub server_info: Option<Box<RawValue>>,
    /// Its `instructions`.
    pub instructions: Option<Box<RawValue>>,
}

impl ServerIdentity {
    /// Reads an `InitializeResult`; `None` when it lacks a protocol version.
    #[must_use]
    pub fn parse(result: &RawValue) -> Option<Self> {
        let members = RawObject::of(result).ok()?;
        let owned = |name: &str| members.member(name).map(RawValue::to_owned);
        Some(Self {
            protocol_version: members.string("protocolVersion")?.into(),
            capabilities: owned("capabilities").filter(|raw| object::is_object(raw)),
            server_info: owned("serverInfo").filter(|raw| object::is_object(raw)),
            instructions: owned("instructions").filter(|raw| object::string(raw).is_some()),
        })
    }

    /// Whether the server declared capability `name`.
    #[must_use]
    pub fn declares(&self, name: &str) -> bool {
        self.capabilities
            .as_deref()
            .and_then(|raw| RawObject::of(raw).ok())
            .is_some_and(|declared| declared.member(name).is_some_and(object::is_object))
    }
}

/// The `DiscoverResult`. Capability `tasks` is dropped: it belongs to the legacy era alone.
#[must_use]
pub fn discover_result(identity: &ServerIdentity, hints: CacheHints) -> Vec<u8> {
    let mut out = br#"{"resultType":"complete""#.to_vec();
    hints.push(&mut out);
    let versions = format!("[\"{}\"]", modern::PROTOCOL_VERSION);
    object::push_member(&mut out, "supportedVersions", versions.as_bytes());
    let mut capabilities = b"{".to_vec();
    let declared = identity
        .capabilities
        .as_deref()
        .and_then(|raw| RawObject::of(raw).ok());
    for (key, value) in declared
        .unwrap_or_default()
        .iter()
        .filter(|(key, _)| *key != "tasks")
    {
        object::push_member(&mut capabilities, key, value.get().as_bytes());
    }
    capabilities.push(b'}');
    object::push_member(&mut out, "capabilities", &capabilities);
    if let Some(instructions) = &identity.instructions {
        object::push_member(&mut out, "instructions", instructions.get().as_bytes());
    }
    push_meta(&mut out, None, identity.server_info.as_deref());
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_says_what_initialize_said() {
        let raw: Box<RawValue> = serde_json::from_str(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"tasks":{},"logging":{}},"serverInfo":{"name":"s","version":"1"},"instructions":"Be kind."}"#,
        )
        .unwrap();
        let identity = ServerIdentity::parse(&raw).unwrap();
        assert!(identity.declares("logging") && !identity.declares("prompts"));
        assert_eq!(
            String::from_utf8(discover_result(&identity, CacheHints::default())).unwrap(),
            r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"logging":{}},"instructions":"Be kind.","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#
        );
    }

    #[test]
    fn a_silent_server_still_yields_a_result() {
        let raw: Box<RawValue> = serde_json::from_str(r#"{"protocolVersion":"x"}"#).unwrap();
        let identity = ServerIdentity::parse(&raw).unwrap();
        assert!(
            discover_result(&identity, CacheHints::default()).ends_with(br#""capabilities":{}}"#)
        );
        let raw: Box<RawValue> = serde_json::from_str("{}").unwrap();
        assert!(ServerIdentity::parse(&raw).is_none());
    }
}
