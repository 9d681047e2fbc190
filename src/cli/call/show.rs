//! What a server said, as text for a terminal.

use serde_json::Value;

use crate::cli::terminal::plain;

/// A line about a notification; nothing for those that mean nothing to a person.
pub(super) fn note(method: &str, params: &Value) -> Option<String> {
    match method {
        "notifications/progress" => {
            let total = params["total"]
                .as_f64()
                .map(|total| format!("/{total}"))
                .unwrap_or_default();
            let message = params["message"].as_str().map(plain).unwrap_or_default();
            Some(format!("… {}{total} {message}", params["progress"]))
        }
        "notifications/message" => {
            let level = params["level"].as_str().unwrap_or("log");
            Some(format!("[{}] {}", plain(level), data(&params["data"])))
        }
        _ => None,
    }
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
