//! `x-mcp-header`: which arguments of a tool are mirrored in `Mcp-Param-*` headers, and whether they are.
//!
//! Spec: 2026-07-28 basic/transports/streamable-http, "Custom Headers from Tool Parameters".

use std::collections::HashSet;

use http::HeaderMap;
use http::header::HeaderName;
use memchr::memmem;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::header;
use crate::wire::object::{self, RawObject};

/// The word that declares a mirrored argument in a schema.
const ANNOTATION: &str = "x-mcp-header";

/// An argument that is mirrored in a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParamHeader {
    /// The whole name of the header.
    #[serde(serialize_with = "write_name", deserialize_with = "read_name")]
    name: HeaderName,
    /// The names of the properties that lead to the argument.
    path: Vec<Box<str>>,
}

fn write_name<S: Serializer>(name: &HeaderName, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(name.as_str())
}

fn read_name<'de, D: Deserializer<'de>>(from: D) -> Result<HeaderName, D::Error> {
    let name = <Box<str>>::deserialize(from)?;
    HeaderName::from_bytes(name.as_bytes()).map_err(de::Error::custom)
}

/// Why a declaration is invalid, and with it the tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDeclaration {
    /// Not a string, or no field-name token.
    #[error("x-mcp-header {0} is not a header name")]
    Name(String),
    /// Two arguments share one header.
    #[error("x-mcp-header {0:?} is declared twice")]
    Twice(String),
    /// Its argument is none of string, integer and boolean.
    #[error("x-mcp-header {0:?} stands at something else than a string, an integer or a boolean")]
    Type(String),
    /// Not at a property that is reached from the root by properties alone.
    #[error("x-mcp-header {0:?} stands where no argument can be told from the schema alone")]
    Place(String),
    /// The schema is no schema.
    #[error("the schema is not readable")]
    Schema,
}

/// Whether a text can hold a declaration at all: almost none does, and is then read no further.
#[must_use]
pub fn may_declare(text: &str) -> bool {
    memmem::find(text.as_bytes(), ANNOTATION.as_bytes()).is_some()
}

/// The arguments that a tool's `inputSchema` declares to be mirrored.
///
/// # Errors
/// When a declaration is invalid: the tool must not be listed then.
pub fn declared(input_schema: &RawValue) -> Result<Vec<ParamHeader>, InvalidDeclaration> {
    if !may_declare(input_schema.get()) {
        return Ok(Vec::new());
    }
    let schema: Value =
        serde_json::from_str(input_schema.get()).map_err(|_| InvalidDeclaration::Schema)?;
    let mut reading = Reading::default();
    reading.schema(&schema, true)?;
    Ok(reading.found)
}

/// A walk through a schema. Its depth is bounded by that of the JSON that was read.
#[derive(Default)]
struct Reading {
    path: Vec<Box<str>>,
    found: Vec<ParamHeader>,
    names: HashSet<HeaderName>,
}

impl Reading {
    /// Reads a schema; `is_reached` says that nothing but `properties` leads here.
    fn schema(&mut self, schema: &Value, is_reached: bool) -> Result<(), InvalidDeclaration> {
        let Value::Object(members) = schema else {
            return self.below(schema);
        };
        if let Some(annotation) = members.get(ANNOTATION) {
            self.annotation(annotation, schema, is_reached)?;
        }
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                // Data, not schemas: what looks like an annotation there is none.
                ("default" | "const" | "enum" | "examples", _) | (ANNOTATION, _) => {}
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        self.path.push(name.as_str().into());
                        self.schema(property, is_reached)?;
                        self.path.pop();
                    }
                }
                // These hold schemas by names of their own.
                (
                    "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                    Value::Object(named),
                ) => {
                    for schema in named.values() {
                        self.schema(schema, false)?;
                    }
                }
                _ => self.below(value)?,
            }
        }
        Ok(())
    }

    /// What stands below any other keyword is not reached by properties alone.
    fn below(&mut self, value: &Value) -> Result<(), InvalidDeclaration> {
        match value {
            Value::Array(values) => values.iter().try_for_each(|value| self.below(value)),
            Value::Object(_) => self.schema(value, false),
            _ => Ok(()),
        }
    }

    fn annotation(
        &mut self,
        annotation: &Value,
        schema: &Value,
        is_reached: bool,
    ) -> Result<(), InvalidDeclaration> {
        let invalid = || InvalidDeclaration::Name(annotation.to_string());
        let name = annotation.as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(invalid)?;
        let full = format!("{}{name}", header::PARAM_PREFIX);
        let header = HeaderName::from_bytes(full.as_bytes()).map_err(|_| invalid())?;
        if !is_reached || self.path.is_empty() {
            return Err(InvalidDeclaration::Place(name.to_owned()));
        }
        if !is_primitive(&schema["type"]) {
            return Err(InvalidDeclaration::Type(name.to_owned()));
        }
        if !self.names.insert(header.clone()) {
            return Err(InvalidDeclaration::Twice(name.to_owned()));
        }
        self.found.push(ParamHeader {
            name: header,
            path: self.path.clone(),
        });
        Ok(())
    }
}

