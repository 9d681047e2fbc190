//! TLS towards servers: whom the gateway trusts, and who it is itself.
//!
//! One configuration serves every connection of a backend, whatever the transport. Servers are trusted whose
//! certificate leads to an authority of the machine or of the backend; there is no way to trust without.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// What a backend has besides what the machine has.
#[derive(Debug, Default)]
pub struct TlsMaterial {
    /// Authorities that are trusted too.
    pub authorities: Vec<CertificateDer<'static>>,
    /// What the gateway shows to a server that asks who it is.
    pub identity: Option<Identity>,
}

/// A certificate with what stands above it, and its key.
pub struct Identity {
    /// The gateway's own certificate comes first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key of the first.
    pub key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity(..)")
    }
}

/// Why there is no TLS to be had from what was given.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// An authority's certificate is none.
    #[error("holds a certificate that is not understood: {0}")]
    Authority(#[source] rustls::Error),
    /// Nobody would be trusted.
    #[error("is needed: this machine has no certificate authorities")]
    NoAuthorities,
    /// The certificate and the key do not go together, or the key is of a kind that is not known.
    #[error("does not go with the certificate: {0}")]
    Identity(#[source] rustls::Error),
    /// The cryptography at hand speaks no version of TLS.
    #[error("is of no use here: {0}")]
    Versions(#[source] rustls::Error),
}

/// TLS of one backend.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tls(..)")
    }
}

impl Tls {
    /// Reads the authorities of the machine, and takes the backend's own material.
    ///
    /// # Errors
    /// When the material is not good, or nobody would be trusted.
    pub fn new(material: TlsMaterial) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        // Of the machine's many some are always odd; those that cannot be read are as good as absent.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for authority in material.authorities {
            roots.add(authority).map_err(TlsError::Authority)?;
        }
        if roots.is_empty() {
            return Err(TlsError::NoAuthorities);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Versions)?
            .with_root_certificates(roots);
        let config = match material.identity {
            None => config.with_no_client_auth(),
            Some(Identity { chain, key }) => config
                .with_client_auth_cert(chain, key)
                .map_err(TlsError::Identity)?,
        };
        Ok(Self(Arc::new(config)))
    }

    /// The same for a transport that offers these protocols by ALPN.
    #[must_use]
    pub fn offering(&self, protocols: &[&[u8]]) -> Self {
        let mut config = (*self.0).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Self(Arc::new(config))
    }

    /// For a transport to connect with. It offers no protocol by ALPN unless the transport said which there are.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }
}
