//! The way of a re-issue to its held call: to the one that is here, to the replica that has it, or to one that is taken
//! over from a process that is gone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::backend::Backend;
use super::order::{Again, Answer};
use super::registry::Found;
use super::seal::{self, HoldId, ReplicaId, State};
use super::shared::{Claim, Record, Stake, Taken, Unavailable};
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

/// The pause before a note is tried again that could not be made. Arbitrary: short beside the life of a replica.
const NOTE_AFTER: Duration = Duration::from_secs(1);

/// How long it may take to find out whether a call is still this process' own before its server is told of its end. Longer
/// outages are rare, and a server that is told nothing holds the call for ever.
const OWN_MAX: Duration = Duration::from_secs(60);

/// How often a call is sought whose driver ends while its re-issue is on the way. Once is usual; more often it would go
/// from one replica to another and back.
const SEEKS_MAX: usize = 4;

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
    /// The request, if it may have to run anew.
    pub again: Option<Again>,
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
enum Located {
    /// Here: its driver reads this.
    Here(mpsc::Sender<Mail>),
    /// With the replica at this address.
    Elsewhere(String),
}

/// What became of seeking a call that is not here.
#[derive(Debug)]
pub(super) enum Sought {
    /// It is here now, or was on its way already.
    Here,
    /// It is with the replica at this address.
    Elsewhere(String),
}

/// Whose a call is.
#[derive(Debug)]
pub(super) enum Owner {
    /// This process'.
    Me(Record),
    /// That of the replica at this address.
    Other(String),
}

impl Backend {
    /// Brings a re-issue to its held call, whose state was opened and checked.
    pub async fn resume(self: &Arc<Self>, state: State, brought: Brought) -> Resumed {
        let responses = RawObject::parse(&brought.responses).unwrap_or_default();
        let answers = (state.round, seal::answers_digest(&responses));
        for _ in 0..SEEKS_MAX {
            let resumed = match self.try_resume(&state, answers, &brought).await {
                // The call went elsewhere meanwhile, or has just ended.
                Ok(None) => continue,
                Ok(Some(Resumed::Elsewhere(_))) if brought.reach == Reach::HereAlone => break,
                Ok(Some(resumed)) => resumed,
                Err(reply) => Resumed::Here(Answer::Reply(reply)),
            };
            return resumed;
        }
        let why = "the call has just moved to another replica";
        Resumed::Here(Answer::Reply(unreached(why)))
    }

    async fn try_resume(
        self: &Arc<Self>,
        state: &State,
        answers: (Round, AnswersDigest),
        brought: &Brought,
    ) -> Result<Option<Resumed>, Reply> {
        match self.locate(state, answers, brought).await? {
            Located::Here(mailbox) => self.hand_over(state, answers, brought, mailbox).await,
            Located::Elsewhere(address) => Ok(Some(Resumed::Elsewhere(address))),
        }
    }

    /// Finds the call of a re-issue: it is here, or another replica has it, or it is taken over now.
    ///
    /// # Errors
    /// What the re-issue is told when the call has ended, is lost, or cannot be found at the moment.
    async fn locate(
        self: &Arc<Self>,
        state: &State,
        answers: (Round, AnswersDigest),
        brought: &Brought,
    ) -> Result<Located, Reply> {
        let (round, digest) = answers;
        loop {
            match self.registry.find(state.hold, round, digest) {
                Found::Live(mailbox) => return Ok(Located::Here(mailbox)),
                Found::Arriving(settled) => settled.cancelled().await,
                Found::Nothing => match self.seek(state, answers, brought).await? {
                    Sought::Here => {}
                    Sought::Elsewhere(address) => return Ok(Located::Elsewhere(address)),
                },
                ended @ (Found::Outcome(_) | Found::Answered) => return Err(outcome(ended, state)),
            }
        }
    }

    /// Finds out what became of a call that is not here.
    async fn seek(
        self: &Arc<Self>,
        state: &State,
        answers: (Round, AnswersDigest),
        brought: &Brought,
    ) -> Result<Sought, Reply> {
        if let Some(ended) = self.learn(state, answers).await {
            return Err(outcome(ended, state));
        }
        if self.stop.is_cancelled() {
            // Its calls are left to others by now.
            return Err(shutting_down());
        }
        if state.owner == self.replica && !self.shared.has_others() {
            return Err(outcome(Found::Nothing, state));
        }
        self.take_over_aside(state, brought.method, &brought.caller)
            .await
    }

