//! The admin listener: `/healthz`, `/readyz`, `/metrics`. It is off unless the operator gives it an address.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use super::body::ResponseBody;
use crate::route::{Gateway, Readiness};

/// Answers one request of the admin listener.
pub(super) async fn answer(
    gateway: Arc<Gateway>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let text = |status: StatusCode, text: String, kind: &'static str| {
        let mut response = Response::new(ResponseBody::whole(Bytes::from(text)));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    };
    const PLAIN: &str = "text/plain; charset=utf-8";
    if request.method() != Method::GET {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET\n".to_owned(),
            PLAIN,
        );
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n".to_owned(), PLAIN),
        "/readyz" => {
            let (status, word) = match gateway.readiness() {
                Readiness::Ready => (StatusCode::OK, "ready\n"),
                Readiness::Unknown => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
                Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            };
            text(status, word.to_owned(), PLAIN)
        }
        "/metrics" => text(
            StatusCode::OK,
            gateway.metrics().encode(),
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        _ => text(StatusCode::NOT_FOUND, "not found\n".to_owned(), PLAIN),
    }
}
