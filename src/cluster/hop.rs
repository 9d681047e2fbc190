//! The hop: a client's request sent on, as it came, to the replica that holds its call.
//!
//! What comes back is passed on as it comes, unread. Whoever drops the response, or the wait for it, resets its stream,
//! so that the other replica sees its client go. There is no bound on how long a response takes, as a leg may wait for
//! all of `leg_max`; a replica that is silent even to pings is given up, and with it whatever it was asked.
//!
//! All requests to a replica share one connection (`line`). A connection that another replica has closed in good order
//! is noticed before something is lost on it, and opened anew once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::line::Line;
use super::identity::Identity;

mod line;

pub use line::{LineError, Tracked};

/// Bytes of one body that are under way to a reader which has not asked for them yet: what RFC 9113 starts with. A slow
/// client then costs its two replicas so much and no more.
pub const STREAM_WINDOW_BYTES: u32 = 64 << 10;

/// The same for all bodies of a connection: as much as HTTP/2 allows. Any less, and clients that do not read would hold up
/// those that do.
pub const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;

/// Legs that are under way on one connection: as many as a replica has clients by default (`connections_max`). Further
/// ones wait.
pub const STREAMS_MAX: u32 = 20_000;

/// The largest head of a request or response: more than the listener for clients takes, 100 headers in 408 KiB.
pub const HEAD_BYTES_MAX: u32 = 512 << 10;

/// Headers that concern one connection alone (RFC 9110, 7.6.1), and those that the next one sets by itself.
const OF_ONE_CONNECTION: [HeaderName; 12] = [
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    HOST,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// How soon another replica is missed.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    /// The pause between pings of a connection.
    pub ping_interval: Duration,
    /// How long an answer to a ping, or the opening of a connection, may take.
    pub silence_max: Duration,
}

/// Why a request was not answered by another replica.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HopError {
    /// Its address is none. Nothing was sent.
    #[error("{0:?} is not an address of a replica")]
    Address(String),
    /// There is no connection to it. Nothing was sent.
    #[error("the replica at {address} is not reached")]
    Unreached {
        /// Where it should be.
        address: String,
        /// Why.
        #[source]
        source: Arc<LineError>,
    },
    /// It does not accept our key, or we not its. Nothing was sent.
    #[error("the replica at {address} has another key")]
    Refused {
        /// Where it is.
        address: String,
        /// What was found.
        #[source]
        source: Arc<LineError>,
    },
    /// It broke off before it answered. What it has done is not known.
    #[error("the replica at {address} broke off")]
    Broken {
        /// Where it was.
        address: String,
        /// How.
        #[source]
        source: Arc<hyper::Error>,
    },
}

impl HopError {
    /// Nothing was sent: another may be asked instead without anything being done twice.
    #[must_use]
    pub fn is_retry_safe(&self) -> bool {
        match self {
            Self::Address(_) | Self::Unreached { .. } | Self::Refused { .. } => true,
            Self::Broken { .. } => false,
        }
    }
}

/// The way to other replicas.
#[derive(Debug)]
pub struct Hop {
    identity: Identity,
    pulse: Pulse,
    lines: Arc<Lines>,
    tasks: TaskTracker,
    cut: CancellationToken,
}

/// Connections that are open or being opened, by address. Each goes when it ends.
type Lines = Mutex<HashMap<String, Line>>;

impl Hop {
    /// Connections run on `tasks` and end with `cut`.
    #[must_use]
    pub fn new(
        identity: Identity,
        pulse: Pulse,
        tasks: TaskTracker,
        cut: CancellationToken,
    ) -> Self {
        Self {
            identity,
            pulse,
            lines: Arc::default(),
            tasks,
            cut,
        }
    }

    /// How long a request may go on looking for the replica that holds its call: one that is gone counts as gone after
    /// half of it.
    #[must_use]
    pub fn patience(&self) -> Duration {
        2 * self.pulse.silence_max
    }

    /// Sends a request on to the replica at `address`, a host and a port, and waits until its response begins.
    /// Cancel-safe: dropped, the other replica sees its client go.
    ///
    /// # Errors
    /// When there is no response; see [`HopError::is_retry_safe`].
    pub async fn forward(
        &self,
        address: &str,
        head: &Parts,
        body: Bytes,
    ) -> Result<Response<Incoming>, HopError> {
        let mut request =
            request(address, head, body).ok_or_else(|| HopError::Address(address.to_owned()))?;
        let mut is_anew = false;
        loop {
            let mut sender = self.line(address).opened().await.map_err(|source| {
                let address = address.to_owned();
                match *source {
                    LineError::Key(_) => HopError::Refused { address, source },
                    _ => HopError::Unreached { address, source },
                }
            })?;
            let mut error = match sender.try_send_request(request).await {
                Ok(mut response) => {
                    strip(response.headers_mut());
                    return Ok(response);
                }
                Err(error) => error,
            };
            let address = address.to_owned();
            request = match error.take_message() {
                // The connection had ended just before.
                Some(request) if !is_anew => request,
                Some(_) => {
                    let source = Arc::new(LineError::Ended(error.into_error()));
                    return Err(HopError::Unreached { address, source });
                }
                None => {
                    let source = Arc::new(error.into_error());
                    return Err(HopError::Broken { address, source });
                }
            };
            is_anew = true;
        }
    }

    /// The connection to a replica, opened unless it is there.
    fn line(&self, address: &str) -> Line {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(address).filter(|line| line.is_of_use()) {
            return line.clone();
        }
        let opening = line::Opening {
            address: address.to_owned(),
            identity: self.identity.clone(),
            pulse: self.pulse,
            tasks: self.tasks.clone(),
        };
        let (line, running) = opening.begin();
        lines.insert(address.to_owned(), line.clone());
        drop(lines);
        let (lines, cut) = (Arc::clone(&self.lines), self.cut.clone());
        let (address, this) = (address.to_owned(), line.clone());
        self.tasks.spawn(async move {
            cut.run_until_cancelled_owned(Box::pin(running)).await;
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.get(&address).is_some_and(|line| line.is(&this)) {
                lines.remove(&address);
            }
        });
        line
    }
}

/// The request as it goes to the replica at `address`.
fn request(address: &str, head: &Parts, body: Bytes) -> Option<Request<Full<Bytes>>> {
    let authority: Authority = address.parse().ok()?;
    authority.port_u16()?;
    let path = head.uri.path_and_query().cloned();
    let uri = Uri::builder()
        .scheme(Scheme::HTTPS)
        .authority(authority)
        .path_and_query(path.unwrap_or(PathAndQuery::from_static("/")))
        .build()
        .ok()?;
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::clone(&head.method);
    *request.uri_mut() = uri;
    *request.headers_mut() = head.headers.clone();
    strip(request.headers_mut());
    Some(request)
}

/// Removes what concerns one connection alone.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in OF_ONE_CONNECTION.iter().chain(&named) {
        headers.remove(name);
    }
}
