//! Asking a person in the terminal. Declining and cancelling are always possible: the first choice of every
//! question offers both, and Esc cancels.

use std::fmt;

use anyhow::bail;
use inquire::error::InquireError;
use inquire::validator::{ErrorMessage, Validation};
use inquire::{Confirm, MultiSelect, Select, Text};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::form::{Ask, Choice, Field, Input, Question};
use crate::cli::tell;
use crate::cli::terminal::{indented, line, plain};
use holdfast::translate::input_response;

/// How a short list is used.
const PICK: &str = "↑↓ to move, enter to pick";

/// The choice of giving no value for an optional property.
const LEFT_OUT: &str = "(left out)";

/// What a person wants to do about a question.
#[derive(Clone, Copy)]
enum Intent {
    Answer(&'static str),
    Decline,
    Cancel,
}

impl fmt::Display for Intent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Answer(words) => words,
            Self::Decline => "decline: say no to the question",
            Self::Cancel => "cancel: do not answer",
        })
    }
}

/// Asks a question until it is answered, declined or cancelled; the answer fits the question.
pub(super) fn ask(key: &str, question: &Question, rejected: Option<&str>) -> anyhow::Result<Value> {
    if let Some(why) = rejected {
        tell(format_args!(
            "The last answer was not taken: {}",
            plain(why)
        ));
    }
    tell(format_args!(
        "\n[{}] {}",
        line(key),
        indented(&question.message)
    ));
    let answer = match &question.ask {
        Ask::Visit(url) => {
            tell(format_args!(
                "Open this address yourself if you trust it:\n  {}",
                line(url)
            ));
            "I have been there"
        }
        Ask::Form(_) => "answer",
        Ask::Roots => bail!("roots are not asked for"),
    };
    let intents = vec![Intent::Answer(answer), Intent::Decline, Intent::Cancel];
    let intent = Select::new("What do you want to do?", intents)
        .without_filtering()
        .with_help_message(PICK)
        .prompt();
    let filled = match (intent, &question.ask) {
        (Ok(Intent::Answer(_)), Ask::Form(fields)) => fill(fields),
        (Ok(Intent::Answer(_)), Ask::Visit(_) | Ask::Roots) => {
            return Ok(json!({"action": "accept"}));
        }
        (Ok(Intent::Decline), _) => return Ok(json!({"action": "decline"})),
        (Ok(Intent::Cancel), _) => return Ok(json!({"action": "cancel"})),
        (Err(error), _) => Err(error),
    };
    match filled {
        Ok(content) => Ok(json!({"action": "accept", "content": content})),
        Err(InquireError::OperationCanceled) => Ok(json!({"action": "cancel"})),
        Err(InquireError::OperationInterrupted) => bail!("interrupted"),
        Err(error) => Err(error.into()),
    }
}

fn fill(fields: &[Field]) -> Result<Map<String, Value>, InquireError> {
    let mut content = Map::new();
    for field in fields {
        if let Some(value) = value(field)? {
            content.insert(field.name.clone(), value);
        }
    }
    Ok(content)
}

/// The value of a field; nothing for an optional one that was left out.
fn value(field: &Field) -> Result<Option<Value>, InquireError> {
    let title = format!("{}:", line(&field.title));
    let help = help(field);
    match &field.input {
        Input::YesOrNo if !field.is_required => yes_no_or_nothing(field, &title, &help),
        Input::YesOrNo => {
            let mut confirm = Confirm::new(&title)
                .with_placeholder("y/n")
                .with_help_message(&help);
            confirm.default = field.default.as_ref().and_then(Value::as_bool);
            confirm.prompt().map(|yes| Some(yes.into()))
        }
        Input::Text | Input::Number => text(field, &title, &help),
        Input::One(choices) => one(field, choices, &title, &help),
        Input::Several(choices) => several(field, choices, &title, &help),
    }
}

/// A confirmation that may be left out, which is neither yes nor no.
fn yes_no_or_nothing(
    field: &Field,
    title: &str,
    help: &str,
) -> Result<Option<Value>, InquireError> {
    let choices = ["Yes", "No", LEFT_OUT];
    let suggested = match field.default.as_ref().and_then(Value::as_bool) {
        Some(true) => 0,
        Some(false) => 1,
        None => 2,
    };
    let chosen = Select::new(title, choices.to_vec())
        .with_starting_cursor(suggested)
        .with_help_message(help)
        .without_filtering()
        .raw_prompt()?;
    Ok([Some(true.into()), Some(false.into()), None][chosen.index].clone())
}

fn help(field: &Field) -> String {
    let how = match field.input {
        Input::YesOrNo if field.is_required => "y or n, then enter",
        Input::YesOrNo => PICK,
        Input::One(_) => "↑↓ to move, type to filter, enter to pick",
        Input::Several(_) => "↑↓ to move, space to pick, enter when done",
        Input::Text | Input::Number => "enter when done",
    };
    let skip = if field.is_required {
        ""
    } else {
        "; may be left out"
    };
    let words = field.help.as_deref().map(line);
    let words = words.map(|words| format!("{words} · ")).unwrap_or_default();
    format!("{words}{how}{skip}; Esc cancels")
}

