//! What a call keeps of its client's answers, in case it has to be run again.
//!
//! A question is the same when all of it reads the same ([`InputRequest::reading`]), its words too: who agreed to pay 10 has
//! not agreed to pay 1000. An answer is given again to the same question alone, in the order in which answers to it were
//! given before, and once in each run.
//!
//! Answers are personal data: they are kept within a bound, here and sealed in the `requestState`, and shown nowhere.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::translate::input_request::InputRequest;

/// How often one call is run again. A server that was restarted is there by the second time; one that falls over this very
/// call would do so for ever.
const RUNS_MAX: u8 = 3;

/// What an answer, or a question that is open, costs besides its text: the digest, and how long the text is.
const ENTRY_BYTES: usize = 20;

/// Tells a question from others: a digest of its [reading](InputRequest::reading).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading([u8; 16]);

impl Reading {
    /// That of `request`.
    #[must_use]
    pub fn of(request: &InputRequest) -> Self {
        let mut short = [0; 16];
        short.copy_from_slice(&Sha256::digest(request.reading())[..16]);
        Self(short)
    }
}

/// What a call has to be run again with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// How often it was run again.
    pub runs: u8,
    /// What its client answered, in that order.
    answers: Vec<Given>,
    /// There was an answer for which no room was left. None that follows is kept: it might be given in the place of that
    /// one.
    is_full: bool,
    /// The questions that are open, by their keys.
    pub(super) open: Vec<(Box<str>, Reading)>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Given {
    to: Reading,
    /// In the present run.
    is_given: bool,
    /// As raw JSON.
    response: Box<str>,
}

/// Without what was answered.
impl fmt::Debug for Given {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Given({} bytes)", self.response.len())
    }
}

impl Kept {
    /// Whether it may be run once more.
    #[must_use]
    pub fn has_runs_left(&self) -> bool {
        self.runs < RUNS_MAX
    }

    /// With one answer.
    #[cfg(test)]
    pub(crate) fn of_answer(response: &str) -> Self {
        let mut kept = Self::default();
        kept.keep(Reading([0; 16]), response, true, usize::MAX);
        kept
    }

    fn bytes(&self) -> usize {
        let answers = self.answers.iter().map(|given| given.response.len());
        let open = self.open.iter().map(|(key, _)| key.len());
        answers.chain(open).map(|text| text + ENTRY_BYTES).sum()
    }

    fn keep(&mut self, to: Reading, response: &str, is_given: bool, bytes_max: usize) {
        self.is_full |= self.bytes() + response.len() + ENTRY_BYTES > bytes_max;
        if !self.is_full {
            let response = response.into();
            self.answers.push(Given {
                to,
                is_given,
                response,
            });
        }
    }
}

/// How a call stands towards being run again.
pub(super) struct Reserve {
    pub(super) kept: Kept,
    bytes_max: usize,
    /// What the re-issue brought that found the call lost: answers to the questions that were open. They are not checked
    /// yet.
    brought: Vec<(Reading, Box<RawValue>)>,
    /// The latest progress that the present leg was told: a run that begins at the beginning must not fall behind it.
    pub(super) told: Option<f64>,
}

/// Without what was answered.
impl fmt::Debug for Reserve {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brought = self.brought.len();
        write!(formatter, "Reserve({:?}, {brought} brought)", self.kept)
    }
}

impl Reserve {
    pub(super) fn new(kept: Kept, bytes_max: usize) -> Self {
        Self {
            kept,
            bytes_max,
            brought: Vec::new(),
            told: None,
        }
    }

    /// What a state says, while these questions are open. What finds no room is asked anew.
    pub(super) fn to_keep(&self, open: impl Iterator<Item = (Box<str>, Reading)>) -> Kept {
        let mut kept = self.kept.clone();
        for (to, response) in &self.brought {
            kept.keep(*to, response.get(), false, self.bytes_max);
        }
        kept.open.clear();
        let mut left = self.bytes_max.saturating_sub(kept.bytes());
        kept.open.extend(open.take_while(|(key, _)| {
            let room = left.checked_sub(key.len() + ENTRY_BYTES);
            left = room.unwrap_or(0);
            room.is_some()
        }));
        kept
    }

    /// The present run is over: all answers are to be given again.
    pub(super) fn is_lost(&mut self) {
        for given in &mut self.kept.answers {
            given.is_given = false;
        }
    }

    /// Whether there is anything to give in the present run.
    pub(super) fn has_answers(&self) -> bool {
        !self.brought.is_empty() || self.kept.answers.iter().any(|given| !given.is_given)
    }

    /// Takes in what answers the questions that were open when the run was lost.
    pub(super) fn bring(&mut self, to: Reading, response: &RawValue) {
        self.brought.push((to, response.to_owned()));
    }

    /// Keeps an answer that is given in the present run.
    pub(super) fn keep(&mut self, to: Reading, response: &RawValue) {
        self.kept.keep(to, response.get(), true, self.bytes_max);
    }

    /// The first answer to this question that was not given in the present run, and whether it was checked.
    pub(super) fn take(&mut self, to: Reading) -> Option<(Box<RawValue>, bool)> {
        let mut answers = self.kept.answers.iter_mut();
        if let Some(given) = answers.find(|given| !given.is_given && given.to == to) {
            given.is_given = true;
            let response = RawValue::from_string(given.response.to_string()).ok()?;
            return Some((response, true));
        }
        let at = self.brought.iter().position(|(known, _)| *known == to)?;
        Some((self.brought.remove(at).1, false))
    }
}
