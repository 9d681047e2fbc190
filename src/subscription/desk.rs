//! What the members of a keeper and the keeper itself tell each other.

use std::sync::Arc;

use super::watched::Watched;
use crate::call::Reply;
use crate::session::{Caller, Ear};
use crate::translate::discover::ServerIdentity;

/// The state that a keeper shares with its members.
#[derive(Debug)]
pub(super) struct Desk {
    /// The latest caller: its credentials open the next session.
    pub(super) caller: Arc<Caller>,
    pub(super) ears: Vec<Arc<Ear>>,
    pub(super) watched: Watched,
    pub(super) session: Option<Open>,
    /// How often a session could not be had, and why the last time.
    pub(super) failures: (u64, Option<Reply>),
    /// The failure after which those who were there before it cannot go on.
    pub(super) end: Option<(u64, Reply)>,
}

/// What is known of the session that is open.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) server: Arc<ServerIdentity>,
    /// The server can say something on it unasked.
    pub(super) has_general_stream: bool,
}

impl Open {
    /// Whether it is worth asking the server for changes of resources. That it does not announce them says nothing:
    /// a widely used SDK never does.
    pub(super) fn may_subscribe(&self) -> bool {
        self.has_general_stream && self.server.declares("resources")
    }
}

impl Desk {
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        Self {
            caller,
            ears: Vec::new(),
            watched: Watched::default(),
            session: None,
            failures: (0, None),
            end: None,
        }
    }

    pub(super) fn enter(&mut self, caller: &Arc<Caller>, ear: &Arc<Ear>) {
        self.caller = Arc::clone(caller);
        self.ears.push(Arc::clone(ear));
        for uri in &ear.filter().uris {
            self.watched.want(uri);
        }
    }

    pub(super) fn leave(&mut self, ear: &Arc<Ear>) {
        self.ears.retain(|other| !Arc::ptr_eq(other, ear));
        for uri in &ear.filter().uris {
            self.watched.unwant(uri);
        }
    }

    pub(super) fn opened(&mut self, open: Open) {
        self.session = Some(open);
    }

    pub(super) fn lost(&mut self) {
        self.session = None;
        self.watched.lost();
    }

    pub(super) fn failed(&mut self, reply: Reply) {
        let (count, _) = self.failures;
        self.failures = (count + 1, Some(reply));
    }
}
