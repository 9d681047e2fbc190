//! What the members of a keeper and the keeper itself tell each other. No I/O, no clock.

use std::collections::HashMap;
use std::sync::Arc;

use crate::call::Reply;
use crate::session::{Caller, Ear, Standing};
use crate::translate::discover::ServerIdentity;
use crate::translate::subscription::{self, Filter, Lists};

/// The state that a keeper shares with its members.
#[derive(Debug)]
pub(super) struct Desk {
    /// The latest caller: its credentials speak for all.
    caller: Arc<Caller>,
    ears: Vec<Arc<Ear>>,
    /// How many members want each resource.
    wanted: HashMap<Arc<str>, usize>,
    /// Resources about which the session has to be told what is wanted now.
    changed: Vec<Arc<str>>,
    session: Option<Open>,
    failures: Failures,
}

/// How often a session could not be had.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    /// Why, the last time.
    last: Option<Reply>,
    /// The one after which those who were there before cannot go on.
    fatal: Option<u64>,
}

/// What is known of the session that is open.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) server: Arc<ServerIdentity>,
    /// The server can say something on it unasked.
    pub(super) has_general_stream: bool,
    /// It can be asked for changes of resources.
    pub(super) may_subscribe: bool,
    pub(super) standing: Standing,
}

/// What a listener can count on.
#[derive(Debug)]
pub(super) struct Agreed {
    /// The part of its filter that is honoured.
    pub(super) honoured: Filter,
    pub(super) server: Arc<ServerIdentity>,
}

