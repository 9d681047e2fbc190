//! The headers by which a server knows on whose behalf, and in which revision, a session speaks.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::upstream::access::Credentials;
use crate::wire::{header, legacy};

/// What each message of a session carries besides what the transport wants.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct SessionHeaders {
    credentials: Credentials,
    /// `MCP-Protocol-Version`, after the handshake and from 2025-06-18 on.
    protocol_version: Option<HeaderValue>,
}

impl SessionHeaders {
    /// Those of a session that is yet to be opened.
    pub(in crate::upstream) fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            protocol_version: None,
        }
    }

    /// Whether the backend's own token goes to the server instead of the client's.
    pub(in crate::upstream) fn has_own(&self) -> bool {
        self.credentials.is_own
    }

    /// From now on it speaks with these credentials of its caller: a refreshed token reaches the server.
    pub(in crate::upstream) fn renew(&mut self, caller: Option<&HeaderValue>) {
        if !self.credentials.is_own && self.credentials.value.as_ref() != caller {
            self.credentials.value = caller.cloned();
        }
    }

    /// Takes in which revision the server picked.
    pub(in crate::upstream) fn speaks(&mut self, revision: &str) {
        if revision >= legacy::FIRST_WITH_VERSION_HEADER {
            self.protocol_version = HeaderValue::from_str(revision).ok();
        }
    }

    /// Adds them to those of a message.
    pub(in crate::upstream) fn add_to(&self, headers: &mut HeaderMap) {
        let version = HeaderName::from_static(header::PROTOCOL_VERSION);
        for (name, value) in [
            (version, &self.protocol_version),
            (AUTHORIZATION, &self.credentials.value),
        ] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
    }
}
