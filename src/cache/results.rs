//! Discovery and lists that are answered from memory, each within its time to live.
//!
//! What is remembered is shared no further than its `cacheScope` says, and never between capability sets: the lists of
//! some servers depend on them. It is forgotten when a list changes or a session is lost; what was asked for before
//! that and comes after it is not remembered at all. A client is told what is left of the time to live, so that no
//! answer is older than its server allows, however many caches it passes. What is not remembered here may have been
//! answered by another replica.
//! Spec: 2026-07-28 server/utilities/caching.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::commons::{Commons, Found, Spot};
use super::naming::{Reader, Subject};
use crate::call::Moment;
use crate::session::{Caller, Changes, Principal};
use crate::translate::capability::ClientCapabilities;
use crate::translate::result::{CacheHints, CacheScope, with_ttl};
use crate::translate::subscription::{List, Lists};
use crate::wire::modern::Method;
use crate::wire::object::RawObject;

/// Guessed for the first allocation alone.
const ENTRIES_EXPECTED: usize = 256;

/// What an entry costs besides its result. Measured generously.
const ENTRY_BYTES: u64 = 512;

/// What is answered from memory.
#[derive(Debug)]
pub struct Memory {
    results: Cache<Key, Arc<Remembered>, Weight>,
    hints: CacheHints,
    lists: ListCaching,
    changes: Arc<Changes>,
    commons: Option<Arc<Commons>>,
}

/// Whether lists are answered from memory as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListCaching {
    /// No: each request goes to the server.
    Off,
    /// Within their time to live.
    On,
}

/// For whom a result was made, and what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Nobody for what anybody may see.
    principal: Option<Principal>,
    /// The same caller with other credentials may see something else.
    credentials: Option<HeaderValue>,
    capabilities: ClientCapabilities,
    method: Method,
    cursor: Option<Box<str>>,
}

#[derive(Debug)]
struct Remembered {
    result: Bytes,
    until: Moment,
    epoch: u64,
}

/// Where a result will be put that has been asked for.
#[derive(Debug)]
pub struct Place {
    key: Key,
    epoch: u64,
    /// Where other replicas will find it.
    spot: Option<Spot>,
}

#[derive(Clone, Debug)]
struct Weight;

impl Key {
    fn subject(&self, hints: CacheHints) -> Subject<'_> {
        let reader = Reader {
            principal: self.principal,
            credentials: self.credentials.as_ref().map(HeaderValue::as_bytes),
            capabilities: self.capabilities.as_str(),
        };
        Subject::Result {
            reader,
            method: self.method.as_str(),
            cursor: self.cursor.as_deref(),
            hints: (hints.ttl_ms, hints.scope == CacheScope::Public),
        }
    }
}

impl Place {
    /// Where something else is kept that is read with the same request.
    #[must_use]
    pub fn spot(&self) -> Option<Spot> {
        self.spot
    }
}

impl Weighter<Key, Arc<Remembered>> for Weight {
    fn weight(&self, key: &Key, remembered: &Arc<Remembered>) -> u64 {
        let cursor = key.cursor.as_deref().map_or(0, str::len);
        ENTRY_BYTES + (remembered.result.len() + cursor) as u64
    }
}

impl Memory {
    /// An empty memory of at most `bytes_max` bytes.
    #[must_use]
    pub fn new(
        hints: CacheHints,
        lists: ListCaching,
        bytes_max: usize,
        (changes, commons): (Arc<Changes>, Option<Arc<Commons>>),
    ) -> Self {
        Self {
            results: Cache::with_weighter(ENTRIES_EXPECTED, bytes_max as u64, Weight),
            hints,
            lists,
            changes,
            commons,
        }
    }

