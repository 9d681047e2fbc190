//! Questions that must not be asked: without a call, of the wrong kind, to a client that cannot answer. The
//! server is refused; no client is shown what its own call did not cause.

use serde_json::{Value, json};

use crate::support::client::META_CAPABILITIES;
use crate::support::gateway::Config;
use crate::support::puppet::{Ending, GeneralStream, Ledger, Manner, Out};
use crate::support::stage::{Gate, Stage, name_schema};
use crate::support::{accept, form, text_of};

fn ada() -> Value {
    accept(json!({"name": "Ada"}))
}

#[tokio::test]
async fn methods_that_clients_do_not_serve() {
    let stage = Stage::new().await;
    stage.puppet.tool("asks", |call| async move {
        let mut said = Vec::new();
        for method in ["tools/list", "tasks/get", "nope", "server/discover"] {
            said.push(call.ask(method, json!({})).await.said(""));
        }
        said.push(call.ask_generally("nope", json!({})).await.said(""));
        Ending::text(said.join(" "))
    });
    let expected = ["error -32601"; 5].join(" ");
    assert_eq!(text_of(stage.client.call("asks").await.result()), expected);
    stage.ends().await;
}

#[tokio::test]
async fn questions_that_are_none() {
    let stage = Stage::new().await;
    let malformed = [
        ("elicitation/create", json!({})),
        (
            "elicitation/create",
            json!({"message": 5, "requestedSchema": {}}),
        ),
        ("elicitation/create", json!({"message": "m"})),
        (
            "elicitation/create",
            json!({"message": "m", "requestedSchema": []}),
        ),
        (
            "elicitation/create",
            json!({"mode": "telepathy", "message": "m", "requestedSchema": {}}),
        ),
        ("elicitation/create", json!({"mode": "url", "message": "m"})),
        (
            "elicitation/create",
            json!({"mode": "url", "message": "m", "url": 5}),
        ),
        ("sampling/createMessage", json!({})),
        ("sampling/createMessage", json!({"messages": {}})),
        ("sampling/createMessage", json!([])),
    ];
    stage.puppet.tool("asks", move |call| {
        let malformed = malformed.clone();
        async move {
            for (method, params) in malformed {
                let shown = params.to_string();
                let said = call.ask(method, params).await.said("");
                if said != "error -32602" {
                    return Ending::text(format!("{method} {shown}: {said}"));
                }
            }
            Ending::text("refused")
        }
    });
    assert_eq!(text_of(stage.client.call("asks").await.result()), "refused");
    stage.ends().await;
}

/// What a question needs that a client with these capabilities lacks.
fn lacking() -> Vec<(&'static str, Value, Value, Value)> {
    let messages = json!([{"role": "user", "content": {"type": "text", "text": "?"}}]);
    let sampling = json!({"messages": messages, "maxTokens": 9});
    let mut with_tools = sampling.clone();
    with_tools["tools"] = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
    let url = "https://example.com/";
    let url = json!({"mode": "url", "message": "m", "url": url, "elicitationId": "e"});
    let name = form("name", name_schema());
    let (elicits, samples) = ("elicitation/create", "sampling/createMessage");
    let (needs_form, needs_url) = (
        json!({"elicitation": {"form": {}}}),
        json!({"elicitation": {"url": {}}}),
    );
    let more = json!({"elicitation": {"form": {}}, "sampling": {}});
    let others = json!({"elicitation": {}, "roots": {}});
    vec![
        (elicits, name.clone(), json!({}), needs_form.clone()),
        (elicits, name, needs_url.clone(), needs_form),
        (
            elicits,
            url.clone(),
            json!({"elicitation": {}}),
            needs_url.clone(),
        ),
        (elicits, url, more.clone(), needs_url),
        (samples, sampling, others, json!({"sampling": {}})),
        (
            samples,
            with_tools,
            more.clone(),
            json!({"sampling": {"tools": {}}}),
        ),
        ("roots/list", json!({}), more, json!({"roots": {}})),
    ]
}

