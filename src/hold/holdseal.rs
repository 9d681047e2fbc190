//! What the states of one call are bound to.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::backend::Backend;
use super::seal::{self, HoldId, State};
use crate::call::{Round, Seal};
use crate::session::{Binding, Principal};
use crate::wire::modern::Method;
use crate::wire::object::RawObject;

/// Seals the states of one call. Most calls never ask anything: their id and their binding to the request are
/// worked out when the first state is sealed.
pub(super) struct HoldSeal {
    backend: Arc<Backend>,
    method: Method,
    principal: Principal,
    params: Bytes,
    hold: OnceLock<Option<HoldId>>,
    request: OnceLock<Binding>,
}

impl HoldSeal {
    pub(super) fn new(
        backend: &Arc<Backend>,
        method: Method,
        principal: Principal,
        params: Bytes,
    ) -> Self {
        let (hold, request) = (OnceLock::new(), OnceLock::new());
        Self {
            backend: Arc::clone(backend),
            method,
            principal,
            params,
            hold,
            request,
        }
    }

    /// The id of the hold; `None` when the operating system gives no randomness.
    pub(super) fn hold(&self) -> Option<HoldId> {
        *self
            .hold
            .get_or_init(|| seal::random_bytes().ok().map(HoldId))
    }

    /// Lets go of the request's params once a state was sealed: a hold must not keep a large body alive.
    pub(super) fn settle(&mut self) {
        self.request();
        self.params = Bytes::new();
    }

    fn request(&self) -> Binding {
        *self.request.get_or_init(|| {
            let params = RawObject::parse(&self.params).unwrap_or_default();
            seal::request_binding(&self.backend.name, self.method, &params)
        })
    }
}

impl Seal for HoldSeal {
    fn seal(&self, round: Round, valid_for: Duration, rerun: bool) -> Option<String> {
        let state = State {
            hold: self.hold()?,
            round,
            rerun,
            expires_unix_s: seal::expiry(SystemTime::now(), valid_for),
            principal: self.principal.binding(),
            request: self.request(),
        };
        self.backend.keys.seal(&state).ok()
    }

    fn has_room(&self) -> bool {
        // A call that was sealed before is held already.
        self.hold.get().is_some() || self.backend.registry.has_room()
    }
}
