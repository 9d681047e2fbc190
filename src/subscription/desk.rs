//! What the members of a keeper and the keeper itself tell each other.

use std::collections::HashMap;
use std::sync::Arc;

use crate::call::Reply;
use crate::session::{Caller, Ear, Question, Verb};
use crate::translate::discover::ServerIdentity;

/// The state that a keeper shares with its members.
#[derive(Debug)]
pub(super) struct Desk {
    /// The latest caller: its credentials open the next session.
    pub(super) caller: Arc<Caller>,
    pub(super) ears: Vec<Arc<Ear>>,
    /// What the server said to resources on the session that is open; `true` for yes.
    pub(super) verdicts: HashMap<Arc<str>, bool>,
    /// Resources that were refused and are wanted again.
    pub(super) forgiven: Vec<Arc<str>>,
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
    /// It can be asked for changes of resources.
    pub(super) may_subscribe: bool,
}

impl Desk {
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        Self {
            caller,
            ears: Vec::new(),
            verdicts: HashMap::new(),
            forgiven: Vec::new(),
            session: None,
            failures: (0, None),
            end: None,
        }
    }

    pub(super) fn enter(&mut self, caller: &Arc<Caller>, ear: &Arc<Ear>) {
        self.caller = Arc::clone(caller);
        self.ears.push(Arc::clone(ear));
        let refused = |uri: &&Arc<str>| self.verdicts.get(*uri) == Some(&false);
        let refused: Vec<_> = ear.filter().uris.iter().filter(refused).cloned().collect();
        for uri in &refused {
            self.verdicts.remove(uri);
        }
        self.forgiven.extend(refused);
    }

    pub(super) fn leave(&mut self, ear: &Arc<Ear>) {
        self.ears.retain(|other| !Arc::ptr_eq(other, ear));
    }

    pub(super) fn opened(&mut self, open: Open, verdicts: Vec<(Arc<str>, bool)>) {
        self.session = Some(open);
        self.verdicts = verdicts.into_iter().collect();
    }

    /// What the server said to a resource.
    pub(super) fn answered(&mut self, question: &Question, has_agreed: bool) {
        let uri = Arc::clone(&question.uri);
        match question.verb {
            Verb::Subscribe => self.verdicts.insert(uri, has_agreed),
            Verb::Unsubscribe => self.verdicts.remove(&uri),
        };
    }

    pub(super) fn lost(&mut self) {
        self.session = None;
        self.verdicts.clear();
    }

    pub(super) fn failed(&mut self, reply: Reply) {
        let (count, _) = self.failures;
        self.failures = (count + 1, Some(reply));
    }
}
