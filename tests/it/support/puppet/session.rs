//! A session of the puppet, and what it must be told with every request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::outgoing::Out;
use super::{Credentials, Handshake, Ledger, Shared};
use crate::support::http1::Head;

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// `notifications/initialized` has not come.
    Opening,
    Open,
    /// The puppet has dropped it.
    Forgotten,
    /// The client has ended it.
    Deleted,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    /// What the client said it can be asked.
    pub(crate) capabilities: Value,
    /// The credentials it was opened with.
    pub(crate) credentials: Option<String>,
    shared: Arc<Shared>,
    next_question: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    /// The requests the client made, and what tells each that it is cancelled.
    requests: HashMap<String, CancellationToken>,
    /// Ids of questions that were asked, and what each was answered first.
    questions: HashMap<String, Option<Value>>,
    general_stream: Option<mpsc::Sender<Out>>,
    /// A GET has come.
    was_listened_to: bool,
}

impl Session {
    pub(super) fn open(shared: &Arc<Shared>, head: &Head, initialize: &Value) -> Arc<Self> {
        let number = shared.write(|ledger| {
            ledger.sessions_opened += 1;
            ledger.sessions_open += 1;
            ledger.sessions_opened
        });
        let inner = Inner {
            phase: Phase::Opening,
            requests: HashMap::new(),
            questions: HashMap::new(),
            general_stream: None,
            was_listened_to: false,
        };
        let session = Arc::new(Self {
            id: format!("session-{number}"),
            capabilities: initialize["params"]["capabilities"].clone(),
            credentials: head.value("authorization").map(str::to_owned),
            shared: Arc::clone(shared),
            next_question: AtomicU64::new(0),
            inner: Mutex::new(inner),
        });
        shared
            .sessions()
            .insert(session.id.clone(), Arc::clone(&session));
        session
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.inner().phase, Phase::Opening | Phase::Open)
    }

    /// Drops the session: what names it is answered with 404.
    pub(crate) fn forget(&self) {
        self.end(Phase::Forgotten, |_| {});
    }

    pub(super) fn delete(&self) {
        self.end(Phase::Deleted, |ledger| ledger.deletes += 1);
    }

    fn end(&self, phase: Phase, note: impl FnOnce(&mut Ledger)) {
        let mut inner = self.inner();
        if !matches!(inner.phase, Phase::Opening | Phase::Open) {
            return;
        }
        inner.phase = phase;
        // Its general stream ends with it.
        inner.general_stream = None;
        drop(inner);
        self.shared.write(|ledger| {
            ledger.sessions_open -= 1;
            note(ledger);
        });
    }

    pub(super) fn initialized(&self) {
        let mut inner = self.inner();
        if inner.phase == Phase::Opening {
            inner.phase = Phase::Open;
        } else {
            drop(inner);
            self.complain("`initialized` came twice or too late");
        }
    }

    fn complain(&self, what: &str) {
        self.shared.violation(format!("{}: {what}", self.id));
    }

    /// Checks what a message on this session must carry; whether the session can take it.
    pub(super) fn check(&self, head: &Head) -> bool {
        let manner = &self.shared.manner;
        let version = head.value("mcp-protocol-version");
        // The header exists since 2025-06-18; where none was agreed on, there is none to name.
        let is_agreed = manner.handshake == Handshake::Prompt && manner.revision < "2026";
        if is_agreed
            && (manner.revision >= "2025-06-18" || version.is_some())
            && version != Some(manner.revision)
        {
            self.complain(&format!("MCP-Protocol-Version is {version:?}"));
        }
        let credentials = head.value("authorization");
        if manner.credentials == Credentials::MustStay && credentials != self.credentials.as_deref()
        {
            self.complain(&format!(
                "opened by {:?}, used by {credentials:?}",
                self.credentials
            ));
        }
        let phase = self.inner().phase;
        if phase == Phase::Deleted {
            self.complain("used after it was deleted");
        }
        matches!(phase, Phase::Opening | Phase::Open)
    }

    /// Takes note of a request of the client; the token says when it is cancelled.
    pub(super) fn requested(&self, id: &Value) -> CancellationToken {
        let token = CancellationToken::new();
        let mut inner = self.inner();
        let is_open = inner.phase == Phase::Open;
        let before = inner.requests.insert(id.to_string(), token.clone());
        drop(inner);
        if !is_open {
            self.complain("a request came before `initialized`");
        }
        if before.is_some() {
            self.complain(&format!("request id {id} was used twice"));
        }
        token
    }

    /// Cancels a request.
    pub(super) fn cancel(&self, id: &Value) {
        let token = self.inner().requests.get(&id.to_string()).cloned();
        match token {
            Some(token) => token.cancel(),
            None => self.complain(&format!(
                "a request was cancelled that was never made: {id}"
            )),
        }
    }

    /// A fresh id for a question: they count from 0 in every session, as the SDKs do.
    pub(super) fn question_id(&self) -> Value {
        json!(self.next_question.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes note of a question that is about to be asked.
    pub(crate) fn asks(&self, id: &Value) {
        self.inner().questions.entry(id.to_string()).or_default();
    }

    /// Takes an answer, which must answer something, and only once.
    pub(super) fn answered(&self, id: &Value, response: &Value) {
        let mut inner = self.inner();
        let complaint = match inner.questions.get_mut(&id.to_string()) {
            None => "an answer to a question that was not asked",
            Some(Some(_)) => "a second answer to a question",
            Some(open) => {
                *open = Some(response.clone());
                return;
            }
        };
        drop(inner);
        self.complain(&format!("{complaint}: {id}"));
    }

    /// What a question was answered.
    pub(crate) fn answer(&self, id: &Value) -> Option<Value> {
        self.inner()
            .questions
            .get(&id.to_string())
            .cloned()
            .flatten()
    }

    /// Whether no GET has come before this one.
    pub(super) fn is_first_get(&self) -> bool {
        !std::mem::replace(&mut self.inner().was_listened_to, true)
    }

    /// Opens the general stream; nothing when one is open or the session is over.
    pub(super) fn open_general_stream(&self) -> Option<mpsc::Receiver<Out>> {
        let mut inner = self.inner();
        if inner
            .general_stream
            .as_ref()
            .is_some_and(|stream| !stream.is_closed())
        {
            drop(inner);
            self.complain("a second general stream was opened");
            return None;
        }
        let (sender, receiver) = mpsc::channel(64);
        inner.general_stream = Some(sender);
        Some(receiver)
    }

    /// Puts something on the general stream, as soon as there is one.
    pub(crate) async fn put(&self, out: Out) {
        loop {
            let mut changes = self.shared.changed.subscribe();
            let stream = self.inner().general_stream.clone();
            if let Some(stream) = stream
                && stream.send(out.clone()).await.is_ok()
            {
                return;
            }
            let _ = changes.changed().await;
        }
    }

    /// Asks on the general stream, outside any call; returns the question's id.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let id = self.question_id();
        self.asks(&id);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.put(Out::Event(message.to_string())).await;
        id
    }
}