    /// Where the answer to a request belongs; nothing when it is not to be remembered.
    #[must_use]
    pub fn place(&self, caller: &Caller, method: Method, params: &RawObject<'_>) -> Option<Place> {
        if self.hints.ttl_ms == 0 {
            return None;
        }
        let is_list = list_of(method).is_some();
        if !(method == Method::Discover || (is_list && self.lists == ListCaching::On)) {
            return None;
        }
        // What else it says may have a meaning that is not known here.
        if params
            .iter()
            .any(|(member, _)| !matches!(member, "_meta" | "cursor"))
        {
            return None;
        }
        let cursor = params.string("cursor");
        if cursor.is_none() && params.member("cursor").is_some() {
            return None;
        }
        let is_public = is_list && self.hints.scope == CacheScope::Public;
        // Callers that share nothing look alike here.
        if caller.isolated && !is_public {
            return None;
        }
        let key = Key {
            principal: (!is_public).then_some(caller.key.principal),
            credentials: caller.credentials.clone().filter(|_| !is_public),
            capabilities: caller.key.capabilities.clone(),
            method,
            cursor: cursor.map(Into::into),
        };
        let epoch = self.epoch(method);
        Some(Place {
            key,
            epoch,
            spot: None,
        })
    }

    /// The remembered answer, with what is left of its time to live.
    #[must_use]
    pub fn recall(&self, place: &Place, now: Moment) -> Option<Bytes> {
        let remembered = self.results.get(&place.key)?;
        let left = remembered.until.0.saturating_sub(now.0);
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if left_ms == 0 || remembered.epoch != place.epoch {
            return None;
        }
        with_ttl(&remembered.result, left_ms).map(Into::into)
    }

    /// What another replica was answered. Whether it was or not, the answer that is remembered next is for all.
    pub async fn look(&self, place: &mut Place) -> Option<Found> {
        let commons = self.commons.as_ref()?;
        let (subject, lists) = (
            place.key.subject(self.hints),
            lists_behind(place.key.method),
        );
        let (spot, found) = commons.look(&subject, lists, self.ttl()).await?;
        place.spot = Some(spot);
        found
    }

    /// Remembers what another replica was answered, and recalls it, unless something has changed since it was looked for.
    #[must_use]
    pub fn learn(&self, place: &Place, found: Found, now: Moment) -> Option<Bytes> {
        let Found { contents, left } = found;
        if place.epoch != self.epoch(place.key.method) {
            return None;
        }
        let remembered = Remembered {
            result: contents,
            until: now + left,
            epoch: place.epoch,
        };
        self.results.insert(place.key.clone(), Arc::new(remembered));
        self.recall(place, now)
    }

    /// Remembers an answer, unless something has changed since it was asked for.
    pub fn remember(&self, place: Place, result: &Bytes, now: Moment) {
        let Place { key, epoch, spot } = place;
        if epoch != self.epoch(key.method) {
            return;
        }
        if let (Some(commons), Some(spot)) = (&self.commons, spot) {
            commons.keep(spot, result, self.ttl());
        }
        let remembered = Remembered {
            // A result may be a part of a larger read buffer.
            result: Bytes::copy_from_slice(result),
            until: now + self.ttl(),
            epoch,
        };
        self.results.insert(key, Arc::new(remembered));
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.hints.ttl_ms)
    }

    fn epoch(&self, method: Method) -> u64 {
        let lists = lists_behind(method).iter();
        lists.map(|list| self.changes.epoch(list)).sum()
    }
}

/// The lists whose change makes the answer another: of discovery, any.
fn lists_behind(method: Method) -> Lists {
    let list = list_of(method);
    Lists::that(|one| list.is_none_or(|list| list == one))
}

