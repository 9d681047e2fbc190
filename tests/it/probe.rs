//! What a server is, found by asking: what shows it, what shows nothing, and what becomes of what was found.

use serde_json::json;
use tokio_util::task::TaskTracker;

use crate::support::chameleon::{Chameleon, Face, Get};
use crate::support::client::{Client, META_LOG_LEVEL};
use crate::support::gateway::{Config, Gateway};
use crate::support::{eventually, text_of};

/// A server, a gateway in front of it and a client in front of that.
struct Stage {
    server: Chameleon,
    gateway: Gateway,
    client: Client,
    _tasks: TaskTracker,
}

impl Stage {
    async fn new(face: Face) -> Self {
        Self::with(face, |config| config).await
    }

    async fn with(face: Face, change: impl FnOnce(Config) -> Config) -> Self {
        let tasks = TaskTracker::new();
        let server = Chameleon::start(face, &tasks).await;
        let gateway = change(Config::to(server.url())).start().await;
        let client = Client::of(&gateway);
        Self {
            server,
            gateway,
            client,
            _tasks: tasks,
        }
    }

    /// A call that goes well; its session is closed when this returns.
    async fn works(&self) {
        assert_eq!(text_of(self.client.call("echo").await.result()), "echo");
        self.gateway.settled().await;
    }

    /// A call that fails, and what its server was asked for.
    async fn fails(&self) -> (String, Vec<String>) {
        self.server.take_asked();
        let reply = self.client.call("echo").await;
        self.gateway.settled().await;
        let message = reply.message["error"]["message"].as_str();
        let message = message.unwrap_or_else(|| panic!("{}", reply.message));
        (message.to_owned(), self.server.take_asked_names())
    }

    /// How often the operator was told of a transport.
    fn told(&self, what: &str) -> usize {
        let found = format!("the transport of the server is found transport={what}");
        self.gateway.log().matches(&found).count()
    }
}

const INITIALIZE: &str = "POST initialize";
const DISCOVER: &str = "POST server/discover";

#[tokio::test]
async fn a_modern_server_is_told_apart() {
    for (status, code, looked_into) in [
        // As the spec has it: no header names a version, or one that is served.
        (400, Some(-32020), false),
        (400, Some(-32022), false),
        (404, Some(-32601), true),
        (400, Some(-32600), true),
        (400, None, true),
        (200, Some(-32601), true),
        (404, None, true),
    ] {
        let stage = Stage::new(Face::Modern(status, code)).await;
        for _ in 0..2 {
            let (message, asked) = stage.fails().await;
            let expected = "the server speaks revision 2026-07-28 and no legacy one";
            assert!(message.contains(expected), "{status} {code:?}: {message}");
            let expected: &[_] = if looked_into {
                &[INITIALIZE, "GET", DISCOVER]
            } else {
                &[INITIALIZE]
            };
            assert_eq!(asked, expected, "{status} {code:?}");
        }
        // Once it serves legacy clients too, it is served.
        stage.server.turn(Face::Streamable(Get::Status(405)));
        stage.works().await;
    }
}

