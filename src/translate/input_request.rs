//! Questions of a legacy server as entries of `inputRequests`.
//!
//! Spec: 2026-07-28 basic/patterns/mrtr, client/elicitation, client/sampling, client/roots; 2025-11-25
//! client/elicitation (`mode`, `elicitationId`, error −32042).

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::capability::Capability;
use crate::wire::error::{self, ErrorObject};
use crate::wire::legacy;
use crate::wire::modern;
use crate::wire::object::{self, RawObject};

/// Our own `_meta` key: a server may say under which key its question is to be asked.
const META_INPUT_KEY: &str = "holdfast/inputKey";

/// Bounds a key taken from a server: keys go to people and to models, and real ones are words.
const KEY_BYTES_MAX: usize = 64;

/// What kind of answer a question wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A form: `elicitation/create` without `mode` or with mode `form`.
    ElicitForm,
    /// A page the person visits: `elicitation/create` with mode `url`.
    ElicitUrl,
    /// A message of the client's model: `sampling/createMessage`.
    Sampling,
    /// The client's roots: `roots/list`.
    Roots,
}

impl InputKind {
    const fn method(self) -> &'static str {
        match self {
            Self::ElicitForm | Self::ElicitUrl => legacy::ELICITATION_CREATE,
            Self::Sampling => legacy::SAMPLING_CREATE_MESSAGE,
            Self::Roots => legacy::ROOTS_LIST,
        }
    }

    const fn default_key(self) -> &'static str {
        match self {
            Self::ElicitForm | Self::ElicitUrl => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
        }
    }
}

/// One question, ready to be asked.
#[derive(Debug)]
pub struct InputRequest {
    /// What kind of answer it wants.
    pub kind: InputKind,
    /// The capability a client needs to be asked this.
    pub needs: Capability,
    /// The key it would like in `inputRequests`.
    pub wanted_key: Box<str>,
    /// The modern params; `None` for a question without any.
    pub params: Option<Box<RawValue>>,
    /// The raw id of a page's visit, which the modern era does not know.
    elicitation_id: Option<Box<RawValue>>,
}

/// Why a server request is no question that can be asked.
#[derive(Debug, PartialEq, Eq)]
pub enum NotAsked {
    /// The method is none that a client serves.
    UnknownMethod,
    /// The params do not fit the method.
    Malformed(&'static str),
}

impl InputRequest {
    /// Reads a server request other than `ping`.
    ///
    /// # Errors
    /// When the method is unknown or its params do not fit.
    pub fn parse(method: &str, params: Option<&RawValue>) -> Result<Self, NotAsked> {
        let members = match params {
            Some(raw) => {
                RawObject::of(raw).map_err(|_| NotAsked::Malformed("params are not an object"))?
            }
            None => RawObject::default(),
        };
        let (kind, needs) = match method {
            legacy::ELICITATION_CREATE => elicitation_kind(&members)?,
            legacy::SAMPLING_CREATE_MESSAGE => {
                if !members
                    .member("messages")
                    .is_some_and(|raw| raw.get().starts_with('['))
                {
                    return Err(NotAsked::Malformed("`messages` is missing"));
                }
                let tools = members
                    .member("tools")
                    .is_some_and(|raw| !object::is_null(raw));
                let needs = if tools {
                    Capability::SamplingTools
                } else {
                    Capability::Sampling
                };
                (InputKind::Sampling, needs)
            }
            legacy::ROOTS_LIST => (InputKind::Roots, Capability::Roots),
            _ => return Err(NotAsked::UnknownMethod),
        };
        Ok(Self {
            kind,
            needs,
            wanted_key: wanted_key(kind, &members).into(),
            params: modern_params(kind, &members),
            elicitation_id: members
                .member("elicitationId")
                .filter(|_| kind == InputKind::ElicitUrl)
                .map(ToOwned::to_owned),
        })
    }

