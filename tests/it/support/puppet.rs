//! A legacy Streamable HTTP server that does what a test says and writes down what is done to it.
//!
//! Tools, prompts and resources are scripts: async closures over a [`Call`]. Whatever the gateway does that the
//! legacy spec forbids, or that would betray a caller, is written down as a violation; [`Puppet::settled`]
//! fails on any.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::within;

mod connection;
mod ledger;
mod message;
mod outgoing;
mod script;
mod session;
mod store;

pub(crate) use ledger::{Given, Ledger, Record};
pub(crate) use outgoing::Out;
pub(crate) use script::{Call, Ending};
use script::{Script, script};
pub(crate) use session::Session;
pub(crate) use store::Resuming;
use store::Store;

/// How the puppet speaks.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    /// The revision it picks in the handshake.
    pub(crate) revision: &'static str,
    /// What it says it can do.
    pub(crate) capabilities: Value,
    /// Whether it gives sessions.
    pub(crate) sessions: Sessions,
    /// What a GET meets.
    pub(crate) general_stream: GeneralStream,
    /// What a request without earlier events is answered with.
    pub(crate) answers: Answers,
    /// Whether events carry ids, and each stream begins with an event that has no data.
    pub(crate) event_ids: EventIds,
    /// How lines of event streams end.
    pub(crate) line_end: &'static str,
    /// How many bytes of an event travel in one chunk.
    pub(crate) chunk_bytes: usize,
    /// What becomes of a session that changes its credentials.
    pub(crate) credentials: Credentials,
    /// What a cancelled call does.
    pub(crate) on_cancel: OnCancel,
    /// What `initialize` meets.
    pub(crate) handshake: Handshake,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            revision: "2025-11-25",
            capabilities: json!({"tools": {}, "prompts": {}, "resources": {}, "logging": {}}),
            sessions: Sessions::Given,
            general_stream: GeneralStream::Offered,
            answers: Answers::Events,
            event_ids: EventIds::Without,
            line_end: "\n",
            chunk_bytes: usize::MAX,
            credentials: Credentials::MustStay,
            on_cancel: OnCancel::FallSilent,
            handshake: Handshake::Prompt,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sessions {
    Given,
    Without,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GeneralStream {
    Offered,
    /// 405.
    Refused,
    /// This status to each first GET of a session, then it is offered.
    AfterStatus(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Events,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventIds {
    With,
    /// They sort in the opposite order, and the store repeats what sorts after the last one.
    Unsorted,
    Without,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Another `Authorization` on a session is a violation.
    MustStay,
    /// It is a refreshed token.
    MayChange,
}

/// As the two SDKs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCancel {
    /// The script ends, nothing is answered, the stream stays open (TypeScript).
    FallSilent,
    /// The call is answered with an error of code 0 (Python).
    AnswerError,
    /// The script goes on as if nothing had been said.
    Ignore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Prompt,
    /// Nothing is ever said.
    Stalls,
    /// The connection ends without a response.
    Cut,
    /// An HTTP status without a body.
    Status(u16),
    /// A JSON-RPC error.
    Refused,
    /// A result that is none, of a session that is open.
    Malformed,
}

/// What all connections and scripts of a puppet share.
#[derive(Debug)]
pub(crate) struct Shared {
    manner: Manner,
    scripts: Mutex<HashMap<(String, String), Script>>,
    ledger: Mutex<Ledger>,
    /// Counts changes of the ledger, for those who wait for one.
    changed: watch::Sender<u64>,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    /// What every further GET is refused with, if it is.
    refuses_streams: AtomicU16,
    /// The streams of scripts, where events carry ids.
    store: Store,
    /// Where requests are led: by verb and path, a status and a location.
    redirects: Mutex<HashMap<(String, String), (u16, String)>>,
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Shared {
    /// The ledger, for writing: those who wait look again.
    fn write<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let result = change(&mut self.ledger.lock().unwrap());
        self.changed.send_modify(|changes| *changes += 1);
        result
    }

    fn violation(&self, what: impl Into<String>) {
        self.write(|ledger| ledger.violations.push(what.into()));
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.sessions.lock().unwrap()
    }

    /// Waits until the ledger fulfils a condition.
    async fn until(&self, condition: impl Fn(&Ledger) -> bool) {
        let mut changes = self.changed.subscribe();
        while !condition(&self.ledger.lock().unwrap()) {
            let _ = changes.changed().await;
        }
    }
}

/// Counts something in the ledger until it is dropped, also when its task is.
#[derive(Debug)]
struct Counted {
    shared: Arc<Shared>,
    count: fn(&mut Ledger) -> &mut usize,
}

impl Counted {
    fn up(shared: &Arc<Shared>, count: fn(&mut Ledger) -> &mut usize) -> Self {
        shared.write(|ledger| *count(ledger) += 1);
        Self {
            shared: Arc::clone(shared),
            count,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.write(|ledger| *(self.count)(ledger) -= 1);
    }
}

/// A running legacy server. Dropped, it ends with all its connections.
#[derive(Debug)]
pub(crate) struct Puppet {
    shared: Arc<Shared>,
    addr: SocketAddr,
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.die();
    }
}

impl Puppet {
    /// A server on a free port.
    pub(crate) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            manner,
            scripts: Mutex::default(),
            ledger: Mutex::default(),
            changed: watch::channel(0).0,
            sessions: Mutex::default(),
            refuses_streams: AtomicU16::new(0),
            store: Store::default(),
            redirects: Mutex::default(),
            tasks: TaskTracker::new(),
            end: CancellationToken::new(),
        });
        let accepting = connection::accept(listener, Arc::clone(&shared));
        shared.tasks.spawn(accepting);
        Self { shared, addr }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.addr)
    }

    /// Scripts a tool.
    pub(crate) fn tool<F>(&self, name: &str, run: impl Fn(Call) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Ending> + Send + 'static,
    {
        self.on("tools/call", name, run);
    }

    /// Scripts a request: `name` is that of a tool or a prompt, or a resource's URI, or empty.
    pub(crate) fn on<F>(
        &self,
        method: &str,
        name: &str,
        run: impl Fn(Call) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Ending> + Send + 'static,
    {
        let key = (method.to_owned(), name.to_owned());
        self.shared.scripts.lock().unwrap().insert(key, script(run));
    }

    /// Ends without a word: the port is closed, every connection breaks.
    pub(crate) fn die(&self) {
        self.shared.end.cancel();
    }

    /// From now on every GET is refused with this status.
    pub(crate) fn refuse_streams(&self, status: u16) {
        self.shared.refuses_streams.store(status, Ordering::Release);
    }

    /// What the next attempts to resume a stream meet, one after the other, and what all others after them.
    pub(crate) fn resuming(&self, next: &[Resuming], then: Resuming) {
        self.shared.store.meet(next, then);
    }

    /// From now on requests with this verb to this path are led elsewhere.
    pub(crate) fn redirect(&self, verb: &str, path: &str, status: u16, location: &str) {
        let from = (verb.to_owned(), path.to_owned());
        let mut redirects = self.shared.redirects.lock().unwrap();
        redirects.insert(from, (status, location.to_owned()));
    }

    /// Forgets all sessions: what names them is answered with 404.
    pub(crate) fn forget_sessions(&self) {
        let sessions: Vec<_> = self.shared.sessions().values().cloned().collect();
        for session in sessions {
            session.forget();
        }
    }

    /// The sessions that are open.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        let sessions = self.shared.sessions();
        sessions
            .values()
            .filter(|session| session.is_open())
            .cloned()
            .collect()
    }

    /// What was done so far.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.shared.ledger.lock().unwrap()
    }

    /// How often a script was started.
    pub(crate) fn starts(&self, name: &str) -> usize {
        self.ledger()
            .starts
            .iter()
            .filter(|(started, _)| started == name)
            .count()
    }

    /// Waits until the ledger fulfils a condition.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Ledger) -> bool) {
        within(what, self.shared.until(condition)).await;
    }

    /// Waits until every script has ended and every session is closed; fails on any violation.
    pub(crate) async fn settled(&self) {
        self.until("all scripts to end", |ledger| ledger.running == 0)
            .await;
        self.until("all responses to end", |ledger| ledger.exchanges == 0)
            .await;
        self.until("all sessions to be closed", |ledger| {
            ledger.sessions_open == 0
        })
        .await;
        self.until("all streams to be closed", |ledger| {
            ledger.general_streams == 0
        })
        .await;
        self.is_content();
    }

    /// Fails on any violation so far.
    pub(crate) fn is_content(&self) {
        let violations = self.ledger().violations.clone();
        assert!(
            violations.is_empty(),
            "the puppet complains: {violations:#?}"
        );
    }
}
