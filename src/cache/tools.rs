//! What the tools of a server declare about headers and about being called twice, as each caller sees them.
//!
//! A declaration stands in the tool's schema, so a call can be checked only by who knows the list. Clients list tools
//! as a rule, and what passes is remembered; for one that did not, the list is read once, on the session that its call
//! has leased, unless another replica has done so. What is remembered holds until a list changes or a session is lost.
//! Spec: 2026-07-28 basic/transports/streamable-http, "Server Behavior for Custom Headers".

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use super::commons::{Commons, Found, Spot};
use super::naming::{Reader, Subject};
use crate::call::Reply;
use crate::session::{Caller, Changes, Lease, SessionKey};
use crate::translate::param_header::{self, ParamHeader};
use crate::translate::result::{declaring_tools, repeatable_tools};
use crate::translate::subscription::{List, Lists};
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::Message;
use crate::wire::modern::Method;
use crate::wire::object::{self, RawObject};

/// What is remembered at most: callers, each with the tools that declare something. As many callers as there are
/// sessions, with some such tools each, as hardly any server has; others cost one more list.
const WEIGHT_MAX: u64 = 200_000;

/// Guessed for the first allocation alone.
const CALLERS_EXPECTED: usize = 256;

/// How long reading the list may hold up a call: it is a check, and most servers declare nothing.
const LIST_MAX: Duration = Duration::from_secs(5);

/// Pages of a list that are read: more tools than any client could show.
const PAGES_MAX: usize = 64;

/// After what time a remembered list is looked at again before a call is refused for it. A client that sends wrong
/// headers again and again costs its server no more than this.
const DOUBTFUL_AFTER: Duration = Duration::from_secs(2);

/// How long a list that could not be read is not asked for again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// For how long a list that one replica has read serves others, who may have no session yet on which they would hear of
/// changes: longer than people are waited for by default, so that whoever takes a call over finds it.
pub const SHARED_FOR: Duration = Duration::from_secs(3600);

/// What is known of the tools of a server.
#[derive(Debug)]
pub struct Tools {
    known: Cache<SessionKey, Arc<Known>, Weight>,
    changes: Arc<Changes>,
    commons: Option<Arc<Commons>>,
}

/// What one caller's list declares.
#[derive(Debug)]
struct Known {
    /// The lists' state when it was read.
    epoch: u64,
    /// From when on it is read again before a call is refused for what it says.
    doubtful_from: Instant,
    /// When it ends by itself: a list that could not be read is tried again, one of another replica has an end.
    until: Option<Instant>,
    said: Said,
}

/// What tools say of themselves.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Said {
    /// Which arguments they want mirrored in headers.
    declared: HashMap<Box<str>, Vec<ParamHeader>>,
    /// Which of them may be called twice: what they do is to read, or is done once however often it is asked for.
    repeatable: HashSet<Box<str>>,
}

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<SessionKey, Arc<Known>> for Weight {
    fn weight(&self, _key: &SessionKey, known: &Arc<Known>) -> u64 {
        let said = &known.said;
        let headers = said.declared.values().map(|headers| headers.len() as u64);
        1 + headers.sum::<u64>() + said.repeatable.len() as u64
    }
}

/// A call whose headers could not be checked yet.
#[derive(Clone, Debug)]
pub struct Unchecked {
    /// Which tool it calls.
    pub tool: Box<str>,
    /// With what.
    pub arguments: Option<Box<RawValue>>,
    /// Its `Mcp-Param-*` headers, perhaps among others.
    pub headers: HeaderMap,
}

/// A list that a client has asked for from its beginning.
#[derive(Debug)]
pub struct Listing {
    /// The list's state when it was asked for.
    epoch: u64,
    /// Where other replicas will find what it declares, unless it is known here already.
    spot: Option<Spot>,
}