    /// All that makes it this question and no other, the same whatever the order of keys: what is asked for, in which
    /// words, by which schema, and of a page which visit of it. `_meta` says nothing to whoever answers.
    #[must_use]
    pub fn reading(&self) -> Vec<u8> {
        let params = self
            .params
            .as_deref()
            .and_then(|raw| RawObject::of(raw).ok());
        let params = params.unwrap_or_default();
        let mut members: Vec<_> = params.iter().filter(|(key, _)| *key != "_meta").collect();
        members.sort_unstable_by_key(|(key, _)| *key);
        let mut params = b"{".to_vec();
        for (key, value) in members {
            object::push_member(&mut params, key, &object::canonical(value));
        }
        params.push(b'}');
        let mut out = format!(r#"{{"method":"{}""#, self.kind.method()).into_bytes();
        object::push_member(&mut out, "params", &params);
        if let Some(id) = &self.elicitation_id {
            object::push_member(&mut out, "elicitationId", id.get().as_bytes());
        }
        out.push(b'}');
        out
    }

    /// The entry of `inputRequests`.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = format!(r#"{{"method":"{}""#, self.kind.method()).into_bytes();
        if let Some(params) = &self.params {
            object::push_member(&mut out, "params", params.get().as_bytes());
        }
        out.push(b'}');
        out
    }
}

/// The url questions of error −32042; `None` when the error is another or names none that can be asked.
#[must_use]
pub fn from_url_error(error: &ErrorObject) -> Option<Vec<InputRequest>> {
    if error.code != error::LEGACY_URL_ELICITATION_REQUIRED {
        return None;
    }
    let data = RawObject::of(error.data.as_deref()?).ok()?;
    let entries: Vec<&RawValue> = serde_json::from_str(data.member("elicitations")?.get()).ok()?;
    let requests: Option<Vec<_>> = entries
        .into_iter()
        .map(|entry| {
            InputRequest::parse(legacy::ELICITATION_CREATE, Some(entry))
                .ok()
                .filter(|request| request.kind == InputKind::ElicitUrl)
        })
        .collect();
    requests.filter(|requests| !requests.is_empty())
}

/// A key that is not taken yet: the wanted one, or the wanted one with `_2`, `_3`…
#[must_use]
pub fn free_key(wanted: &str, taken: impl Fn(&str) -> bool) -> Box<str> {
    if !taken(wanted) {
        return wanted.into();
    }
    let mut number = 2_u32;
    loop {
        let key = format!("{wanted}_{number}");
        if !taken(&key) {
            return key.into();
        }
        number += 1;
    }
}

fn elicitation_kind(members: &RawObject<'_>) -> Result<(InputKind, Capability), NotAsked> {
    if members.string("message").is_none() {
        return Err(NotAsked::Malformed("`message` is missing"));
    }
    match members.string("mode").as_deref() {
        None | Some("form") => {
            if !members
                .member("requestedSchema")
                .is_some_and(object::is_object)
            {
                return Err(NotAsked::Malformed("`requestedSchema` is missing"));
            }
            Ok((InputKind::ElicitForm, Capability::ElicitationForm))
        }
        Some("url") => {
            if members.string("url").is_none() {
                return Err(NotAsked::Malformed("`url` is missing"));
            }
            Ok((InputKind::ElicitUrl, Capability::ElicitationUrl))
        }
        Some(_) => Err(NotAsked::Malformed("`mode` is neither form nor url")),
    }
}

fn wanted_key<'a>(kind: InputKind, members: &RawObject<'a>) -> Cow<'a, str> {
    let usable = |key: &Cow<'_, str>| !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    let hint = members
        .member("_meta")
        .and_then(|raw| RawObject::of(raw).ok())
        .and_then(|meta| meta.string(META_INPUT_KEY))
        .filter(usable);
    if let Some(hint) = hint {
        return hint;
    }
    let only_property = || {
        let schema = RawObject::of(members.member("requestedSchema")?).ok()?;
        let properties = RawObject::of(schema.member("properties")?).ok()?;
        let mut names = properties.iter().map(|(name, _)| name.to_owned());
        let name = names.next().filter(|_| names.next().is_none())?;
        Some(Cow::Owned(name)).filter(usable)
    };
    match kind {
        InputKind::ElicitForm => only_property().unwrap_or(Cow::Borrowed(kind.default_key())),
        InputKind::ElicitUrl | InputKind::Sampling | InputKind::Roots => {
            Cow::Borrowed(kind.default_key())
        }
    }
}

