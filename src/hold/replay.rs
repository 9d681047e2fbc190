//! Which lost calls are run again, as the operator says.

use std::collections::HashMap;

use bytes::Bytes;

use crate::wire::modern::Method;
use crate::wire::object::RawObject;

/// When a lost call is run again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// Its client is told that it is lost.
    #[default]
    Never,
    /// When nothing speaks against making it twice: it only reads, or its tool says `readOnlyHint` or `idempotentHint`.
    Annotated,
    /// The operator says that it may be made twice.
    Always,
}

/// The operator's word on the calls of one backend.
#[derive(Clone, Debug, Default)]
pub struct Replays {
    /// On all that is not named.
    pub usual: Replay,
    /// On single tools.
    pub tools: HashMap<Box<str>, Replay>,
}

impl Replays {
    /// Whether no call is ever run again.
    fn is_never(&self) -> bool {
        self.usual == Replay::Never && self.tools.values().all(|replay| *replay == Replay::Never)
    }

    /// The word on a call with these raw `params`. Only calls that can be asked something are held and lost.
    #[must_use]
    pub fn of(&self, method: Method, params: &Bytes) -> Replay {
        if self.is_never() || !method.may_ask() {
            return Replay::Never;
        }
        if method != Method::ToolsCall || self.tools.is_empty() {
            return self.usual;
        }
        let params = RawObject::parse(params).unwrap_or_default();
        let tool = params.string("name").unwrap_or_default();
        self.tools.get(&*tool).copied().unwrap_or(self.usual)
    }
}

impl Replay {
    /// Whether a call is run again; `is_repeatable` as its server says.
    #[must_use]
    pub fn allows(self, is_repeatable: bool) -> bool {
        match self {
            Self::Never => false,
            Self::Annotated => is_repeatable,
            Self::Always => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_goes_before_its_backend() {
        let replays = Replays {
            usual: Replay::Annotated,
            tools: [("pay", Replay::Never), ("look", Replay::Always)]
                .map(|(tool, replay)| (tool.into(), replay))
                .into(),
        };
        for (method, params, expected) in [
            (Method::ToolsCall, r#"{"name":"pay"}"#, Replay::Never),
            (Method::ToolsCall, r#"{"name":"look"}"#, Replay::Always),
            (Method::ToolsCall, r#"{"name":"other"}"#, Replay::Annotated),
            // Not a tool, whatever its name.
            (Method::PromptsGet, r#"{"name":"pay"}"#, Replay::Annotated),
            (
                Method::ResourcesRead,
                r#"{"uri":"look"}"#,
                Replay::Annotated,
            ),
            (Method::ToolsList, "{}", Replay::Never),
        ] {
            let replay = replays.of(method, &Bytes::from_static(params.as_bytes()));
            assert_eq!(replay, expected, "{params}");
        }
        let none = Replays::default();
        let params = Bytes::from_static(br#"{"name":"pay"}"#);
        assert_eq!(none.of(Method::ToolsCall, &params), Replay::Never);
    }

    #[test]
    fn annotations_count_where_they_are_to() {
        for (replay, expected) in [
            (Replay::Never, [false, false]),
            (Replay::Annotated, [false, true]),
            (Replay::Always, [true, true]),
        ] {
            assert_eq!([false, true].map(|hint| replay.allows(hint)), expected);
        }
    }
}
