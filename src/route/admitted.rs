//! A request that passed all checks of admission: what routing requires.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::translate::capability::ClientCapabilities;
use crate::translate::subscription::Filter;
use crate::wire::jsonrpc::ClientId;
use crate::wire::modern::{LogLevel, Method};
use crate::wire::object::RawObject;

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
