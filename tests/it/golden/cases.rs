//! The calls, as data.

use serde_json::{Value, json};

use crate::support::client::{META_LOG_LEVEL, all_capabilities};
use crate::support::puppet::Ending;

/// What the server says before the end of a call.
pub(super) enum Say {
    /// A notification; progress token `theirs` stands for the one that came with the request.
    Notify(&'static str, Value),
    /// A request that the legacy era knows.
    Ask(&'static str, Value),
    /// A request that it does not know.
    Other(&'static str, Value),
}

/// One call.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) method: &'static str,
    pub(super) params: Value,
    pub(super) meta: Vec<(&'static str, Value)>,
    pub(super) capabilities: Value,
    pub(super) says: Vec<Say>,
    /// `inputResponses` of each re-issue.
    pub(super) answers: Vec<Value>,
    pub(super) end: Ending,
    /// The type of its result.
    pub(super) result: &'static str,
}

impl Case {
    /// What the server says, for the transcript.
    pub(super) fn said(&self) -> Value {
        let says = self.says.iter().map(|say| match say {
            Say::Notify(method, params) => json!({"notifies": method, "params": params}),
            Say::Ask(method, params) | Say::Other(method, params) => {
                json!({"asks": method, "params": params})
            }
        });
        let end = match &self.end {
            Ending::Result(result) => json!({"result": result}),
            Ending::Error(error) => json!({"error": error}),
            other => json!(format!("{other:?}")),
        };
        says.chain([end]).collect()
    }

    fn asked(mut self, method: &'static str, params: Value, answers: Value) -> Self {
        self.says.push(Say::Ask(method, params));
        self.answers.push(answers);
        self
    }
}

/// How many functions here make cases for others.
pub(super) const HELPERS: usize = 2;

fn case(name: &'static str, method: &'static str, params: Value, result: Value) -> Case {
    let result_type = match method {
        "server/discover" => "DiscoverResult",
        "tools/list" => "ListToolsResult",
        "prompts/list" => "ListPromptsResult",
        "resources/list" => "ListResourcesResult",
        "resources/templates/list" => "ListResourceTemplatesResult",
        "completion/complete" => "CompleteResult",
        "prompts/get" => "GetPromptResult",
        "resources/read" => "ReadResourceResult",
        _ => "CallToolResult",
    };
    Case {
        name,
        method,
        params,
        meta: Vec::new(),
        capabilities: all_capabilities(),
        says: Vec::new(),
        answers: Vec::new(),
        end: Ending::Result(result),
        result: result_type,
    }
}

fn tool(name: &'static str) -> Case {
    let params = json!({"name": "t", "arguments": {"z": 1, "a": [true, null]}});
    case(
        name,
        "tools/call",
        params,
        json!({"content": [{"type": "text", "text": "done"}]}),
    )
}

pub(super) fn discover() -> Case {
    case("discover", "server/discover", json!({}), Value::Null)
}

pub(super) fn tools_list() -> Case {
    let tools = json!([{
        "name": "t", "title": "T", "description": "A tool.", "icons": [{"src": "https://example.com/i.png"}],
        "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
        "outputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true},
        "execution": {"taskSupport": "optional"}, "_meta": {"k": 1},
    }, {
        "name": "broken",
        "inputSchema": {"type": "object", "properties": {"region": {"type": "number", "x-mcp-header": "Region"}}},
    }]);
    let params = json!({"cursor": "page-2"});
    case(
        "tools_list",
        "tools/list",
        params,
        json!({"tools": tools, "nextCursor": "page-3"}),
    )
}

pub(super) fn prompts_list() -> Case {
    let prompts =
        json!([{"name": "p", "arguments": [{"name": "a", "required": true}], "_meta": {"k": 1}}]);
    case(
        "prompts_list",
        "prompts/list",
        json!({}),
        json!({"prompts": prompts}),
    )
}

pub(super) fn resources_list() -> Case {
    let resources =
        json!([{"uri": "arena://r", "name": "r", "size": 3, "annotations": {"priority": 0.5}}]);
    case(
        "resources_list",
        "resources/list",
        json!({}),
        json!({"resources": resources}),
    )
}

pub(super) fn templates_list() -> Case {
    let templates = json!([{"uriTemplate": "arena://{id}", "name": "r", "mimeType": "text/plain"}]);
    let result = json!({"resourceTemplates": templates, "_meta": {"k": 1}});
    case(
        "templates_list",
        "resources/templates/list",
        json!({}),
        result,
    )
}

pub(super) fn complete() -> Case {
    let params = json!({
        "ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "o"},
        "context": {"arguments": {"b": "c"}},
    });
    let result = json!({"completion": {"values": ["one"], "total": 1, "hasMore": false}});
    case("complete", "completion/complete", params, result)
}

pub(super) fn plain_tool() -> Case {
    let mut case = tool("plain_tool");
    case.meta = vec![
        (
            "traceparent",
            json!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ),
        ("com.example/key", json!({"a": 1})),
    ];
    case.end = Ending::Result(json!({
        "content": [
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "arena://r", "name": "r"},
        ],
        "structuredContent": {"z": 1.0, "a": 10}, "isError": false, "_meta": {"k": 1},
    }));
    case
}

pub(super) fn plain_prompt() -> Case {
    let params = json!({"name": "p", "arguments": {"a": "b"}});
    let messages = json!([{"role": "user", "content": {"type": "text", "text": "hi"}}]);
    case(
        "plain_prompt",
        "prompts/get",
        params,
        json!({"description": "d", "messages": messages}),
    )
}

pub(super) fn plain_resource() -> Case {
    let contents = json!([{"uri": "arena://r", "mimeType": "text/plain", "text": "hi"}]);
    case(
        "plain_resource",
        "resources/read",
        json!({"uri": "arena://r"}),
        json!({"contents": contents}),
    )
}

fn confirm() -> Value {
    json!({
        "message": "Sure?",
        "requestedSchema": {
            "type": "object",
            "properties": {"confirm": {"type": "boolean", "title": "Confirm"}},
            "required": ["confirm"],
        },
    })
}

fn yes() -> Value {
    json!({"confirm": {"action": "accept", "content": {"confirm": true}}})
}

pub(super) fn form() -> Case {
    tool("form").asked("elicitation/create", confirm(), yes())
}

pub(super) fn visit() -> Case {
    let params = json!({
        "mode": "url", "message": "Sign in.", "elicitationId": "e-1", "url": "https://example.com/login",
    });
    let mut case = tool("visit").asked(
        "elicitation/create",
        params,
        json!({"elicitation": {"action": "accept"}}),
    );
    let complete = Say::Notify(
        "notifications/elicitation/complete",
        json!({"elicitationId": "e-1"}),
    );
    case.says.push(complete);
    case
}

pub(super) fn sampling() -> Case {
    let params = json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": "Capital of France?"}}],
        "systemPrompt": "Be brief.", "maxTokens": 10, "temperature": 0.5, "stopSequences": ["."],
        "modelPreferences": {"hints": [{"name": "m"}], "costPriority": 0.1},
    });
    let answer = json!({
        "role": "assistant", "model": "m", "stopReason": "endTurn", "content": {"type": "text", "text": "Paris"},
    });
    tool("sampling").asked(
        "sampling/createMessage",
        params,
        json!({"sampling": answer}),
    )
}

