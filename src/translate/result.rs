//! Results of a legacy server as modern results, and the `InputRequiredResult`.
//!
//! A result gains `resultType`, the server's identity in `_meta` and, where the spec asks for them, caching
//! hints; tools lose what only the legacy era knows. Members keep their bytes and their order.
//! Spec: 2026-07-28 basic/index, "ResultType"; server/utilities/caching; basic/patterns/mrtr.

use memchr::memmem;
use serde_json::value::RawValue;

use super::param_header::{self, InvalidDeclaration, ParamHeader};
use crate::wire::modern::{self, Method};
use crate::wire::object::{self, RawObject};

/// Who may cache a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CacheScope {
    /// Only the same authorization context: the safe default.
    #[default]
    Private,
    /// Anyone.
    Public,
}

/// The caching hints of cacheable results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CacheHints {
    /// For how many milliseconds a result may be considered fresh.
    pub ttl_ms: u64,
    /// Who may cache it.
    pub scope: CacheScope,
}

impl CacheHints {
    /// Appends the two members to a result under construction.
    pub fn push(self, out: &mut Vec<u8>) {
        object::push_member(out, "ttlMs", self.ttl_ms.to_string().as_bytes());
        let scope: &[u8] = match self.scope {
            CacheScope::Private => br#""private""#,
            CacheScope::Public => br#""public""#,
        };
        object::push_member(out, "cacheScope", scope);
    }
}

/// What a server may have answered that is no result.
#[derive(Debug, thiserror::Error)]
#[error("the server's result is not a JSON object")]
pub struct NotAResult;

/// The modern form of a legacy `result`. `hints` is `None` for results of methods that have none. `server_info` is the raw `Implementation` of `InitializeResult`.
///
/// # Errors
/// When the result is not a JSON object.
pub fn complete(
    method: Method,
    result: &RawValue,
    server_info: Option<&RawValue>,
    hints: Option<CacheHints>,
) -> Result<Vec<u8>, NotAResult> {
    let members = RawObject::of(result).map_err(|_| NotAResult)?;
    let mut out = Vec::with_capacity(result.get().len() + 256);
    out.push(b'{');
    push_type(&mut out, modern::RESULT_COMPLETE);
    if let Some(hints) = hints {
        hints.push(&mut out);
    }
    let mut meta = None;
    for (key, value) in members.iter() {
        match key {
            "resultType" => {}
            "ttlMs" | "cacheScope" if hints.is_some() => {}
            "_meta" => meta = Some(value).filter(|value| object::is_object(value)),
            "tools" if method == Method::ToolsList => {
                object::push_member(&mut out, key, &modern_tools(value));
            }
            _ => object::push_member(&mut out, key, value.get().as_bytes()),
        }
    }
    push_meta(&mut out, meta, server_info);
    out.push(b'}');
    Ok(out)
}

/// The `InputRequiredResult`. `requests` is the finished `inputRequests` object, `rejected` says of keys
/// that are asked again what was wrong with their last answer.
#[must_use]
pub fn input_required(
    requests: Option<&[u8]>,
    request_state: &str,
    server_info: Option<&RawValue>,
    rejected: &[(Box<str>, String)],
) -> Vec<u8> {
    let mut out = b"{".to_vec();
    push_type(&mut out, modern::RESULT_INPUT_REQUIRED);
    if let Some(requests) = requests {
        object::push_member(&mut out, "inputRequests", requests);
    }
    let mut state = Vec::new();
    object::push_string(&mut state, request_state);
    object::push_member(&mut out, "requestState", &state);
    let meta = rejection_note(rejected);
    push_meta(&mut out, meta.as_deref(), server_info);
    out.push(b'}');
    out
}

/// A cacheable result with another `ttlMs`; nothing when it is no object.
#[must_use]
pub fn with_ttl(result: &[u8], ttl_ms: u64) -> Option<Vec<u8>> {
    let members = RawObject::parse(result).ok()?;
    let mut out = Vec::with_capacity(result.len());
    out.push(b'{');
    for (key, value) in members.iter() {
        if key == "ttlMs" {
            object::push_member(&mut out, key, ttl_ms.to_string().as_bytes());
        } else {
            object::push_member(&mut out, key, value.get().as_bytes());
        }
    }
    out.push(b'}');
    Some(out)
}

