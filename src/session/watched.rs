//! Which resources the listeners of one session want, and which of them the server was asked for.
//!
//! What is wanted changes at any time, what the server was told follows: at most one request about a resource is on
//! its way, and whoever answers it looks again. So the server's last word is always what is wanted, in whatever order
//! listeners come and go. No I/O.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// What a server is asked about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// `resources/subscribe`
    Subscribe,
    /// `resources/unsubscribe`
    Unsubscribe,
}

/// How a server answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It agrees.
    Yes,
    /// It does not.
    No,
    /// Nobody waited for the answer.
    Unheard,
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
    is_wanted: bool,
    standing: Standing,
    /// It is among those that may have to be asked about.
    is_due: bool,
}

/// The resources of one session.
#[derive(Debug, Default)]
pub(super) struct Watched {
    resources: HashMap<Arc<str>, Resource>,
    /// Resources that may have to be asked about.
    due: VecDeque<Arc<str>>,
}

impl Watched {
    /// From now on exactly these resources are wanted.
    pub(super) fn want_all(&mut self, wanted: &HashSet<Arc<str>>) {
        let gone = |(uri, resource): (&Arc<str>, &Resource)| {
            (resource.is_wanted && !wanted.contains(uri)).then(|| Arc::clone(uri))
        };
        let gone: Vec<_> = self.resources.iter().filter_map(gone).collect();
        for uri in &gone {
            self.want(uri, false);
        }
        for uri in wanted {
            self.want(uri, true);
        }
    }

    /// From now on this resource is wanted, or not any more.
    pub(super) fn want(&mut self, uri: &Arc<str>, is_wanted: bool) {
        if is_wanted && !self.resources.contains_key(uri) {
            let resource = Resource {
                is_wanted: false,
                standing: Standing::Unasked,
                is_due: false,
            };
            self.resources.insert(Arc::clone(uri), resource);
        }
        if let Some(resource) = self.resources.get_mut(uri)
            && resource.is_wanted != is_wanted
        {
            resource.is_wanted = is_wanted;
            self.look_again(uri);
        }
    }

    /// What was refused is asked for again.
    pub(super) fn forgive(&mut self, uri: &Arc<str>) {
        if let Some(resource) = self.resources.get_mut(uri)
            && resource.standing == Standing::Refused
        {
            resource.standing = Standing::Unasked;
            self.look_again(uri);
        }
    }

    /// What is to be asked next.
    pub(super) fn next(&mut self) -> Option<(Arc<str>, Verb)> {
        while let Some(uri) = self.due.pop_front() {
            let Some(resource) = self.resources.get_mut(&uri) else {
                continue;
            };
            resource.is_due = false;
            let verb = match (resource.standing, resource.is_wanted) {
                (Standing::Unasked, true) => Verb::Subscribe,
                (Standing::Subscribed, false) => Verb::Unsubscribe,
                _ => continue,
            };
            resource.standing = Standing::Asking(verb);
            return Some((uri, verb));
        }
        None
    }

    /// What became of a request about a resource.
    pub(super) fn answered(&mut self, uri: &Arc<str>, verb: Verb, word: Word) {
        if let Some(resource) = self.resources.get_mut(uri) {
            resource.standing = match (verb, word) {
                (Verb::Subscribe, Word::Yes) | (Verb::Unsubscribe, Word::Unheard) => {
                    Standing::Subscribed
                }
                (Verb::Subscribe, Word::No) => Standing::Refused,
                (Verb::Subscribe, Word::Unheard) | (Verb::Unsubscribe, Word::Yes | Word::No) => {
                    Standing::Unasked
                }
            };
            self.look_again(uri);
        }
    }

    fn look_again(&mut self, uri: &Arc<str>) {
        let Some(resource) = self.resources.get_mut(uri) else {
            return;
        };
        let is_settled = matches!(resource.standing, Standing::Unasked | Standing::Refused);
        if !resource.is_wanted && is_settled {
            if resource.is_due {
                self.due.retain(|due| due != uri);
            }
            self.resources.remove(uri);
        } else if !std::mem::replace(&mut resource.is_due, true) {
            self.due.push_back(Arc::clone(uri));
        }
    }

    /// Whether the server has said yes or no to a resource that is wanted; `true` for yes.
    pub(super) fn verdict(&self, uri: &str) -> Option<bool> {
        let resource = self.resources.get(uri)?;
        match resource.standing {
            Standing::Subscribed if resource.is_wanted => Some(true),
            Standing::Refused => Some(false),
            Standing::Subscribed | Standing::Unasked | Standing::Asking(_) => None,
        }
    }

