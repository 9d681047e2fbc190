//! Which backend serves a request, on whose behalf, and where a `requestState` must go.
//!
//! It decides and hands over; it does not talk to the network.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use serde_json::json;

use crate::cache::results::Place;
use crate::cache::tools::{Unchecked, is_first_page};
use crate::call::{AuthChallenge, Leg, LegId, Reply, failed};
use crate::config::{Anonymous, PrincipalSource};
use crate::hold::backend::Backend;
use crate::hold::driver;
use crate::hold::order::{Again, Answer, Order, UpstreamRequest};
use crate::hold::resume::{Brought, Reach, Resumed};
use crate::hold::seal::{self, State};
use crate::observe::Metrics;
use crate::session::{Binding, Caller, Principal, SessionKey};
use crate::subscription::{Subscription, Subscriptions};
use crate::translate::request;
use crate::translate::subscription::Filter;
use crate::wire::error::{self, ErrorObject};
use crate::wire::jsonrpc::ClientId;
use crate::wire::modern::Method;

mod admitted;
mod client_headers;

pub use admitted::Admitted;
pub use client_headers::ClientHeaders;

/// Keeps a name that a proxy gives apart from credentials that read the same.
const NAMED: &[u8] = b"header";

/// The gateway as its front sees it.
#[derive(Debug)]
pub struct Gateway {
    backend: Arc<Backend>,
    subscriptions: Arc<Subscriptions>,
    principal: PrincipalSource,
    anonymous: Anonymous,
    next_leg: AtomicU64,
    is_draining: AtomicBool,
    is_unknown: AtomicBool,
}

/// Whether new calls may be sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They may.
    Ready,
    /// What it would hold could not be found yet by other replicas.
    Unknown,
    /// It takes none any more.
    Draining,
}

/// How a request reached this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// A client sent it here.
    FromClient,
    /// Another replica sent it on. It goes no further.
    Forwarded,
}

/// How a request is served.
#[derive(Debug)]
pub enum Served {
    /// As a leg of a call.
    Leg(Answer),
    /// As a subscription: its first message, and what follows.
    Subscription(Bytes, Subscription),
    /// By the replica at this address, which is to be sent the request as it came.
    Elsewhere(String),
    /// Not at all: this process takes no new calls. Nothing was started, and any other may be asked instead.
    Refused(Reply),
}

impl From<Resumed> for Served {
    fn from(resumed: Resumed) -> Self {
        match resumed {
            Resumed::Here(answer) => Self::Leg(answer),
            Resumed::Elsewhere(address) => Self::Elsewhere(address),
        }
    }
}

impl Served {
    /// What the answer begins with, for a log line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Leg(Answer::Reply(Reply::Result(_))) => "a result",
            Self::Leg(Answer::Reply(Reply::Error(_))) => "an error",
            Self::Leg(Answer::Reply(Reply::Challenge(_))) => "a challenge",
            Self::Leg(Answer::Stream { .. }) => "a stream",
            Self::Subscription(..) => "a subscription",
            Self::Elsewhere(_) => "what another replica says",
            Self::Refused(_) => "a refusal",
        }
    }
}

/// Why a `requestState` is refused; the spec wants it rejected, our `data.reason` says why.
#[derive(Clone, Copy, Debug)]
enum Unusable {
    Tampered,
    Expired,
    Principal,
    Request,
}

impl Gateway {
    /// A gateway in front of one backend.
    #[must_use]
    pub fn new(
        backend: Arc<Backend>,
        subscriptions: Arc<Subscriptions>,
        principal: PrincipalSource,
        anonymous: Anonymous,
    ) -> Self {
        Self {
            backend,
            subscriptions,
            principal,
            anonymous,
            next_leg: AtomicU64::new(1),
            is_draining: AtomicBool::new(false),
            is_unknown: AtomicBool::new(false),
        }
    }

    /// Whether the MCP endpoint of a backend is at `path`: `/mcp` for the default one, `/NAME/mcp`.
    #[must_use]
    pub fn serves_path(&self, path: &str) -> bool {
        path == "/mcp"
            || path
                .strip_prefix('/')
                .and_then(|rest| rest.strip_suffix("/mcp"))
                .is_some_and(|name| name == self.backend.name)
    }

