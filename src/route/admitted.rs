//! A request that passed all checks of admission: what routing requires.

use std::borrow::Cow;

use serde_json::value::RawValue;
use tracing::Span;

use super::ClientHeaders;
use crate::observe;
use crate::translate::capability::ClientCapabilities;
use crate::translate::subscription::Filter;
use crate::wire::header;
use crate::wire::jsonrpc::ClientId;
use crate::wire::modern::{LogLevel, Method};
use crate::wire::object::RawObject;
use crate::wire::trace::TraceParent;

/// A request that passed all checks.
#[derive(Debug)]
pub struct Admitted<'a> {
    /// Its id.
    pub id: ClientId,
    /// What it asks for.
    pub method: Method,
    /// Its params as they stand in the body.
    pub raw_params: &'a RawValue,
    /// Its params by member.
    pub params: RawObject<'a>,
    /// Its `_meta` by member.
    pub meta: RawObject<'a>,
    /// What its client can be asked.
    pub capabilities: ClientCapabilities,
    /// From which level it wants log messages.
    pub log_level: Option<LogLevel>,
    /// Its `inputResponses`, each an object.
    pub responses: Option<&'a RawValue>,
    /// Its `requestState`.
    pub state: Option<Cow<'a, str>>,
    /// What it wants to hear of, if it asks for a subscription.
    pub filter: Option<Filter>,
}

impl Admitted<'_> {
    /// The span of the request, within the trace that its `_meta` names, or else its headers.
    #[must_use]
    pub fn span(&self, headers: ClientHeaders<'_>) -> Span {
        let [traceparent, ..] = header::TRACE_CONTEXT;
        let in_meta = self.meta.string(traceparent);
        let in_headers = headers
            .values(traceparent)
            .next()
            .and_then(|value| value.to_str().ok());
        let text = in_meta.as_deref().or(in_headers);
        observe::request_span(self.method.as_str(), text.and_then(TraceParent::parse))
    }
}