/// A modern server must be able to read what it is asked.
#[tokio::test]
async fn a_modern_server_is_asked_as_it_wants_to_be() {
    let stage = Stage::new(Face::Modern(404, None)).await;
    stage.client.call("echo").await.lost(false);
    let asked = stage.server.take_asked().pop().unwrap();
    assert_eq!(asked.body["method"], "server/discover");
    let value = |name| asked.head.value(name);
    assert_eq!(value("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(value("mcp-method"), Some("server/discover"));
    assert_eq!(value("mcp-session-id"), None);
    let meta = &asked.body["params"]["_meta"];
    let version = &meta["io.modelcontextprotocol/protocolVersion"];
    assert_eq!(version, "2026-07-28");
    assert!(meta["io.modelcontextprotocol/clientCapabilities"].is_object());
}

/// A server that speaks HTTP+SSE badly is told how, and nothing is posted to where it leads.
#[tokio::test]
async fn an_endpoint_that_cannot_be_used_is_named() {
    for (first, expected) in [
        (
            "event: endpoint\ndata: http://127.0.0.1:9/messages\n\n",
            "the server's `endpoint` event leads to another origin",
        ),
        (
            "event: message\ndata: {}\n\n",
            "the server's `endpoint` event is missing",
        ),
        ("", "the server's `endpoint` event does not come"),
    ] {
        let stage = Stage::with(Face::BadSse(first), |config| {
            config.timer("connect_timeout", "300ms")
        })
        .await;
        let (message, _) = stage.fails().await;
        assert_eq!(message, expected);
    }
}

/// What may pass shows nothing.
fn not_evidence() -> Vec<Face> {
    let empty = [401, 403, 408, 429, 500, 502, 503].map(|status| Face::Status(status, None));
    let worded = [500, 503].map(|status| Face::Status(status, Some(-32603)));
    [&empty[..], &worded, &[Face::Silence]].concat()
}

#[tokio::test]
async fn what_may_pass_shows_nothing_of_a_server_that_is_not_known() {
    for face in not_evidence() {
        let stage = Stage::with(face, |config| config.timer("initialize_timeout", "300ms")).await;
        for _ in 0..2 {
            let (message, asked) = stage.fails().await;
            assert!(!message.contains("revision"), "{face:?}: {message}");
            assert_eq!(asked, [INITIALIZE], "{face:?}");
        }
        // The next call asks anew.
        stage.server.turn(Face::HttpSse);
        stage.works().await;
        assert_eq!(stage.told("HTTP+SSE"), 1, "{face:?}");
    }
}

#[tokio::test]
async fn what_may_pass_shows_nothing_of_a_server_that_is_known() {
    for face in not_evidence() {
        let stage = Stage::with(Face::HttpSse, |config| {
            config.timer("initialize_timeout", "300ms")
        })
        .await;
        stage.works().await;
        stage.server.turn(face);
        let (_, asked) = stage.fails().await;
        assert_eq!(asked, ["GET"], "{face:?}: the other is not tried");
        stage.server.turn(Face::HttpSse);
        stage.works().await;
        let asked = stage.server.take_asked_names();
        let anew = [INITIALIZE, "GET", INITIALIZE];
        assert_eq!(asked[..3], anew, "{face:?}: {asked:?}");
        stage.works().await;
        let asked = stage.server.take_asked_names();
        assert_eq!(asked[..2], ["GET", INITIALIZE], "{face:?}: {asked:?}");
        assert_eq!(stage.told("HTTP+SSE"), 1, "{face:?}: it is no news");
    }
}

/// Servers are upgraded, and downgraded, while the gateway runs.
#[tokio::test]
async fn a_server_whose_transport_changes_is_found_again() {
    for get in [
        Get::Status(400),
        Get::Status(404),
        Get::Status(405),
        Get::QuietStream,
    ] {
        let stage = Stage::with(Face::HttpSse, |config| {
            config
                .timer("connect_timeout", "300ms")
                .timer("get_stream_wait", "50ms")
        })
        .await;
        stage.works().await;
        stage.server.turn(Face::Streamable(get));
        stage.works().await;
        assert_eq!(stage.told("Streamable HTTP"), 1, "{get:?}");
        stage.server.take_asked();
        stage.works().await;
        let asked = stage.server.take_asked_names();
        assert_eq!(asked[0], INITIALIZE, "{get:?}: it is remembered");
        stage.server.turn(Face::HttpSse);
        stage.works().await;
        assert_eq!(stage.told("HTTP+SSE"), 2, "{get:?}");
        // With what it was before, and until when.
        let log = stage.gateway.log();
        for before in ["HTTP+SSE until 20", "Streamable HTTP until 20"] {
            assert!(log.contains(before), "{before:?} in {log}");
        }
    }
}

/// The first call after the upgrade shows nothing, not even that the transport has changed; the next one asks anew.
#[tokio::test]
async fn a_server_that_leaves_the_old_get_without_an_answer_is_found_again() {
    let stage = Stage::with(Face::HttpSse, |config| {
        config
            .timer("initialize_timeout", "300ms")
            .timer("get_stream_wait", "50ms")
    })
    .await;
    stage.works().await;
    stage.server.turn(Face::Streamable(Get::Nothing));
    let (_, asked) = stage.fails().await;
    assert_eq!(asked, ["GET"]);
    stage.works().await;
    assert_eq!(stage.told("Streamable HTTP"), 1);
}

/// What is left of a transport that is not spoken any more keeps nobody from being told what is wrong.
#[tokio::test]
async fn a_server_that_becomes_a_modern_one_is_told_apart() {
    for face in [Face::HttpSse, Face::Streamable(Get::Status(405))] {
        let stage = Stage::new(face).await;
        stage.works().await;
        stage.server.turn(Face::Modern(404, Some(-32601)));
        let (message, asked) = stage.fails().await;
        assert!(message.contains("revision 2026-07-28"), "{message}");
        assert_eq!(asked.last().map(String::as_str), Some(DISCOVER));
    }
}

/// Revision 2025-03-26 lets a server answer with an array.
#[tokio::test]
async fn answers_in_arrays_are_read_whatever_they_answer() {
    let stage = Stage::new(Face::Batches).await;
    stage.works().await;
    let log = stage.gateway.log();
    assert!(!log.contains("could not be read"), "{log}");
}

/// Two calls at once that want log messages, to a server on whose channel nothing says whose those are: each has a
/// session for itself. How many were opened for them.
async fn opened_for_listening_calls(stage: &Stage) -> usize {
    stage.server.take_asked();
    let plain = stage.client.clone().able(json!({}));
    let request = plain.tool("waits", json!({}));
    let request = request.meta(META_LOG_LEVEL, json!("info"));
    let legs = [request.open().await, request.open().await];
    let asked = || stage.server.asked_names();
    let calls = |names: &[String]| {
        names
            .iter()
            .filter(|name| *name == "POST tools/call")
            .count()
    };
    eventually("both calls", || async { calls(&asked()) == 2 }).await;
    let opened = asked().iter().filter(|name| *name == "GET").count();
    drop(legs);
    opened
}

#[tokio::test]
async fn log_messages_are_told_apart_whatever_is_known_of_the_transport() {
    let stage = Stage::new(Face::HttpSse).await;
    let opened = opened_for_listening_calls(&stage).await;
    assert_eq!(opened, 2, "before anything was found");
    stage.gateway.settled().await;
    let stage = Stage::with(Face::HttpSse, |config| config.timer("session_idle", "60s")).await;
    let plain = stage.client.clone().able(json!({}));
    plain.call("echo").await.result();
    // Another caller is refused.
    stage.server.turn(Face::Status(401, None));
    let refused = plain.named("bob").call("echo").await;
    assert!(refused.is_error());
    stage.server.turn(Face::HttpSse);
    let opened = opened_for_listening_calls(&stage).await;
    assert_eq!(opened, 1, "one was there");
}
