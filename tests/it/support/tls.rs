//! TLS in front of a server: an authority of the test's own, and a front that ends TLS and passes requests on.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// How many streams a server allows on one HTTP/2 connection: what RFC 9113 recommends as the least, and a narrow one.
const STREAMS_MAX: usize = 100;
pub(crate) const FEW_STREAMS: usize = 4;

/// Somebody who signs certificates.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    /// The file with its certificate, as TOML.
    pub(crate) fn ca_file(&self) -> String {
        format!("{:?}", self.folder.path().join("ca.pem"))
    }

    /// Its certificate.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// What ends TLS with a certificate of its own for this machine.
    pub(crate) fn acceptor(&self, front: Front) -> TlsAcceptor {
        TlsAcceptor::from(Arc::new(server_config(self, front)))
    }

    /// Signs a certificate for this machine; the files with it and its key.
    pub(crate) fn signs(&self, name: &str) -> (PathBuf, PathBuf) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |ending: &str, text: String| {
            let path = self.folder.path().join(format!("{name}.{ending}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        (
            file("pem", certificate.pem()),
            file("key", key.serialize_pem()),
        )
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        Arc::new(roots)
    }
}

/// What a front offers and demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// HTTP/1.1, to anybody.
    Http1,
    /// HTTP/2 and HTTP/1.1, to anybody.
    Http2,
    /// The same, with few streams on a connection.
    NarrowHttp2,
    /// HTTP/1.1, to those whom the authority knows.
    Known,
}

/// A running front. Dropped, it ends with all its connections.
#[derive(Debug)]
pub(crate) struct TlsFront {
    addr: SocketAddr,
    seen: Arc<Seen>,
    _end: DropGuard,
}

/// What a front has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Finished handshakes.
    connections: AtomicUsize,
    /// The protocol of each.
    protocols: Mutex<Vec<String>>,
}

impl TlsFront {
    /// Starts one in front of the server at `target`, with a certificate of `authority`.
    pub(crate) async fn start(target: SocketAddr, authority: &Authority, front: Front) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let acceptor = authority.acceptor(front);
        let (seen, end) = (Arc::<Seen>::default(), CancellationToken::new());
        let tasks = TaskTracker::new();
        let (counted, ended) = (Arc::clone(&seen), end.clone());
        tasks.clone().spawn(async move {
            let accepting = async {
                while let Ok((stream, _)) = listener.accept().await {
                    let serving = serve(
                        stream,
                        acceptor.clone(),
                        target,
                        Arc::clone(&counted),
                        front,
                    );
                    tasks.spawn(ended.clone().run_until_cancelled_owned(serving));
                }
            };
            ended.run_until_cancelled(accepting).await;
        });
        Self {
            addr,
            seen,
            _end: end.drop_guard(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}/mcp", self.addr.port())
    }

    /// The same for a server over WebSocket.
    pub(crate) fn websocket_url(&self) -> String {
        format!("wss://localhost:{}/ws", self.addr.port())
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// The protocols that were agreed on.
    pub(crate) fn protocols(&self) -> Vec<String> {
        let mut protocols = self.seen.protocols.lock().unwrap().clone();
        protocols.sort();
        protocols.dedup();
        protocols
    }
}

fn server_config(authority: &Authority, front: Front) -> ServerConfig {
    let (certificate, key) = authority.signs("server");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match front {
        Front::Http1 | Front::Http2 | Front::NarrowHttp2 => config.with_no_client_auth(),
        Front::Known => config.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(authority.roots(), provider)
                .build()
                .unwrap(),
        ),
    };
    let chain = certificates(&certificate);
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = match front {
        Front::Http2 | Front::NarrowHttp2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Front::Http1 | Front::Known => vec![b"http/1.1".to_vec()],
    };
    config
}

fn certificates(path: &Path) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    rustls::pki_types::CertificateDer::pem_file_iter(path)
        .unwrap()
        .map(|certificate| certificate.unwrap())
        .collect()
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    target: SocketAddr,
    seen: Arc<Seen>,
    front: Front,
) {
    let _ = stream.set_nodelay(true);
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    let protocol = stream.get_ref().1.alpn_protocol().unwrap_or(b"none");
    let protocol = String::from_utf8_lossy(protocol).into_owned();
    seen.connections.fetch_add(1, Ordering::Relaxed);
    seen.protocols.lock().unwrap().push(protocol.clone());
    if protocol == "h2" {
        let streams_max = match front {
            Front::NarrowHttp2 => FEW_STREAMS,
            _ => STREAMS_MAX,
        };
        return pass_on(stream, target, streams_max).await;
    }
    if let Ok(mut behind) = TcpStream::connect(target).await {
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut behind).await;
    }
}

/// Passes the requests of an HTTP/2 connection on, one by one.
async fn pass_on(stream: TlsStream<TcpStream>, target: SocketAddr, streams_max: usize) {
    let client: Client<HttpConnector, Incoming> =
        Client::builder(TokioExecutor::new()).build_http();
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        let path = request.uri().path().to_owned();
        *request.uri_mut() = format!("http://{target}{path}").parse().unwrap();
        *request.version_mut() = http::Version::HTTP_11;
        let passed = client.request(request);
        async move {
            let mut response = passed.await?;
            *response.version_mut() = http::Version::HTTP_2;
            Ok::<_, hyper_util::client::legacy::Error>(response)
        }
    });
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(u32::try_from(streams_max).unwrap())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
