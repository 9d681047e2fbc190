//! One level of a JSON object, its values left raw.
//!
//! Parsing an object this way validates all of its text (RFC 8259, UTF-8) and allocates one list, however
//! large the values are. Objects that name a member twice are refused: which of the two counts is
//! undefined, and two readers on the way of a payment confirmation must not disagree.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Up to this many members duplicates are searched pairwise, beyond it by a set. Sixteen covers every
/// object the protocol itself defines; a hostile object of a million members must not cost its square.
const PAIRWISE_MEMBERS_MAX: usize = 16;

/// The members of one JSON object in the order they were written.
#[derive(Debug, Default)]
pub struct RawObject<'a> {
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> RawObject<'a> {
    /// Reads `bytes` as exactly one JSON object.
    ///
    /// # Errors
    /// When the text is not JSON, not an object, or names a member twice.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Reads a raw value as an object.
    ///
    /// # Errors
    /// When the value is not an object or names a member twice.
    pub fn of(raw: &'a RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str(raw.get())
    }

    /// The value of member `name`, also when it is `null`.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&'a RawValue> {
        self.members
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| *value)
    }

    /// The value of member `name` when it is a JSON string.
    #[must_use]
    pub fn string(&self, name: &str) -> Option<Cow<'a, str>> {
        self.member(name).and_then(string)
    }

    /// All members in the order they were written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.members
            .iter()
            .map(|(key, value)| (key.as_ref(), *value))
    }

    /// Whether the object has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

/// The text of a raw value that is a JSON string; `None` for every other kind.
#[must_use]
pub fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Text<'_>>(raw.get())
        .ok()
        .map(|text| text.0)
}

/// Whether a raw value is a JSON object, judged by its first character (raw values are valid JSON).
#[must_use]
pub fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

/// Whether a raw value is JSON `null`.
#[must_use]
pub fn is_null(raw: &RawValue) -> bool {
    raw.get() == "null"
}

/// The value with sorted keys and without white space, so that the same value in another order reads the same.
/// Numbers stay as they are written. What is nested deeper than `CANONICAL_DEPTH_MAX`, or names a member twice,
/// stands for itself.
#[must_use]
pub fn canonical(raw: &RawValue) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.get().len());
    push_canonical(&mut out, raw, CANONICAL_DEPTH_MAX);
    out
}

/// Each level is read once more by the one above it. Real arguments have a handful.
const CANONICAL_DEPTH_MAX: usize = 32;

fn push_canonical(out: &mut Vec<u8>, raw: &RawValue, depth_left: usize) {
    let (text, below) = (raw.get(), depth_left.checked_sub(1));
    match (text.as_bytes().first(), below) {
        (Some(b'{'), Some(below)) => {
            if let Ok(members) = RawObject::of(raw) {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_unstable_by_key(|(key, _)| *key);
                out.push(b'{');
                for (key, value) in members {
                    push_string(out, key);
                    out.push(b':');
                    push_canonical(out, value, below);
                    out.push(b',');
                }
                return out.push(b'}');
            }
        }
        (Some(b'['), Some(below)) => {
            if let Ok(values) = serde_json::from_str::<Vec<&RawValue>>(text) {
                out.push(b'[');
                for value in values {
                    push_canonical(out, value, below);
                    out.push(b',');
                }
                return out.push(b']');
            }
        }
        (Some(b'"'), _) => {
            if let Some(text) = string(raw) {
                return push_string(out, &text);
            }
        }
        _ => {}
    }
    out.extend_from_slice(text.as_bytes());
}

/// An object with one member, a string.
#[must_use]
pub fn of_string(key: &str, text: &str) -> Vec<u8> {
    let (mut out, mut value) = (b"{".to_vec(), Vec::new());
    push_string(&mut value, text);
    push_member(&mut out, key, &value);
    out.push(b'}');
    out
}

/// Appends one member to an object under construction: a comma unless it is the first, the key, the value.
pub fn push_member(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    if out.last().is_some_and(|last| *last != b'{') {
        out.push(b',');
    }
    push_string(out, key);
    out.push(b':');
    out.extend_from_slice(value);
}

/// Appends `text` as a JSON string.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    if text
        .bytes()
        .all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\')
    {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Serializing a string into a vector has no way to fail.
        out.extend_from_slice(serde_json::Value::from(text).to_string().as_bytes());
    }
}

/// A string that borrows from the input when it holds no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = RawObject<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                // Five: a request envelope has four members, most params two or three.
                let mut members: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::with_capacity(5);
                while let Some(Text(key)) = map.next_key()? {
                    members.push((key, map.next_value()?));
                }
                if let Some(key) = duplicate(&members) {
                    return Err(A::Error::custom(format_args!(
                        "member {key:?} appears twice"
                    )));
                }
                Ok(RawObject { members })
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

fn duplicate<'m>(members: &'m [(Cow<'_, str>, &RawValue)]) -> Option<&'m str> {
    if members.len() <= PAIRWISE_MEMBERS_MAX {
        return members.iter().enumerate().find_map(|(at, (key, _))| {
            members[..at]
                .iter()
                .any(|(earlier, _)| earlier == key)
                .then_some(key.as_ref())
        });
    }
    let mut seen = HashSet::with_capacity(members.len());
    members
        .iter()
        .map(|(key, _)| key.as_ref())
        .find(|key| !seen.insert(*key))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Option<&[(&str, &str)]>) {
        let parsed = RawObject::parse(text.as_bytes()).ok().map(|object| {
            object
                .iter()
                .map(|(key, value)| (key.to_owned(), value.get().to_owned()))
                .collect::<Vec<_>>()
        });
        let expected = expected.map(|members| {
            members
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect::<Vec<_>>()
        });
        assert_eq!(parsed, expected, "{text}");
    }

    #[test]
    fn members_keep_their_order_and_their_bytes() {
        check("{}", Some(&[]));
        check(
            r#"{"b":1.0,"a":{ "x" : 1e400 }}"#,
            Some(&[("b", "1.0"), ("a", r#"{ "x" : 1e400 }"#)]),
        );
        check(r#"{"a":null}"#, Some(&[("a", "null")]));
        check(r#"{"\u0061":1}"#, Some(&[("a", "1")]));
    }

    #[test]
    fn what_is_not_one_object_is_refused() {
        for text in [
            "",
            "[]",
            "1",
            "{",
            r#"{"a":1"#,
            r#"{"a":1}x"#,
            r#"{"a":}"#,
            "{\"a\":\"\u{1}\"}",
        ] {
            check(text, None);
        }
        assert!(RawObject::parse(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn a_member_named_twice_is_refused() {
        check(r#"{"a":1,"a":1}"#, None);
        check(r#"{"a":1,"\u0061":2}"#, None);
        let many: Vec<String> = (0..40).map(|n| format!("\"k{}\":0", n % 39)).collect();
        check(&format!("{{{}}}", many.join(",")), None);
    }

    proptest! {
        #[test]
        fn pushed_members_are_read_back(members in prop::collection::hash_map(".*", ".*", 0..40)) {
            let mut text = b"{".to_vec();
            for (key, value) in &members {
                let mut raw = Vec::new();
                push_string(&mut raw, value);
                push_member(&mut text, key, &raw);
            }
            text.push(b'}');
            let object = RawObject::parse(&text).unwrap();
            for (key, value) in &members {
                prop_assert_eq!(object.string(key).unwrap(), value.as_str());
            }
        }

        #[test]
        fn any_bytes_yield_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = RawObject::parse(&bytes);
        }
    }
}
