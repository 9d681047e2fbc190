//! How a connection ends, on a paused clock: by whom, when, and what the other side is told.

use std::time::Duration;

use tokio::io::DuplexStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::task::TaskTracker;

use super::super::{Patient, WRITE_BUFFER_SPARE, bounded, patient};
use super::*;
use crate::upstream::Claim;
use crate::upstream::channel::{Channel, Exchange};
use crate::wire::jsonrpc::UpstreamId;

const PING_INTERVAL: Duration = Duration::from_secs(20);

/// More than a pipe takes at once.
const LARGE: usize = 64 << 10;

const BYTES_MAX: usize = 1000;

type Socket<S> = WebSocketStream<S>;

/// A channel, and the server at the other end of its connection.
struct Bench {
    channel: Channel,
    server: Socket<DuplexStream>,
}

async fn bench() -> Bench {
    let (ours, theirs) = tokio::io::duplex(4 << 10);
    let config = bounded(BYTES_MAX, LARGE);
    let ours: Patient<_> = patient(ours, PING_INTERVAL);
    let ours = Socket::from_raw_socket(ours, Role::Client, Some(config)).await;
    let server = Socket::from_raw_socket(theirs, Role::Server, None).await;
    let (channel, carriage, parcels) = Channel::queued(Duration::from_secs(3600));
    let bounds = Bounds {
        ping_interval: PING_INTERVAL,
        message_bytes_max: BYTES_MAX,
    };
    TaskTracker::new().spawn(carry(ours, parcels, carriage, bounds));
    Bench { channel, server }
}

impl Bench {
    fn request(&self, body: impl Into<Bytes>) -> Exchange {
        self.channel.request(UpstreamId(1), body.into(), Claim::All)
    }
}

/// The code that the server gets, after whatever else it gets.
async fn code(mut server: Socket<DuplexStream>) -> Option<CloseCode> {
    let mut code = None;
    // It has an answer to the frame, which goes out before it closes.
    while let Some(Ok(message)) = server.next().await {
        if let Message::Close(frame) = message {
            code = frame.map(|frame| frame.code);
        }
    }
    code
}

