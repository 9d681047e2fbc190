//! JSON-RPC 2.0 messages as both eras use them.
//!
//! Ids of different owners never share a type: [`ClientId`] is what a modern client chose, [`UpstreamId`]
//! what holdfast chose towards a server, [`ServerId`] what a legacy server chose for a request of its own.
//! Spec: 2026-07-28 basic/index, "Messages"; 2025-11-25 basic/index.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::error::{ErrorObject, INVALID_REQUEST};
use super::object::{self, RawObject};

/// Bounds the text of a peer's id. Ids are echoed in every answer and kept while a call lives; the real
/// ones are counters and UUIDs, so 256 bytes are generous.
pub const ID_BYTES_MAX: usize = 256;

/// Bounds the messages of one batch. An entry of two bytes costs 48 while its batch is read, and each travels alone; real
/// batches are answers to batches, which holdfast never sends, or a handful of notifications.
pub const BATCH_ENTRIES_MAX: usize = 1024;

/// The id a modern client gave its request: raw JSON, a string or an integer, echoed byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientId(Box<str>);

/// The id holdfast gives a request it sends to a legacy server; unique within a session.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct UpstreamId(pub u64);

/// The id a legacy server gave a request of its own: raw JSON, echoed byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ServerId(Box<str>);

/// Whether `raw` may be a request id: a string, or an integer without fraction and exponent.
fn is_id(raw: &str) -> bool {
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    raw.len() <= ID_BYTES_MAX
        && (raw.starts_with('"')
            || (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())))
}

impl ClientId {
    /// Takes a raw id if it is a string or an integer of bounded length.
    #[must_use]
    pub fn new(raw: &RawValue) -> Option<Self> {
        is_id(raw.get()).then(|| Self(raw.get().into()))
    }

    /// The id as it stands in JSON.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl ServerId {
    /// Takes a raw id if it is a string or an integer of bounded length.
    #[must_use]
    pub fn new(raw: &RawValue) -> Option<Self> {
        is_id(raw.get()).then(|| Self(raw.get().into()))
    }

    /// The id as it stands in JSON.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

impl UpstreamId {
    /// The id that a raw id or progress token is, written as a number or (some servers) as a string.
    #[must_use]
    pub fn of(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let text = text
            .strip_prefix('"')
            .and_then(|t| t.strip_suffix('"'))
            .unwrap_or(text);
        text.parse().ok().map(Self)
    }

    /// Whether a raw id or progress token is this id.
    #[must_use]
    pub fn matches(self, raw: &RawValue) -> bool {
        Self::of(raw) == Some(self)
    }
}

impl fmt::Display for UpstreamId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// One JSON-RPC message, its payload raw.
#[derive(Debug)]
pub enum Message<'a> {
    /// A request: it has a method and an id.
    Request {
        /// The sender's id, not yet checked.
        id: &'a RawValue,
        /// The method.
        method: Cow<'a, str>,
        /// The params, if any.
        params: Option<&'a RawValue>,
    },
    /// A notification: it has a method and no id.
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The params, if any.
        params: Option<&'a RawValue>,
    },
    /// A response with a result.
    Result {
        /// The id of the request it answers.
        id: &'a RawValue,
        /// The result.
        result: &'a RawValue,
    },
    /// A response with an error; real servers answer some with `null` or no id.
    Error {
        /// The id of the request it answers, if it could be read there.
        id: Option<&'a RawValue>,
        /// The error.
        error: ErrorObject,
    },
}

/// Why bytes are not a JSON-RPC message.
#[derive(Debug, thiserror::Error)]
pub enum NotAMessage {
    /// The bytes are not one JSON object.
    #[error("not one JSON object")]
    Json(#[from] serde_json::Error),
    /// They are an array that [`batch`] did not split.
    #[error("a batch that is broken, or has more than {BATCH_ENTRIES_MAX} messages")]
    Batch,
    /// `jsonrpc` is not `"2.0"`.
    #[error("member `jsonrpc` is not \"2.0\"")]
    Version,
    /// `method` is there but no string.
    #[error("member `method` is not a string")]
    Method,
    /// Neither a method nor a result nor an error.
    #[error("neither a request nor a response")]
    Shape,
    /// `error` is not an error object.
    #[error("member `error` is not a JSON-RPC error object")]
    Error,
}

impl<'a> Message<'a> {
    /// Reads one message.
    ///
    /// # Errors
    /// When the bytes are not one JSON-RPC 2.0 message. Batches (arrays) are split by [`batch`] before.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, NotAMessage> {
        if is_array(bytes) {
            return Err(NotAMessage::Batch);
        }
        Self::of(&RawObject::parse(bytes)?)
    }

