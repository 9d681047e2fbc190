//! `holdfast call`: calls one tool, asks a person in the terminal for what the server wants to know.
//!
//! The result goes to standard output, everything else to standard error. Text of the server is shown without
//! its control characters; a url is shown in full and opened by nobody.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::client::{Asked, Client, Outcome, reissue};
use super::terminal::plain;
use super::{Failure, tell};
use holdfast::wire::object::RawObject;

mod answers;
mod form;
mod prompt;
mod show;

use answers::Answers;

/// Rounds after which a server that asks and asks is left alone. Other clients stop after ten.
const ROUNDS_MAX: u32 = 32;

/// How long telling a server that nobody answers may take.
const WITHDRAW_MAX: Duration = Duration::from_secs(5);

/// Pages of the tool list that are looked through for the tool's schema.
const PAGES_MAX: u32 = 100;

/// Options of `holdfast call`.
#[derive(Debug, Args)]
pub(super) struct CallArgs {
    /// The MCP endpoint, as http://HOST:PORT/mcp
    url: String,
    /// The tool
    tool: String,
    /// Arguments; a value is JSON if it reads as such and the tool does not want a string
    #[arg(value_name = "KEY=VALUE", value_parser = pair)]
    arguments: Vec<(String, String)>,
    /// All arguments at once, instead of KEY=VALUE
    #[arg(long, value_name = "JSON", conflicts_with = "arguments")]
    args: Option<String>,
    /// An answer given without asking; may be repeated, also for one key that is asked several times. JSON is a
    /// whole response (`{"action":"decline"}`), the content of a form (`{"email":"a@b.example"}`), or for a form
    /// with one property its bare value (`confirm=true`, `name="Ada"`)
    #[arg(long = "answer", value_name = "KEY=JSON", value_parser = pair)]
    answers: Vec<(String, String)>,
    /// A header for every request, such as 'Authorization: Bearer …'; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// A root to declare, as file://…; may be repeated
    #[arg(long = "root", value_name = "URI")]
    roots: Vec<String>,
    /// Print the final result as JSON
    #[arg(long)]
    json: bool,
    /// Do not ask for progress and log messages
    #[arg(long)]
    quiet: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("is not KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("is not NAME: VALUE")?;
    let name = name.trim().parse().map_err(|_| "is no header name")?;
    let mut value: HeaderValue = value.trim().parse().map_err(|_| "is no header value")?;
    value.set_sensitive(true);
    Ok((name, value))
}

pub(super) fn run(args: &CallArgs) -> Result<(), Failure> {
    let headers: HeaderMap = args.headers.iter().cloned().collect();
    let client = Client::new(&args.url, headers, !args.roots.is_empty()).map_err(Failure::Usage)?;
    let client = if args.quiet { client.quiet() } else { client };
    let answers = Answers::parse(&args.answers, &args.roots).map_err(Failure::Usage)?;
    let whole = args
        .args
        .as_deref()
        .map(serde_json::from_str::<Map<String, Value>>)
        .transpose();
    let whole = whole
        .context("--args is no JSON object")
        .map_err(Failure::Usage)?;
    super::runtime()?
        .block_on(async {
            Conversation {
                client,
                answers,
                args,
            }
            .hold(whole)
            .await
        })
        .map_err(Failure::Runtime)
}

struct Conversation<'a> {
    client: Client,
    answers: Answers,
    args: &'a CallArgs,
}

