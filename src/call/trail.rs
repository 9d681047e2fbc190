//! Where a call stands in what its server says, so that another process can go on reading there.
//!
//! A server that gives its events ids says again what came after one of them (2025-11-25 basic/transports, "Resumability
//! and Redelivery"). A position is therefore the id of the last event before the first question that is still open: from
//! there the server repeats the question itself. Where no event with an id came before it, the position is that of the
//! latest event, and whoever takes over has to be given the question. So it is with questions on the session's general
//! stream, which is not read again. And so it is where the question's own event has an id that sorts before the position:
//! widely copied stores repeat the events whose ids sort after it, and do not number them in the order they came.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::translate::input_request::InputRequest;
use crate::wire::jsonrpc::{ServerId, UpstreamId};
use crate::wire::sse::Between;

/// Steps that are kept. A step is a question with what follows it; no call has more open at once by default.
const STEPS_MAX: usize = 32;

/// Where a stream has to be read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The id of the event after which it goes on.
    pub after: Box<str>,
    /// So many events after that one were heard already: what they notified is not told again.
    pub heard: u16,
}

/// A request of the server that is repeated from there, or that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The server's own id of it.
    pub id: ServerId,
    /// As what it is open; nothing when it was answered or refused.
    pub open: Option<Open>,
}

/// A question that its client was asked and that is not answered yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Its key in `inputRequests`.
    pub key: Box<str>,
    /// The entry of `inputRequests`, where the server does not repeat the question.
    pub entry: Option<Box<str>>,
}

/// What a process that takes a call over needs of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footing {
    /// The id of its request towards the server.
    pub request: UpstreamId,
    /// The stream that answers the request.
    pub exchange: Position,
    /// The requests that are repeated from there, and those that are open.
    pub asked: Vec<Asked>,
}

/// A question as it is open.
#[derive(Clone, Copy, Debug)]
pub struct OpenQuestion<'a> {
    /// The server's own id of it; nothing when nobody waits for the answer.
    pub id: Option<&'a ServerId>,
    /// Its key in `inputRequests`.
    pub key: &'a str,
    /// What is asked.
    pub request: &'a InputRequest,
}

impl OpenQuestion<'_> {
    /// As it has to be given to whoever takes the call over.
    fn given(&self) -> Option<Open> {
        let entry = String::from_utf8(self.request.to_json()).ok()?;
        Some(Open {
            key: self.key.into(),
            entry: Some(entry.into()),
        })
    }
}

/// What a call has heard since its first open question on the stream that answers its request.
#[derive(Debug, Default)]
pub struct Trail {
    /// The latest event before the steps that had an id.
    base: Option<Box<str>>,
    steps: VecDeque<Step>,
    /// So many events that follow were heard before.
    repeated: u16,
    /// More came than is kept: where the open questions stand is not known any more.
    is_lost: bool,
}

/// An event that brought requests, with the others that followed it.
#[derive(Debug)]
struct Step {
    asked: Vec<ServerId>,
    /// The id of the event with the requests, if it has one.
    own: Option<Box<str>>,
    /// The latest id of all.
    at: Option<Box<str>>,
    events: u16,
}

impl Trail {
    /// The trail of a call that was taken over: what it heard before comes again.
    #[must_use]
    pub fn resumed(position: &Position) -> Self {
        Self {
            base: Some(position.after.clone()),
            repeated: position.heard,
            ..Self::default()
        }
    }

    /// An event comes; whether it was heard before.
    pub fn is_repeated(&mut self) -> bool {
        let is_repeated = self.repeated > 0;
        self.repeated = self.repeated.saturating_sub(1);
        is_repeated
    }

    /// The stream was read up to `at`, without anything having been heard on it.
    pub fn reaches(&mut self, at: Option<Box<str>>) {
        if self.steps.is_empty() && at.is_some() {
            self.base = at;
        }
    }