    /// Reads one message from an object that was parsed before.
    ///
    /// # Errors
    /// As [`Message::parse`].
    pub fn of(object: &RawObject<'a>) -> Result<Self, NotAMessage> {
        if object.string("jsonrpc").as_deref() != Some("2.0") {
            return Err(NotAMessage::Version);
        }
        let id = object.member("id");
        if let Some(method) = object.member("method") {
            let method = object::string(method).ok_or(NotAMessage::Method)?;
            let params = object.member("params");
            return Ok(match id {
                Some(id) => Self::Request { id, method, params },
                None => Self::Notification { method, params },
            });
        }
        // Some libraries always write both members, one of them as null.
        let error = object
            .member("error")
            .filter(|error| !object::is_null(error));
        if let Some(error) = error {
            let error = ErrorObject::parse(error).ok_or(NotAMessage::Error)?;
            return Ok(Self::Error {
                id: id.filter(|id| !object::is_null(id)),
                error,
            });
        }
        match (id, object.member("result")) {
            (Some(id), Some(result)) => Ok(Self::Result { id, result }),
            _ => Err(NotAMessage::Shape),
        }
    }
}

/// The message without the byte order mark that some libraries write before their first, or each.
#[must_use]
pub fn unmarked(message: &[u8]) -> &[u8] {
    message.strip_prefix(b"\xef\xbb\xbf").unwrap_or(message)
}

/// Splits a batch (revision 2025-03-26 lets servers send arrays) into its messages; anything else is one
/// message and comes back as it is, without a byte order mark. So does a batch of too many, which is not read on:
/// [`Message::parse`] refuses it.
#[must_use]
pub fn batch(message: Bytes) -> Vec<Bytes> {
    let message = message.slice_ref(unmarked(&message));
    if !is_array(&message) {
        return vec![message];
    }
    match serde_json::from_slice::<Batch<'_>>(&message) {
        Ok(Batch(entries)) => entries
            .iter()
            .map(|raw| message.slice_ref(raw.get().as_bytes()))
            .collect(),
        Err(_) => vec![message],
    }
}

fn is_array(message: &[u8]) -> bool {
    message.trim_ascii_start().first() == Some(&b'[')
}

/// The entries of a batch.
struct Batch<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Batch<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BatchVisitor;
        impl<'de> Visitor<'de> for BatchVisitor {
            type Value = Batch<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "an array of at most {BATCH_ENTRIES_MAX}")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = seq.next_element()? {
                    if entries.len() == BATCH_ENTRIES_MAX {
                        return Err(A::Error::invalid_length(entries.len() + 1, &self));
                    }
                    entries.push(entry);
                }
                Ok(Batch(entries))
            }
        }
        deserializer.deserialize_seq(BatchVisitor)
    }
}

/// A request as it goes to a server. `params` is a complete JSON object.
#[must_use]
pub fn request(id: UpstreamId, method: &str, params: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.len() + method.len() + 64);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.to_string().as_bytes());
    out.extend_from_slice(br#","method":"#);
    object::push_string(&mut out, method);
    out.extend_from_slice(br#","params":"#);
    out.extend_from_slice(params);
    out.push(b'}');
    out
}

/// A notification. `params` is a complete JSON object.
#[must_use]
pub fn notification(method: &str, params: Option<&[u8]>) -> Vec<u8> {
    let mut out = br#"{"jsonrpc":"2.0","method":"#.to_vec();
    object::push_string(&mut out, method);
    if let Some(params) = params {
        out.extend_from_slice(br#","params":"#);
        out.extend_from_slice(params);
    }
    out.push(b'}');
    out
}

/// The result that answers a server's own request.
#[must_use]
pub fn result(id: &ServerId, result: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
        id.as_json()
    )
    .into_bytes()
}

/// The error that answers a server's own request.
#[must_use]
pub fn error(id: &ServerId, error: &ErrorObject) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{}}}"#,
        id.as_json(),
        error.to_json()
    )
    .into_bytes()
}

