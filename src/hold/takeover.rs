//! Taking a held call over from a process that is gone, by what its `requestState` says.
//!
//! The session is the server's and outlives whoever opened it: its streams are read again from where the call stood, and
//! the call goes on here. Nothing is sent before the server has shown that it resumes the call's stream.
//! Spec: 2025-11-25 basic/transports, "Resumability and Redelivery".

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::backend::Backend;
use super::driver::TakenOver;
use super::holdseal::HoldSeal;
use super::registry::MAILBOX_MAX;
use super::resume::Whereabouts;
use super::seal::{State, Takeover};
use crate::call::{Call, CallSpec, Reply, failed, lost};
use crate::observe::chain;
use crate::session::{Caller, Lease, LeaseError};
use crate::upstream::{Exchange, UpstreamError};
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
    ) -> Result<Whereabouts, Reply> {
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
    ) -> Result<Whereabouts, Reply> {
        let expected = match self.registry.expect(state.hold) {
            Ok(Some(expected)) => expected,
            Ok(None) => return Ok(Whereabouts::Here),
            Err(full) => return Err(failed(&full.to_string(), true)),
        };
        if let elsewhere @ Whereabouts::Elsewhere(_) = self.claim(state).await? {
            return Ok(elsewhere);
        }
        let Some(takeover) = state.takeover.clone() else {
            let why = "the process that held this call is gone, and its server cannot resume it";
            return Err(lost(why, state.is_safe_to_repeat));
        };
        let taken = self.read_again(state, takeover, method, caller).await?;
        let (sender, mailbox) = mpsc::channel(MAILBOX_MAX);
        tracing::info!(backend = self.name, hold = ?state.hold, from = ?state.owner, "a held call is taken over");
        self.metrics.taken_over.inc();
        // In this order: the call may end at once.
        expected.arrived(sender);
        taken.go_on(self, mailbox);
        Ok(Whereabouts::Here)
    }

    /// Goes on reading where the call stood.
    async fn read_again(
        self: &Arc<Self>,
        state: &State,
        takeover: Takeover,
        method: Method,
        caller: &Arc<Caller>,
    ) -> Result<TakenOver, Reply> {
        let footing = takeover.footing.clone();
        let lease = self
            .pool
            .take_over(caller, &takeover.session)
            .await
            .map_err(|error| self.not_leased(error))?;
        // Should this be given up, or the gateway end meanwhile, the call is still there for others.
        let lease = Borrowed(Some(lease));
        let exchange = lease.resume(&footing.exchange.after);
        let Some(mut exchange) = exchange else {
            return Err(lost("the server resumes no calls", state.is_safe_to_repeat));
        };
        let resumed = timeout(RESUME_MAX, exchange.resumed()).await;
        let resumed = resumed.unwrap_or(Err(UpstreamError::Timeout));
        let lease = match resumed {
            Ok(()) => lease.kept(),
            Err(error) => {
                let (is_lost, reply) = self.not_resumed(&error, state);
                // A server that does not go on with the call is told that nobody else does.
                drop(is_lost.then(|| lease.kept()));
                return Err(reply);
            }
        };
        let spec = CallSpec {
            id: footing.request,
            method,
            capabilities: caller.key.capabilities.clone(),
            hints: method.is_cacheable().then_some(self.hints),
            supplied: None,
        };
        let lease = lease.ok_or_else(out_of_reach)?;
        let call = Call::taken_over(
            spec,
            Arc::clone(&self.limits),
            Arc::clone(lease.identity()),
            (state.round, footing.asked),
            self.clock.now(),
        );
        let Some(call) = call else {
            return Err(lost(
                "the call cannot be taken over",
                state.is_safe_to_repeat,
            ));
        };
        Ok(TakenOver {
            call,
            seal: HoldSeal::resumed(self, method, caller, (state, takeover)),
            caller: Arc::clone(caller),
            lease,
            exchange,
        })
    }

    /// What a re-issue is told whose server does not resume the stream of its call: lost, unless that may pass.
    fn not_resumed(&self, error: &UpstreamError, state: &State) -> (bool, Reply) {
        let cause = chain(error);
        tracing::warn!(backend = self.name, hold = ?state.hold, error = cause, "a held call is not resumed");
        let error = match error {
            UpstreamError::Unresumed(why) => why,
            other => other,
        };
        let is_lost = match error {
            UpstreamError::Challenge(challenge) => {
                return (false, Reply::Challenge(Arc::clone(challenge)));
            }
            // They say nothing of the call.
            UpstreamError::OwnCredentials(_) => false,
            error => !error.may_pass(),
        };
        if is_lost {
            let why = "the call was cut off, and its server does not resume it";
            return (true, lost(why, state.is_safe_to_repeat));
        }
        (false, out_of_reach())
    }

    /// What a re-issue is told when there is no session to take its call over with.
    fn not_leased(&self, error: LeaseError) -> Reply {
        match self.refused(error) {
            challenge @ Reply::Challenge(_) => challenge,
            // Whatever it was, it says nothing of the call.
            Reply::Error(_) | Reply::Result(_) => out_of_reach(),
        }
    }
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
            lease.mark_gone();
        }
    }
}

/// Nothing was touched: the same re-issue may find the server later.
fn out_of_reach() -> Reply {
    let why = "the server of this call cannot be reached at the moment";
    failed(why, true)
}

/// Nothing was touched: whoever comes next may go on.
pub(super) fn shutting_down() -> Reply {
    failed("the gateway is shutting down", true)
}
