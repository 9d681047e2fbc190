//! Log levels: a legacy session has one, each modern request its own.
//!
//! The session's level is the lowest that any live request on it wants: it falls when one comes that wants more, and
//! rises when that one has ended while others go on. When none is left it stays: nobody is told of what comes then.
//! Spec: 2025-11-25 server/utilities/logging; 2026-07-28 server/utilities/logging.

use std::sync::Arc;
use std::time::Duration;

use super::lease::{Home, Lease, ask};
use super::live::Session;
use crate::wire::legacy;
use crate::wire::modern::LogLevel;

/// How long a call waits for the server to take a log level: it is a courtesy, not worth a call.
const LOG_LEVEL_WAIT: Duration = Duration::from_secs(2);

/// How many live requests want each level.
#[derive(Debug, Default)]
pub(super) struct Wishes([u32; LogLevel::ALL.len()]);

impl Wishes {
    fn add(&mut self, level: LogLevel) {
        self.0[level as usize] += 1;
    }

    fn remove(&mut self, level: LogLevel) {
        self.0[level as usize] -= 1;
    }

    /// The lowest level that is wanted.
    fn lowest(&self) -> Option<LogLevel> {
        let at = self.0.iter().position(|count| *count > 0)?;
        Some(LogLevel::ALL[at])
    }
}

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

impl Lease {
    /// Asks the server for the log messages that this request wants, none for `None`, instead of those that it wanted
    /// before. Done when the server has agreed, or was given time to; without being awaited nothing is asked.
    pub fn want_logs(
        &mut self,
        level: Option<LogLevel>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let declares = self.identity().declares("logging");
        let (home, session) = (Arc::clone(&self.home), Arc::clone(&self.session));
        let wish = level.filter(|_| declares).map(|level| {
            session.log_wishes().add(level);
            Wish {
                home: Arc::clone(&home),
                session: Arc::clone(&session),
                level,
            }
        });
        let is_wanted = wish.is_some();
        self.wish = wish;
        async move {
            if is_wanted {
                settled(home, session).await;
            }
        }
    }
}

/// Brings the session's level to the lowest that is wanted.
async fn settled(home: Arc<dyn Home>, session: Arc<Session>) {
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
            &*home,
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
    // A server that is slow to take it gets the next call all the same.
    let _ = tokio::time::timeout(LOG_LEVEL_WAIT, settling).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_wish_counts() {
        let mut wishes = Wishes::default();
        assert_eq!(wishes.lowest(), None);
        for level in [LogLevel::Error, LogLevel::Debug, LogLevel::Debug] {
            wishes.add(level);
        }
        assert_eq!(wishes.lowest(), Some(LogLevel::Debug));
        wishes.remove(LogLevel::Debug);
        assert_eq!(wishes.lowest(), Some(LogLevel::Debug));
        wishes.remove(LogLevel::Debug);
        assert_eq!(wishes.lowest(), Some(LogLevel::Error));
    }
}
