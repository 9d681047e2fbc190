//! The server: one tool that does what its arguments say, and a book of what was asked in which call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::journal::Journal;
use super::plan::{CallPlan, Form, Server};
use crate::support::puppet::{Call, Ending, EventIds, GeneralStream, Manner, OnCancel, Puppet};

/// The tool, and its twin that may be repeated.
pub(crate) const TOOLS: [&str; 2] = ["once", "repeatable"];

/// A question as it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Posed {
    pub(crate) session: String,
    /// The server's id of it.
    pub(crate) id: Value,
    /// The attempt that it belongs to.
    pub(crate) tag: String,
    pub(crate) name: String,
}

/// What was asked.
pub(crate) type Book = Arc<Mutex<Vec<Posed>>>;

/// Starts a server.
pub(crate) async fn start(server: Server, journal: &Arc<Journal>) -> (Puppet, Book) {
    let manner = Manner {
        event_ids: match server.resumes {
            true => EventIds::With,
            false => EventIds::Without,
        },
        general_stream: match server.has_general_stream {
            true => GeneralStream::Offered,
            false => GeneralStream::Refused,
        },
        on_cancel: match server.answers_cancelled {
            true => OnCancel::AnswerError,
            false => OnCancel::FallSilent,
        },
        ..Manner::default()
    };
    let (puppet, book) = (Puppet::start(manner).await, Book::default());
    for name in TOOLS {
        let (journal, book) = (Arc::clone(journal), Arc::clone(&book));
        puppet.tool(name, move |call| {
            run(call, Arc::clone(&journal), Arc::clone(&book))
        });
    }
    puppet.on("tools/list", "", |_| async { Ending::Result(list()) });
    (puppet, book)
}

fn list() -> Value {
    let tools = TOOLS.map(|name| {
        json!({
            "name": name,
            "inputSchema": {"type": "object"},
            "annotations": {"idempotentHint": name == TOOLS[1]},
        })
    });
    json!({ "tools": tools })
}

/// The name of a call's tool and its arguments; `tag` names the attempt.
pub(crate) fn arguments(plan: &CallPlan, tag: &str) -> (&'static str, Value) {
    let mut names = 0..;
    let asks = plan.asks.iter().map(|ask| {
        let names: Vec<_> = names
            .by_ref()
            .take(ask.form.questions())
            .map(|number| format!("q{number}"))
            .collect();
        let is_aside = ask.form == Form::Aside;
        json!({"works": ask.works.0, "names": names, "aside": is_aside})
    });
    let arguments = json!({
        "tag": tag,
        "asks": asks.collect::<Vec<_>>(),
        "works": plan.works.0,
    });
    (TOOLS[usize::from(plan.is_repeatable)], arguments)
}

/// The params of a question. Its message says in which call it is asked.
fn question(tag: &str, name: &str) -> Value {
    json!({
        "message": format!("{tag} {name}"),
        "requestedSchema": {
            "type": "object",
            "properties": {name: {"type": "string", "minLength": 4, "maxLength": 60}},
            "required": [name],
        },
    })
}

async fn run(call: Call, journal: Arc<Journal>, book: Book) -> Ending {
    let arguments = call.arguments().clone();
    let tag = arguments["tag"].as_str().unwrap_or_default();
    let session = &call.session.id;
    journal.note(format!("server: {tag} starts on {session}"));
    let (mut said, asks) = (Vec::new(), arguments["asks"].as_array());
    if asks.into_iter().flatten().any(|ask| ask["aside"] == true) {
        // Before the response has begun, nobody could resume the call for what is asked elsewhere.
        call.log("debug", "it begins").await;
    }
    for (step, ask) in (1..).zip(asks.into_iter().flatten()) {
        call.progress(step).await;
        work(&ask["works"]).await;
        let mut open = Vec::new();
        for name in ask["names"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            let params = question(tag, name);
            let id = match ask["aside"] == true {
                true => call.session.ask("elicitation/create", params).await,
                false => call.pose("elicitation/create", params).await,
            };
            journal.note(format!("server: {tag} asks {name} as {session}/{id}"));
            book.lock().unwrap().push(Posed {
                session: session.clone(),
                id: id.clone(),
                tag: tag.to_owned(),
                name: name.to_owned(),
            });
            open.push((id, name));
        }
        for (id, name) in open {
            let answer = call.answer(&id).await.said(name);
            journal.note(format!("server: {tag} hears {answer} to {name}"));
            said.push(answer);
        }
    }
    work(&arguments["works"]).await;
    journal.note(format!("server: {tag} is done"));
    Ending::text(json!({"tag": tag, "said": said}).to_string())
}

async fn work(ms: &Value) {
    sleep(Duration::from_millis(ms.as_u64().unwrap_or_default())).await;
}
