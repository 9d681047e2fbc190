//! No translation loses, changes or reorders what it does not own, whatever that is: bytes, order, white space.

use holdfast::translate::input_request::InputRequest;
use holdfast::translate::result::{CacheHints, complete, with_ttl};
use holdfast::translate::subscription::Change;
use holdfast::translate::{notification, request};
use holdfast::wire::jsonrpc::{ClientId, Message, UpstreamId};
use holdfast::wire::modern::Method;
use holdfast::wire::object::RawObject;
use proptest::prelude::*;
use serde_json::value::RawValue;

/// JSON as nobody's serializer would write it.
fn json() -> impl Strategy<Value = String> {
    let number = "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?";
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        number.prop_map(|number| number),
        text(),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            list.prop_map(|values| format!("[ {} ]", values.join(" ,\t"))),
            prop::collection::vec((text(), inner), 0..4).prop_map(|members| {
                let mut seen = std::collections::HashSet::new();
                let members = members
                    .into_iter()
                    .filter(|(key, _)| seen.insert(key.clone()));
                let members: Vec<_> = members
                    .map(|(key, value)| format!("{key} : {value}"))
                    .collect();
                format!("{{{}}}", members.join(",\n"))
            }),
        ]
    })
}

/// A string with escapes that could have been written otherwise.
fn text() -> impl Strategy<Value = String> {
    "([a-z\u{e9}\u{1f600} ]|\\\\u00e9|\\\\/|\\\\n|\\\\\\\\|\\\\\"){0,8}"
        .prop_map(|text| format!("\"{text}\""))
}

/// Members that no translation owns, each under a name of its own.
fn foreign() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(json(), 0..6).prop_map(|values| {
        let named = values.into_iter().enumerate();
        named.map(|(n, value)| (format!("x-{n}"), value)).collect()
    })
}

fn object(members: &[(String, String)]) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|(key, value)| format!("\"{key}\":{value}"))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// The members of an object that nobody owns, in their order and with their bytes.
fn kept(raw: &RawValue) -> Vec<(String, String)> {
    let members = RawObject::of(raw).unwrap();
    let foreign = members.iter().filter(|(key, _)| key.starts_with("x-"));
    foreign
        .map(|(key, value)| (key.to_owned(), value.get().to_owned()))
        .collect()
}

fn raw(text: &str) -> Box<RawValue> {
    serde_json::from_str(text).unwrap()
}

fn params_of(message: &[u8]) -> Box<RawValue> {
    match Message::parse(message).unwrap() {
        Message::Request { params, .. } | Message::Notification { params, .. } => {
            params.unwrap().to_owned()
        }
        other => panic!("neither request nor notification: {other:?}"),
    }
}

fn meta_of(params: &RawValue) -> Vec<(String, String)> {
    let members = RawObject::of(params).unwrap();
    members.member("_meta").map(kept).unwrap_or_default()
}

/// Foreign members with some owned ones among them, at any place.
fn among(foreign: &[(String, String)], owned: &[(&str, &str)], at: usize) -> String {
    let mut members = foreign.to_vec();
    for (key, value) in owned {
        members.insert(
            at % (members.len() + 1),
            ((*key).to_owned(), (*value).to_owned()),
        );
    }
    object(&members)
}

proptest! {
    #[test]
    fn requests_go_up_as_they_are(foreign in foreign(), meta in foreign(), at in 0..8_usize) {
        let owned_meta = [
            ("io.modelcontextprotocol/protocolVersion", "\"2026-07-28\""),
            ("io.modelcontextprotocol/logLevel", "\"debug\""),
            ("progressToken", "\"p\""),
        ];
        let meta_text = among(&meta, &owned_meta, at);
        let owned = [("_meta", meta_text.as_str()), ("requestState", "\"s\""), ("inputResponses", "{}")];
        let params = raw(&among(&foreign, &owned, at));
        let (params, meta_raw) = (RawObject::of(&params).unwrap(), raw(&meta_text));
        let meta_members = RawObject::of(&meta_raw).unwrap();
        let up = request::to_legacy(UpstreamId(7), Method::ToolsCall, &params, &meta_members);
        let up = params_of(&up);
        prop_assert_eq!(kept(&up), foreign);
        prop_assert_eq!(meta_of(&up), meta);
    }

    #[test]
    fn results_come_down_as_they_are(foreign in foreign(), meta in foreign(), at in 0..8_usize, ttl_ms in 0..9_u64) {
        let meta_text = object(&meta);
        let owned = [("_meta", meta_text.as_str()), ("resultType", "\"odd\""), ("ttlMs", "7")];
        let result = raw(&among(&foreign, &owned, at));
        let info = raw(r#"{"name":"s","version":"1"}"#);
        let down = complete(Method::ResourcesRead, &result, Some(&info), Some(CacheHints::default())).unwrap();
        for down in [down.clone(), with_ttl(&down, ttl_ms).unwrap()] {
            let down = raw(std::str::from_utf8(&down).unwrap());
            prop_assert_eq!(kept(&down), foreign.clone());
            prop_assert_eq!(meta_of(&down), meta.clone());
        }
    }

    #[test]
    fn questions_come_down_as_they_are(foreign in foreign(), at in 0..8_usize) {
        let owned = [("message", "\"m\""), ("mode", "\"url\""), ("url", "\"https://example.com/\""), ("elicitationId", "\"e\"")];
        let params = raw(&among(&foreign, &owned, at));
        let asked = InputRequest::parse("elicitation/create", Some(&params)).unwrap();
        prop_assert_eq!(asked.params.as_deref().map(kept), Some(foreign));
    }

    #[test]
    fn notifications_come_down_as_they_are(foreign in foreign(), meta in foreign(), at in 0..8_usize) {
        let meta_text = object(&meta);
        let owned = [("_meta", meta_text.as_str()), ("progressToken", "7"), ("uri", "\"a:b\"")];
        let params = raw(&among(&foreign, &owned, at));
        let token = raw("\"theirs\"");
        let id = ClientId::new(&raw("1")).unwrap();
        let change = Change::parse("notifications/resources/updated", Some(&params)).unwrap();
        for down in [
            notification::progress(&params, &token).unwrap(),
            notification::message(&params),
            change.to_listener(&id),
        ] {
            let down = params_of(&down);
            prop_assert_eq!(kept(&down), foreign.clone());
            prop_assert_eq!(meta_of(&down), meta.clone());
        }
    }
}
