//! The tools of the demo server, billing and shipping: each asks the person who called it, in the legacy way.

use serde_json::{Value, json};

use super::session::Asker;

/// `tools/list`.
pub(super) fn list() -> Value {
    let tool = |name: &str, description: &str, argument: &str| {
        json!({
            "name": name,
            "description": description,
            "inputSchema": {"type": "object", "properties": {argument: {"type": "string"}}},
        })
    };
    json!({"tools": [
        tool("cancel-subscription", "Cancels a subscription after one confirmation.", "subscriptionId"),
        tool("file-shipping-claim", "Files a claim: asks for an email, then for what happened.", "orderId"),
        tool("refund", "Refunds a payment after a step-up confirmation in the browser.", "paymentId"),
    ]})
}

/// Runs a tool; nothing when the call was cancelled meanwhile.
pub(super) async fn call(name: &str, arguments: &Value, asker: &Asker) -> Option<Value> {
    let argument =
        |key: &str, otherwise: &str| arguments[key].as_str().unwrap_or(otherwise).to_owned();
    match name {
        "cancel-subscription" => cancel(&argument("subscriptionId", "sub-1"), asker).await,
        "file-shipping-claim" => claim(&argument("orderId", "order-1"), asker).await,
        "refund" => refund(&argument("paymentId", "pay-1"), asker).await,
        _ => Some(json!({
            "content": [{"type": "text", "text": format!("There is no tool {name:?}.")}],
            "isError": true,
        })),
    }
}

fn text(text: String) -> Option<Value> {
    Some(json!({"content": [{"type": "text", "text": text}]}))
}

fn form(message: &str, name: &str, property: &Value) -> Value {
    json!({
        "mode": "form",
        "message": message,
        "requestedSchema": {"type": "object", "properties": {name: property}, "required": [name]},
    })
}

/// The content of an accepted answer; otherwise what the person did instead.
fn accepted(answer: &Value) -> Result<&Value, &str> {
    match answer["action"].as_str() {
        Some("accept") => Ok(&answer["content"]),
        other => Err(other.unwrap_or("cancel")),
    }
}

async fn cancel(subscription: &str, asker: &Asker) -> Option<Value> {
    let question = form(
        &format!("Cancel subscription {subscription}? It ends today and is not refunded."),
        "confirm",
        &json!({"type": "boolean", "title": "Cancel it"}),
    );
    let answer = asker.ask(&question).await?;
    text(match accepted(&answer) {
        Ok(content) if content["confirm"] == true => {
            format!("Subscription {subscription} is cancelled.")
        }
        Ok(_) => format!("Subscription {subscription} stays as it is."),
        Err(action) => format!("Subscription {subscription} stays as it is ({action})."),
    })
}

async fn claim(order: &str, asker: &Asker) -> Option<Value> {
    let email = form(
        "Which email should we answer to?",
        "email",
        &json!({"type": "string", "title": "Email", "format": "email"}),
    );
    let answer = asker.ask(&email).await?;
    let email = match accepted(&answer) {
        Ok(content) => content["email"].as_str().unwrap_or_default(),
        Err(action) => {
            return text(format!(
                "No claim for {order}: the email was not given ({action})."
            ));
        }
    };
    let description = form(
        "What happened to the parcel?",
        "description",
        &json!({"type": "string", "title": "Description", "minLength": 20, "maxLength": 500}),
    );
    let answer = asker.ask(&description).await?;
    text(match accepted(&answer) {
        Ok(content) => {
            let description = content["description"].as_str().unwrap_or_default();
            format!("Claim for {order} filed; we answer to {email}. You wrote: {description}")
        }
        Err(action) => format!("No claim for {order}: nothing was described ({action})."),
    })
}

async fn refund(payment: &str, asker: &Asker) -> Option<Value> {
    let visit = json!({
        "mode": "url",
        "message": format!("Confirm in your browser that payment {payment} is to be refunded."),
        "elicitationId": format!("step-up-{payment}"),
        "url": format!("https://billing.example.com/step-up?payment={payment}"),
    });
    let answer = asker.ask(&visit).await?;
    text(match accepted(&answer) {
        Ok(_) => format!("Payment {payment} is refunded."),
        Err(action) => format!("Payment {payment} is not refunded ({action})."),
    })
}
