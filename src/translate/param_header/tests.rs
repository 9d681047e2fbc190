//! Declarations and headers as data.

use http::HeaderValue;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

fn read(schema: &Value) -> Result<Vec<(String, String)>, InvalidDeclaration> {
    let found = declared(&raw(schema))?;
    let told = found
        .iter()
        .map(|found| (found.name.to_string(), found.path.join(".")));
    Ok(told.collect())
}

#[test]
fn declarations_are_found_where_properties_lead() {
    let schema = json!({
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": ["integer", "null"], "x-mcp-header": "Count"},
            "deep": {"type": "object", "properties": {"flag": {"type": "boolean", "x-mcp-header": "X.flag"}}},
            // A property of that name is no annotation.
            "x-mcp-header": {"type": "string"},
            "data": {"type": "object", "default": {"x-mcp-header": "no"}, "examples": [{"x-mcp-header": 7}]},
        },
    });
    let mut found = read(&schema).unwrap();
    found.sort();
    let expected = [
        ("mcp-param-count", "count"),
        ("mcp-param-region", "region"),
        ("mcp-param-x.flag", "deep.flag"),
    ];
    assert_eq!(
        found,
        expected.map(|(name, path)| (name.to_owned(), path.to_owned()))
    );
    assert_eq!(read(&json!({"type": "object"})), Ok(Vec::new()));
}

fn at(property: Value) -> Value {
    json!({"type": "object", "properties": {"p": property}})
}

#[test]
fn invalid_declarations_are_told_apart() {
    use InvalidDeclaration::{Name, Place, Twice, Type};
    let string = |name: &str| json!({"type": "string", "x-mcp-header": name});
    for (schema, expected) in [
        (at(string("")), Name("\"\"".into())),
        (at(string("a b")), Name("\"a b\"".into())),
        (at(string("a\r\nb")), Name("\"a\\r\\nb\"".into())),
        (at(string("caf\u{e9}")), Name("\"caf\u{e9}\"".into())),
        (
            at(json!({"type": "string", "x-mcp-header": 7})),
            Name("7".into()),
        ),
        (
            at(json!({"type": "number", "x-mcp-header": "n"})),
            Type("n".into()),
        ),
        (at(json!({"x-mcp-header": "n"})), Type("n".into())),
        (
            at(json!({"type": ["string", "integer"], "x-mcp-header": "n"})),
            Type("n".into()),
        ),
        (
            at(json!({"type": "array", "items": string("i")})),
            Place("i".into()),
        ),
        (at(json!({"anyOf": [string("i")]})), Place("i".into())),
        (
            json!({"x-mcp-header": "root", "type": "string"}),
            Place("root".into()),
        ),
        (json!({"$defs": {"d": string("i")}}), Place("i".into())),
        (
            json!({"patternProperties": {"default": string("i")}}),
            Place("i".into()),
        ),
        (
            json!({"if": {"properties": {"p": string("i")}}}),
            Place("i".into()),
        ),
        (
            json!({"additionalProperties": string("i")}),
            Place("i".into()),
        ),
        (
            json!({"properties": {"a": string("Same"), "b": string("same")}}),
            Twice("same".into()),
        ),
    ] {
        assert_eq!(read(&schema), Err(expected), "{schema}");
    }
}

fn checked(arguments: &Value, headers: &[(&'static str, &'static str)]) -> bool {
    let schema = json!({"properties": {
        "s": {"type": "string", "x-mcp-header": "S"},
        "i": {"type": "integer", "x-mcp-header": "I"},
        "b": {"type": "boolean", "x-mcp-header": "B"},
        "o": {"properties": {"in": {"type": "string", "x-mcp-header": "In"}}},
    }});
    let declared = declared(&raw(&schema)).unwrap();
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_static(value));
    }
    check(&declared, Some(&raw(arguments)), &map).is_ok()
}

