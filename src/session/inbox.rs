//! What came on the general stream of a session and waits for a call.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::wire::jsonrpc::Message;
use crate::wire::legacy;

/// Messages that wait for the call that has the session. Real servers ask one or two things at a time.
const QUEUE_MAX: usize = 64;

/// Questions outside any call that are kept beside the queue, so that old ones can be found and refused.
const STRAYS_MAX: usize = 16;

/// What may be kept beside the queue while one question is waited for: as much as the queue holds. A server that says more
/// before any call finds the queue full.
const KEPT_MAX: usize = QUEUE_MAX;

/// The largest question that waits while no call has the session: as large as a schema may be. Whatever a server
/// asks of idle sessions costs at most as much as all places times this.
pub(super) const STRAY_BYTES_MAX: usize = 64 << 10;

/// A message and when it came.
#[derive(Debug)]
pub(super) struct Arrived {
    at: Instant,
    message: Bytes,
}

/// The end of an inbox at which messages come in.
#[derive(Debug, Clone)]
pub(super) struct Slot(mpsc::Sender<Arrived>);

impl Slot {
    /// Puts a message in; whether there was room. It is copied: one that waits must not keep a whole read buffer
    /// alive.
    pub(super) fn put(&self, message: &Bytes) -> bool {
        let arrived = Arrived {
            at: Instant::now(),
            message: Bytes::copy_from_slice(message),
        };
        self.0.try_send(arrived).is_ok()
    }
}

/// What waits on a session.
#[derive(Debug)]
pub(super) struct Inbox {
    arriving: mpsc::Receiver<Arrived>,
    stray: VecDeque<Arrived>,
}

impl Inbox {
    /// An empty one, and the slot that fills it.
    pub(super) fn new() -> (Slot, Self) {
        let (slot, arriving) = mpsc::channel(QUEUE_MAX);
        let inbox = Self {
            arriving,
            stray: VecDeque::new(),
        };
        (Slot(slot), inbox)
    }

    /// The next message that comes in; waits for ever when none can come any more. Cancel-safe.
    pub(super) async fn next(&mut self) -> Bytes {
        match self.arriving.recv().await {
            Some(arrived) => arrived.message,
            None => std::future::pending().await,
        }
    }

    /// All that waits, oldest first.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        let mut waiting: Vec<Bytes> = self.stray.drain(..).map(|stray| stray.message).collect();
        while let Ok(arrived) = self.arriving.try_recv() {
            waiting.push(arrived.message);
        }
        waiting
    }

    /// Done when a question of this method waits, which is not taken out, or none can come any more; whether one waits.
    /// What concerns no call that is yet to come is let go. Cancel-safe.
    pub(super) async fn asked(&mut self, method: &str) -> bool {
        let is_it = |arrived: &Arrived| match Message::parse(&arrived.message) {
            Ok(Message::Request { method: asked, .. }) => asked == method,
            _ => false,
        };
        if self.stray.iter().any(is_it) {
            return true;
        }
        while self.stray.len() < KEPT_MAX {
            let Some(arrived) = self.arriving.recv().await else {
                return false;
            };
            if is_it(&arrived) {
                self.stray.push_back(arrived);
                return true;
            }
            if may_wait(&arrived.message) {
                self.stray.push_back(arrived);
            }
        }
        std::future::pending().await
    }

    /// What has waited since before `now - wait_max`. The rest stays, as much of it in the queue as has no place here.
    pub(super) fn overdue(&mut self, now: Instant, wait_max: Duration) -> Vec<Bytes> {
        let mut overdue = Vec::new();
        loop {
            while self.stray.len() < STRAYS_MAX
                && let Ok(arrived) = self.arriving.try_recv()
            {
                self.stray.push_back(arrived);
            }
            let is_overdue = |stray: &Arrived| now.saturating_duration_since(stray.at) >= wait_max;
            if !self.stray.front().is_some_and(is_overdue) {
                return overdue;
            }
            overdue.extend(self.stray.pop_front().map(|stray| stray.message));
        }
    }
}

/// Whether a message concerns a call that is yet to come: a question, or what takes one back.
fn may_wait(message: &[u8]) -> bool {
    match Message::parse(message) {
        Ok(Message::Request { .. }) => true,
        Ok(Message::Notification { method, .. }) => method == legacy::CANCELLED,
        Ok(Message::Result { .. } | Message::Error { .. }) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;

    fn filled(count: usize) -> (Slot, Inbox) {
        let (slot, inbox) = Inbox::new();
        for n in 0..count {
            slot.put(&Bytes::from(n.to_string()));
        }
        (slot, inbox)
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_too_long_is_found_however_much_waits() {
        let (slot, mut inbox) = filled(QUEUE_MAX);
        assert!(!slot.put(&Bytes::new()), "the queue is full");
        let wait_max = Duration::from_secs(30);
        assert!(inbox.overdue(Instant::now(), wait_max).is_empty());
        assert_eq!(inbox.stray.len(), STRAYS_MAX);
        tokio::time::advance(Duration::from_secs(20)).await;
        assert!(slot.put(&Bytes::from_static(b"late")));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(inbox.overdue(Instant::now(), wait_max).len(), QUEUE_MAX);
        assert_eq!(inbox.take(), [Bytes::from_static(b"late")]);
    }

    #[tokio::test]
    async fn what_waits_comes_in_its_order() {
        let (_slot, mut inbox) = filled(20);
        inbox.overdue(Instant::now(), Duration::from_secs(30));
        let expected: Vec<Bytes> = (0..20).map(|n| Bytes::from(n.to_string())).collect();
        assert_eq!(inbox.take(), expected);
    }

    fn message(method: &str, id: Option<usize>) -> Bytes {
        let id = id.map_or_else(String::new, |id| format!(r#","id":{id}"#));
        format!(r#"{{"jsonrpc":"2.0","method":"{method}"{id}}}"#).into()
    }

    #[tokio::test]
    async fn whoever_waits_for_a_question_keeps_no_more_than_a_call_needs() {
        let (slot, mut inbox) = Inbox::new();
        let kept = [
            message("sampling/createMessage", Some(1)),
            message(legacy::CANCELLED, None),
            message(legacy::ROOTS_LIST, Some(2)),
        ];
        {
            let mut asked = std::pin::pin!(inbox.asked(legacy::ROOTS_LIST));
            for _ in 0..QUEUE_MAX {
                assert!(slot.put(&message("notifications/message", None)));
                assert!(poll!(asked.as_mut()).is_pending());
            }
            for message in &kept {
                assert!(slot.put(message));
            }
            assert!(asked.await);
        }
        assert_eq!(inbox.take(), kept);
    }

    #[tokio::test]
    async fn a_server_that_goes_on_asking_finds_the_queue_full() {
        let (slot, mut inbox) = Inbox::new();
        let mut taken = 0;
        {
            let mut asked = std::pin::pin!(inbox.asked(legacy::ROOTS_LIST));
            while taken < 1000 && slot.put(&message("sampling/createMessage", Some(taken))) {
                taken += 1;
                assert!(poll!(asked.as_mut()).is_pending());
            }
        }
        assert_eq!(taken, KEPT_MAX + QUEUE_MAX);
        drop(slot);
        assert_eq!(inbox.take().len(), taken, "none of them is lost");
        assert!(!inbox.asked(legacy::ROOTS_LIST).await, "none can come");
    }
}
