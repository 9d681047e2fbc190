//! Slow calls over several legs.

use super::*;

#[test]
fn a_slow_call_is_stretched_over_legs_and_its_last_leg_stays_open() {
    const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
    let mut bench = Bench::new(Method::ToolsCall, "{}");
    // The server is not silent, it is slow.
    let slow = |bench: &mut Bench| {
        bench.now = bench.now + Duration::from_secs(15);
        bench.server(PROGRESS);
        bench.done.clear();
    };
    slow(&mut bench);
    bench.waits();
    bench.did(&["reply 1 waits as 1"]);
    assert!(bench.call.is_parked());
    bench.reissues(1, "{}");
    bench.reissues(1, "{}");
    slow(&mut bench);
    bench.waits();
    bench.did(&["reply 2 waits as 2", "reply 3 waits as 2"]);
    // Beyond the bound it stays open.
    bench.reissues(2, "{}");
    slow(&mut bench);
    slow(&mut bench);
    bench.server(DONE);
    bench.did(&["reuse", "reply 4 done", "end"]);
}

#[test]
fn a_repeat_that_joins_after_a_while_is_stretched_too() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.asks(0, "a");
    bench.waits();
    let gone = bench.reissues(1, YES);
    bench.did(&["reply 1 asks a as 1", "result 0"]);
    // Its client leaves shortly before it would have been stretched, and the repeat comes shortly after.
    bench.now = bench.now + Duration::from_secs(15);
    bench.feed(Event::LegGone(LegId(gone)));
    bench.waits();
    bench.did(&[]);
    bench.reissues(1, YES);
    bench.server(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    bench.waits();
    bench.did(&["result 1", "reply 3 waits as 2"]);
}

#[test]
fn what_comes_between_two_legs_waits_for_the_next() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.now = Moment(Duration::from_secs(10));
    bench.server(r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#);
    bench.waits();
    bench.did(&["result 0", "reply 1 waits as 1"]);
    bench.asks(1, "a");
    bench.reissues(1, "{}");
    bench.did(&["reply 2 asks a as 2"]);
    bench.reissues(2, YES);
    bench.did(&["result 1"]);
    bench.server(DONE);
    bench.did(&["reuse", "reply 3 done", "end"]);
}

#[test]
fn a_call_that_waits_for_its_session_is_stretched_too() {
    let mut bench = Bench::without_session(Method::ToolsCall, ALL);
    bench.waits();
    bench.did(&["reply 1 waits as 1"]);
    bench.reissues(1, "{}");
    bench.did(&[]);
    bench.departs();
    bench.server(DONE);
    bench.did(&["reuse", "reply 2 done", "end"]);
}

#[test]
fn a_session_that_comes_between_two_legs_waits_for_the_next() {
    let mut bench = Bench::without_session(Method::ToolsCall, ALL);
    bench.waits();
    bench.feed(Event::Leased(Arc::default()));
    assert!(bench.call.is_parked(), "its client may not come back");
    bench.waits();
    bench.did(&["reply 1 waits as 1", "retire", "end"]);
}

#[test]
fn a_call_that_runs_anew_is_stretched_too() {
    let mut bench = Bench::new(Method::ToolsCall, ALL);
    bench.server(
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","message":"m","elicitationId":"e","url":"https://example.com/"}]}}}"#,
    );
    bench.did(&["reuse", "reply 1 asks elicitation as 1 rerun"]);
    bench.reissues(1, r#"{"elicitation":{"action":"accept"}}"#);
    assert_eq!(bench.call.id(), UpstreamId(102));
    bench.did(&["start"]);
    bench.waits();
    bench.did(&["reply 2 waits as 2"]);
    bench.reissues(2, "{}");
    assert_eq!(bench.call.id(), UpstreamId(102), "it runs already");
    bench.did(&[]);
}