    /// What the process counts.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.backend.metrics
    }

    /// From now on no new call is taken; re-issues of held ones are. Subscriptions end.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.subscriptions.close();
    }

    /// New calls are better sent to others until [`Self::become_known`], since this one is not known to them.
    pub fn begin_unknown(&self) {
        self.is_unknown.store(true, Ordering::Release);
    }

    /// Others know this one from now on, or will not be waited for.
    pub fn become_known(&self) {
        self.is_unknown.store(false, Ordering::Release);
    }

    /// Whether new calls may be sent here.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        if self.is_draining() {
            Readiness::Draining
        } else if self.is_unknown.load(Ordering::Acquire) {
            Readiness::Unknown
        } else {
            Readiness::Ready
        }
    }

    /// Whether new calls are refused.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Serves an admitted request; `body` is what it was read from.
    pub async fn serve(
        &self,
        mut admitted: Admitted<'_>,
        headers: ClientHeaders<'_>,
        body: &Bytes,
        came: Came,
    ) -> Served {
        let caller = match self.caller(&admitted, headers) {
            Ok(caller) => Arc::new(caller),
            Err(reply) => return Served::Leg(Answer::Reply(reply)),
        };
        if self.is_draining() && admitted.state.is_none() {
            return Served::Refused(failed("the gateway is shutting down", false));
        }
        if let Some(filter) = admitted.filter.take() {
            return self.listen(admitted.id, filter, caller).await;
        }
        self.leg_of(admitted, caller, (headers, body), came).await
    }

    async fn listen(&self, id: ClientId, filter: Filter, caller: Arc<Caller>) -> Served {
        match self.subscriptions.listen(caller, filter, id).await {
            Ok((first, rest)) => Served::Subscription(first, rest),
            Err(reply) => Served::Leg(Answer::Reply(reply)),
        }
    }

    async fn leg_of(
        &self,
        admitted: Admitted<'_>,
        caller: Arc<Caller>,
        (headers, body): (ClientHeaders<'_>, &Bytes),
        came: Came,
    ) -> Served {
        let replied = |reply| Served::Leg(Answer::Reply(reply));
        let unchecked = match self.check_headers(&admitted, &caller, headers) {
            Ok(unchecked) => unchecked,
            Err(reply) => return replied(reply),
        };
        if let Some(state) = &admitted.state {
            return match self.open(state, &admitted, &caller) {
                Ok(state) => {
                    if let Some(call) = &unchecked
                        && let Err(reply) = self.backend.check_again(&caller, call).await
                    {
                        return replied(reply);
                    }
                    let from = (headers, body, unchecked);
                    let resuming = self.resume(state, &admitted, caller, from, came);
                    resuming.await.into()
                }
                Err(why) => replied(unusable(why)),
            };
        }
        let beginning = self.begin(&admitted, caller, unchecked, (headers, body));
        Served::Leg(beginning.await)
    }

    /// Answers a request from memory, or else makes a call of it.
    async fn begin(
        &self,
        admitted: &Admitted<'_>,
        caller: Arc<Caller>,
        unchecked: Option<Box<Unchecked>>,
        (headers, body): (ClientHeaders<'_>, &Bytes),
    ) -> Answer {
        let (memory, tools) = (&self.backend.memory, &self.backend.tools);
        let mut place = memory.place(&caller, admitted.method, &admitted.params);
        if let Some(reply) = self.backend.recall(place.as_ref()) {
            return Answer::Reply(reply);
        }
        if let Some(place) = &mut place
            && let Some(reply) = self.backend.recall_of_others(place).await
        {
            return Answer::Reply(reply);
        }
        if admitted.method == Method::Discover {
            return Answer::Reply(self.backend.discover(&caller, place).await);
        }
        let lists_tools = admitted.method == Method::ToolsList && is_first_page(&admitted.params);
        let listing = if lists_tools {
            let beside = place.as_ref().and_then(Place::spot);
            Some(tools.listing(&caller, beside).await)
        } else {
            None
        };
        let order = Order {
            method: admitted.method,
            caller,
            request: self.upstream_request(admitted, headers),
            leg: self.leg(admitted),
            params: body.slice_ref(admitted.raw_params.get().as_bytes()),
            unchecked,
            place,
            listing,
            responses: admitted.responses.map(ToOwned::to_owned),
        };
        driver::make(&self.backend, order).await
    }

    /// Checks that the headers of a tool call mirror its arguments as the tool declares; what cannot be checked because
    /// the declarations are not known yet is checked when there is a session.
    fn check_headers(
        &self,
        admitted: &Admitted<'_>,
        caller: &Caller,
        headers: ClientHeaders<'_>,
    ) -> Result<Option<Box<Unchecked>>, Reply> {
        // Where there is no header layer, no header has to say anything.
        let ClientHeaders::Http(given) = headers else {
            return Ok(None);
        };
        let tool = match admitted.method {
            Method::ToolsCall => admitted.params.string("name").unwrap_or_default(),
            _ => return Ok(None),
        };
        let arguments = admitted.params.member("arguments");
        let tools = &self.backend.tools;
        match tools.check(&caller.key, &tool, arguments, given) {
            Some(checked) => checked.map(|()| None),
            None => Ok(Some(Box::new(Unchecked {
                tool: tool.into(),
                arguments: arguments.map(ToOwned::to_owned),
                headers: headers.passed_on(),
            }))),
        }
    }

    fn caller(&self, admitted: &Admitted<'_>, headers: ClientHeaders<'_>) -> Result<Caller, Reply> {
        let credentials = only(headers, &AUTHORIZATION)?;
        let authorized = |value: &HeaderValue| Principal::Known(Binding::of(&[value.as_bytes()]));
        let named = match &self.principal {
            PrincipalSource::Authorization => None,
            PrincipalSource::Header(name) => only(headers, name)?
                .map(|value| Principal::Known(Binding::of(&[NAMED, value.as_bytes()]))),
        };
        // Without the proxy's word, credentials still tell callers apart.
        let principal = named
            .or_else(|| credentials.map(authorized))
            .unwrap_or(Principal::Anonymous);
        let is_anonymous = principal == Principal::Anonymous;
        if is_anonymous && self.anonymous == Anonymous::Refuse {
            let www_authenticate = vec![Box::from(&b"Bearer"[..])];
            let challenge = AuthChallenge {
                forbidden: false,
                www_authenticate,
                why: "this gateway wants credentials, and there are none",
            };
            return Err(Reply::Challenge(Arc::new(challenge)));
        }
        Ok(Caller {
            key: SessionKey {
                principal,
                capabilities: admitted.capabilities.clone(),
            },
            credentials: credentials.cloned().map(sensitive),
            isolated: is_anonymous && self.anonymous == Anonymous::Isolated,
        })
    }

    fn leg(&self, admitted: &Admitted<'_>) -> Leg {
        Leg {
            id: LegId(self.next_leg.fetch_add(1, Ordering::Relaxed)),
            progress_token: request::wants_progress(&admitted.meta).map(ToOwned::to_owned),
            log_level: admitted.log_level,
        }
    }

    fn upstream_request(
        &self,
        admitted: &Admitted<'_>,
        headers: ClientHeaders<'_>,
    ) -> UpstreamRequest {
        let id = self.backend.pool.next_id();
        let (params, meta) = (&admitted.params, &admitted.meta);
        UpstreamRequest::of(id, admitted.method, (params, meta), headers.passed_on())
    }

    fn open(
        &self,
        state: &str,
        admitted: &Admitted<'_>,
        caller: &Caller,
    ) -> Result<State, Unusable> {
        let state = self.backend.keys.open(state).ok_or(Unusable::Tampered)?;
        if state.is_expired(std::time::SystemTime::now()) {
            return Err(Unusable::Expired);
        }
        if state.principal != caller.key.principal.binding() {
            return Err(Unusable::Principal);
        }
        let request = seal::request_binding(&self.backend.name, admitted.method, &admitted.params);
        if state.request != request {
            return Err(Unusable::Request);
        }
        Ok(state)
    }

    async fn resume(
        &self,
        mut state: State,
        admitted: &Admitted<'_>,
        caller: Arc<Caller>,
        (headers, body, unchecked): (ClientHeaders<'_>, &Bytes, Option<Box<Unchecked>>),
        came: Came,
    ) -> Resumed {
        let responses = admitted.responses.map_or(Bytes::from_static(b"{}"), |raw| {
            body.slice_ref(raw.get().as_bytes())
        });
        let params = body.slice_ref(admitted.raw_params.get().as_bytes());
        // The operator may have changed their mind since it was sealed.
        let replay = self.backend.replays.of(admitted.method, &params);
        state
            .replay
            .take_if(|said| !replay.allows(said.is_annotated));
        let may_run_anew = state.rerun || state.replay.is_some();
        let again = may_run_anew.then(|| Again {
            params,
            headers: headers.passed_on(),
            unchecked,
        });
        let brought = Brought {
            leg: self.leg(admitted),
            method: admitted.method,
            caller,
            responses,
            again,
            reach: match came {
                Came::FromClient => Reach::Anywhere,
                Came::Forwarded => Reach::HereAlone,
            },
        };
        self.backend.resume(state, brought).await
    }
}

/// The one value of a header that says who a caller is. Of two nobody knows which to believe: one may be the
/// client's own, the other a proxy's.
fn only<'h>(
    headers: ClientHeaders<'h>,
    name: &HeaderName,
) -> Result<Option<&'h HeaderValue>, Reply> {
    let mut values = headers.values(name);
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        (_, Some(_)) => Err(Reply::error(ErrorObject::new(
            error::INVALID_REQUEST,
            format!("header {name} is given twice"),
        ))),
    }
}

/// A caller's credentials, which no log may show.
fn sensitive(mut credentials: HeaderValue) -> HeaderValue {
    credentials.set_sensitive(true);
    credentials
}

fn unusable(why: Unusable) -> Reply {
    let (reason, message) = match why {
        Unusable::Tampered => ("tampered", "this requestState was not sealed here"),
        Unusable::Expired => ("expired", "this requestState has expired"),
        Unusable::Principal => ("principal", "this requestState belongs to another caller"),
        Unusable::Request => ("request", "this requestState belongs to another request"),
    };
    Reply::error(
        ErrorObject::new(error::INVALID_PARAMS, message).with_data(&json!({ "reason": reason })),
    )
}
