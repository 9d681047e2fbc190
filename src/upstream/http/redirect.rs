//! Redirects: which are followed, and why the others are not.
//!
//! Credentials go with every request, so none leads to another origin. A request that may have an effect is followed
//! only by a status that keeps it as it is, and only before anything was run: see the callers.
//! Spec: RFC 9110 15.4.

use std::sync::Arc;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};

use super::lanes::Inbound;
use super::{HttpClient, Outbound, bare, request_error};
use crate::upstream::error::{REDIRECTS_MAX, Unfollowed, UpstreamError};

/// Whether a status is a redirect.
pub(super) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Sends a request and follows where it is led; the last response, and where it came from.
///
/// # Errors
/// When there is no response, or a redirect that is not followed.
pub(in crate::upstream) async fn follow(
    http: &HttpClient,
    mut request: Request<Outbound>,
) -> Result<(Response<Inbound>, Uri), UpstreamError> {
    let mut left = REDIRECTS_MAX;
    loop {
        let mut next = copy(&request);
        let response = http.request(request).await.map_err(request_error)?;
        let status = response.status();
        if !is_redirect(status) {
            return Ok((response, std::mem::take(next.uri_mut())));
        }
        if next.method() != Method::GET && !matches!(status.as_u16(), 307 | 308) {
            return Err(Unfollowed::Here(status.as_u16()).into());
        }
        let place = target(next.uri(), response.headers())?;
        left = left.checked_sub(1).ok_or(Unfollowed::TooOften)?;
        tracing::debug!(
            from = next.uri().path(),
            to = place.path(),
            "a redirect is followed"
        );
        *next.uri_mut() = place;
        request = next;
    }
}

/// The same request once more. It counts as gone when the first has.
fn copy(request: &Request<Outbound>) -> Request<Outbound> {
    let body = request.body();
    let mut copy = bare(
        request.method().clone(),
        request.uri().clone(),
        Bytes::new(),
    );
    copy.headers_mut().clone_from(request.headers());
    copy.body_mut().body = body.body.clone();
    copy.body_mut().departure = Arc::clone(&body.departure);
    copy
}

/// Where a response leads that came from `from`.
fn target(from: &Uri, headers: &HeaderMap) -> Result<Uri, Unfollowed> {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or(Unfollowed::Nowhere)?;
    let nowhere = |_| Unfollowed::Nowhere;
    let base = url::Url::parse(&from.to_string()).map_err(nowhere)?;
    let mut target = base.join(location).map_err(nowhere)?;
    if target.origin() != base.origin() {
        return Err(Unfollowed::Elsewhere);
    }
    // What a location says of users is none of ours, and a fragment is not sent.
    let _ = target.set_username("");
    let _ = target.set_password(None);
    target.set_fragment(None);
    target.as_str().parse().map_err(|_| Unfollowed::Nowhere)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_same_origin_is_gone_to() {
        let from = Uri::from_static("https://mcp.example/a/mcp?k=v");
        for (location, expected) in [
            ("/a/mcp/", Ok("https://mcp.example/a/mcp/")),
            ("v2#top", Ok("https://mcp.example/a/v2")),
            ("https://mcp.example:443/b", Ok("https://mcp.example/b")),
            ("https://eve@mcp.example/b", Ok("https://mcp.example/b")),
            ("http://mcp.example/a/mcp", Err(Unfollowed::Elsewhere)),
            ("https://mcp.example:8443/", Err(Unfollowed::Elsewhere)),
            ("https://mcp.example.evil/", Err(Unfollowed::Elsewhere)),
            ("//evil.example/", Err(Unfollowed::Elsewhere)),
            ("file:///etc/passwd", Err(Unfollowed::Elsewhere)),
            ("https://[", Err(Unfollowed::Nowhere)),
        ] {
            let value = HeaderValue::from_str(location).unwrap();
            let headers = HeaderMap::from_iter([(LOCATION, value)]);
            let found = target(&from, &headers).map(|uri| uri.to_string());
            assert_eq!(found, expected.map(str::to_owned), "{location}");
        }
        assert_eq!(
            target(&from, &HeaderMap::new()),
            Err(Unfollowed::Nowhere),
            "without a location"
        );
    }
}
