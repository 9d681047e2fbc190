//! Two replicas and a client: everything real but what the second one answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::stage::{Near, Owner, PULSE, hop, proxied, request, within};
use super::*;
use crate::cluster::hop::{HopError, LineError};

mod stage;

/// An answer whose events come from a channel; `gone` says when nobody wants any more.
fn events(receiver: mpsc::Receiver<Bytes>, gone: CancellationToken) -> Response<ResponseBody> {
    let state = (receiver, gone.drop_guard());
    let events = futures_util::stream::unfold(state, |(mut receiver, guard)| async move {
        let event = receiver.recv().await?;
        Some((event, (receiver, guard)))
    });
    Response::new(ResponseBody::Events(Box::pin(events)))
}

/// An owner whose legs all hear what is sent to the latest of them.
struct Streaming {
    owner: Owner,
    legs: mpsc::Receiver<(mpsc::Sender<Bytes>, CancellationToken)>,
}

impl Streaming {
    async fn start() -> Self {
        let (begun, legs) = mpsc::channel(1024);
        let owner = Owner::start(&[1], move |_| {
            let begun = begun.clone();
            async move {
                let (sender, receiver) = mpsc::channel(8);
                let gone = CancellationToken::new();
                begun.send((sender, gone.clone())).await.unwrap();
                events(receiver, gone)
            }
        });
        let owner = owner.await;
        Self { owner, legs }
    }

    async fn leg(&mut self) -> (mpsc::Sender<Bytes>, CancellationToken) {
        within(self.legs.recv()).await.unwrap()
    }
}

#[tokio::test]
async fn events_and_comments_pass_one_by_one() {
    let mut streaming = Streaming::start().await;
    let near = Near::start(hop(&[1]), &streaming.owner.address()).await;
    let asked = tokio::join!(near.ask("/mcp", Bytes::new()), streaming.leg());
    let (mut response, (sender, _gone)) = asked;
    for said in ["data: 1\n\n", ":\n\n", "data: 2\n\n"] {
        sender.send(said.into()).await.unwrap();
        let heard = within(response.frame()).await.unwrap().unwrap();
        assert_eq!(heard.into_data().unwrap(), said);
    }
    drop(sender);
    assert!(within(response.frame()).await.is_none());
}

#[tokio::test]
async fn a_client_that_goes_before_the_answer_is_seen_to_go() {
    let (begun, mut legs) = mpsc::channel(1);
    let owner = Owner::start(&[1], move |_| {
        let begun = begun.clone();
        async move {
            let gone = CancellationToken::new();
            begun.send(gone.clone()).await.unwrap();
            let _guard = gone.drop_guard();
            std::future::pending().await
        }
    });
    let owner = owner.await;
    let near = Near::start(hop(&[1]), &owner.address()).await;
    let gone = tokio::select! {
        _ = near.ask("/mcp", Bytes::new()) => unreachable!("there is no answer"),
        gone = within(legs.recv()) => gone.unwrap(),
    };
    within(gone.cancelled()).await;
}

#[tokio::test]
async fn a_client_that_goes_from_a_quiet_stream_is_seen_to_go() {
    let mut streaming = Streaming::start().await;
    let near = Near::start(hop(&[1]), &streaming.owner.address()).await;
    let (response, (_sender, gone)) = tokio::join!(near.ask("/mcp", Bytes::new()), streaming.leg());
    drop(response);
    within(gone.cancelled()).await;
}

#[tokio::test]
async fn a_response_that_breaks_off_is_no_whole_one() {
    let mut streaming = Streaming::start().await;
    let near = Near::start(hop(&[1]), &streaming.owner.address()).await;
    let (mut response, (sender, _gone)) =
        tokio::join!(near.ask("/mcp", Bytes::new()), streaming.leg());
    sender.send("data: 1\n\n".into()).await.unwrap();
    assert!(within(response.frame()).await.unwrap().is_ok());
    streaming.owner.kill();
    assert!(within(response.frame()).await.unwrap().is_err());
}

#[tokio::test]
async fn a_replica_that_dies_before_it_answers_leaves_it_open_whether_it_has_acted() {
    let (begun, mut legs) = mpsc::channel(1);
    let owner = Owner::start(&[1], move |_| {
        let begun = begun.clone();
        async move {
            begun.send(()).await.unwrap();
            std::future::pending().await
        }
    });
    let owner = owner.await;
    let (hop, (head, body)) = (hop(&[1]), request("/mcp"));
    let address = owner.address();
    let killing = async {
        legs.recv().await.unwrap();
        owner.kill();
    };
    let (answered, ()) =
        within(async { tokio::join!(hop.forward(&address, &head, body), killing) }).await;
    let error = answered.unwrap_err();
    assert!(matches!(error, HopError::Broken { .. }), "{error:?}");
    assert!(!error.is_retry_safe());
}

