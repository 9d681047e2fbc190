//! Whether content fits a JSON Schema of somebody else, within bounded work.
//!
//! JSON Schema 2020-12 unless the schema names another known dialect; `format`s are asserted, patterns are matched
//! without backtracking, no `$ref` leaves the schema. The forms of the spec are flat, but nothing keeps a server
//! from sending a schema that unfolds to billions of checks: what unfolds too far is not used at all.
//! Spec: 2026-07-28 client/elicitation "Requested Schema", basic/index "JSON Schema Usage".

use std::cell::RefCell;
use std::rc::Rc;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;
use serde_json::value::RawValue;

/// Bounds a schema that is compiled. Forms of the spec are flat; real ones are a few hundred bytes.
const SCHEMA_BYTES_MAX: usize = 64 << 10;

/// Bounds a schema with each `$ref` replaced by what it refers to, counted in JSON values. Real forms have below
/// a hundred.
const UNFOLDED_MAX: usize = 4096;

/// Bounds the checks of one answer: values of the unfolded schema times values of the content. A tenth of a second
/// on a slow machine.
const WORK_MAX: usize = 1 << 20;

/// Bounds the compiled patterns of a schema together. The longest of real forms, fifty letters of any script, take some
/// megabytes; this much takes a tenth of a second to compile.
const PATTERNS_BYTES_MAX: usize = 16 << 20;

/// So many bytes of text are as much work as one value.
const BYTES_PER_VALUE: usize = 1 << 10;

/// How many violations are told. A person mends one or two at a time.
const VIOLATIONS_MAX: usize = 5;

/// How long the words for one violation may be: they quote the content, which may be large.
const VIOLATION_CHARS_MAX: usize = 200;

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

/// Checks content against a schema.
///
/// # Errors
/// When the content violates the schema or is too large for it, or when the schema is none.
pub fn check(schema: &RawValue, content: &Value) -> Result<(), Rejection> {
    let Compiled {
        validator,
        unfolded,
    } = &*compiled(schema)?;
    if unfolded.saturating_mul(weight(content)) > WORK_MAX {
        return Err(Rejection::Shape("`content` is too large for this form"));
    }
    let violations: Vec<String> = validator
        .iter_errors(content)
        .take(VIOLATIONS_MAX)
        .map(|violation| match violation.instance_path().to_string() {
            path if path.is_empty() => short(violation.to_string()),
            path => short(format!("{path}: {violation}")),
        })
        .collect();
    if violations.is_empty() {
        Ok(())
    } else {
        Err(Rejection::Content(violations))
    }
}

fn short(words: String) -> String {
    match words.char_indices().nth(VIOLATION_CHARS_MAX) {
        None => words,
        Some((end, _)) => format!("{}…", &words[..end]),
    }
}

fn bad(why: impl Into<String>) -> Rejection {
    Rejection::BadSchema(why.into())
}

/// A schema that can be used.
struct Compiled {
    validator: Validator,
    /// How many values it unfolds to.
    unfolded: usize,
}

/// The compiled form of a schema. A tool asks with the same schema again and again, and compiling it costs more
/// than all else that is done for an answer: the last one is remembered.
fn compiled(schema: &RawValue) -> Result<Rc<Compiled>, Rejection> {
    thread_local! {
        static LAST: RefCell<Option<(Box<str>, Rc<Compiled>)>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| {
        if let Some((text, compiled)) = last
            && **text == *schema.get()
        {
            return Ok(Rc::clone(compiled));
        }
        let compiled = Rc::new(compile(schema)?);
        *last = Some((schema.get().into(), Rc::clone(&compiled)));
        Ok(compiled)
    })
}

fn compile(schema: &RawValue) -> Result<Compiled, Rejection> {
    if schema.get().len() > SCHEMA_BYTES_MAX {
        return Err(bad(format!("it is larger than {SCHEMA_BYTES_MAX} bytes")));
    }
    let schema: Value =
        serde_json::from_str(schema.get()).map_err(|_| bad("it is nested too deeply"))?;
    let mut unfolding = Unfolding {
        root: &schema,
        left: UNFOLDED_MAX,
        patterns: 0,
        followed: Vec::new(),
    };
    unfolding.schema(&schema)?;
    let unfolded = UNFOLDED_MAX - unfolding.left;
    let pattern_bytes_max = PATTERNS_BYTES_MAX / unfolding.patterns.max(1);
    let patterns = PatternOptions::regex()
        .size_limit(pattern_bytes_max)
        .dfa_size_limit(pattern_bytes_max);
    let validator = jsonschema::options()
        .with_draft(dialect(&schema)?)
        .should_validate_formats(true)
        .with_pattern_options(patterns)
        .build(&schema)
        .map_err(|error| bad(error.to_string()))?;
    Ok(Compiled {
        validator,
        unfolded,
    })
}

