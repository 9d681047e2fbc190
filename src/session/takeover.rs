//! Taking over a session that another process opened: it is the server's, and outlives that process.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::HeaderValue;

use super::error::LeaseError;
use super::handshake::HandshakeError;
use super::lease::Lease;
use super::pool::{Pool, Room};
use super::shelf::LeaseMode;
use super::{Caller, SessionName};
use crate::translate::discover::ServerIdentity;
use crate::upstream::UpstreamError;

impl Pool {
    /// A lease of the session `name`; the session ends with it, unless others may have calls on it. Nothing is sent that runs anything.
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
        // No idle session will do: it is another one that is taken over.
        let permit = match self.room(|| None::<Infallible>).await? {
            Room::Permit(permit) => permit,
            Room::Warm(never) => match never {},
        };
        // A name that no header can carry is none that its server gave.
        let id = name.id.as_deref().map(HeaderValue::from_str);
        let id = id
            .transpose()
            .map_err(|_| HandshakeError::from(UpstreamError::SessionGone))?;
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
        let mut lease = Lease::new(self.home(), session, Some(inbox), true);
        if name.is_shared {
            lease.lend();
        }
        Ok(lease)
    }
}
