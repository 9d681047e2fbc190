//! A server that is a program: its processes, their lines, their end.

use serde_json::{Value, json};

use crate::support::client::{Client, Reply, Request};
use crate::support::gateway::{Config, Gateway};
use crate::support::{accept, eventually, text_of};

/// A gateway in front of `program.py` with these manners, and a client in front of that.
pub(crate) async fn stage(
    manners: &[&str],
    change: impl FnOnce(Config) -> Config,
) -> (Gateway, Client) {
    let gateway = change(Config::program(manners)).start().await;
    let client = Client::of(&gateway);
    (gateway, client)
}

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

async fn says(request: Request) -> String {
    text_of(request.send().await.result()).to_owned()
}

/// The error that a leg ends with.
pub(crate) fn refusal(reply: &Reply, code: i64) -> String {
    reply.error(200, code)["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The numbers that the program wrote after `word` to its standard error.
pub(crate) fn numbers(gateway: &Gateway, word: &str) -> Vec<u32> {
    numbers_in(&gateway.log(), word)
}

/// The same in what was logged.
pub(crate) fn numbers_in(log: &str, word: &str) -> Vec<u32> {
    let before = format!("text={word} ");
    let after = log.split(&before).skip(1);
    after
        .map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        })
        .collect()
}

/// Waits until the log says something: it comes through a pipe.
async fn logs(gateway: &Gateway, words: &str) {
    eventually(words, || async { gateway.log().contains(words) }).await;
}

/// Waits for so many processes to have said who they are.
pub(crate) async fn processes(gateway: &Gateway, count: usize) -> Vec<u32> {
    eventually("the processes", || async {
        numbers(gateway, "pid").len() == count
    })
    .await;
    numbers(gateway, "pid")
}

