//! Valid and invalid configurations.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::hold::replay::Replay;
use crate::observe::chain;
use crate::wire::modern::Method;

const BACKEND: &str = "[[backend]]\nlegacy = \"http://127.0.0.1:3000/mcp\"\n";

fn with(top: &str) -> Result<Settings, ConfigError> {
    parse(&format!("{top}\n{BACKEND}"))
}

#[test]
fn a_backend_is_enough_and_the_rest_has_defaults() {
    let settings = with("").unwrap();
    assert_eq!(settings.listen, default_listen());
    assert_eq!(settings.backend.name, "default");
    assert_eq!(settings.anonymous, Anonymous::Shared);
    assert_eq!(settings.principal, PrincipalSource::Authorization);
    assert!(settings.keys_are_random);
    assert_eq!(settings.timers.call.hold_ttl, Duration::from_secs(900));
}

#[test]
fn values_override_defaults() {
    let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let text = format!(
        "listen = \"0.0.0.0:80\"\nkeys = [\"{key}\"]\nprincipal = \"header:X-User\"\n\
         [timers]\nhold_ttl = \"2m\"\n[limits]\nholds_max = 7\n{BACKEND}name = \"billing\"\nttl = \"5s\"\n"
    );
    let settings = parse(&text).unwrap();
    assert!(!settings.keys_are_random);
    assert_eq!(
        settings.anonymous,
        Anonymous::Isolated,
        "strangers are not to share"
    );
    assert_eq!(
        settings.principal,
        PrincipalSource::Header(HeaderName::from_static("x-user"))
    );
    assert_eq!(settings.timers.call.hold_ttl, Duration::from_secs(120));
    assert_eq!(settings.limits.holds_max, 7);
    assert_eq!(settings.backend.name, "billing");
    assert_eq!(settings.backend.hints.ttl_ms, 5000);
    assert!(!format!("{settings:?}").contains(key), "secrets are masked");
}

#[test]
fn wrong_configurations_are_refused_whole() {
    for (top, part_of_message) in [
        ("listen = \"nowhere\"", "IP address and a port, such as"),
        ("listen = \"127.0.0.1\"", "IP address and a port, such as"),
        ("admin = \"localhost:80\"", "IP address and a port, such as"),
        ("listen = 80", "IP address and a port, such as"),
        ("timers.hold_ttl = 10", "with its unit, such as"),
        ("lisen = \"127.0.0.1:1\"", "unknown field"),
        ("keys = [\"short\"]", "keys"),
        ("keys = []", "keys"),
        ("timers.gather_quiet = \"1s\"", "than `gather_max`, 200ms"),
        ("timers.gather_max = \"20ms\"", "30ms is more than"),
        ("principal = \"claim:sub\"", "principal"),
        ("anonymous = \"maybe\"", "unknown variant"),
        ("[timers]\nhold_ttl = \"soon\"", "expected number"),
        ("[timers]\nhold_ttl = \"0s\"", "more than zero"),
        ("[limits]\nholds_max = 0", "more than zero"),
        ("[limits]\nholds = 1", "unknown field"),
        ("[limits]\nsessions_max = 9223372036854775807", "at most"),
        ("[limits]\nconnections_max = 9223372036854775807", "at most"),
        (
            "listen = \"127.0.0.1:80\"\nadmin = \"127.0.0.1:80\"",
            "admin",
        ),
        ("allowed_origins = [\"example.com\"]", "allowed_origins"),
        (
            "allowed_origins = [\"https://example.com/\"]",
            "allowed_origins",
        ),
        ("allowed_hosts = [\"http://example.com\"]", "allowed_hosts"),
    ] {
        let refused = with(top).unwrap_err().to_string();
        assert!(refused.contains(part_of_message), "{top}: {refused}");
    }
    for backend in [
        "",
        "[[backend]]\nlegacy = \"ftp://x/\"",
        "[[backend]]\nlegacy = \"http://user:pw@x/\"",
        "[[backend]]\nlegacy = \"not a url\"",
        "[[backend]]\nlegacy = \"http://x/\"\nname = \"a/b\"",
        "[[backend]]\nlegacy = \"http://x/\"\n[[backend]]\nlegacy = \"http://y/\"",
    ] {
        assert!(parse(backend).is_err(), "{backend}");
    }
}