#[test]
fn what_is_declared_must_be_mirrored_and_nothing_else() {
    for (arguments, headers) in [
        (json!({}), vec![]),
        (json!({"s": null, "o": {"in": null}}), vec![]),
        (json!({"s": "a"}), vec![("mcp-param-s", "a")]),
        (
            json!({"s": "a"}),
            vec![("mcp-param-s", "a"), ("mcp-param-s", "a")],
        ),
        (
            json!({"s": "Hello"}),
            vec![("mcp-param-s", "=?base64?SGVsbG8=?=")],
        ),
        (json!({"s": "SGVsbG8="}), vec![("mcp-param-s", "SGVsbG8=")]),
        (json!({"i": 42}), vec![("mcp-param-i", "42.0")]),
        (json!({"i": 42.0}), vec![("mcp-param-i", "42")]),
        (
            json!({"i": -7}),
            vec![("mcp-param-i", "-7"), ("mcp-param-other", "x")],
        ),
        (
            json!({"i": 9_007_199_254_740_993_u64}),
            vec![("mcp-param-i", "9007199254740993")],
        ),
        (json!({"b": false}), vec![("mcp-param-b", "false")]),
        (json!({"o": {"in": "a"}}), vec![("mcp-param-in", "a")]),
    ] {
        assert!(checked(&arguments, &headers), "{arguments} {headers:?}");
    }
    for (arguments, headers) in [
        (json!({"s": "a"}), vec![]),
        (json!({}), vec![("mcp-param-s", "a")]),
        (json!({"s": "a"}), vec![("mcp-param-s", "b")]),
        (
            json!({"s": "a"}),
            vec![("mcp-param-s", "a"), ("mcp-param-s", "b")],
        ),
        (
            json!({"s": "Hello"}),
            vec![("mcp-param-s", "=?base64?SGVsbG8?=")],
        ),
        (
            json!({"s": "Hello"}),
            vec![("mcp-param-s", "=?base64?SGVs!!!bG8=?=")],
        ),
        (
            json!({"i": 9_007_199_254_740_993_u64}),
            vec![("mcp-param-i", "9007199254740992")],
        ),
        (
            json!({"i": 9_007_199_254_740_993_u64}),
            vec![("mcp-param-i", "9007199254740992.0")],
        ),
        (json!({"i": 1}), vec![("mcp-param-i", "one")]),
        (json!({"b": true}), vec![("mcp-param-b", "True")]),
        (json!({"s": ["a"]}), vec![("mcp-param-s", "a")]),
        (json!({"o": {"in": "a"}}), vec![]),
    ] {
        assert!(!checked(&arguments, &headers), "{arguments} {headers:?}");
    }
}

#[test]
fn an_argument_named_twice_is_no_argument() {
    let declared = declared(&raw(&at(json!({"type": "string", "x-mcp-header": "P"})))).unwrap();
    let arguments: Box<RawValue> = serde_json::from_str(r#"{"p":"a","p":"b"}"#).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("mcp-param-p", HeaderValue::from_static("a"));
    assert!(check(&declared, Some(&arguments), &headers).is_err());
}

proptest! {
    /// Every string that a client mirrors as the spec wants passes, and no other header does.
    #[test]
    fn strings_pass_as_they_are_encoded(value in ".*", other in "[a-z]{0,4}") {
        let declared = declared(&raw(&at(json!({"type": "string", "x-mcp-header": "P"})))).unwrap();
        let arguments = raw(&json!({"p": value}));
        let mut headers = HeaderMap::new();
        headers.insert("mcp-param-p", HeaderValue::from_str(&header::encode(&value)).unwrap());
        prop_assert!(check(&declared, Some(&arguments), &headers).is_ok());
        headers.insert("mcp-param-p", HeaderValue::from_str(&other).unwrap());
        prop_assert_eq!(check(&declared, Some(&arguments), &headers).is_ok(), other == value);
    }

    #[test]
    fn any_schema_is_judged(text in r#"(\{|\}|\[|\]|"x-mcp-header"|"properties"|"type"|"string"|:|,|1){0,30}"#) {
        if let Ok(schema) = serde_json::from_str::<Box<RawValue>>(&text) {
            let _ = declared(&schema);
        }
    }
}