#[tokio::test]
async fn capabilities_that_the_client_lacks() {
    let stage = Stage::new().await;
    for (method, params, declared, needed) in lacking() {
        stage.puppet.tool("asks", move |call| {
            let params = params.clone();
            async move { Ending::text(call.ask(method, params).await.said("")) }
        });
        let before = stage.answers();
        let client = stage.client.clone().able(declared.clone());
        let reply = client.call("asks").await;
        let required = &reply.error(400, -32021)["data"]["requiredCapabilities"];
        assert_eq!(*required, needed, "{method} for {declared}");
        let is_refused = move |ledger: &Ledger| ledger.answers.len() > before;
        stage
            .puppet
            .until("the server to be refused", is_refused)
            .await;
        let refused = stage.puppet.ledger().answers[before].response.clone();
        assert!(refused["error"].is_object(), "{refused}");
    }
    stage.ends().await;
}

/// The operator may choose that the tool's own way to do without is heard instead.
#[tokio::test]
async fn capabilities_that_the_client_lacks_are_declined_on_its_behalf() {
    let decline = |config: Config| config.backend("missing_capability", "\"decline\"");
    let stage = Stage::with(decline).await;
    for (method, params, declared, _) in lacking() {
        let said = if method == "elicitation/create" {
            "decline"
        } else {
            "error -32600"
        };
        for is_general in [false, true] {
            let params = params.clone();
            stage.puppet.tool("asks", move |call| {
                let params = params.clone();
                async move {
                    let answer = if is_general {
                        call.ask_generally(method, params).await
                    } else {
                        call.ask(method, params).await
                    };
                    Ending::text(format!("without: {}", answer.said("")))
                }
            });
            let client = stage.client.clone().able(declared.clone());
            let reply = client.call("asks").await;
            let text = text_of(reply.result());
            // On a session whose client can be asked nothing at all, nothing is declined: it is refused.
            assert!(
                text == format!("without: {said}") || text == "without: error -32600",
                "{method} for {declared}: {text}"
            );
        }
    }
    stage.ends().await;
}

/// The same on the general stream: nobody on this session can be asked anything, so the server need not wait.
#[tokio::test]
async fn a_general_question_to_a_client_that_cannot_be_asked() {
    let stage = Stage::new().await;
    let client = stage.client.clone().able(json!({}));
    let reply = client.call("generally").await;
    if reply.message.get("result").is_some() {
        assert!(
            text_of(reply.result()).starts_with("name: error"),
            "{}",
            reply.message
        );
    } else {
        reply.error(400, -32021);
    }
    stage.ends().await;
}

/// An empty `elicitation` means forms; `includeContext` from clients that declared `sampling: {}` only is seen
/// on real servers and let through.
#[tokio::test]
async fn capabilities_are_read_as_the_spec_says() {
    let stage = Stage::new().await;
    let client = stage.client.clone().able(json!({"elicitation": {}}));
    let request = client.tool("name", json!({}));
    let asked = request.send().await.asked();
    request.answer(&asked, ada()).send().await.result();
    stage.ends().await;
}

/// The client of a later leg declares less than that of the first: it is not asked what it cannot answer.
#[tokio::test]
async fn a_later_leg_that_can_do_less() {
    let stage = Stage::new().await;
    let request = stage.client.tool("three", json!({}));
    let asked = request.send().await.asked();
    let reissue = request
        .answer(&asked, ada())
        .meta(META_CAPABILITIES, json!({}));
    let reply = reissue.send().await;
    let needed = &reply.error(400, -32021)["data"]["requiredCapabilities"];
    assert_eq!(*needed, json!({"elicitation": {"form": {}}}));
    stage.ends().await;
}