    /// An event was heard that stands where `between` says; `asked` are the requests that it brought.
    pub fn heard(&mut self, between: Between, asked: Vec<ServerId>) {
        let Between { before, at } = between;
        let count = self.steps.len();
        match self.steps.back_mut() {
            Some(step) if asked.is_empty() => {
                step.events = step.events.saturating_add(1);
                step.at = at.or(step.at.take());
                self.is_lost |= step.events == u16::MAX;
            }
            None if asked.is_empty() => self.base = at.or(before),
            Some(step) if count >= STEPS_MAX => {
                // When all is answered, the call stands after this event all the same.
                step.at = at.or(step.at.take());
                self.is_lost = true;
            }
            latest => {
                let own = at.clone().filter(|_| at != before);
                if latest.is_none() && before.is_some() {
                    self.base = before;
                }
                self.steps.push_back(Step {
                    asked,
                    own,
                    at,
                    events: 1,
                });
            }
        }
    }

    /// Forgets the steps before the first question that is still open.
    pub fn settle(&mut self, is_open: impl Fn(&ServerId) -> bool) {
        while let Some(step) = self.steps.front()
            && !step.asked.iter().any(&is_open)
        {
            if let Some(settled) = self.steps.pop_front() {
                self.base = settled.at.or(self.base.take());
            }
        }
        self.is_lost &= !self.steps.is_empty();
    }

