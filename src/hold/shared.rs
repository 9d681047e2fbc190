//! What the replicas of one gateway share about held calls: who is alive, whose a hold is, which answers were
//! taken, what came of it, and lists that one of them has read.
//!
//! One trait, two implementations: [`memory::Memory`] for a process without others, and the Redis one in the room
//! `cluster`, of which nothing is known here. Whatever goes wrong, a call or hold that this process has to itself can
//! go on: an operation fails with [`Unavailable`] within a bounded time, and every operation may be tried again.
//!
//! # Whose a hold is
//! The replica that its `requestState` names, until another one has taken it over, which is written in the hold's
//! record. A hold is taken over ("adopted") only from a replica that is not alive in the directory. A replica that
//! lost one so without having died learns of it when it next wants to pass answers on: [`Shared::take`] goes before
//! every delivery of answers and says [`Taken::Lost`]. That is what keeps answers from being delivered twice, however
//! wrong anybody is about who is alive.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use super::seal::{HoldId, ReplicaId};
use crate::call::{AnswersDigest, Round};

pub mod memory;
pub(crate) mod shelf;

/// The largest outcome that is kept. Results beyond a megabyte are rare, and a store that all replicas wait for must
/// not be busy with one of them.
pub const OUTCOME_BYTES_MAX: usize = 1 << 20;

/// The largest list that is kept, for the same reason.
pub const LIST_BYTES_MAX: usize = 1 << 20;

/// An operation under way. Held calls alone use these, so one allocation more is nothing.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Unavailable>> + Send + 'a>>;

/// What replicas share. Each operation is atomic and bounded in time. Dropped before it is done, it may have happened
/// or not; the same is true when it failed. Each may be repeated without harm.
///
/// Nothing stays for ever: each entry goes when its `ttl` is over. A `ttl` of zero forgets at once.
pub trait Shared: fmt::Debug + Send + Sync {
    /// Whether there may be others to share with.
    fn has_others(&self) -> bool;

    /// Enters `me` into the directory, or keeps it there: alive for `ttl`, to be reached at `address` ("host:port" of
    /// its internal listener). To be repeated at least three times per `ttl`, or one repeat that is late or lost makes
    /// a live replica look dead.
    fn announce<'a>(
        &'a self,
        me: ReplicaId,
        address: &'a str,
        ttl: Duration,
    ) -> Pending<'a, Announced>;

    /// Takes `me` out of the directory: from now on others may adopt what it holds.
    fn leave(&self, me: ReplicaId) -> Pending<'_, ()>;

    /// Where a replica is to be reached; nothing when it is not alive.
    fn address_of(&self, replica: ReplicaId) -> Pending<'_, Option<String>>;

    /// Asks for a hold. It becomes (or stays) the claimant's unless its owner is another one that is alive. Of several
    /// that claim the hold of a dead one, one gets it. The record lives for the stake's `ttl` from now on, which
    /// must not be shorter than what is left of the newest `requestState`.
    fn claim(&self, stake: Stake) -> Pending<'_, Claim>;

    /// What a claim would say, without one: nothing becomes the claimant's.
    fn whose(&self, stake: Stake) -> Pending<'_, Claim>;

    /// Records that the claimant is about to pass on answers. To be done before each delivery of answers to a server.
    ///
    /// Only the highest round is remembered. Without a record, the hold counts as the claimant's if a claim would have
    /// made it so; with one, it has to be the claimant's already, whether its owner is alive or not.
    fn take(&self, stake: Stake, round: Round, answers: AnswersDigest) -> Pending<'_, Taken>;

    /// Takes the note of answers back that the claimant made and did not act on: these or others may be taken again. Somebody
    /// else's note, and one of other answers, is left alone.
    fn take_back(&self, stake: Stake, round: Round, answers: AnswersDigest) -> Pending<'_, ()>;

    /// The call is over: its record, if it is the claimant's, stays for `keep` more. For as long as a repeat may come to
    /// another replica it should stay, or that one takes the answers for fresh; zero where there are no others.
    /// The outcome has to be remembered before. Somebody else's record is left alone.
    fn release(&self, hold: HoldId, me: ReplicaId, keep: Duration) -> Pending<'_, ()>;

    /// Remembers the outcome of a call, instead of one remembered before. One larger than [`OUTCOME_BYTES_MAX`] is not
    /// kept, nor one that `me` brings where the record says that the hold is another's.
    fn remember(
        &self,
        hold: HoldId,
        me: ReplicaId,
        outcome: Bytes,
        ttl: Duration,
    ) -> Pending<'_, ()>;

    /// The outcome of a call, if it is remembered.
    fn recall(&self, hold: HoldId) -> Pending<'_, Option<Bytes>>;

    /// Keeps a list for all replicas, instead of one kept before. `place` is a digest that binds all that the list
    /// depends on: principal, capabilities, backend, request. A list larger than [`LIST_BYTES_MAX`] is not kept.
    fn put_list(&self, place: [u8; 32], list: Bytes, ttl: Duration) -> Pending<'_, ()>;

    /// A list that some replica has kept.
    fn list(&self, place: [u8; 32]) -> Pending<'_, Option<KeptList>>;
}

/// A list as it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptList {
    /// It.
    pub bytes: Bytes,
    /// What is left of its `ttl`, by the store's own clock: those of replicas need not agree.
    pub left: Duration,
}

/// Who wants to do something with which hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stake {
    /// The hold.
    pub hold: HoldId,
    /// Whom the `requestState` names as its owner.
    pub sealed_owner: ReplicaId,
    /// The claimant.
    pub me: ReplicaId,
    /// For how long the record is worth keeping.
    pub ttl: Duration,
}

/// What the directory knew of a replica that announced itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// It counted as alive.
    Still,
    /// It did not: this is its first time, or it came too late, or the store has forgotten. Unless it is the first time,
    /// others may have adopted its holds, and records of its own may be gone: its next [`Shared::take`] will tell.
    Anew,
}

/// Whose a hold is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The claimant's.
    Mine(Record),
    /// That of another replica, which is alive.
    Other(ReplicaId),
}

/// What is recorded of a hold that is the claimant's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// How often it was taken over: 0 while it is with the replica that first held it.
    pub generation: u32,
    /// The highest round whose answers were taken, by whomever.
    pub taken: Option<Round>,
}

/// What came of taking answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nobody has taken answers of this round before; it is recorded now that these were.
    Fresh,
    /// These very answers were taken before, by this replica: perhaps one that died before it could pass them on, or
    /// after. If it is the claimant, the claimant knows.
    Again(ReplicaId),
    /// Other answers were taken in this round, or in a later one. These must not be passed on.
    Otherwise,
    /// The hold is another replica's. Whoever held it here has to let go.
    Lost(ReplicaId),
}

/// What replicas share is out of reach. It is never a client's fault, and always safe to try again: see
/// [`Unavailable::may_have_happened`] for what may be found then.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// No answer in time.
    #[error("the store that replicas share did not answer in time")]
    Late,
    /// It failed a moment ago, and nobody waits for it until it is tried again.
    #[error("the store that replicas share is known to be down")]
    Down,
    /// It failed.
    #[error("the store that replicas share failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// It was away, and who is alive has not been announced since: nobody counts as dead yet.
    #[error("the store that replicas share is back, but who is alive is not known yet")]
    Unsettled,
    /// It has no room: nothing that was accepted is dropped for something new.
    #[error("the store that replicas share is full")]
    Full,
}

impl Unavailable {
    /// Whether the operation may have taken effect all the same, even later than now.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Late | Self::Failed(_) => true,
            Self::Down | Self::Unsettled | Self::Full => false,
        }
    }
}
