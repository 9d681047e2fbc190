//! Who is a replica: whoever has a sealing key. It is shown by TLS, without any certificates.
//!
//! From each sealing key an Ed25519 key pair is derived, so that all who have the sealing key have the pair as well. Both
//! sides of a connection show the public key that belongs to the first sealing key, bare (RFC 7250), and accept those of
//! all. Keys are therefore changed as they are for sealing: the new one is added behind the old one everywhere, then put
//! first, then the old one is dropped; at each step any two replicas know each other.
//!
//! TLS 1.3 alone. Sessions are not resumed: connections are few and last, and each is to show its key anew.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme, version,
};

use crate::hold::seal::{DERIVED_BYTES, SealingKeys};

/// What secrets of key pairs are derived for.
const CONTEXT: &str = "holdfast replica identity, Ed25519, 1";

/// A private key of Ed25519 in PKCS #8 up to the secret itself (RFC 8410, section 7).
const PKCS8_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The protocol that replicas speak, by ALPN.
const PROTOCOL: &[u8] = b"h2";

/// TLS of a replica, towards others and for others.
#[derive(Clone)]
pub struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity(..)")
    }
}

/// The cryptography at hand cannot do what replicas need.
#[derive(Debug, thiserror::Error)]
#[error("no identity can be derived from the sealing keys")]
pub struct NoIdentity(#[from] Error);

impl Identity {
    /// The identity that goes with these keys.
    ///
    /// # Errors
    /// When the cryptography at hand has no Ed25519 or no TLS 1.3.
    pub fn of(keys: &SealingKeys) -> Result<Self, NoIdentity> {
        let pairs = keys.derived(CONTEXT).map(|secret| pair(&secret));
        let pairs = pairs.collect::<Result<Vec<_>, Error>>()?;
        let own = pairs.first().ok_or(Error::NoCertificatesPresented)?;
        let provider = Arc::new(ring::default_provider());
        let replicas = Arc::new(Replicas {
            known: pairs.iter().flat_map(|pair| pair.cert.clone()).collect(),
            provider: Arc::clone(&provider),
        });
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&replicas) as Arc<dyn ServerCertVerifier>)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                Arc::clone(own),
            )));
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])?
            .with_client_cert_verifier(replicas)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
                Arc::clone(own),
            )));
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }

    /// For reaching other replicas.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// For being reached by them.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }
}

/// The name that TLS wants for a server. Replicas are known by their key alone, and the name is not even sent.
#[must_use]
pub fn nameless() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into())
}

/// The pair with this secret, its public key in place of a certificate.
fn pair(secret: &[u8; DERIVED_BYTES]) -> Result<Arc<CertifiedKey>, Error> {
    let pkcs8 = [&PKCS8_HEAD[..], secret].concat();
    let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8))?;
    let public = SigningKey::public_key(&*key).ok_or(Error::General("no public key".to_owned()))?;
    let bare = CertificateDer::from(public.as_ref().to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![bare], key)))
}

/// The public keys of replicas.
#[derive(Debug)]
struct Replicas {
    known: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Replicas {
    fn knows(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        if self.known.iter().any(|known| known == shown) {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn signed(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let shown = SubjectPublicKeyInfoDer::from(shown.as_ref());
        verify_tls13_signature_with_raw_key(message, &shown, signature, algorithms)
    }
}

/// TLS 1.2 is not offered.
fn too_old() -> Error {
    Error::General("TLS 1.2 is not offered".to_owned())
}

impl ServerCertVerifier for Replicas {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.knows(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Replicas {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.knows(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    fn identity(keys: &[u8]) -> Identity {
        let keys: Vec<_> = keys.iter().map(|byte| [*byte; 32]).collect();
        Identity::of(&SealingKeys::new(&keys).unwrap()).unwrap()
    }

    /// Whether a byte comes through from `from` to `to`.
    async fn reaches(from: &Identity, to: &Identity) -> bool {
        let (near, far) = duplex(4096);
        let accepting = async {
            let mut stream = TlsAcceptor::from(to.server()).accept(far).await.ok()?;
            stream.read_u8().await.ok()
        };
        let connecting = async {
            let connector = TlsConnector::from(from.client());
            let mut stream = connector.connect(nameless(), near).await.ok()?;
            stream.write_u8(7).await.ok()?;
            stream.flush().await.ok()
        };
        let (read, _) = tokio::join!(accepting, connecting);
        read == Some(7)
    }

    #[tokio::test]
    async fn whoever_has_the_key_is_known_and_nobody_else() {
        assert!(reaches(&identity(&[1]), &identity(&[1])).await);
        assert!(!reaches(&identity(&[1]), &identity(&[2])).await);
    }

    /// The steps of a rotation, half of the replicas a step behind.
    #[tokio::test]
    async fn replicas_know_each_other_at_each_step_of_a_rotation() {
        let steps: [&[u8]; 4] = [&[1], &[1, 2], &[2, 1], &[2]];
        for pair in steps.windows(2) {
            let (behind, ahead) = (identity(pair[0]), identity(pair[1]));
            assert!(reaches(&behind, &ahead).await, "{pair:?}");
            assert!(reaches(&ahead, &behind).await, "{pair:?}");
        }
        assert!(
            !reaches(&identity(&[1]), &identity(&[2, 1])).await,
            "two at once"
        );
    }
}
