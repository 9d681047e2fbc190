//! Servers that die, stall, talk nonsense or say too much: each ends in a clear error and leaves nothing.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::puppet::{Answers, Ending, GeneralStream, Handshake, Manner, Out, Puppet};
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, eventually, form, text, text_of};

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let puppet = Puppet::start(Manner::default()).await;
    let config = Config::of(&puppet).timer("connect_timeout", "500ms");
    puppet.die();
    let gateway = config.start().await;
    let client = Client::of(&gateway);
    for request in [
        client.tool("echo", json!({})),
        client.request("tools/list", json!({})),
        client.request("server/discover", json!({})),
    ] {
        request.send().await.lost(false);
    }
    gateway.settled().await;
}

#[tokio::test]
async fn handshakes_that_fail() {
    let fails = [
        Handshake::Stalls,
        Handshake::Cut,
        Handshake::Status(404),
        Handshake::Status(500),
        Handshake::Status(200),
        Handshake::Refused,
        Handshake::Malformed,
    ];
    for handshake in fails {
        let manner = Manner {
            handshake,
            ..Manner::default()
        };
        let stage = Stage::set(manner, |config| config.timer("initialize_timeout", "300ms")).await;
        for request in [
            stage.client.tool("echo", json!({})),
            stage.client.request("tools/list", json!({})),
        ] {
            let reply = request.send().await;
            let error = &reply.message["error"];
            assert_eq!(error["data"]["mayHaveRun"], false, "{handshake:?}: {error}");
            reply.lost(false);
        }
        assert_eq!(stage.puppet.starts("echo"), 0);
        stage.ends().await;
    }
}

#[tokio::test]
async fn revisions_that_are_not_spoken() {
    for revision in ["2026-07-28", "1999-01-01", ""] {
        let stage = Stage::of(Manner {
            revision,
            ..Manner::default()
        })
        .await;
        stage.client.call("echo").await.lost(false);
        // The server had opened a session by then.
        stage.ends().await;
    }
}

#[tokio::test]
async fn a_server_that_dies_in_mid_call() {
    let stage = Stage::new().await;
    stage.puppet.tool("stalls", |_| async { Ending::Stall });
    let leg = stage.client.tool("stalls", json!({})).open().await;
    stage.started("stalls", 1).await;
    stage.puppet.die();
    leg.finish().await.lost(true);
    stage.gateway.settled().await;
    stage.client.call("echo").await.lost(false);
    stage.gateway.settled().await;
}

#[tokio::test]
async fn a_server_that_dies_while_a_call_is_held() {
    let stage = Stage::new().await;
    let request = stage.client.tool("name", json!({}));
    let asked = request.send().await.asked();
    stage.puppet.die();
    stage.gateway.metric_is("holdfast_calls", 0).await;
    for _ in 0..2 {
        request.answer(&asked, ada()).send().await.lost(true);
    }
    stage.gateway.settled().await;
}

/// Only the call's own connection breaks: nothing tells the server, nothing is sent twice.
#[tokio::test]
async fn a_call_that_may_have_started_is_never_sent_twice() {
    for ending in [Ending::Cut, Ending::Nothing] {
        let stage = Stage::new().await;
        let how = ending.clone();
        stage.puppet.tool("breaks", move |call| {
            let how = how.clone();
            async move {
                call.log("info", "started").await;
                how
            }
        });
        stage.client.call("breaks").await.lost(true);
        assert_eq!(stage.puppet.starts("breaks"), 1, "{ending:?}");
        stage.ends().await;
    }
    let stage = Stage::new().await;
    stage.puppet.tool("breaks", |_| async { Ending::Cut });
    // A warm connection that breaks before the head looks like one that was closed while idle.
    stage.client.call("echo").await.result();
    stage.client.call("breaks").await.lost(true);
    assert_eq!(stage.puppet.starts("breaks"), 1);
    stage.ends().await;
}

