//! Notifications of a legacy server that concern one call, for the leg that is waiting.
//!
//! Spec: 2026-07-28 basic/patterns/progress, server/utilities/logging.

use serde_json::json;
use serde_json::value::RawValue;

use crate::wire::jsonrpc::{self, UpstreamId};
use crate::wire::legacy;
use crate::wire::modern::{self, LogLevel};
use crate::wire::object::{self, RawObject};

/// Whether progress `params` are about the request `id` (whose token is its id).
#[must_use]
pub fn is_progress_of(params: Option<&RawValue>, id: UpstreamId) -> bool {
    params
        .and_then(|raw| RawObject::of(raw).ok())
        .and_then(|members| members.member(modern::META_PROGRESS_TOKEN))
        .is_some_and(|token| id.matches(token))
}

/// The progress notification with the token that the leg chose; `None` when the params are no object.
#[must_use]
pub fn progress(params: &RawValue, token: &RawValue) -> Option<Vec<u8>> {
    let members = RawObject::of(params).ok()?;
    let mut out = b"{".to_vec();
    for (key, value) in members.iter() {
        let value = if key == modern::META_PROGRESS_TOKEN {
            token
        } else {
            value
        };
        object::push_member(&mut out, key, value.get().as_bytes());
    }
    out.push(b'}');
    Some(jsonrpc::notification(legacy::PROGRESS, Some(&out)))
}

/// How far things are, as progress `params` say.
#[must_use]
pub fn progress_of(params: &RawValue) -> Option<f64> {
    let members = RawObject::of(params).ok()?;
    members.member("progress")?.get().parse().ok()
}

/// The level of a log message; `None` when it has none that both eras know.
#[must_use]
pub fn level(params: Option<&RawValue>) -> Option<LogLevel> {
    let members = RawObject::of(params?).ok()?;
    LogLevel::named(&members.string("level")?)
}

/// The log notification as it goes to a leg: unchanged.
#[must_use]
pub fn message(params: &RawValue) -> Vec<u8> {
    jsonrpc::notification(legacy::MESSAGE, Some(params.get().as_bytes()))
}

/// What tells a server that nobody waits for its answer to the request `id` any more.
#[must_use]
pub fn cancelled(id: UpstreamId, reason: &str) -> Vec<u8> {
    let params = json!({"requestId": id.0, "reason": reason}).to_string();
    jsonrpc::notification(legacy::CANCELLED, Some(params.as_bytes()))
}

/// The id that a server's `notifications/cancelled` names.
#[must_use]
pub fn cancelled_id(params: Option<&RawValue>) -> Option<&RawValue> {
    RawObject::of(params?).ok()?.member("requestId")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn progress_takes_the_token_of_the_leg() {
        let params = raw(r#"{"progressToken":7,"progress":0.50,"total":1,"message":"m"}"#);
        assert!(is_progress_of(Some(&params), UpstreamId(7)));
        assert!(!is_progress_of(Some(&params), UpstreamId(8)));
        assert!(!is_progress_of(None, UpstreamId(7)));
        let out = progress(&params, &raw(r#""leg-2""#)).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"leg-2","progress":0.50,"total":1,"message":"m"}}"#
        );
    }

    #[test]
    fn levels_are_ordered_and_unknown_ones_have_none() {
        assert_eq!(
            level(Some(&raw(r#"{"level":"warning","data":1}"#))),
            Some(LogLevel::Warning)
        );
        assert_eq!(level(Some(&raw(r#"{"level":"loud"}"#))), None);
        assert!(LogLevel::Debug < LogLevel::Emergency);
    }
}
