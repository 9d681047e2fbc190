//! The open questions of a call.

use serde_json::value::RawValue;

use super::kept::Reading;
use super::trail::OpenQuestion;
use crate::translate::capability::ClientCapabilities;
use crate::translate::input_request::{self, InputKind, InputRequest};
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::{self, ServerId};
use crate::wire::object;

/// One question that is not answered yet.
#[derive(Debug)]
pub(super) struct Question {
    /// The server's own id of it; `None` for a question of error −32042, which no one waits for.
    pub(super) id: Option<ServerId>,
    /// Its key in `inputRequests`.
    pub(super) key: Box<str>,
    /// It stood in an `InputRequiredResult`: the client may answer it.
    pub(super) shown: bool,
    pub(super) request: InputRequest,
}

impl Question {
    /// The message that tells the server that nobody will answer, if it waits.
    pub(super) fn abandoned(&self) -> Option<Vec<u8>> {
        let id = self.id.as_ref()?;
        Some(match self.request.kind {
            InputKind::ElicitForm | InputKind::ElicitUrl => {
                jsonrpc::result(id, r#"{"action":"cancel"}"#)
            }
            InputKind::Sampling | InputKind::Roots => jsonrpc::error(
                id,
                &ErrorObject::new(
                    error::INTERNAL_ERROR,
                    "the client went away before it answered",
                ),
            ),
        })
    }
}

/// The open questions in the order they came, their keys unique among them.
#[derive(Debug, Default)]
pub(super) struct Questions(Vec<Question>);

impl Questions {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes those that need a capability which `declared` lacks.
    pub(super) fn take_lacking(&mut self, declared: &ClientCapabilities) -> Vec<Question> {
        let lacks = |question: &mut Question| !declared.has(question.request.needs);
        self.0.extract_if(.., lacks).collect()
    }

    pub(super) fn knows(&self, id: &ServerId) -> bool {
        self.0
            .iter()
            .any(|question| question.id.as_ref() == Some(id))
    }

    pub(super) fn open(&mut self, id: Option<ServerId>, request: InputRequest) {
        let key = self.free_key(&request.wanted_key);
        self.0.push(Question {
            id,
            key,
            shown: false,
            request,
        });
    }

    /// The key that a question which wants `wanted` would get now.
    pub(super) fn free_key(&self, wanted: &str) -> Box<str> {
        input_request::free_key(wanted, |key| {
            self.0.iter().any(|question| &*question.key == key)
        })
    }

    /// Removes the question that the server withdrew; whether there was one.
    pub(super) fn withdraw(&mut self, id: &RawValue) -> bool {
        let before = self.0.len();
        self.0.retain(|question| {
            question
                .id
                .as_ref()
                .is_none_or(|own| own.as_json() != id.get())
        });
        self.0.len() < before
    }

    /// Marks all as shown and writes the `inputRequests` object.
    pub(super) fn show(&mut self) -> Vec<u8> {
        let mut out = b"{".to_vec();
        for question in &mut self.0 {
            question.shown = true;
            object::push_member(&mut out, &question.key, &question.request.to_json());
        }
        out.push(b'}');
        out
    }

    /// All that are open.
    pub(super) fn open_ones(&self) -> impl Iterator<Item = OpenQuestion<'_>> {
        self.0.iter().map(|question| OpenQuestion {
            id: question.id.as_ref(),
            key: &question.key,
            request: &question.request,
        })
    }

    /// What those that were shown ask, by their keys.
    pub(super) fn readings(&self) -> impl Iterator<Item = (Box<str>, Reading)> {
        let shown = self.0.iter().filter(|question| question.shown);
        shown.map(|question| (question.key.clone(), Reading::of(&question.request)))
    }

    /// Opens a question as it was shown before, perhaps by another process.
    pub(super) fn restore(&mut self, id: ServerId, key: Box<str>, request: InputRequest) {
        self.0.push(Question {
            id: Some(id),
            key,
            shown: true,
            request,
        });
    }

    /// Takes those that were shown, to be answered; the others stay.
    pub(super) fn take_shown(&mut self) -> Vec<Question> {
        self.0.extract_if(.., |question| question.shown).collect()
    }

    /// Puts a question back under its old key, to be asked again.
    pub(super) fn keep(&mut self, question: Question) {
        self.0.push(question);
    }

    pub(super) fn take_all(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.0)
    }
}
