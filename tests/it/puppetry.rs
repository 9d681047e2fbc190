//! Tests of the tests: the puppet, driven by hand, does what scripts say and complains where it should.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::http1::{Framing, Head, Reader};
use crate::support::puppet::{Ending, EventIds, GeneralStream, Manner, Out, Puppet};
use crate::support::{accept, form, text_of, within};

/// A legacy client by hand: one connection for each message.
struct Legacy<'a> {
    puppet: &'a Puppet,
    headers: Vec<(&'static str, String)>,
}

struct Open {
    reader: Reader<TcpStream>,
    head: Head,
    framing: Framing,
    read: String,
}

impl<'a> Legacy<'a> {
    async fn open(puppet: &'a Puppet) -> Self {
        let headers = vec![
            ("accept", "application/json, text/event-stream".to_owned()),
            ("content-type", "application/json".to_owned()),
        ];
        let mut client = Self { puppet, headers };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}});
        let initialize =
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let opened = client.post(&initialize).await;
        let session = opened.head.value("mcp-session-id").unwrap().to_owned();
        client.headers.push(("mcp-session-id", session));
        client
            .headers
            .push(("mcp-protocol-version", "2025-11-25".to_owned()));
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(client.post(&initialized).await.head.word(1), "202");
        client
    }

    async fn send(&self, verb: &str, body: &str) -> Open {
        let mut stream = TcpStream::connect(self.puppet.addr()).await.unwrap();
        let mut request = format!(
            "{verb} /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in &self.headers {
            request += &format!("{name}: {value}\r\n");
        }
        stream
            .write_all(format!("{request}\r\n{body}").as_bytes())
            .await
            .unwrap();
        let mut reader = Reader::new(stream);
        let head = within("a head", reader.head()).await.unwrap().unwrap();
        let framing = head.response_framing();
        Open {
            reader,
            head,
            framing,
            read: String::new(),
        }
    }

    async fn post(&self, message: &Value) -> Open {
        self.send("POST", &message.to_string()).await
    }

    async fn call(&self, tool: &str, id: u64) -> Open {
        let params = json!({"name": tool, "arguments": {}});
        self.post(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
            .await
    }
}

impl Open {
    /// The next message of an event stream, or the body.
    async fn message(&mut self) -> Value {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let data: String = event
                    .lines()
                    .filter_map(|line| line.strip_prefix("data: "))
                    .collect();
                self.read = rest.to_owned();
                if !data.is_empty() {
                    return serde_json::from_str(&data).unwrap();
                }
                continue;
            }
            match within("more", self.reader.part(&mut self.framing))
                .await
                .unwrap()
            {
                Some(part) => self.read += &String::from_utf8(part).unwrap(),
                None => return serde_json::from_str(&self.read).unwrap_or(Value::Null),
            }
        }
    }
}

fn asking(puppet: &Puppet) {
    puppet.tool("ask", |call| async move {
        let answer = call.elicit(form("name", json!({"type": "string"}))).await;
        Ending::text(answer.said("name"))
    });
}

#[tokio::test]
async fn a_script_asks_and_ends() {
    let puppet = Puppet::start(Manner {
        event_ids: EventIds::With,
        ..Manner::default()
    })
    .await;
    asking(&puppet);
    let client = Legacy::open(&puppet).await;
    let mut call = client.call("ask", 2).await;
    let question = call.message().await;
    assert_eq!(
        (&question["id"], &question["method"]),
        (&json!(0), &json!("elicitation/create"))
    );
    let answer = json!({"jsonrpc": "2.0", "id": 0, "result": accept(json!({"name": "Ada"}))});
    assert_eq!(client.post(&answer).await.head.word(1), "202");
    assert_eq!(text_of(&call.message().await["result"]), "\"Ada\"");
    assert_eq!(puppet.starts("ask"), 1);
    assert_eq!(client.send("DELETE", "").await.head.word(1), "200");
    puppet.settled().await;
}

#[tokio::test]
async fn a_question_travels_on_the_general_stream() {
    let puppet = Puppet::start(Manner::default()).await;
    puppet.tool("ask", |call| async move {
        let answer = call.ask_generally("roots/list", json!({})).await;
        Ending::Result(answer.result().clone())
    });
    let client = Legacy::open(&puppet).await;
    let mut stream = client.send("GET", "").await;
    let mut call = Box::pin(client.call("ask", 2));
    let question = tokio::select! {
        question = stream.message() => question,
        _ = &mut call => panic!("the call ended without an answer"),
    };
    assert_eq!(question["method"], "roots/list");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}});
    client.post(&answer).await;
    assert_eq!(call.await.message().await["result"]["roots"], json!([]));
    client.send("DELETE", "").await;
    puppet.settled().await;
}

#[tokio::test]
async fn a_cancelled_script_ends() {
    let puppet = Puppet::start(Manner::default()).await;
    asking(&puppet);
    let client = Legacy::open(&puppet).await;
    let mut call = client.call("ask", 2).await;
    call.message().await;
    let params = json!({"requestId": 2});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    client.post(&cancel).await;
    puppet
        .until("the script to end", |ledger| ledger.running == 0)
        .await;
    drop(call);
    client.send("DELETE", "").await;
    puppet.settled().await;
}

#[tokio::test]
async fn bytes_go_out_as_they_are() {
    let puppet = Puppet::start(Manner::default()).await;
    puppet.tool("raw", |call| async move {
        call.put(Out::Raw(b"data: {\"half\"".to_vec())).await;
        Ending::Cut
    });
    let client = Legacy::open(&puppet).await;
    let mut call = client.call("raw", 2).await;
    let part = call.reader.part(&mut call.framing).await.unwrap();
    assert_eq!(part.unwrap(), b"data: {\"half\"");
    assert!(
        call.reader.part(&mut call.framing).await.is_err(),
        "the connection breaks"
    );
    client.send("DELETE", "").await;
    puppet.settled().await;
}

#[tokio::test]
async fn faults_are_written_down() {
    let puppet = Puppet::start(Manner {
        general_stream: GeneralStream::Refused,
        ..Manner::default()
    })
    .await;
    asking(&puppet);
    let mut client = Legacy::open(&puppet).await;
    assert_eq!(client.send("GET", "").await.head.word(1), "405");
    puppet.is_content();
    let mut expected = 0;
    for (fault, message) in [
        (
            "an answer nobody waits for",
            json!({"jsonrpc": "2.0", "id": 7, "result": {}}),
        ),
        (
            "an unknown method",
            json!({"jsonrpc": "2.0", "id": 2, "method": "server/discover"}),
        ),
        (
            "an id used twice",
            json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}),
        ),
        (
            "a batch",
            json!([{"jsonrpc": "2.0", "id": 3, "method": "ping"}]),
        ),
        (
            "a member of the modern era",
            json!({"jsonrpc": "2.0", "id": 4, "method": "ping", "params": {"requestState": "x"}}),
        ),
        (
            "a cancellation of nothing",
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}),
        ),
    ] {
        client.post(&message).await;
        expected += 1;
        assert_eq!(puppet.ledger().violations.len(), expected, "{fault}");
    }
    client
        .headers
        .push(("authorization", "Bearer somebody-else".to_owned()));
    client
        .post(&json!({"jsonrpc": "2.0", "id": 5, "method": "ping"}))
        .await;
    assert_eq!(
        puppet.ledger().violations.len(),
        expected + 1,
        "foreign credentials"
    );
    puppet.forget_sessions();
    let forgotten = client
        .post(&json!({"jsonrpc": "2.0", "id": 6, "method": "ping"}))
        .await;
    assert_eq!(forgotten.head.word(1), "404");
}