/// How much there is to check in a value.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => 1 + text.len() / BYTES_PER_VALUE,
        Value::Array(values) => 1 + values.iter().map(weight).sum::<usize>(),
        Value::Object(members) => {
            let member =
                |(key, value): (&String, &Value)| key.len() / BYTES_PER_VALUE + weight(value);
            1 + members.iter().map(member).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// Counts the values of a schema with all its references followed.
struct Unfolding<'a> {
    root: &'a Value,
    left: usize,
    /// How many of them are patterns.
    patterns: usize,
    /// The references on the way from the root to here.
    followed: Vec<&'a str>,
}

impl<'a> Unfolding<'a> {
    fn spend(&mut self) -> Result<(), Rejection> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| bad("it unfolds to too much"))?;
        Ok(())
    }

    fn schema(&mut self, schema: &'a Value) -> Result<(), Rejection> {
        self.spend()?;
        match schema {
            Value::Object(members) => members
                .iter()
                .try_for_each(|(key, value)| self.keyword(key, value)),
            Value::Array(schemas) => schemas.iter().try_for_each(|schema| self.schema(schema)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn keyword(&mut self, key: &str, value: &'a Value) -> Result<(), Rejection> {
        match (key, value) {
            ("$ref", Value::String(target)) => self.reference(target),
            ("$dynamicRef" | "$recursiveRef", _) => Err(bad(format!("it uses {key}"))),
            // Another base would give references another meaning.
            ("$id" | "id", Value::String(_)) if !self.is_root_keyword(key, value) => {
                Err(bad(format!("it has an {key} of its own inside")))
            }
            // Counted where they are referred to.
            ("$defs" | "definitions", _) => Ok(()),
            ("pattern", Value::String(_)) => {
                self.patterns += 1;
                self.spend()
            }
            // The keys are names of properties, not keywords.
            ("properties" | "patternProperties" | "dependentSchemas", Value::Object(named)) => {
                if key == "patternProperties" {
                    self.patterns += named.len();
                }
                self.spend()?;
                named.values().try_for_each(|schema| self.schema(schema))
            }
            // Data, however it looks.
            ("const" | "default" | "examples", _) => self.spend(),
            ("enum", Value::Array(values)) => values.iter().try_for_each(|_| self.spend()),
            _ => self.schema(value),
        }
    }

    fn is_root_keyword(&self, key: &str, value: &Value) -> bool {
        self.followed.is_empty()
            && self
                .root
                .get(key)
                .is_some_and(|own| std::ptr::eq(own, value))
    }

    fn reference(&mut self, target: &'a str) -> Result<(), Rejection> {
        let pointer = target
            .strip_prefix('#')
            .filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let pointer = pointer.ok_or_else(|| bad(format!("it refers to {target:?}")))?;
        if self.followed.contains(&target) || pointer.is_empty() {
            return Err(bad("it refers to itself"));
        }
        let referred = self
            .root
            .pointer(pointer)
            .ok_or_else(|| bad(format!("it refers to {target:?}, which is not there")))?;
        self.followed.push(target);
        self.schema(referred)?;
        self.followed.pop();
        Ok(())
    }
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
        .ok_or_else(|| bad(format!("dialect {named} is not supported")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(schema: &Value, content: &Value) -> Result<(), Rejection> {
        check(&serde_json::value::to_raw_value(schema).unwrap(), content)
    }

    fn is_bad(schema: &Value) -> bool {
        let rejected = checked(schema, &json!({"a": "b"}));
        matches!(rejected, Err(Rejection::BadSchema(_)))
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_the_servers_fault() {
        for schema in [
            json!({"type": "nonsense"}),
            json!({"$schema": "https://example.com/mine"}),
            json!({"properties": {"a": {"pattern": "("}}}),
            json!({"$ref": "http://127.0.0.1:9/schema"}),
            json!({"$ref": "#"}),
            json!({"$ref": "#/$defs/nowhere"}),
            json!({"$ref": "#name", "$defs": {"n": {"$anchor": "name"}}}),
            json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}),
            json!({"properties": {"a": {"$id": "http://127.0.0.1:9/other"}}}),
            json!({"$dynamicRef": "#a"}),
        ] {
            assert!(is_bad(&schema), "{schema}");
        }
    }

    #[test]
    fn patterns_are_bounded_together() {
        let form = |count: usize, pattern: &str| {
            let properties: serde_json::Map<String, Value> = (0..count)
                .map(|at| (format!("p{at}"), json!({"pattern": pattern})))
                .collect();
            json!({"properties": properties})
        };
        for (count, pattern) in [
            (1, r"^\w{1,64}$"),
            (4, r"^\pL{50}$"),
            (100, "^[A-Z]{2}[0-9]{6}$"),
        ] {
            assert!(!is_bad(&form(count, pattern)), "{count} of {pattern}");
        }
        for (count, pattern) in [(1, r"^\pL{1000}$"), (100, r"^\pL{100}$")] {
            assert!(is_bad(&form(count, pattern)), "{count} of {pattern}");
        }
        let named = json!({"patternProperties": {r"^\pL{1000}$": {}}});
        assert!(is_bad(&named), "names of properties count too");
    }

    #[test]
    fn schemas_of_real_servers_can_be_used() {
        for schema in [
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
            json!({"$id": "https://example.com/form", "type": "object"}),
            json!({"properties": {"a": {"$ref": "#/$defs/Colour"}}, "$defs": {"Colour": {"enum": ["b"]}}}),
            json!({"properties": {"a": {}, "$ref": {"type": "string"}, "$id": {"type": "string"}, "id": {}}}),
            json!({"properties": {"a": {"const": "b", "default": {"$ref": "#/nowhere"}}}}),
        ] {
            assert_eq!(checked(&schema, &json!({"a": "b"})), Ok(()), "{schema}");
        }
    }

    /// Each level doubles what the one below unfolds to.
    fn doubling(levels: usize, inside: impl Fn(Value) -> Value) -> Value {
        let definitions: serde_json::Map<String, Value> = (0..levels)
            .map(|level| {
                let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
                (format!("d{level}"), inside(json!({"allOf": [next, next]})))
            })
            .chain([(format!("d{levels}"), json!({"type": "object"}))])
            .collect();
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    }

    #[test]
    fn a_schema_that_unfolds_without_end_costs_nothing() {
        assert!(!is_bad(&doubling(5, |schema| schema)));
        assert!(is_bad(&doubling(60, |schema| schema)));
        // Names of properties that look like keywords hide nothing.
        assert!(is_bad(&doubling(
            60,
            |schema| json!({"properties": {"$defs": schema, "const": schema}})
        )));
    }

    #[test]
    fn content_is_bounded_by_what_there_is_to_check() {
        let many: Vec<Value> = (0..500)
            .map(|n| json!({"properties": {n.to_string(): {}}}))
            .collect();
        let schema = json!({"properties": {"a": {"type": "array", "items": {"anyOf": many}}}});
        let large: Vec<usize> = (0..100_000).collect();
        let rejected = checked(&schema, &json!({"a": large}));
        assert!(matches!(rejected, Err(Rejection::Shape(_))), "{rejected:?}");
        // A long text is no such thing.
        let text = "x".repeat(1 << 20);
        let plain = json!({"properties": {"a": {"type": "string", "minLength": 5}}});
        assert_eq!(checked(&plain, &json!({"a": text})), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_said_in_few_words() {
        let schema =
            json!({"properties": {"a": {"type": "string", "maxLength": 5, "format": "email"}}});
        let Err(Rejection::Content(why)) = checked(&schema, &json!({"a": "ä".repeat(1 << 20)}))
        else {
            panic!("it does not fit");
        };
        assert_eq!(why.len(), 2);
        assert!(
            why.iter()
                .all(|words| words.chars().count() <= VIOLATION_CHARS_MAX + 1)
        );
    }
}