    /// How the call ended, if another process remembers.
    pub(super) async fn recalled(&self, state: &State) -> Option<Rounds> {
        let recalled = self.shared.recall(state.hold).await.ok().flatten()?;
        Rounds::from_bytes(&recalled)
    }

    /// Learns how the call ended, if another process remembers.
    async fn learn(&self, state: &State, (round, digest): (Round, AnswersDigest)) -> Option<Found> {
        let rounds = self.recalled(state).await?;
        let until = self.clock.now() + self.outcome_ttl;
        Some(
            self.registry
                .learn(state.hold, rounds, until, (round, digest)),
        )
    }

    /// Hands a re-issue to the driver of its call; nothing when that has ended without hearing of it.
    ///
    /// # Errors
    /// What it is told instead.
    async fn hand_over(
        self: &Arc<Self>,
        state: &State,
        (round, digest): (Round, AnswersDigest),
        brought: &Brought,
        mailbox: mpsc::Sender<Mail>,
    ) -> Result<Option<Resumed>, Reply> {
        // A place first: a driver that leaves its call to others waits for those who have one, so that nothing is noted as
        // given which is not.
        let Ok(place) = mailbox.clone().reserve_owned().await else {
            return Ok(None);
        };
        let taken = self.take(state, (round, digest)).await;
        let were_given = match taken {
            Taken::Fresh => false,
            // Whether it has given them, this process knows by itself.
            Taken::Again(by) => by != self.replica,
            Taken::Otherwise => return Err(already_answered()),
            Taken::Lost(_) => {
                tracing::warn!(hold = ?state.hold, "a held call was taken over by another replica");
                drop(place.send(Mail::Moved));
                mailbox.closed().await;
                return Ok(None);
            }
        };
        let (sink, stream) = leg_channel();
        let reissue = Reissue {
            leg: brought.leg.clone(),
            round,
            digest,
            responses: brought.responses.clone(),
            again: brought.again.clone(),
            caller: Arc::clone(&brought.caller),
            were_given,
            sink,
        };
        // A message that its driver does not hear any more goes down with the last end of the mailbox.
        drop(place.send(Mail::Reissue(Box::new(reissue))));
        drop(mailbox);
        Ok(Answer::of(stream).await.map(Resumed::Here))
    }

    /// Notes that the answers are about to be given. Should nobody be there to note it with, a call that is here goes on
    /// all the same, and the note is made as soon as that can be.
    async fn take(
        self: &Arc<Self>,
        state: &State,
        (round, digest): (Round, AnswersDigest),
    ) -> Taken {
        let stake = self.stake(state.hold, state.owner);
        let taken = settled(|| self.shared.take(stake, round, digest)).await;
        taken.unwrap_or_else(|error| {
            let error = chain(&error);
            tracing::warn!(hold = ?state.hold, error, "answers are given without a note");
            self.tasks
                .spawn(Arc::clone(self).note_later(state.hold, round, digest));
            Taken::Fresh
        })
    }

    /// Makes a note as soon as somebody is there to make it with, while its call is here.
    pub(super) async fn note_later(
        self: Arc<Self>,
        hold: HoldId,
        round: Round,
        digest: AnswersDigest,
    ) {
        let stake = self.stake(hold, self.replica);
        while self.registry.mailbox(hold).is_some()
            && self.shared.take(stake, round, digest).await.is_err()
            && self
                .stop
                .run_until_cancelled(sleep(NOTE_AFTER))
                .await
                .is_some()
        {}
    }

    /// Takes the note back: nobody has given the answers.
    pub(super) async fn take_back(&self, hold: HoldId, round: Round, digest: AnswersDigest) {
        let stake = self.stake(hold, self.replica);
        if let Err(error) = self.shared.take_back(stake, round, digest).await {
            let error = chain(&error);
            tracing::warn!(?hold, error, "answers count as given that were not");
        }
    }

