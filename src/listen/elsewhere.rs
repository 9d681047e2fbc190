//! Answers of another replica, passed on to the client of this one.

use bytes::Bytes;
use http::Response;
use http::request::Parts;

use super::body::ResponseBody;
use crate::call::{self, Reply};
use crate::cluster::hop::Hop;
use crate::observe::chain;

/// What the replica at `address` answers to a request; nothing when there is no answer.
pub(super) async fn answer(
    hop: &Hop,
    address: &str,
    head: &Parts,
    body: Bytes,
) -> Option<Response<ResponseBody>> {
    match hop.forward(address, head, body).await {
        Ok(response) => Some(response.map(ResponseBody::Forwarded)),
        Err(error) => {
            let (why, is_retry_safe) = (chain(&error), error.is_retry_safe());
            tracing::warn!(
                address,
                why,
                is_retry_safe,
                "another replica did not answer"
            );
            None
        }
    }
}

/// The reply to a leg whose call is held by a replica that did not answer. Addresses are not the client's business, nor
/// is whether the other replica has seen the leg: repeated, it joins what runs or gets the remembered outcome.
pub(super) fn unreached() -> Reply {
    call::unreached("the replica that holds this call cannot be reached")
}