/// One of the types that may be mirrored, perhaps beside `null`, of which no header is expected.
fn is_primitive(kind: &Value) -> bool {
    let is_one = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    match kind {
        Value::Array(kinds) => {
            let mut others = kinds.iter().filter(|kind| *kind != "null");
            others.next().is_some_and(is_one) && others.next().is_none()
        }
        kind => is_one(kind),
    }
}

/// Checks that what is declared is mirrored: each value that `arguments` hold, by a header that says the same.
///
/// # Errors
/// Which header does not, and why.
pub fn check(
    declared: &[ParamHeader],
    arguments: Option<&RawValue>,
    headers: &HeaderMap,
) -> Result<(), String> {
    declared
        .iter()
        .try_for_each(|declared| declared.check(arguments, headers))
}

impl ParamHeader {
    fn check(&self, arguments: Option<&RawValue>, headers: &HeaderMap) -> Result<(), String> {
        let name = &self.name;
        let mut given = headers.get_all(name).iter();
        let first = given.next();
        if given.any(|other| Some(other) != first) {
            return Err(format!("header {name} is given twice"));
        }
        let value = self
            .value(arguments)
            .map_err(|_| format!("the argument of header {name} is named twice"))?;
        match (value, first) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(format!(
                "header {name} mirrors an argument that is not there"
            )),
            (Some(_), None) => Err(format!("header {name} is missing")),
            (Some(value), Some(header)) => {
                let text = header::decode(header.as_bytes())
                    .ok_or_else(|| format!("header {name} is not decodable"))?;
                if says(value, &text) {
                    Ok(())
                } else {
                    Err(format!("header {name} and its argument differ"))
                }
            }
        }
    }

    /// The argument; nothing when it is not there or `null`.
    fn value<'a>(
        &self,
        arguments: Option<&'a RawValue>,
    ) -> Result<Option<&'a RawValue>, serde_json::Error> {
        let mut value = arguments;
        for step in &self.path {
            value = match value.filter(|raw| object::is_object(raw)) {
                Some(raw) => RawObject::of(raw)?.member(step),
                None => None,
            };
        }
        Ok(value.filter(|raw| !object::is_null(raw)))
    }
}

/// Whether a header's text says what a JSON value is.
fn says(value: &RawValue, text: &str) -> bool {
    match value.get().as_bytes().first() {
        Some(b'"') => object::string(value).is_some_and(|value| value == text),
        Some(b't' | b'f') => value.get() == text,
        Some(b'-' | b'0'..=b'9') => is_same_number(value.get(), text),
        // Objects and arrays are not mirrored.
        _ => false,
    }
}

/// Numbers compare as numbers: 42.0 is 42. What is written without an exponent and is whole compares exactly.
fn is_same_number(value: &str, text: &str) -> bool {
    let whole = |text: &str| {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_whole = fraction.bytes().all(|digit| digit == b'0');
        whole.parse::<i128>().ok().filter(|_| is_whole)
    };
    if let (Some(value), Some(text)) = (whole(value), whole(text)) {
        return value == text;
    }
    // JSON's numbers are a part of what `f64` reads; "inf" and the like are not numbers there.
    let is_numeric = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
    match (value.parse::<f64>(), text.parse::<f64>()) {
        #[expect(
            clippy::float_cmp,
            reason = "two spellings of one number read as one number"
        )]
        (Ok(value), Ok(text)) => is_numeric && value == text,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
