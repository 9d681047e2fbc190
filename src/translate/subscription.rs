//! `subscriptions/listen`: what a listener wants, what a legacy server says has changed, and how it is passed on.
//!
//! Both eras name the notifications alike; on a subscription each one carries the subscription's id.
//! Spec: 2026-07-28 basic/patterns/subscriptions; 2025-11-25 server/tools, server/prompts, server/resources.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::discover::ServerIdentity;
use super::result::push_meta;
use crate::wire::jsonrpc::{self, ClientId};
use crate::wire::modern;
use crate::wire::object::{self, RawObject};

/// A list whose changes are notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the spec's whole definition")]
pub enum List {
    Tools,
    Prompts,
    Resources,
}

impl List {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// The member of a filter that asks for its changes.
    const fn filter_member(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources => "resourcesListChanged",
        }
    }

    /// The notification of its changes.
    const fn notification(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }

    /// The server capability that it belongs to.
    const fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }
}

/// A set of lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists(u8);

impl Lists {
    /// The lists that fulfil a condition.
    pub fn that(condition: impl Fn(List) -> bool) -> Self {
        let lists = List::ALL.into_iter().filter(|list| condition(*list));
        Self(lists.fold(0, |bits, list| bits | 1 << list as u8))
    }

    /// Whether a list is among them.
    #[must_use]
    pub const fn has(self, list: List) -> bool {
        self.0 & 1 << list as u8 != 0
    }

    /// Those of them.
    pub fn iter(self) -> impl Iterator<Item = List> {
        List::ALL.into_iter().filter(move |list| self.has(*list))
    }
}

/// What a listener wants to hear of: a `SubscriptionFilter`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Lists whose changes it wants.
    pub lists: Lists,
    /// URIs of resources whose changes it wants, each once.
    pub uris: Vec<Arc<str>>,
}

impl Filter {
    /// Reads `params.notifications`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(raw: &RawValue) -> Result<Self, &'static str> {
        let members = RawObject::of(raw).map_err(|_| "`notifications` is not an object")?;
        for list in List::ALL {
            let is_flag = members
                .member(list.filter_member())
                .is_none_or(|flag| matches!(flag.get(), "true" | "false"));
            if !is_flag {
                return Err("`notifications` says of a list neither true nor false");
            }
        }
        let wants = |list: List| {
            members
                .member(list.filter_member())
                .is_some_and(|flag| flag.get() == "true")
        };
        let mut uris = match members.member("resourceSubscriptions") {
            None => Vec::new(),
            Some(raw) => serde_json::from_str::<Vec<String>>(raw.get())
                .map_err(|_| "`resourceSubscriptions` is not an array of strings")?,
        };
        let mut seen = HashSet::new();
        uris.retain(|uri| seen.insert(uri.clone()));
        Ok(Self {
            lists: Lists::that(wants),
            uris: uris.into_iter().map(Into::into).collect(),
        })
    }

    /// The filter as JSON, without what it does not ask for.
    fn to_json(&self) -> Vec<u8> {
        let mut out = b"{".to_vec();
        for list in self.lists.iter() {
            object::push_member(&mut out, list.filter_member(), b"true");
        }
        if !self.uris.is_empty() {
            let uris = serde_json::Value::from_iter(self.uris.iter().map(AsRef::as_ref));
            object::push_member(
                &mut out,
                "resourceSubscriptions",
                uris.to_string().as_bytes(),
            );
        }
        out.push(b'}');
        out
    }
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Changed {
    /// A list.
    List(List),
    /// The resource of this URI.
    Resource(Arc<str>),
}

/// A notification that something has changed.
#[derive(Clone, Debug)]
pub struct Change {
    /// What.
    pub what: Changed,
    /// Its params, where they say more than that.
    pub params: Option<Arc<RawValue>>,
}

/// The largest params that are kept for a listener who is slow to read; of larger ones the URI alone goes on. They
/// hold a URI and perhaps a `_meta`.
const PARAMS_BYTES_MAX: usize = 8 << 10;

/// The longest URI that is told of. Those of files have at most 4 KiB; it is kept for every listener.
const URI_BYTES_MAX: usize = 8 << 10;