/// Of each pair one side does not know the other's key.
#[tokio::test]
async fn another_key_is_refused_by_either_side() {
    for (near, far, strangers) in [
        (&[1][..], &[2][..], 1),
        (&[1], &[2, 1], 1),
        (&[1, 2], &[2], 1),
    ] {
        let owner = Owner::start(far, |_| async { unreachable!("nobody may ask") }).await;
        let (head, body) = request("/mcp");
        let error = within(hop(near).forward(&owner.address(), &head, body)).await;
        let error = error.unwrap_err();
        assert!(matches!(error, HopError::Refused { .. }), "{error:?}");
        assert!(error.is_retry_safe());
        owner.has_turned_away(strangers).await;
    }
}

/// No TLS at all, nothing at all, and nothing more than a beginning.
#[tokio::test]
async fn strangers_are_closed_and_counted() {
    let owner = Owner::start(&[1], |_| async { unreachable!("nobody may ask") }).await;
    for (number, said) in [
        &b"POST /mcp HTTP/1.1\r\nhost: a\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &[0xff; 64],
        b"",
        b"\x16\x03\x01",
    ]
    .iter()
    .enumerate()
    {
        let mut stream = TcpStream::connect(owner.address()).await.unwrap();
        stream.write_all(said).await.unwrap();
        let mut rest = Vec::new();
        // What is closed with bytes unread is reset.
        let _ = within(stream.read_to_end(&mut rest)).await;
        assert!(!rest.starts_with(b"HTTP"));
        owner.has_turned_away(number as u64 + 1).await;
    }
}

#[tokio::test]
async fn where_no_replica_is_nothing_is_sent() {
    let hop = hop(&[1]);
    let silent = stage::bound().await;
    let closed = stage::bound().await.1;
    let talking = stage::talking(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    for (address, expected) in [
        (closed.to_string(), "no connection"),
        (silent.1.to_string(), "no answer in time"),
        (talking.to_string(), "no replica answers there"),
        ("127.0.0.1".to_owned(), "not an address"),
        ("a b:1".to_owned(), "not an address"),
    ] {
        let (head, body) = request("/mcp");
        let error = within(hop.forward(&address, &head, body))
            .await
            .unwrap_err();
        assert!(error.is_retry_safe());
        assert!(chain(&error).contains(expected), "{}", chain(&error));
    }
}

#[tokio::test]
async fn a_replica_that_falls_silent_is_missed() {
    let mut streaming = Streaming::start().await;
    let (address, frozen) = proxied(streaming.owner.address()).await;
    let near = Near::start(hop(&[1]), &address).await;
    let (mut response, (_sender, gone)) =
        tokio::join!(near.ask("/mcp", Bytes::new()), streaming.leg());
    frozen.cancel();
    assert!(within(response.frame()).await.unwrap().is_err());
    // It misses the other as well.
    within(gone.cancelled()).await;
}

#[tokio::test]
async fn many_legs_share_one_connection() {
    const LEGS: usize = 200;
    let mut streaming = Streaming::start().await;
    let hop = hop(&[1]);
    let address = streaming.owner.address();
    let ask = || async {
        let (head, body) = request("/mcp");
        hop.forward(&address, &head, body).await.unwrap()
    };
    let asking = futures_util::future::join_all((0..LEGS).map(|_| ask()));
    let responses = within(asking).await;
    let mut legs = Vec::new();
    for _ in 0..LEGS {
        legs.push(streaming.leg().await);
    }
    assert_eq!(streaming.owner.connections(), 1);
    for (sender, _) in &legs {
        sender.send("data: 1\n\n".into()).await.unwrap();
    }
    for mut response in responses {
        assert!(within(response.frame()).await.unwrap().is_ok());
    }
}

/// Each holds as much as it may without being read. A client that does read is served all the same.
#[tokio::test]
async fn clients_that_do_not_read_hold_up_nobody() {
    const IDLE: usize = 120;
    let large = Bytes::from(vec![b'x'; 2 * STREAM_WINDOW_BYTES as usize]);
    let whole = large.clone();
    let owner = Owner::start(&[1], move |_| {
        let body = ResponseBody::whole(whole.clone());
        async { Response::new(body) }
    });
    let owner = owner.await;
    let hop = hop(&[1]);
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        let (head, body) = request("/mcp");
        idle.push(
            within(hop.forward(&owner.address(), &head, body))
                .await
                .unwrap(),
        );
    }
    let (head, body) = request("/mcp");
    let read = within(hop.forward(&owner.address(), &head, body))
        .await
        .unwrap();
    let read = within(read.collect()).await.unwrap().to_bytes();
    assert_eq!(read, large);
    assert_eq!(owner.connections(), 1);
}

