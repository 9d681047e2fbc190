//! The command line as a person meets it: exit codes, what goes where, the demo, `call`.

use std::process::{Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::support::client::Client;
use crate::support::puppet::Ending;
use crate::support::stage::{Stage, name_schema};
use crate::support::{accept, form, signal, text_of};

async fn holdfast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap()
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("the process was not killed")
}

#[tokio::test]
async fn the_demo_walks_and_ends() {
    let walked = holdfast(&["demo", "--once"]).await;
    assert_eq!(code(&walked), 0, "{}", err(&walked));
    for step in [
        "input_required: confirm",
        "complete: Subscription sub-1 is cancelled.",
        "complete: Subscription sub-2 stays as it is (decline).",
        "the last answer was not taken: /email",
        "complete: Claim for order-7 filed",
        "to be visited: https://billing.example.com/",
        "complete: Payment pay-3 is refunded.",
        "Every step went as it should.",
    ] {
        assert!(
            out(&walked).contains(step),
            "{step:?} is missing in\n{}",
            out(&walked)
        );
    }
    assert_eq!(err(&walked), "", "a walk without trouble says nothing else");
}

#[tokio::test]
async fn the_demo_serves_until_it_is_told_to_end() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["demo", "--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let address = loop {
        let line = lines.next_line().await.unwrap();
        let line = line.expect("the walk ends with an invitation");
        if let Some(rest) = line.trim().strip_prefix("holdfast call http://") {
            break rest.split('/').next().unwrap().parse().unwrap();
        }
    };
    let request = Client::at(address).tool("cancel-subscription", json!({}));
    request.send().await.asked();
    // Ending does not wait for an answer that nobody will give.
    signal(&demo, Signal::INT);
    let drained = async { while lines.next_line().await.unwrap().is_some() {} };
    let (ended, ()) = tokio::join!(demo.wait(), drained);
    assert_eq!(ended.unwrap().code(), Some(0));
}

/// Whoever read the log has gone: that is no reason to serve nobody.
#[tokio::test]
async fn a_gateway_whose_standard_error_is_closed_serves() {
    let stage = Stage::new().await;
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["serve", "--listen", "127.0.0.1:0", "--upstream"])
        .arg(format!("http://{}/mcp", stage.puppet.addr()))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(gateway.stderr.take().unwrap()).lines();
    let address = loop {
        let line = lines.next_line().await.unwrap().expect("it gets ready");
        if let Some(rest) = line.strip_prefix("holdfast listening on http://") {
            break rest.split('/').next().unwrap().parse().unwrap();
        }
    };
    drop(lines);
    let client = Client::at(address);
    stage.puppet.tool("breaks", |_| async { Ending::Cut });
    let request = client.tool("name", json!({}));
    let asked = request.send().await.asked();
    // This is logged, or would be.
    client.call("breaks").await.lost(true);
    let answer = accept(json!({"name": "Ada"}));
    let reply = request.answer(&asked, answer).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    signal(&gateway, Signal::TERM);
    assert_eq!(gateway.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn wrong_use_exits_with_2() {
    for arguments in [
        &["serve"][..],
        &["serve", "--upstream", "ftp://x/"],
        &["serve", "--upstream", "http://x/", "--config", "y"],
        &["serve", "--upstream", "http://x/", "--listen", "nowhere"],
        &["serve", "--config", "/nonexistent.toml"],
        &["stdio"],
        &["stdio", "--upstream", "ftp://x/"],
        &["stdio", "--upstream", "http://x/", "--config", "y"],
        &["stdio", "--config", "/nonexistent.toml"],
        &["check-config", "/nonexistent.toml"],
        &["call", "not a url", "t"],
        &[
            "call",
            "http://127.0.0.1:1/mcp",
            "t",
            "--answer",
            "k=not json",
        ],
        &["call", "http://127.0.0.1:1/mcp", "t", "novalue"],
        &["dance"],
    ] {
        let refused = holdfast(arguments).await;
        assert_eq!(code(&refused), 2, "{arguments:?}: {}", err(&refused));
        assert!(!err(&refused).is_empty(), "{arguments:?} says why");
        assert_eq!(out(&refused), "", "{arguments:?}");
    }
}

/// Whoever is refused reads what to write instead, and where.
#[tokio::test]
async fn a_refusal_says_the_way_out() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let ways = ["--upstream URL", "--config FILE", "-- COMMAND"];
    for command in ["serve", "stdio"] {
        let refused = holdfast(&[command]).await;
        assert_eq!(code(&refused), 2);
        assert!(ways.iter().all(|way| err(&refused).contains(way)));
    }
    let relative = holdfast(&["serve", "--upstream", "127.0.0.1:3000/mcp"]).await;
    assert!(
        err(&relative).contains("such as http://127.0.0.1:3000/mcp"),
        "{}",
        err(&relative)
    );
    for (config, expected) in [
        ("", "`backend`: there is none: add [[backend]]"),
        (
            "backend = [{ legacy = \"nowhere\" }]",
            "`legacy`: is no URL",
        ),
        ("keys = [\"short\"]", "`keys`: number 1: a sealing key is"),
    ] {
        std::fs::write(path, config).unwrap();
        let refused = holdfast(&["check-config", path]).await;
        assert_eq!(code(&refused), 2);
        let said = format!("holdfast: {path}: {expected}");
        assert!(err(&refused).starts_with(&said), "{}", err(&refused));
    }
}

