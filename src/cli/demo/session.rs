//! A session of the demo server: the calls in progress and the questions that wait for an answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use holdfast::wire::{legacy, sse};

/// One session.
pub(super) struct Session {
    next_id: AtomicU64,
    /// Questions that wait for an answer, by their id.
    waiting: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    /// Calls in progress, by their id as JSON.
    calls: Mutex<HashMap<String, CancellationToken>>,
    /// Cancelled when it is over, and all its calls with it.
    pub(super) end: CancellationToken,
}

impl Session {
    /// A session that is over when `end` is.
    pub(super) fn new(end: CancellationToken) -> Self {
        Self {
            next_id: AtomicU64::new(0),
            waiting: Mutex::default(),
            calls: Mutex::default(),
            end,
        }
    }

    /// Enters a call; what is said to its client goes to `events`.
    pub(super) fn begin(self: &Arc<Self>, id: &Value, events: mpsc::Sender<Bytes>) -> Asker {
        let cancelled = self.end.child_token();
        lock(&self.calls).insert(id.to_string(), cancelled.clone());
        Asker {
            session: Arc::clone(self),
            call: id.to_string(),
            events,
            cancelled,
        }
    }

    /// Cancels a call, if it is still in progress.
    pub(super) fn cancel(&self, id: &Value) {
        if let Some(call) = lock(&self.calls).get(&id.to_string()) {
            call.cancel();
        }
    }

    /// Takes the answer to a question; a tool that was cancelled meanwhile waits no more.
    pub(super) fn answer(&self, response: &Value) {
        let id = response["id"].as_u64();
        if let Some(waiting) = id.and_then(|id| lock(&self.waiting).remove(&id)) {
            let result = response.get("result").cloned();
            let _ = waiting.send(result.unwrap_or_else(|| json!({"action": "cancel"})));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Speaks to the client of one call, on that call's own stream. Dropped, the call is over.
pub(super) struct Asker {
    session: Arc<Session>,
    call: String,
    events: mpsc::Sender<Bytes>,
    cancelled: CancellationToken,
}

impl Asker {
    /// Asks and waits for the answer; nothing when the call was cancelled or its session ended.
    pub(super) async fn ask(&self, params: &Value) -> Option<Value> {
        let id = self.session.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&self.session.waiting).insert(id, answer);
        let _waiting = Waiting {
            session: &self.session,
            id,
        };
        let request = json!({"jsonrpc": "2.0", "id": id, "method": legacy::ELICITATION_CREATE, "params": params});
        self.say(&request).await?;
        tokio::select! {
            answer = answered => answer.ok(),
            () = self.cancelled.cancelled() => None,
        }
    }

    /// Sends a message; nothing when nobody reads any more.
    pub(super) async fn say(&self, message: &Value) -> Option<()> {
        let mut event = Vec::new();
        sse::push_event(&mut event, message.to_string().as_bytes());
        self.events.send(event.into()).await.ok()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        lock(&self.session.calls).remove(&self.call);
    }
}

/// A question that waits for its answer. Dropped, it waits no more, whatever ended the waiting.
struct Waiting<'a> {
    session: &'a Session,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.session.waiting).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Arc<Session> {
        Arc::new(Session::new(CancellationToken::new()))
    }

    #[tokio::test]
    async fn a_question_that_cannot_be_said_does_not_wait() {
        let session = session();
        let (events, stream) = mpsc::channel(1);
        drop(stream);
        let asker = session.begin(&json!(1), events);
        assert_eq!(asker.ask(&json!({})).await, None);
        assert!(lock(&session.waiting).is_empty());
    }

    #[tokio::test]
    async fn an_answered_or_cancelled_question_does_not_wait() {
        let session = session();
        let (events, mut stream) = mpsc::channel(1);
        let asker = session.begin(&json!(1), events);
        let answer = async {
            stream.recv().await.unwrap();
            session.answer(&json!({"id": 0, "result": {"action": "decline"}}));
        };
        let question = json!({});
        let (answered, ()) = tokio::join!(asker.ask(&question), answer);
        assert_eq!(answered, Some(json!({"action": "decline"})));
        let cancel = async {
            stream.recv().await.unwrap();
            session.cancel(&json!(1));
        };
        let (cancelled, ()) = tokio::join!(asker.ask(&question), cancel);
        assert_eq!(cancelled, None);
        assert!(lock(&session.waiting).is_empty());
        drop(asker);
        assert!(lock(&session.calls).is_empty());
    }
}
