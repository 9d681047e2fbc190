//! A modern client that starts the gateway as its server: messages line by line, over standard input and output.

use serde_json::{Value, json};

use crate::support::client::{Client, META_LOG_LEVEL, Request};
use crate::support::gateway::Config;
use crate::support::piped::Piped;
use crate::support::puppet::{Answers, Ending, Ledger, Manner, Out, Puppet};
use crate::support::stage::{Gate, usual};
use crate::support::{accept, form, text_of};

mod challenges;
mod endings;
mod lines;
mod programs;

/// A puppet with the usual tools, a gateway of one client in front of it, and what makes that client's messages.
struct Desk {
    puppet: Puppet,
    gateway: Piped,
    client: Client,
}

impl Desk {
    async fn new() -> Self {
        Self::set(Manner::default(), |config| config).await
    }

    async fn set(manner: Manner, change: impl FnOnce(Config) -> Config) -> Self {
        let puppet = Puppet::start(manner).await;
        usual(&puppet);
        // Sessions stay warm: that they are closed in the end is the gateway's doing.
        let config = Config::of(&puppet).timer("session_idle", "60s");
        let gateway = Piped::start(&change(config)).await;
        // It makes messages only, and never connects.
        let client = Client::at(([127, 0, 0, 1], 9).into());
        Self {
            puppet,
            gateway,
            client,
        }
    }

    fn tool(&self, name: &str) -> Request {
        self.client.tool(name, json!({}))
    }

    async fn sent(&mut self, name: &str) -> Request {
        let request = self.tool(name);
        self.gateway.send(&request).await;
        request
    }

    async fn started(&self, tool: &str, count: usize) {
        let is_started = |ledger: &Ledger| {
            let of_tool = ledger.starts.iter().filter(|(name, _)| name == tool);
            of_tool.count() >= count
        };
        self.puppet
            .until("the tool to be started", is_started)
            .await;
    }

    async fn cancelled(&self, count: usize) {
        let is_told = |ledger: &Ledger| ledger.cancellations.len() >= count;
        self.puppet
            .until("the server to be told of the cancellation", is_told)
            .await;
    }

    /// The client leaves, and no session stays open.
    async fn ends(self) {
        self.gateway.leaves().await;
        self.puppet.settled().await;
    }
}

/// A tool that goes on when it is told to.
fn waiting(puppet: &Puppet, tool: &'static str) -> Gate {
    let gate = Gate::default();
    let script_gate = gate.clone();
    puppet.tool(tool, move |_| {
        let gate = script_gate.clone();
        async move {
            gate.passed().await;
            Ending::text(tool)
        }
    });
    gate
}

