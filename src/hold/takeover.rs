//! Taking a held call over from a process that is gone, by what its `requestState` says.
//!
//! The session is the server's and outlives whoever opened it: its streams are read again from where the call stood, and
//! the call goes on here. Nothing is sent before the server has shown that it resumes the call's stream. A call that cannot
//! be taken over so is lost, or run again where its operator allows that.
//! Spec: 2025-11-25 basic/transports, "Resumability and Redelivery".

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::backend::Backend;
use super::driver::TakenOver;
use super::holdseal::HoldSeal;
use super::registry::{Found, MAILBOX_MAX};
use super::resume::{Owner, Sought, outcome, shutting_down};
use super::seal::{Replayable, State, Takeover};
use crate::call::{Anew, Call, CallSpec, Kept, Reply, lost, unreached};
use crate::observe::chain;
use crate::session::{Caller, Lease, LeaseError};
use crate::translate::notification;
use crate::upstream::{Exchange, UpstreamError};
use crate::wire::jsonrpc::UpstreamId;
use crate::wire::modern::Method;

/// How long a server may take to resume the stream of a call. One that still believes in the connection of the process
/// that is gone refuses for a while; the client waits meanwhile, and gives up after a minute.
const RESUME_MAX: Duration = Duration::from_secs(30);

impl Backend {
    /// Takes a call over on a task of its own: should the client go away meanwhile, others may wait for it.
    ///
    /// # Errors
    /// What a re-issue is told when the call is lost, or cannot be taken over at the moment.
    pub(super) async fn take_over_aside(
        self: &Arc<Self>,
        state: &State,
        method: Method,
        caller: &Arc<Caller>,
    ) -> Result<Sought, Reply> {
        let (done, taken) = oneshot::channel();
        let (backend, state, caller) = (Arc::clone(self), state.clone(), Arc::clone(caller));
        let running = self.calls.token();
        self.tasks.spawn(async move {
            let result = tokio::select! {
                () = backend.stop.cancelled() => Err(shutting_down()),
                result = backend.take_over(&state, method, &caller) => result,
            };
            let _ = done.send(result);
            drop(running);
        });
        taken.await.unwrap_or_else(|_| Err(shutting_down()))
    }

    async fn take_over(
        self: &Arc<Self>,
        state: &State,
        method: Method,
        caller: &Arc<Caller>,
    ) -> Result<Sought, Reply> {
        let expected = match self.registry.expect(state.hold) {
            Ok(Some(expected)) => expected,
            Ok(None) => return Ok(Sought::Here),
            Err(full) => return Err(unreached(&full.to_string())),
        };
        match self.claim(state).await? {
            Owner::Other(address) => return Ok(Sought::Elsewhere(address)),
            // It never left this process, which knows no more of it.
            Owner::Me(record) if state.owner == self.replica && record.generation == 0 => {
                return Err(outcome(Found::Nothing, state));
            }
            Owner::Me(_) => {}
        }
        // Whoever had it may have ended it, and left, since this was last looked for.
        if self.recalled(state).await.is_some() {
            return Ok(Sought::Here);
        }
        let read = match state.takeover.clone() {
            Some(takeover) => self.read_again(state, takeover, method, caller).await,
            None => Err(NotTaken::Lost(
                "the process that held this call is gone, and its server cannot resume it",
            )),
        };
        let taken = match read {
            Ok(taken) => {
                tracing::info!(backend = self.name, hold = ?state.hold, from = ?state.owner, "a held call is taken over");
                self.metrics.taken_over.inc();
                taken
            }
            Err(NotTaken::Lost(why)) => self.run_again(state, why, method, caller).await?,
            Err(NotTaken::NotNow(reply)) => return Err(reply),
        };
        let (sender, mailbox) = mpsc::channel(MAILBOX_MAX);
        // In this order: the call may end at once.
        expected.arrived(sender);
        taken.go_on(self, mailbox);
        Ok(Sought::Here)
    }

    /// A call that is lost is to be run again by the re-issue that has found it so, if it may be.
    async fn run_again(
        self: &Arc<Self>,
        state: &State,
        why: &'static str,
        method: Method,
        caller: &Arc<Caller>,
    ) -> Result<TakenOver, Reply> {
        let lost = lost(why, state.is_safe_to_repeat);
        let Some(replay) = &state.replay else {
            return Err(lost);
        };
        if !replay.kept.has_runs_left() {
            self.end_aside(replay, caller);
            return Err(lost);
        }
        // Without a server nothing is begun: the same re-issue may find it later. The session waits for the run.
        let leased = self.lease(caller, method, None).await;
        drop(leased.map_err(out_of_reach_unless_challenged)?);
        self.end_aside(replay, caller);
        let spec = self.spec(UpstreamId(0), method, caller, Some(replay.kept.clone()));
        let why = match state.rerun {
            true => Anew::Visited { is_declined: false },
            false => Anew::Lost,
        };
        let parked = (state.round, why);
        let call = Call::lost_elsewhere(spec, Arc::clone(&self.limits), parked, self.clock.now());
        Ok(TakenOver {
            call,
            seal: HoldSeal::resumed(self, method, caller, (state, None)),
            caller: Arc::clone(caller),
            stream: None,
        })
    }

