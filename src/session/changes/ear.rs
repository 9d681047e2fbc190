//! One listener's ear: what it wants to hear of, and what it has yet to tell.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::locked;
use crate::translate::subscription::{Change, Changed, Filter};

/// Parts of resources of which changes wait at once; beyond it, that the resource itself has changed is all that is
/// kept. Lists and subscribed resources are bounded by the filter.
const PARTS_MAX: usize = 256;

/// Where a part of a resource begins in its URI.
const ENDS: [char; 3] = ['/', '#', '?'];

/// How long a change waits for its like: a server tells it on each session it has with a principal, within moments.
const SETTLE: Duration = Duration::from_millis(20);

/// What one listener hears.
#[derive(Debug)]
pub struct Ear {
    filter: Filter,
    uris: HashSet<Arc<str>>,
    waiting: Mutex<Waiting>,
    woken: Notify,
}

/// Changes in the order in which they came first, each with its latest params.
#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<(Instant, Changed)>,
    params: HashMap<Changed, Option<Arc<RawValue>>>,
    /// What of the filter is honoured.
    promised: Filter,
}

impl Ear {
    /// An ear for what `filter` asks for.
    #[must_use]
    pub fn new(filter: Filter) -> Self {
        Self {
            uris: filter.uris.iter().cloned().collect(),
            filter,
            waiting: Mutex::default(),
            woken: Notify::new(),
        }
    }

    /// What it wants to hear of.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Takes a change in, if it is wanted.
    pub(super) fn hear(&self, change: &Change) {
        let wanted = match &change.what {
            Changed::List(list) => self.filter.lists.has(*list).then(|| change.clone()),
            Changed::Resource(uri) => self.subscribed(uri).map(|subscribed| {
                let is_crowded = locked(&self.waiting).order.len() >= PARTS_MAX;
                if subscribed != *uri && is_crowded {
                    Change::bare(Changed::Resource(subscribed))
                } else {
                    change.clone()
                }
            }),
        };
        if let Some(change) = wanted {
            self.keep(change);
        }
    }

    /// From now on this is what it was promised.
    pub fn promise(&self, honoured: &Filter) {
        locked(&self.waiting).promised = honoured.clone();
    }

    /// Something may have been missed: everything that was promised may have changed.
    pub fn missed(&self) {
        let Filter { lists, uris } = locked(&self.waiting).promised.clone();
        let lists = lists.iter().map(Changed::List);
        let resources = uris.into_iter().map(Changed::Resource);
        for what in lists.chain(resources) {
            self.keep(Change::bare(what));
        }
    }

    fn keep(&self, Change { what, params }: Change) {
        let mut waiting = locked(&self.waiting);
        if waiting.params.insert(what.clone(), params).is_none() {
            waiting.order.push_back((Instant::now(), what));
        }
        drop(waiting);
        self.woken.notify_one();
    }

    /// The subscribed resource that `uri` is or is a part of (2025-11-25 server/resources: an update may name a part).
    fn subscribed(&self, uri: &str) -> Option<Arc<str>> {
        if let Some(whole) = self.uris.get(uri) {
            return Some(Arc::clone(whole));
        }
        let is_part = |whole: &&Arc<str>| {
            let rest = uri.strip_prefix(&***whole);
            rest.is_some_and(|rest| whole.ends_with(ENDS) || rest.starts_with(ENDS))
        };
        self.uris.iter().find(is_part).map(Arc::clone)
    }

    /// The next change, if there is one.
    pub(super) fn take(&self) -> Option<Change> {
        let mut waiting = locked(&self.waiting);
        let (_, what) = waiting.order.pop_front()?;
        let params = waiting.params.remove(&what).flatten();
        Some(Change { what, params })
    }

    /// Waits for the next change. For one caller at a time; cancel-safe.
    pub async fn next(&self) -> Change {
        loop {
            let first = locked(&self.waiting).order.front().map(|(since, _)| *since);
            match first {
                Some(since) => {
                    tokio::time::sleep_until(since + SETTLE).await;
                    if let Some(change) = self.take() {
                        return change;
                    }
                }
                None => self.woken.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::subscription::{List, Lists};

    fn ear(uris: &[&str]) -> Ear {
        Ear::new(Filter {
            lists: Lists::that(|list| list == List::Tools),
            uris: uris.iter().map(|uri| (*uri).into()).collect(),
        })
    }

    fn resource(uri: &str) -> Change {
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        let params: Box<RawValue> = serde_json::from_str(&params).unwrap();
        Change::parse("notifications/resources/updated", Some(&params)).unwrap()
    }

    fn told(ear: &Ear) -> Vec<String> {
        let next = || ear.take();
        std::iter::from_fn(next)
            .map(|change| match change.what {
                Changed::List(list) => format!("{list:?}"),
                Changed::Resource(uri) => uri.to_string(),
            })
            .collect()
    }

    #[test]
    fn equal_changes_are_told_once_in_the_order_they_came_first() {
        let ear = ear(&["a:b", "a:c"]);
        for change in [
            resource("a:c"),
            Change::bare(Changed::List(List::Tools)),
            resource("a:b"),
            resource("a:c"),
            Change::bare(Changed::List(List::Tools)),
        ] {
            ear.hear(&change);
        }
        assert_eq!(told(&ear), ["a:c", "Tools", "a:b"]);
        ear.hear(&resource("a:c"));
        assert_eq!(told(&ear), ["a:c"], "told again after it was told");
    }

    #[test]
    fn what_was_not_asked_for_is_not_told() {
        let ear = ear(&["file:///a"]);
        for change in [
            Change::bare(Changed::List(List::Prompts)),
            resource("file:///ab"),
            resource("file:///"),
            resource("file:///a/b"),
            resource("file:///a#b"),
        ] {
            ear.hear(&change);
        }
        assert_eq!(told(&ear), ["file:///a/b", "file:///a#b"]);
    }

    #[test]
    fn parts_of_a_resource_are_bounded() {
        let ear = ear(&["a:b"]);
        for part in 0..10 * PARTS_MAX {
            ear.hear(&resource(&format!("a:b/{part}")));
        }
        let told = told(&ear);
        assert_eq!(told.len(), PARTS_MAX + 1);
        assert_eq!(told[PARTS_MAX], "a:b");
    }

    #[test]
    fn whoever_missed_something_hears_of_everything_it_wants() {
        let ear = ear(&["a:b", "a:refused"]);
        ear.missed();
        assert!(told(&ear).is_empty(), "nothing was promised");
        ear.promise(&Filter {
            lists: Lists::that(|list| list == List::Tools),
            uris: vec!["a:b".into()],
        });
        ear.missed();
        assert_eq!(told(&ear), ["Tools", "a:b"]);
    }

    /// A server tells a change on each of its sessions.
    #[tokio::test(start_paused = true)]
    async fn a_change_waits_a_moment_for_its_like() {
        let ear = ear(&["a:b"]);
        let begun = Instant::now();
        let again = async {
            for _ in 0..3 {
                ear.hear(&resource("a:b"));
                tokio::time::sleep(SETTLE / 4).await;
            }
        };
        tokio::join!(ear.next(), again);
        assert_eq!(begun.elapsed(), SETTLE);
        assert!(ear.take().is_none(), "told once");
    }
}
