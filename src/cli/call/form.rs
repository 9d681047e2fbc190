//! An input request as something to ask a person: a visit, or a form and its fields.
//!
//! Spec: 2026-07-28 client/elicitation, "Requested Schema".

use anyhow::{Context, bail};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::terminal::line;
use holdfast::translate::input_request::{InputKind, InputRequest};
use holdfast::wire::legacy;
use holdfast::wire::object::RawObject;

/// A question for a person.
#[derive(Debug)]
pub(super) struct Question {
    /// What kind of answer it wants.
    pub(super) kind: InputKind,
    /// The server's words.
    pub(super) message: String,
    /// Its raw params, for validation.
    pub(super) params: Option<Box<RawValue>>,
    /// What is to be asked.
    pub(super) ask: Ask,
}

/// What is to be asked.
#[derive(Debug)]
pub(super) enum Ask {
    /// A page to visit.
    Visit(String),
    /// A form to fill in.
    Form(Vec<Field>),
    /// The roots, which nobody has to be asked for.
    Roots,
}

/// One property of a form.
#[derive(Debug)]
pub(super) struct Field {
    /// Its name.
    pub(super) name: String,
    /// How it is asked.
    pub(super) input: Input,
    /// The property's schema, raw.
    pub(super) schema: Box<RawValue>,
    /// What to call it before a person.
    pub(super) title: String,
    /// What more there is to say.
    pub(super) help: Option<String>,
    /// It may not be left out.
    pub(super) is_required: bool,
    /// What the server suggests.
    pub(super) default: Option<Value>,
}

/// How a field is asked.
#[derive(Debug, PartialEq)]
pub(super) enum Input {
    YesOrNo,
    Text,
    Number,
    One(Vec<Choice>),
    Several(Vec<Choice>),
}

/// One thing to choose.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) title: String,
}

impl Question {
    /// Reads an entry of `inputRequests`.
    pub(super) fn parse(entry: &RawValue) -> anyhow::Result<Self> {
        let members = RawObject::of(entry)?;
        let method = members.string("method").context("it has no method")?;
        let Ok(request) = InputRequest::parse(&method, members.member("params")) else {
            bail!("{method} with such params is no question");
        };
        let params = request
            .params
            .as_deref()
            .map(RawObject::of)
            .transpose()?
            .unwrap_or_default();
        let ask = match request.kind {
            InputKind::ElicitUrl => Ask::Visit(params.string("url").unwrap_or_default().into()),
            InputKind::ElicitForm => Ask::Form(fields(&params)?),
            InputKind::Roots => Ask::Roots,
            InputKind::Sampling => bail!("it asks for a model, and there is none here"),
        };
        let message = params.string("message").unwrap_or_default().into();
        Ok(Self {
            kind: request.kind,
            message,
            params: request.params.clone(),
            ask,
        })
    }
}

impl Question {
    /// The question and how to answer it, for somebody who writes a command line.
    pub(super) fn for_a_script(&self, key: &str) -> String {
        let answer = match &self.ask {
            Ask::Visit(url) => format!("after a visit to {}: true or false", line(url)),
            Ask::Roots => "roots, by --root".to_owned(),
            Ask::Form(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|field| format!("{}: {}", line(&field.name), line(field.schema.get())))
                    .collect();
                fields.join(", ")
            }
        };
        let (key, message) = (line(key), line(&self.message));
        format!("  --answer {key}=JSON  {message} ({answer})")
    }
}

/// Whether an entry of `inputRequests` is an elicitation.
pub(super) fn is_elicitation(entry: &RawValue) -> bool {
    RawObject::of(entry).is_ok_and(|members| {
        members.string("method").as_deref() == Some(legacy::ELICITATION_CREATE)
    })
}

