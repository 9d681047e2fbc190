//! Messages that cannot be read, and yet were plainly meant to answer a request.
//!
//! Real servers write `NaN` where JSON has no such number, text in Latin-1, or a member twice. Whoever waits for such an
//! answer is to be told, not left waiting. Nothing of it is passed on: only the id of the request is looked for, at the
//! object's first level, in one pass that keeps nothing. What has a method, names no id or several, or has neither
//! result nor error, was not plainly an answer.

use serde_json::value::RawValue;

use super::jsonrpc::{ID_BYTES_MAX, UpstreamId};
use super::object::RawObject;

/// The request that was meant to be answered by what is no JSON-RPC message.
#[must_use]
pub fn answered(message: &[u8]) -> Option<UpstreamId> {
    match RawObject::parse(message) {
        Ok(members) if members.member("method").is_none() => {
            members.member("id").and_then(UpstreamId::of)
        }
        Ok(_) => None,
        Err(_) => answered_somehow(message),
    }
}

/// The same of what is no JSON, or names a member twice.
fn answered_somehow(text: &[u8]) -> Option<UpstreamId> {
    if text.first() != Some(&b'{') {
        return None;
    }
    let (mut id, mut has_outcome) = (None, false);
    let (mut at, mut depth, mut word) = (0, 0_usize, None);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                let Some(length) = string_length(&text[at + 1..]) else {
                    break;
                };
                word = (depth == 1).then(|| &text[at + 1..][..length]);
                at += length + 1;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 1 => break,
            b'}' | b']' => depth -= 1,
            b':' if depth == 1 => match word.take() {
                Some(b"id") => {
                    let named = named(&text[at + 1..])?;
                    if *id.get_or_insert(named) != named {
                        return None;
                    }
                }
                Some(b"method") => return None,
                Some(b"result" | b"error") => has_outcome = true,
                Some(_) | None => {}
            },
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => word = None,
        }
        at += 1;
    }
    id.filter(|_| has_outcome)
}

/// How long a string is whose opening quote stands before `text`; nothing if it does not end.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    text.iter().position(|byte| match byte {
        _ if std::mem::take(&mut is_escaped) => false,
        b'\\' => {
            is_escaped = true;
            false
        }
        byte => *byte == b'"',
    })
}

/// The id with which `text` begins. Without what has to follow it, it may have been cut.
fn named(text: &[u8]) -> Option<UpstreamId> {
    let mut bytes = text.iter().take(ID_BYTES_MAX);
    let end = bytes.position(|byte| matches!(byte, b',' | b'}'))?;
    let raw: &RawValue = serde_json::from_slice(&text[..end]).ok()?;
    UpstreamId::of(raw)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(message: impl AsRef<[u8]>, expected: Option<u64>) {
        let message = message.as_ref();
        let text = String::from_utf8_lossy(message);
        assert_eq!(answered(message), expected.map(UpstreamId), "{text}");
    }

    #[test]
    fn the_id_of_an_answer_that_cannot_be_read_is_found() {
        for message in [
            r#"{"jsonrpc":"2.0","id":3,"result":{"v":NaN}}"#,
            r#"{"jsonrpc":"2.0","id":"3","error":{"code":1,"message":"a","data":Infinity}}"#,
            r#"{ "result" : [ { "id": 4, "method": "m" }, NaN ] , "id" : 3 }"#,
            r#"{"jsonrpc":"2.0","id":3,"result":{"text":"\"}{\\"},"id":3}"#,
            r#"{"jsonrpc":"2.0","id":3,"result":{},"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"text":"cut he"#,
            r#"{"id":3,"result":{}} and more"#,
        ] {
            check(message, Some(3));
        }
        check(b"{\"id\":3,\"result\":{\"text\":\"caf\xe9\"}}", Some(3));
        // What can be read says itself whether it is one.
        check(r#"{"jsonrpc":"1.0","id":3}"#, Some(3));
    }

    #[test]
    fn what_was_not_plainly_an_answer_answers_nothing() {
        for message in [
            "",
            "{",
            "{not json",
            r#"[{"id":3,"result":NaN}]"#,
            r#"INFO {"id":3,"result":NaN}"#,
            r#"{"id":3,"v":NaN}"#,
            r#"{"result":NaN}"#,
            r#"{"id":3,"result":NaN,"id":4}"#,
            r#"{"id":3,"result":NaN,"method":"m"}"#,
            r#"{"id":3,"id":3,"method":"m","result":1}"#,
            r#"{"id":3.5,"result":NaN}"#,
            r#"{"id":null,"error":NaN}"#,
            r#"{"a":{"id":3,"result":NaN}}"#,
            r#"{"a":["id":3,"result":NaN]}"#,
            r#"{"a":"\"id\":3,\"result\":","b":NaN}"#,
            r#"{"result":{},"id":12"#,
            r#"{"jsonrpc":"2.0","id":3,"params":{"text":"he said "hi", he did"}"#,
        ] {
            check(message, None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_through(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = answered(&bytes);
        }

        #[test]
        fn anything_like_json_is_looked_through(text in "\\{[{}\\[\\]\",:0-3\\\\a ]{0,60}") {
            let _ = answered(text.as_bytes());
        }
    }
}