#[tokio::test]
async fn a_server_that_stalls() {
    let stage = Stage::with(|config| config.timer("upstream_silence_max", "300ms")).await;
    stage.puppet.tool("stalls", |_| async { Ending::Stall });
    stage.puppet.tool("stalls-later", |call| async move {
        call.log("info", "started").await;
        Ending::Stall
    });
    stage.client.call("stalls").await.lost(true);
    stage.client.call("stalls-later").await.lost(true);
    stage.cancelled(2).await;
    stage.ends().await;
}

/// A person's time is not the machine's: while a call is parked the server's silence does not count.
#[tokio::test]
async fn silence_does_not_count_while_a_person_thinks() {
    let stage = Stage::with(|config| config.timer("upstream_silence_max", "200ms")).await;
    let request = stage.client.tool("name", json!({}));
    let asked = request.send().await.asked();
    // The one thing here that only time can show.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    stage.ends().await;
}

/// What a server may answer instead of an answer.
fn nonsense() -> Vec<(&'static str, Out)> {
    let json = |body: &str| Out::Whole(200, "application/json", body.as_bytes().to_vec());
    vec![
        (
            "a web page",
            Out::Whole(200, "text/html", b"<html></html>".to_vec()),
        ),
        ("no type", Out::Whole(200, "", b"{}".to_vec())),
        (
            "an error page",
            Out::Whole(500, "text/html", b"oops".to_vec()),
        ),
        ("bad gateway", Out::Whole(502, "", Vec::new())),
        (
            "accepted, as if it were a notification",
            Out::Whole(202, "", Vec::new()),
        ),
        ("no content", Out::Whole(204, "", Vec::new())),
        ("a redirection", Out::Whole(307, "", Vec::new())),
        ("an empty JSON body", json("")),
        ("half a JSON body", json("{\"jsonrpc\":\"2.0\",\"id\":")),
        ("JSON that is no message", json("[1,2,3]")),
        ("an empty object", json("{}")),
        (
            "the result of another request",
            json("{\"jsonrpc\":\"2.0\",\"id\":\"other\",\"result\":{}}"),
        ),
        (
            "a notification for an answer",
            json("{\"jsonrpc\":\"2.0\",\"method\":\"x\"}"),
        ),
        (
            "no HTTP",
            Out::Bare(b"\x00\x01\x02\x03 garbage\r\n\r\n".to_vec()),
        ),
        (
            "a head that never ends",
            Out::Bare([b"HTTP/1.1 200 OK\r\n".to_vec(), vec![b'x'; 1 << 20]].concat()),
        ),
        ("an event stream of nothing", Out::End),
        ("an event that is no JSON", Out::Event("hello".to_owned())),
        (
            "an event that is no message",
            Out::Event("{\"a\":1}".to_owned()),
        ),
        (
            "bytes that are no text",
            Out::Raw(b"data: \xff\xfe\xfd\n\n".to_vec()),
        ),
        ("an event without an end", Out::Raw(vec![b'x'; 1 << 16])),
    ]
}

#[tokio::test]
async fn nonsense_is_a_loss() {
    let stage = Stage::new().await;
    for (what, out) in nonsense() {
        let said = out.clone();
        stage.puppet.tool("babbles", move |call| {
            let said = said.clone();
            async move {
                call.put(said).await;
                Ending::Cut
            }
        });
        let before = stage.puppet.starts("babbles");
        let reply = stage.client.call("babbles").await;
        let error = &reply.message["error"];
        assert_eq!(
            (reply.status, error["code"].as_i64()),
            (200, Some(-32603)),
            "{what}: {}",
            reply.message
        );
        assert_eq!(error["data"]["reason"], "lost", "{what}: {error}");
        assert_eq!(
            stage.puppet.starts("babbles"),
            before + 1,
            "{what} was asked for again"
        );
        stage.gateway.is_sound();
    }
    // It still serves.
    stage.client.call("echo").await.result();
    stage.ends().await;
}

