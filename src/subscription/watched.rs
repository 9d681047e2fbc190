//! Which resources the listeners of one session want, and which of them the server was asked for.
//!
//! What is wanted changes at any time, what the server was told follows: at most one request about a resource is on
//! its way, and whoever answers it looks again. So the server's last word is always what is wanted, in whatever order
//! listeners come and go. No I/O.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What a server is asked about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// `resources/subscribe`
    Subscribe,
    /// `resources/unsubscribe`
    Unsubscribe,
}

/// Where a resource stands with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Unasked,
    Asking(Verb),
    Subscribed,
    Refused,
}

#[derive(Debug)]
struct Resource {
    wanted: usize,
    standing: Standing,
}

/// The resources of one session.
#[derive(Debug, Default)]
pub(super) struct Watched {
    resources: HashMap<Arc<str>, Resource>,
    /// Resources that may have to be asked about.
    due: VecDeque<Arc<str>>,
}

impl Watched {
    /// One more listener wants this resource. What was refused before is asked for again.
    pub(super) fn want(&mut self, uri: &Arc<str>) {
        let resource = self.resources.entry(Arc::clone(uri)).or_insert(Resource {
            wanted: 0,
            standing: Standing::Unasked,
        });
        resource.wanted += 1;
        if resource.standing == Standing::Refused {
            resource.standing = Standing::Unasked;
        }
        self.due.push_back(Arc::clone(uri));
    }

    /// One listener less wants it.
    pub(super) fn unwant(&mut self, uri: &Arc<str>) {
        if let Some(resource) = self.resources.get_mut(uri) {
            resource.wanted -= 1;
            self.look_again(uri);
        }
    }

    /// What is to be asked next.
    pub(super) fn next(&mut self) -> Option<(Arc<str>, Verb)> {
        while let Some(uri) = self.due.pop_front() {
            let Some(resource) = self.resources.get_mut(&uri) else {
                continue;
            };
            let verb = match (resource.standing, resource.wanted) {
                (Standing::Unasked, 1..) => Verb::Subscribe,
                (Standing::Subscribed, 0) => Verb::Unsubscribe,
                _ => continue,
            };
            resource.standing = Standing::Asking(verb);
            return Some((uri, verb));
        }
        None
    }

    /// The server has agreed to what it was asked about a resource, or not.
    pub(super) fn answered(&mut self, uri: &Arc<str>, verb: Verb, has_agreed: bool) {
        if let Some(resource) = self.resources.get_mut(uri) {
            resource.standing = match (verb, has_agreed) {
                (Verb::Subscribe, true) => Standing::Subscribed,
                (Verb::Subscribe, false) => Standing::Refused,
                (Verb::Unsubscribe, _) => Standing::Unasked,
            };
            self.look_again(uri);
        }
    }

    /// The session is lost and with it all that the server agreed to.
    pub(super) fn lost(&mut self) {
        self.resources.retain(|_, resource| resource.wanted > 0);
        for resource in self.resources.values_mut() {
            resource.standing = Standing::Unasked;
        }
        self.due = self.resources.keys().cloned().collect();
    }

    fn look_again(&mut self, uri: &Arc<str>) {
        let is_over = |resource: &Resource| {
            resource.wanted == 0
                && matches!(resource.standing, Standing::Unasked | Standing::Refused)
        };
        if self.resources.get(uri).is_some_and(is_over) {
            self.resources.remove(uri);
        } else {
            self.due.push_back(Arc::clone(uri));
        }
    }

    /// Whether the server has said yes or no to a resource that is wanted; `true` for yes.
    pub(super) fn verdict(&self, uri: &str) -> Option<bool> {
        match self.resources.get(uri)?.standing {
            Standing::Subscribed => Some(true),
            Standing::Refused => Some(false),
            Standing::Unasked | Standing::Asking(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_resource_is_subscribed_once_and_unsubscribed_with_its_last_listener() {
        let (mut watched, uri) = (Watched::default(), Arc::from("a:b"));
        watched.want(&uri);
        watched.want(&uri);
        assert_eq!(watched.next(), Some((Arc::clone(&uri), Verb::Subscribe)));
        assert_eq!(watched.next(), None);
        watched.answered(&uri, Verb::Subscribe, true);
        watched.unwant(&uri);
        assert_eq!(watched.next(), None);
        assert_eq!(watched.verdict("a:b"), Some(true));
        watched.unwant(&uri);
        assert_eq!(watched.next(), Some((Arc::clone(&uri), Verb::Unsubscribe)));
        watched.answered(&uri, Verb::Unsubscribe, true);
        assert!(watched.resources.is_empty());
    }

    #[test]
    fn what_was_refused_is_asked_for_again_by_the_next_listener_alone() {
        let (mut watched, uri) = (Watched::default(), Arc::from("a:b"));
        watched.want(&uri);
        watched.next();
        watched.answered(&uri, Verb::Subscribe, false);
        assert_eq!(
            (watched.verdict("a:b"), watched.next()),
            (Some(false), None)
        );
        watched.want(&uri);
        assert_eq!(watched.next(), Some((Arc::clone(&uri), Verb::Subscribe)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Want(u8),
        Unwant(u8),
        Ask,
        Answer(bool),
        Lose,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..3u8).prop_map(Step::Want),
            4 => (0..3u8).prop_map(Step::Unwant),
            4 => Just(Step::Ask),
            4 => any::<bool>().prop_map(Step::Answer),
            1 => Just(Step::Lose),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        /// Whatever happens in whatever order, in the end the server has what is wanted, and never two requests
        /// about one resource at once.
        #[test]
        fn the_server_ends_with_what_is_wanted(steps in steps()) {
            let name = |n: u8| -> Arc<str> { format!("a:{n}").into() };
            let (mut watched, mut wanted, mut server) = (Watched::default(), [0u32; 3], HashSet::new());
            let mut open: VecDeque<(Arc<str>, Verb)> = VecDeque::new();
            let mut answer = |watched: &mut Watched, open: &mut VecDeque<_>, agrees: bool| {
                let Some((uri, verb)) = open.pop_front() else { return };
                match (verb, agrees) {
                    (Verb::Subscribe, true) => { server.insert(Arc::clone(&uri)); }
                    (Verb::Subscribe, false) => {}
                    (Verb::Unsubscribe, _) => { server.remove(&uri); }
                }
                watched.answered(&uri, verb, agrees);
            };
            for step in steps {
                match step {
                    Step::Want(n) => { wanted[usize::from(n)] += 1; watched.want(&name(n)); }
                    Step::Unwant(n) if wanted[usize::from(n)] > 0 => {
                        wanted[usize::from(n)] -= 1;
                        watched.unwant(&name(n));
                    }
                    Step::Unwant(_) => {}
                    Step::Ask => if let Some((uri, verb)) = watched.next() {
                        prop_assert!(open.iter().all(|(other, _)| *other != uri));
                        open.push_back((uri, verb));
                    },
                    Step::Answer(agrees) => answer(&mut watched, &mut open, agrees),
                    Step::Lose => { open.clear(); watched.lost(); }
                }
            }
            // A refusal stands until somebody new asks.
            for n in 0..3 {
                if wanted[usize::from(n)] > 0 {
                    wanted[usize::from(n)] += 1;
                    watched.want(&name(n));
                }
            }
            loop {
                while let Some(asked) = watched.next() { open.push_back(asked); }
                if open.is_empty() { break; }
                answer(&mut watched, &mut open, true);
            }
            for n in 0..3 {
                prop_assert_eq!(watched.verdict(&name(n)), (wanted[usize::from(n)] > 0).then_some(true));
            }
        }
    }
}
