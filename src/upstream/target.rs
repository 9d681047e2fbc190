//! A configured server, over whichever transport it speaks.

use std::sync::Arc;

use ::http::HeaderValue;

use super::connection::Connection;
use super::error::UpstreamError;
use super::stdio::Stdio;
use super::streamable_http::StreamableHttp;

/// A configured server.
#[derive(Debug)]
pub enum Target {
    /// Over Streamable HTTP.
    StreamableHttp(Arc<StreamableHttp>),
    /// A program.
    Stdio(Arc<Stdio>),
}

impl Target {
    /// A connection for one session, on which nothing was said yet.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn connect(
        &self,
        credentials: Option<HeaderValue>,
    ) -> Result<Connection, UpstreamError> {
        match self {
            Self::StreamableHttp(server) => server.connect(credentials).await.map(Connection::Http),
            Self::Stdio(server) => server.connect().await.map(Connection::Channel),
        }
    }
}
