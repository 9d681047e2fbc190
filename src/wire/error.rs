//! JSON-RPC error objects and the codes both eras define.
//!
//! Spec: 2026-07-28 basic/index, "Error Codes"; 2025-11-25 schema.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Invalid JSON was received.
pub const PARSE_ERROR: i64 = -32700;
/// The JSON sent is not a valid request.
pub const INVALID_REQUEST: i64 = -32600;
/// The method does not exist or is not available.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The params of the method are invalid.
pub const INVALID_PARAMS: i64 = -32602;
/// Something failed on this side.
pub const INTERNAL_ERROR: i64 = -32603;
/// Modern: headers and body disagree, or a required header is missing.
pub const HEADER_MISMATCH: i64 = -32020;
/// Modern: the request needs a capability that the client did not declare.
pub const MISSING_CLIENT_CAPABILITY: i64 = -32021;
/// Modern: the protocol version is not served here.
pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;
/// Legacy: resource not found; never emitted towards a modern client.
pub const LEGACY_RESOURCE_NOT_FOUND: i64 = -32002;
/// Legacy (2025-11-25): url elicitations are needed first; never emitted towards a modern client.
pub const LEGACY_URL_ELICITATION_REQUIRED: i64 = -32042;

/// A JSON-RPC error: code, message, and data that is kept as raw JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorObject {
    /// What kind of error it is.
    pub code: i64,
    /// One sentence about it.
    pub message: String,
    /// Anything more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl ErrorObject {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The same error with `data`.
    #[must_use]
    pub fn with_data(mut self, data: &Value) -> Self {
        self.data = serde_json::value::to_raw_value(data).ok();
        self
    }

    /// Reads an error object; `None` when it has no integer code and no message.
    #[must_use]
    pub fn parse(raw: &RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// The error as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = format!(r#"{{"code":{},"message":"#, self.code);
        out.push_str(&Value::from(self.message.as_str()).to_string());
        if let Some(data) = &self.data {
            out.push_str(r#","data":"#);
            out.push_str(data.get());
        }
        out.push('}');
        out
    }
}
