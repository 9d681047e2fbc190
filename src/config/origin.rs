//! What tells the server of a backend, and whom it takes the gateway for, from any other: what replicas share of a server
//! is shared only among those that agree in all of it.
//!
//! Secrets are in it as they are when the configuration is read. Replicas that were started before and after one was
//! renewed share nothing until all have the new one.

use std::os::unix::ffi::OsStrExt;

use http::{HeaderMap, HeaderValue};
use rustls::pki_types::CertificateDer;

use super::Legacy;
use crate::session::Binding;
use crate::upstream::Program;

/// As whom the server knows the gateway.
pub(super) struct KnownAs<'a> {
    /// Headers of the backend's own.
    pub(super) headers: &'a HeaderMap,
    /// A token of its own, as the server is shown it.
    pub(super) authorization: Option<&'a HeaderValue>,
    /// The certificate that it shows, with what stands above it.
    pub(super) chain: &'a [CertificateDer<'static>],
}

/// The digest of all that.
pub(super) fn of(legacy: &Legacy, known_as: &KnownAs<'_>) -> Binding {
    let server = match legacy {
        Legacy::Http(uri) => joined([&b"http"[..], uri.to_string().as_bytes()]),
        Legacy::WebSocket(uri) => joined([&b"websocket"[..], uri.to_string().as_bytes()]),
        Legacy::Program(server) => program(server),
    };
    let headers = known_as.headers.iter();
    let headers = headers.flat_map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]);
    nested(&[
        server,
        joined(headers),
        joined(known_as.authorization.iter().map(|value| value.as_bytes())),
        joined(known_as.chain.iter().map(AsRef::as_ref)),
    ])
}

/// What is inherited without being named, such as `PATH`, belongs to the machine and not to the configuration.
fn program(program: &Program) -> Binding {
    let env = program.env.iter();
    let env = env.flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    let passed = program.pass_env.iter().map(|name| {
        let value = std::env::var_os(name);
        let value = value.iter().map(|value| value.as_bytes());
        joined([name.as_bytes()].into_iter().chain(value))
    });
    let cwd = program.cwd.iter().map(|path| path.as_os_str().as_bytes());
    nested(&[
        joined([&b"program"[..], program.command.as_bytes()]),
        joined(program.arguments.iter().map(String::as_bytes)),
        joined(env),
        nested(&passed.collect::<Vec<_>>()),
        joined(cwd),
    ])
}

fn joined<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Binding {
    Binding::of(&parts.into_iter().collect::<Vec<_>>())
}

fn nested(parts: &[Binding]) -> Binding {
    joined(parts.iter().map(|part| &part.0[..]))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::Write;

    use tempfile::NamedTempFile;

    use super::super::parse;
    use super::*;

    fn origin(backend: &str) -> Binding {
        let settings = parse(&format!("[[backend]]\n{backend}"));
        settings.unwrap().backend.origin
    }

    fn file(text: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    /// A certificate and its key.
    fn certified() -> (NamedTempFile, NamedTempFile) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (file(&certificate.pem()), file(&key.serialize_pem()))
    }

    #[test]
    fn whatever_leads_to_another_server_or_makes_it_see_somebody_else_is_another_origin() {
        let (one, same, other) = (file("one"), file("one\n"), file("other"));
        let http = "legacy = \"http://a:1/mcp\"";
        let program = "command = [\"node\", \"a.js\"]";
        let bearer = |file: &NamedTempFile| format!("{http}\nbearer_file = {:?}", file.path());
        let shown = [certified(), certified()];
        let showing = |(certificate, key): &(NamedTempFile, NamedTempFile)| {
            let (certificate, key) = (certificate.path(), key.path());
            format!(
                "legacy = \"https://a:1/mcp\"\nca_file = {certificate:?}\n\
                 client_cert_file = {certificate:?}\nclient_key_file = {key:?}"
            )
        };
        let all = [
            http.to_owned(),
            "legacy = \"ws://a:1/mcp\"".to_owned(),
            "legacy = \"http://a:2/mcp\"".to_owned(),
            "legacy = \"http://a:1/mcp?tenant=b\"".to_owned(),
            format!("{http}\nheaders = {{ a = \"b\" }}"),
            format!("{http}\nheaders = {{ a = \"c\" }}"),
            format!("{http}\nheaders = {{ ab = \"\" }}"),
            bearer(&one),
            bearer(&other),
            showing(&shown[0]),
            showing(&shown[1]),
            program.to_owned(),
            "command = [\"node\", \"a.\", \"js\"]".to_owned(),
            "command = [\"node\"]\nenv = { a = \"js\" }".to_owned(),
            format!("{program}\nenv = {{ a = \"b\" }}"),
            format!("{program}\nenv = {{ a = \"c\" }}"),
            // It is set, and to another value than any of these.
            format!("{program}\npass_env = [\"PATH\"]"),
            format!("{program}\npass_env = [\"HOLDFAST_TEST_UNSET\"]"),
            format!("{program}\ncwd = \"/\""),
        ];
        let origins: HashSet<_> = all.iter().map(|backend| origin(backend)).collect();
        assert_eq!(origins.len(), all.len());
        assert_eq!(origin(&bearer(&one)), origin(&bearer(&same)));
        let bounds = format!("name = \"a\"\nttl = \"1s\"\n{http}");
        assert_eq!(origin(&bounds), origin(http), "what the server never sees");
    }
}