/// The params without what only the legacy era knows: `elicitationId`, `task`, and `_meta` keys that were
/// meant for the transport between server and us.
fn modern_params(kind: InputKind, members: &RawObject<'_>) -> Option<Box<RawValue>> {
    let mut out = b"{".to_vec();
    if kind == InputKind::ElicitForm {
        object::push_member(&mut out, "mode", br#""form""#);
    }
    for (key, value) in members.iter() {
        match key {
            "task" | "_meta" => {}
            "mode" if kind == InputKind::ElicitForm => {}
            "elicitationId" if kind == InputKind::ElicitUrl => {}
            _ => object::push_member(&mut out, key, value.get().as_bytes()),
        }
    }
    let mut meta = b"{".to_vec();
    let sent = members
        .member("_meta")
        .and_then(|raw| RawObject::of(raw).ok())
        .unwrap_or_default();
    for (key, value) in sent.iter() {
        if key != META_INPUT_KEY && key != modern::META_PROGRESS_TOKEN {
            object::push_member(&mut meta, key, value.get().as_bytes());
        }
    }
    if meta.len() > 1 {
        meta.push(b'}');
        object::push_member(&mut out, "_meta", &meta);
    }
    if out.len() == 1 {
        return None;
    }
    out.push(b'}');
    // Every piece was valid JSON, so the whole is; a failure would only lose the params, never panic.
    String::from_utf8(out)
        .ok()
        .and_then(|text| RawValue::from_string(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    fn check(method: &str, params: &str, key: &str, needs: Capability, json: &str) {
        let request = InputRequest::parse(method, Some(&raw(params))).unwrap();
        assert_eq!(&*request.wanted_key, key, "{params}");
        assert_eq!(request.needs, needs, "{params}");
        assert_eq!(String::from_utf8(request.to_json()).unwrap(), json);
    }

    #[test]
    fn questions_become_input_requests() {
        check(
            "elicitation/create",
            r#"{"message":"m","requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean"}}}}"#,
            "confirm",
            Capability::ElicitationForm,
            r#"{"method":"elicitation/create","params":{"mode":"form","message":"m","requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean"}}}}}"#,
        );
        check(
            "elicitation/create",
            r#"{"mode":"form","message":"m","requestedSchema":{"properties":{"a":{},"b":{}}},"_meta":{"progressToken":1,"k":2}}"#,
            "elicitation",
            Capability::ElicitationForm,
            r#"{"method":"elicitation/create","params":{"mode":"form","message":"m","requestedSchema":{"properties":{"a":{},"b":{}}},"_meta":{"k":2}}}"#,
        );
        check(
            "elicitation/create",
            r#"{"mode":"url","message":"m","url":"https://e.x/","elicitationId":"7"}"#,
            "elicitation",
            Capability::ElicitationUrl,
            r#"{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://e.x/"}}"#,
        );
        check(
            "sampling/createMessage",
            r#"{"messages":[],"maxTokens":1,"tools":[]}"#,
            "sampling",
            Capability::SamplingTools,
            r#"{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"tools":[]}}"#,
        );
        check(
            "roots/list",
            "{}",
            "roots",
            Capability::Roots,
            r#"{"method":"roots/list"}"#,
        );
    }

    #[test]
    fn a_question_is_the_same_when_all_that_it_asks_is() {
        let of = |method: &str, params: &str| {
            let request = InputRequest::parse(method, Some(&raw(params))).unwrap();
            request.reading()
        };
        let form = |params: &str| of("elicitation/create", params);
        let pay = form(r#"{"message":"Pay 10?","requestedSchema":{"type":"object","a":1}}"#);
        for same in [
            r#"{"requestedSchema":{"a":1, "type":"object"},"message":"Pay \u00310?","mode":"form"}"#,
            r#"{"message":"Pay 10?","requestedSchema":{"type":"object","a":1},"_meta":{"x":1},"task":{}}"#,
        ] {
            assert_eq!(form(same), pay, "{same}");
        }
        for other in [
            r#"{"message":"Pay 1000?","requestedSchema":{"type":"object","a":1}}"#,
            r#"{"message":"Pay 10?","requestedSchema":{"type":"object","a":2}}"#,
            r#"{"message":"Pay 10?","requestedSchema":{"type":"object","a":1},"more":1}"#,
            r#"{"message":"Pay 10?","mode":"url","url":"https://e.x/"}"#,
        ] {
            assert_ne!(form(other), pay, "{other}");
        }
        let visit = |url: &str, id: &str| {
            form(&format!(
                r#"{{"message":"m","mode":"url","url":"https://e.x/{url}","elicitationId":"{id}"}}"#
            ))
        };
        assert_eq!(visit("a", "1"), visit("a", "1"));
        assert_ne!(visit("a", "1"), visit("b", "1"));
        assert_ne!(visit("a", "1"), visit("a", "2"));
        let sampling = |tokens: u32| {
            let params = format!(r#"{{"messages":[],"maxTokens":{tokens}}}"#);
            of("sampling/createMessage", &params)
        };
        assert_eq!(sampling(1), sampling(1));
        assert_ne!(sampling(1), sampling(2));
        assert_eq!(
            of("roots/list", "{}"),
            of("roots/list", r#"{"_meta":{"x":1}}"#)
        );
    }

    #[test]
    fn a_hint_of_the_server_names_the_key() {
        let params = r#"{"message":"m","requestedSchema":{"properties":{"x":{}}},"_meta":{"holdfast/inputKey":"user_name"}}"#;
        let request = InputRequest::parse("elicitation/create", Some(&raw(params))).unwrap();
        assert_eq!(&*request.wanted_key, "user_name");
        assert!(!request.params.unwrap().get().contains("holdfast"));
    }

    #[test]
    fn what_does_not_fit_is_not_asked() {
        for (method, params) in [
            ("elicitation/create", "{}"),
            ("elicitation/create", r#"{"message":"m"}"#),
            ("elicitation/create", r#"{"message":"m","mode":"url"}"#),
            ("elicitation/create", r#"{"message":"m","mode":"fax"}"#),
            ("elicitation/create", "[]"),
            ("sampling/createMessage", "{}"),
        ] {
            let refused = InputRequest::parse(method, Some(&raw(params))).unwrap_err();
            assert!(
                matches!(refused, NotAsked::Malformed(_)),
                "{method} {params}"
            );
        }
        assert_eq!(
            InputRequest::parse("tasks/get", None).unwrap_err(),
            NotAsked::UnknownMethod
        );
    }

    #[test]
    fn keys_are_numbered_when_taken() {
        assert_eq!(&*free_key("a", |_| false), "a");
        assert_eq!(&*free_key("a", |key| key == "a" || key == "a_2"), "a_3");
    }

    #[test]
    fn the_url_error_yields_its_questions() {
        let error = |code, data: &str| ErrorObject {
            code,
            message: "m".into(),
            data: Some(raw(data)),
        };
        let one = r#"{"elicitations":[{"mode":"url","message":"m","url":"https://e.x/","elicitationId":"1"}]}"#;
        assert_eq!(from_url_error(&error(-32042, one)).unwrap().len(), 1);
        assert!(from_url_error(&error(-32000, one)).is_none());
        assert!(from_url_error(&error(-32042, r#"{"elicitations":[]}"#)).is_none());
        assert!(from_url_error(&error(-32042, r#"{"elicitations":[{"message":"m"}]}"#)).is_none());
    }
}
