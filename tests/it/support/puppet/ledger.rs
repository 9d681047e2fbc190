//! What was done to a puppet.

use serde_json::Value;

use crate::support::http1::Head;

/// One HTTP request.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// GET, POST, DELETE.
    pub(crate) verb: String,
    pub(crate) head: Head,
    /// The JSON-RPC message of a POST.
    pub(crate) body: Value,
    /// Its bytes.
    pub(crate) text: String,
}

impl Record {
    /// The JSON-RPC method.
    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// An answer to one of the puppet's questions.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) session: String,
    /// The question's id.
    pub(crate) id: Value,
    /// The whole response.
    pub(crate) response: Value,
}

/// Everything in the order it happened.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) records: Vec<Record>,
    /// Started scripts: their name and their params.
    pub(crate) starts: Vec<(String, Value)>,
    pub(crate) answers: Vec<Given>,
    /// Params of `notifications/cancelled`.
    pub(crate) cancellations: Vec<Value>,
    pub(crate) violations: Vec<String>,
    /// Scripts that have not ended.
    pub(crate) running: usize,
    pub(crate) sessions_opened: usize,
    pub(crate) sessions_open: usize,
    pub(crate) deletes: usize,
    /// General streams that are open.
    pub(crate) general_streams: usize,
    /// Responses of scripts that are open.
    pub(crate) exchanges: usize,
}

impl Ledger {
    /// The attempts to resume a script's stream: after which event each.
    pub(crate) fn resumed(&self) -> Vec<String> {
        let ids = self.records.iter().filter(|record| record.verb == "GET");
        ids.filter_map(|record| record.head.value("last-event-id"))
            .filter(|id| id.starts_with("post-"))
            .map(str::to_owned)
            .collect()
    }

    /// The requests of a JSON-RPC method.
    pub(crate) fn requests(&self, method: &str) -> Vec<Record> {
        self.records
            .iter()
            .filter(|record| record.method() == method)
            .cloned()
            .collect()
    }
}