/// Our own `_meta` key: key of an input request → why its last answer was not taken.
pub const META_REJECTED: &str = "holdfast/rejected";

fn rejection_note(rejected: &[(Box<str>, String)]) -> Option<Box<RawValue>> {
    if rejected.is_empty() {
        return None;
    }
    let reasons: serde_json::Map<String, serde_json::Value> = rejected
        .iter()
        .map(|(key, why)| (key.to_string(), why.as_str().into()))
        .collect();
    serde_json::value::to_raw_value(&serde_json::json!({ META_REJECTED: reasons })).ok()
}

fn push_type(out: &mut Vec<u8>, result_type: &str) {
    let mut value = Vec::with_capacity(result_type.len() + 2);
    object::push_string(&mut value, result_type);
    object::push_member(out, "resultType", &value);
}

/// Appends `_meta`: what was there, and the server's identity.
pub(super) fn push_meta(
    out: &mut Vec<u8>,
    before: Option<&RawValue>,
    server_info: Option<&RawValue>,
) {
    let before = before
        .and_then(|raw| RawObject::of(raw).ok())
        .unwrap_or_default();
    if before.is_empty() && server_info.is_none() {
        return;
    }
    let mut meta = b"{".to_vec();
    for (key, value) in before.iter() {
        if key != modern::META_SERVER_INFO || server_info.is_none() {
            object::push_member(&mut meta, key, value.get().as_bytes());
        }
    }
    if let Some(info) = server_info {
        object::push_member(&mut meta, modern::META_SERVER_INFO, info.get().as_bytes());
    }
    meta.push(b'}');
    object::push_member(out, "_meta", &meta);
}

