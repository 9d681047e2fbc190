//! Which round a re-issue belongs to, and what a repeated one gets.
//!
//! A round begins when an `InputRequiredResult` is sealed and is answered by the first re-issue that brings
//! its state. The same answers again join the running leg or get the remembered reply; other answers are
//! refused, since the first ones may have reached the server (README, invariant 3).

use super::reply::{Reply, failed};

/// Counts the `InputRequiredResult`s of a call; 0 before the first.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Round(pub u32);

/// Tells the answers of one re-issue from those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswersDigest(pub [u8; 16]);

/// What a re-issue is to its call.
#[derive(Debug)]
pub enum Verdict {
    /// The first answers to the open round.
    Fresh,
    /// A repeat while the leg it repeats is still running.
    Join,
    /// A repeat of a leg that is over, or a late answer to a call that ended meanwhile.
    Replay(Reply),
    /// The round was answered otherwise, or is long over.
    Answered,
}

/// The rounds of one call.
#[derive(Debug, Default)]
pub struct Rounds {
    pub(super) open: Round,
    pub(super) answered: Option<(Round, AnswersDigest)>,
    /// The reply of the leg that answered, once there is one.
    pub(super) reply: Option<Reply>,
    /// The outcome of a call that ended while its round was open.
    pub(super) late: Option<Reply>,
}

impl Rounds {
    /// Those of a call that waits for the answers to `open`.
    #[must_use]
    pub fn resumed(open: Round) -> Self {
        Self {
            open,
            ..Self::default()
        }
    }

    /// The latest answers that were taken.
    #[must_use]
    pub fn answered(&self) -> Option<(Round, AnswersDigest)> {
        self.answered
    }

    /// Whether any answer was ever taken: such a leg is worth a grace when its client goes away.
    #[must_use]
    pub fn was_answered(&self) -> bool {
        self.answered.is_some()
    }

    /// Whether this round was not opened yet.
    #[must_use]
    pub fn is_behind(&self, round: Round) -> bool {
        self.open < round
    }

    /// Whether a re-issue can ever come: a state was given out.
    #[must_use]
    pub fn was_asked(&self) -> bool {
        self.open > Round::default()
    }

    /// The round that the next `InputRequiredResult` opens.
    #[must_use]
    pub fn next(&self) -> Round {
        Round(self.open.0.saturating_add(1))
    }

    /// Opens the next round; `reply` is what the leg of the round before gets.
    pub fn ask(&mut self, reply: &Reply) {
        self.open = self.next();
        self.reply = self.answered.is_some().then(|| reply.clone());
    }

    /// Takes note of how the call ended.
    ///
    /// A challenge concerns the credentials of one leg: repeated to a client that has renewed them meanwhile, it
    /// would send that client round in circles. What repeats are told is that the call is over.
    pub fn finish(&mut self, reply: &Reply) {
        let over;
        let reply = match reply {
            Reply::Challenge(_) => {
                over = failed("the server refused the credentials of the answer", true);
                &over
            }
            Reply::Result(_) | Reply::Error(_) => reply,
        };
        let is_open = self.open > Round::default()
            && self.answered.is_none_or(|(round, _)| round < self.open);
        if is_open {
            self.late = Some(reply.clone());
        } else {
            self.reply = self.answered.is_some().then(|| reply.clone());
        }
    }

    /// Judges a re-issue; a fresh one is taken as the answer of its round.
    pub fn judge(&mut self, round: Round, digest: AnswersDigest) -> Verdict {
        if self.answered == Some((round, digest)) {
            return self.reply.clone().map_or(Verdict::Join, Verdict::Replay);
        }
        if round > self.open
            && let Some(outcome) = self.late.as_ref().or(self.reply.as_ref())
        {
            // It was asked by a process that is gone, which went further than the state says by which the call was taken over.
            // The call has ended since.
            return Verdict::Replay(outcome.clone());
        }
        let open = round == self.open && self.answered.is_none_or(|(answered, _)| answered < round);
        if !open || round == Round::default() {
            return Verdict::Answered;
        }
        self.answered = Some((round, digest));
        self.reply = self.late.take();
        self.reply.clone().map_or(Verdict::Fresh, Verdict::Replay)
    }