impl Known {
    /// What was read just now.
    fn fresh(epoch: u64, said: Said) -> Self {
        Self {
            epoch,
            doubtful_from: Instant::now() + DOUBTFUL_AFTER,
            until: None,
            said,
        }
    }

    /// What another replica has read.
    fn learned(epoch: u64, found: &Found) -> Option<Self> {
        let now = Instant::now();
        let age = SHARED_FOR.saturating_sub(found.left);
        Some(Self {
            epoch,
            doubtful_from: now + DOUBTFUL_AFTER.saturating_sub(age),
            until: Some(now + found.left),
            said: postcard::from_bytes(&found.contents).ok()?,
        })
    }

    fn is_doubtful(&self) -> bool {
        Instant::now() >= self.doubtful_from
    }

    fn holds(&self, epoch: u64) -> bool {
        self.epoch == epoch && self.until.is_none_or(|until| Instant::now() < until)
    }

    /// What the headers of a call make of it; nothing when they do not fit a list that was read a while ago: not every
    /// server says when its tools change.
    fn check(
        &self,
        tool: &str,
        arguments: Option<&RawValue>,
        headers: &HeaderMap,
    ) -> Option<Result<(), Reply>> {
        let declared = self.said.declared.get(tool).map_or(&[][..], Vec::as_slice);
        match param_header::check(declared, arguments, headers) {
            Ok(()) => Some(Ok(())),
            Err(_) if self.is_doubtful() => None,
            Err(why) => {
                let message = format!("Header mismatch: {why}");
                let error = ErrorObject::new(error::HEADER_MISMATCH, message);
                Some(Err(Reply::error(error)))
            }
        }
    }

    fn check_call(&self, call: &Unchecked) -> Option<Result<(), Reply>> {
        self.check(&call.tool, call.arguments.as_deref(), &call.headers)
    }
}

impl Tools {
    /// Nothing is known yet; `changes` says when what is known holds no longer.
    #[must_use]
    pub fn new(changes: Arc<Changes>, commons: Option<Arc<Commons>>) -> Self {
        Self {
            known: Cache::with_weighter(CALLERS_EXPECTED, WEIGHT_MAX, Weight),
            changes,
            commons,
        }
    }

    fn epoch(&self) -> u64 {
        self.changes.epoch(List::Tools)
    }

    fn present(&self, key: &SessionKey) -> Option<Arc<Known>> {
        let known = self.known.get(key);
        known.filter(|known| known.holds(self.epoch()))
    }

    /// Checks the headers of a call, if the caller's list is known here; nothing when it is not, or is not fresh enough to
    /// refuse the call.
    #[must_use]
    pub fn check(
        &self,
        key: &SessionKey,
        tool: &str,
        arguments: Option<&RawValue>,
        headers: &HeaderMap,
    ) -> Option<Result<(), Reply>> {
        self.present(key)?.check(tool, arguments, headers)
    }

    /// Checks the headers of a call that was asked something, with what another replica has read, if need be; of a list
    /// that nobody knows it says nothing against the call. Nothing when the list is not fresh enough to refuse it.
    pub async fn check_again(
        &self,
        caller: &Caller,
        call: &Unchecked,
    ) -> Option<Result<(), Reply>> {
        let known = match self.present(&caller.key) {
            Some(known) => known,
            None => {
                let (_, found) = self.look(caller, self.epoch()).await;
                let Some(found) = found.map(Arc::new) else {
                    return Some(Ok(()));
                };
                self.known.insert(caller.key.clone(), Arc::clone(&found));
                found
            }
        };
        known.check_call(call)
    }