impl Desk {
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        Self {
            caller,
            ears: Vec::new(),
            wanted: HashMap::new(),
            changed: Vec::new(),
            session: None,
            failures: Failures::default(),
        }
    }

    pub(super) fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    pub(super) fn ears(&self) -> &[Arc<Ear>] {
        &self.ears
    }

    /// A member comes; how many failures there were before it.
    pub(super) fn enter(&mut self, caller: &Arc<Caller>, ear: &Arc<Ear>) -> u64 {
        self.caller = Arc::clone(caller);
        self.ears.push(Arc::clone(ear));
        for uri in &ear.filter().uris {
            *self.wanted.entry(Arc::clone(uri)).or_default() += 1;
            self.has_changed(uri);
        }
        self.failures.count
    }

    pub(super) fn leave(&mut self, ear: &Arc<Ear>) {
        self.ears.retain(|other| !Arc::ptr_eq(other, ear));
        for uri in &ear.filter().uris {
            if let Some(count) = self.wanted.get_mut(uri) {
                *count -= 1;
                if *count == 0 {
                    self.wanted.remove(uri);
                    self.has_changed(uri);
                }
            }
        }
    }

    fn has_changed(&mut self, uri: &Arc<str>) {
        // Without a session that could be told there is nothing to tell: the next one is told everything.
        if self.session.as_ref().is_some_and(|open| open.may_subscribe) {
            self.changed.push(Arc::clone(uri));
        }
    }

    pub(super) fn opened(&mut self, open: Open) {
        self.changed = if open.may_subscribe {
            self.wanted.keys().cloned().collect()
        } else {
            Vec::new()
        };
        self.session = Some(open);
    }

    pub(super) fn lost(&mut self) {
        self.session = None;
        self.changed.clear();
    }

    /// The resources about which something has changed, and whether each is wanted now.
    pub(super) fn take_changed(&mut self) -> Vec<(Arc<str>, bool)> {
        let changed = std::mem::take(&mut self.changed);
        let is_wanted = |uri: Arc<str>| {
            let is_wanted = self.wanted.contains_key(&uri);
            (uri, is_wanted)
        };
        changed.into_iter().map(is_wanted).collect()
    }

    pub(super) fn failed(&mut self, reply: Reply) {
        self.failures.count += 1;
        self.failures.last = Some(reply);
    }

    /// Nobody who is here can go on.
    pub(super) fn end(&mut self, reply: Reply) {
        self.failed(reply);
        self.failures.fatal = Some(self.failures.count);
    }

    /// Why a member that came after so many failures cannot go on, if it cannot.
    pub(super) fn ended(&self, failures_before: u64) -> Option<Reply> {
        let is_over = self
            .failures
            .fatal
            .is_some_and(|fatal| fatal > failures_before);
        self.failures.last.clone().filter(|_| is_over)
    }

    /// What a member can count on; nothing while there is something to wait for. When it is late, what the server has
    /// not agreed to is left out.
    pub(super) fn agreed(
        &self,
        wanted: &Filter,
        failures_before: u64,
        seen: Lists,
        is_late: bool,
    ) -> Option<Result<Agreed, Reply>> {
        let Some(open) = &self.session else {
            let has_failed = self.failures.count > failures_before;
            return self.failures.last.clone().filter(|_| has_failed).map(Err);
        };
        let mut uris = Vec::new();
        for uri in wanted.uris.iter().filter(|_| open.may_subscribe) {
            match open.standing.verdict(uri) {
                Some(true) => uris.push(Arc::clone(uri)),
                Some(false) => {}
                None if is_late => {}
                None => return None,
            }
        }
        let offered = subscription::offered(&open.server);
        let lists = Lists::that(|list| {
            let can_come = open.has_general_stream && offered.has(list);
            wanted.lists.has(list) && (can_come || seen.has(list))
        });
        Some(Ok(Agreed {
            honoured: Filter { lists, uris },
            server: Arc::clone(&open.server),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::failed;
    use crate::session::{Principal, SessionKey};
    use crate::translate::capability::ClientCapabilities;

    fn desk() -> (Desk, Arc<Caller>) {
        let raw: Box<serde_json::value::RawValue> = serde_json::from_str("{}").unwrap();
        let caller = Arc::new(Caller {
            key: SessionKey {
                principal: Principal::Anonymous,
                capabilities: ClientCapabilities::parse(&raw).unwrap(),
            },
            credentials: None,
            isolated: false,
        });
        (Desk::new(Arc::clone(&caller)), caller)
    }

    fn ear() -> Arc<Ear> {
        Arc::new(Ear::new(Filter::default()))
    }

    fn waits(desk: &Desk, failures_before: u64) -> bool {
        let agreed = desk.agreed(&Filter::default(), failures_before, Lists::default(), false);
        match agreed {
            None => true,
            Some(agreed) => {
                assert!(agreed.is_err(), "there is no session");
                false
            }
        }
    }

    #[test]
    fn failures_before_a_member_came_are_not_its_own() {
        let (mut desk, caller) = desk();
        desk.enter(&caller, &ear());
        desk.failed(failed("away", false));
        let before = desk.enter(&caller, &ear());
        assert!(waits(&desk, before), "the next attempt may go well");
        desk.failed(failed("away", false));
        assert!(!waits(&desk, before));
        assert!(desk.ended(before).is_none(), "it can be tried again");
    }

    #[test]
    fn an_end_is_for_those_who_are_there() {
        let (mut desk, caller) = desk();
        let there = desk.enter(&caller, &ear());
        desk.end(failed("deaf", false));
        let new = desk.enter(&caller, &ear());
        assert!(desk.ended(there).is_some() && desk.ended(new).is_none());
        desk.failed(failed("away", false));
        assert!(desk.ended(new).is_none(), "not every failure is an end");
    }

    #[test]
    fn whoever_leaves_is_not_there() {
        let (mut desk, caller) = desk();
        let (first, second) = (ear(), ear());
        desk.enter(&caller, &first);
        desk.enter(&caller, &second);
        desk.leave(&first);
        assert!(Arc::ptr_eq(&desk.ears()[0], &second));
        desk.leave(&second);
        assert!(desk.ears().is_empty());
    }
}
