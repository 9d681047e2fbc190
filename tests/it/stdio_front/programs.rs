//! `holdfast stdio -- COMMAND`: a client that starts the gateway, which starts the server.

use serde_json::{Value, json};

use super::cancellation;
use crate::program::{all_are_gone, is_alive, numbers_in};
use crate::subscriptions::{ID, TOOLS, listen};
use crate::support::client::{Client, Request};
use crate::support::gateway::program;
use crate::support::piped::Piped;
use crate::support::{accept, eventually, text_of};

/// The gateway in front of a program, and what makes its client's messages.
struct Desk {
    gateway: Piped,
    client: Client,
}

impl Desk {
    async fn new(manners: &[&str]) -> Self {
        Self {
            gateway: Piped::in_front_of(&program(manners)).await,
            client: Client::at(([127, 0, 0, 1], 9).into()),
        }
    }

    async fn sent(&mut self, name: &str) -> Request {
        let request = self.client.tool(name, json!({}));
        self.gateway.send(&request).await;
        request
    }

    async fn says(&mut self, name: &str) -> String {
        let request = self.sent(name).await;
        text_of(&self.gateway.result(&request).await).to_owned()
    }

    /// The processes that the program has said it is.
    fn pids(&self) -> Vec<u32> {
        numbers_in(&self.gateway.log(), "pid")
    }

    async fn logs(&self, words: &str) {
        eventually(words, || async { self.gateway.log().contains(words) }).await;
    }
}

#[tokio::test]
async fn a_program_is_served_to_the_client_that_started_the_gateway() {
    let mut desk = Desk::new(&["banner"]).await;
    let discover = desk.client.request("server/discover", json!({}));
    desk.gateway.send(&discover).await;
    let result = desk.gateway.result(&discover).await;
    let named = &result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
    assert_eq!(named, "program");
    let list = desk.client.request("tools/list", json!({}));
    desk.gateway.send(&list).await;
    let result = desk.gateway.result(&list).await;
    assert_eq!(result["tools"][0]["name"], "echo");
    assert_eq!(desk.says("echo").await, "{}");
    // Held, while another call is answered.
    let held = desk.sent("ask").await;
    let asked = desk.gateway.asked(&held).await;
    assert_eq!(desk.says("echo").await, "{}");
    let again = held.answer(&asked, accept(json!({"name": "Ada"})));
    desk.gateway.send(&again).await;
    let result = desk.gateway.result(&again).await;
    assert_eq!(text_of(&result), r#"{"name": "Ada"}"#);
    let pids = desk.pids();
    desk.gateway.leaves().await;
    // The gateway waits for its processes before it ends.
    assert!(!pids.is_empty() && !pids.iter().any(|pid| is_alive(*pid)));
}

/// The server never answers a call that was cancelled: what it may still say reaches no other call.
#[tokio::test]
async fn a_cancelled_call_takes_its_process_with_it() {
    let mut desk = Desk::new(&[]).await;
    let before = desk.says("pid").await;
    let slow = desk.sent("slow").await;
    desk.logs("text=slowly").await;
    desk.gateway.say(&cancellation(&slow)).await;
    desk.logs("text=cancelled").await;
    // The same id may be used again.
    let again = desk.client.tool("pid", json!({}));
    let again = again.id(slow.message()["id"].clone());
    desk.gateway.send(&again).await;
    let after = text_of(&desk.gateway.result(&again).await).to_owned();
    assert_ne!(after, before);
    all_are_gone(vec![before.parse().unwrap()]).await;
    desk.gateway.leaves().await;
}

/// A change that a call makes in its own process reaches the listener, which another process is kept for.
#[tokio::test]
async fn a_listener_hears_of_changes() {
    let mut desk = Desk::new(&[]).await;
    let listener = listen(&desk.client, json!({"toolsListChanged": true}));
    let id = listener.message()["id"].clone();
    desk.gateway.send(&listener).await;
    let first = desk.gateway.next().await;
    assert_eq!(first["params"]["notifications"]["toolsListChanged"], true);
    let held = desk.sent("ask").await;
    desk.gateway.asked(&held).await;
    let change = desk.sent("change").await;
    // Which of the two is written first is nobody's concern.
    let mut heard = [desk.gateway.next().await, desk.gateway.next().await];
    heard.sort_by_key(|message| message["method"].is_string());
    assert_eq!(heard[0]["id"], change.message()["id"]);
    assert_eq!(text_of(&heard[0]["result"]), "changed");
    assert_eq!(heard[1]["method"], TOOLS);
    assert_eq!(heard[1]["params"]["_meta"][ID], id);
    desk.gateway.say(&cancellation(&listener)).await;
    desk.gateway.say(&cancellation(&held)).await;
    assert_eq!(desk.says("echo").await, "{}");
    desk.gateway.leaves().await;
}

/// The client leaves while a call runs and another is held, before a program that does not want to end.
#[tokio::test]
async fn the_end_of_the_input_ends_the_program_and_its_group() {
    let mut desk = Desk::new(&["stubborn", "offspring"]).await;
    let held = desk.sent("ask").await;
    desk.gateway.asked(&held).await;
    let running = desk.sent("slow").await;
    desk.logs("text=slowly").await;
    let all = || {
        let of = |word| numbers_in(&desk.gateway.log(), word);
        [of("pid"), of("offspring")].concat()
    };
    // Two processes, and a child of each.
    eventually("the processes", || async { all().len() == 4 }).await;
    let all = all();
    assert!(all.iter().all(|pid| is_alive(*pid)));
    desk.gateway.shut();
    let ended = desk.gateway.ended().await;
    assert_eq!(ended.code, 0, "{}", ended.log);
    let last: Vec<&Value> = ended.rest.iter().map(|message| &message["id"]).collect();
    assert_eq!(last, [&running.message()["id"]], "{:?}", ended.rest);
    assert!(!all.iter().any(|pid| is_alive(*pid)), "none outlives it");
}