#[tokio::test]
async fn what_fails_at_run_time_exits_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let serve = holdfast(&[
        "serve",
        "--upstream",
        "http://127.0.0.1:9/mcp",
        "--listen",
        &address,
    ])
    .await;
    assert_eq!(code(&serve), 1);
    assert!(err(&serve).contains(&address), "{}", err(&serve));
    drop(taken);
    let call = holdfast(&["call", &format!("http://{address}/mcp"), "t"]).await;
    assert_eq!(code(&call), 1);
    assert!(err(&call).contains("cannot reach"), "{}", err(&call));
}

#[tokio::test]
async fn a_fresh_key_can_be_configured() {
    let keygen = holdfast(&["keygen"]).await;
    assert_eq!(code(&keygen), 0);
    let key = out(&keygen).trim();
    assert_ne!(key, out(&holdfast(&["keygen"]).await).trim());
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let config = format!("keys = [\"{key}\"]\n[[backend]]\nlegacy = \"http://127.0.0.1:9/mcp\"\n");
    std::fs::write(path, &config).unwrap();
    let good = holdfast(&["check-config", path]).await;
    assert_eq!(code(&good), 0, "{}", err(&good));
    assert!(!out(&good).contains(key));
    std::fs::write(path, format!("holds = 7\n{config}")).unwrap();
    let bad = holdfast(&["check-config", path]).await;
    assert_eq!(code(&bad), 2);
    assert!(err(&bad).contains("holds"), "{}", err(&bad));
}

/// `holdfast call` through the gateway to tool `name` of the puppet, which asks for a name.
async fn call(stage: &Stage, more: &[&str]) -> Output {
    let url = format!("http://{}/mcp", stage.gateway.addr());
    let arguments: Vec<&str> = ["call", &url]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    holdfast(&arguments).await
}

