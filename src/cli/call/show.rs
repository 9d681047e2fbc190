//! What a server said, as text for a terminal.

use serde_json::Value;

use crate::cli::terminal::{indented, line, plain};
use holdfast::wire::error::ErrorObject;

/// A line about a notification; nothing for those that mean nothing to a person.
pub(super) fn note(method: &str, params: &Value) -> Option<String> {
    match method {
        "notifications/progress" => {
            let total = params["total"]
                .as_f64()
                .map(|total| format!("/{total}"))
                .unwrap_or_default();
            let message = params["message"].as_str().map(line).unwrap_or_default();
            let progress = line(&params["progress"].to_string());
            Some(format!("… {progress}{total} {message}"))
        }
        "notifications/message" => {
            let level = params["level"].as_str().unwrap_or("log");
            Some(format!(
                "[{}] {}",
                line(level),
                indented(&data(&params["data"]))
            ))
        }
        _ => None,
    }
}

/// What an error says to a person: its words, what it lacked, and whether anything was done.
pub(super) fn error(error: &ErrorObject) -> String {
    let data: Value = error
        .data
        .as_deref()
        .and_then(|data| serde_json::from_str(data.get()).ok())
        .unwrap_or_default();
    let mut said = format!("error {}: {}", error.code, plain(&error.message));
    if let Some(required) = data["requiredCapabilities"].as_object() {
        let names: Vec<String> = required.keys().map(|name| line(name)).collect();
        said.push_str(&format!(" ({})", names.join(", ")));
        if required.contains_key("roots") {
            said.push_str("; give roots with --root file:///…");
        }
        if required.contains_key("sampling") {
            said.push_str("; there is no model here to sample");
        }
    }
    match data["mayHaveRun"].as_bool() {
        Some(true) => said.push_str("; the tool may have run"),
        Some(false) => said.push_str("; the tool did not run"),
        None => {}
    }
    said
}

fn data(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| plain(&value.to_string()), plain)
}

/// The result of a tool: its texts, a line for each other content, and structured content that no text repeats.
pub(super) fn result(result: &Value) -> String {
    let mut out = String::new();
    for block in result["content"].as_array().into_iter().flatten() {
        out.push_str(&content(block));
        out.push('\n');
    }
    if let Some(structured) = result.get("structuredContent") {
        out.push_str(&plain(&structured.to_string()));
        out.push('\n');
    }
    out
}

fn content(block: &Value) -> String {
    let text = |member: &str| block[member].as_str().map(plain).unwrap_or_default();
    let bytes = |value: &Value| value.as_str().map_or(0, |data| data.len() / 4 * 3);
    match block["type"].as_str() {
        Some("text") => text("text"),
        Some(kind @ ("image" | "audio")) => {
            format!(
                "[{kind} {}, about {} bytes]",
                text("mimeType"),
                bytes(&block["data"])
            )
        }
        Some("resource_link") => format!("[link to {}]", text("uri")),
        Some("resource") => match block["resource"]["text"].as_str() {
            Some(text) => plain(text),
            None => format!("[resource {}]", data(&block["resource"]["uri"])),
        },
        _ => plain(&block.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_are_shown_as_text() {
        let shown = result(&json!({
            "content": [
                {"type": "text", "text": "one"},
                {"type": "image", "mimeType": "image/png", "data": "AAAA"},
                {"type": "resource_link", "uri": "file:///a"},
                {"type": "resource", "resource": {"uri": "x", "text": "two"}},
            ],
            "structuredContent": {"a": 1},
        }));
        assert_eq!(
            shown,
            "one\n[image image/png, about 3 bytes]\n[link to file:///a]\ntwo\n{\"a\":1}\n"
        );
    }
}