impl Change {
    /// A change of which no more is known.
    #[must_use]
    pub const fn bare(what: Changed) -> Self {
        Self { what, params: None }
    }

    /// Reads a server's notification; nothing when it is about something else.
    #[must_use]
    pub fn parse(method: &str, params: Option<&RawValue>) -> Option<Self> {
        let what = if method == modern::RESOURCES_UPDATED {
            let uri = RawObject::of(params?).ok()?.string("uri")?;
            if uri.len() > URI_BYTES_MAX {
                return None;
            }
            Changed::Resource(uri.into())
        } else {
            let is_it = |list: &List| list.notification() == method;
            Changed::List(List::ALL.into_iter().find(is_it)?)
        };
        let params =
            params.filter(|raw| object::is_object(raw) && raw.get().len() <= PARAMS_BYTES_MAX);
        Some(Self {
            what,
            params: params.map(|raw| raw.to_owned().into()),
        })
    }

    /// The notification on the subscription `id`.
    #[must_use]
    pub fn to_listener(&self, id: &ClientId) -> Vec<u8> {
        let mut params = b"{".to_vec();
        let known = self
            .params
            .as_deref()
            .and_then(|raw| RawObject::of(raw).ok())
            .unwrap_or_default();
        for (key, value) in known.iter().filter(|(key, _)| *key != "_meta") {
            object::push_member(&mut params, key, value.get().as_bytes());
        }
        let method = match &self.what {
            Changed::List(list) => list.notification(),
            Changed::Resource(uri) => {
                if known.member("uri").is_none() {
                    let mut value = Vec::new();
                    object::push_string(&mut value, uri);
                    object::push_member(&mut params, "uri", &value);
                }
                modern::RESOURCES_UPDATED
            }
        };
        push_subscription(&mut params, known.member("_meta"), id);
        params.push(b'}');
        jsonrpc::notification(method, Some(&params))
    }
}

/// Appends `_meta` with the subscription's id to params under construction.
fn push_subscription(out: &mut Vec<u8>, before: Option<&RawValue>, id: &ClientId) {
    let before = before
        .and_then(|raw| RawObject::of(raw).ok())
        .unwrap_or_default();
    let mut meta = b"{".to_vec();
    let others = before
        .iter()
        .filter(|(key, _)| *key != modern::META_SUBSCRIPTION_ID);
    for (key, value) in others {
        object::push_member(&mut meta, key, value.get().as_bytes());
    }
    object::push_member(
        &mut meta,
        modern::META_SUBSCRIPTION_ID,
        id.as_json().as_bytes(),
    );
    meta.push(b'}');
    object::push_member(out, "_meta", &meta);
}

/// The lists that a server has. Whether it declares `listChanged` decides nothing: servers of a widely used SDK declare
/// it as false and notify all the same, and clients pass over what was not acknowledged. Those who want to know what the
/// server says of itself find it in its capabilities.
#[must_use]
pub fn offered(server: &ServerIdentity) -> Lists {
    Lists::that(|list| server.declares(list.capability()))
}

/// The first message of a subscription: which part of its filter is honoured.
#[must_use]
pub fn acknowledged(id: &ClientId, honoured: &Filter) -> Vec<u8> {
    let mut params = b"{".to_vec();
    object::push_member(&mut params, "notifications", &honoured.to_json());
    push_subscription(&mut params, None, id);
    params.push(b'}');
    jsonrpc::notification(modern::SUBSCRIPTIONS_ACKNOWLEDGED, Some(&params))
}

