//! Log levels: a legacy session has one, each modern request its own.
//!
//! The session's level is the lowest that any live request on it wants: it falls when one comes that wants more, and
//! rises when that one has ended while others go on. When none is left it stays: nobody is told of what comes then.
//! Spec: 2025-11-25 server/utilities/logging; 2026-07-28 server/utilities/logging.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::home::{Home, ask};
use super::live::Session;
use crate::wire::legacy;
use crate::wire::modern::LogLevel;

/// How long a call waits for the server to take a log level: it is a courtesy, not worth a call.
const LOG_LEVEL_WAIT: Duration = Duration::from_secs(2);

/// What one request wants, until it is dropped.
#[derive(Debug)]
pub(super) struct Wish {
    home: Arc<dyn Home>,
    session: Arc<Session>,
    level: LogLevel,
}

impl Drop for Wish {
    fn drop(&mut self) {
        let mut wishes = self.session.log_wishes();
        wishes.remove(self.level);
        let is_lowest = wishes.lowest().is_some_and(|lowest| lowest > self.level);
        drop(wishes);
        if is_lowest {
            let settling = settled(Arc::clone(&self.home), Arc::clone(&self.session));
            self.home.run(Box::pin(settling));
        }
    }
}

impl Wish {
    /// The wish of a request on a session.
    pub(super) fn of(home: &Arc<dyn Home>, session: &Arc<Session>, level: LogLevel) -> Self {
        session.log_wishes().add(level);
        Self {
            home: Arc::clone(home),
            session: Arc::clone(session),
            level,
        }
    }

    /// From which level on.
    pub(super) fn level(&self) -> LogLevel {
        self.level
    }

    /// Done when the server has agreed to what is wanted, or was given time to.
    pub(super) fn granted(&self) -> impl Future<Output = ()> + Send + use<> {
        settled(Arc::clone(&self.home), Arc::clone(&self.session))
    }
}

/// Brings the session's level to the lowest that is wanted.
async fn settled(home: Arc<dyn Home>, session: Arc<Session>) {
    if session.is_slow_to_log.load(Ordering::Acquire) {
        return;
    }
    let settling = async {
        // One at a time: whoever comes last sees what all want.
        let mut current = session.log_level().lock().await;
        let Some(level) = session.log_wishes().lowest() else {
            return;
        };
        if *current == Some(level) {
            return;
        }
        // If nobody waits for the answer, nobody knows.
        *current = None;
        let params = format!(r#"{{"level":"{}"}}"#, level.as_str());
        let asked = ask(
            &home,
            &session,
            legacy::LOGGING_SET_LEVEL,
            params.as_bytes(),
        );
        if asked.await.is_ok() {
            *current = Some(level);
        } else {
            let session = session.number;
            tracing::debug!(session, "the server did not take the log level");
        }
    };
    // A server that is slow to take it gets the call all the same, and the next ones without being asked.
    if tokio::time::timeout(LOG_LEVEL_WAIT, settling)
        .await
        .is_err()
    {
        session.is_slow_to_log.store(true, Ordering::Release);
        let session = session.number;
        tracing::debug!(session, "the server is slow to take the log level");
    }
}