#[tokio::test]
async fn an_answer_amid_nonsense_is_found() {
    let stage = Stage::new().await;
    stage.puppet.tool("babbles", |call| async move {
        for (_, out) in nonsense() {
            if matches!(out, Out::Event(_)) {
                call.put(out).await;
            }
        }
        call.put(Out::Raw(
            b": a comment\n\nretry: 100\n\nevent: strange\ndata: {}\n\n".to_vec(),
        ))
        .await;
        call.send(json!({"jsonrpc": "2.0", "id": "other", "result": text("not mine")}))
            .await;
        call.send(json!({"jsonrpc": "2.0", "method": "notifications/unheard-of"}))
            .await;
        Ending::text("mine")
    });
    assert_eq!(text_of(stage.client.call("babbles").await.result()), "mine");
    stage.ends().await;
}

#[tokio::test]
async fn results_that_are_no_objects() {
    let stage = Stage::of(Manner {
        answers: Answers::Json,
        ..Manner::default()
    })
    .await;
    for result in [json!(5), Value::Null, json!([]), json!("done")] {
        let said = result.clone();
        stage.puppet.tool("wrong", move |_| {
            let said = said.clone();
            async move { Ending::Result(said) }
        });
        let reply = stage.client.call("wrong").await;
        assert_eq!(
            reply.message["error"]["code"], -32603,
            "{result}: {}",
            reply.message
        );
    }
    stage.ends().await;
}

#[tokio::test]
async fn a_message_beyond_the_limit() {
    let stage = Stage::with(|config| config.limit("message_bytes_max", 10_000)).await;
    for filler in [9_000, 20_000, 10 << 20] {
        stage.puppet.tool(
            "big",
            move |_| async move { Ending::text("x".repeat(filler)) },
        );
        let reply = stage.client.call("big").await;
        if filler < 10_000 {
            reply.result();
        } else {
            reply.lost(true);
        }
    }
    stage.ends().await;
}

#[tokio::test]
async fn the_first_of_two_answers_counts() {
    let stage = Stage::new().await;
    stage.puppet.tool("twice", |call| async move {
        let id = &call.request["id"];
        for word in ["first", "second"] {
            call.send(json!({"jsonrpc": "2.0", "id": id, "result": text(word)}))
                .await;
        }
        let error = json!({"code": -32603, "message": "third"});
        call.send(json!({"jsonrpc": "2.0", "id": id, "error": error}))
            .await;
        Ending::Nothing
    });
    for _ in 0..3 {
        assert_eq!(text_of(stage.client.call("twice").await.result()), "first");
        // The session it came on serves the next call rightly.
        assert_eq!(text_of(stage.client.call("echo").await.result()), "{}");
    }
    stage.ends().await;
}

/// The result comes on the general stream, where no result belongs: it is ignored there.
#[tokio::test]
async fn a_result_on_the_general_stream_is_no_result() {
    let stage = Stage::new().await;
    stage.puppet.tool("strays", |call| async move {
        let stray = json!({"jsonrpc": "2.0", "id": call.request["id"], "result": text("stray")});
        call.session.put(Out::Event(stray.to_string())).await;
        call.ask_generally("ping", json!({})).await;
        Ending::text("own")
    });
    assert_eq!(text_of(stage.client.call("strays").await.result()), "own");
    stage.ends().await;
}

/// The server's challenge reaches the client as it is: holdfast is the server's own address to its clients.
#[tokio::test]
async fn a_challenge_goes_through() {
    let puppet = Puppet::start(Manner {
        handshake: Handshake::Status(401),
        ..Manner::default()
    })
    .await;
    let gateway = Config::of(&puppet).start().await;
    let reply = Client::of(&gateway).call("echo").await;
    assert_eq!(reply.status, 401, "{}", reply.message);
    gateway.settled().await;
    let stage = Stage::new().await;
    stage.puppet.tool("guarded", |call| async move {
        let head = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer resource_metadata=\"https://a.example/m\"\r\ncontent-length: 0\r\n\r\n";
        call.put(Out::Bare(head.as_bytes().to_vec())).await;
        Ending::Cut
    });
    let reply = stage.client.call("guarded").await;
    assert_eq!(reply.status, 401, "{}", reply.message);
    let challenge = reply.head.value("www-authenticate");
    assert_eq!(
        challenge,
        Some("Bearer resource_metadata=\"https://a.example/m\"")
    );
    stage.ends().await;
}