    /// Where the call stands, if its stream can be read again from there.
    #[must_use]
    pub fn footing(&self, request: UpstreamId, open: &[OpenQuestion<'_>]) -> Option<Footing> {
        let mut asked = Vec::new();
        let exchange = self.position(open, &mut asked)?;
        for question in open {
            let id = question.id?;
            if asked.iter().any(|asked| asked.id == *id) {
                continue;
            }
            asked.push(Asked {
                id: id.clone(),
                open: Some(question.given()?),
            });
        }
        Some(Footing {
            request,
            exchange,
            asked,
        })
    }

    /// Where the stream has to be read again, and what is repeated from there.
    fn position(&self, open: &[OpenQuestion<'_>], asked: &mut Vec<Asked>) -> Option<Position> {
        if self.is_lost {
            return None;
        }
        let find = |id: &ServerId| open.iter().find(|question| question.id == Some(id));
        let is_known =
            |step: &Step| step.own.is_some() || !step.asked.iter().any(|id| find(id).is_some());
        let base = self.base.as_ref();
        let Some(base) = base.filter(|_| self.steps.iter().all(is_known)) else {
            let latest = self.steps.iter().rev().find_map(|step| step.at.clone());
            let after = latest.or_else(|| self.base.clone())?;
            return Some(Position { after, heard: 0 });
        };
        for step in &self.steps {
            let is_in_order = step.own.as_ref() > Some(base);
            for id in &step.asked {
                let open = match find(id) {
                    Some(question) if is_in_order => Some(Open {
                        key: question.key.into(),
                        entry: None,
                    }),
                    Some(question) => Some(question.given()?),
                    None => None,
                };
                asked.push(Asked {
                    id: id.clone(),
                    open,
                });
            }
        }
        let heard: u32 = self.steps.iter().map(|step| u32::from(step.events)).sum();
        Some(Position {
            after: base.clone(),
            heard: u16::try_from(heard).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::jsonrpc::Message;

    fn id(n: u32) -> ServerId {
        let raw = serde_json::value::RawValue::from_string(n.to_string()).unwrap();
        ServerId::new(&raw).unwrap()
    }

    fn question() -> InputRequest {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;
        let Ok(Message::Request { method, params, .. }) = Message::parse(text.as_bytes()) else {
            panic!("{text} is no request");
        };
        InputRequest::parse(&method, params).unwrap()
    }

    /// What was heard, in words: `e5=2,3` is an event with id 5 that asked 2 and 3, `e` one without an id.
    fn trail(heard: &str, open: &[u32]) -> Trail {
        let mut trail = Trail::default();
        let mut between = Between::default();
        let open: Vec<ServerId> = open.iter().map(|n| id(*n)).collect();
        for event in heard.split_whitespace() {
            let (event, asked) = event.split_once('=').unwrap_or((event, ""));
            let at = event.strip_prefix('e').filter(|at| !at.is_empty());
            between.go_on(at.map(Into::into));
            let asked = asked.split(',').filter_map(|n| n.parse().ok()).map(id);
            trail.heard(between.clone(), asked.collect());
            trail.settle(|id| open.contains(id));
        }
        trail
    }

    fn shown(trail: &Trail, open: &[u32]) -> String {
        let question = question();
        let ids: Vec<ServerId> = open.iter().map(|n| id(*n)).collect();
        let open = ids.iter().map(|id| OpenQuestion {
            id: Some(id),
            key: "k",
            request: &question,
        });
        let Some(footing) = trail.footing(UpstreamId(7), &open.collect::<Vec<_>>()) else {
            return "nothing".to_owned();
        };
        let Position { after, heard } = footing.exchange;
        let asked = footing.asked.iter().map(|asked| {
            let how = match &asked.open {
                None => "settled",
                Some(Open { entry: None, .. }) => "repeated",
                Some(Open { entry: Some(_), .. }) => "given",
            };
            format!(" {} {how}", asked.id.as_json())
        });
        format!("{after}+{heard}{}", asked.collect::<String>())
    }

    #[test]
    fn a_call_stands_before_its_first_open_question() {
        for (heard, open, expected) in [
            // Nothing with an id was heard: there is no going back.
            ("", &[][..], "nothing"),
            ("e e=1", &[1], "nothing"),
            // Nothing is open: after all that was heard.
            ("e1", &[], "1+0"),
            ("e1 e2", &[], "2+0"),
            ("e1 e2=9 e3", &[], "3+0"),
            // Before the question, which is said again.
            ("e1 e2=1", &[1], "1+1 1 repeated"),
            ("e1 e2 e3=1 e4 e5", &[1], "2+3 1 repeated"),
            ("e1 e2=9 e3=1", &[1], "2+1 1 repeated"),
            // What was answered since is said again too.
            (
                "e1 e2=1 e3=9 e4=2",
                &[1, 2],
                "1+3 1 repeated 9 settled 2 repeated",
            ),
            ("e1 e2=1,9", &[1], "1+1 1 repeated 9 settled"),
            // No event came before the question: it is carried along.
            ("e1=1", &[1], "1+0 1 given"),
            // It came on the general stream.
            ("e1", &[1], "1+0 1 given"),
            ("e1 e2=2", &[1, 2], "1+1 2 repeated 1 given"),
            // Its own event had no id: nobody knows whether it is said again.
            ("e1 e=1", &[1], "1+0 1 given"),
            ("e1 e=9 e3", &[], "3+0"),
            // Its id sorts before the one that it came after: perhaps it is said again, and perhaps not.
            ("e5 e3=1 e4", &[1], "5+2 1 given"),
            ("e5 e3=1 e7=2", &[1, 2], "5+2 1 given 2 repeated"),
        ] {
            let shown = shown(&trail(heard, open), open);
            assert_eq!(shown, expected, "{heard} {open:?}");
        }
    }

    #[test]
    fn a_call_that_hears_too_much_while_it_asks_stands_nowhere_until_it_was_answered() {
        let flood: String = (2..100).map(|n| format!(" e{n}={n}")).collect();
        let mut trail = trail(&format!("e1{flood}"), &[2]);
        assert_eq!(shown(&trail, &[2]), "nothing");
        trail.settle(|_| false);
        // Not after an earlier event: what was answered since would be asked again, as something new.
        assert_eq!(shown(&trail, &[]), "99+0");
        let between = Between {
            before: None,
            at: Some("100".into()),
        };
        trail.heard(between, Vec::new());
        assert_eq!(shown(&trail, &[]), "100+0");
    }

    #[test]
    fn a_stream_on_which_nothing_was_said_can_be_read_again_from_its_first_id() {
        let mut trail = trail("", &[1]);
        trail.reaches(None);
        assert_eq!(shown(&trail, &[1]), "nothing");
        trail.reaches(Some("1".into()));
        assert_eq!(shown(&trail, &[1]), "1+0 1 given");
    }

    #[test]
    fn what_is_said_again_after_a_takeover_is_known() {
        let position = Position {
            after: "1".into(),
            heard: 2,
        };
        let mut trail = Trail::resumed(&position);
        assert_eq!([(); 3].map(|()| trail.is_repeated()), [true, true, false]);
        assert_eq!(shown(&trail, &[]), "1+0");
    }
}
