//! Which requests of its server a call has heard: a stream that is resumed may bring them again, whether they are open,
//! answered, refused or withdrawn by now. So does one that a process reads which has taken the call over from another.
//! Spec: 2025-11-25 basic/transports, "Resumability and Redelivery".

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::value::RawValue;

use crate::wire::jsonrpc::ServerId;

/// How many are remembered. A server repeats at most what it sent since the last event that arrived: more than so many are
/// hardly ever under way at once. It bounds what a server can make a call remember.
const HEARD_MAX: usize = 256;

/// The latest requests of a session that reached the call, oldest first.
#[derive(Debug, Default)]
pub(super) struct Heard(VecDeque<(ServerId, u64)>);

impl Heard {
    /// Takes note of a request; whether it is a new one. Ids are unique in a session, but there are servers that count
    /// badly, and a new question of theirs wants an answer: only one that says the same under the same id is a repeat.
    pub(super) fn is_new(
        &mut self,
        id: &ServerId,
        method: &str,
        params: Option<&RawValue>,
    ) -> bool {
        let mut hasher = DefaultHasher::new();
        (method, params.map(RawValue::get)).hash(&mut hasher);
        let content = hasher.finish();
        if self
            .0
            .iter()
            .any(|known| known.0 == *id && known.1 == content)
        {
            return false;
        }
        if self.0.len() >= HEARD_MAX {
            self.0.pop_front();
        }
        self.0.push_back((id.clone(), content));
        true
    }

    /// Another session begins, which counts anew.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

/// What a server is to say again, and what of that is settled.
#[derive(Debug, Default)]
pub(super) struct Recall {
    /// The open questions that it has not said again yet, with their keys.
    pub(super) awaited: Vec<(ServerId, Box<str>)>,
    pub(super) settled: Vec<ServerId>,
}

impl Recall {
    /// Whether a request was answered or refused before the call was taken over.
    pub(super) fn was_settled(&self, id: &ServerId) -> bool {
        self.settled.contains(id)
    }

    /// Whether a question under this key is still to be said again.
    pub(super) fn awaits(&self, key: &str) -> bool {
        self.awaited.iter().any(|(_, awaited)| &**awaited == key)
    }

    /// The key of a question that was awaited.
    pub(super) fn take(&mut self, id: &ServerId) -> Option<Box<str>> {
        let at = self.awaited.iter().position(|(awaited, _)| awaited == id)?;
        Some(self.awaited.swap_remove(at).1)
    }

    /// The server has taken a question back: it need not say it again.
    pub(super) fn withdraw(&mut self, id: &RawValue) {
        self.awaited
            .retain(|(awaited, _)| awaited.as_json() != id.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_under_the_same_id_is_a_repeat() {
        let id = |raw: &str| ServerId::new(serde_json::from_str(raw).unwrap()).unwrap();
        let params = |raw: &'static str| Some(serde_json::from_str::<&RawValue>(raw).unwrap());
        let mut heard = Heard::default();
        assert!(heard.is_new(&id("1"), "a", None));
        assert!(heard.is_new(&id("1"), "b", None));
        assert!(heard.is_new(&id("1"), "a", params("{}")));
        assert!(heard.is_new(&id("\"1\""), "a", None));
        assert!(!heard.is_new(&id("1"), "a", None));
        assert!(!heard.is_new(&id("1"), "a", params("{}")));
        for number in 0..HEARD_MAX {
            assert!(heard.is_new(&id(&number.to_string()), "c", None));
        }
        assert_eq!(heard.0.len(), HEARD_MAX);
        assert!(heard.is_new(&id("1"), "a", None), "it was long ago");
        heard.forget();
        assert!(heard.is_new(&id("5"), "c", None), "on another session");
    }
}