/// What is wrong may be a secret that stands in the wrong place.
#[test]
fn no_secret_is_shown() {
    for text in [
        "keys = \"c2VjcmV0 \\\"or so\"",
        "[[backend]]\nlegacy = \"http://a/\"\nheaders = \"X-Api-Key: c2VjcmV0\"",
        "[[backend]]\ncommand = \"c2VjcmV0\"",
        "[[backend]]\ncommand = [\"a\"]\nenv = [\"c2VjcmV0\"]",
        "[[backend]]\nlegacy = \"http://a/\"\nheaders = { A = \"c2VjcmV0\\u0000\" }",
    ] {
        let refused = parse(text).unwrap_err().to_string();
        assert!(!refused.contains("c2VjcmV0"), "{text}: {refused}");
    }
    let settings = parse("[[backend]]\nlegacy = \"http://a/b?key=c2VjcmV0\"").unwrap();
    assert_eq!(settings.backend.legacy.to_string(), "http://a/b");
    assert!(!format!("{settings:?}").contains("c2VjcmV0"));
}

#[test]
fn lists_are_remembered_for_some_time_or_not_at_all() {
    let text = "[[backend]]\nlegacy = \"http://a/\"\ncache_lists = true\n";
    let error = parse(text).unwrap_err().to_string();
    assert!(
        error.contains("`backend.cache_lists`: wants a `ttl`"),
        "{error}"
    );
    let settings = parse(&format!("{text}ttl = \"1s\"")).unwrap();
    assert_eq!(settings.backend.lists, ListCaching::On);
}

#[test]
fn lost_calls_are_run_again_as_the_operator_says() {
    let of = |lines: &str| parse(&format!("{BACKEND}{lines}"));
    let said = |settings: Settings, tool: &str| {
        let params = format!(r#"{{"name":{tool:?}}}"#).into_bytes().into();
        let replays = settings.backend.replays;
        replays.of(Method::ToolsCall, &params)
    };
    assert_eq!(said(of("").unwrap(), "a"), Replay::Never);
    let table =
        "replay = \"annotated\"\n[backend.tools.\"a b\"]\nreplay = \"always\"\n[backend.tools.c]\n";
    for (tool, expected) in [
        ("a b", Replay::Always),
        ("c", Replay::Annotated),
        ("other", Replay::Annotated),
    ] {
        assert_eq!(said(of(table).unwrap(), tool), expected, "{tool}");
    }
    for (lines, expected) in [
        ("replay = \"sometimes\"", "unknown variant"),
        ("replay = true", "wanted string or table"),
        ("[backend.tools.a]\nreplays = \"never\"", "unknown field"),
        ("[limits]\nreplay_answers_max = 65537", "at most 65536"),
    ] {
        let refused = of(lines).unwrap_err().to_string();
        assert!(refused.contains(expected), "{lines}: {refused}");
    }
    let settings = of("[limits]\nreplay_answers_max = 65536").unwrap();
    assert_eq!(settings.call_limits().replay_answers_max, 65536);
}

/// Spans are added up and multiplied.
#[test]
fn a_span_is_not_longer_than_anything_lasts() {
    let settings = with("[timers]\nstop_grace = \"10y\"").unwrap();
    let ten_years = std::time::Duration::from_secs(10 * 31_557_600);
    assert_eq!(settings.timers.stop_grace, ten_years);
    for span in ["11y", "500000000000y"] {
        let refused = with(&format!("[timers]\nstop_grace = {span:?}")).unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("must be at most 10years"), "{said}");
    }
    let said = super::parse(&format!("{BACKEND}ttl = \"11y\"")).unwrap_err();
    assert!(said.to_string().contains("must be at most"), "{said}");
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_its_place() {
    let refused = with("listen = \"127.0.0.1:1\"\nlisten_on = 1").unwrap_err();
    let said = refused.to_string();
    assert!(said.starts_with("2:1: unknown field `listen_on`"), "{said}");
    assert!(!said.contains('\n') && std::error::Error::source(&refused).is_none());
    let refused = Settings::for_upstream("ftp://x/", None, None).unwrap_err();
    assert!(refused.to_string().contains("--upstream"), "{refused}");
}

/// What a backend of its own is refused with.
fn refused(backend: &str) -> String {
    parse(&format!("[[backend]]\n{backend}\n"))
        .unwrap_err()
        .to_string()
}

#[test]
fn a_backend_has_headers_and_a_token_of_its_own() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "s3cret\n").unwrap();
    let text = format!(
        "{BACKEND}headers = {{ X-Api-Key = \"k3y\" }}\nbearer_file = {:?}\n",
        token.path()
    );
    let settings = parse(&text).unwrap();
    assert_eq!(settings.backend.access.headers["x-api-key"], "k3y");
    let shown = format!("{settings:?}");
    assert!(!shown.contains("k3y") && !shown.contains("s3cret"));
    std::fs::write(token.path(), " \n").unwrap();
    let error = parse(&text).unwrap_err().to_string();
    assert_eq!(error, "`bearer_file`: the token is empty");
}