/// Whoever knows that a server begins to answer at once need not wait for its silence.
#[tokio::test]
async fn a_server_that_does_not_begin_its_answer() {
    let stage = Stage::with(|config| config.timer("first_byte_timeout", "300ms")).await;
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("thinks", move |_| {
        let gate = script_gate.clone();
        async move {
            gate.passed().await;
            Ending::text("thought")
        }
    });
    stage.client.call("thinks").await.lost(true);
    stage.cancelled(1).await;
    stage.ends().await;
}

/// A server that asks on its general stream is at work, and then a person is.
#[tokio::test]
async fn a_server_that_asks_before_it_begins_its_answer() {
    let stage = Stage::with(|config| config.timer("first_byte_timeout", "300ms")).await;
    let request = stage.client.tool("generally", json!({}));
    let asked = request.send().await.asked();
    // Only time can show that it does not count.
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    stage.ends().await;
}

/// A slow head is no stall of the client: the reply comes when the server has made up its mind.
#[tokio::test]
async fn a_server_that_thinks_first() {
    let stage = Stage::new().await;
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("thinks", move |call| {
        let gate = script_gate.clone();
        async move {
            gate.passed().await;
            Ending::text(call.elicit(form("name", name_schema())).await.said("name"))
        }
    });
    let request = stage.client.tool("thinks", json!({}));
    let leg = request.open().await;
    stage.started("thinks", 1).await;
    gate.open();
    let asked = leg.finish().await.asked();
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "\"Ada\"");
    stage.ends().await;
}

/// The stream of a call breaks while the server waits for an answer on it, and the server lives on: it is told
/// that nobody will answer, or it would wait for ever.
#[tokio::test]
async fn a_server_whose_stream_broke_is_told() {
    for general_stream in [GeneralStream::Offered, GeneralStream::Refused] {
        let stage = Stage::of(Manner {
            general_stream,
            ..Manner::default()
        })
        .await;
        let gate = Gate::default();
        let script_gate = gate.clone();
        stage.puppet.tool("breaks", move |call| {
            let gate = script_gate.clone();
            async move {
                let id = call
                    .pose("elicitation/create", form("name", name_schema()))
                    .await;
                gate.passed().await;
                call.put(Out::Cut).await;
                Ending::text(call.answer(&id).await.said("name"))
            }
        });
        let request = stage.client.tool("breaks", json!({}));
        let asked = request.send().await.asked();
        gate.open();
        stage.gateway.metric_is("holdfast_calls", 0).await;
        request.answer(&asked, ada()).send().await.lost(true);
        stage.ends().await;
    }
}

/// The stream stays open, but what was waited for has come.
#[tokio::test]
async fn an_answer_that_cannot_be_read() {
    let stage = Stage::new().await;
    stage.puppet.tool("mumbles", |call| async move {
        let id = &call.request["id"];
        call.send(json!({"jsonrpc": "2.0", "id": id, "error": ["no"]}))
            .await;
        Ending::Stall
    });
    stage.client.call("mumbles").await.lost(true);
    stage.ends().await;
}

#[tokio::test]
async fn nonsense_is_logged_once_for_each_call() {
    let stage = Stage::new().await;
    stage.puppet.tool("babbles", |call| async move {
        for _ in 0..1000 {
            call.put(Out::Event("hello".to_owned())).await;
        }
        Ending::text("done")
    });
    assert_eq!(text_of(stage.client.call("babbles").await.result()), "done");
    assert_eq!(stage.gateway.metric("holdfast_misheard_total").await, 1000);
    let said = || async { stage.gateway.log().matches("is not understood").count() };
    let is_said = || async { said().await > 0 };
    eventually("the operator to be told", is_said).await;
    assert_eq!(said().await, 1);
    stage.ends().await;
}
