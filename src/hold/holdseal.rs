//! What the states of one call say, and what they are bound to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;

use super::backend::Backend;
use super::replay::Replay;
use super::seal::{self, HoldId, Replayable, Run, State, Takeover};
use crate::call::{Kept, Seal, Sealing, Trail};
use crate::session::{Binding, Caller, SessionName};
use crate::wire::modern::Method;
use crate::wire::object::RawObject;

/// Seals the states of one call. Most calls never ask anything: their id and what is to be known of the request are
/// worked out when the first state is sealed.
pub(super) struct HoldSeal {
    backend: Arc<Backend>,
    method: Method,
    caller: Arc<Caller>,
    params: Bytes,
    replay: Replay,
    hold: OnceLock<Option<HoldId>>,
    request: OnceLock<RequestSays>,
    /// Where the call stands in what its server says.
    pub(super) trail: Trail,
    /// On which session it is, once that is worth knowing.
    pub(super) session: Option<SessionName>,
    /// The latest state says what another process needs to take the call over.
    is_portable: AtomicBool,
}

/// What is to be known of a request.
#[derive(Clone, Copy)]
struct RequestSays {
    binding: Binding,
    /// It may be made twice.
    is_repeatable: bool,
}

impl HoldSeal {
    pub(super) fn new(
        backend: &Arc<Backend>,
        method: Method,
        caller: &Arc<Caller>,
        params: Bytes,
    ) -> Self {
        Self {
            backend: Arc::clone(backend),
            method,
            caller: Arc::clone(caller),
            replay: backend.replays.of(method, &params),
            params,
            hold: OnceLock::new(),
            request: OnceLock::new(),
            trail: Trail::default(),
            session: None,
            is_portable: AtomicBool::new(false),
        }
    }

    /// Goes on sealing for a call whose latest state is `state`; `takeover` says where it goes on, unless it is to be run
    /// again.
    pub(super) fn resumed(
        backend: &Arc<Backend>,
        method: Method,
        caller: &Arc<Caller>,
        (state, takeover): (&State, Option<Takeover>),
    ) -> Self {
        let replay = state.replay.as_ref();
        let says = RequestSays {
            binding: state.request,
            // Of a call that goes on, both say the same.
            is_repeatable: replay.map_or(state.is_safe_to_repeat, |replay| replay.is_annotated),
        };
        let footing = takeover.as_ref().map(|takeover| &takeover.footing);
        Self {
            hold: OnceLock::from(Some(state.hold)),
            request: OnceLock::from(says),
            // It was asked for when the state was sealed, and when it came back.
            replay: replay.map_or(Replay::Never, |_| Replay::Always),
            trail: footing.map_or_else(Trail::default, |footing| Trail::resumed(&footing.exchange)),
            is_portable: AtomicBool::new(takeover.is_some()),
            session: takeover.map(|takeover| takeover.session),
            ..Self::new(backend, method, caller, Bytes::new())
        }
    }

    /// What the call has to be run again with, if that may be: nothing, as yet.
    pub(super) fn nothing_kept(&self) -> Option<Kept> {
        (self.replay != Replay::Never).then(Kept::default)
    }

    /// The id of the hold; `None` when the operating system gives no randomness.
    pub(super) fn hold(&self) -> Option<HoldId> {
        *self
            .hold
            .get_or_init(|| seal::random_bytes().ok().map(HoldId))
    }

    /// The call is on another session from now on.
    pub(super) fn begins_session(&mut self) {
        self.trail = Trail::default();
        self.session = None;
    }

    /// Lets go of the request's params once a state was sealed: a hold must not keep a large body alive.
    pub(super) fn settle(&mut self) {
        self.request();
        self.params = Bytes::new();
    }

    /// Nothing speaks against making the request again, even if it has run.
    pub(super) fn is_safe_to_repeat(&self) -> bool {
        self.request().is_repeatable
    }

    /// Whether another process can go on with the call, as its client was told.
    pub(super) fn can_be_taken_over(&self) -> bool {
        self.is_portable.load(Ordering::Relaxed) && self.backend.keys.are_lasting()
    }

    fn request(&self) -> RequestSays {
        *self.request.get_or_init(|| {
            let params = RawObject::parse(&self.params).unwrap_or_default();
            let is_repeatable = match self.method {
                Method::ToolsCall => {
                    let tool = params.string("name").unwrap_or_default();
                    self.backend.tools.is_repeatable(&self.caller.key, &tool)
                }
                _ => true,
            };
            RequestSays {
                binding: seal::request_binding(&self.backend.name, self.method, &params),
                is_repeatable,
            }
        })
    }

    fn takeover(&self, sealing: &Sealing<'_>) -> Option<Takeover> {
        // Without a request on its way there is no stream to read again, and after −32042 none any more.
        if sealing.rerun || !sealing.has_departed {
            return None;
        }
        let session = self.session.clone();
        let footing = self.trail.footing(sealing.request, &sealing.open);
        let (Some(session), Some(footing)) = (session, footing) else {
            tracing::debug!(
                "a call is held that no other process could take over: nothing can be resumed"
            );
            return None;
        };
        Some(Takeover { session, footing })
    }
}

impl Seal for HoldSeal {
    fn seal(&self, sealing: Sealing<'_>) -> Option<String> {
        let RequestSays {
            binding,
            is_repeatable,
        } = self.request();
        let takeover = self.takeover(&sealing);
        let run = self.session.clone().filter(|_| takeover.is_none());
        let state = State {
            hold: self.hold()?,
            round: sealing.round,
            rerun: sealing.rerun,
            expires_unix_s: seal::expiry(SystemTime::now(), sealing.valid_for),
            principal: self.caller.key.principal.binding(),
            request: binding,
            owner: self.backend.replica,
            // Not so just because it has not run yet: the re-issue of this very state may let it.
            is_safe_to_repeat: is_repeatable,
            takeover,
            replay: sealing.kept.map(|kept| Replayable {
                is_annotated: is_repeatable,
                kept,
                run: run.filter(|_| sealing.has_departed).map(|session| Run {
                    session,
                    request: sealing.request,
                }),
            }),
        };
        let sealed = self.backend.keys.seal_within_bound(state).ok()?;
        self.is_portable
            .store(sealed.is_portable, Ordering::Relaxed);
        Some(sealed.text)
    }

    fn may_replay(&self) -> bool {
        self.replay != Replay::Never && self.replay.allows(self.request().is_repeatable)
    }

    fn has_room(&self) -> bool {
        // A call that was sealed before is held already.
        self.hold.get().is_some() || self.backend.registry.has_room()
    }
}
