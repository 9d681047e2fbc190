//! A configured server as its calls see it: its sessions, its holds, its clocks and bounds.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Clock;
use super::registry::Registry;
use super::replay::Replays;
use super::seal::{ReplicaId, SealingKeys};
use super::shared::Shared;
use crate::cache::results::{Memory, Place};
use crate::cache::tools::{Tools, Unchecked};
use crate::call::{CallLimits, Loss, Reply, failed};
use crate::observe::Metrics;
use crate::session::{Caller, HandshakeError, Lease, LeaseError, LeaseMode, Pool};
use crate::translate::capability::Capability;
use crate::translate::discover::discover_result;
use crate::translate::result::CacheHints;
use crate::wire::modern::{LogLevel, Method};

/// One backend.
#[derive(Debug)]
pub struct Backend {
    /// Its name in paths, logs and sealed states.
    pub name: String,
    /// Its sessions.
    pub pool: Arc<Pool>,
    /// Its held calls and remembered outcomes.
    pub registry: Registry,
    /// Its discovery, and perhaps its lists, as they were answered before.
    pub memory: Memory,
    /// What its tools declare.
    pub tools: Tools,
    /// What seals its states.
    pub keys: Arc<SealingKeys>,
    /// The clock that moments are counted by.
    pub clock: Clock,
    /// The clocks and bounds of its calls.
    pub limits: Arc<CallLimits>,
    /// Which of its lost calls are run again.
    pub replays: Replays,
    /// Caching hints of its results.
    pub hints: CacheHints,
    /// How long the outcome of a re-issued call is remembered.
    pub outcome_ttl: Duration,
    /// Its calls in progress, held ones included, until others can learn how they ended: the drain waits for the last.
    pub calls: TaskTracker,
    /// Where its background work runs.
    pub tasks: TaskTracker,
    /// Cancelled when everything has to end now.
    pub stop: CancellationToken,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Names this process in the states that it seals.
    pub replica: ReplicaId,
    /// What it knows together with other processes.
    pub shared: Arc<dyn Shared>,
}

impl Backend {
    /// The answer to a request as it was given before, if that still holds.
    #[must_use]
    pub fn recall(&self, place: Option<&Place>) -> Option<Reply> {
        let recalled = self.memory.recall(place?, self.clock.now())?;
        self.metrics.recalled.inc();
        Some(Reply::Result(recalled))
    }

    /// The answer as another replica was given it. From now on it is known here as well.
    pub async fn recall_of_others(&self, place: &mut Place) -> Option<Reply> {
        let found = self.memory.look(place).await?;
        let recalled = self.memory.learn(place, found, self.clock.now())?;
        Some(Reply::Result(recalled))
    }

    /// Checks the headers of a re-issue, as far as anybody knows what its tool declares. Nobody is refused for a list
    /// that was read a while ago: it is read again first.
    ///
    /// # Errors
    /// What the client is told when they do not say what the arguments say.
    pub async fn check_again(&self, caller: &Caller, call: &Unchecked) -> Result<(), Reply> {
        if let Some(checked) = self.tools.check_again(caller, call).await {
            return checked;
        }
        match self.lease_shared(caller).await {
            Ok(lease) => self.tools.read_and_check(&lease, caller, call).await,
            // The call may not need the server's help any more: it is let pass.
            Err(_) => Ok(()),
        }
    }

    /// Answers `server/discover` from a session's `InitializeResult`.
    pub async fn discover(self: &Arc<Self>, caller: &Caller, place: Option<Place>) -> Reply {
        let _running = self.calls.token();
        let leased = tokio::select! {
            () = self.stop.cancelled() => Err(failed("the gateway is shutting down", false)),
            leased = self.lease(caller, Method::Discover, None) => leased,
        };
        match leased {
            Ok(lease) => {
                let result = discover_result(lease.identity(), self.hints).into();
                if let Some(place) = place {
                    self.memory.remember(place, &result, self.clock.now());
                }
                Reply::Result(result)
            }
            Err(reply) => reply,
        }
    }

    /// A session for what nobody is asked for, or what its caller is told instead.
    ///
    /// # Errors
    /// When there is none to be had.
    pub async fn lease_shared(&self, caller: &Caller) -> Result<Lease, Reply> {
        let leased = self.pool.lease(caller, LeaseMode::Shared).await;
        leased.map_err(|error| self.refused(error))
    }

    /// A session for one call, or what the call is told instead.
    pub(super) async fn lease(
        &self,
        caller: &Caller,
        method: Method,
        log_level: Option<LogLevel>,
    ) -> Result<Lease, Reply> {
        let may_be_asked = method.may_ask() && caller.key.capabilities.may_be_asked();
        // Nothing else says whose a log message is that comes on a channel.
        let hears_logs = log_level.is_some() && self.pool.uses_channels();
        let mode = if may_be_asked || hears_logs {
            LeaseMode::Exclusive
        } else {
            LeaseMode::Shared
        };
        let has_roots = may_be_asked && caller.key.capabilities.has(Capability::Roots);
        let leased = if has_roots {
            self.pool.lease_with_roots(caller).await
        } else {
            self.pool.lease(caller, mode).await
        };
        let mut lease = leased.map_err(|error| self.refused(error))?;
        if log_level.is_some() && lease.is_on_channel() && !lease.is_exclusive() {
            // It has only now turned out that there is a channel.
            drop(lease);
            let leased = self.pool.lease(caller, LeaseMode::Exclusive).await;
            lease = leased.map_err(|error| self.refused(error))?;
        }
        if method == Method::ToolsCall {
            lease.listen_along().await;
        }
        Ok(lease)
    }

    pub(super) fn refused(&self, error: LeaseError) -> Reply {
        if let LeaseError::Handshake(handshake) = &error
            && let HandshakeError::Upstream(error) = &**handshake
        {
            return match error.to_loss(&self.name) {
                Loss::Failed { message, .. } => failed(&message, false),
                challenge @ Loss::Challenge(_) => challenge.into(),
            };
        }
        tracing::warn!(backend = self.name, %error, "no session for a call");
        failed(&error.to_string(), false)
    }
}
