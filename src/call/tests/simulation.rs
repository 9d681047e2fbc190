//! Whatever comes in which order: each leg gets one reply, each question one answer, the call ends once.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

/// One step of an arbitrary life.
#[derive(Clone, Debug)]
enum Step {
    Ask(u32, usize),
    Withdraw(u32),
    Progress,
    Done,
    Error,
    Visit,
    Lost,
    Reissue(u32, usize),
    Gone(u64),
    Wait,
    Abandon,
}

const ANSWERS: [&str; 6] = [
    YES,
    "{}",
    r#"{"a":{"action":"accept","content":{"a":"no"}}}"#,
    r#"{"a":{"action":"cancel"},"b":{"action":"accept","content":{"b":false}}}"#,
    r#"{"b":{"action":"decline"},"a_2":{"action":"decline"}}"#,
    r#"{"elicitation":{"action":"accept"}}"#,
];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u32, 0..2_usize).prop_map(|(id, property)| Step::Ask(id, property)),
        1 => (0..6_u32).prop_map(Step::Withdraw),
        1 => Just(Step::Progress),
        1 => Just(Step::Done),
        1 => Just(Step::Error),
        1 => Just(Step::Visit),
        1 => Just(Step::Lost),
        5 => (0..5_u32, 0..ANSWERS.len()).prop_map(|(round, answers)| Step::Reissue(round, answers)),
        2 => (1..8_u64).prop_map(Step::Gone),
        4 => Just(Step::Wait),
        1 => Just(Step::Abandon),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_each_leg_has_one_reply_and_each_question_one_answer(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut bench = Bench::new(Method::ToolsCall, ALL);
        let mut asked = HashSet::new();
        let mut gone = HashSet::new();
        for step in steps {
            match step {
                // Real servers do not use an id twice; a replay of the same one is told apart elsewhere.
                Step::Ask(id, property) if asked.insert(id) => bench.asks(id, ["a", "b"][property]),
                Step::Ask(..) => {}
                Step::Withdraw(id) => bench.server(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
                )),
                Step::Progress => bench.server(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#),
                Step::Done => bench.server(&DONE.replace('7', &bench.call.id().0.to_string())),
                Step::Error => {
                    let id = bench.call.id().0;
                    bench.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"m"}}}}"#));
                }
                Step::Visit => bench.server(&visits(bench.call.id().0, 1)),
                Step::Lost => bench.feed(Event::Lost(Loss::Failed { message: "m".into(), may_have_run: true })),
                Step::Reissue(round, answers) if !bench.call.is_ended() => {
                    bench.reissues(round, ANSWERS[answers]);
                }
                Step::Reissue(..) => {}
                Step::Gone(leg) if leg <= bench.legs && !bench.replies.contains_key(&leg) => {
                    gone.insert(leg);
                    bench.feed(Event::LegGone(LegId(leg)));
                }
                Step::Gone(_) => {}
                Step::Wait => bench.waits(),
                Step::Abandon => bench.feed(Event::Abandon("m")),
            }
            let is_over = bench.call.is_ended();
            prop_assert_eq!(bench.ends, usize::from(is_over));
            prop_assert_eq!(bench.call.deadline().is_none(), is_over);
        }
        bench.feed(Event::Abandon("the end"));
        prop_assert_eq!(bench.ends, 1);
        for leg in 1..=bench.legs {
            let replies = bench.replies.get(&leg).copied().unwrap_or(0);
            prop_assert_eq!(replies, usize::from(!gone.contains(&leg)), "leg {}", leg);
        }
        for (id, answers) in &bench.answered {
            prop_assert_eq!(*answers, 1, "question {}", id);
        }
    }
}
