//! What comes in on a channel reaches whom it concerns, and nobody else.

use std::sync::Arc;

use futures_util::FutureExt;

use super::*;
use crate::upstream::error::ChannelEnd;

/// A channel whose messages go nowhere by themselves.
struct Bench {
    channel: Channel,
    hub: Arc<Hub>,
    out: mpsc::Receiver<Parcel>,
}

fn bench() -> Bench {
    let (channel, Carriage { hub, .. }, out) = Channel::queued(Duration::from_secs(1));
    Bench { channel, hub, out }
}

impl Bench {
    fn request(&self, id: u64, claim: Claim) -> Exchange {
        let body = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#));
        self.channel.request(UpstreamId(id), body, claim)
    }

    async fn arrives(&self, message: &str) {
        self.hub.arrived(Bytes::from(message.to_owned())).await;
    }
}

/// What an exchange has got by now.
fn got(exchange: &mut Exchange) -> Option<String> {
    let next = exchange.next_message().now_or_never()?;
    next.unwrap()
        .map(|message| String::from_utf8(message.to_vec()).unwrap())
}

fn heard(general: &mut General) -> Option<String> {
    let next = general.next().now_or_never()?;
    next.map(|message| String::from_utf8(message.to_vec()).unwrap())
}

const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}"#;

fn result(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

#[tokio::test]
async fn responses_and_progress_go_to_their_request() {
    let bench = bench();
    let (mut one, mut two) = (bench.request(1, Claim::Own), bench.request(2, Claim::Own));
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}"#;
    bench.arrives(progress).await;
    bench.arrives(&result("\"2\"")).await;
    bench.arrives(&result("1")).await;
    bench.arrives(&result("3")).await;
    assert_eq!(got(&mut one).as_deref(), Some(progress));
    assert_eq!(got(&mut one), Some(result("1")));
    assert_eq!(got(&mut two), Some(result("\"2\"")));
    assert_eq!((got(&mut one), got(&mut two)), (None, None));
}

#[tokio::test]
async fn what_no_id_ties_goes_to_who_claims_all_in_its_order_or_to_the_general_stream() {
    let bench = bench();
    let mut general = bench.channel.general().unwrap();
    bench.arrives(QUESTION).await;
    let mut other = bench.request(1, Claim::Own);
    bench.arrives(QUESTION).await;
    assert_eq!(got(&mut other).as_deref(), Some(QUESTION), "alone");
    let another = bench.request(3, Claim::Own);
    bench.arrives(LOG).await;
    drop(another);
    let mut claiming = bench.request(2, Claim::All);
    let batch = format!("[{LOG},{QUESTION},{}]", result("2"));
    bench.arrives(&batch).await;
    bench.arrives(LOG).await;
    assert_eq!(heard(&mut general).as_deref(), Some(QUESTION));
    assert_eq!(heard(&mut general).as_deref(), Some(LOG));
    assert_eq!(got(&mut claiming).as_deref(), Some(LOG));
    assert_eq!(got(&mut claiming).as_deref(), Some(QUESTION));
    assert_eq!(got(&mut claiming), Some(result("2")));
    assert_eq!(got(&mut other).as_deref(), Some(LOG), "after its end");
    assert_eq!(got(&mut other), None);
    assert!(bench.channel.general().is_err(), "there is one such stream");
}

/// Real servers answer unknown methods with an error under another id or none.
#[tokio::test]
async fn an_error_under_a_wrong_id_is_the_answer_of_the_only_request_that_waits() {
    let error = |id: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#)
    };
    for id in ["null", "\"server-error\"", "99", "0", "1"] {
        let bench = bench();
        let mut only = bench.request(7, Claim::Own);
        bench.arrives(&error(id)).await;
        assert_eq!(got(&mut only), Some(error(id)));
    }
    // What may answer an older request that was given up does not answer this one.
    let bench = bench();
    drop(bench.request(6, Claim::Own));
    let mut only = bench.request(7, Claim::Own);
    bench.arrives(&error("6")).await;
    assert_eq!(got(&mut only), None);
    // Of two nobody knows which is meant.
    let mut other = bench.request(8, Claim::Own);
    bench.arrives(&error("null")).await;
    assert_eq!((got(&mut only), got(&mut other)), (None, None));
}

