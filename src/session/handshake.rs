//! Opening a legacy session: `initialize`, `notifications/initialized`, over the transport that the server speaks.
//!
//! Of a server at an `http://` URL only trying shows whether it speaks Streamable HTTP, HTTP+SSE or no legacy revision at
//! all. What is evidence for that, and what is not (silence, 401, 403, 5xx), stands in README.md.
//! Spec: 2025-11-25 basic/lifecycle, "Initialization" and "Version Negotiation"; basic/transports, "Backwards
//! Compatibility".

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Number;
use super::SessionKey;
use super::home::refusal;
use crate::observe::chain;
use crate::translate::discover::ServerIdentity;
use crate::upstream::{Claim, Connection, Exchange, Target, Transport, UpstreamError};
use crate::wire::error::{self, ErrorObject};
use crate::wire::garbled;
use crate::wire::jsonrpc::{self, Message, UpstreamId};
use crate::wire::{header, legacy, modern};

/// Why no session could be opened. Nothing of a call was sent yet.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The transport failed.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The server answered `initialize` with an error.
    #[error("the server refused to open a session: {}", .0.message)]
    Refused(ErrorObject),
    /// The same, with an HTTP status that says that it may pass.
    #[error("the server fails to open a session: {}", .0.message)]
    Failed(ErrorObject),
    /// The server is no legacy one.
    #[error(
        "the server speaks revision {} and no legacy one: it needs no gateway",
        modern::PROTOCOL_VERSION
    )]
    Modern,
    /// The `InitializeResult` is not one.
    #[error("the server's answer to `initialize` is not understood")]
    Malformed,
    /// The server picked a revision that is no legacy one.
    #[error("the server wants protocol revision {0:?}, which is not spoken here")]
    Revision(Box<str>),
    /// The process is going down.
    #[error("the gateway is shutting down")]
    Closing,
}

impl HandshakeError {
    /// A server that speaks HTTP+SSE badly is better described by that than by what it says of Streamable HTTP.
    fn says_more_than(&self, other: &Self) -> bool {
        matches!(self, Self::Upstream(UpstreamError::Endpoint(_)))
            && matches!(other, Self::Upstream(_))
    }

    /// Whether it shows that the server does not speak the transport, or no legacy revision: whatever else keeps a
    /// session from being opened may pass.
    fn is_evidence(&self) -> bool {
        match self {
            Self::Upstream(error) => matches!(
                error,
                UpstreamError::Status(400 | 404 | 405)
                    | UpstreamError::ContentType
                    | UpstreamError::Endpoint(_)
            ),
            Self::Refused(_) => true,
            Self::Failed(_)
            | Self::Modern
            | Self::Malformed
            | Self::Revision(_)
            | Self::Closing => false,
        }
    }
}

/// A session that is to be opened.
pub(super) struct Handshake<'a> {
    pub(super) target: &'a Target,
    pub(super) key: &'a SessionKey,
    pub(super) credentials: Option<HeaderValue>,
    pub(super) number: Number,
    pub(super) id: UpstreamId,
    /// Cancelled when no session is to be opened any more.
    pub(super) closing: &'a CancellationToken,
}

