//! What every test stands on: the gateway as a child process, a legacy server that does as it is told, a
//! modern client that can be told to misbehave.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

pub(crate) mod chameleon;
pub(crate) mod channel;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod cutter;
pub(crate) mod gateway;
pub(crate) mod http1;
pub(crate) mod piped;
pub(crate) mod puppet;
pub(crate) mod redis;
pub(crate) mod replica;
pub(crate) mod stage;
pub(crate) mod tls;

use gateway::Gateway;
use puppet::Puppet;

/// Bounds every wait of a test: far beyond what anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often something is looked at that cannot announce itself.
const GLANCE: Duration = Duration::from_millis(5);

/// Waits for `future`, or fails saying what did not happen.
pub(crate) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Looks again and again until `condition` holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(GLANCE).await;
    }
}

/// The end of every test: both sides have let go of everything, and nothing was done that must not be.
pub(crate) async fn nothing_is_left(gateway: &Gateway, puppet: &Puppet) {
    gateway.settled().await;
    puppet.settled().await;
}

/// Params of `elicitation/create` for one required property.
pub(crate) fn form(property: &str, schema: Value) -> Value {
    json!({
        "message": format!("Please give {property}."),
        "requestedSchema": {
            "type": "object",
            "properties": { property: schema },
            "required": [property],
        },
    })
}

/// An accepted form.
pub(crate) fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

/// A tool's result with one text.
pub(crate) fn text(text: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": text.into()}]})
}

/// The text of a tool's result.
pub(crate) fn text_of(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {result}"))
}

/// Sends a signal to a process that is running.
pub(crate) fn signal(process: &Child, signal: Signal) {
    let pid = i32::try_from(process.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}