#[tokio::test]
async fn lists_cannot_be_asked() {
    let stage = Stage::new().await;
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "completion/complete",
    ] {
        stage.puppet.on(method, "", |call| async move {
            let said = call.elicit(form("name", name_schema())).await.said("name");
            Ending::Result(json!({"said": said}))
        });
        let reply = stage.client.request(method, json!({})).send().await;
        let said = reply.result()["said"].as_str().unwrap();
        assert!(said.starts_with("error"), "{method}: {said}");
    }
    stage.ends().await;
}

/// A question outside any call waits for the next call of that session, which asks it before anything else.
#[tokio::test]
async fn a_question_without_a_call_waits_for_one() {
    let stage = Stage::with(|config| config.timer("session_idle", "60s")).await;
    stage.client.call("echo").await.result();
    let session = stage.puppet.sessions()[0].clone();
    session.ask("roots/list", json!({})).await;
    // The pong says that the question has been read.
    session.ask("ping", json!({})).await;
    stage
        .puppet
        .until("the pong", |ledger| ledger.answers.len() == 1)
        .await;
    let request = stage.client.tool("echo", json!({"n": 1}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["roots"]);
    assert_eq!(
        stage.puppet.starts("echo"),
        1,
        "the call waits for the answer"
    );
    let reply = request.answer(&asked, json!({"roots": []})).send().await;
    assert_eq!(text_of(reply.result()), r#"{"n":1}"#);
    assert_eq!((stage.puppet.starts("echo"), stage.answers()), (2, 2));
    stage.closes().await;
}

/// And is never asked of somebody else.
#[tokio::test]
async fn a_question_without_a_call_is_not_asked_of_others() {
    let stage = Stage::with(|config| {
        config
            .timer("session_idle", "60s")
            .timer("stray_question_max", "200ms")
    })
    .await;
    let (alice, bob) = (
        stage.client.clone().named("alice"),
        stage.client.clone().named("bob"),
    );
    alice.call("echo").await.result();
    let session = stage.puppet.sessions()[0].clone();
    let id = session
        .ask("elicitation/create", form("name", name_schema()))
        .await;
    for _ in 0..20 {
        bob.call("echo").await.result();
    }
    // No call of Alice comes: the server is refused in time.
    stage
        .puppet
        .until("a refusal", |ledger| ledger.answers.len() == 1)
        .await;
    {
        let ledger = stage.puppet.ledger();
        let given = &ledger.answers[0];
        assert_eq!((&given.session, &given.id), (&session.id, &id));
        assert!(given.response["error"].is_object(), "{}", given.response);
    }
    alice.call("echo").await.result();
    stage.closes().await;
}

/// A question on the general stream while another caller's call runs on another session.
#[tokio::test]
async fn a_question_on_one_session_is_not_asked_on_another() {
    let stage = Stage::new().await;
    let gate = Gate::default();
    let script_gate = gate.clone();
    stage.puppet.tool("waits", move |_| {
        let gate = script_gate.clone();
        async move {
            gate.passed().await;
            Ending::text("done")
        }
    });
    let (alice, bob) = (
        stage.client.clone().named("alice"),
        stage.client.clone().named("bob"),
    );
    let waiting = alice.tool("waits", json!({})).open().await;
    stage.started("waits", 1).await;
    let request = bob.tool("generally", json!({}));
    let asked = request.send().await.asked();
    gate.open();
    assert_eq!(text_of(waiting.finish().await.result()), "done");
    let reply = request.answer(&asked, ada()).send().await;
    assert_eq!(text_of(reply.result()), "name: \"Ada\"");
    stage.ends().await;
}

/// Calls of one caller at the same time: each question reaches its own call.
#[tokio::test]
async fn calls_of_one_caller_do_not_mix() {
    for general_stream in [GeneralStream::Offered, GeneralStream::Refused] {
        let stage = Stage::of(Manner {
            general_stream,
            ..Manner::default()
        })
        .await;
        stage.puppet.tool("mine", move |call| async move {
            let n = call.arguments()["n"].to_string();
            let params = form(&format!("name{n}"), name_schema());
            let answer = match general_stream {
                GeneralStream::Offered => call.ask_generally("elicitation/create", params).await,
                GeneralStream::Refused | GeneralStream::AfterStatus(_) => call.elicit(params).await,
            };
            Ending::text(format!("{n} {}", answer.said(&format!("name{n}"))))
        });
        let calls = (0..20).map(|n| {
            let request = stage.client.tool("mine", json!({"n": n}));
            async move {
                let asked = request.send().await.asked();
                let key = format!("name{n}");
                assert_eq!(asked.keys(), [key.as_str()]);
                let name = format!("name of {n}");
                let reply = request
                    .answer(&asked, accept(json!({key: name})))
                    .send()
                    .await;
                assert_eq!(text_of(reply.result()), format!("{n} \"{name}\""));
            }
        });
        futures_util::future::join_all(calls).await;
        stage.ends().await;
    }
}

#[tokio::test]
async fn ids_of_questions_may_be_anything() {
    let stage = Stage::new().await;
    for id in [
        json!("a b"),
        json!(-1),
        json!("0"),
        json!(9_007_199_254_740_993_u64),
        json!("\u{1F600}"),
    ] {
        let asks = id.clone();
        stage.puppet.tool("asks", move |call| {
            let id = asks.clone();
            async move {
                let params = form("name", name_schema());
                let question = json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params});
                // The same question twice, as a server that reconnects might send it: it is asked once.
                call.send(question.clone()).await;
                call.send(question).await;
                Ending::text(call.answer(&id).await.said("name"))
            }
        });
        let client = stage
            .client
            .clone()
            .named(&id.to_string().escape_default().to_string());
        let request = client.tool("asks", json!({}));
        let asked = request.send().await.asked();
        let reply = request.answer(&asked, ada()).send().await;
        assert_eq!(text_of(reply.result()), "\"Ada\"", "{id}");
    }
    stage.ends().await;
}