impl Conversation<'_> {
    async fn hold(&mut self, whole: Option<Map<String, Value>>) -> anyhow::Result<()> {
        let arguments = match whole {
            Some(whole) => whole,
            None => self.arguments().await?,
        };
        let mut first = Map::new();
        first.insert("name".to_owned(), self.args.tool.as_str().into());
        first.insert("arguments".to_owned(), Value::Object(arguments));
        let mut params = first.clone();
        for _ in 0..ROUNDS_MAX {
            match self.leg("tools/call", params).await? {
                Outcome::Complete(result) => return self.finish(&result),
                Outcome::Error(error) => bail!("{}", show::error(&error)),
                Outcome::InputRequired(asked) => {
                    if asked.is_empty() {
                        bail!("the server asks for input and does not say for which");
                    }
                    let responses = match self.answer(&asked).await {
                        Ok(responses) => responses,
                        Err(error) => {
                            self.withdraw(&first, &asked).await;
                            return Err(error);
                        }
                    };
                    params = reissue(&first, responses, asked.state.as_deref());
                }
            }
        }
        bail!("the server still asks after {ROUNDS_MAX} rounds")
    }

    /// Answers what will not be answered with `cancel`, so that nobody waits for it; what comes of that is not
    /// wanted any more.
    async fn withdraw(&mut self, first: &Map<String, Value>, asked: &Asked) {
        let requests = RawObject::of(&asked.requests).unwrap_or_default();
        let responses: Map<String, Value> = requests
            .iter()
            .filter(|(_, request)| form::is_elicitation(request))
            .map(|(key, _)| (key.to_owned(), json!({"action": "cancel"})))
            .collect();
        if responses.is_empty() {
            return;
        }
        let params = reissue(first, responses, asked.state.as_deref());
        let withdrawn = self.leg("tools/call", params);
        if tokio::time::timeout(WITHDRAW_MAX, withdrawn).await.is_err() {
            tell("the server was not told in time that its question is not answered");
        }
    }

    async fn leg(&mut self, method: &str, params: Map<String, Value>) -> anyhow::Result<Outcome> {
        let message = self.client.message(method, params);
        let quiet = self.args.quiet;
        let mut note = |method: &str, params: &Value| {
            if !quiet && let Some(line) = show::note(method, params) {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        };
        self.client.leg(&message, &mut note).await
    }

    /// The arguments of the command line. What the tool wants as a string stays one.
    async fn arguments(&mut self) -> anyhow::Result<Map<String, Value>> {
        if self.args.arguments.is_empty() {
            return Ok(Map::new());
        }
        let schema = self.schema().await?;
        let wants_text = |key: &str| schema["properties"][key]["type"] == "string";
        let read = |(key, text): &(String, String)| {
            let text_value = || Value::from(text.as_str());
            let value = if wants_text(key) {
                text_value()
            } else {
                serde_json::from_str(text).unwrap_or_else(|_| text_value())
            };
            (key.clone(), value)
        };
        Ok(self.args.arguments.iter().map(read).collect())
    }

    /// The tool's `inputSchema`; null when the server does not list the tool.
    async fn schema(&mut self) -> anyhow::Result<Value> {
        let mut params = Map::new();
        for _ in 0..PAGES_MAX {
            let page = match self.leg("tools/list", params).await? {
                Outcome::Complete(page) => page,
                // Real servers have lists that fail and tools that work.
                Outcome::Error(_) | Outcome::InputRequired(_) => {
                    self.say("the tools cannot be listed: arguments are taken as JSON where they read as such");
                    return Ok(Value::Null);
                }
            };
            let page: Value = serde_json::from_str(page.get())?;
            let tools = page["tools"].as_array().into_iter().flatten();
            if let Some(tool) = tools
                .into_iter()
                .find(|tool| tool["name"] == self.args.tool.as_str())
            {
                return Ok(tool["inputSchema"].clone());
            }
            let Some(cursor) = page["nextCursor"].as_str() else {
                break;
            };
            params = Map::from_iter([("cursor".to_owned(), cursor.into())]);
        }
        Ok(Value::Null)
    }

    async fn answer(&mut self, asked: &Asked) -> anyhow::Result<Map<String, Value>> {
        let requests = RawObject::of(&asked.requests)?;
        let mut responses = Map::new();
        let mut open = Vec::new();
        for (key, request) in requests.iter() {
            let rejected = asked.rejected.get(key).and_then(Value::as_str);
            let question = form::Question::parse(request)
                .with_context(|| format!("the input request {:?} is not understood", plain(key)))?;
            match self.answers.prepared(key, &question, rejected)? {
                Some(response) => {
                    responses.insert(key.to_owned(), response);
                }
                None => open.push((key.to_owned(), question, rejected.map(ToOwned::to_owned))),
            }
        }
        let is_somebody_there = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if !open.is_empty() && !is_somebody_there {
            let questions: Vec<String> = open
                .iter()
                .map(|(key, question, _)| question.for_a_script(key))
                .collect();
            bail!(
                "nobody is at the terminal to answer:\n{}",
                questions.join("\n")
            );
        }
        for (key, question, rejected) in open {
            // Prompts block until a person answers; the runtime has other threads.
            let (key, response) = tokio::task::spawn_blocking(move || {
                prompt::ask(&key, &question, rejected.as_deref()).map(|response| (key, response))
            })
            .await??;
            responses.insert(key, response);
        }
        Ok(responses)
    }

    fn say(&self, what: &str) {
        if !self.args.quiet {
            tell(what);
        }
    }

    fn finish(&self, result: &RawValue) -> anyhow::Result<()> {
        let value: Value = serde_json::from_str(result.get())?;
        let text = if self.args.json {
            format!("{}\n", result.get())
        } else {
            show::result(&value)
        };
        std::io::stdout()
            .write_all(text.as_bytes())
            .context("standard output is closed")?;
        if value["isError"] == true {
            bail!("the tool reports an error");
        }
        Ok(())
    }
}