/// How an exchange ended.
async fn end(mut exchange: Exchange) -> String {
    match exchange.next_message().await {
        Err(UpstreamError::Over(end)) => crate::observe::chain(&*end).to_string(),
        other => panic!("it goes on: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_pings_is_kept() {
    let mut bench = bench().await;
    let mut exchange = bench.request("{}");
    let silence = async { while let Some(Ok(_)) = bench.server.next().await {} };
    let hour = Duration::from_secs(3600);
    assert!(
        timeout(hour, silence).await.is_err(),
        "the server is let go"
    );
    assert!(!bench.channel.is_over());
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    bench.server.send(Message::text(answer)).await.unwrap();
    let answered = exchange.next_message().await.unwrap();
    assert_eq!(answered.as_deref(), Some(answer.as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_no_ping_is_gone() {
    let bench = bench().await;
    let exchange = bench.request("{}");
    let begun = Instant::now();
    let said = end(exchange).await;
    assert!(said.contains("does not answer pings"), "{said}");
    // The first ping goes out after one interval and has another to be answered in.
    assert_eq!(begun.elapsed(), 2 * PING_INTERVAL);
}

/// Not even pings get through to it.
#[tokio::test(start_paused = true)]
async fn a_server_that_takes_nothing_is_gone() {
    let bench = bench().await;
    let exchange = bench.request(vec![b' '; LARGE]);
    let begun = Instant::now();
    let said = end(exchange).await;
    assert!(said.contains("timed out"), "{said}");
    assert_eq!(begun.elapsed(), 2 * PING_INTERVAL);
}

/// Nobody has to keep answers for who does not take them.
#[tokio::test(start_paused = true)]
async fn answers_to_pings_do_not_pile_up() {
    const PING: &[u8] = &[0; 125];
    let mut bench = bench().await;
    let sent = (LARGE + WRITE_BUFFER_SPARE) / PING.len() * 2;
    for _ in 0..sent {
        let ping = Message::Ping(Bytes::from_static(PING));
        bench.server.send(ping).await.unwrap();
    }
    bench.server.send(Message::Close(None)).await.unwrap();
    let mut answered = 0;
    while let Some(Ok(message)) = bench.server.next().await {
        answered += usize::from(message.is_pong());
    }
    assert!(answered < sent / 2 + 100, "{answered} of {sent}");
}

/// It is not the server that is slow then.
#[tokio::test(start_paused = true)]
async fn a_server_is_kept_while_what_it_said_is_not_taken() {
    let mut bench = bench().await;
    let general = bench.channel.general().unwrap();
    let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    let talking = async {
        loop {
            bench.server.send(Message::text(note)).await.unwrap();
        }
    };
    let hour = Duration::from_secs(3600);
    assert!(timeout(hour, talking).await.is_err());
    assert!(!bench.channel.is_over());
    drop(general);
    // Now that nobody wants it, it is read, and the pings that wait behind it are answered.
    assert!(
        timeout(hour, async { while bench.server.next().await.is_some() {} })
            .await
            .is_err()
    );
    assert!(!bench.channel.is_over());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_is_a_normal_closure() {
    let bench = bench().await;
    let exchange = bench.request("{}");
    let begun = Instant::now();
    let ((), code) = tokio::join!(bench.channel.close(), code(bench.server));
    assert_eq!(code, Some(CloseCode::Normal));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(end(exchange).await.contains("was closed"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_close_in_its_turn_is_cut_off() {
    let bench = bench().await;
    let begun = Instant::now();
    bench.channel.close().await;
    assert_eq!(begun.elapsed(), CLOSE_WAIT);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_message_is_told_by_the_code() {
    use tokio_tungstenite::tungstenite::protocol::frame::Frame;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

    let frame = |payload: &[u8], code, is_final| {
        let payload = Bytes::copy_from_slice(payload);
        Message::Frame(Frame::message(payload, OpCode::Data(code), is_final))
    };
    for (messages, expected, why) in [
        (
            vec![Message::Binary(Bytes::from_static(b"{}"))],
            CloseCode::Unsupported,
            "binary frame",
        ),
        (
            vec![Message::text(" ".repeat(LARGE))],
            CloseCode::Size,
            "larger than 1000 bytes",
        ),
        (
            // No part of it is too large.
            vec![
                frame(&[b' '; 600], Data::Text, false),
                frame(&[b' '; 600], Data::Continue, true),
            ],
            CloseCode::Size,
            "larger than 1000 bytes",
        ),
        (
            vec![frame(&[0xff], Data::Text, true)],
            CloseCode::Invalid,
            "broke",
        ),
        (
            vec![frame(b"{}", Data::Continue, true)],
            CloseCode::Protocol,
            "broke",
        ),
    ] {
        let mut bench = bench().await;
        let exchange = bench.request("{}");
        for message in messages {
            // What is too large is not read to its end before the server is told.
            bench.server.feed(message).await.unwrap();
        }
        let (flushed, said) = tokio::join!(bench.server.flush(), end(exchange));
        flushed.unwrap();
        assert!(said.contains(why), "{expected}: {said}");
        assert_eq!(code(bench.server).await, Some(expected), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_gets_its_frame_back() {
    let mut bench = bench().await;
    let exchange = bench.request("{}");
    let frame = CloseFrame {
        code: CloseCode::Restart,
        reason: Utf8Bytes::from_static("a new version"),
    };
    bench.server.close(Some(frame)).await.unwrap();
    assert_eq!(code(bench.server).await, Some(CloseCode::Restart));
    let said = end(exchange).await;
    assert!(
        said.contains("closed") && said.contains("a new version"),
        "{said}"
    );
}
