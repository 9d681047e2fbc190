//! What the tools of a server declare about headers and about being called twice, as each caller sees them.
//!
//! A declaration stands in the tool's schema, so a call can be checked only by who knows the list. Clients list tools
//! as a rule, and what passes is remembered; for one that did not, the list is read once, on the session that its call
//! has leased. What is remembered holds until a list changes or a session is lost.
//! Spec: 2026-07-28 basic/transports/streamable-http, "Server Behavior for Custom Headers".

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use crate::call::Reply;
use crate::session::{Changes, Lease, SessionKey};
use crate::translate::param_header::{self, ParamHeader};
use crate::translate::result::{declaring_tools, repeatable_tools};
use crate::translate::subscription::List;
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

/// What is known of the tools of a server.
#[derive(Debug)]
pub struct Tools {
    known: Cache<SessionKey, Arc<Known>, Weight>,
    changes: Arc<Changes>,
}

/// What one caller's list declares.
#[derive(Debug)]
struct Known {
    /// The lists' state when it was read.
    epoch: u64,
    since: Instant,
    /// When a list that could not be read is tried again.
    until: Option<Instant>,
    said: Said,
}

/// What tools say of themselves.
#[derive(Debug, Default)]
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

impl Known {
    /// A list this old is read again before a call is refused for what it says.
    fn is_doubtful(&self) -> bool {
        self.since.elapsed() >= DOUBTFUL_AFTER
    }

    fn holds(&self, epoch: u64) -> bool {
        self.epoch == epoch && self.until.is_none_or(|until| Instant::now() < until)
    }

    fn check(
        &self,
        tool: &str,
        arguments: Option<&RawValue>,
        headers: &HeaderMap,
    ) -> Result<(), Reply> {
        let declared = self.said.declared.get(tool).map_or(&[][..], Vec::as_slice);
        param_header::check(declared, arguments, headers).map_err(|why| {
            let message = format!("Header mismatch: {why}");
            Reply::error(ErrorObject::new(error::HEADER_MISMATCH, message))
        })
    }
}

impl Tools {
    /// Nothing is known yet; `changes` says when what is known holds no longer.
    #[must_use]
    pub fn new(changes: Arc<Changes>) -> Self {
        Self {
            known: Cache::with_weighter(CALLERS_EXPECTED, WEIGHT_MAX, Weight),
            changes,
        }
    }

    /// The state of the tool list now, to be handed in with what is read of it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.changes.epoch(List::Tools)
    }

    /// Checks the headers of a call, if the caller's list is known; nothing when it is not, or when they do not fit a
    /// list that was read a while ago: not every server says when its tools change.
    #[must_use]
    pub fn check(
        &self,
        key: &SessionKey,
        tool: &str,
        arguments: Option<&RawValue>,
        headers: &HeaderMap,
    ) -> Option<Result<(), Reply>> {
        let known = self.known.get(key)?;
        if !known.holds(self.epoch()) {
            return None;
        }
        let checked = known.check(tool, arguments, headers);
        (checked.is_ok() || !known.is_doubtful()).then_some(checked)
    }

    /// Checks the headers of a call after having read the list, unless somebody else just has.
    ///
    /// # Errors
    /// What the client is told when they do not say what the arguments say.
    pub async fn read_and_check(
        &self,
        lease: &Lease,
        key: &SessionKey,
        call: &Unchecked,
    ) -> Result<(), Reply> {
        let epoch = self.epoch();
        let is_over = |known: &Arc<Known>| !known.holds(epoch) || known.is_doubtful();
        self.known.remove_if(key, is_over);
        let reading = async { Ok::<_, Reply>(Arc::new(read(lease, epoch).await)) };
        let known = self.known.get_or_insert_async(key, reading).await?;
        known.check(&call.tool, call.arguments.as_deref(), &call.headers)
    }

    /// Whether a tool says of itself that nothing speaks against calling it twice; no, as long as its list is not known.
    #[must_use]
    pub fn is_repeatable(&self, key: &SessionKey, tool: &str) -> bool {
        let known = self.known.get(key);
        known.is_some_and(|known| known.said.repeatable.contains(tool))
    }

    /// Remembers a whole list that passed; `epoch` is that of its request.
    pub fn passed(&self, key: &SessionKey, epoch: u64, result: &RawValue) {
        let mut said = Said::default();
        let next = said.take_in(result);
        if next.is_none() && epoch == self.epoch() {
            let known = Known {
                epoch,
                since: Instant::now(),
                until: None,
                said,
            };
            self.known.insert(key.clone(), Arc::new(known));
        }
    }
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
        epoch,
        since: Instant::now(),
        until: (!is_complete).then(|| Instant::now() + RETRY_AFTER),
        said,
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