#[tokio::test]
async fn answers_are_given_without_asking() {
    let stage = Stage::new().await;
    for (answer, said) in [
        (r#"name="Ada""#, "Ada"),
        (r#"name={"name":"Ada"}"#, "Ada"),
        (r#"name={"action":"decline"}"#, "decline"),
    ] {
        let called = call(&stage, &["name", "--answer", answer]).await;
        assert_eq!(code(&called), 0, "{}", err(&called));
        assert!(out(&called).contains(said), "{}", out(&called));
    }
    let called = call(&stage, &["name", "--answer", r#"name="Ada""#, "--json"]).await;
    let result: Value = serde_json::from_str(out(&called)).unwrap();
    assert_eq!(result["resultType"], "complete");
    stage.ends().await;
}

#[tokio::test]
async fn without_an_answer_and_a_terminal_the_call_is_given_up() {
    let stage = Stage::new().await;
    let called = call(&stage, &["two"]).await;
    assert_eq!(code(&called), 1);
    for part in ["--answer color=JSON", "--answer size=JSON", "integer"] {
        assert!(err(&called).contains(part), "{}", err(&called));
    }
    let called = call(&stage, &["name", "--answer", "name=7"]).await;
    assert_eq!(code(&called), 1);
    assert!(err(&called).contains("does not fit"), "{}", err(&called));
    // An answer is for one question, not for the next that has the same key.
    stage.puppet.tool("twice", |call| async move {
        let first = call.elicit(form("name", name_schema())).await;
        let second = call.elicit(form("name", name_schema())).await;
        Ending::text(format!("{} {}", first.said("name"), second.said("name")))
    });
    let once = ["twice", "--answer", r#"name="Ada""#];
    assert_eq!(code(&call(&stage, &once).await), 1);
    let both = call(
        &stage,
        &[&once[..], &["--answer", r#"name="Eve""#]].concat(),
    )
    .await;
    assert_eq!((code(&both), out(&both)), (0, "\"Ada\" \"Eve\"\n"));
    // Nobody will answer, and the server knows: nothing waits for the end of the hold's time.
    stage.ends().await;
}

#[tokio::test]
async fn arguments_are_read_as_the_tool_wants_them() {
    let stage = Stage::new().await;
    stage.puppet.tool("mirror", |call| async move {
        let arguments = call.request["params"]["arguments"].clone();
        Ending::Result(json!({"content": [], "structuredContent": arguments}))
    });
    let given = ["mirror", "n=7", "t=yes", r#"o={"a":[1]}"#];
    let called = call(&stage, &given).await;
    assert_eq!(code(&called), 0, "{}", err(&called));
    let seen: Value = serde_json::from_str(out(&called)).unwrap();
    assert_eq!(seen, json!({"n": 7, "t": "yes", "o": {"a": [1]}}));
    stage.ends().await;
}

#[tokio::test]
async fn an_error_of_the_tool_is_an_error_of_the_call() {
    let stage = Stage::new().await;
    stage.puppet.tool("fails", |_| async move {
        let text = "\u{1b}[2Jno way";
        Ending::Result(json!({"content": [{"type": "text", "text": text}], "isError": true}))
    });
    let called = call(&stage, &["fails"]).await;
    assert_eq!(code(&called), 1);
    assert!(out(&called).contains("no way"));
    assert!(
        !out(&called).contains('\u{1b}'),
        "the server cannot clear the screen"
    );
    stage.ends().await;
}

#[tokio::test]
async fn a_person_hears_what_the_server_logs() {
    let stage = Stage::new().await;
    stage.puppet.tool("talks", |call| async move {
        call.log("debug", "of no interest").await;
        call.log("warning", "mind the \u{1b}[2Jgap").await;
        Ending::text("done")
    });
    let called = call(&stage, &["talks"]).await;
    assert_eq!(code(&called), 0, "{}", err(&called));
    assert!(
        err(&called).contains("[warning] mind the"),
        "{}",
        err(&called)
    );
    assert!(!err(&called).contains("of no interest"));
    assert!(!err(&called).contains('\u{1b}'));
    let quiet = call(&stage, &["talks", "--quiet"]).await;
    assert_eq!((code(&quiet), err(&quiet)), (0, ""));
    stage.ends().await;
}

#[tokio::test]
async fn an_error_that_quotes_the_server_is_plain_text() {
    let stage = Stage::new().await;
    stage.puppet.tool("swears", |_| async move {
        Ending::Error(json!({"code": -32000, "message": "\u{1b}]0;owned\u{7}no"}))
    });
    let called = call(&stage, &["swears"]).await;
    assert_eq!(code(&called), 1);
    assert!(err(&called).contains("owned"), "{}", err(&called));
    assert!(!err(&called).contains(['\u{1b}', '\u{7}']));
    stage.ends().await;
}

#[tokio::test]
async fn a_capability_that_is_lacking_is_named() {
    let stage = Stage::new().await;
    stage.puppet.tool("rooted", |call| async move {
        let answer = call.ask("roots/list", json!({})).await;
        Ending::text(answer.result().to_string())
    });
    let called = call(&stage, &["rooted"]).await;
    assert_eq!(code(&called), 1);
    assert!(err(&called).contains("--root"), "{}", err(&called));
    let called = call(&stage, &["rooted", "--root", "file:///a"]).await;
    assert!(out(&called).contains("file:///a"), "{}", err(&called));
    assert_eq!(code(&call(&stage, &["rooted", "--root", "a"]).await), 2);
    stage.ends().await;
}

#[tokio::test]
async fn lists_that_fail_do_not_stop_a_call() {
    let stage = Stage::new().await;
    stage.puppet.on("tools/list", "", |_| async {
        Ending::Error(json!({"code": -32601, "message": "no"}))
    });
    let called = call(&stage, &["echo", "n=7"]).await;
    assert_eq!((code(&called), out(&called)), (0, "{\"n\":7}\n"));
    stage.ends().await;
}