    /// Ends a run that is lost, on a task of its own: its server may still wait for answers.
    fn end_aside(self: &Arc<Self>, replay: &Replayable, caller: &Arc<Caller>) {
        let Some(run) = replay.run.clone() else {
            return;
        };
        let (backend, caller) = (Arc::clone(self), Arc::clone(caller));
        let ending = async move {
            // The session ends with the lease.
            let Ok(lease) = backend.pool.take_over(&caller, &run.session).await else {
                return;
            };
            let message = notification::cancelled(run.request, "the connection was lost");
            if let Err(error) = lease.sender().send(message.into()).await {
                let error = chain(&error);
                tracing::debug!(error, "a lost run could not be cancelled");
            }
        };
        let stop = self.stop.clone();
        self.tasks
            .spawn(async move { stop.run_until_cancelled(ending).await });
    }

    fn spec(
        &self,
        id: UpstreamId,
        method: Method,
        caller: &Caller,
        kept: Option<Kept>,
    ) -> CallSpec {
        CallSpec {
            id,
            method,
            capabilities: caller.key.capabilities.clone(),
            hints: method.is_cacheable().then_some(self.hints),
            supplied: None,
            kept,
        }
    }

    /// Goes on reading where the call stood.
    async fn read_again(
        self: &Arc<Self>,
        state: &State,
        takeover: Takeover,
        method: Method,
        caller: &Arc<Caller>,
    ) -> Result<TakenOver, NotTaken> {
        let footing = takeover.footing.clone();
        let lease = self
            .pool
            .take_over(caller, &takeover.session)
            .await
            .map_err(|error| NotTaken::NotNow(self.not_leased(error)))?;
        // Should this be given up, or the gateway end meanwhile, the call is still there for others.
        let lease = Borrowed(Some(lease));
        let exchange = lease.resume(&footing.exchange.after);
        let Some(mut exchange) = exchange else {
            return Err(NotTaken::Lost("the server resumes no calls"));
        };
        let resumed = timeout(RESUME_MAX, exchange.resumed()).await;
        let resumed = resumed.unwrap_or(Err(UpstreamError::Timeout));
        let lease = match resumed {
            Ok(()) => lease.kept(),
            Err(error) => {
                let why = self.not_resumed(&error, state);
                // A server that does not go on with the call is told that nobody else does.
                drop(matches!(why, NotTaken::Lost(_)).then(|| lease.kept()));
                return Err(why);
            }
        };
        let kept = state.replay.as_ref().map(|replay| replay.kept.clone());
        let spec = self.spec(footing.request, method, caller, kept);
        let lease = lease.ok_or_else(|| NotTaken::NotNow(out_of_reach()))?;
        let call = Call::taken_over(
            spec,
            Arc::clone(&self.limits),
            Arc::clone(lease.identity()),
            (state.round, footing.asked),
            self.clock.now(),
        );
        let Some(call) = call else {
            return Err(NotTaken::Lost("the call cannot be taken over"));
        };
        Ok(TakenOver {
            call,
            seal: HoldSeal::resumed(self, method, caller, (state, Some(takeover))),
            caller: Arc::clone(caller),
            stream: Some((lease, exchange)),
        })
    }

    /// What the server means that does not resume the stream of a call: it is lost, unless that may pass.
    fn not_resumed(&self, error: &UpstreamError, state: &State) -> NotTaken {
        let cause = chain(error);
        tracing::warn!(backend = self.name, hold = ?state.hold, error = cause, "a held call is not resumed");
        let error = match error {
            UpstreamError::Unresumed(why) => why,
            other => other,
        };
        let is_lost = match error {
            UpstreamError::Challenge(challenge) => {
                return NotTaken::NotNow(Reply::Challenge(Arc::clone(challenge)));
            }
            // They say nothing of the call.
            UpstreamError::OwnCredentials(_) => false,
            error => !error.may_pass(),
        };
        if is_lost {
            return NotTaken::Lost("the call was cut off, and its server does not resume it");
        }
        NotTaken::NotNow(out_of_reach())
    }

    /// What a re-issue is told when there is no session to take its call over with.
    fn not_leased(&self, error: LeaseError) -> Reply {
        out_of_reach_unless_challenged(self.refused(error))
    }
}

/// Why a call goes on nowhere.
enum NotTaken {
    /// It is lost.
    Lost(&'static str),
    /// It is not, as far as is known; what the re-issue is told.
    NotNow(Reply),
}

/// A session that is not ended when it is let go: whoever takes its call over some other time needs it.
struct Borrowed(Option<Lease>);

impl Borrowed {
    fn resume(&self, after: &str) -> Option<Exchange> {
        self.0.as_ref()?.resume(after)
    }

    /// The session, which ends with its call from now on.
    fn kept(mut self) -> Option<Lease> {
        self.0.take()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(lease) = &self.0 {
            lease.leave();
        }
    }
}

/// Nothing was touched: the same re-issue may find the server later.
fn out_of_reach() -> Reply {
    unreached("the server of this call cannot be reached at the moment")
}

/// What a re-issue is told when there is no session to be had.
fn out_of_reach_unless_challenged(refused: Reply) -> Reply {
    match refused {
        challenge @ Reply::Challenge(_) => challenge,
        // Whatever it was, it says nothing of the call.
        Reply::Error(_) | Reply::Result(_) => out_of_reach(),
    }
}