    /// Checks the headers of a call after having read the list, unless somebody else just has.
    ///
    /// # Errors
    /// What the client is told when they do not say what the arguments say.
    pub async fn read_and_check(
        &self,
        lease: &Lease,
        caller: &Caller,
        call: &Unchecked,
    ) -> Result<(), Reply> {
        // What somebody else has found meanwhile may be fresh enough for his call and not for this one.
        for _ in 0..2 {
            let epoch = self.epoch();
            let is_over =
                |known: &Arc<Known>| !known.holds(epoch) || known.check_call(call).is_none();
            self.known.remove_if(&caller.key, is_over);
            let finding = async {
                let known = self.find_or_read(lease, caller, call, epoch).await;
                Ok::<_, Reply>(Arc::new(known))
            };
            let known = self.known.get_or_insert_async(&caller.key, finding).await?;
            if let Some(checked) = known.check_call(call) {
                return checked;
            }
        }
        Ok(())
    }

    /// What another replica has read, as far as it settles the call; otherwise the list is read.
    async fn find_or_read(
        &self,
        lease: &Lease,
        caller: &Caller,
        call: &Unchecked,
        epoch: u64,
    ) -> Known {
        let (spot, found) = self.look(caller, epoch).await;
        if let Some(known) = found.filter(|known| known.check_call(call).is_some()) {
            return known;
        }
        let known = read(lease, epoch).await;
        if known.until.is_none() {
            self.keep(spot, &known.said);
        }
        known
    }

    /// What another replica has read, and where to keep what is read here. Callers that share nothing have no part in it.
    async fn look(&self, caller: &Caller, epoch: u64) -> (Option<Spot>, Option<Known>) {
        let Some(commons) = self.commons.as_ref().filter(|_| !caller.isolated) else {
            return (None, None);
        };
        let lists = Lists::that(|list| list == List::Tools);
        match commons.look(&subject(caller), lists, SHARED_FOR).await {
            Some((spot, found)) => {
                let known = found.and_then(|found| Known::learned(epoch, &found));
                (Some(spot), known)
            }
            None => (None, None),
        }
    }

    fn keep(&self, spot: Option<Spot>, said: &Said) {
        if let (Some(commons), Some(spot)) = (&self.commons, spot)
            && let Ok(written) = postcard::to_allocvec(said)
        {
            commons.keep(spot, &written, SHARED_FOR);
        }
    }

    /// Whether a tool says of itself that nothing speaks against calling it twice; no, as long as its list is not known.
    #[must_use]
    pub fn is_repeatable(&self, key: &SessionKey, tool: &str) -> bool {
        let known = self.known.get(key);
        known.is_some_and(|known| known.said.repeatable.contains(tool))
    }

    /// A list of tools is about to be asked for, from its beginning. `beside` is where its result is to be kept, if that
    /// was looked for already.
    pub async fn listing(&self, caller: &Caller, beside: Option<Spot>) -> Listing {
        let epoch = self.epoch();
        let spot = match (&self.commons, beside) {
            (Some(commons), Some(spot)) => commons.beside(spot, &subject(caller)),
            _ if self.present(&caller.key).is_some() => None,
            _ => self.look(caller, epoch).await.0,
        };
        Listing { epoch, spot }
    }

    /// Remembers a whole list that passed.
    pub fn passed(&self, key: &SessionKey, listing: &Listing, result: &RawValue) {
        let mut said = Said::default();
        let next = said.take_in(result);
        if next.is_none() && listing.epoch == self.epoch() {
            self.keep(listing.spot, &said);
            let known = Known::fresh(listing.epoch, said);
            self.known.insert(key.clone(), Arc::new(known));
        }
    }
}

/// What replicas keep of a caller's list.
fn subject(caller: &Caller) -> Subject<'_> {
    Subject::Tools(Reader {
        principal: Some(caller.key.principal),
        credentials: caller.credentials.as_ref().map(HeaderValue::as_bytes),
        capabilities: caller.key.capabilities.as_str(),
    })
}

