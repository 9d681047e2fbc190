//! Whether what a client answered fits what a legacy server asked.
//!
//! Accepted form content is validated against the question's `requestedSchema`: JSON Schema 2020-12 unless the
//! schema names another known dialect, `format`s asserted, no network `$ref`, patterns without backtracking,
//! and schemas bounded in size. What fails is asked again and never reaches the server.
//! Spec: 2026-07-28 client/elicitation, client/sampling, client/roots; basic/index, "JSON Schema Usage".

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

use super::input_request::InputKind;
use crate::wire::object::{self, RawObject};

/// Bounds a schema that is compiled. Forms of the spec are flat; real ones are a few hundred bytes.
const SCHEMA_BYTES_MAX: usize = 64 << 10;

/// How many violations are told. A person mends one or two at a time.
const VIOLATIONS_MAX: usize = 5;

/// Why an answer was not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The answer has not the form that its kind of question wants.
    #[error("{0}")]
    Shape(&'static str),
    /// The content violates the schema; what is wrong, each with its place.
    #[error("{}", .0.join("; "))]
    Content(Vec<String>),
    /// The server's schema cannot be used to validate anything: the server's fault, not the client's.
    #[error("requestedSchema cannot be used: {0}")]
    BadSchema(String),
}

/// Checks `response` against the question of `kind` with `params`.
///
/// # Errors
/// When the answer must not go to the server.
pub fn check(
    kind: InputKind,
    params: Option<&RawValue>,
    response: &RawValue,
) -> Result<(), Rejection> {
    let members =
        RawObject::of(response).map_err(|_| Rejection::Shape("an answer is an object"))?;
    match kind {
        InputKind::ElicitForm | InputKind::ElicitUrl => elicit_result(kind, params, &members),
        InputKind::Sampling => sampling_result(&members),
        InputKind::Roots => roots_result(&members),
    }
}

/// Whether an answer to a url question says that the person went there.
#[must_use]
pub fn is_accepted(response: &RawValue) -> bool {
    RawObject::of(response)
        .is_ok_and(|members| members.string("action").as_deref() == Some("accept"))
}

/// Checks form content against a schema, both raw JSON.
///
/// # Errors
/// When the content violates the schema, or the schema is none.
pub fn check_content(schema: &RawValue, content: &Value) -> Result<(), Rejection> {
    let validator = compile(schema)?;
    let violations: Vec<String> = validator
        .iter_errors(content)
        .take(VIOLATIONS_MAX)
        .map(|violation| match violation.instance_path().to_string() {
            path if path.is_empty() => violation.to_string(),
            path => format!("{path}: {violation}"),
        })
        .collect();
    if violations.is_empty() {
        Ok(())
    } else {
        Err(Rejection::Content(violations))
    }
}

fn elicit_result(
    kind: InputKind,
    params: Option<&RawValue>,
    members: &RawObject<'_>,
) -> Result<(), Rejection> {
    match members.string("action").as_deref() {
        Some("accept") => {}
        Some("decline" | "cancel") => return Ok(()),
        _ => {
            return Err(Rejection::Shape(
                "`action` is one of accept, decline, cancel",
            ));
        }
    }
    if kind == InputKind::ElicitUrl {
        return Ok(());
    }
    let params = params
        .and_then(|raw| RawObject::of(raw).ok())
        .unwrap_or_default();
    let schema = params
        .member("requestedSchema")
        .ok_or_else(|| Rejection::BadSchema("there is none".to_owned()))?;
    let content = match members
        .member("content")
        .filter(|raw| !object::is_null(raw))
    {
        None => Value::Object(serde_json::Map::new()),
        Some(raw) if object::is_object(raw) => serde_json::from_str(raw.get())
            .map_err(|_| Rejection::Shape("`content` is nested too deeply"))?,
        Some(_) => return Err(Rejection::Shape("`content` is an object")),
    };
    check_content(schema, &content)
}

