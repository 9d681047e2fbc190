//! What a client's transport carries besides the message itself.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, header::AsHeaderName};

use crate::wire::header;

/// The headers of a request.
#[derive(Clone, Copy, Debug)]
pub enum ClientHeaders<'h> {
    /// Over HTTP: some mirror the message, and are checked against it.
    Http(&'h HeaderMap),
    /// Over stdio there is no header layer: nothing mirrors anything, and nobody brings credentials
    /// (2026-07-28 basic/transports/stdio, "Request Metadata").
    NoLayer,
}

impl<'h> ClientHeaders<'h> {
    /// The values of a header, in the order they were given.
    pub fn values(self, name: impl AsHeaderName) -> impl Iterator<Item = &'h HeaderValue> {
        let given = match self {
            Self::Http(headers) => Some(headers.get_all(name).iter()),
            Self::NoLayer => None,
        };
        given.into_iter().flatten()
    }

    /// Those that go on to the server: trace context, and what mirrors arguments (what is not known here has to be
    /// forwarded, says the spec).
    pub(super) fn passed_on(self) -> HeaderMap {
        let goes_on = |name: &HeaderName| {
            let name = name.as_str();
            header::TRACE_CONTEXT.contains(&name) || name.starts_with(header::PARAM_PREFIX)
        };
        let mut passed = HeaderMap::new();
        if let Self::Http(headers) = self {
            for (name, value) in headers.iter().filter(|(name, _)| goes_on(name)) {
                passed.append(name.clone(), value.clone());
            }
        }
        passed
    }
}
