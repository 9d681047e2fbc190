//! What clients did in a run, and what they were told.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::support::client::Reply;
use crate::support::text_of;

/// What a leg was told in the end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Questions: their names, and the calls that they say they belong to. None for a leg that was stretched.
    Asked {
        state: String,
        messages: BTreeMap<String, String>,
    },
    /// The text of its result.
    Result(String),
    /// −32602 with a reason.
    Refused {
        reason: String,
        is_safe: Option<bool>,
    },
    /// −32603: the server is lost.
    Lost { may_have_run: bool, why: String },
    /// −32603: the same may be sent again.
    Unreached(String),
    /// Anything else.
    Odd(Value),
    /// Nobody was there: nothing was sent.
    Nobody,
    /// No reply, or none that was whole.
    Broken,
}

impl Outcome {
    pub(crate) fn of(reply: &Reply) -> Self {
        let (error, result) = (&reply.message["error"], &reply.message["result"]);
        if !error.is_null() {
            return Self::of_error(error);
        }
        match result["resultType"].as_str() {
            Some("input_required") => {
                let requests = result["inputRequests"].as_object();
                Self::Asked {
                    state: text(&result["requestState"]),
                    messages: requests.map(messages).unwrap_or_default(),
                }
            }
            Some("complete") => Self::Result(text_of(result).to_owned()),
            _ => Self::Odd(reply.message.clone()),
        }
    }

    fn of_error(error: &Value) -> Self {
        let (why, data) = (text(&error["message"]), &error["data"]);
        match (error["code"].as_i64(), data["reason"].as_str()) {
            (Some(-32602), Some(reason)) => Self::Refused {
                reason: reason.to_owned(),
                is_safe: data["safeToRetry"].as_bool(),
            },
            (Some(-32603), Some("unreached")) => Self::Unreached(why),
            (Some(-32603), Some("lost")) if data["mayHaveRun"].is_boolean() => Self::Lost {
                may_have_run: data["mayHaveRun"] == true,
                why,
            },
            _ => Self::Odd(error.clone()),
        }
    }

    /// The client is told that the round was answered otherwise, or is long over.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason == "answered")
    }

    /// The client is told that nobody can go on with its call.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason == "lost")
    }

    /// Whether two were told the same. Seals differ; and of what is asked one process may have gathered less than another
    /// that has taken the call over, or nothing yet.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Asked { messages: one, .. }, Self::Asked { messages: two, .. }) => {
                let is_part = |part: &BTreeMap<_, _>, whole: &BTreeMap<_, _>| {
                    part.keys().all(|name| whole.contains_key(name))
                };
                is_part(one, two) || is_part(two, one)
            }
            _ => self == other,
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn messages(requests: &Map<String, Value>) -> BTreeMap<String, String> {
    let message =
        |(key, request): (&String, &Value)| (key.clone(), text(&request["params"]["message"]));
    requests.iter().map(message).collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked { messages, .. } => {
                let names: Vec<_> = messages.keys().collect();
                write!(formatter, "asked {names:?}")
            }
            other => write!(formatter, "{other:?}"),
        }
    }
}

/// What a leg is to its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    First,
    Main,
    /// The same as another at the same time.
    Twin,
    /// With other answers than another at the same time.
    Rival,
    /// The same as one before, when the call may have gone on.
    Late,
}

/// A leg, sent again as often as may be and told something in the end.
#[derive(Clone, Debug)]
pub(crate) struct Issue {
    pub(crate) kind: Kind,
    /// Which round it answers; 0 for a first leg.
    pub(crate) round: usize,
    /// By the names of questions.
    pub(crate) answers: Value,
    /// How often it was sent.
    pub(crate) sends: usize,
    pub(crate) ended: Duration,
    pub(crate) outcome: Outcome,
}

/// How a call ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As its last leg was told.
    Told,
    /// Its first leg got no reply: there is nothing to come back with.
    Unheard,
    /// Its client left for good.
    Left,
}

/// A call, made once.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) tag: String,
    pub(crate) is_repeatable: bool,
    pub(crate) issues: Vec<Issue>,
    pub(crate) ending: Ending,
    /// What its client was told last.
    pub(crate) last: Outcome,
}

impl Attempt {
    pub(crate) fn has_result(&self) -> bool {
        self.ending == Ending::Told && matches!(self.last, Outcome::Result(_))
    }
}