fn compile(schema: &RawValue) -> Result<Validator, Rejection> {
    let bad = |why: String| Rejection::BadSchema(why);
    if schema.get().len() > SCHEMA_BYTES_MAX {
        return Err(bad(format!("it is larger than {SCHEMA_BYTES_MAX} bytes")));
    }
    let schema: Value = serde_json::from_str(schema.get())
        .map_err(|_| bad("it is nested too deeply".to_owned()))?;
    jsonschema::options()
        .with_draft(dialect(&schema)?)
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::regex())
        .build(&schema)
        .map_err(|error| bad(error.to_string()))
}

/// The dialect that a schema names, 2020-12 when it names none.
fn dialect(schema: &Value) -> Result<Draft, Rejection> {
    let Some(named) = schema.get("$schema") else {
        return Ok(Draft::Draft202012);
    };
    let name = named.as_str().unwrap_or_default().trim_end_matches('#');
    let known = [
        (
            "https://json-schema.org/draft/2020-12/schema",
            Draft::Draft202012,
        ),
        (
            "https://json-schema.org/draft/2019-09/schema",
            Draft::Draft201909,
        ),
        ("http://json-schema.org/draft-07/schema", Draft::Draft7),
        ("http://json-schema.org/draft-06/schema", Draft::Draft6),
        ("http://json-schema.org/draft-04/schema", Draft::Draft4),
    ];
    known
        .into_iter()
        .find(|(uri, _)| *uri == name)
        .map(|(_, draft)| draft)
        .ok_or_else(|| Rejection::BadSchema(format!("dialect {named} is not supported")))
}

/// `CreateMessageResult`: a role, a model, and content that is a block or a list of blocks.
fn sampling_result(members: &RawObject<'_>) -> Result<(), Rejection> {
    if !matches!(
        members.string("role").as_deref(),
        Some("user" | "assistant")
    ) {
        return Err(Rejection::Shape("`role` is user or assistant"));
    }
    if members.string("model").is_none() {
        return Err(Rejection::Shape("`model` is a string"));
    }
    let is_block =
        |raw: &RawValue| RawObject::of(raw).is_ok_and(|block| block.string("type").is_some());
    let is_content = members.member("content").is_some_and(|content| {
        is_block(content)
            || serde_json::from_str::<Vec<&RawValue>>(content.get())
                .is_ok_and(|blocks| blocks.into_iter().all(is_block))
    });
    if is_content {
        Ok(())
    } else {
        Err(Rejection::Shape(
            "`content` is a content block, or a list of them",
        ))
    }
}