fn cancellation(request: &Request) -> Value {
    let params = json!({"requestId": request.message()["id"], "reason": "no longer wanted"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

#[tokio::test]
async fn calls_are_answered() {
    let mut desk = Desk::new().await;
    let discover = desk.client.request("server/discover", json!({}));
    desk.gateway.send(&discover).await;
    let result = desk.gateway.result(&discover).await;
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
    for id in [
        json!("a"),
        json!(-7),
        json!("1"),
        json!(9_007_199_254_740_993_u64),
    ] {
        let request = desk.client.tool("echo", json!({"a": 1})).id(id);
        desk.gateway.send(&request).await;
        let result = desk.gateway.result(&request).await;
        assert_eq!(text_of(&result), r#"{"a":1}"#);
    }
    let opened = desk.puppet.ledger().sessions_opened;
    assert_eq!(opened, 1, "one warm session serves one client");
    desk.ends().await;
}

#[tokio::test]
async fn a_held_call_is_answered_leg_by_leg() {
    let mut desk = Desk::new().await;
    let mut request = desk.sent("three").await;
    for value in ["Ada", "London", "Baker"] {
        let asked = desk.gateway.asked(&request).await;
        let answer = accept(json!({asked.key(): value}));
        request = request.answer(&asked, answer);
        desk.gateway.send(&request).await;
    }
    let result = desk.gateway.result(&request).await;
    assert_eq!(text_of(&result), r#""Ada" "London" "Baker""#);
    assert_eq!(desk.puppet.starts("three"), 1);
    desk.ends().await;
}

#[tokio::test]
async fn two_calls_at_once_end_as_they_end() {
    let mut desk = Desk::new().await;
    let (slow, quick) = (
        waiting(&desk.puppet, "slow"),
        waiting(&desk.puppet, "quick"),
    );
    let first = desk.sent("slow").await;
    let second = desk.sent("quick").await;
    desk.started("slow", 1).await;
    desk.started("quick", 1).await;
    quick.open();
    assert_eq!(text_of(&desk.gateway.result(&second).await), "quick");
    slow.open();
    assert_eq!(text_of(&desk.gateway.result(&first).await), "slow");
    desk.ends().await;
}

#[tokio::test]
async fn what_calls_tell_is_interleaved() {
    let mut desk = Desk::new().await;
    let gate = Gate::default();
    let script_gate = gate.clone();
    desk.puppet.tool("steps", move |call| {
        let gate = script_gate.clone();
        async move {
            call.progress(1).await;
            call.log("info", "half way").await;
            gate.passed().await;
            let said = call.elicit(form("name", json!({"type": "string"}))).await;
            call.progress(2).await;
            Ending::text(said.said("name"))
        }
    });
    let mut requests = Vec::new();
    for token in ["one", "two"] {
        let request = desk.tool("steps").meta("progressToken", json!(token));
        let request = request.meta(META_LOG_LEVEL, json!("info"));
        desk.gateway.send(&request).await;
        for method in ["notifications/progress", "notifications/message"] {
            let note = desk.gateway.next().await;
            assert_eq!(note["method"], method, "{note}");
            let is_progress = method == "notifications/progress";
            assert!(!is_progress || note["params"]["progressToken"] == token);
        }
        requests.push((token, request));
    }
    for (token, request) in requests {
        gate.open();
        // Of two that wait, the first one passes.
        let asked = desk.gateway.asked(&request).await;
        let again = request.answer(&asked, accept(json!({"name": token})));
        desk.gateway.send(&again).await;
        let note = desk.gateway.next().await;
        assert_eq!(note["params"]["progressToken"], token, "{note}");
        assert_eq!(note["params"]["progress"], 2, "{note}");
        let result = desk.gateway.result(&again).await;
        assert_eq!(text_of(&result), format!("{token:?}"));
    }
    desk.ends().await;
}

#[tokio::test]
async fn a_cancelled_call_is_not_answered() {
    let mut desk = Desk::new().await;
    let gate = waiting(&desk.puppet, "waits");
    let request = desk.sent("waits").await;
    desk.started("waits", 1).await;
    let mut nobody = cancellation(&request);
    nobody["params"]["requestId"] = json!("nobody");
    desk.gateway.say(&nobody).await;
    desk.gateway.say(&cancellation(&request)).await;
    desk.cancelled(1).await;
    // Its id is free again, and what comes next is the answer to another request.
    let echo = desk.tool("echo").id(request.message()["id"].clone());
    desk.gateway.send(&echo).await;
    assert_eq!(text_of(&desk.gateway.result(&echo).await), "{}");
    desk.gateway.say(&cancellation(&request)).await;
    gate.open();
    desk.ends().await;
}

/// Such a call runs apart from its leg.
#[tokio::test]
async fn a_call_that_has_told_something_can_be_cancelled() {
    let mut desk = Desk::new().await;
    desk.puppet.tool("steps", |call| async move {
        call.progress(1).await;
        call.until(|ledger| !ledger.cancellations.is_empty()).await;
        call.progress(2).await;
        Ending::text("never heard")
    });
    let request = desk.tool("steps").meta("progressToken", json!(1));
    desk.gateway.send(&request).await;
    assert_eq!(
        desk.gateway.next().await["method"],
        "notifications/progress"
    );
    desk.gateway.say(&cancellation(&request)).await;
    desk.cancelled(1).await;
    let echo = desk.sent("echo").await;
    desk.gateway.result(&echo).await;
    desk.ends().await;
}

/// A server that indents its JSON must not break the line.
#[tokio::test]
async fn a_result_of_many_lines_is_one_line() {
    let manner = Manner {
        answers: Answers::Json,
        ..Manner::default()
    };
    let mut desk = Desk::set(manner, |config| config).await;
    desk.puppet.tool("indents", |call| async move {
        let content = json!([{"type": "text", "text": "a\nb"}]);
        let response =
            json!({"jsonrpc": "2.0", "id": call.request["id"], "result": {"content": content}});
        let body = serde_json::to_string_pretty(&response)
            .unwrap()
            .replace('\n', "\r\n");
        call.put(Out::Whole(200, "application/json", body.into_bytes()))
            .await;
        Ending::Stall
    });
    let request = desk.sent("indents").await;
    assert_eq!(text_of(&desk.gateway.result(&request).await), "a\nb");
    desk.ends().await;
}

/// There are no headers that could mirror an argument.
#[tokio::test]
async fn declared_headers_are_not_missed() {
    let mut desk = Desk::new().await;
    desk.puppet.on("tools/list", "", |_| async {
        let region = json!({"type": "string", "x-mcp-header": "Region"});
        let schema = json!({"type": "object", "properties": {"region": region}});
        Ending::Result(json!({"tools": [{"name": "echo", "inputSchema": schema}]}))
    });
    let list = desk.client.request("tools/list", json!({}));
    desk.gateway.send(&list).await;
    desk.gateway.result(&list).await;
    let request = desk.client.tool("echo", json!({"region": "eu"}));
    desk.gateway.send(&request).await;
    let result = desk.gateway.result(&request).await;
    assert_eq!(text_of(&result), r#"{"region":"eu"}"#);
    desk.ends().await;
}
