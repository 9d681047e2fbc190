//! What a backend has of its own towards its server: files read, names checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Legacy;
use super::error::{ConfigError, wrong};
use super::origin::{self, KnownAs};
use crate::session::Binding;
use crate::upstream::{Access, Bearer, Identity, Tls, TlsError, TlsMaterial};

/// Headers that the gateway itself sets or takes from the caller, or that say how a message travels.
const TAKEN: [&str; 23] = [
    "accept",
    "accept-encoding",
    "baggage",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "origin",
    "proxy-connection",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The file form.
pub(super) struct Own {
    pub(super) ca_file: Option<PathBuf>,
    pub(super) client_cert_file: Option<PathBuf>,
    pub(super) client_key_file: Option<PathBuf>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) bearer_env: Option<String>,
    pub(super) bearer_file: Option<PathBuf>,
}

impl Own {
    /// Reads what the files hold; a token is looked at now, so that a missing one is found before a call needs it. Besides,
    /// what tells the server, and whom it will take the gateway for, from any other.
    pub(super) fn into_access(self, legacy: &Legacy) -> Result<(Access, Binding), ConfigError> {
        let scheme = match legacy {
            Legacy::Http(uri) | Legacy::WebSocket(uri) => uri.scheme_str(),
            Legacy::Program(_) => None,
        };
        if let Some(field) = self.first()
            && scheme.is_none()
        {
            return Err(wrong(field, "is nothing that a `command` could be given"));
        }
        let headers = headers(&self.headers)?;
        let bearer = bearer(self.bearer_env, self.bearer_file)?;
        let (ca, cert, key) = (self.ca_file, self.client_cert_file, self.client_key_file);
        let tls_field = [
            ("ca_file", &ca),
            ("client_cert_file", &cert),
            ("client_key_file", &key),
        ];
        let mut chain = Vec::new();
        let tls = match (scheme, tls_field.iter().find(|(_, file)| file.is_some())) {
            (Some("https" | "wss"), _) => {
                let identity = identity(cert.as_deref(), key.as_deref())?;
                chain.extend(identity.iter().flat_map(|identity| identity.chain.clone()));
                Some(tls(ca.as_deref(), identity)?)
            }
            (_, Some((field, _))) => {
                return Err(wrong(field, "is for https:// and wss:// servers alone"));
            }
            (_, None) => None,
        };
        let known_as = KnownAs {
            headers: &headers,
            authorization: bearer.as_ref().map(|(_, shown)| shown),
            chain: &chain,
        };
        let origin = origin::of(legacy, &known_as);
        let access = Access {
            tls,
            bearer: bearer.map(|(bearer, _)| bearer),
            headers,
        };
        Ok((access, origin))
    }

    /// The first field that is there.
    fn first(&self) -> Option<&'static str> {
        let fields = [
            ("ca_file", self.ca_file.is_some()),
            ("client_cert_file", self.client_cert_file.is_some()),
            ("client_key_file", self.client_key_file.is_some()),
            ("headers", !self.headers.is_empty()),
            ("bearer_env", self.bearer_env.is_some()),
            ("bearer_file", self.bearer_file.is_some()),
        ];
        fields
            .iter()
            .find_map(|(field, is_there)| is_there.then_some(*field))
    }
}

fn headers(given: &BTreeMap<String, String>) -> Result<HeaderMap, ConfigError> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let bad = |why: &str| wrong("headers", format!("{name:?} {why}"));
        let header = HeaderName::from_bytes(name.as_bytes());
        let header = header.map_err(|_| bad("is no name of a header"))?;
        if header == http::header::AUTHORIZATION {
            return Err(bad("is for `bearer_env` or `bearer_file` to set"));
        }
        if TAKEN.contains(&header.as_str()) || header.as_str().starts_with("mcp-") {
            return Err(bad("belongs to the protocol"));
        }
        // The value may be a secret: it is not quoted.
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| bad("has a value with characters that no header may carry"))?;
        value.set_sensitive(true);
        if headers.insert(header, value).is_some() {
            return Err(bad("is there twice"));
        }
    }
    Ok(headers)
}

/// Where the token is found, and what is shown of it now.
fn bearer(
    env: Option<String>,
    file: Option<PathBuf>,
) -> Result<Option<(Bearer, HeaderValue)>, ConfigError> {
    let (field, bearer) = match (env, file) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(wrong("bearer_file", "does not go with `bearer_env`"));
        }
        (Some(name), None) if name.is_empty() || name.contains(['=', '\0']) => {
            let why = format!("{name:?} is no name of a variable");
            return Err(wrong("bearer_env", why));
        }
        (Some(name), None) => ("bearer_env", Bearer::Env(name)),
        (None, Some(path)) => ("bearer_file", Bearer::File(path)),
    };
    let read = bearer.authorization();
    let shown = read.map_err(|error| wrong(field, error.to_string()))?;
    Ok(Some((bearer, shown)))
}

fn identity(cert: Option<&Path>, key: Option<&Path>) -> Result<Option<Identity>, ConfigError> {
    match (cert, key) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(wrong("client_cert_file", "wants a `client_key_file`")),
        (None, Some(_)) => Err(wrong("client_key_file", "wants a `client_cert_file`")),
        (Some(cert), Some(key)) => Ok(Some(Identity {
            chain: certificates("client_cert_file", cert)?,
            key: private_key(key)?,
        })),
    }
}

fn tls(ca: Option<&Path>, identity: Option<Identity>) -> Result<Tls, ConfigError> {
    let authorities = match ca {
        Some(path) => certificates("ca_file", path)?,
        None => Vec::new(),
    };
    let material = TlsMaterial {
        authorities,
        identity,
    };
    Tls::new(material).map_err(|error| {
        let field = match &error {
            TlsError::Authority(_) | TlsError::NoAuthorities => "ca_file",
            TlsError::Identity(_) => "client_key_file",
            TlsError::Versions(_) => "legacy",
        };
        wrong(field, error.to_string())
    })
}

fn certificates(
    field: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    certificates_in(&read(field, path)?, field, path)
}

/// The certificates in `text`, which was read from `path`.
pub(super) fn certificates_in(
    text: &[u8],
    field: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| {
        let why = format!("{} is not understood: {error}", path.display());
        wrong(field, why)
    })?;
    if found.is_empty() {
        let why = format!("{} holds no certificate in PEM", path.display());
        return Err(wrong(field, why));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let text = read("client_key_file", path)?;
    // What was read in place of a key is not quoted: it may be one.
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        let why = format!("{} holds no unencrypted key in PEM", path.display());
        wrong("client_key_file", why)
    })
}

pub(super) fn read(field: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path)
        .map_err(|error| wrong(field, format!("cannot read {}: {error}", path.display())))
}