impl Handshake<'_> {
    /// Runs the handshake; on success the server counts the session as open. A session that it opened in a handshake
    /// that then failed is ended: nobody would ever use it.
    pub(super) async fn open(
        self,
        within: Duration,
    ) -> Result<(Connection, ServerIdentity), HandshakeError> {
        let opened = self.find(Instant::now() + within).await;
        if opened.is_err() {
            self.target.has_failed();
        }
        opened
    }

    /// Tries one transport after the other, as long as each shows that it is not spoken.
    async fn find(
        &self,
        deadline: Instant,
    ) -> Result<(Connection, ServerIdentity), HandshakeError> {
        let mut failed: Option<HandshakeError> = None;
        for &transport in self.target.transports() {
            match self.open_over(transport, deadline).await {
                Ok(opened) => {
                    self.target.was_found(transport);
                    return Ok(opened);
                }
                Err(error) if error.is_evidence() => {
                    let said = failed.filter(|said| !error.says_more_than(said));
                    failed = Some(said.unwrap_or(error));
                }
                Err(error) => return Err(failed.unwrap_or(error)),
            }
        }
        let is_modern = self.in_time(deadline, self.is_modern()).await?;
        match failed {
            _ if is_modern == Some(true) => Err(HandshakeError::Modern),
            Some(error) => Err(error),
            None => Err(UpstreamError::Ended.into()),
        }
    }

    async fn open_over(
        &self,
        transport: Transport,
        deadline: Instant,
    ) -> Result<(Connection, ServerIdentity), HandshakeError> {
        let connecting = self.target.connect(transport, self.credentials.clone());
        let connected = self.in_time(deadline, connecting).await?;
        let connection = connected.unwrap_or(Err(UpstreamError::Timeout))?;
        let shaken = self.in_time(deadline, self.shake_hands(&connection)).await;
        match shaken.and_then(|shaken| shaken.unwrap_or(Err(UpstreamError::Timeout.into()))) {
            Ok(identity) => Ok((connection, identity)),
            Err(error) => {
                self.close(&connection).await;
                Err(error)
            }
        }
    }

    /// What a step of the handshake yields; nothing after the deadline. Before the end of the gateway it is given up: what
    /// the server has of it, a process above all, has to be ended in good order while there is time.
    async fn in_time<T>(
        &self,
        deadline: Instant,
        step: impl Future<Output = T>,
    ) -> Result<Option<T>, HandshakeError> {
        let step = timeout_at(deadline, step);
        let ended = self.closing.run_until_cancelled(step).await;
        ended.map(Result::ok).ok_or(HandshakeError::Closing)
    }

    async fn close(&self, connection: &Connection) {
        if let Err(error) = connection.close().await {
            let (session, error) = (self.number, chain(&error));
            tracing::debug!(
                session,
                error,
                "it failed to open and could not be closed at the server"
            );
        }
    }

    /// Both messages of the handshake.
    async fn shake_hands(&self, connection: &Connection) -> Result<ServerIdentity, HandshakeError> {
        let initialize = initialize(self.key, self.id).into();
        // What comes before the answer belongs to no call.
        let mut exchange = connection.request(self.id, initialize, HeaderMap::new(), Claim::All);
        let answered = exchange.answered().await;
        connection.opened_by(&exchange);
        answered?;
        let identity = self.identity(connection, &mut exchange).await?;
        connection.speaks(&identity.protocol_version);
        let notification = jsonrpc::notification(legacy::INITIALIZED, None);
        connection.send(notification.into()).await?;
        Ok(identity)
    }

    /// What the server says of itself, whatever it says before.
    async fn identity(
        &self,
        connection: &Connection,
        exchange: &mut Exchange,
    ) -> Result<ServerIdentity, HandshakeError> {
        let mut was_nonsense = false;
        while let Some(message) = exchange.next_message().await? {
            for message in jsonrpc::batch(message) {
                match initialized(&message, self.id) {
                    Ok(Some(identity)) => return Ok(identity),
                    Ok(None) => was_nonsense |= Message::parse(&message).is_err(),
                    Err(HandshakeError::Refused(error)) if exchange.has_bad_moment() => {
                        return Err(HandshakeError::Failed(error));
                    }
                    Err(error) => return Err(error),
                }
                // Before it has answered itself it may only ping.
                let why = "the session is not initialized yet";
                if let Some(answer) = refusal(&message, error::INVALID_REQUEST, why) {
                    connection.send(answer.into()).await?;
                }
            }
        }
        // Over HTTP the nonsense was the answer.
        let nonsense = was_nonsense.then_some(HandshakeError::Malformed);
        Err(nonsense.unwrap_or_else(|| UpstreamError::Ended.into()))
    }

    /// Asks a server that is no legacy one whether it is a modern one, on a connection, or a process, of its own: some
    /// legacy servers die of what they do not know.
    async fn is_modern(&self) -> bool {
        let &[transport, ..] = self.target.transports() else {
            return false;
        };
        // HTTP+SSE is legacy by itself.
        let transport = match transport {
            Transport::HttpSse => Transport::StreamableHttp,
            other => other,
        };
        let connecting = self.target.connect(transport, self.credentials.clone());
        let Ok(connection) = connecting.await else {
            return false;
        };
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::PROTOCOL_VERSION, modern::PROTOCOL_VERSION),
            (header::METHOD, modern::Method::Discover.as_str()),
        ] {
            let name = HeaderName::from_static(name);
            headers.insert(name, HeaderValue::from_static(value));
        }
        let mut exchange = connection.request(self.id, discover(self.id), headers, Claim::All);
        let answer = exchange.next_message().await;
        drop(exchange);
        self.close(&connection).await;
        let Ok(Some(answer)) = answer else {
            return false;
        };
        match Message::parse(&answer) {
            Ok(Message::Result { .. }) => true,
            Ok(Message::Error { error, .. }) => is_modern(&error),
            Ok(Message::Request { .. } | Message::Notification { .. }) | Err(_) => false,
        }
    }
}

/// Whether only a modern server gives this error.
fn is_modern(error: &ErrorObject) -> bool {
    matches!(
        error.code,
        error::HEADER_MISMATCH
            | error::MISSING_CLIENT_CAPABILITY
            | error::UNSUPPORTED_PROTOCOL_VERSION
    )
}

/// `server/discover`, as a modern client asks it that can do nothing.
fn discover(id: UpstreamId) -> Bytes {
    let params = format!(
        r#"{{"_meta":{{"{}":"{}","{}":{{}}}}}}"#,
        modern::META_PROTOCOL_VERSION,
        modern::PROTOCOL_VERSION,
        modern::META_CLIENT_CAPABILITIES,
    );
    jsonrpc::request(id, modern::Method::Discover.as_str(), params.as_bytes()).into()
}

fn initialize(key: &SessionKey, id: UpstreamId) -> Vec<u8> {
    let params = format!(
        r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{{"name":"holdfast","version":"{}"}}}}"#,
        legacy::latest(),
        key.capabilities.to_legacy(),
        env!("CARGO_PKG_VERSION"),
    );
    jsonrpc::request(id, legacy::INITIALIZE, params.as_bytes())
}

/// Reads one message of the handshake; nothing when it is not the answer: some servers notify first, and what is no
/// message at all, such as a log in JSON, may come on any channel.
fn initialized(message: &Bytes, id: UpstreamId) -> Result<Option<ServerIdentity>, HandshakeError> {
    match Message::parse(message) {
        Ok(Message::Result {
            id: answered,
            result,
        }) if id.matches(answered) => {
            let identity = ServerIdentity::parse(result).ok_or(HandshakeError::Malformed)?;
            if !legacy::REVISIONS.contains(&&*identity.protocol_version) {
                return Err(HandshakeError::Revision(identity.protocol_version));
            }
            Ok(Some(identity))
        }
        Ok(Message::Error { error, .. }) if is_modern(&error) => Err(HandshakeError::Modern),
        Ok(Message::Error { error, .. }) => Err(HandshakeError::Refused(error)),
        Err(_) if garbled::answered(message) == Some(id) => Err(HandshakeError::Malformed),
        Ok(_) | Err(_) => Ok(None),
    }
}
