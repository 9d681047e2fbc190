//! The guided walk: four conversations with the demo server through the gateway, leg by leg, each checked
//! against what should come.

use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};
use http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::cli::client::{Asked, Client, Outcome, reissue};
use holdfast::wire::modern;
use holdfast::wire::object::RawObject;

/// One conversation: a tool, and what is answered in each round until the result.
struct Story {
    title: &'static str,
    tool: &'static str,
    arguments: Value,
    rounds: Vec<Round>,
    result: &'static str,
}

/// What is asked, and what we answer.
struct Round {
    key: &'static str,
    answer: &'static str,
    /// Words of the reason for which the answer before was not taken.
    rejected: Option<&'static str>,
}

const fn round(key: &'static str, answer: &'static str) -> Round {
    Round {
        key,
        answer,
        rejected: None,
    }
}

fn stories() -> [Story; 4] {
    [
        Story {
            title: "One question, answered yes",
            tool: "cancel-subscription",
            arguments: json!({"subscriptionId": "sub-1"}),
            rounds: vec![round(
                "confirm",
                r#"{"action":"accept","content":{"confirm":true}}"#,
            )],
            result: "Subscription sub-1 is cancelled.",
        },
        Story {
            title: "The same question, declined",
            tool: "cancel-subscription",
            arguments: json!({"subscriptionId": "sub-2"}),
            rounds: vec![round("confirm", r#"{"action":"decline"}"#)],
            result: "Subscription sub-2 stays as it is (decline).",
        },
        Story {
            title: "Two questions in a row; an answer that does not fit is asked again",
            tool: "file-shipping-claim",
            arguments: json!({"orderId": "order-7"}),
            rounds: vec![
                round(
                    "email",
                    r#"{"action":"accept","content":{"email":"ada at example"}}"#,
                ),
                Round {
                    key: "email",
                    answer: r#"{"action":"accept","content":{"email":"ada@example.com"}}"#,
                    rejected: Some("email"),
                },
                round(
                    "description",
                    r#"{"action":"accept","content":{"description":"The box arrived crushed and wet."}}"#,
                ),
            ],
            result: "Claim for order-7 filed; we answer to ada@example.com. You wrote: The box arrived crushed and wet.",
        },
        Story {
            title: "A step-up confirmation in the browser",
            tool: "refund",
            arguments: json!({"paymentId": "pay-3"}),
            rounds: vec![round("elicitation", r#"{"action":"accept"}"#)],
            result: "Payment pay-3 is refunded.",
        },
    ]
}

/// Walks through all conversations.
pub(super) async fn walk(server: &str, endpoint: &str) -> anyhow::Result<()> {
    let mut out = Page::new();
    out.line(&format!(
        "A legacy MCP server (2025-11-25) runs at {server}"
    ))?;
    out.line(&format!(
        "holdfast serves modern clients (2026-07-28) at {endpoint}"
    ))?;
    out.line(
        "The server asks in the middle of its calls. Watch what a modern client gets to see:",
    )?;
    let mut client = Client::new(endpoint, HeaderMap::new(), false)?;
    discover(&mut client, &mut out).await?;
    for (at, story) in stories().iter().enumerate() {
        out.line("")?;
        out.title(&format!("{}. {}", at + 1, story.title))?;
        tell(&mut client, story, &mut out)
            .await
            .with_context(|| format!("step {}", at + 1))?;
    }
    out.line("")?;
    out.line("Every step went as it should.")
}

async fn discover(client: &mut Client, out: &mut Page) -> anyhow::Result<()> {
    let message = client.message("server/discover", Map::new());
    let Outcome::Complete(result) = client.leg(&message, &mut |_, _| {}).await? else {
        bail!("server/discover did not end well");
    };
    let result: Value = serde_json::from_str(result.get())?;
    let name = &result["_meta"][modern::META_SERVER_INFO]["title"];
    out.line("")?;
    out.sent("server/discover")?;
    out.got(&format!(
        "{}, versions {}",
        name, result["supportedVersions"]
    ))?;
    if result["supportedVersions"] != json!([modern::PROTOCOL_VERSION]) {
        bail!("server/discover names other versions");
    }
    Ok(())
}

async fn tell(client: &mut Client, story: &Story, out: &mut Page) -> anyhow::Result<()> {
    let mut first = Map::new();
    first.insert("name".to_owned(), story.tool.into());
    first.insert("arguments".to_owned(), story.arguments.clone());
    out.sent(&format!("tools/call {} {}", story.tool, story.arguments))?;
    let mut params = first.clone();
    for round in &story.rounds {
        let message = client.message("tools/call", params);
        let Outcome::InputRequired(asked) = client.leg(&message, &mut |_, _| {}).await? else {
            bail!("nothing was asked, and {:?} should have been", round.key);
        };
        show_question(&asked, round, out)?;
        let answer: Value = serde_json::from_str(round.answer)?;
        out.sent(&format!(
            "tools/call again, with requestState and {}: {answer}",
            round.key
        ))?;
        let responses = Map::from_iter([(round.key.to_owned(), answer)]);
        params = reissue(&first, responses, asked.state.as_deref());
    }
    let message = client.message("tools/call", params);
    let Outcome::Complete(result) = client.leg(&message, &mut |_, _| {}).await? else {
        bail!("there is no result where one should be");
    };
    let result: Value = serde_json::from_str(result.get())?;
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    out.got(&format!("complete: {text}"))?;
    if text != story.result {
        bail!("the result should have been {:?}", story.result);
    }
    Ok(())
}

fn show_question(asked: &Asked, round: &Round, out: &mut Page) -> anyhow::Result<()> {
    let requests = RawObject::of(&asked.requests)?;
    let keys: Vec<&str> = requests.iter().map(|(key, _)| key).collect();
    if keys != [round.key] {
        bail!("{keys:?} was asked, and {:?} should have been", round.key);
    }
    let state = asked.state.as_deref().unwrap_or_default();
    if state.is_empty() {
        bail!("the question came without a requestState");
    }
    for (key, request) in requests.iter() {
        let request: Value = serde_json::from_str(request.get())?;
        let params = &request["params"];
        out.got(&format!(
            "input_required: {key}: {}",
            params["message"].as_str().unwrap_or_default()
        ))?;
        if let Some(url) = params["url"].as_str() {
            out.more(&format!("to be visited: {url}"))?;
        }
        if let Some(schema) = params["requestedSchema"]["properties"].get(key) {
            out.more(&format!("to be answered with: {schema}"))?;
        }
    }
    let rejected = asked.rejected.get(round.key).and_then(Value::as_str);
    if let Some(why) = rejected {
        out.more(&format!("the last answer was not taken: {why}"))?;
    }
    match (rejected, round.rejected) {
        (Some(why), Some(expected)) if why.contains(expected) => {}
        (None, None) => {}
        _ => bail!("the reason for asking again is {rejected:?}"),
    }
    out.more(&format!("requestState: {} sealed bytes", state.len()))
}

/// Says how to go on by hand.
pub(super) fn invite(endpoint: &str) -> anyhow::Result<()> {
    let mut out = Page::new();
    out.line("")?;
    out.title("Now you")?;
    out.line(&format!(
        "holdfast call {endpoint} cancel-subscription subscriptionId=sub-9"
    ))?;
    out.line("")?;
    out.line("or by hand (the second command answers what the first was asked):")?;
    out.line("")?;
    let meta = json!({
        modern::META_PROTOCOL_VERSION: modern::PROTOCOL_VERSION,
        modern::META_CLIENT_CAPABILITIES: {"elicitation": {"form": {}, "url": {}}},
    });
    let call = format!(
        r#""name":"cancel-subscription","arguments":{{"subscriptionId":"sub-9"}},"_meta":{meta}"#
    );
    let curl = format!(
        "curl -s {endpoint} -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
         -H 'MCP-Protocol-Version: {}' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: cancel-subscription'",
        modern::PROTOCOL_VERSION
    );
    out.line(&format!(
        r#"STATE=$({curl} -d '{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{call}}}}}' | tee /dev/stderr | sed -n 's/.*"requestState":"\([^"]*\)".*/\1/p')"#
    ))?;
    out.line("")?;
    out.line(&format!(
        r#"{curl} -d '{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{{call},"inputResponses":{{"confirm":{{"action":"accept","content":{{"confirm":true}}}}}},"requestState":"'"$STATE"'"}}}}'"#
    ))?;
    out.line("")?;
    out.line("Ctrl-C ends it.")
}

/// Standard output, coloured where a person looks at it.
struct Page {
    is_coloured: bool,
}

impl Page {
    fn new() -> Self {
        Self {
            is_coloured: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    fn line(&mut self, text: &str) -> anyhow::Result<()> {
        writeln!(std::io::stdout(), "{text}").context("standard output is closed")
    }

    fn title(&mut self, text: &str) -> anyhow::Result<()> {
        self.line(&self.coloured("1", text))
    }

    fn sent(&mut self, text: &str) -> anyhow::Result<()> {
        self.line(&format!("   {} {text}", self.coloured("36", "→")))
    }

    fn got(&mut self, text: &str) -> anyhow::Result<()> {
        self.line(&format!("   {} {text}", self.coloured("32", "←")))
    }

    fn more(&mut self, text: &str) -> anyhow::Result<()> {
        self.line(&format!("       {text}"))
    }

    fn coloured(&self, code: &str, text: &str) -> String {
        if self.is_coloured {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
