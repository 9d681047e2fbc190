//! The requests of a client that are being answered, by their ids.

use std::collections::HashMap;
use std::collections::hash_map;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::listen::admission::Refusal;
use crate::wire::error;
use crate::wire::jsonrpc::ClientId;
use crate::wire::object;

/// Requests of the one client at once, subscriptions among them. A person's client has a handful; each may wait with a
/// result of the largest size for a client that does not read. Beyond it they are refused and not left waiting, as
/// the cancellation that would make room could not be read then.
const REQUESTS_MAX: usize = 256;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    requests: Mutex<HashMap<Key, Running>>,
    next: AtomicU64,
}

/// Which of several requests of one id it is, one after the other, and what cancels it.
#[derive(Clone, Debug)]
struct Running(u64, CancellationToken);

/// An id by what it says: a client may write the same text with other escapes when it cancels.
type Key = (Kind, Box<str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Text,
    Number,
}

fn key(raw: &str) -> Key {
    let text = serde_json::from_str::<&RawValue>(raw);
    match text.ok().and_then(object::string) {
        Some(text) => (Kind::Text, text.into()),
        None => (Kind::Number, raw.into()),
    }
}

/// One of them, until it is dropped or cancelled: then its id is free again.
#[derive(Debug)]
pub(super) struct Entry {
    key: Key,
    running: Running,
    in_flight: Arc<InFlight>,
}

impl InFlight {
    /// Takes a request in.
    pub(super) fn enter(self: &Arc<Self>, id: &ClientId) -> Result<Entry, Refusal> {
        let mut requests = self.requests();
        let is_full = requests.len() >= REQUESTS_MAX;
        match requests.entry(key(id.as_json())) {
            hash_map::Entry::Occupied(_) => {
                let why = "a request with this id is still being answered";
                Err(Refusal::new(error::INVALID_REQUEST, why).answering(id.clone()))
            }
            hash_map::Entry::Vacant(_) if is_full => {
                let why = format!("{REQUESTS_MAX} requests are being answered already");
                Err(Refusal::new(error::INTERNAL_ERROR, why).answering(id.clone()))
            }
            hash_map::Entry::Vacant(vacant) => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let running = Running(number, CancellationToken::new());
                let key = vacant.key().clone();
                vacant.insert(running.clone());
                let in_flight = Arc::clone(self);
                Ok(Entry {
                    key,
                    running,
                    in_flight,
                })
            }
        }
    }

    /// Cancels the request of this id, if there is one.
    pub(super) fn cancel(&self, id: &RawValue) -> bool {
        let running = self.requests().remove(&key(id.get()));
        if let Some(Running(_, cancelled)) = &running {
            cancelled.cancel();
        }
        running.is_some()
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<Key, Running>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Says when the request is cancelled.
    pub(super) fn cancelled(&self) -> CancellationToken {
        self.running.1.clone()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut requests = self.in_flight.requests();
        // After a cancellation its id may belong to another already.
        if let hash_map::Entry::Occupied(known) = requests.entry(self.key.clone())
            && known.get().0 == self.running.0
        {
            known.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(raw: &str) -> ClientId {
        ClientId::new(serde_json::from_str(raw).unwrap()).unwrap()
    }

    fn cancel(in_flight: &InFlight, raw: &str) -> bool {
        in_flight.cancel(serde_json::from_str(raw).unwrap())
    }

    #[test]
    fn an_id_is_free_again_when_its_request_is_over() {
        let in_flight = Arc::new(InFlight::default());
        let first = in_flight.enter(&id("1")).unwrap();
        let refusal = in_flight.enter(&id("1")).unwrap_err();
        assert_eq!(refusal.id, Some(id("1")));
        let other = in_flight.enter(&id(r#""1""#)).unwrap();
        drop(first);
        assert!(in_flight.enter(&id("1")).is_ok());
        drop(other);
        assert!(in_flight.requests().is_empty());
    }

    #[test]
    fn a_cancellation_finds_its_request_by_what_the_id_says() {
        let in_flight = Arc::new(InFlight::default());
        let entry = in_flight.enter(&id(r#""a/b""#)).unwrap();
        for (raw, is_known) in [("7", false), (r#""a""#, false), (r#""a\/b""#, true)] {
            assert_eq!(cancel(&in_flight, raw), is_known, "{raw}");
        }
        assert!(entry.cancelled().is_cancelled());
        assert!(!cancel(&in_flight, r#""a/b""#));
        let next = in_flight.enter(&id(r#""a/b""#)).unwrap();
        drop(entry);
        assert!(in_flight.enter(&id(r#""a/b""#)).is_err(), "it is another's");
        assert!(!next.cancelled().is_cancelled());
    }

    #[test]
    fn there_are_only_so_many() {
        let in_flight = Arc::new(InFlight::default());
        let enter = |number: usize| in_flight.enter(&id(&number.to_string()));
        let mut entries: Vec<_> = (0..REQUESTS_MAX).map(|n| enter(n).unwrap()).collect();
        assert_eq!(enter(REQUESTS_MAX).unwrap_err().error.code, -32603);
        entries.pop();
        assert!(enter(REQUESTS_MAX).is_ok());
    }
}
