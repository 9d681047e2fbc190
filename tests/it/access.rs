//! What a backend has of its own towards its server: headers, a token, and where it lets itself be led.

use serde_json::json;

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::puppet::{Ending, Manner, Out, Puppet};
use crate::support::stage::{Stage, usual};
use crate::support::{accept, nothing_is_left, text_of};

/// A file with a token.
fn token(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// The different values of a header that the puppet was sent; nothing where it was missing.
fn values(puppet: &Puppet, name: &str) -> Vec<Option<String>> {
    let mut values: Vec<_> = puppet
        .ledger()
        .records
        .iter()
        .map(|record| record.head.value(name).map(str::to_owned))
        .collect();
    values.dedup();
    values
}

/// The verb and the path of each request so far.
fn places(puppet: &Puppet) -> Vec<String> {
    let ledger = puppet.ledger();
    let places = ledger.records.iter().map(|record| {
        let (verb, path) = (&record.verb, record.head.word(1));
        format!("{verb} {path}")
    });
    places.collect()
}

#[tokio::test]
async fn the_backends_own_headers_and_token_go_with_everything() {
    let file = token("own-1\n");
    let stage = Stage::with(|config| {
        config
            .backend("headers", "{ X-Api-Key = \"k3y\" }")
            .backend("bearer_file", &format!("{:?}", file.path()))
    })
    .await;
    for name in ["ada", "bob"] {
        let client = stage.client.clone().named(name);
        let request = client.tool("name", json!({}));
        let asked = request.send().await.asked();
        let answer = accept(json!({"name": "Ada"}));
        request.answer(&asked, answer).send().await.result();
    }
    // Who the callers are is still told by their own: neither got the other's session.
    assert_eq!(stage.puppet.ledger().sessions_opened, 2);
    stage.gateway.metric_is("holdfast_sessions", 0).await;
    let sent = |name| values(&stage.puppet, name);
    assert_eq!(sent("x-api-key"), [Some("k3y".to_owned())]);
    assert_eq!(sent("authorization"), [Some("Bearer own-1".to_owned())]);
    // A rotated token is taken up by the next session.
    std::fs::write(file.path(), "own-2").unwrap();
    stage.client.call("echo").await.result();
    stage.gateway.metric_is("holdfast_sessions", 0).await;
    assert_eq!(
        values(&stage.puppet, "authorization")[1..],
        [Some("Bearer own-2".to_owned())]
    );
    // None at all is an error that says so, and nothing is sent.
    std::fs::write(file.path(), "").unwrap();
    let before = stage.puppet.ledger().records.len();
    let reply = stage.client.call("echo").await;
    reply.lost(false);
    let said = reply.message["error"]["message"].to_string();
    assert!(said.contains("own credentials"), "{said}");
    stage.gateway.says("the token is empty").await;
    assert_eq!(stage.puppet.ledger().records.len(), before);
    stage.ends().await;
}

/// A client could do nothing about a token that is not its own.
#[tokio::test]
async fn a_token_that_is_refused_is_read_anew_once() {
    let file = token("old");
    let stage = Stage::with(|config| {
        let path = format!("{:?}", file.path());
        config.backend("bearer_file", &path)
    })
    .await;
    let path = file.path().to_owned();
    stage.puppet.tool("guarded", move |call| {
        let path = path.clone();
        async move {
            let is_old = std::fs::read_to_string(&path).unwrap() == "old";
            std::fs::write(&path, "new").unwrap();
            match is_old {
                true => call.put(Out::Whole(401, "text/plain", Vec::new())).await,
                false => return Ending::text("in"),
            }
            Ending::Nothing
        }
    });
    let reply = stage.client.call("guarded").await;
    assert_eq!(text_of(reply.result()), "in");
    let calls = stage.puppet.ledger().requests("tools/call");
    let shown: Vec<_> = calls
        .iter()
        .map(|it| it.head.value("authorization"))
        .collect();
    assert_eq!(shown, [Some("Bearer old"), Some("Bearer new")]);
    // The first session cannot be ended with a token that is refused: it is the server's to forget.
    stage.gateway.settled().await;
    stage.puppet.forget_sessions();
    stage.ends().await;
}

#[tokio::test]
async fn a_session_stays_where_its_opening_was_led() {
    for status in [307, 308] {
        let puppet = Puppet::start(Manner::default()).await;
        usual(&puppet);
        puppet.redirect("POST", "/mcp", status, "/b");
        puppet.redirect("POST", "/b", status, &format!("http://{}/c", puppet.addr()));
        puppet.redirect("POST", "/c", status, "new/");
        let gateway = Config::of(&puppet).start().await;
        Client::of(&gateway).call("echo").await.result();
        nothing_is_left(&gateway, &puppet).await;
        let places = places(&puppet);
        assert_eq!(
            places[..4],
            ["POST /mcp", "POST /b", "POST /c", "POST /new/"]
        );
        let stays = |place: &String| place.ends_with(" /new/");
        assert!(places[4..].iter().all(stays), "{places:?}");
        assert!(places.contains(&"DELETE /new/".to_owned()), "{places:?}");
    }
}

#[tokio::test]
async fn a_stream_may_be_led_too() {
    let puppet = Puppet::start(Manner::default()).await;
    usual(&puppet);
    puppet.redirect("GET", "/mcp", 302, "/stream");
    let gateway = Config::of(&puppet).start().await;
    let request = Client::of(&gateway).tool("generally", json!({}));
    let asked = request.send().await.asked();
    let answer = accept(json!({"name": "Ada"}));
    request.answer(&asked, answer).send().await.result();
    nothing_is_left(&gateway, &puppet).await;
    assert!(places(&puppet).contains(&"GET /stream".to_owned()));
}

#[tokio::test]
async fn nobody_is_led_to_another_origin_nor_around_for_ever() {
    let elsewhere = Puppet::start(Manner::default()).await;
    for (status, location, why) in [
        (307, elsewhere.url(), "to another origin"),
        (308, "/mcp".to_owned(), "more than 3 times"),
        (307, "http://[".to_owned(), "without a place to go"),
        (302, "/new".to_owned(), "HTTP status 302"),
        (303, elsewhere.url(), "HTTP status 303"),
    ] {
        let puppet = Puppet::start(Manner::default()).await;
        puppet.redirect("POST", "/mcp", status, &location);
        let gateway = Config::of(&puppet).start().await;
        let reply = Client::of(&gateway).named("ada").call("echo").await;
        reply.lost(false);
        let said = reply.message["error"]["message"].to_string();
        assert!(said.contains("redirects") && said.contains(why), "{said}");
        gateway.settled().await;
        assert!(places(&puppet).iter().all(|place| place == "POST /mcp"));
    }
    assert!(elsewhere.ledger().records.is_empty());
}

#[tokio::test]
async fn a_call_is_not_led() {
    for (status, may_have_run) in [(307, false), (303, true)] {
        let stage = Stage::new().await;
        stage.client.call("echo").await.result();
        stage.puppet.redirect("POST", "/mcp", status, "/new");
        let reply = stage.client.call("echo").await;
        reply.lost(may_have_run);
        assert_eq!(stage.puppet.starts("echo"), 1);
        assert!(!places(&stage.puppet).contains(&"POST /new".to_owned()));
        stage.gateway.settled().await;
    }
}