pub(super) fn sampling_with_tools() -> Case {
    let params = json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": "Weather?"}}], "maxTokens": 10,
        "tools": [{"name": "weather", "inputSchema": {"type": "object"}}], "toolChoice": {"mode": "required"},
    });
    let answer = json!({
        "role": "assistant", "model": "m", "stopReason": "toolUse",
        "content": [{"type": "tool_use", "id": "u-1", "name": "weather", "input": {"city": "Paris"}}],
    });
    tool("sampling_with_tools").asked(
        "sampling/createMessage",
        params,
        json!({"sampling": answer}),
    )
}

pub(super) fn roots() -> Case {
    let roots = json!({"roots": {"roots": [{"uri": "file:///a", "name": "a"}]}});
    let mut case = tool("roots").asked("roots/list", json!({}), roots);
    // Asked again, it is answered without a round.
    case.says.push(Say::Ask("roots/list", json!({})));
    case
}

pub(super) fn declined() -> Case {
    let mut case = tool("declined").asked(
        "elicitation/create",
        confirm(),
        json!({"confirm": {"action": "decline"}}),
    );
    case.says.push(Say::Ask("elicitation/create", confirm()));
    // The second time first of all something that does not fit.
    case.answers
        .push(json!({"confirm": {"action": "accept", "content": {"confirm": "yes"}}}));
    case.answers.push(json!({"confirm": {"action": "cancel"}}));
    case
}