#[tokio::test]
async fn a_response_that_is_not_understood_reaches_its_request() {
    let bench = bench();
    let mut exchange = bench.request(1, Claim::Own);
    let nonsense = r#"{"jsonrpc":"2.0","id":1,"error":["no object"]}"#;
    bench.arrives(nonsense).await;
    assert_eq!(got(&mut exchange).as_deref(), Some(nonsense));
}

#[tokio::test]
async fn a_response_that_cannot_be_read_reaches_its_request_and_no_other() {
    let unreadable = |id: u64| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":NaN}}"#);
    let bench = bench();
    let mut general = bench.channel.general().unwrap();
    let (mut one, mut two) = (bench.request(1, Claim::Own), bench.request(2, Claim::Own));
    bench.arrives(&unreadable(3)).await;
    bench.arrives(&format!("\u{feff}{}", unreadable(2))).await;
    assert_eq!(got(&mut two), Some(unreadable(2)));
    let end = two.next_message().now_or_never();
    assert!(matches!(end, Some(Ok(None))), "{end:?}");
    // It is nonsense to whoever gets it, and answers nothing.
    assert_eq!(heard(&mut general), Some(unreadable(3)));
    assert_eq!(got(&mut one), None);
    bench.arrives(&unreadable(1)).await;
    assert_eq!(got(&mut one), Some(unreadable(1)));
}

#[tokio::test]
async fn who_waits_at_the_end_is_told_why_after_what_came_before() {
    let bench = bench();
    let mut exchange = bench.request(1, Claim::All);
    let mut general = bench.channel.general().unwrap();
    bench.arrives(LOG).await;
    bench.hub.over(ChannelEnd::Closed(None));
    bench.hub.over(ChannelEnd::Stopped);
    assert_eq!(got(&mut exchange).as_deref(), Some(LOG));
    let end = exchange.next_message().await.unwrap_err();
    assert!(
        matches!(&end, UpstreamError::Over(end) if matches!(**end, ChannelEnd::Closed(None))),
        "{end}"
    );
    assert_eq!(general.next().await, None);
    let mut late = bench.request(2, Claim::Own);
    let gone = late.next_message().await.unwrap_err();
    assert!(matches!(gone, UpstreamError::SessionGone) && !late.was_sent());
    let gone = bench.channel.send(Bytes::new()).await.unwrap_err();
    assert!(matches!(gone, UpstreamError::SessionGone));
}

#[tokio::test]
async fn a_request_that_is_given_up_before_it_leaves_never_leaves() {
    let mut bench = bench();
    let mut exchange = bench.request(1, Claim::All);
    assert!(exchange.next_message().now_or_never().is_none());
    assert!(!exchange.give_up());
    let parcel = bench.out.recv().await.unwrap();
    assert!(parcel.go().is_none());
    // One that has left is another matter.
    let mut exchange = bench.request(2, Claim::All);
    assert!(exchange.next_message().now_or_never().is_none());
    let (_, done) = bench.out.recv().await.unwrap().go().unwrap();
    done.send(Ok(())).unwrap();
    exchange.departed().await.unwrap();
    assert!(exchange.was_sent() && exchange.give_up());
}

#[tokio::test]
async fn an_exchange_that_is_dropped_leaves_nothing_behind() {
    let bench = bench();
    let mut general = bench.channel.general().unwrap();
    drop(bench.request(1, Claim::All));
    bench.arrives(&result("1")).await;
    bench.arrives(QUESTION).await;
    assert_eq!(heard(&mut general).as_deref(), Some(QUESTION));
}

#[tokio::test]
async fn a_request_that_claims_its_response_alone_gets_nothing_else() {
    let bench = bench();
    let mut general = bench.channel.general().unwrap();
    let mut exchange = bench.request(1, Claim::Response);
    bench.arrives(QUESTION).await;
    bench.arrives(&result("1")).await;
    assert_eq!(got(&mut exchange), Some(result("1")));
    assert_eq!(heard(&mut general).as_deref(), Some(QUESTION));
}
