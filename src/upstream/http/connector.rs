//! Connecting to a server: TCP, and TLS where the backend has it, within one span of time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use crate::upstream::error::{Cause, TooSlow};
use crate::upstream::tls::Tls;

/// Connects to one server.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    way: Way,
    within: Duration,
}

#[derive(Clone, Debug)]
enum Way {
    Plain(HttpConnector),
    Tls(HttpsConnector<HttpConnector>),
}

impl Connector {
    pub(super) fn new(tls: Option<&Tls>, within: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(within));
        let way = match tls {
            None => Way::Plain(tcp),
            Some(tls) => {
                tcp.enforce_http(false);
                let builder = HttpsConnectorBuilder::new()
                    .with_tls_config((*tls.config()).clone())
                    .https_only()
                    // By ALPN: HTTP/2 where the server has it.
                    .enable_all_versions();
                Way::Tls(builder.wrap_connector(tcp))
            }
        };
        Self { way, within }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Cause;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Cause>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        match &mut self.way {
            Way::Plain(tcp) => tcp.poll_ready(context).map_err(Into::into),
            Way::Tls(tls) => tls.poll_ready(context),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let within = self.within;
        let connecting: Self::Future = match &mut self.way {
            Way::Plain(tcp) => {
                let connecting = tcp.call(uri);
                Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) })
            }
            Way::Tls(tls) => tls.call(uri),
        };
        Box::pin(async move {
            let connected = timeout(within, connecting).await;
            connected.unwrap_or_else(|_| Err(TooSlow(within).into()))
        })
    }
}