/// As when a proxy in front restarts. HTTP/2 servers take so many resets for an attack.
#[tokio::test]
async fn clients_that_all_go_at_once_take_nobody_with_them() {
    const LEGS: usize = 2000;
    let mut streaming = Streaming::start().await;
    let hop = hop(&[1]);
    let address = streaming.owner.address();
    let (head, body) = request("/mcp");
    let mut held = within(hop.forward(&address, &head, body)).await.unwrap();
    let (sender, _gone) = streaming.leg().await;
    for _ in 0..4 {
        let asking = (0..LEGS / 4).map(|_| async {
            let (head, body) = request("/mcp");
            let _ = hop.forward(&address, &head, body).await;
        });
        let all = futures_util::future::join_all(asking);
        // All have been begun when this is polled for the first time, and are dropped in one go.
        tokio::select! {
            biased;
            _ = all => {}
            () = tokio::task::yield_now() => {}
        }
        while streaming.legs.try_recv().is_ok() {}
    }
    sender.send("data: 1\n\n".into()).await.unwrap();
    assert!(within(held.frame()).await.unwrap().is_ok());
    assert_eq!(streaming.owner.connections(), 1);
}

#[tokio::test]
async fn large_bodies_pass_up_and_down() {
    let owner = Owner::start(&[1], |request: Request<Incoming>| async {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(ResponseBody::whole(body))
    });
    let owner = owner.await;
    let near = Near::start(hop(&[1]), &owner.address()).await;
    let large: Bytes = (0..4 << 20)
        .map(|n: u32| n.to_le_bytes()[n as usize % 3])
        .collect();
    let response = near.ask("/mcp", large.clone()).await;
    let echoed = within(response.collect()).await.unwrap().to_bytes();
    assert!(echoed == large, "{} bytes", echoed.len());
}

#[tokio::test]
async fn what_concerns_the_client_goes_along_and_what_concerns_its_connection_does_not() {
    let owner = Owner::start(&[1], |request: Request<Incoming>| async move {
        let mut response =
            Response::new(ResponseBody::whole(request.uri().path().to_owned().into()));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        for (name, value) in request.headers() {
            let name = format!("x-{name}").parse::<http::HeaderName>().unwrap();
            response.headers_mut().append(name, value.clone());
        }
        response
    });
    let owner = owner.await;
    let (mut head, body) = request("/billing/mcp");
    let large = "t".repeat(100_000);
    for (name, value) in [
        ("authorization", large.as_str()),
        ("traceparent", "00-1-2-01"),
        ("baggage", "a=1"),
        ("baggage", "b=2"),
        ("connection", "close, x-mine"),
        ("x-mine", "secret"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("te", "gzip"),
        ("host", "gateway.example"),
        ("expect", "100-continue"),
    ] {
        let name = http::HeaderName::from_static(name);
        head.headers
            .append(name, HeaderValue::from_str(value).unwrap());
    }
    let response = within(hop(&[1]).forward(&owner.address(), &head, body))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let seen = response.headers().clone();
    let of = |name: &str| -> Vec<_> { seen.get_all(format!("x-{name}")).iter().cloned().collect() };
    assert_eq!(of("authorization"), [large.as_str()]);
    assert_eq!(of("traceparent"), ["00-1-2-01"]);
    assert_eq!(of("baggage"), ["a=1", "b=2"]);
    for name in [
        "connection",
        "x-mine",
        "keep-alive",
        "transfer-encoding",
        "te",
        "host",
        "expect",
    ] {
        assert!(of(name).is_empty(), "{name}: {:?}", of(name));
    }
    let path = within(response.collect()).await.unwrap().to_bytes();
    assert_eq!(path, "/billing/mcp");
}

/// A connection that was closed in good order is opened anew, and a replica in the place of another found.
#[tokio::test]
async fn a_replica_that_comes_back_is_reached_again() {
    let hop = hop(&[1]);
    let asked = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&asked);
    let answer = move |_| {
        counting.fetch_add(1, Ordering::Relaxed);
        async { Response::new(ResponseBody::empty()) }
    };
    let mut owner = Owner::start(&[1], answer.clone()).await;
    for round in 1..=3 {
        let (head, body) = request("/mcp");
        within(hop.forward(&owner.address(), &head, body))
            .await
            .unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), round);
        owner = owner.restarted(answer.clone()).await;
    }
}

/// While the process ends nothing waits for a connection that is never opened.
#[tokio::test]
async fn the_end_ends_connecting() {
    let (_listener, address) = stage::bound().await;
    let (cut, tasks) = (
        CancellationToken::new(),
        tokio_util::task::TaskTracker::new(),
    );
    let pulse = Pulse {
        silence_max: stage::PATIENCE * 2,
        ..PULSE
    };
    let hop =
        crate::cluster::hop::Hop::new(stage::identity(&[1]), pulse, tasks.clone(), cut.clone());
    let (head, body) = request("/mcp");
    let address = address.to_string();
    let ending = async {
        tokio::task::yield_now().await;
        cut.cancel();
    };
    let (answered, ()) =
        within(async { tokio::join!(hop.forward(&address, &head, body), ending) }).await;
    match answered.unwrap_err() {
        HopError::Unreached { source, .. } => assert!(matches!(*source, LineError::Ending)),
        other => panic!("{other:?}"),
    }
    tasks.close();
    within(tasks.wait()).await;
}