#[test]
fn what_a_backend_must_not_have_of_its_own() {
    let at = "legacy = \"http://a/\"";
    for name in [
        "Host",
        "content-length",
        "Mcp-Session-Id",
        "Accept",
        "traceparent",
    ] {
        let said = refused(&format!("{at}\nheaders = {{ {name} = \"x\" }}"));
        assert!(said.contains("belongs to the protocol"), "{said}");
    }
    for (lines, expected) in [
        (
            "headers = { Authorization = \"x\" }",
            "`headers`: \"Authorization\" is for",
        ),
        ("headers = { \"a b\" = \"x\" }", "is no name of a header"),
        ("headers = { a = \"x\\n\" }", "no header may carry"),
        ("headers = { a = \"x\", A = \"y\" }", "is there twice"),
        (
            "bearer_env = \"A\"\nbearer_file = \"b\"",
            "`bearer_file`: does not go",
        ),
        (
            "bearer_env = \"HOLDFAST_TEST_UNSET\"",
            "`bearer_env`: the variable",
        ),
        (
            "bearer_file = \"/nowhere/token\"",
            "`bearer_file`: cannot read /nowhere/token",
        ),
        (
            "ca_file = \"ca.pem\"",
            "`ca_file`: is for https:// and wss:// servers alone",
        ),
    ] {
        let said = refused(&format!("{at}\n{lines}"));
        assert!(said.contains(expected), "{said}");
    }
    let said = refused("command = [\"server\"]\nheaders = { a = \"x\" }");
    assert!(
        said.starts_with("`headers`: is nothing that a `command`"),
        "{said}"
    );
}