pub(crate) fn is_alive(pid: u32) -> bool {
    // A zombie is no process any more, only what is left for its parent to see.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}

/// Kills processes without a warning.
pub(crate) fn kill(pids: &[u32]) {
    for pid in pids {
        let pid = rustix::process::Pid::from_raw((*pid).try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}

/// Lets a process do nothing from now on.
pub(crate) fn pause(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
}

pub(crate) async fn all_are_gone(pids: Vec<u32>) {
    assert!(!pids.is_empty());
    eventually("the processes to be gone", || async {
        !pids.iter().any(|pid| is_alive(*pid))
    })
    .await;
}

#[tokio::test]
async fn a_call_is_answered_by_a_process_that_serves_again() {
    let (gateway, client) = stage(&["banner"], |config| config).await;
    let discovered = client.request("server/discover", json!({})).send().await;
    assert_eq!(
        discovered.result()["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "program"
    );
    assert_eq!(
        says(client.tool("echo", json!({"a": "ä\n"}))).await,
        r#"{"a": "\u00e4\n"}"#
    );
    let first = says(client.tool("pid", json!({}))).await;
    assert_eq!(says(client.tool("pid", json!({}))).await, first);
    gateway.settled().await;
    all_are_gone(numbers(&gateway, "pid")).await;
    // It was asked nicely.
    logs(&gateway, "text=input closed").await;
    assert_eq!(gateway.terminate().await, 0);
}

#[tokio::test]
async fn questions_progress_and_logs_come_in_their_order() {
    let (gateway, client) = stage(&[], |config| config).await;
    let request = client
        .tool("ask_log", json!({}))
        .meta("progressToken", json!("p"))
        .meta("io.modelcontextprotocol/logLevel", json!("info"));
    let reply = request.send().await;
    let methods: Vec<&str> = reply
        .notes
        .iter()
        .map(|note| note["method"].as_str().unwrap())
        .collect();
    let (progress, message) = ("notifications/progress", "notifications/message");
    assert_eq!(methods, [progress, message, progress, message]);
    let asked = reply.asked();
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(reply.notes.len(), 1, "what came before the result is heard");
    assert_eq!(text_of(reply.result()), r#"{"name": "Ada"}"#);
    gateway.settled().await;
}

#[tokio::test]
async fn each_call_that_may_be_asked_has_a_process_to_itself_and_others_share() {
    let (gateway, client) = stage(&[], |config| config).await;
    let (one, two) = (client.tool("ask", json!({})), client.tool("ask", json!({})));
    let (asked_one, asked_two) = (one.send().await.asked(), two.send().await.asked());
    processes(&gateway, 2).await;
    let bob = accept(json!({"name": "Bob"}));
    let reply = two.answer(&asked_two, bob).send().await;
    assert_eq!(text_of(reply.result()), r#"{"name": "Bob"}"#);
    let reply = one.answer(&asked_one, ada()).send().await;
    assert_eq!(text_of(reply.result()), r#"{"name": "Ada"}"#);
    // Who can be asked nothing shares.
    let plain = client.able(json!({}));
    let (first, second) = (plain.tool("pid", json!({})), plain.tool("pid", json!({})));
    let (first, second) = tokio::join!(says(first), says(second));
    assert_eq!(first, second);
    gateway.settled().await;
    all_are_gone(numbers(&gateway, "pid")).await;
}

/// A caller that wants log messages has its process for itself, for nothing else says whose they are.
#[tokio::test]
async fn log_messages_reach_a_caller_that_can_be_asked_nothing() {
    let (gateway, client) = stage(&[], |config| config).await;
    let plain = client.able(json!({}));
    let listening = plain
        .tool("log", json!({}))
        .meta("io.modelcontextprotocol/logLevel", json!("info"));
    let (one, two) = tokio::join!(listening.send(), listening.send());
    for reply in [one, two] {
        assert_eq!(reply.noted("notifications/message").len(), 1);
        assert_eq!(text_of(reply.result()), "logged");
    }
    gateway.settled().await;
}

/// Some servers ask whatever was declared.
#[tokio::test]
async fn a_caller_that_can_be_asked_nothing_is_told_what_it_would_need() {
    let (gateway, client) = stage(&[], |config| config).await;
    let reply = client.able(json!({})).call("ask").await;
    let error = reply.error(400, -32021);
    let needed = &error["data"]["requiredCapabilities"];
    assert_eq!(*needed, json!({"elicitation": {"form": {}}}));
    gateway.settled().await;
}

#[tokio::test]
async fn at_the_bound_of_processes_a_caller_waits_and_is_told() {
    let (gateway, client) = stage(&[], |config| {
        config
            .limit("processes_max", 1)
            .timer("session_wait", "300ms")
    })
    .await;
    let request = client.tool("ask", json!({}));
    let asked = request.send().await.asked();
    let message = refusal(&client.call("echo").await, -32603);
    assert!(
        message.contains("all sessions with the server are in use"),
        "{message}"
    );
    // Who waits gets the process as soon as it is free.
    let other = client.tool("echo", json!({}));
    let waiting = other.send();
    let answering = request.answer(&asked, ada());
    let (answered, waited) = tokio::join!(answering.send(), waiting);
    answered.result();
    waited.result();
    gateway.settled().await;
}

#[tokio::test]
async fn nothing_of_the_environment_leaks_in_but_what_is_named() {
    let (gateway, client) = stage(&[], |config| {
        config
            .backend("env", r#"{ NAMED = "a value" }"#)
            .backend("pass_env", r#"["CARGO_MANIFEST_DIR"]"#)
            .backend("cwd", "\"/\"")
    })
    .await;
    let env = says(client.tool("env", json!({}))).await;
    let env: Value = serde_json::from_str(&env).unwrap();
    assert_eq!(env["NAMED"], "a value");
    assert_eq!(env["CARGO_MANIFEST_DIR"], env!("CARGO_MANIFEST_DIR"));
    assert!(env["PATH"].is_string());
    assert!(
        env["RUST_LOG"].is_null() && env["CARGO_PKG_NAME"].is_null(),
        "{env}"
    );
    assert!(!gateway.log().contains("a value"), "values are not logged");
}

#[tokio::test]
async fn a_process_that_dies_ends_its_call_and_the_next_one_gets_another() {
    let (gateway, client) = stage(&[], |config| config).await;
    let message = refusal(&client.call("die").await, -32603);
    assert!(
        message.contains("the server's process has ended"),
        "{message}"
    );
    logs(&gateway, "exit status: 7").await;
    logs(&gateway, "text=about to die").await;
    assert!(says(client.tool("echo", json!({}))).await.contains("{}"));
    gateway.settled().await;
}

#[tokio::test]
async fn killed_processes_end_their_held_and_running_calls() {
    let (gateway, client) = stage(&[], |config| config).await;
    // Without roots the call goes up as soon as its process has started.
    let client = client.able(json!({"elicitation": {}}));
    let request = client.tool("ask", json!({}));
    let asked = request.send().await.asked();
    let slow = client.tool("slow", json!({}));
    let running = async { refusal(&slow.send().await, -32603) };
    let killing = async {
        kill(&processes(&gateway, 2).await);
    };
    let (message, ()) = tokio::join!(running, killing);
    assert!(
        message.contains("the server's process has ended"),
        "{message}"
    );
    let message = refusal(&request.answer(&asked, ada()).send().await, -32603);
    assert!(
        message.contains("the server's process has ended"),
        "{message}"
    );
    assert!(says(client.tool("echo", json!({}))).await.contains("{}"));
    gateway.settled().await;
}

/// It is asked in a process of its own: the one that was taken for a legacy server may not bear another question.
#[tokio::test]
async fn a_modern_program_is_told_apart_in_a_process_of_its_own() {
    let (gateway, client) = stage(&["modern"], |config| config).await;
    let message = refusal(&client.call("echo").await, -32603);
    assert!(message.contains("speaks revision 2026-07-28"), "{message}");
    processes(&gateway, 2).await;
    assert_eq!(gateway.terminate().await, 0);
}

/// Children may have the streams of a process, which then do not end with it.
#[tokio::test]
async fn a_process_has_ended_even_if_somebody_else_has_its_output() {
    let (gateway, client) = stage(&["heir"], |config| config.timer("session_idle", "60s")).await;
    let request = client.tool("ask", json!({}));
    let asked = request.send().await.asked();
    kill(&processes(&gateway, 1).await);
    logs(&gateway, "signal: 9").await;
    let message = refusal(&request.answer(&asked, ada()).send().await, -32603);
    assert!(
        message.contains("the server's process has ended"),
        "{message}"
    );
    // What it said last is heard, and it serves nobody any more.
    assert_eq!(says(client.tool("bye", json!({}))).await.len(), 50_000);
    logs(&gateway, "exit status: 0").await;
    client.call("echo").await.result();
    processes(&gateway, 3).await;
    assert_eq!(gateway.terminate().await, 0);
}

#[tokio::test]
async fn a_process_that_reads_no_more_is_replaced() {
    let (gateway, client) = stage(&[], |config| config.timer("session_idle", "60s")).await;
    let client = client.able(json!({}));
    client.call("deafen").await.result();
    let message = refusal(&client.call("echo").await, -32603);
    assert_eq!(message, "the connection to the server broke");
    client.call("echo").await.result();
    processes(&gateway, 2).await;
    assert_eq!(gateway.terminate().await, 0);
}

/// Its place is free when nothing of it is left.
#[tokio::test]
async fn no_process_is_started_beside_one_that_is_about_to_end() {
    let (gateway, client) = stage(&["stubborn"], |config| {
        config
            .limit("processes_max", 1)
            .timer("session_idle", "60s")
            .timer("stop_grace", "1s")
    })
    .await;
    let client = client.able(json!({}));
    client.call("mute").await.result();
    logs(&gateway, "a session with the server is over").await;
    client.call("echo").await.result();
    let pids = processes(&gateway, 2).await;
    assert!(!is_alive(pids[0]), "there were two at once");
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_a_clear_error() {
    let gateway = Config::command(&["/nonexistent/program"]).start().await;
    let client = Client::of(&gateway);
    let message = refusal(&client.call("echo").await, -32603);
    assert!(
        message.contains("the server cannot be reached"),
        "{message}"
    );
    logs(
        &gateway,
        "`/nonexistent/program` cannot be started: No such file",
    )
    .await;
    gateway.settled().await;
    let gateway = Config::command(&["false"]).start().await;
    let client = Client::of(&gateway);
    for _ in 0..3 {
        let message = refusal(&client.call("echo").await, -32603);
        assert!(
            message.contains("the server's process has ended"),
            "{message}"
        );
    }
    gateway.settled().await;
}

#[tokio::test]
async fn a_process_that_does_not_want_to_end_is_made_to_with_all_it_started() {
    let (gateway, client) = stage(&["stubborn", "offspring"], |config| {
        config.timer("stop_grace", "100ms")
    })
    .await;
    client.call("echo").await.result();
    let mut all = processes(&gateway, 1).await;
    all.extend(numbers(&gateway, "offspring"));
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|pid| is_alive(*pid)));
    assert_eq!(gateway.terminate().await, 0);
    assert!(
        !all.iter().any(|pid| is_alive(*pid)),
        "they are gone at once"
    );
}

/// However long that is: whoever gives processes more time to end gets it.
#[tokio::test]
async fn at_the_end_each_process_has_the_time_that_it_is_given() {
    let (gateway, client) = stage(&["stubborn", "offspring"], |config| {
        config.timer("stop_grace", "2s")
    })
    .await;
    client.call("echo").await.result();
    let mut all = processes(&gateway, 1).await;
    all.extend(numbers(&gateway, "offspring"));
    gateway.signal_end();
    let log = gateway.log_to_the_end().await;
    assert!(!log.contains("could not be closed"), "{log}");
    assert!(!all.iter().any(|pid| is_alive(*pid)), "{all:?}");
}

#[tokio::test]
async fn what_is_no_message_is_skipped() {
    let (gateway, client) = stage(&[], |config| config).await;
    let text = says(client.tool("nonsense", json!({}))).await;
    assert_eq!(text, "in spite of it");
    let message = refusal(&client.call("wrong_id").await, -32001);
    assert_eq!(message, "no such tool");
    gateway.settled().await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_ends_its_call() {
    let (gateway, client) = stage(&[], |config| config).await;
    for how in ["nan", "latin1", "twice", "cut"] {
        let reply = client.tool("unreadable", json!({"how": how})).send().await;
        let message = refusal(&reply, -32603);
        assert_eq!(message, "the server's answer is not understood", "{how}");
        reply.lost(true);
    }
    assert_eq!(says(client.tool("marked", json!({}))).await, "marked");
    gateway.settled().await;
}

#[tokio::test]
async fn a_question_under_no_usable_id_is_refused() {
    let long = Value::from("x".repeat(300));
    for (id, refused) in [(json!(1.5), json!(1.5)), (long, json!(null))] {
        let (gateway, client) = stage(&[], |config| config).await;
        let text = says(client.tool("ask_as", json!({"id": id}))).await;
        assert_eq!(
            text,
            json!([[refused, -32600]]).to_string().replace(',', ", ")
        );
        gateway.settled().await;
    }
}

#[tokio::test]
async fn an_error_that_is_null_is_none() {
    let (gateway, client) = stage(&[], |config| config).await;
    assert_eq!(says(client.tool("null_error", json!({}))).await, "no error");
    gateway.settled().await;
}

#[tokio::test]
async fn a_batch_of_too_many_messages_is_one_that_is_not_understood() {
    let (gateway, client) = stage(&[], |config| config).await;
    let text = says(client.tool("crowd", json!({}))).await;
    assert_eq!(text, "after the crowd");
    assert_eq!(gateway.metric("holdfast_misheard_total").await, 1);
    logs(&gateway, "has more than 1024 messages").await;
    gateway.settled().await;
}

#[tokio::test]
async fn a_line_beyond_the_limit_ends_the_process_not_the_gateway() {
    let (gateway, client) = stage(&[], |config| config.limit("message_bytes_max", 100_000)).await;
    let text = says(client.tool("big", json!({"bytes": 90_000}))).await;
    assert_eq!(text.len(), 90_000);
    let big = client.tool("big", json!({"bytes": 1_000_000}));
    let message = refusal(&big.send().await, -32603);
    assert!(message.contains("larger than 100000 bytes"), "{message}");
    gateway.settled().await;
    all_are_gone(numbers(&gateway, "pid")).await;
}

/// A question after the answer concerns no call: nobody is asked it, and its server is told in time.
#[tokio::test]
async fn a_question_after_the_answer_is_asked_of_nobody_else() {
    let (gateway, client) = stage(&[], |config| {
        config
            .timer("stray_question_max", "100ms")
            .timer("session_idle", "10s")
    })
    .await;
    assert_eq!(says(client.tool("ask_late", json!({}))).await, "first");
    logs(&gateway, "no call is running that could be asked").await;
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_call() {
    let (gateway, client) = stage(&[], |config| config).await;
    let leg = client.tool("slow", json!({})).open().await;
    processes(&gateway, 1).await;
    eventually("the call to run", || async {
        gateway.metric("holdfast_calls").await == 1
    })
    .await;
    drop(leg);
    gateway.settled().await;
    all_are_gone(numbers(&gateway, "pid")).await;
}