pub(super) fn ping() -> Case {
    let mut case = tool("ping");
    case.says.push(Say::Ask("ping", json!({})));
    case
}

pub(super) fn unknown_request() -> Case {
    let mut case = tool("unknown_request");
    case.says
        .push(Say::Other("example/unknown", json!({"x": 1})));
    case
}

pub(super) fn progress_and_logs() -> Case {
    let mut case = tool("progress_and_logs");
    case.meta = vec![
        ("progressToken", json!("p-1")),
        (META_LOG_LEVEL, json!("warning")),
    ];
    let progress =
        |n: u8| json!({"progressToken": "theirs", "progress": n, "total": 3, "message": "m"});
    let log = |level: &str| json!({"level": level, "logger": "l", "data": {"k": 1}});
    case.says = vec![
        Say::Notify("notifications/progress", progress(1)),
        Say::Notify("notifications/message", log("info")),
        Say::Notify("notifications/message", log("error")),
        Say::Notify("notifications/progress", progress(2)),
    ];
    case
}

pub(super) fn resource_asks() -> Case {
    let contents = json!([{"uri": "arena://r", "blob": "AA=="}]);
    let case = case(
        "resource_asks",
        "resources/read",
        json!({"uri": "arena://r"}),
        json!({"contents": contents}),
    );
    case.asked("elicitation/create", confirm(), yes())
}

pub(super) fn prompt_asks() -> Case {
    let messages = json!([{"role": "assistant", "content": {"type": "text", "text": "hi"}}]);
    let case = case(
        "prompt_asks",
        "prompts/get",
        json!({"name": "p"}),
        json!({"messages": messages}),
    );
    case.asked("elicitation/create", confirm(), yes())
}

pub(super) fn missing_capability() -> Case {
    let mut case = tool("missing_capability");
    case.capabilities = json!({"roots": {}});
    let params = json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 1,
        "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
    });
    case.says.push(Say::Ask("sampling/createMessage", params));
    case
}

pub(super) fn url_error() -> Case {
    let mut case = tool("url_error");
    let visit = json!({
        "mode": "url", "message": "Sign in first.", "elicitationId": "e-2", "url": "https://example.com/login",
    });
    case.end = Ending::Error(json!({
        "code": -32042, "message": "Sign in first.", "data": {"elicitations": [visit]},
    }));
    case.answers = vec![json!({"elicitation": {"action": "decline"}})];
    case
}

pub(super) fn resource_not_found() -> Case {
    let mut case = case(
        "resource_not_found",
        "resources/read",
        json!({"uri": "arena://none"}),
        Value::Null,
    );
    case.end = Ending::Error(json!({
        "code": -32002, "message": "Resource not found", "data": {"uri": "arena://none"},
    }));
    case
}

pub(super) fn other_error() -> Case {
    let mut case = tool("other_error");
    case.end = Ending::Error(json!({"code": -32603, "message": "broken", "data": {"why": [1.0]}}));
    case
}

pub(super) fn reserved_error() -> Case {
    let mut case = tool("reserved_error");
    case.end = Ending::Error(json!({"code": -32021, "message": "ours alone"}));
    case
}
