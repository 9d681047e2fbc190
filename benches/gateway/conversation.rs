//! What the load says: one call in either era, plain or with a question.

use std::net::SocketAddr;

use super::wire::{Connection, between, post};

/// Which way a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// To the legacy server, straight or through nginx.
    Legacy,
    /// To the gateway.
    Modern,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Answered in JSON.
    Json,
    /// Answered with an event stream.
    Events,
    /// Asks one question and then answers.
    Asking,
}

impl Tool {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Events => "sse",
            Self::Asking => "ask",
        }
    }
}

/// Arguments of a few hundred bytes, as models write them.
pub(crate) const ARGUMENTS: &str = r#"{"query":"SELECT name, street, city FROM customers WHERE city = 'London' ORDER BY name","limit":50,"format":"markdown","options":{"header":true,"null":"-","width":80}}"#;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}"#;

/// One client that makes one call after the other.
#[derive(Debug)]
pub(crate) struct Talker {
    era: Era,
    connection: Connection,
    /// Legacy answers go up beside the stream that waits for them.
    beside: Connection,
    session: String,
    call: Vec<u8>,
}

impl Talker {
    pub(crate) async fn new(era: Era, tool: Tool, addr: SocketAddr) -> Self {
        let mut connection = Connection::open(addr).await;
        let session = match era {
            Era::Legacy => handshake(&mut connection).await,
            Era::Modern => String::new(),
        };
        let mut talker = Self {
            era,
            connection,
            beside: Connection::open(addr).await,
            session,
            call: Vec::new(),
        };
        talker.call = talker.request(tool, "");
        talker
    }

    fn request(&self, tool: Tool, more: &str) -> Vec<u8> {
        let name = tool.name();
        let call = |meta: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{name}","arguments":{ARGUMENTS}{meta}{more}}}}}"#,
            )
        };
        match self.era {
            Era::Legacy => self.legacy(&call("")),
            Era::Modern => {
                let headers = [
                    ("mcp-protocol-version", "2026-07-28"),
                    ("mcp-method", "tools/call"),
                    ("mcp-name", name),
                ];
                post(&headers, &call(&format!(",{META}")))
            }
        }
    }

    fn legacy(&self, body: &str) -> Vec<u8> {
        let headers = [
            ("mcp-session-id", &*self.session),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        post(&headers, body)
    }

    /// A whole call without questions.
    pub(crate) async fn plain(&mut self) {
        let response = self.connection.exchange(&self.call).await;
        assert!(response.contains("a dull boy"), "{response}");
    }

    /// A whole call with one question.
    pub(crate) async fn asked(&mut self) {
        match self.era {
            Era::Legacy => self.asked_natively().await,
            Era::Modern => {
                let state = self.first_leg().await;
                self.second_leg(&state).await;
            }
        }
    }

    async fn asked_natively(&mut self) {
        self.connection.send(&self.call).await;
        let question = self.connection.until("elicitation/create").await;
        let id = between(question, r#""id":"#, ",");
        let answer = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{"confirm":true}}}}}}"#,
        );
        let answer = self.legacy(&answer);
        self.beside.exchange(&answer).await;
        let response = self.connection.rest().await;
        assert!(response.contains("a dull boy"), "{response}");
    }

    /// The first leg of a held call; returns its state.
    pub(crate) async fn first_leg(&mut self) -> String {
        let response = self.connection.exchange(&self.call).await;
        between(response, r#""requestState":""#, "\"").to_owned()
    }

    /// The leg that ends a held call.
    pub(crate) async fn second_leg(&mut self, state: &str) {
        let more = format!(
            r#","requestState":"{state}","inputResponses":{{"confirm":{{"action":"accept","content":{{"confirm":true}}}}}}"#,
        );
        let reissue = self.request(Tool::Asking, &more);
        let response = self.connection.exchange(&reissue).await;
        assert!(response.contains("a dull boy"), "{response}");
    }
}

async fn handshake(connection: &mut Connection) -> String {
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"bench","version":"1"}}}"#;
    let response = connection.exchange(&post(&[], initialize)).await;
    let session = between(response, "mcp-session-id: ", "\r\n").to_owned();
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    connection
        .exchange(&post(&[("mcp-session-id", &session)], initialized))
        .await;
    session
}
