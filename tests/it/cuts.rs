//! Connections cut at every byte: of a client's request, of the reply it reads, of the server's answer.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::client::{OpenLeg, Request};
use crate::support::gateway::Gateway;
use crate::support::puppet::{Ending, Out};
use crate::support::stage::{Stage, name_schema};
use crate::support::{accept, form, text_of, within};

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

/// Sends the first `length` bytes, closes, and waits until the gateway has closed too.
async fn cut_request(gateway: &Gateway, bytes: &[u8], length: usize) {
    let mut leg = OpenLeg::open(gateway.addr(), &bytes[..length], Value::Null).await;
    leg.shut().await;
    // A refusal is as good as silence, and success would be a call nobody made.
    let status = leg.status().await;
    assert_ne!(
        status,
        Some(200),
        "{length} of {} bytes were served",
        bytes.len()
    );
}

#[tokio::test]
async fn a_first_request_cut_at_every_byte_starts_nothing() {
    let stage = Stage::new().await;
    let request = stage.client.tool("name", json!({}));
    let bytes = request.bytes();
    for length in 0..bytes.len() {
        cut_request(&stage.gateway, &bytes, length).await;
    }
    assert_eq!(stage.puppet.ledger().records.len(), 0);
    stage.gateway.metric_is("holdfast_connections", 0).await;
    stage.ends().await;
}

#[tokio::test]
async fn a_reissue_cut_at_every_byte_answers_nothing() {
    let stage = Stage::new().await;
    let request = stage.client.tool("name", json!({}));
    let asked = request.send().await.asked();
    let reissue = request.answer(&asked, ada());
    let bytes = reissue.bytes();
    for length in 0..bytes.len() {
        cut_request(&stage.gateway, &bytes, length).await;
        assert_eq!(stage.answers(), 0, "{length} bytes");
    }
    assert_eq!(text_of(reissue.send().await.result()), "name: \"Ada\"");
    assert_eq!((stage.puppet.starts("name"), stage.answers()), (1, 1));
    stage.ends().await;
}

/// Sends a request whole, reads `length` bytes of its reply and closes. Whether there were as many.
async fn cut_reply(gateway: &Gateway, request: &Request, length: usize) -> bool {
    let mut stream = TcpStream::connect(gateway.addr()).await.unwrap();
    stream.write_all(&request.bytes()).await.unwrap();
    let mut read = vec![0; length];
    let reading = tokio::io::AsyncReadExt::read_exact(&mut stream, &mut read);
    within("the reply", reading).await.is_ok()
}

/// The reply of a re-issue is lost at every byte: its repeat gets the same.
#[tokio::test]
async fn a_reply_cut_at_every_byte_is_had_again() {
    let stage = Stage::new().await;
    let mut length = 0;
    loop {
        let request = stage.client.tool("name", json!({}));
        let asked = request.send().await.asked();
        let keeps_alive = request.answer(&asked, ada());
        let closes = keeps_alive.header("connection", "close");
        let was_longer = cut_reply(&stage.gateway, &closes, length).await;
        let reply = request.answer(&asked, ada()).send().await;
        assert_eq!(text_of(reply.result()), "name: \"Ada\"", "{length} bytes");
        length += 1;
        assert_eq!(
            (stage.puppet.starts("name"), stage.answers()),
            (length, length)
        );
        if !was_longer {
            break;
        }
    }
    assert!(length > 200, "the whole reply had {length} bytes");
    assert_eq!(stage.puppet.ledger().cancellations.len(), 0);
    stage.ends().await;
}

/// A server's response with a question and a result, cut at every byte: the client hears of the loss, or is
/// asked, and a question on a broken connection does not stay. (With ids: see `resumed`.)
#[tokio::test]
async fn a_server_cut_at_every_byte() {
    let stage = Stage::new().await;
    let question = json!({"jsonrpc": "2.0", "id": 0, "method": "elicitation/create", "params": form("name", name_schema())});
    let event = format!("event: message\ndata: {question}\n\n");
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let whole = format!("{head}{:x}\r\n{event}\r\n", event.len()).into_bytes();
    let complete = whole.len() - 2;
    for length in 0..whole.len() {
        let part = whole[..length].to_vec();
        stage.puppet.tool("cut", move |call| {
            let part = part.clone();
            async move {
                call.session.asks(&json!(0));
                if !part.is_empty() {
                    call.put(Out::Bare(part)).await;
                }
                Ending::Cut
            }
        });
        // Each on a session of its own, where its question is the first.
        let client = stage.client.clone().named(&length.to_string());
        let request = client.tool("cut", json!({}));
        let reply = request.send().await;
        if length >= complete && reply.message.get("result").is_some() {
            // It was asked before the loss was noticed: the answer cannot arrive any more.
            let asked = reply.asked();
            request.answer(&asked, ada()).send().await.lost(true);
        } else {
            reply.lost(true);
        }
        assert_eq!(stage.puppet.starts("cut"), length + 1);
    }
    // It may have been told that nobody will answer; it was not told an answer.
    for given in &stage.puppet.ledger().answers {
        assert_ne!(
            given.response["result"]["action"], "accept",
            "{}",
            given.response
        );
    }
    stage.ends().await;
}

/// The same with a response in JSON.
#[tokio::test]
async fn a_json_response_cut_at_every_byte() {
    let stage = Stage::new().await;
    let body = |id: &Value| {
        let result = json!({"content": [{"type": "text", "text": "done"}]});
        let message = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{message}",
            message.len(),
        )
    };
    let mut length = 0;
    loop {
        stage.puppet.tool("cut", move |call| {
            let whole = body(&call.request["id"]).into_bytes();
            async move {
                let part = whole[..length.min(whole.len())].to_vec();
                if !part.is_empty() {
                    call.put(Out::Bare(part)).await;
                }
                Ending::Cut
            }
        });
        let reply = stage.client.call("cut").await;
        if reply.message.get("result").is_some() {
            assert_eq!(text_of(reply.result()), "done");
            break;
        }
        reply.lost(true);
        length += 1;
        assert_eq!(stage.puppet.starts("cut"), length);
    }
    assert!(length > 100, "the whole response had {length} bytes");
    stage.ends().await;
}