#[tokio::test]
async fn more_questions_than_may_be_open() {
    let stage = Stage::with(|config| config.limit("questions_max", 2)).await;
    stage.puppet.tool("many", |call| async move {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(
                call.pose("elicitation/create", form("name", name_schema()))
                    .await,
            );
        }
        let mut said = Vec::new();
        for id in &ids {
            said.push(call.answer(id).await.said("name"));
        }
        Ending::text(said.join(" "))
    });
    let request = stage.client.tool("many", json!({}));
    let asked = request.send().await.asked();
    assert_eq!(asked.keys(), ["name", "name_2"]);
    let reply = request
        .again(&asked, json!({"name": ada(), "name_2": ada()}))
        .send()
        .await;
    assert_eq!(text_of(reply.result()), "\"Ada\" \"Ada\" error -32603");
    stage.ends().await;
}

/// A server that asked has the request: that it forgets the session then does not mean that nothing ran.
#[tokio::test]
async fn a_session_forgotten_after_a_question_is_not_replaced() {
    for is_answered in [false, true] {
        let stage = Stage::new().await;
        let gate = Gate::default();
        let script_gate = gate.clone();
        stage.puppet.tool("forgets", move |call| {
            let gate = script_gate.clone();
            async move {
                let form = form("name", name_schema());
                let id = call.session.ask("elicitation/create", form).await;
                if is_answered {
                    call.answer(&id).await;
                } else {
                    gate.passed().await;
                }
                call.put(Out::Whole(404, "", Vec::new())).await;
                Ending::Cut
            }
        });
        let request = stage.client.tool("forgets", json!({}));
        let asked = request.send().await.asked();
        gate.open();
        let answer = accept(json!({"name": "Ada"}));
        request.answer(&asked, answer).send().await.lost(true);
        assert_eq!(stage.puppet.starts("forgets"), 1, "{is_answered}");
        stage.gateway.settled().await;
    }
}