/// The tools of a list as modern clients may see them: without `execution`, a member that only 2025-11-25 knows, and
/// without tools whose `x-mcp-header` declarations are invalid, which clients would have to leave out. Lists that hold
/// neither word are passed on unread.
fn modern_tools(tools: &RawValue) -> Vec<u8> {
    let text = tools.get();
    let has_execution = memmem::find(text.as_bytes(), br#""execution""#).is_some();
    if !has_execution && !param_header::may_declare(text) {
        return text.as_bytes().to_vec();
    }
    let Ok(entries) = serde_json::from_str::<Vec<&RawValue>>(text) else {
        return text.as_bytes().to_vec();
    };
    let mut out = b"[".to_vec();
    for entry in entries {
        let tool = RawObject::of(entry);
        if tool.as_ref().is_ok_and(|tool| param_headers(tool).is_err()) {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        match tool {
            Ok(tool) if tool.member("execution").is_some() => {
                out.push(b'{');
                for (key, value) in tool.iter().filter(|(key, _)| *key != "execution") {
                    object::push_member(&mut out, key, value.get().as_bytes());
                }
                out.push(b'}');
            }
            _ => out.extend_from_slice(entry.get().as_bytes()),
        }
    }
    out.push(b']');
    out
}

/// The headers that a tool of a list declares.
fn param_headers(tool: &RawObject<'_>) -> Result<Vec<ParamHeader>, InvalidDeclaration> {
    let schema = tool.member("inputSchema");
    schema.map_or(Ok(Vec::new()), param_header::declared)
}

/// The tools of a `tools/list` result that declare mirrored arguments, each with its declarations, and where the list
/// goes on. Of a result that is none, nothing.
#[must_use]
pub fn declaring_tools(result: &RawValue) -> (Vec<DeclaringTool>, Option<Box<str>>) {
    let members = RawObject::of(result).unwrap_or_default();
    let next = members.string("nextCursor").map(Into::into);
    let tools = members.member("tools").map(RawValue::get);
    let Some(tools) = tools.filter(|tools| param_header::may_declare(tools)) else {
        return (Vec::new(), next);
    };
    let entries = serde_json::from_str::<Vec<&RawValue>>(tools).unwrap_or_default();
    let declaring = entries.iter().filter_map(|entry| {
        let tool = RawObject::of(entry).ok()?;
        let name = tool.string("name")?.into();
        let declared = param_headers(&tool);
        let declares = declared
            .as_ref()
            .map_or(true, |declared| !declared.is_empty());
        declares.then_some((name, declared))
    });
    (declaring.collect(), next)
}

/// The tools of a `tools/list` result whose annotations say that they only read, or that to call them again with the same
/// arguments changes nothing more. Hints, as the spec says (2025-11-25 server/tools, `ToolAnnotations`).
#[must_use]
pub fn repeatable_tools(result: &RawValue) -> Vec<Box<str>> {
    let members = RawObject::of(result).unwrap_or_default();
    let tools = members.member("tools").map(RawValue::get);
    let hinted = tools.filter(|tools| tools.contains("Hint"));
    let entries = hinted.and_then(|tools| serde_json::from_str::<Vec<&RawValue>>(tools).ok());
    let repeatable = |entry: &&RawValue| {
        let tool = RawObject::of(entry).ok()?;
        let annotations = RawObject::of(tool.member("annotations")?).ok()?;
        let says = |hint| {
            annotations
                .member(hint)
                .is_some_and(|raw| raw.get() == "true")
        };
        let is_repeatable = says("readOnlyHint") || says("idempotentHint");
        is_repeatable.then(|| tool.string("name").map(Into::into))?
    };
    entries
        .unwrap_or_default()
        .iter()
        .filter_map(repeatable)
        .collect()
}

/// A tool's name and what it declares.
pub type DeclaringTool = (Box<str>, Result<Vec<ParamHeader>, InvalidDeclaration>);

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).unwrap()
    }

    fn check(method: Method, result: &str, hints: Option<CacheHints>, expected: &str) {
        let info = raw(r#"{"name":"s"}"#);
        let out = complete(method, &raw(result), Some(&info), hints).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn results_gain_a_type_and_an_identity_and_keep_their_bytes() {
        check(
            Method::ToolsCall,
            r#"{"content":[ ],"structuredContent":{"b":1.0,"a":2}}"#,
            None,
            r#"{"resultType":"complete","content":[ ],"structuredContent":{"b":1.0,"a":2},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
        );
        check(
            Method::ToolsCall,
            r#"{"_meta":{"k":1},"resultType":"odd","content":[]}"#,
            None,
            r#"{"resultType":"complete","content":[],"_meta":{"k":1,"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
        );
    }

    #[test]
    fn lists_gain_caching_hints_and_tools_lose_execution() {
        check(
            Method::ToolsList,
            r#"{"tools":[{"name":"t","execution":{"taskSupport":"optional"},"title":"execution"},7]}"#,
            Some(CacheHints {
                ttl_ms: 5,
                scope: CacheScope::Public,
            }),
            r#"{"resultType":"complete","ttlMs":5,"cacheScope":"public","tools":[{"name":"t","title":"execution"},7],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
        );
    }

    #[test]
    fn tools_with_invalid_declarations_are_not_listed() {
        check(
            Method::ToolsList,
            r#"{"tools":[{"name":"bad","inputSchema":{"x-mcp-header":"R"}},{"name":"good", "inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}},{"name":"x-mcp-header"}]}"#,
            None,
            r#"{"resultType":"complete","tools":[{"name":"good", "inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}},{"name":"x-mcp-header"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
        );
    }

    #[test]
    fn declaring_tools_are_found_in_a_list() {
        let (tools, next) = declaring_tools(&raw(
            r#"{"tools":[{"name":"plain"},{"name":"bad","inputSchema":{"x-mcp-header":"R"}},{"name":"good","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"R"}}}}],"nextCursor":"c"}"#,
        ));
        let told: Vec<_> = tools
            .iter()
            .map(|(name, declared)| (&**name, declared.is_ok()))
            .collect();
        assert_eq!(told, [("bad", false), ("good", true)]);
        assert_eq!(next.as_deref(), Some("c"));
        assert!(declaring_tools(&raw("[]")).0.is_empty());
    }

    #[test]
    fn a_result_that_is_no_object_is_refused() {
        assert!(complete(Method::ToolsCall, &raw("[]"), None, None).is_err());
    }

    #[test]
    fn an_input_required_result_says_what_was_wrong() {
        let out = input_required(
            Some(b"{\"k\":{}}"),
            "s",
            None,
            &[("k".into(), "too short".into())],
        );
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"resultType":"input_required","inputRequests":{"k":{}},"requestState":"s","_meta":{"holdfast/rejected":{"k":"too short"}}}"#
        );
        let bare = input_required(None, "s", None, &[]);
        assert_eq!(
            bare,
            br#"{"resultType":"input_required","requestState":"s"}"#
        );
    }
}