/// The result that ends a subscription in good order.
#[must_use]
pub fn listen_result(id: &ClientId, server_info: Option<&RawValue>) -> Vec<u8> {
    let mut out = format!(r#"{{"resultType":"{}""#, modern::RESULT_COMPLETE).into_bytes();
    let meta = format!(r#"{{"{}":{}}}"#, modern::META_SUBSCRIPTION_ID, id.as_json());
    // What was just written is JSON.
    let meta: Option<Box<RawValue>> = serde_json::from_str(&meta).ok();
    push_meta(&mut out, meta.as_deref(), server_info);
    out.push(b'}');
    out
}

/// The notification that closes a subscription's stream where streams share a channel. Servers send it for nothing else
/// (basic/patterns/cancellation).
#[must_use]
pub fn torn_down(id: &ClientId) -> Vec<u8> {
    let mut params = format!(r#"{{"requestId":{}"#, id.as_json()).into_bytes();
    push_subscription(&mut params, None, id);
    params.push(b'}');
    jsonrpc::notification(modern::CANCELLED, Some(&params))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    fn id(text: &str) -> ClientId {
        ClientId::new(&raw(text)).unwrap()
    }

    fn filter(text: &str) -> Filter {
        Filter::parse(&raw(text)).unwrap()
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn filters_are_read_strictly() {
        let read = filter(
            r#"{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["a:b","a:c","a:b"],"x":1}"#,
        );
        assert_eq!(read.lists.iter().collect::<Vec<_>>(), [List::Tools]);
        assert_eq!(read.uris, ["a:b", "a:c"].map(Arc::<str>::from));
        for wrong in [
            "[]",
            r#"{"toolsListChanged":1}"#,
            r#"{"resourcesListChanged":null}"#,
            r#"{"resourceSubscriptions":"a:b"}"#,
            r#"{"resourceSubscriptions":["a:b",1]}"#,
        ] {
            assert!(Filter::parse(&raw(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_acknowledgement_says_what_is_honoured() {
        assert_eq!(
            text(acknowledged(
                &id("\"s\""),
                &filter(
                    r#"{"resourceSubscriptions":["a:b"],"resourcesListChanged":true,"toolsListChanged":true}"#
                )
            )),
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a:b"]},"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}"#
        );
        assert_eq!(
            text(acknowledged(&id("7"), &Filter::default())),
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}"#
        );
    }

    #[test]
    fn changes_keep_what_they_say_and_gain_the_id() {
        for (method, params, expected) in [
            (
                "notifications/tools/list_changed",
                None,
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#,
            ),
            (
                "notifications/resources/updated",
                Some(r#"{"_meta":{"k":[1.0]},"uri":"a:b","title":"t"}"#),
                r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b","title":"t","_meta":{"k":[1.0],"io.modelcontextprotocol/subscriptionId":1}}}"#,
            ),
        ] {
            let params = params.map(raw);
            let change = Change::parse(method, params.as_deref()).unwrap();
            assert_eq!(text(change.to_listener(&id("1"))), expected);
        }
    }

    #[test]
    fn large_params_leave_the_uri_alone() {
        let padding = "x".repeat(PARAMS_BYTES_MAX);
        let params = raw(&format!(r#"{{"uri":"a:b","padding":"{padding}"}}"#));
        let change = Change::parse("notifications/resources/updated", Some(&params)).unwrap();
        assert_eq!(
            text(change.to_listener(&id("1"))),
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#
        );
    }

    #[test]
    fn other_notifications_are_no_changes() {
        let long = format!(r#"{{"uri":"a:{}"}}"#, "x".repeat(URI_BYTES_MAX));
        for (method, params) in [
            ("notifications/message", None),
            ("notifications/resources/updated", None),
            ("notifications/resources/updated", Some(r#"{"uri":7}"#)),
            ("notifications/resources/updated", Some(&long)),
        ] {
            let params = params.map(raw);
            assert!(Change::parse(method, params.as_deref()).is_none());
        }
    }

    #[test]
    fn the_end_carries_the_id_and_the_server() {
        assert_eq!(
            text(listen_result(&id("1"), Some(&raw(r#"{"name":"s"}"#)))),
            r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1,"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#
        );
    }

    #[test]
    fn lists_are_offered_whatever_is_said_of_their_changes() {
        let server = ServerIdentity::parse(&raw(
            r#"{"protocolVersion":"x","capabilities":{"tools":{"listChanged":false},"prompts":{}}}"#,
        ))
        .unwrap();
        let offered = offered(&server);
        assert_eq!(offered, Lists::that(|list| list != List::Resources));
    }
}
