//! Answers that were given on the command line.

use std::collections::{HashMap, VecDeque};

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use super::form::{Ask, Question};
use crate::cli::terminal::plain;
use holdfast::translate::input_response;

/// What can be answered without asking anybody.
#[derive(Debug)]
pub(super) struct Answers {
    /// In the order given; each is used once, so that none answers a question it was not meant for.
    by_key: HashMap<String, VecDeque<Value>>,
    roots: Vec<Value>,
}

impl Answers {
    /// Reads `--answer KEY=JSON` and `--root URI`.
    pub(super) fn parse(answers: &[(String, String)], roots: &[String]) -> anyhow::Result<Self> {
        let mut by_key: HashMap<String, VecDeque<Value>> = HashMap::new();
        for (key, text) in answers {
            let value = serde_json::from_str(text)
                .with_context(|| format!("--answer {key}={text} is no JSON (text wants quotes)"))?;
            by_key.entry(key.clone()).or_default().push_back(value);
        }
        if let Some(other) = roots.iter().find(|uri| !uri.starts_with("file://")) {
            bail!("--root {other} is no file:// URI");
        }
        let roots = roots.iter().map(|uri| json!({"uri": uri})).collect();
        Ok(Self { by_key, roots })
    }

    /// The answer to a question, if there is one. An answer that does not fit is an error, not a reason to ask.
    pub(super) fn prepared(
        &mut self,
        key: &str,
        question: &Question,
        rejected: Option<&str>,
    ) -> anyhow::Result<Option<Value>> {
        let is_roots = matches!(question.ask, Ask::Roots);
        let queue = self.by_key.get_mut(key);
        if let Some(why) = rejected
            && (is_roots || queue.is_some())
        {
            bail!("the answer to {key:?} was not taken: {}", plain(why));
        }
        if is_roots {
            return Ok(Some(json!({"roots": self.roots})));
        }
        let Some(given) = queue.and_then(VecDeque::pop_front) else {
            return Ok(None);
        };
        let response = response(&given, question);
        let raw = serde_json::value::to_raw_value(&response)?;
        input_response::check(question.kind, question.params.as_deref(), &raw)
            .with_context(|| format!("the answer to {key:?} does not fit"))?;
        Ok(Some(response))
    }
}

/// A whole response, form content, or the bare value of a form with one property.
fn response(given: &Value, question: &Question) -> Value {
    if given.get("action").is_some_and(Value::is_string) {
        return given.clone();
    }
    let Ask::Form(fields) = &question.ask else {
        return match given {
            Value::Bool(true) => json!({"action": "accept"}),
            Value::Bool(false) => json!({"action": "decline"}),
            other => other.clone(),
        };
    };
    let content = match (given, fields.as_slice()) {
        (Value::Object(content), _) => content.clone(),
        (bare, [field]) => Map::from_iter([(field.name.clone(), bare.clone())]),
        (other, _) => return other.clone(),
    };
    json!({"action": "accept", "content": content})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(properties: &str) -> Question {
        let text = format!(
            r#"{{"method":"elicitation/create","params":{{"message":"m","requestedSchema":{{"type":"object","properties":{properties}}}}}}}"#
        );
        Question::parse(serde_json::from_str(&text).unwrap()).unwrap()
    }

    fn check(properties: &str, answer: &str, expected: Option<Value>) {
        let mut answers = Answers::parse(&[("k".to_owned(), answer.to_owned())], &[]).unwrap();
        let prepared = answers
            .prepared("k", &question(properties), None)
            .ok()
            .flatten();
        assert_eq!(prepared, expected, "{properties} {answer}");
    }

    #[test]
    fn answers_come_whole_as_content_or_bare() {
        let one = r#"{"a":{"type":"boolean"}}"#;
        let accepted = Some(json!({"action": "accept", "content": {"a": true}}));
        check(one, "true", accepted.clone());
        check(one, r#"{"a":true}"#, accepted.clone());
        check(one, r#"{"action":"accept","content":{"a":true}}"#, accepted);
        check(
            one,
            r#"{"action":"decline"}"#,
            Some(json!({"action": "decline"})),
        );
        check(one, r#""yes""#, None);
        check(r#"{"a":{},"b":{}}"#, "true", None);
        check(
            r#"{"action":{"type":"boolean"}}"#,
            "false",
            Some(json!({"action": "accept", "content": {"action": false}})),
        );
    }

    #[test]
    fn a_rejected_answer_is_not_given_again() {
        let mut answers = Answers::parse(&[("k".to_owned(), "true".to_owned())], &[]).unwrap();
        let question = question(r#"{"a":{"type":"boolean"}}"#);
        assert!(answers.prepared("k", &question, Some("too late")).is_err());
        assert!(answers.prepared("x", &question, None).unwrap().is_none());
        let roots = Question::parse(serde_json::from_str(r#"{"method":"roots/list"}"#).unwrap());
        let roots = roots.unwrap();
        assert!(answers.prepared("roots", &roots, None).unwrap().is_some());
        assert!(answers.prepared("roots", &roots, Some("no")).is_err());
    }

    #[test]
    fn an_answer_is_given_once() {
        let given = ["true", "false"].map(|value| ("k".to_owned(), value.to_owned()));
        let mut answers = Answers::parse(&given, &[]).unwrap();
        let question = question(r#"{"a":{"type":"boolean"}}"#);
        let mut next = || answers.prepared("k", &question, None).unwrap();
        let accepted = |value: bool| Some(json!({"action": "accept", "content": {"a": value}}));
        assert_eq!(
            [next(), next(), next()],
            [accepted(true), accepted(false), None]
        );
    }

    #[test]
    fn an_answer_that_is_no_json_is_wrong_use() {
        assert!(Answers::parse(&[("k".to_owned(), "ada@example.com".to_owned())], &[]).is_err());
    }
}
