//! The way of a re-issue to its held call: to the one that is here, to the replica that has it, or to one that is taken
//! over from a process that is gone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::backend::Backend;
use super::order::{Answer, UpstreamRequest};
use super::registry::Found;
use super::seal::{self, State};
use super::shared::{Claim, Stake, Taken, Unavailable};
use super::takeover::shutting_down;
use super::{Mail, Reissue, leg_channel};
use crate::call::{AnswersDigest, Leg, Reply, Round, Rounds, already_answered, lost, unreached};
use crate::observe::chain;
use crate::session::Caller;
use crate::wire::modern::Method;
use crate::wire::object::RawObject;

/// How long a re-issue waits until it can be said which replicas live. After a start of Redis that takes as long as one may
/// be silent (`replica_ttl`); a client gives up after a minute.
const UNSETTLED_MAX: Duration = Duration::from_secs(30);

/// The pause before it is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What a re-issue brings to its call.
#[derive(Debug)]
pub struct Brought {
    /// The leg that it is.
    pub leg: Leg,
    /// What the call asks the server for.
    pub method: Method,
    /// Who brings it.
    pub caller: Arc<Caller>,
    /// Its raw `inputResponses` object.
    pub responses: Bytes,
    /// The request under a fresh id, if its state says that it has to run anew.
    pub rerun: Option<UpstreamRequest>,
    /// How far it may go.
    pub reach: Reach,
}

/// How far a re-issue may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To whichever replica has its call.
    Anywhere,
    /// No further: another replica has sent it here.
    HereAlone,
}

/// Where a re-issue is answered.
#[derive(Debug)]
pub enum Resumed {
    /// Here.
    Here(Answer),
    /// By the replica at this address.
    Elsewhere(String),
}

/// Where the call of a re-issue is.
#[derive(Debug)]
pub(super) enum Whereabouts {
    /// Here, or nowhere any more.
    Here,
    /// With the replica at this address.
    Elsewhere(String),
}

impl Backend {
    /// Brings a re-issue to its held call, whose state was opened and checked.
    pub async fn resume(self: &Arc<Self>, state: State, brought: Brought) -> Resumed {
        let responses = RawObject::parse(&brought.responses).unwrap_or_default();
        let answers = (state.round, seal::answers_digest(&responses));
        let reach = brought.reach;
        let located = match self
            .locate(&state, answers, brought.method, &brought.caller)
            .await
        {
            Ok(Whereabouts::Here) => self.hand_over(&state, answers, brought).await,
            Ok(Whereabouts::Elsewhere(address)) => Ok(Resumed::Elsewhere(address)),
            Err(reply) => Err(reply),
        };
        match located {
            Ok(Resumed::Elsewhere(_)) if reach == Reach::HereAlone => {
                let why = "the call has just moved to another replica";
                Resumed::Here(Answer::Reply(unreached(why)))
            }
            Ok(resumed) => resumed,
            Err(reply) => Resumed::Here(Answer::Reply(reply)),
        }
    }

    /// Finds the call of a re-issue: it is here, or was, or another replica has it, or it is taken over now.
    ///
    /// # Errors
    /// What the re-issue is told when the call is lost, or cannot be found at the moment.
    async fn locate(
        self: &Arc<Self>,
        state: &State,
        (round, digest): (Round, AnswersDigest),
        method: Method,
        caller: &Arc<Caller>,
    ) -> Result<Whereabouts, Reply> {
        loop {
            match self.registry.find(state.hold, round, digest) {
                Found::Live(_) | Found::Outcome(_) | Found::Answered => {
                    return Ok(Whereabouts::Here);
                }
                Found::Arriving(settled) => settled.cancelled().await,
                Found::Nothing if self.learn(state).await => {}
                // Its calls are left to others by now.
                Found::Nothing if self.stop.is_cancelled() => return Err(shutting_down()),
                Found::Nothing if state.owner == self.replica => {
                    return match self.claim(state).await? {
                        Whereabouts::Here => Err(over(state)),
                        elsewhere @ Whereabouts::Elsewhere(_) => Ok(elsewhere),
                    };
                }
                Found::Nothing => match self.take_over_aside(state, method, caller).await? {
                    Whereabouts::Here => {}
                    elsewhere @ Whereabouts::Elsewhere(_) => return Ok(elsewhere),
                },
            }
        }
    }

    /// How the call ended, if another process remembers.
    async fn recalled(&self, state: &State) -> Option<Rounds> {
        let recalled = self.shared.recall(state.hold).await.ok().flatten();
        recalled.and_then(|bytes| Rounds::from_bytes(&bytes))
    }

    /// Whether another process remembers how the call ended.
    pub(super) async fn is_remembered(&self, state: &State) -> bool {
        self.recalled(state).await.is_some()
    }

    /// Learns how the call ended, if another process remembers.
    async fn learn(&self, state: &State) -> bool {
        let Some(rounds) = self.recalled(state).await else {
            return false;
        };
        let until = self.clock.now() + self.outcome_ttl;
        self.registry.learn(state.hold, rounds, until);
        true
    }

