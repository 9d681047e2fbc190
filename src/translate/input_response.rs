//! Whether what a client answered fits what a legacy server asked.
//!
//! Accepted form content is validated against the question's `requestedSchema`. What fails is asked again and
//! never reaches the server. Spec: 2026-07-28 client/elicitation, client/sampling, client/roots.

use serde_json::Value;
use serde_json::value::RawValue;

use super::input_request::InputKind;
use super::schema;
pub use super::schema::{Rejection, check as check_content};
use crate::wire::object::{self, RawObject};

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
    schema::check(schema, &content)
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
