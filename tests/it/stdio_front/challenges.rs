//! A server that wants credentials, which nobody can send over stdio: the client is told what is wanted.

use serde_json::{Value, json};

use super::Desk;
use crate::support::puppet::{Ending, Handshake, Manner, Out};

/// Two challenges, one of which is no text.
const UNAUTHORIZED: &[u8] = b"HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer \
    resource_metadata=\"https://a.example/m\"\r\nwww-authenticate: Basic realm=\"\xff\"\r\n\
    content-length: 0\r\n\r\n";

fn challenged(message: &Value, status: u16, wanted: &Value) {
    let error = &message["error"];
    assert_eq!(error["code"], -32603, "{message}");
    assert_eq!(
        error["message"], "the server refuses the credentials",
        "{message}"
    );
    let data = json!({"httpStatus": status, "wwwAuthenticate": wanted});
    assert_eq!(error["data"], data, "{message}");
}

#[tokio::test]
async fn a_challenge_is_told_with_what_the_server_wants() {
    let mut desk = Desk::new().await;
    desk.puppet.tool("guarded", |call| async move {
        call.put(Out::Bare(UNAUTHORIZED.to_vec())).await;
        Ending::Cut
    });
    let request = desk.sent("guarded").await;
    let message = desk.gateway.response(&request).await;
    let bearer = "Bearer resource_metadata=\"https://a.example/m\"";
    let basic = "Basic realm=\"\u{fffd}\"";
    challenged(&message, 401, &json!([bearer, basic]));
    // It is that call's affair alone.
    let echo = desk.sent("echo").await;
    desk.gateway.result(&echo).await;
    desk.ends().await;
}

/// A server that lets nobody in at all is asked again each time.
#[tokio::test]
async fn a_challenge_of_the_handshake_is_told() {
    for status in [401, 403] {
        let manner = Manner {
            handshake: Handshake::Status(status),
            ..Manner::default()
        };
        let mut desk = Desk::set(manner, |config| config).await;
        for attempt in 1..=2 {
            let list = desk.client.request("tools/list", json!({}));
            desk.gateway.send(&list).await;
            challenged(&desk.gateway.response(&list).await, status, &json!([]));
            let asked: Vec<_> = {
                let ledger = desk.puppet.ledger();
                let shown = ledger.records.iter();
                shown.map(|record| record.method().to_owned()).collect()
            };
            assert_eq!(asked, vec!["initialize"; attempt], "nothing is looked into");
        }
        desk.ends().await;
    }
}