fn fields(params: &RawObject<'_>) -> anyhow::Result<Vec<Field>> {
    let schema = params
        .member("requestedSchema")
        .map(RawObject::of)
        .transpose()?
        .unwrap_or_default();
    let required: Vec<String> = schema
        .member("required")
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    let properties = schema
        .member("properties")
        .map(RawObject::of)
        .transpose()?
        .unwrap_or_default();
    properties
        .iter()
        .map(|(name, raw)| field(name, raw, required.iter().any(|r| r == name)))
        .collect()
}

fn field(name: &str, schema: &RawValue, is_required: bool) -> anyhow::Result<Field> {
    let value: Value = serde_json::from_str(schema.get())?;
    let text = |member: &str| value[member].as_str().map(ToOwned::to_owned);
    let input = match value["type"].as_str() {
        Some("boolean") => Input::YesOrNo,
        Some("integer" | "number") => Input::Number,
        Some("array") => Input::Several(choices(&value["items"])),
        _ => match choices(&value) {
            none if none.is_empty() => Input::Text,
            some => Input::One(some),
        },
    };
    Ok(Field {
        name: name.to_owned(),
        input,
        schema: schema.to_owned(),
        title: text("title").unwrap_or_else(|| name.to_owned()),
        help: text("description"),
        is_required,
        default: value.get("default").cloned(),
    })
}

/// `enum` with or without `enumNames`, or `oneOf`/`anyOf` of titled constants.
fn choices(schema: &Value) -> Vec<Choice> {
    let titled = ["oneOf", "anyOf"]
        .iter()
        .find_map(|member| schema[*member].as_array());
    if let Some(entries) = titled {
        let choice = |entry: &Value| {
            let value = entry["const"].as_str()?.to_owned();
            let title = entry["title"]
                .as_str()
                .map_or_else(|| value.clone(), ToOwned::to_owned);
            Some(Choice { value, title })
        };
        return entries.iter().filter_map(choice).collect();
    }
    let values = schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let choice = |(at, value): (usize, &str)| {
        let title = schema["enumNames"][at].as_str().unwrap_or(value);
        Choice {
            value: value.to_owned(),
            title: title.to_owned(),
        }
    };
    values.enumerate().map(choice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(schema: &str) -> Input {
        field("f", serde_json::from_str(schema).unwrap(), true)
            .unwrap()
            .input
    }

    fn titles(input: &Input) -> Vec<&str> {
        match input {
            Input::One(choices) | Input::Several(choices) => {
                choices.iter().map(|choice| choice.title.as_str()).collect()
            }
            Input::YesOrNo | Input::Text | Input::Number => Vec::new(),
        }
    }

    #[test]
    fn each_kind_of_property_has_its_prompt() {
        assert_eq!(input(r#"{"type":"boolean"}"#), Input::YesOrNo);
        assert_eq!(input(r#"{"type":"string","format":"email"}"#), Input::Text);
        assert_eq!(input(r#"{"type":"integer"}"#), Input::Number);
        let one = input(r#"{"type":"string","enum":["a","b"],"enumNames":["A"]}"#);
        assert!(matches!(one, Input::One(_)));
        assert_eq!(titles(&one), ["A", "b"]);
        let titled =
            input(r#"{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"g"}]}"#);
        assert_eq!(titles(&titled), ["Red", "g"]);
        let several = input(r#"{"type":"array","items":{"anyOf":[{"const":"r","title":"Red"}]}}"#);
        assert!(matches!(several, Input::Several(_)));
        assert_eq!(titles(&several), ["Red"]);
    }

    #[test]
    fn fields_keep_the_servers_order() {
        let entry = r#"{"method":"elicitation/create","params":{"mode":"form","message":"m","requestedSchema":{"properties":{"z":{},"a":{}},"required":["a"]}}}"#;
        let question = Question::parse(serde_json::from_str(entry).unwrap()).unwrap();
        let Ask::Form(fields) = question.ask else {
            panic!("no form")
        };
        let seen: Vec<_> = fields
            .iter()
            .map(|f| (f.name.as_str(), f.is_required))
            .collect();
        assert_eq!(seen, [("z", false), ("a", true)]);
    }
}
