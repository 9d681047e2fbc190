//! Params that this revision does not allow.

use serde_json::{Value, json};

use super::{PARAMS, check, echo, untouched};
use crate::support::client::{META_CAPABILITIES, META_LOG_LEVEL, META_VERSION};
use crate::support::stage::Stage;

#[tokio::test]
async fn what_every_request_must_say() {
    let stage = Stage::new().await;
    let right = || echo(&stage.client);
    let no_meta = right().edit(|body| {
        body["params"].as_object_mut().unwrap().remove("_meta");
    });
    let capable = |capabilities: Value| right().meta(META_CAPABILITIES, capabilities);
    check(
        PARAMS,
        vec![
            ("no _meta", no_meta),
            ("no version", right().without_meta(META_VERSION)),
            ("no capabilities", right().without_meta(META_CAPABILITIES)),
            ("capabilities that are none", capable(json!([]))),
            ("null as capabilities", capable(Value::Null)),
        ],
    )
    .await;
    for level in [json!("loud"), json!(3)] {
        let reply = right().meta(META_LOG_LEVEL, level).send().await;
        assert_eq!(reply.message["error"]["code"], -32602, "{}", reply.message);
    }
    untouched(stage).await;
}

#[tokio::test]
async fn responses_and_states_of_the_wrong_form() {
    let stage = Stage::new().await;
    let client = &stage.client;
    for request in [
        echo(client),
        client.request("resources/read", json!({"uri": "puppet://secret"})),
        client.request("prompts/get", json!({"name": "greeting"})),
    ] {
        let with = |key: &str, value: Value| request.clone().param(key, value);
        let responses = |value: Value| with("inputResponses", value);
        check(
            PARAMS,
            vec![
                ("responses as an array", responses(json!([]))),
                ("responses as text", responses(json!("x"))),
                ("a response that is no object", responses(json!({"a": 1}))),
                ("null among the responses", responses(json!({"a": null}))),
                ("a number as state", with("requestState", json!(5))),
                ("an object as state", with("requestState", json!({}))),
            ],
        )
        .await;
    }
    untouched(stage).await;
}

/// They belong to the three methods that may be asked something.
#[tokio::test]
async fn responses_and_states_elsewhere() {
    let stage = Stage::new().await;
    for method in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "completion/complete",
        "server/discover",
    ] {
        for (key, value) in [("inputResponses", json!({})), ("requestState", json!("x"))] {
            let request = stage.client.request(method, json!({})).param(key, value);
            check(PARAMS, vec![(key, request)]).await;
        }
    }
    untouched(stage).await;
}