#[test]
fn files_of_tls_are_read_with_the_configuration() {
    let file = |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    };
    let (key, other) = (
        rcgen::KeyPair::generate().unwrap(),
        rcgen::KeyPair::generate().unwrap(),
    );
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let (cert, key, other, junk) = (
        file(&certificate.pem()),
        file(&key.serialize_pem()),
        file(&other.serialize_pem()),
        file("junk"),
    );
    let (cert, key, other, junk) = (cert.path(), key.path(), other.path(), junk.path());
    let at = "legacy = \"https://a/\"";
    let good = format!(
        "[[backend]]\n{at}\nca_file = {cert:?}\nclient_cert_file = {cert:?}\nclient_key_file = {key:?}"
    );
    let settings = parse(&good).unwrap();
    assert!(settings.backend.access.tls.is_some());
    let settings = parse(&good.replace("https://", "wss://")).unwrap();
    assert!(matches!(settings.backend.legacy, Legacy::WebSocket(_)));
    assert!(settings.backend.access.tls.is_some());
    for (lines, expected) in [
        (
            "ca_file = \"/nowhere/ca\"".to_owned(),
            "`ca_file`: cannot read /nowhere/ca",
        ),
        (format!("ca_file = {junk:?}"), "holds no certificate in PEM"),
        (
            format!("client_cert_file = {cert:?}"),
            "`client_cert_file`: wants a",
        ),
        (
            format!("client_key_file = {key:?}"),
            "`client_key_file`: wants a",
        ),
        (
            format!("ca_file = {cert:?}\nclient_cert_file = {cert:?}\nclient_key_file = {junk:?}"),
            "`client_key_file`: ",
        ),
        (
            format!("ca_file = {cert:?}\nclient_cert_file = {cert:?}\nclient_key_file = {other:?}"),
            "`client_key_file`: does not go with the certificate",
        ),
    ] {
        let said = refused(&format!("{at}\n{lines}"));
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn keys_may_stand_in_a_file_of_their_own() {
    let backend = "[[backend]]\nlegacy = \"http://127.0.0.1:3000/mcp\"";
    let file = tempfile::NamedTempFile::new().unwrap();
    let with = |keys: &str| {
        std::fs::write(file.path(), keys).unwrap();
        parse(&format!("keys_file = {:?}\n{backend}", file.path()))
    };
    let (one, two) = (STANDARD.encode([1; 32]), STANDARD.encode([2; 32]));
    let settings = with(&format!("{two}\r\n\n  {one}\n")).unwrap();
    assert!(!settings.keys_are_random);
    assert_eq!(settings.keys.derived("x").count(), 2);
    let closed = with(&one).unwrap();
    assert_eq!(closed.open_keys_file, None, "its owner alone reads it");
    let mode = |mode| std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
    for (bits, is_open) in [(0o644, true), (0o604, true), (0o640, false), (0o600, false)] {
        mode(bits);
        let found = with(&one).unwrap().open_keys_file;
        assert_eq!(found.is_some(), is_open, "{bits:o}");
    }
    let newest = SealingKeys::new(&[[2; 32]]).unwrap();
    assert_eq!(
        settings.keys.derived("x").next(),
        newest.derived("x").next()
    );
    let shown = file.path().display();
    for (bad, expected) in [
        ("", format!("`keys_file`: there is no key in {shown}; ")),
        ("\n", format!("`keys_file`: there is no key in {shown}; ")),
        (
            "short",
            format!("`keys_file`: line 1 of {shown}: a sealing key is"),
        ),
        (
            &format!("{one}\n\nshort\n{two}"),
            format!("`keys_file`: line 3 of {shown}: a sealing key is"),
        ),
    ] {
        let said = chain(&with(bad).unwrap_err());
        assert!(said.starts_with(&expected), "{said}");
        assert!(!said.contains("short"), "it may be a part of a key: {said}");
    }
    for (bad, expected) in [
        ("[]".to_owned(), "`keys`: there is none: "),
        (
            format!("[{one:?}, \"short\"]"),
            "`keys`: number 2: a sealing key is",
        ),
        (
            format!("[{one:?}, {:?}]", STANDARD.encode([0; 32])),
            "`keys`: number 2: 32 zero bytes are no secret",
        ),
    ] {
        let said = chain(&parse(&format!("keys = {bad}\n{backend}")).unwrap_err());
        assert!(said.starts_with(expected), "{said}");
    }
    let both = format!("keys = [{one:?}]\nkeys_file = \"k\"\n{backend}");
    let said = parse(&both).unwrap_err().to_string();
    assert!(said.starts_with("`keys_file`: does not go"), "{said}");
    let missing = format!("keys_file = \"/nowhere/at/all\"\n{backend}");
    let said = parse(&missing).unwrap_err().to_string();
    assert!(said.starts_with("`keys_file`: cannot read"), "{said}");
}
