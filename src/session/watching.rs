//! Asking a server for changes of resources, on the session that is to hear of them.
//!
//! Servers of the SDKs tell a change to the session that caused it and to no other. So listeners are served by every
//! session of their principal that a tool is called on, not only by the one that is kept for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{sleep, timeout};

use super::home::AskError;
use super::lease::Lease;
use super::live::Session;
use super::watched::{Verb, Word};
use crate::upstream::UpstreamError;
use crate::wire::legacy;
use crate::wire::object;

/// Requests about resources on their way at once: a listener of a thousand resources must not flood a small server.
/// Arbitrary.
pub const ASKING_MAX: usize = 8;

/// How long a server may take to answer one of them. Arbitrary: far beyond what noting a name takes.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The pause before a server is asked again that did not answer at all. Arbitrary: long
/// enough for a bad moment to pass.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// How long a call waits for them: hearing of its changes is a courtesy, not worth a call. A server that takes longer
/// is not asked on this session again. Arbitrary: what a person hardly notices beside a call.
const ALONG_MAX: Duration = Duration::from_secs(2);

/// A request about a resource that is on its way. Dropped before it is answered, it counts as not made.
#[derive(Debug)]
struct ResourceRequest {
    session: Arc<Session>,
    uri: Arc<str>,
    verb: Verb,
    word: Word,
}

impl Drop for ResourceRequest {
    fn drop(&mut self) {
        let mut watched = self.session.watched();
        watched.answered(&self.uri, self.verb, self.word);
        drop(watched);
        self.session.watched_changed().notify_one();
    }
}

impl ResourceRequest {
    /// Takes the server's answer in, and waits a little if there was none.
    async fn settle(mut self, answered: Result<(), AskError>) {
        self.word = match (answered, self.verb) {
            (Ok(()), _) => Word::Yes,
            (Err(AskError::Refused), _) => Word::No,
            // Nobody listens any more: what it says of the resource is passed over.
            (Err(AskError::Lost(_)), Verb::Unsubscribe) => Word::No,
            (Err(AskError::Lost(error)), Verb::Subscribe) => {
                if matches!(error, UpstreamError::SessionGone) {
                    self.session.mark_gone();
                }
                sleep(RETRY_PAUSE).await;
                Word::Unheard
            }
        };
    }
}

/// How a server stands to what it is to tell of on one session.
#[derive(Clone, Debug)]
pub struct Standing {
    session: Arc<Session>,
}

impl Standing {
    /// Whether it has said yes or no to a resource; `true` for yes, nothing while it is not known.
    #[must_use]
    pub fn verdict(&self, uri: &str) -> Option<bool> {
        self.session.watched().verdict(uri)
    }
}

/// A session that is kept for its listeners: whoever keeps it asks for what they want, and calls need not.
#[derive(Debug)]
pub struct Keeping {
    session: Arc<Session>,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.session.is_kept.store(false, Ordering::Release);
    }
}

impl Lease {
    /// Whether it is worth asking the server for changes of resources. That it does not announce `subscribe` says
    /// nothing: a widely used SDK never does and serves it all the same.
    #[must_use]
    pub fn may_subscribe(&self) -> bool {
        self.has_general_stream() && self.identity().declares("resources")
    }

    /// Keeps the session for its listeners until the guard is dropped.
    #[must_use]
    pub fn keep_for_listeners(&self) -> Keeping {
        self.session.is_kept.store(true, Ordering::Release);
        Keeping {
            session: Arc::clone(&self.session),
        }
    }

    /// How the server stands to what it is to tell of.
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing {
            session: Arc::clone(&self.session),
        }
    }

    /// From now on changes of this resource are wanted, or not any more.
    pub fn want_resource(&self, uri: &Arc<str>, is_wanted: bool) {
        self.session.watched().want(uri, is_wanted);
    }

    /// If this resource was refused, it is to be asked for again.
    pub fn forgive_resource(&self, uri: &Arc<str>) {
        self.session.watched().forgive(uri);
    }

    /// Done when the server has said something new about a resource, or a request about one was given up. Cancel-safe.
    pub fn standing_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let session = Arc::clone(&self.session);
        async move { session.watched_changed().notified().await }
    }

    /// Makes the next request about a resource; done when it is settled.
    pub fn next_resource_request(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let (uri, verb) = self.session.watched().next()?;
        let method = match verb {
            Verb::Subscribe => legacy::RESOURCES_SUBSCRIBE,
            Verb::Unsubscribe => legacy::RESOURCES_UNSUBSCRIBE,
        };
        let asked = self.ask(method, &object::of_string("uri", &uri));
        let request = ResourceRequest {
            session: Arc::clone(&self.session),
            uri,
            verb,
            word: Word::Unheard,
        };
        Some(async move {
            let answered = timeout(ANSWER_MAX, asked).await;
            let answered = answered.unwrap_or(Err(AskError::Lost(UpstreamError::Timeout)));
            request.settle(answered.map(drop)).await;
        })
    }

    /// Lets the session hear what its principal's listeners want, before a call may change it.
    pub async fn listen_along(&self) {
        let session = &self.session;
        let changes = session.changes();
        let is_idle = !changes.is_watched() && session.watched().is_empty();
        if is_idle || session.is_kept.load(Ordering::Acquire) || !self.may_subscribe() {
            return;
        }
        let epoch = changes.listeners_epoch();
        if session.listeners_seen.swap(epoch, Ordering::AcqRel) == epoch {
            return;
        }
        let wanted = changes.wanted(self.audience());
        session.watched().want_all(&wanted);
        let asking = async {
            let mut asking = FuturesUnordered::new();
            loop {
                while asking.len() < ASKING_MAX
                    && let Some(request) = self.next_resource_request()
                {
                    asking.push(request);
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
