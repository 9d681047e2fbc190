//! Calls that another process began.

use super::*;

fn id(n: u32) -> ServerId {
    ServerId::new(&raw(&n.to_string())).unwrap()
}

fn open(n: u32, key: &str, entry: Option<&str>) -> Asked {
    Asked {
        id: id(n),
        open: Some(Open {
            key: key.into(),
            entry: entry.map(Into::into),
        }),
    }
}

fn settled(n: u32) -> Asked {
    Asked {
        id: id(n),
        open: None,
    }
}

/// A call in round 3 that comes from elsewhere.
fn bench(asked: Vec<Asked>) -> Bench {
    let spec = spec(Method::ToolsCall, ALL);
    let call = Call::taken_over(
        spec,
        Arc::new(limits()),
        Arc::default(),
        (Round(3), asked),
        Moment::default(),
    );
    Bench::of(call.unwrap())
}

#[test]
fn a_question_that_the_server_says_again_is_answered_under_its_old_key() {
    let mut bench = bench(vec![settled(4), open(5, "a", None)]);
    assert!(bench.call.is_parked() && bench.call.is_recalling());
    bench.asks(4, "old");
    assert!(bench.call.is_recalling());
    // Under another name it would be `b`.
    bench.asks(5, "b");
    assert!(!bench.call.is_recalling());
    bench.reissues(3, r#"{"a":{"action":"accept","content":{"b":true}}}"#);
    bench.did(&["result 5"]);
    bench.server(DONE);
    bench.did(&["reuse", "reply 2 done", "end"]);
}

#[test]
fn a_question_that_is_carried_along_is_checked_like_any_other() {
    let entry = r#"{"method":"elicitation/create","params":{"message":"m","mode":"form","requestedSchema":{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}}}"#;
    let mut bench = bench(vec![open(5, "a", Some(entry))]);
    assert!(!bench.call.is_recalling());
    bench.reissues(3, r#"{"a":{"action":"accept","content":{"a":1}}}"#);
    bench.did(&["reply 2 asks a as 4"]);
    bench.reissues(4, YES);
    bench.did(&["result 5"]);
}

#[test]
fn a_question_that_is_none_is_not_taken_over() {
    let spec = spec(Method::ToolsCall, ALL);
    let asked = vec![open(5, "a", Some("{}"))];
    let round = (Round(1), asked);
    let taken = Call::taken_over(
        spec,
        Arc::new(limits()),
        Arc::default(),
        round,
        Moment::default(),
    );
    assert!(taken.is_none());
}

#[test]
fn a_question_that_is_new_is_asked_with_the_answer_to_the_old_one() {
    let mut bench = bench(vec![open(5, "a", None)]);
    bench.asks(5, "a");
    bench.asks(6, "b");
    bench.reissues(3, YES);
    bench.did(&["result 5"]);
    bench.waits();
    bench.did(&["reply 2 asks b as 4"]);
}

#[test]
fn an_answer_that_was_given_before_is_not_given_again() {
    let mut bench = bench(vec![open(5, "a", None)]);
    bench.asks(5, "a");
    bench.were_given = true;
    bench.reissues(3, YES);
    bench.did(&[]);
    bench.server(DONE);
    bench.did(&["reuse", "reply 2 done", "end"]);
    assert!(bench.answered.is_empty());
}

#[test]
fn a_result_that_is_said_again_is_what_the_re_issue_gets() {
    let mut bench = bench(vec![open(5, "a", None)]);
    bench.asks(5, "a");
    bench.server(DONE);
    // Its question was left open as far as is known.
    bench.did(&["retire", "end"]);
    assert!(matches!(
        bench
            .call
            .take_rounds()
            .judge(Round(3), AnswersDigest([9; 16])),
        Verdict::Replay(Reply::Result(_))
    ));
}

#[test]
fn a_question_that_the_server_takes_back_need_not_be_said_again() {
    let mut bench = bench(vec![open(5, "a", None)]);
    bench
        .server(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#);
    assert!(!bench.call.is_recalling());
    bench.reissues(3, YES);
    bench.did(&[]);
    bench.server(DONE);
    bench.did(&["reuse", "reply 2 done", "end"]);
}

#[test]
fn rounds_before_and_after_the_one_that_is_open_are_refused() {
    let mut bench = bench(vec![]);
    bench.reissues(2, YES);
    bench.did(&["reply 2 answered"]);
    bench.reissues(4, YES);
    bench.did(&["reply 3 answered"]);
}

#[test]
fn a_call_that_runs_anew_hears_the_questions_of_its_new_session() {
    let mut bench = bench(vec![settled(0), open(1, "a", None)]);
    bench.asks(1, "a");
    bench.reissues(3, YES);
    bench.server(&visits(7, 1));
    bench.did(&["result 1", "reuse", "reply 2 asks elicitation as 4 rerun"]);
    bench.reissues(4, r#"{"elicitation":{"action":"accept"}}"#);
    bench.did(&["start"]);
    // Each session counts from the beginning.
    bench.asks(0, "b");
    bench.waits();
    bench.did(&["reply 3 asks b as 5"]);
}