/// The list that a method reads.
const fn list_of(method: Method) -> Option<List> {
    match method {
        Method::ToolsList => Some(List::Tools),
        Method::PromptsList => Some(List::Prompts),
        Method::ResourcesList | Method::ResourceTemplatesList => Some(List::Resources),
        Method::Discover
        | Method::ToolsCall
        | Method::PromptsGet
        | Method::ResourcesRead
        | Method::Complete
        | Method::Listen => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Audience, Binding, SessionKey};
    use crate::translate::subscription::{Change, Changed};

    const RESULT: &[u8] =
        br#"{"resultType":"complete","ttlMs":1000,"cacheScope":"private","tools":[]}"#;

    fn memory(scope: CacheScope, lists: ListCaching) -> Memory {
        let hints = CacheHints {
            ttl_ms: 1000,
            scope,
        };
        Memory::new(hints, lists, 1 << 20, (Arc::default(), None))
    }

    fn caller(name: &str) -> Caller {
        let capabilities = serde_json::from_str("{}").unwrap();
        let capabilities: Box<serde_json::value::RawValue> = capabilities;
        Caller {
            key: SessionKey {
                principal: Principal::Known(Binding::of(&[name.as_bytes()])),
                capabilities: ClientCapabilities::parse(&capabilities).unwrap(),
            },
            credentials: None,
            isolated: false,
        }
    }

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    fn place(memory: &Memory, name: &str, params: &str) -> Option<Place> {
        let params = RawObject::parse(params.as_bytes()).unwrap();
        memory.place(&caller(name), Method::ToolsList, &params)
    }

    fn recalled(memory: &Memory, name: &str, params: &str, ms: u64) -> Option<Bytes> {
        memory.recall(&place(memory, name, params)?, at(ms))
    }

    fn filled(scope: CacheScope) -> Memory {
        let memory = memory(scope, ListCaching::On);
        let place = place(&memory, "ada", "{}").unwrap();
        memory.remember(place, &Bytes::from_static(RESULT), at(0));
        memory
    }

    #[test]
    fn an_answer_is_as_fresh_as_it_says() {
        let memory = filled(CacheScope::Private);
        let expected =
            br#"{"resultType":"complete","ttlMs":600,"cacheScope":"private","tools":[]}"#;
        assert_eq!(recalled(&memory, "ada", "{}", 400).unwrap(), expected[..]);
        assert!(recalled(&memory, "ada", "{}", 1000).is_none());
    }

    #[test]
    fn answers_go_as_far_as_their_scope() {
        let (private, public) = (filled(CacheScope::Private), filled(CacheScope::Public));
        assert!(recalled(&private, "eve", "{}", 1).is_none());
        assert!(recalled(&public, "eve", "{}", 1).is_some());
        for params in [r#"{"cursor":"c"}"#, r#"{"cursor":7}"#, r#"{"filter":1}"#] {
            assert!(recalled(&public, "ada", params, 1).is_none(), "{params}");
        }
        assert!(recalled(&public, "ada", r#"{"_meta":{"k":1}}"#, 1).is_some());
    }

    #[test]
    fn a_change_makes_answers_forgotten_and_those_on_their_way_useless() {
        let memory = filled(CacheScope::Private);
        let on_its_way = place(&memory, "ada", r#"{"cursor":"c"}"#).unwrap();
        let audience = Audience::Of(Principal::Anonymous);
        memory
            .changes
            .publish(audience, &Change::bare(Changed::List(List::Prompts)));
        assert!(recalled(&memory, "ada", "{}", 1).is_some(), "another list");
        memory
            .changes
            .publish(audience, &Change::bare(Changed::List(List::Tools)));
        assert!(recalled(&memory, "ada", "{}", 1).is_none());
        memory.remember(on_its_way, &Bytes::from_static(RESULT), at(1));
        assert!(recalled(&memory, "ada", r#"{"cursor":"c"}"#, 1).is_none());
    }

    #[test]
    fn what_another_was_answered_is_as_fresh_as_it_is_and_nothing_after_a_change() {
        let memory = memory(CacheScope::Private, ListCaching::On);
        let found = || Found {
            contents: Bytes::from_static(RESULT),
            left: Duration::from_millis(300),
        };
        let looked_for = place(&memory, "ada", "{}").unwrap();
        // It is older than this process.
        let learned = memory.learn(&looked_for, found(), at(10)).unwrap();
        assert!(learned.starts_with(br#"{"resultType":"complete","ttlMs":300,"#));
        assert!(recalled(&memory, "ada", "{}", 309).is_some());
        assert!(recalled(&memory, "ada", "{}", 310).is_none());
        memory.changes.publish(
            Audience::Of(Principal::Anonymous),
            &Change::bare(Changed::List(List::Tools)),
        );
        assert!(memory.learn(&looked_for, found(), at(10)).is_none());
    }

    #[test]
    fn without_the_option_lists_are_fresh() {
        let memory = memory(CacheScope::Private, ListCaching::Off);
        assert!(place(&memory, "ada", "{}").is_none());
        let params = RawObject::default();
        assert!(
            memory
                .place(&caller("ada"), Method::Discover, &params)
                .is_some()
        );
    }
}