    /// Whether the outcome waits for a client that has not answered its last question.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.late.is_some()
    }

    /// How many bytes are remembered.
    #[must_use]
    pub fn weight(&self) -> usize {
        [&self.reply, &self.late]
            .into_iter()
            .flatten()
            .map(Reply::weight)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::call::AuthChallenge;

    const A: AnswersDigest = AnswersDigest([1; 16]);
    const B: AnswersDigest = AnswersDigest([2; 16]);

    fn reply(text: &'static str) -> Reply {
        Reply::Result(Bytes::from_static(text.as_bytes()))
    }

    fn shown(verdict: Verdict) -> String {
        match verdict {
            Verdict::Replay(Reply::Result(result)) => String::from_utf8(result.to_vec()).unwrap(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_round_is_answered_once_and_repeats_get_its_reply() {
        let mut rounds = Rounds::default();
        rounds.ask(&reply("first question"));
        assert_eq!(shown(rounds.judge(Round(1), A)), "Fresh");
        assert_eq!(shown(rounds.judge(Round(1), A)), "Join");
        assert_eq!(shown(rounds.judge(Round(1), B)), "Answered");
        rounds.ask(&reply("second question"));
        assert_eq!(shown(rounds.judge(Round(1), A)), "second question");
        assert_eq!(shown(rounds.judge(Round(1), B)), "Answered");
        assert_eq!(shown(rounds.judge(Round(2), B)), "Fresh");
        assert_eq!(shown(rounds.judge(Round(1), A)), "Answered");
        rounds.finish(&reply("done"));
        assert_eq!(shown(rounds.judge(Round(2), B)), "done");
        assert_eq!(shown(rounds.judge(Round(2), A)), "Answered");
    }

    #[test]
    fn the_late_answer_of_an_ended_call_gets_its_outcome() {
        let mut rounds = Rounds::default();
        rounds.ask(&reply("question"));
        rounds.finish(&reply("gave up"));
        assert_eq!(shown(rounds.judge(Round(1), B)), "gave up");
        assert_eq!(shown(rounds.judge(Round(1), B)), "gave up");
        assert_eq!(shown(rounds.judge(Round(1), A)), "Answered");
    }

    #[test]
    fn a_round_that_was_asked_elsewhere_gets_the_outcome_of_the_call() {
        for is_answered in [true, false] {
            let mut rounds = Rounds::resumed(Round(1));
            if is_answered {
                assert_eq!(shown(rounds.judge(Round(1), A)), "Fresh");
            }
            rounds.finish(&reply("done"));
            assert_eq!(shown(rounds.judge(Round(2), B)), "done");
            assert_eq!(shown(rounds.judge(Round(1), A)), "done");
        }
    }

    #[test]
    fn a_challenge_is_not_repeated() {
        let mut rounds = Rounds::default();
        rounds.ask(&reply("question"));
        assert_eq!(shown(rounds.judge(Round(1), A)), "Fresh");
        rounds.finish(&Reply::Challenge(Arc::new(AuthChallenge {
            forbidden: false,
            www_authenticate: Vec::new(),
            why: "",
        })));
        let again = rounds.judge(Round(1), A);
        assert!(
            matches!(again, Verdict::Replay(Reply::Error(_))),
            "{again:?}"
        );
    }

    #[test]
    fn rounds_that_were_never_opened_are_refused() {
        let mut rounds = Rounds::default();
        assert_eq!(shown(rounds.judge(Round(0), A)), "Answered");
        assert_eq!(shown(rounds.judge(Round(1), A)), "Answered");
    }
}