    /// What this process wants with a call. It is noted for as long as anybody may come for it.
    fn stake(&self, hold: HoldId, sealed_owner: ReplicaId) -> Stake {
        Stake {
            hold,
            sealed_owner,
            me: self.replica,
            ttl: self.limits.hold_ttl + self.outcome_ttl,
        }
    }

    /// To whom the call belongs: to this process from now on, unless another one has it that lives. One that nobody could
    /// go on with becomes nobody's. As long as nobody can say who lives, this waits.
    ///
    /// # Errors
    /// What a re-issue is told when nobody can say.
    pub(super) async fn claim(&self, state: &State) -> Result<Owner, Reply> {
        let stake = self.stake(state.hold, state.owner);
        let is_meant = state.takeover.is_some() || state.replay.is_some();
        settled(|| self.try_claim(stake, is_meant))
            .await
            .map_err(|error| {
                let error = chain(&error);
                tracing::warn!(hold = ?state.hold, error, "nobody says who has a held call");
                unreached("which replica holds this call cannot be found out at the moment")
            })
    }

    async fn try_claim(&self, stake: Stake, is_meant: bool) -> Result<Owner, Unavailable> {
        let claimed = match is_meant {
            true => self.shared.claim(stake).await?,
            false => self.shared.whose(stake).await?,
        };
        match claimed {
            Claim::Mine(record) => Ok(Owner::Me(record)),
            Claim::Other(owner) => {
                let address = self.shared.address_of(owner).await?;
                tracing::debug!(hold = ?stake.hold, ?owner, "another replica has a held call");
                // Without an address it has gone just now.
                address.map(Owner::Other).ok_or(Unavailable::Unsettled)
            }
        }
    }

    /// Whether another process, which lives, has taken a call over that is here. As long as nobody can say, none has.
    pub(super) async fn has_moved(&self, hold: HoldId) -> bool {
        let claimed = self.shared.claim(self.stake(hold, self.replica)).await;
        let Ok(Claim::Other(owner)) = claimed else {
            return false;
        };
        tracing::warn!(
            ?hold,
            ?owner,
            "a held call was taken over by another replica"
        );
        true
    }

    /// Whether a call that was here is still this process' own: while it counted as gone, another may have taken it over.
    /// Waits for Redis, in bounds; beyond them it counts as its own.
    pub(super) async fn owns(&self, hold: HoldId) -> bool {
        let stake = self.stake(hold, self.replica);
        let known = async {
            loop {
                match self.shared.claim(stake).await {
                    Ok(claim) => return matches!(claim, Claim::Mine(_)),
                    Err(_) => sleep(AGAIN_AFTER).await,
                }
            }
        };
        timeout(OWN_MAX, known).await.unwrap_or(true)
    }

    /// This process counted as gone, or Redis has forgotten what it knew: calls that others have taken over meanwhile are
    /// let go, and what was noted of the others is noted again.
    pub async fn find_place(&self) {
        for hold in self.registry.live_ones() {
            let mail = match self.has_moved(hold).await {
                true => Mail::Moved,
                false => Mail::Forgotten,
            };
            if let Some(mailbox) = self.registry.mailbox(hold) {
                let _ = mailbox.send(mail).await;
            }
        }
    }
}

/// Asks until it can be said which replicas live.
async fn settled<T, F>(mut ask: impl FnMut() -> F) -> Result<T, Unavailable>
where
    F: Future<Output = Result<T, Unavailable>>,
{
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(Unavailable::Unsettled) if begun.elapsed() < UNSETTLED_MAX => {
                sleep(AGAIN_AFTER).await;
            }
            said => return said,
        }
    }
}

/// What a re-issue gets whose call has ended.
pub(super) fn outcome(found: Found, state: &State) -> Reply {
    match found {
        Found::Outcome(reply) => reply,
        Found::Answered => already_answered(),
        Found::Nothing | Found::Arriving(_) | Found::Live(_) => lost(
            "the call of this requestState is over",
            state.is_safe_to_repeat,
        ),
    }
}

/// Nothing was touched: whoever comes next may go on.
pub(super) fn shutting_down() -> Reply {
    unreached("the gateway is shutting down")
}