    /// Hands a re-issue to the driver of its call.
    ///
    /// # Errors
    /// What it is told instead.
    async fn hand_over(
        self: &Arc<Self>,
        state: &State,
        (round, digest): (Round, AnswersDigest),
        brought: Brought,
    ) -> Result<Resumed, Reply> {
        let find = || self.registry.find(state.hold, round, digest);
        let mailbox = match find() {
            Found::Live(mailbox) => mailbox,
            settled => return Err(outcome(settled)),
        };
        // A place first: a driver that leaves its call to others waits for those who have one, so that nothing is noted
        // as given which is not.
        let Ok(place) = mailbox.clone().reserve_owned().await else {
            return Err(outcome(find()));
        };
        let taken = self.take(state, (round, digest)).await;
        let were_given = match taken {
            Taken::Fresh => false,
            // Whether it has given them, this process knows by itself.
            Taken::Again(by) => by != self.replica,
            Taken::Otherwise => return Err(already_answered()),
            Taken::Lost(_) => {
                drop(place);
                return self.moved(state, &mailbox).await;
            }
        };
        let Brought {
            leg,
            caller,
            responses,
            rerun,
            ..
        } = brought;
        let (sink, stream) = leg_channel();
        let reissue = Reissue {
            leg,
            round,
            digest,
            responses,
            rerun,
            caller,
            were_given,
            sink,
        };
        // A message that its driver does not hear any more goes down with the last end of the mailbox.
        drop(place.send(Mail::Reissue(Box::new(reissue))));
        drop(mailbox);
        if let Some(answer) = Answer::of(stream).await {
            return Ok(Resumed::Here(answer));
        }
        // The driver has ended meanwhile and left its outcome behind.
        Err(outcome(find()))
    }

    /// Notes that the answers are about to be given. Should nobody be there to note it with, a call that is here goes on
    /// all the same: that another process has it is the rare case, and for that one nobody would be there either.
    async fn take(&self, state: &State, (round, digest): (Round, AnswersDigest)) -> Taken {
        let taken = self.shared.take(self.stake(state), round, digest).await;
        taken.unwrap_or_else(|error| {
            let error = chain(&error);
            tracing::warn!(hold = ?state.hold, error, "answers are given without a note");
            Taken::Fresh
        })
    }

    /// What this process wants with a call. It is noted for as long as anybody may come for it.
    fn stake(&self, state: &State) -> Stake {
        Stake {
            hold: state.hold,
            sealed_owner: state.owner,
            me: self.replica,
            ttl: self.limits.hold_ttl + self.outcome_ttl,
        }
    }

    /// Another process has taken the call over that is here: it is left to it.
    async fn moved(&self, state: &State, mailbox: &mpsc::Sender<Mail>) -> Result<Resumed, Reply> {
        tracing::warn!(hold = ?state.hold, "a held call was taken over by another replica");
        let _ = mailbox.send(Mail::Moved).await;
        match self.claim(state).await? {
            Whereabouts::Elsewhere(address) => Ok(Resumed::Elsewhere(address)),
            // Whoever had it is gone again.
            Whereabouts::Here => Err(unreached("the call is between two replicas")),
        }
    }

    /// To whom the call belongs: to this process from now on, unless another one has it that lives. As long as nobody can
    /// say who lives, this waits.
    ///
    /// # Errors
    /// What a re-issue is told when nobody can say.
    pub(super) async fn claim(&self, state: &State) -> Result<Whereabouts, Reply> {
        let begun = Instant::now();
        loop {
            let why = match self.try_claim(state).await {
                Ok(Some(whereabouts)) => return Ok(whereabouts),
                Ok(None) => Unavailable::Unsettled,
                Err(why) => why,
            };
            let may_pass = matches!(why, Unavailable::Unsettled);
            if !may_pass || begun.elapsed() >= UNSETTLED_MAX {
                let error = chain(&why);
                tracing::warn!(hold = ?state.hold, error, "nobody says who has a held call");
                let why = "which replica holds this call cannot be found out at the moment";
                return Err(unreached(why));
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    /// Nothing when the owner has gone just now.
    async fn try_claim(&self, state: &State) -> Result<Option<Whereabouts>, Unavailable> {
        match self.shared.claim(self.stake(state)).await? {
            Claim::Mine(_) => Ok(Some(Whereabouts::Here)),
            Claim::Other(owner) => {
                let address = self.shared.address_of(owner).await?;
                tracing::debug!(hold = ?state.hold, ?owner, "another replica has a held call");
                Ok(address.map(Whereabouts::Elsewhere))
            }
        }
    }
}

/// What a re-issue gets whose call was here a moment ago.
fn outcome(found: Found) -> Reply {
    match found {
        Found::Outcome(reply) => reply,
        Found::Answered => already_answered(),
        Found::Nothing | Found::Arriving(_) | Found::Live(_) => {
            unreached("the call has just been left to another replica")
        }
    }
}

/// What a re-issue gets whose call has ended, and is not remembered any more.
fn over(state: &State) -> Reply {
    let why = "the call of this requestState is over";
    lost(why, state.is_safe_to_repeat)
}