fn text(field: &Field, title: &str, help: &str) -> Result<Option<Value>, InquireError> {
    let default = field.default.as_ref().map(|value| match value {
        Value::String(text) => plain(text),
        other => line(&other.to_string()),
    });
    let (schema, is_number) = (field.schema.clone(), field.input == Input::Number);
    let is_optional = !field.is_required;
    let validator = move |typed: &str| {
        if typed.is_empty() && is_optional {
            return Ok(Validation::Valid);
        }
        Ok(match fits(&schema, typed, is_number) {
            Ok(_) => Validation::Valid,
            Err(why) => Validation::Invalid(ErrorMessage::Custom(why)),
        })
    };
    let mut text = Text::new(title)
        .with_help_message(help)
        .with_validator(validator);
    if let Some(default) = &default {
        text = text.with_initial_value(default);
    }
    let typed = text.prompt()?;
    if typed.is_empty() && is_optional {
        return Ok(None);
    }
    Ok(fits(&field.schema, &typed, is_number).ok())
}

/// The typed text as a value of the schema, or what is wrong with it.
fn fits(schema: &RawValue, typed: &str, is_number: bool) -> Result<Value, String> {
    let value = if is_number {
        let number = serde_json::from_str::<serde_json::Number>(typed.trim());
        Value::Number(number.map_err(|_| "a number, please".to_owned())?)
    } else {
        typed.into()
    };
    match input_response::check_content(schema, &value) {
        Ok(()) => Ok(value),
        Err(rejection) => Err(plain(&rejection.to_string())),
    }
}

/// A choice as the list shows it.
struct Shown<'a>(Option<&'a Choice>);

impl Shown<'_> {
    fn value(&self) -> Option<&str> {
        self.0.map(|choice| choice.value.as_str())
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(choice) => formatter.write_str(&line(&choice.title)),
            None => formatter.write_str(LEFT_OUT),
        }
    }
}

fn one(
    field: &Field,
    choices: &[Choice],
    title: &str,
    help: &str,
) -> Result<Option<Value>, InquireError> {
    let mut shown: Vec<Shown<'_>> = choices.iter().map(|choice| Shown(Some(choice))).collect();
    if !field.is_required {
        shown.push(Shown(None));
    }
    let default = field.default.as_ref().and_then(Value::as_str);
    let at = choices
        .iter()
        .position(|choice| Some(choice.value.as_str()) == default)
        .unwrap_or(if field.is_required { 0 } else { choices.len() });
    let chosen = Select::new(title, shown)
        .with_help_message(help)
        .with_starting_cursor(at)
        .prompt()?;
    Ok(chosen.0.map(|choice| choice.value.as_str().into()))
}

fn several(
    field: &Field,
    choices: &[Choice],
    title: &str,
    help: &str,
) -> Result<Option<Value>, InquireError> {
    let shown: Vec<Shown<'_>> = choices.iter().map(|choice| Shown(Some(choice))).collect();
    let suggested = |choice: &Choice| {
        let defaults = field.default.as_ref().and_then(Value::as_array);
        defaults.is_some_and(|values| values.iter().any(|value| *value == choice.value.as_str()))
    };
    let defaults: Vec<usize> = (0..choices.len())
        .filter(|at| suggested(&choices[*at]))
        .collect();
    let (schema, is_required) = (field.schema.clone(), field.is_required);
    let validator = move |chosen: &[inquire::list_option::ListOption<&Shown<'_>>]| {
        if chosen.is_empty() && !is_required {
            return Ok(Validation::Valid);
        }
        let chosen: Value = chosen
            .iter()
            .filter_map(|option| option.value.value())
            .collect();
        Ok(match input_response::check_content(&schema, &chosen) {
            Ok(()) => Validation::Valid,
            Err(why) => Validation::Invalid(ErrorMessage::Custom(plain(&why.to_string()))),
        })
    };
    let chosen = MultiSelect::new(title, shown)
        .with_default(&defaults)
        .with_help_message(help)
        .with_validator(validator)
        .prompt()?;
    let chosen: Value = chosen.iter().filter_map(Shown::value).collect();
    let is_left_out = !field.is_required && chosen == json!([]);
    Ok((!is_left_out).then_some(chosen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_text_becomes_a_value_that_fits() {
        let check = |schema: &str, typed: &str, is_number: bool, expected: Option<Value>| {
            let schema: &RawValue = serde_json::from_str(schema).unwrap();
            assert_eq!(fits(schema, typed, is_number).ok(), expected, "{typed}");
        };
        let email = r#"{"type":"string","format":"email"}"#;
        check(
            email,
            "ada@example.com",
            false,
            Some("ada@example.com".into()),
        );
        check(email, "nobody", false, None);
        let size = r#"{"type":"integer","minimum":1,"maximum":60}"#;
        check(size, " 42 ", true, Some(42.into()));
        check(size, "61", true, None);
        check(size, "many", true, None);
    }
}