/// `ListRootsResult`: roots whose URIs start with `file://`.
fn roots_result(members: &RawObject<'_>) -> Result<(), Rejection> {
    let roots = members
        .member("roots")
        .and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok())
        .ok_or(Rejection::Shape("`roots` is a list"))?;
    let is_root = |raw: &RawValue| {
        RawObject::of(raw).is_ok_and(|root| {
            root.string("uri")
                .is_some_and(|uri| uri.starts_with("file://"))
                && root
                    .member("name")
                    .is_none_or(|name| object::string(name).is_some())
        })
    };
    if roots.into_iter().all(is_root) {
        Ok(())
    } else {
        Err(Rejection::Shape(
            "a root has a `uri` that starts with file://",
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    fn form(schema: &str, response: &str) -> Result<(), Rejection> {
        let params = raw(&format!(r#"{{"message":"m","requestedSchema":{schema}}}"#));
        check(InputKind::ElicitForm, Some(&params), &raw(response))
    }

    const CLAIM: &str = r#"{"type":"object","properties":{
        "email":{"type":"string","format":"email"},
        "size":{"type":"integer","minimum":1,"maximum":60},
        "color":{"type":"string","enum":["red","green"]},
        "tags":{"type":"array","items":{"type":"string","enum":["a","b"]},"maxItems":2}
        },"required":["email"]}"#;

    #[test]
    fn content_is_checked_against_the_schema() {
        for (content, ok) in [
            (r#"{"email":"a@b.example"}"#, true),
            (
                r#"{"email":"a@b.example","size":60,"color":"red","tags":["a"]}"#,
                true,
            ),
            ("{}", false),
            (r#"{"email":"nobody"}"#, false),
            (r#"{"email":7}"#, false),
            (r#"{"email":"a@b.example","size":61}"#, false),
            (r#"{"email":"a@b.example","size":"5"}"#, false),
            (r#"{"email":"a@b.example","color":"blue"}"#, false),
            (r#"{"email":"a@b.example","tags":["c"]}"#, false),
            ("7", false),
        ] {
            let answer = format!(r#"{{"action":"accept","content":{content}}}"#);
            assert_eq!(form(CLAIM, &answer).is_ok(), ok, "{content}");
        }
        assert!(form(CLAIM, r#"{"action":"accept"}"#).is_err());
        assert!(form(r#"{"type":"object"}"#, r#"{"action":"accept"}"#).is_ok());
    }

    #[test]
    fn declining_and_cancelling_need_no_content() {
        assert_eq!(form(CLAIM, r#"{"action":"decline"}"#), Ok(()));
        assert_eq!(form(CLAIM, r#"{"action":"cancel","content":null}"#), Ok(()));
        for answer in [
            "{}",
            r#"{"action":"maybe"}"#,
            r#"{"action":true}"#,
            "12345",
            "null",
            "[]",
        ] {
            assert!(
                matches!(form(CLAIM, answer), Err(Rejection::Shape(_))),
                "{answer}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let rejected = form(
            CLAIM,
            r#"{"action":"accept","content":{"email":"x","size":99}}"#,
        );
        let text = rejected.unwrap_err().to_string();
        assert!(text.contains("/email") && text.contains("/size"), "{text}");
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_the_servers_fault() {
        for schema in [
            r#"{"type":"nonsense"}"#,
            r#"{"$schema":"https://example.com/mine"}"#,
            r#"{"properties":{"a":{"pattern":"("}}}"#,
            r#"{"$ref":"http://127.0.0.1:9/schema"}"#,
        ] {
            let rejected = form(schema, r#"{"action":"accept","content":{"a":"b"}}"#);
            assert!(
                matches!(rejected, Err(Rejection::BadSchema(_))),
                "{schema} {rejected:?}"
            );
        }
        assert!(
            form(
                r#"{"$schema":"http://json-schema.org/draft-07/schema#"}"#,
                r#"{"action":"accept"}"#
            )
            .is_ok()
        );
    }

    #[test]
    fn visits_models_and_roots_have_their_own_forms() {
        for (kind, answer, ok) in [
            (InputKind::ElicitUrl, r#"{"action":"accept"}"#, true),
            (InputKind::ElicitUrl, "{}", false),
            (
                InputKind::Sampling,
                r#"{"role":"assistant","model":"m","content":{"type":"text","text":"t"}}"#,
                true,
            ),
            (
                InputKind::Sampling,
                r#"{"role":"assistant","model":"m","content":[{"type":"text"}]}"#,
                true,
            ),
            (
                InputKind::Sampling,
                r#"{"role":"assistant","model":"m","content":"text"}"#,
                false,
            ),
            (
                InputKind::Sampling,
                r#"{"role":"robot","model":"m","content":{"type":"text"}}"#,
                false,
            ),
            (
                InputKind::Sampling,
                r#"{"role":"user","content":{"type":"text"}}"#,
                false,
            ),
            (InputKind::Roots, r#"{"roots":[]}"#, true),
            (
                InputKind::Roots,
                r#"{"roots":[{"uri":"file:///a","name":"a"}]}"#,
                true,
            ),
            (
                InputKind::Roots,
                r#"{"roots":[{"uri":"https://a/"}]}"#,
                false,
            ),
            (InputKind::Roots, "{}", false),
        ] {
            assert_eq!(
                check(kind, None, &raw(answer)).is_ok(),
                ok,
                "{kind:?} {answer}"
            );
        }
        assert!(is_accepted(&raw(r#"{"action":"accept"}"#)));
        assert!(!is_accepted(&raw(r#"{"action":"decline"}"#)));
    }

    proptest! {
        #[test]
        fn lengths_are_counted_in_characters(text in ".{0,30}") {
            let schema = r#"{"properties":{"t":{"type":"string","minLength":5,"maxLength":20}}}"#;
            let content = serde_json::json!({"action": "accept", "content": {"t": text}}).to_string();
            let fits = (5..=20).contains(&text.chars().count());
            prop_assert_eq!(form(schema, &content).is_ok(), fits);
        }
    }
}
