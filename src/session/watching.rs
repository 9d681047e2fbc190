//! Asking a server for changes of resources, on the session that is to hear of them.
//!
//! Servers of the SDKs tell a change to the session that caused it and to no other. So listeners are served by every
//! session of their principal that a tool is called on, not only by the one that is kept for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use super::lease::Lease;
use super::live::Session;
use super::watched::{Verb, Word};
use crate::upstream::UpstreamError;
use crate::wire::legacy;
use crate::wire::object;

/// Requests about resources on their way at once: a listener of a thousand resources must not flood a small server.
pub const ASKING_MAX: usize = 8;

/// How long a server may take to answer one of them.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long a call waits for them: hearing of its changes is a courtesy, not worth a call.
const ALONG_MAX: Duration = Duration::from_secs(2);

/// A question about a resource that is on its way. Dropped before it is answered, it counts as not asked.
#[derive(Debug)]
pub struct Question {
    session: Arc<Session>,
    /// Which resource.
    pub uri: Arc<str>,
    /// What about it.
    pub verb: Verb,
    word: Word,
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut watched = self.session.watched();
        watched.answered(&self.uri, self.verb, self.word);
    }
}

impl Lease {
    /// Whether it is worth asking the server for changes of resources. That it does not announce them says nothing:
    /// a widely used SDK never does.
    #[must_use]
    pub fn may_subscribe(&self) -> bool {
        self.has_general_stream() && self.identity().declares("resources")
    }

    /// From now on the session is kept for its listeners: who keeps it asks, and calls need not.
    pub fn keep(&self) {
        self.session.is_kept.store(true, Ordering::Release);
    }

    /// The session is kept no longer.
    pub fn keep_no_more(&self) {
        self.session.is_kept.store(false, Ordering::Release);
    }

    /// The session is to hear what the listeners want that may hear it.
    pub fn want(&self) {
        let wanted = self.session.changes().wanted(self.audience());
        self.session.watched().want(&wanted);
    }

    /// What was refused is to be asked for again.
    pub fn forgive(&self, uri: &Arc<str>) {
        self.session.watched().forgive(uri);
    }

    /// The resources that the server has said yes or no to on this session.
    #[must_use]
    pub fn verdicts(&self) -> Vec<(Arc<str>, bool)> {
        let watched = self.session.watched();
        let verdicts = watched.verdicts();
        verdicts
            .map(|(uri, is_yes)| (Arc::clone(uri), is_yes))
            .collect()
    }

    /// The next thing to ask the server about resources, and its answer.
    pub fn next_question(
        &self,
    ) -> Option<impl Future<Output = (Question, Result<Bytes, UpstreamError>)> + Send + use<>> {
        let (uri, verb) = self.session.watched().next()?;
        let method = match verb {
            Verb::Subscribe => legacy::RESOURCES_SUBSCRIBE,
            Verb::Unsubscribe => legacy::RESOURCES_UNSUBSCRIBE,
        };
        let mut params = b"{".to_vec();
        let mut value = Vec::new();
        object::push_string(&mut value, &uri);
        object::push_member(&mut params, "uri", &value);
        params.push(b'}');
        let asked = self.ask(method, &params);
        let mut question = Question {
            session: Arc::clone(&self.session),
            uri,
            verb,
            word: Word::Unheard,
        };
        Some(async move {
            let answered = timeout(ANSWER_MAX, asked).await;
            let answered = answered.unwrap_or(Err(UpstreamError::Timeout));
            question.word = if answered.is_ok() {
                Word::Yes
            } else {
                Word::No
            };
            (question, answered)
        })
    }

    /// Lets the session hear what listeners want, before a call may change it.
    pub async fn listen_along(&self) {
        let is_idle = !self.session.changes().is_watched() && self.session.watched().is_empty();
        if is_idle || self.session.is_kept.load(Ordering::Acquire) || !self.may_subscribe() {
            return;
        }
        self.want();
        let asking = async {
            let mut asking = FuturesUnordered::new();
            loop {
                while asking.len() < ASKING_MAX
                    && let Some(question) = self.next_question()
                {
                    asking.push(question);
                }
                if asking.next().await.is_none() {
                    return;
                }
            }
        };
        if timeout(ALONG_MAX, asking).await.is_err() {
            let session = self.number();
            tracing::debug!(session, "the server is slow to take subscriptions");
        }
    }
}
