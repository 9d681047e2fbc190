//! Taking over a session that another process opened: it is the server's, and outlives that process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::HeaderValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::error::LeaseError;
use super::handshake::HandshakeError;
use super::lease::Lease;
use super::pool::Pool;
use super::shelf::LeaseMode;
use super::{Caller, SessionName};
use crate::translate::discover::ServerIdentity;

impl Pool {
    /// A lease of the session `name`; the session ends with it, unless other calls may be on it. Nothing is sent that runs
    /// anything.
    ///
    /// Its general stream is opened anew, not resumed: widely used servers keep the general streams of all sessions under
    /// one name, and would repeat on it what they have asked other people meanwhile.
    ///
    /// # Errors
    /// When there is no room, or the server cannot be reached.
    pub async fn take_over(
        self: &Arc<Self>,
        caller: &Caller,
        name: &SessionName,
    ) -> Result<Lease, LeaseError> {
        // What the server said of itself then it says to every session, and the caller's next call needs one anyway.
        let lease = self.lease(caller, LeaseMode::Shared).await?;
        let identity = ServerIdentity {
            protocol_version: name.revision.clone(),
            ..ServerIdentity::clone(lease.identity())
        };
        drop(lease);
        let permit = self.permit().await?;
        let id = name.id.as_deref().map(HeaderValue::from_str);
        let id = id.transpose().map_err(|_| LeaseError::Closing)?;
        let adopting = self
            .target
            .adopt(id, &name.revision, caller.credentials.clone());
        let connection = adopting
            .await
            .map_err(|error| LeaseError::from(HandshakeError::from(error)))?;
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let (session, inbox) = self
            .settle_in(caller, number, (connection, identity), permit)
            .await;
        if !caller.isolated && !has_been_exclusive(caller, session.has_general_stream) {
            session.leave_open();
        }
        Ok(Lease::new(self.home(), session, Some(inbox), true))
    }

    /// Leave to have one more session; at the bound somebody's idle one gives way.
    async fn permit(&self) -> Result<OwnedSemaphorePermit, LeaseError> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        self.close_longest_idle();
        let permit = Arc::clone(&self.permits).acquire_owned();
        match timeout(self.settings.session_wait, permit).await {
            Ok(permit) => permit.map_err(|_| LeaseError::Closing),
            Err(_) => Err(LeaseError::Exhausted),
        }
    }
}

/// Whether a call had its session for itself; those that share one may be taken over by different processes, one by one.
fn has_been_exclusive(caller: &Caller, has_general_stream: bool) -> bool {
    has_general_stream && caller.key.capabilities.may_be_asked()
}
