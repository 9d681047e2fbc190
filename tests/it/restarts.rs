//! A program that does not last: how soon it is started again, and that nobody is left waiting.

use serde_json::json;
use tempfile::NamedTempFile;

use crate::program::{kill, numbers, processes, refusal, stage};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::gateway::Gateway;

/// The pauses that were announced.
fn pauses(gateway: &Gateway) -> Vec<String> {
    let log = gateway.log();
    let after = log.split("the next one waits").skip(1);
    let pause = |rest: &str| {
        let line = rest.lines().next().unwrap_or_default();
        let pause = line.split("pause=").nth(1).unwrap_or_default();
        pause.split(' ').next().unwrap_or_default().to_owned()
    };
    after.map(pause).collect()
}

/// Milliseconds between one start and the next, by the program's own clock.
fn gaps(gateway: &Gateway) -> Vec<u32> {
    let starts = numbers(gateway, "started");
    starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Waits until so many processes have said that they are started, and ended.
async fn failed(gateway: &Gateway, starts: usize, failures: usize) {
    eventually("the processes to fail", || async {
        numbers(gateway, "started").len() == starts && pauses(gateway).len() == failures
    })
    .await;
}

async fn fails(client: &Client) {
    let message = refusal(&client.call("echo").await, -32603);
    assert!(
        message.contains("the server's process has ended"),
        "{message}"
    );
}

#[tokio::test]
async fn pauses_grow_while_a_program_does_not_last_and_begin_anew_after_a_good_session() {
    let broken = NamedTempFile::new().unwrap();
    let manner = format!("fails-while={}", broken.path().display());
    let (gateway, client) = stage(&[&manner], |config| config).await;
    for _ in 0..5 {
        fails(&client).await;
    }
    // Each call has started it once.
    failed(&gateway, 5, 5).await;
    assert_eq!(
        pauses(&gateway),
        ["100ms", "200ms", "400ms", "800ms", "1.6s"]
    );
    for (gap, pause) in gaps(&gateway).into_iter().zip([100, 200, 400, 800]) {
        assert!(gap >= pause, "{gap} ms, not {pause}");
    }
    let path = broken.path().to_owned();
    broken.close().unwrap();
    client.call("echo").await.result();
    assert!(gaps(&gateway)[4] >= 1600, "{:?}", gaps(&gateway));
    gateway.settled().await;
    // It was not wanted any more: that is no failure.
    assert_eq!(pauses(&gateway).len(), 5);
    std::fs::write(&path, "").unwrap();
    for _ in 0..2 {
        fails(&client).await;
    }
    failed(&gateway, 8, 7).await;
    std::fs::remove_file(&path).unwrap();
    assert_eq!(pauses(&gateway)[5..], ["100ms", "200ms"]);
    let gap = gaps(&gateway)[6];
    assert!(
        (100..3200).contains(&gap),
        "{gap} ms: the pauses went on growing"
    );
    client.call("echo").await.result();
    gateway.settled().await;
}

/// How long it takes to end is no merit, and nobody starts the next one in the meantime.
#[tokio::test]
async fn the_pause_counts_from_the_moment_at_which_a_process_was_of_no_use_any_more() {
    let (gateway, client) = stage(&["mute", "stubborn"], |config| {
        config.timer("stop_grace", "600ms")
    })
    .await;
    for _ in 0..4 {
        fails(&client).await;
    }
    failed(&gateway, 4, 4).await;
    assert_eq!(pauses(&gateway), ["100ms", "200ms", "400ms", "800ms"]);
    for (gap, pause) in gaps(&gateway).into_iter().zip([100, 200, 400]) {
        assert!(gap >= pause, "{gap} ms, not {pause}");
    }
    gateway.settled().await;
}

/// However it ends: it was good for nothing.
#[tokio::test]
async fn a_process_with_which_no_session_could_be_opened_has_failed() {
    let (gateway, client) = stage(&["antique"], |config| config).await;
    for _ in 0..3 {
        let message = refusal(&client.call("echo").await, -32603);
        assert!(message.contains("wants protocol revision"), "{message}");
    }
    failed(&gateway, 3, 3).await;
    assert_eq!(pauses(&gateway), ["100ms", "200ms", "400ms"]);
    gateway.settled().await;
}

/// What falls at once has failed once, however many processes it was.
#[tokio::test]
async fn processes_that_are_killed_together_make_one_pause() {
    let (gateway, client) = stage(&[], |config| config).await;
    let request = client.tool("ask", json!({}));
    for _ in 0..4 {
        request.send().await.asked();
    }
    kill(&processes(&gateway, 4).await);
    gateway.metric_is("holdfast_calls", 0).await;
    client.call("echo").await.result();
    assert_eq!(pauses(&gateway), ["100ms"]);
    gateway.settled().await;
}
