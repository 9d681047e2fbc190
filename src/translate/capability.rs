//! What a modern client declared it can do, and what a legacy server's question needs.
//!
//! Spec: 2026-07-28 basic/index, "Per-request protocol fields"; client/elicitation, "Capabilities".

use std::cell::RefCell;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A client capability that a question can need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// `elicitation.form`, also declared by an empty `elicitation`.
    ElicitationForm,
    /// `elicitation.url`.
    ElicitationUrl,
    /// `sampling`.
    Sampling,
    /// `sampling.tools`.
    SamplingTools,
    /// `roots`.
    Roots,
}

impl Capability {
    /// The `ClientCapabilities` object that declares just this, for `data.requiredCapabilities`.
    #[must_use]
    pub fn as_client_capabilities(self) -> Value {
        match self {
            Self::ElicitationForm => json!({"elicitation": {"form": {}}}),
            Self::ElicitationUrl => json!({"elicitation": {"url": {}}}),
            Self::Sampling => json!({"sampling": {}}),
            Self::SamplingTools => json!({"sampling": {"tools": {}}}),
            Self::Roots => json!({"roots": {}}),
        }
    }
}

/// Bounds a declaration: sessions are pooled by it and it goes to the server. Real ones are about a hundred bytes.
const DECLARED_BYTES_MAX: usize = 16 << 10;

/// A declared capability set in canonical form: two clients that declare the same compare equal, however
/// they order it. Sessions are pooled by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientCapabilities {
    canonical: Arc<str>,
    asks: u8,
}

impl ClientCapabilities {
    /// Reads the `ClientCapabilities` object of a request's `_meta`; `None` when it is no object.
    ///
    /// A client declares the same with every request: each thread remembers the last text it has read, so that
    /// a plain call parses and sorts nothing here.
    #[must_use]
    pub fn parse(raw: &RawValue) -> Option<Self> {
        thread_local! {
            static LAST: RefCell<Option<(Box<str>, ClientCapabilities)>> = const { RefCell::new(None) };
        }
        LAST.with_borrow_mut(|last| {
            if let Some((text, parsed)) = last
                && **text == *raw.get()
            {
                return Some(parsed.clone());
            }
            let parsed = Self::parse_anew(raw)?;
            *last = Some((raw.get().into(), parsed.clone()));
            Some(parsed)
        })
    }

    fn parse_anew(raw: &RawValue) -> Option<Self> {
        if raw.get().len() > DECLARED_BYTES_MAX {
            return None;
        }
        let value: Value = serde_json::from_str(raw.get()).ok()?;
        let declared = value.as_object()?;
        let member = |outer: &str, inner: &str| {
            declared
                .get(outer)
                .and_then(|value| value.get(inner))
                .is_some_and(Value::is_object)
        };
        let present = |outer: &str| declared.get(outer).is_some_and(Value::is_object);
        let empty_elicitation = declared
            .get("elicitation")
            .and_then(Value::as_object)
            .is_some_and(|modes| !modes.contains_key("form") && !modes.contains_key("url"));
        let mut asks = 0;
        for (capability, declared) in [
            (
                Capability::ElicitationForm,
                empty_elicitation || member("elicitation", "form"),
            ),
            (Capability::ElicitationUrl, member("elicitation", "url")),
            (Capability::Sampling, present("sampling")),
            (Capability::SamplingTools, member("sampling", "tools")),
            (Capability::Roots, present("roots")),
        ] {
            asks |= u8::from(declared) << capability as u8;
        }
        // Maps of `Value` are sorted, which makes the text canonical.
        Some(Self {
            canonical: value.to_string().into(),
            asks,
        })
    }

    /// The set in canonical form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.canonical
    }

    /// Whether the client declared `capability`.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.asks & (1 << capability as u8) != 0
    }

    /// Whether the client can be asked anything at all.
    #[must_use]
    pub fn may_be_asked(&self) -> bool {
        self.asks != 0
    }

    /// The set as it is declared to a legacy server in `initialize`. That roots change is told from this side, whenever
    /// the next call comes: the modern era has no such notification.
    #[must_use]
    pub fn to_legacy(&self) -> String {
        let mut declared: Value = serde_json::from_str(&self.canonical).unwrap_or_default();
        if let Some(Value::Object(roots)) = declared.get_mut("roots") {
            roots.insert("listChanged".to_owned(), Value::Bool(true));
        }
        declared.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ClientCapabilities> {
        ClientCapabilities::parse(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn declarations_are_read_as_the_spec_says() {
        use Capability::{ElicitationForm, ElicitationUrl, Roots, Sampling, SamplingTools};
        for (text, expected) in [
            ("{}", vec![]),
            (r#"{"elicitation":{}}"#, vec![ElicitationForm]),
            (r#"{"elicitation":{"url":{}}}"#, vec![ElicitationUrl]),
            (
                r#"{"elicitation":{"form":{},"url":{}}}"#,
                vec![ElicitationForm, ElicitationUrl],
            ),
            (r#"{"sampling":{}}"#, vec![Sampling]),
            (
                r#"{"sampling":{"tools":{}},"roots":{}}"#,
                vec![Sampling, SamplingTools, Roots],
            ),
            (r#"{"roots":null,"sampling":false}"#, vec![]),
        ] {
            let set = parse(text).unwrap();
            for capability in [
                ElicitationForm,
                ElicitationUrl,
                Sampling,
                SamplingTools,
                Roots,
            ] {
                assert_eq!(
                    set.has(capability),
                    expected.contains(&capability),
                    "{text} {capability:?}"
                );
            }
            assert_eq!(set.may_be_asked(), !expected.is_empty(), "{text}");
        }
        assert!(parse("[]").is_none());
        let large = format!(
            r#"{{"experimental":{{"x":"{}"}}}}"#,
            "x".repeat(DECLARED_BYTES_MAX)
        );
        assert!(parse(&large).is_none());
    }

    #[test]
    fn a_server_is_told_of_other_roots() {
        for (declared, told) in [
            ("{}", "{}"),
            (r#"{"roots":{}}"#, r#"{"roots":{"listChanged":true}}"#),
            (
                r#"{"roots":{"listChanged":false},"sampling":{}}"#,
                r#"{"roots":{"listChanged":true},"sampling":{}}"#,
            ),
            (r#"{"roots":null}"#, r#"{"roots":null}"#),
        ] {
            assert_eq!(parse(declared).unwrap().to_legacy(), told);
        }
    }

    #[test]
    fn order_does_not_make_another_set() {
        let (a, b) = (
            r#"{"roots":{},"sampling":{}}"#,
            r#"{ "sampling" : {}, "roots" : {} }"#,
        );
        assert_eq!(parse(a), parse(b));
        assert_ne!(parse(a), parse(r#"{"roots":{}}"#));
    }
}
