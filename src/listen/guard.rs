//! Who may reach the endpoint: `Origin` and `Host` against DNS rebinding.
//!
//! Spec: 2026-07-28 basic/transports/streamable-http, "Security & Endpoint".

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};

/// What the checks need to know.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) is_loopback: bool,
    pub(super) allowed_origins: Vec<HeaderValue>,
    pub(super) allowed_hosts: Vec<String>,
}

impl Guard {
    /// Why a request may not pass, if so.
    pub(super) fn refuses(&self, headers: &HeaderMap) -> Option<&'static str> {
        if headers
            .get_all(ORIGIN)
            .iter()
            .any(|origin| !self.allows_origin(origin))
        {
            return Some(
                "this Origin is not allowed; the operator can name it in `allowed_origins`",
            );
        }
        let mut hosts = headers.get_all(HOST).iter();
        if self.is_loopback && !hosts.all(|host| self.allows_host(host)) {
            return Some("this Host is not allowed; the operator can name it in `allowed_hosts`");
        }
        None
    }

    /// A page may call when the operator says so, or when it comes from this machine as we do.
    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        self.allowed_origins.contains(origin)
            || (self.is_loopback
                && origin
                    .to_str()
                    .ok()
                    .and_then(|text| text.parse::<Uri>().ok())
                    .is_some_and(|uri| {
                        matches!(uri.scheme_str(), Some("http" | "https"))
                            && uri.authority().is_some_and(is_plain)
                            && uri.host().is_some_and(is_loopback_name)
                    }))
    }

    fn allows_host(&self, host: &HeaderValue) -> bool {
        let authority = host
            .to_str()
            .ok()
            .and_then(|text| text.parse::<Authority>().ok());
        authority.filter(is_plain).is_some_and(|authority| {
            let name = authority.host();
            is_loopback_name(name)
                || self
                    .allowed_hosts
                    .iter()
                    .any(|allowed| allowed.eq_ignore_ascii_case(name))
        })
    }
}

/// Neither header carries a user.
fn is_plain(authority: &Authority) -> bool {
    !authority.as_str().contains('@')
}

fn is_loopback_name(name: &str) -> bool {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, name: &'static str, value: &str, passes: bool) {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        let refused = guard.refuses(&headers);
        assert_eq!(refused.is_none(), passes, "{name}: {value}");
        let way_out = format!("`allowed_{name}s`");
        assert!(refused.is_none_or(|why| why.contains(&way_out)));
    }

    #[test]
    fn on_loopback_only_this_machine_passes() {
        let guard = Guard {
            is_loopback: true,
            allowed_origins: vec![HeaderValue::from_static("https://app.example")],
            allowed_hosts: vec!["gateway.internal".to_owned()],
        };
        for (name, value, passes) in [
            ("host", "localhost:8080", true),
            ("host", "127.0.0.1", true),
            ("host", "[::1]:1", true),
            ("host", "gateway.internal:80", true),
            ("host", "evil.example:8080", false),
            ("host", "localhost.evil.example", false),
            ("origin", "http://localhost:3000", true),
            ("origin", "http://127.0.0.1", true),
            ("origin", "https://app.example", true),
            ("origin", "https://evil.example", false),
            ("origin", "http://localhost.evil.example", false),
            ("origin", "null", false),
            ("origin", "evil://localhost", false),
            ("origin", "http://evil@localhost", false),
            ("host", "evil@localhost", false),
        ] {
            check(&guard, name, value, passes);
        }
        assert!(guard.refuses(&HeaderMap::new()).is_none());
    }

    #[test]
    fn elsewhere_only_named_origins_pass() {
        let guard = Guard {
            is_loopback: false,
            allowed_origins: vec![],
            allowed_hosts: vec![],
        };
        check(&guard, "host", "anything.example", true);
        check(&guard, "origin", "http://localhost:3000", false);
    }
}
