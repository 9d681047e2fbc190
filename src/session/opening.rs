//! Taking turns at opening a session that can be shared: whoever comes second gets the first one's session, or
//! shares its failure.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as Turn};

use super::error::LeaseError;

/// The turns of one key.
#[derive(Debug, Default)]
pub(super) struct Opening {
    turn: AsyncMutex<()>,
    failed: Mutex<Failed>,
}

/// How the turns so far failed.
#[derive(Debug, Default)]
struct Failed {
    count: u64,
    last: Option<LeaseError>,
}

impl Opening {
    /// Waits for a turn. Whoever had to wait while another one's turn failed shares that failure: to try again, one
    /// after the other, with a server that does not answer would take for ever.
    ///
    /// # Errors
    /// The failure of another turn meanwhile.
    pub(super) async fn turn(&self) -> Result<Turn<'_, ()>, LeaseError> {
        let before = self.failed().count;
        let turn = self.turn.lock().await;
        let failed = self.failed();
        match &failed.last {
            Some(error) if failed.count > before => Err(error.clone()),
            _ => Ok(turn),
        }
    }

    /// Says how a turn failed.
    pub(super) fn has_failed(&self, error: &LeaseError) {
        let mut failed = self.failed();
        failed.count += 1;
        failed.last = Some(error.clone());
    }

    fn failed(&self) -> MutexGuard<'_, Failed> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_waited_for_a_turn_that_failed_share_the_failure() {
        let opening = Opening::default();
        let turn = opening.turn().await.unwrap();
        let (second, third) = (opening.turn(), opening.turn());
        let mut second = std::pin::pin!(second);
        let mut third = std::pin::pin!(third);
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        opening.has_failed(&LeaseError::Exhausted);
        drop(turn);
        for waiter in [second, third] {
            assert!(matches!(waiter.await, Err(LeaseError::Exhausted)));
        }
        assert!(opening.turn().await.is_ok(), "who comes later tries anew");
    }

    #[tokio::test]
    async fn a_turn_that_did_not_fail_is_followed_by_the_next() {
        let opening = Opening::default();
        let turn = opening.turn().await.unwrap();
        let mut second = std::pin::pin!(opening.turn());
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(turn);
        assert!(second.await.is_ok());
    }
}