impl Said {
    /// Takes a page of the list in; where the list goes on, if it does.
    fn take_in(&mut self, result: &RawValue) -> Option<Box<str>> {
        let (tools, next) = declaring_tools(result);
        for (tool, declares) in tools {
            match declares {
                Ok(headers) => {
                    self.declared.insert(tool, headers);
                }
                Err(why) => {
                    tracing::warn!(%tool, %why, "a tool is not listed: its declaration is invalid");
                }
            }
        }
        self.repeatable.extend(repeatable_tools(result));
        next
    }
}

/// Reads the whole list. One that cannot be read declares nothing for a while.
async fn read(lease: &Lease, epoch: u64) -> Known {
    let mut said = Said::default();
    let is_complete = !lease.identity().declares("tools")
        || timeout(LIST_MAX, read_pages(lease, &mut said))
            .await
            .unwrap_or(false);
    if !is_complete {
        let session = lease.number();
        tracing::warn!(
            session,
            "the list of tools could not be read: headers that mirror arguments go unchecked"
        );
    }
    Known {
        until: (!is_complete).then(|| Instant::now() + RETRY_AFTER),
        ..Known::fresh(epoch, said)
    }
}

/// Reads page after page; whether there was an end to it.
async fn read_pages(lease: &Lease, said: &mut Said) -> bool {
    let mut params = b"{}".to_vec();
    for _ in 0..PAGES_MAX {
        let Ok(answer) = lease.ask(Method::ToolsList.as_str(), &params).await else {
            return false;
        };
        let Some(cursor) = page(&answer, said) else {
            return true;
        };
        params = object::of_string("cursor", &cursor);
    }
    false
}

/// Takes a page in; where the list goes on, if it does.
fn page(answer: &Bytes, said: &mut Said) -> Option<Box<str>> {
    let Ok(Message::Result { result, .. }) = Message::parse(answer) else {
        return None;
    };
    said.take_in(result)
}

/// Whether a request asks for a list from its beginning.
#[must_use]
pub fn is_first_page(params: &RawObject<'_>) -> bool {
    params.member("cursor").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> Said {
        let list = r#"{"tools":[{"name":"a","inputSchema":{"properties":{"r":{"properties":{"s":{"type":"string","x-mcp-header":"R"}}}}}},{"name":"b","annotations":{"readOnlyHint":true}}]}"#;
        let mut said = Said::default();
        assert!(said.take_in(serde_json::from_str(list).unwrap()).is_none());
        said
    }

    fn learned(left: Duration) -> Known {
        let found = Found {
            contents: postcard::to_allocvec(&said()).unwrap().into(),
            left,
        };
        Known::learned(7, &found).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_has_read_says_the_same_and_is_as_old_as_it_is() {
        let arguments = serde_json::value::to_raw_value(&serde_json::json!({"r": {"s": "x"}}));
        let arguments = arguments.unwrap();
        let checked = |known: &Known, header: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("mcp-param-r", HeaderValue::from_static(header));
            known.check("a", Some(&arguments), &headers)
        };
        let fresh = learned(SHARED_FOR);
        assert!(fresh.said.repeatable.contains("b") && !fresh.said.repeatable.contains("a"));
        assert!(matches!(checked(&fresh, "x"), Some(Ok(()))));
        assert!(matches!(checked(&fresh, "y"), Some(Err(_))));
        assert!(fresh.holds(7) && !fresh.holds(8));

        let old = learned(SHARED_FOR - DOUBTFUL_AFTER);
        assert!(matches!(checked(&old, "x"), Some(Ok(()))));
        assert!(checked(&old, "y").is_none());

        let last = learned(Duration::from_millis(1));
        assert!(last.holds(7));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!last.holds(7) && fresh.holds(7));
    }

    #[test]
    fn other_bytes_say_nothing() {
        let whole = Bytes::from(postcard::to_allocvec(&said()).unwrap());
        for end in 0..whole.len() {
            let found = Found {
                contents: whole.slice(..end),
                left: SHARED_FOR,
            };
            assert!(Known::learned(7, &found).is_none(), "cut at {end}");
        }
    }
}