    /// Whether nothing is wanted and nothing is left at the server.
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(uris: &[&str]) -> HashSet<Arc<str>> {
        uris.iter().map(|uri| Arc::from(*uri)).collect()
    }

    #[test]
    fn a_resource_is_subscribed_once_and_unsubscribed_when_nobody_wants_it() {
        let (mut watched, uri) = (Watched::default(), Arc::from("a:b"));
        watched.want_all(&set(&["a:b"]));
        watched.want_all(&set(&["a:b"]));
        assert_eq!(watched.next(), Some((Arc::clone(&uri), Verb::Subscribe)));
        assert_eq!(watched.next(), None);
        watched.answered(&uri, Verb::Subscribe, Word::Yes);
        assert_eq!(watched.next(), None);
        watched.want_all(&set(&[]));
        assert_eq!(watched.next(), Some((Arc::clone(&uri), Verb::Unsubscribe)));
        watched.answered(&uri, Verb::Unsubscribe, Word::Yes);
        assert!(watched.is_empty());
    }

    #[test]
    fn what_was_refused_is_asked_for_again_when_it_is_forgiven() {
        let (mut watched, uri) = (Watched::default(), Arc::from("a:b"));
        watched.want_all(&set(&["a:b"]));
        watched.next();
        watched.answered(&uri, Verb::Subscribe, Word::No);
        assert_eq!(watched.verdict("a:b"), Some(false));
        assert_eq!(watched.next(), None);
        watched.forgive(&uri);
        assert_eq!(watched.next(), Some((Arc::clone(&uri), Verb::Subscribe)));
    }

    #[test]
    fn what_comes_and_goes_without_being_asked_leaves_nothing() {
        let mut watched = Watched::default();
        for n in 0..1000 {
            let uri = Arc::from(format!("a:{n}"));
            watched.want(&uri, true);
            watched.want(&uri, false);
        }
        assert!(watched.is_empty());
        assert_eq!(watched.next(), None);
        assert!(watched.due.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Want(Vec<u8>),
        Ask,
        Answer(Word),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let word = prop_oneof![Just(Word::Yes), Just(Word::No), Just(Word::Unheard)];
        let step = prop_oneof![
            prop::collection::vec(0..3u8, 0..4).prop_map(Step::Want),
            Just(Step::Ask),
            word.prop_map(Step::Answer),
        ];
        prop::collection::vec(step, 0..80)
    }

    /// A server, and the requests on their way to it.
    #[derive(Default)]
    struct Server {
        subscribed: HashSet<Arc<str>>,
        open: VecDeque<(Arc<str>, Verb)>,
    }

    impl Server {
        fn answer(&mut self, watched: &mut Watched, word: Word) {
            let Some((uri, verb)) = self.open.pop_front() else {
                return;
            };
            match (verb, word) {
                (Verb::Subscribe, Word::Yes) => self.subscribed.insert(Arc::clone(&uri)),
                (Verb::Unsubscribe, Word::Yes) => self.subscribed.remove(&uri),
                _ => false,
            };
            watched.answered(&uri, verb, word);
        }
    }

    proptest! {
        /// Whatever happens in whatever order, in the end the server has what is wanted, and never two requests
        /// about one resource at once.
        #[test]
        fn the_server_ends_with_what_is_wanted(steps in steps(), last in prop::collection::vec(0..3u8, 0..4)) {
            let named = |wanted: &[u8]| -> HashSet<Arc<str>> {
                wanted.iter().map(|n| format!("a:{n}").into()).collect()
            };
            let (mut watched, mut server) = (Watched::default(), Server::default());
            for step in steps {
                match step {
                    Step::Want(wanted) => watched.want_all(&named(&wanted)),
                    Step::Ask => if let Some((uri, verb)) = watched.next() {
                        prop_assert!(server.open.iter().all(|(other, _)| *other != uri));
                        server.open.push_back((uri, verb));
                    },
                    // A server that does not let go is not asked twice.
                    Step::Answer(Word::No) if matches!(server.open.front(), Some((_, Verb::Unsubscribe))) => {}
                    Step::Answer(word) => server.answer(&mut watched, word),
                }
            }
            let last = named(&last);
            watched.want_all(&last);
            for uri in &last {
                watched.forgive(uri);
            }
            loop {
                while let Some(asked) = watched.next() { server.open.push_back(asked); }
                if server.open.is_empty() { break; }
                server.answer(&mut watched, Word::Yes);
                // What was refused meanwhile is not wanted any less.
                for uri in &last {
                    watched.forgive(uri);
                }
            }
            prop_assert_eq!(&server.subscribed, &last);
        }
    }
}