/// The error that answers a server's own request under what is no usable id: as it came where it is bounded, so that
/// its server may know it again, else null.
#[must_use]
pub fn unusable_id(id: &RawValue) -> Vec<u8> {
    let id = Some(id.get()).filter(|id| id.len() <= ID_BYTES_MAX);
    let why = "the id is no string and no integer, or too long";
    error(
        &ServerId(id.unwrap_or("null").into()),
        &ErrorObject::new(INVALID_REQUEST, why),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind(text: &str) -> &'static str {
        match Message::parse(text.as_bytes()) {
            Ok(Message::Request { .. }) => "request",
            Ok(Message::Notification { .. }) => "notification",
            Ok(Message::Result { .. }) => "result",
            Ok(Message::Error { .. }) => "error",
            Err(_) => "refused",
        }
    }

    #[test]
    fn messages_are_told_apart() {
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "request"),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/x","params":{}}"#,
                "notification",
            ),
            (r#"{"jsonrpc":"2.0","id":"a","result":{}}"#, "result"),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}"#,
                "error",
            ),
            (
                r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}"#,
                "error",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"error":"m"}"#, "error"),
            (r#"{"jsonrpc":"2.0","id":1,"error":7}"#, "refused"),
            (r#"{"jsonrpc":"2.0","id":1,"error":null}"#, "refused"),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#,
                "result",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-1,"message":"m"}}"#,
                "error",
            ),
            (r#"{"jsonrpc":"2.0","result":{}}"#, "refused"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "refused"),
            (r#"{"id":1,"method":"ping"}"#, "refused"),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "refused"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "refused"),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn ids_are_strings_or_integers() {
        let long = format!("\"{}\"", "x".repeat(ID_BYTES_MAX));
        for (raw, ok) in [
            ("1", true),
            ("-7", true),
            (r#""a b""#, true),
            ("null", false),
            ("1.0", false),
            ("1e3", false),
            ("true", false),
            ("{}", false),
            (long.as_str(), false),
        ] {
            let value: &RawValue = serde_json::from_str(raw).unwrap();
            assert_eq!(ClientId::new(value).is_some(), ok, "{raw}");
        }
    }

    #[test]
    fn a_request_under_no_usable_id_is_refused_under_it_while_it_is_short() {
        let long = format!("\"{}\"", "x".repeat(ID_BYTES_MAX));
        for (id, expected) in [
            ("1.5", "1.5"),
            ("null", "null"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (long.as_str(), "null"),
        ] {
            let answer = unusable_id(serde_json::from_str(id).unwrap());
            let Ok(Message::Error { error, .. }) = Message::parse(&answer) else {
                panic!("{id}");
            };
            assert_eq!(error.code, INVALID_REQUEST);
            let members = RawObject::parse(&answer).unwrap();
            assert_eq!(members.member("id").unwrap().get(), expected);
        }
    }

    #[test]
    fn an_upstream_id_is_recognised_as_number_and_as_string() {
        for (raw, ok) in [
            ("7", true),
            (r#""7""#, true),
            ("8", false),
            (r#""seven""#, false),
            ("null", false),
        ] {
            let value: &RawValue = serde_json::from_str(raw).unwrap();
            assert_eq!(UpstreamId(7).matches(value), ok, "{raw}");
        }
    }

    #[test]
    fn batches_are_split_and_single_messages_kept() {
        let parts = batch(Bytes::from_static(b" [ {\"a\":1} , {\"b\":[2]} ]"));
        assert_eq!(parts, [&b"{\"a\":1}"[..], &b"{\"b\":[2]}"[..]]);
        assert_eq!(batch(Bytes::from_static(b"{\"a\":1}")).len(), 1);
        assert_eq!(batch(Bytes::from_static(b"[broken")).len(), 1);
        assert_eq!(batch(Bytes::from_static(b"\xef\xbb\xbf{}")), ["{}"]);
        assert_eq!(
            batch(Bytes::from_static(b"\xef\xbb\xbf[{}, 1]")),
            ["{}", "1"]
        );
    }

    #[test]
    fn a_batch_of_too_many_stays_whole_and_is_no_message() {
        let of = |count: usize| Bytes::from(format!("[{}]", vec!["1"; count].join(",")));
        assert_eq!(batch(of(BATCH_ENTRIES_MAX)).len(), BATCH_ENTRIES_MAX);
        let too_many = of(BATCH_ENTRIES_MAX + 1);
        assert_eq!(batch(too_many.clone()), [&too_many]);
        let refused = Message::parse(&too_many);
        assert!(matches!(refused, Err(NotAMessage::Batch)), "{refused:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_yield_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::parse(&bytes);
            let _ = batch(Bytes::from(bytes));
        }
    }
}
