//! Scripts: what a tool, a prompt or a resource of the puppet does when it is called.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::outgoing::Out;
use super::{Answers, Counted, OnCancel, Session, Shared};

/// How a script ends.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// With a result.
    Result(Value),
    /// With a JSON-RPC error.
    Error(Value),
    /// The stream ends without a response.
    Nothing,
    /// The connection ends in the middle.
    Cut,
    /// Nothing more is said; the stream stays open.
    Stall,
}

impl Ending {
    /// A tool's result with one text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Result(crate::support::text(text))
    }
}

type Run = dyn Fn(Call) -> Pin<Box<dyn Future<Output = Ending> + Send>> + Send + Sync;

#[derive(Clone)]
pub(super) struct Script(Arc<Run>);

impl fmt::Debug for Script {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Script")
    }
}

pub(super) fn script<F>(run: impl Fn(Call) -> F + Send + Sync + 'static) -> Script
where
    F: Future<Output = Ending> + Send + 'static,
{
    Script(Arc::new(move |call| Box::pin(run(call))))
}

/// The answer to a question: the whole response.
#[derive(Clone, Debug)]
pub(crate) struct Answer(pub(crate) Value);

impl Answer {
    /// Its result, or null.
    pub(crate) fn result(&self) -> &Value {
        &self.0["result"]
    }

    /// What a form was answered with: the action, or the value of one property.
    pub(crate) fn said(&self, property: &str) -> String {
        let result = self.result();
        match (&self.0["error"], result["action"].as_str()) {
            (error, _) if !error.is_null() => format!("error {}", error["code"]),
            (_, Some("accept")) => result["content"][property].to_string(),
            (_, action) => action.unwrap_or("nothing").to_owned(),
        }
    }
}

/// A request that a script serves.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) session: Arc<Session>,
    /// The whole request.
    pub(crate) request: Value,
    out: mpsc::Sender<Out>,
    shared: Arc<Shared>,
    cancelled: CancellationToken,
}

impl Call {
    pub(super) fn new(
        shared: &Arc<Shared>,
        session: Arc<Session>,
        request: Value,
        out: mpsc::Sender<Out>,
        cancelled: CancellationToken,
    ) -> Self {
        Self {
            session,
            request,
            out,
            shared: Arc::clone(shared),
            cancelled,
        }
    }

    /// The arguments of a tool.
    pub(crate) fn arguments(&self) -> &Value {
        &self.request["params"]["arguments"]
    }

    /// Puts anything on the response.
    pub(crate) async fn put(&self, out: Out) {
        // A stream that nobody reads any more does not stop the script: the spec says that a broken
        // connection is no cancellation.
        let _ = self.out.send(out).await;
    }

    /// Sends a message on the response's stream.
    pub(crate) async fn send(&self, message: Value) {
        if message.get("method").is_some() && message.get("id").is_some() {
            self.session.asks(&message["id"]);
        }
        self.put(Out::Event(message.to_string())).await;
    }

    /// Asks on the response's stream and waits for the answer.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Answer {
        let id = self.pose(method, params).await;
        self.answer(&id).await
    }

    /// Asks on the response's stream; returns the question's id.
    pub(crate) async fn pose(&self, method: &str, params: Value) -> Value {
        let id = self.session.question_id();
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(message).await;
        id
    }

    /// Asks for a form on the response's stream and waits for the answer.
    pub(crate) async fn elicit(&self, params: Value) -> Answer {
        self.ask("elicitation/create", params).await
    }

    /// Asks on the session's general stream and waits for the answer.
    pub(crate) async fn ask_generally(&self, method: &str, params: Value) -> Answer {
        let id = self.session.ask(method, params).await;
        self.answer(&id).await
    }

    /// Waits for the answer to a question.
    pub(crate) async fn answer(&self, id: &Value) -> Answer {
        self.shared
            .until(|_| self.session.answer(id).is_some())
            .await;
        Answer(self.session.answer(id).unwrap_or_default())
    }

    /// Reports progress, if the client wants to hear of it.
    pub(crate) async fn progress(&self, progress: u64) {
        let token = &self.request["params"]["_meta"]["progressToken"];
        if token.is_null() {
            return;
        }
        self.send(json!({
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": progress, "message": format!("step {progress}")},
        }))
        .await;
    }

    /// Logs.
    pub(crate) async fn log(&self, level: &str, data: &str) {
        self.send(json!({
            "jsonrpc": "2.0",
            "method": "notifications/message",
            "params": {"level": level, "logger": "puppet", "data": data},
        }))
        .await;
    }

    /// Waits until the ledger fulfils a condition.
    pub(crate) async fn until(&self, condition: impl Fn(&super::Ledger) -> bool) {
        self.shared.until(condition).await;
    }

    /// Runs the script to its end and writes that end.
    pub(super) async fn run(self, script: Script) {
        let counted = Counted::up(&self.shared, |ledger| &mut ledger.running);
        let on_cancel = self.shared.manner.on_cancel;
        let cancelled = self.cancelled.clone();
        let ending = tokio::select! {
            ending = (script.0)(self.clone()) => ending,
            () = cancelled.cancelled(), if on_cancel != OnCancel::Ignore => match on_cancel {
                OnCancel::AnswerError => Ending::Error(json!({"code": 0, "message": "cancelled"})),
                OnCancel::FallSilent | OnCancel::Ignore => Ending::Stall,
            },
        };
        drop(counted);
        self.end(ending).await;
    }

    async fn end(&self, ending: Ending) {
        let id = &self.request["id"];
        let last = match ending {
            Ending::Result(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Ending::Error(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
            Ending::Nothing => return self.put(Out::End).await,
            Ending::Cut => return self.put(Out::Cut).await,
            Ending::Stall => return self.out.closed().await,
        };
        match self.shared.manner.answers {
            Answers::Json => {
                self.put(Out::Whole(
                    200,
                    "application/json",
                    last.to_string().into_bytes(),
                ))
                .await;
            }
            Answers::Events => {
                self.put(Out::Event(last.to_string())).await;
                self.put(Out::End).await;
            }
        }
    }
}
