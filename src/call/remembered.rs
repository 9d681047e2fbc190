//! The rounds of an ended call as bytes, for other processes to answer its repeats from.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::reply::Reply;
use super::rounds::{AnswersDigest, Round, Rounds};
use crate::wire::error::ErrorObject;

/// The form of [`Rounds`].
#[derive(Serialize, Deserialize)]
struct Form {
    open: Round,
    answered: Option<(Round, [u8; 16])>,
    reply: Option<ReplyForm>,
    late: Option<ReplyForm>,
}

/// The form of a [`Reply`]. A challenge is never remembered.
#[derive(Serialize, Deserialize)]
enum ReplyForm {
    Result(Vec<u8>),
    Error {
        code: i64,
        message: String,
        data: Option<String>,
    },
}

impl Rounds {
    /// What [`Rounds::from_bytes`] reads.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let form = Form {
            open: self.open,
            answered: self.answered.map(|(round, digest)| (round, digest.0)),
            reply: self.reply.as_ref().and_then(ReplyForm::of),
            late: self.late.as_ref().and_then(ReplyForm::of),
        };
        // Into a vector nothing of it can fail to be written.
        postcard::to_allocvec(&form).unwrap_or_default()
    }

    /// The rounds that were written; nothing for anything else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (form, rest) = postcard::take_from_bytes::<Form>(bytes).ok()?;
        rest.is_empty().then(|| Self {
            open: form.open,
            answered: form
                .answered
                .map(|(round, digest)| (round, AnswersDigest(digest))),
            reply: form.reply.and_then(ReplyForm::into_reply),
            late: form.late.and_then(ReplyForm::into_reply),
        })
    }
}

impl ReplyForm {
    fn of(reply: &Reply) -> Option<Self> {
        match reply {
            Reply::Result(result) => Some(Self::Result(result.to_vec())),
            Reply::Error(error) => Some(Self::Error {
                code: error.code,
                message: error.message.clone(),
                data: error.data.as_ref().map(|data| data.get().to_owned()),
            }),
            Reply::Challenge(_) => None,
        }
    }

    fn into_reply(self) -> Option<Reply> {
        Some(match self {
            Self::Result(result) => Reply::Result(Bytes::from(result)),
            Self::Error {
                code,
                message,
                data,
            } => {
                let data = data.map(RawValue::from_string).transpose().ok()?;
                Reply::Error(Arc::new(ErrorObject {
                    code,
                    message,
                    data,
                }))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Verdict, failed};

    const A: AnswersDigest = AnswersDigest([1; 16]);

    #[test]
    fn an_outcome_is_the_same_elsewhere() {
        for outcome in [
            Reply::Result(Bytes::from_static(b"{\"a\":1}")),
            failed("the server is gone", true),
        ] {
            let mut rounds = Rounds::default();
            rounds.ask(&Reply::Result(Bytes::from_static(b"question")));
            rounds.finish(&outcome);
            let mut elsewhere = Rounds::from_bytes(&rounds.to_bytes()).unwrap();
            for verdict in [elsewhere.judge(Round(1), A), rounds.judge(Round(1), A)] {
                let Verdict::Replay(reply) = verdict else {
                    panic!("{verdict:?}");
                };
                assert_eq!(format!("{reply:?}"), format!("{outcome:?}"));
            }
            let again = Rounds::from_bytes(&rounds.to_bytes()).unwrap();
            assert_eq!(format!("{again:?}"), format!("{rounds:?}"));
        }
    }

    #[test]
    fn other_bytes_are_no_rounds() {
        let bytes = Rounds::default().to_bytes();
        assert!(Rounds::from_bytes(&bytes).is_some());
        for end in 0..bytes.len() {
            assert!(Rounds::from_bytes(&bytes[..end]).is_none(), "cut at {end}");
        }
        assert!(Rounds::from_bytes(&[&bytes[..], b"x"].concat()).is_none());
    }
}
