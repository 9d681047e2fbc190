//! HTTP+SSE of revision 2024-11-05: one event stream on which everything comes, and POSTs beside it.
//!
//! The stream's first event names where messages are to be posted; it must be on the same origin, or credentials would
//! go elsewhere. A POST is answered before its message is: what comes of it comes on the stream. A stream that ends
//! takes its session with it: servers of this transport know none without it.
//! Spec: 2024-11-05 basic/transports, "HTTP with SSE".

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Uri};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::channel::{Carriage, Channel, Sending, Way};
use super::departure::Departure;
use super::error::{ChannelEnd, UpstreamError};
use super::http::{
    EventStream, HttpClient, Outbound, SessionHeaders, Standing, bare, request_error,
};

/// The event that names where messages are to be posted.
const ENDPOINT: &str = "endpoint";

/// One server over HTTP+SSE.
#[derive(Debug)]
pub(super) struct HttpSse {
    http: Arc<HttpClient>,
    uri: Uri,
    tasks: TaskTracker,
}

/// Where the messages of one session are posted, and with what.
#[derive(Debug)]
struct Posts {
    server: Arc<HttpSse>,
    endpoint: Uri,
    standing: Standing,
    headers: Mutex<SessionHeaders>,
}

impl HttpSse {
    /// A client of the server whose stream is at `uri`. Streams are read on `tasks`.
    pub(super) fn new(uri: Uri, http: Arc<HttpClient>, tasks: TaskTracker) -> Self {
        Self { http, uri, tasks }
    }

    /// Opens the stream of one session.
    ///
    /// # Errors
    /// When there is none, or it does not begin as it should.
    pub(super) async fn connect(
        self: &Arc<Self>,
        credentials: Option<HeaderValue>,
    ) -> Result<Channel, UpstreamError> {
        let headers = SessionHeaders::new(self.http.access.credentials(credentials).await?);
        let standing = Standing {
            has_session: false,
            is_open: false,
            has_own: headers.has_own(),
        };
        let mut request = bare(Method::GET, self.uri.clone(), Bytes::new());
        headers.add_to(request.headers_mut());
        let opened = self.http.open_stream(request, None, false).await;
        let opened = opened.map_err(|error| standing.judged(error))?;
        let mut stream = opened.ok_or(UpstreamError::Status(405))?;
        // Servers of this transport send it at once. Others have streams too, on which nothing may come for ever: of a
        // server that has changed its transport that must not hide what it is now.
        let first = timeout(self.http.limits.connect_timeout, stream.next_event()).await;
        let first = first.map_err(|_| UpstreamError::Endpoint("does not come"))?;
        let first = first?.ok_or(UpstreamError::Ended)?;
        if first.name.as_deref() != Some(ENDPOINT) {
            return Err(UpstreamError::Endpoint("is missing"));
        }
        let endpoint = endpoint(&self.uri, &first.data).map_err(UpstreamError::Endpoint)?;
        let posts = Posts {
            server: Arc::clone(self),
            endpoint,
            standing: Standing {
                has_session: true,
                is_open: true,
                ..standing
            },
            headers: Mutex::new(headers),
        };
        let limits = &self.http.limits;
        let (channel, carriage) = Channel::new(posts, limits.send_timeout);
        self.tasks
            .spawn(carry(stream, carriage, limits.message_bytes_max));
        Ok(channel)
    }
}

/// Reads the stream to its end.
async fn carry(mut stream: EventStream, Carriage { hub, end }: Carriage, bytes_max: usize) {
    let reading = async {
        loop {
            match stream.next_event().await {
                Ok(Some(event)) if event.data.is_empty() => {}
                // `message`, unless the server gave it another name for itself.
                Ok(Some(event)) => hub.arrived(event.data).await,
                Ok(None) => return ChannelEnd::Closed(None),
                Err(UpstreamError::TooLarge { .. }) => return ChannelEnd::TooLarge { bytes_max },
                Err(error) => return ChannelEnd::Broken(error.into()),
            }
        }
    };
    let ended = tokio::select! {
        ended = reading => ended,
        () = end.wanted.cancelled() => ChannelEnd::Stopped,
    };
    hub.over(ended);
    // Closing the connection is how the server learns.
    drop(stream);
    end.done.cancel();
}

/// Where messages are to be posted.
fn endpoint(stream: &Uri, named: &[u8]) -> Result<Uri, &'static str> {
    let text = std::str::from_utf8(named).map_err(|_| "is no URL")?;
    let base = url::Url::parse(&stream.to_string()).map_err(|_| "is no URL")?;
    let endpoint = base.join(text.trim()).map_err(|_| "is no URL")?;
    if endpoint.origin() != base.origin() {
        return Err("leads to another origin");
    }
    endpoint.as_str().parse().map_err(|_| "is no URL")
}

impl Posts {
    fn headers(&self) -> MutexGuard<'_, SessionHeaders> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, message: Bytes, departure: Arc<Departure>) -> Request<Outbound> {
        let mut request = bare(Method::POST, self.endpoint.clone(), message);
        request.body_mut().departure = departure;
        let headers = request.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(CONTENT_TYPE, json.clone());
        headers.insert(ACCEPT, json);
        self.headers().add_to(headers);
        request
    }
}

impl Way for Posts {
    fn send(&self, message: Bytes, departure: Arc<Departure>) -> Sending {
        let posted = self.server.http.message(self.post(message, departure));
        let standing = self.standing;
        Box::pin(async move {
            let response = posted.await.map_err(request_error)?;
            let refusal = standing.refusal(response.status(), response.headers());
            refusal.map_or(Ok(()), Err)
        })
    }

    fn renew(&self, credentials: Option<&HeaderValue>) {
        self.headers().renew(credentials);
    }

    fn speaks(&self, revision: &str) {
        self.headers().speaks(revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_stays_on_the_origin_of_the_stream() {
        let stream = Uri::from_static("http://127.0.0.1:7101/a/sse?k=v");
        for (named, expected) in [
            (
                "/messages?sessionId=1",
                Ok("http://127.0.0.1:7101/messages?sessionId=1"),
            ),
            ("messages", Ok("http://127.0.0.1:7101/a/messages")),
            ("http://127.0.0.1:7101/m\n", Ok("http://127.0.0.1:7101/m")),
            ("", Ok("http://127.0.0.1:7101/a/sse?k=v")),
            ("http://127.0.0.1:7102/m", Err("leads to another origin")),
            ("https://127.0.0.1:7101/m", Err("leads to another origin")),
            ("//evil.example/m", Err("leads to another origin")),
            ("file:///etc/passwd", Err("leads to another origin")),
            ("http://", Err("is no URL")),
        ] {
            let found = endpoint(&stream, named.as_bytes()).map(|uri| uri.to_string());
            assert_eq!(found, expected.map(str::to_owned), "{named}");
        }
        assert!(endpoint(&stream, &[0xff]).is_err());
    }
}
