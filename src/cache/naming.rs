//! The names under which replicas keep what they have read of a server: each binds all that it depends on.
//!
//! A name is a digest under a key that is derived from the first sealing key. Whoever reads the store sees names, and
//! could try out callers, servers and cursors on a plain digest. Replicas whose first keys differ, while one is being
//! replaced, find nothing of each other.

use ring::hmac;
use serde::Serialize;

use crate::hold::seal::SealingKeys;
use crate::session::{Binding, Principal};
use crate::translate::subscription::List;

/// What the key of names is derived for.
const CONTEXT: &str = "holdfast names of lists 1";

/// The form of what is kept, and of what is named. The version stands beside it: another one may translate otherwise.
const LAYOUT: u8 = 1;

/// The name of something that is kept.
pub type Place = [u8; 32];

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Subject<'a> {
    /// A result as clients get it.
    Result {
        /// For whom it was made.
        reader: Reader<'a>,
        /// What was asked for.
        method: &'a str,
        /// From where on.
        cursor: Option<&'a str>,
        /// The hints in it: for how many milliseconds it is fresh, and whether for everybody.
        hints: (u64, bool),
    },
    /// What tools declare.
    Tools(Reader<'a>),
    /// In which edition a list is, by its number.
    Edition(u8),
}

/// For whom something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reader<'a> {
    /// Nobody for what anybody may see.
    pub principal: Option<Principal>,
    /// The same caller with other credentials may see something else.
    pub credentials: Option<&'a [u8]>,
    /// What the client can be asked, in canonical form.
    pub capabilities: &'a str,
}

impl Subject<'_> {
    /// The edition of a list.
    #[must_use]
    pub fn edition(list: List) -> Self {
        Self::Edition(list as u8)
    }
}

/// Names what is kept of one server.
#[derive(Debug)]
pub struct Naming {
    key: hmac::Key,
    backend: String,
    origin: Binding,
}

/// All that a name binds.
#[derive(Serialize)]
struct Named<'a> {
    layout: u8,
    version: &'static str,
    backend: &'a str,
    origin: Binding,
    subject: &'a Subject<'a>,
}

impl Naming {
    /// For the server of a backend; `origin` tells that server from any other.
    #[must_use]
    pub fn new(keys: &SealingKeys, backend: &str, origin: Binding) -> Option<Self> {
        let secret = keys.derived(CONTEXT).next()?;
        Some(Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            backend: backend.to_owned(),
            origin,
        })
    }

    /// The name of something. There always is one; without it nothing could be kept, instead of in a wrong place.
    #[must_use]
    pub fn place(&self, subject: &Subject<'_>) -> Option<Place> {
        let named = Named {
            layout: LAYOUT,
            version: env!("CARGO_PKG_VERSION"),
            backend: &self.backend,
            origin: self.origin,
            subject,
        };
        // Lengths and kinds are written with everything, so that no two things are written alike.
        let written = postcard::to_allocvec(&named).ok()?;
        hmac::sign(&self.key, &written).as_ref().try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a name is made of, with few values of each part, so that parts often agree.
    #[derive(Clone, Debug, PartialEq)]
    struct Parts {
        key: u8,
        backend: String,
        origin: u8,
        kind: u8,
        principal: Option<u8>,
        credentials: Option<Vec<u8>>,
        capabilities: String,
        method: &'static str,
        cursor: Option<String>,
        hints: (u64, bool),
    }

    impl Parts {
        /// Those that count for this kind.
        fn relevant(mut self) -> Self {
            if self.kind != 0 {
                (self.method, self.cursor, self.hints) = ("", None, (0, false));
            }
            if self.kind == 2 {
                (self.principal, self.credentials) = (None, None);
                self.capabilities.clear();
            }
            self
        }

        fn place(&self) -> Place {
            let keys = SealingKeys::new(&[[self.key; 32]]).unwrap();
            let naming = Naming::new(&keys, &self.backend, Binding([self.origin; 16])).unwrap();
            let principal = |n| match n {
                0 => Principal::Anonymous,
                n => Principal::Known(Binding([n - 1; 16])),
            };
            let reader = Reader {
                principal: self.principal.map(principal),
                credentials: self.credentials.as_deref(),
                capabilities: &self.capabilities,
            };
            let subject = match self.kind {
                0 => Subject::Result {
                    reader,
                    method: self.method,
                    cursor: self.cursor.as_deref(),
                    hints: self.hints,
                },
                1 => Subject::Tools(reader),
                _ => Subject::edition(List::Tools),
            };
            naming.place(&subject).unwrap()
        }
    }

    fn parts() -> impl Strategy<Value = Parts> {
        let short = "[ab]{0,2}";
        let server = (0..2u8, short, 0..2u8, 0..3u8);
        let bytes = prop::collection::vec(b'a'..=b'b', 0..3);
        let reader = (prop::option::of(0..3u8), prop::option::of(bytes), short);
        let methods = prop::sample::select(&["tools/list", "prompts/list"][..]);
        let asked = (methods, prop::option::of(short), (0..2u64, any::<bool>()));
        (server, reader, asked).prop_map(|(server, reader, asked)| Parts {
            key: server.0,
            backend: server.1,
            origin: server.2,
            kind: server.3,
            principal: reader.0,
            credentials: reader.1,
            capabilities: reader.2,
            method: asked.0,
            cursor: asked.1,
            hints: asked.2,
        })
    }

    proptest! {
        /// The parts of one may differ from those of the other in anything, or in one thing alone.
        #[test]
        fn names_agree_exactly_when_all_that_counts_does(a in parts(), b in parts(), differs in 0..11usize) {
            let mut near = a.clone();
            match differs {
                0 => near.key = b.key,
                1 => near.backend = b.backend.clone(),
                2 => near.origin = b.origin,
                3 => near.kind = b.kind,
                4 => near.principal = b.principal,
                5 => near.credentials = b.credentials.clone(),
                6 => near.capabilities = b.capabilities.clone(),
                7 => near.method = b.method,
                8 => near.cursor = b.cursor.clone(),
                9 => near.hints = b.hints,
                _ => {}
            }
            for other in [near, b] {
                let is_same = a.clone().relevant() == other.clone().relevant();
                prop_assert_eq!(a.place() == other.place(), is_same, "{:?} {:?}", a, other);
            }
        }
    }

    #[test]
    fn each_list_has_an_edition_of_its_own() {
        let keys = SealingKeys::new(&[[1; 32]]).unwrap();
        let naming = Naming::new(&keys, "b", Binding([0; 16])).unwrap();
        let [a, b, c] = List::ALL.map(|list| naming.place(&Subject::edition(list)).unwrap());
        assert!(a != b && b != c && a != c);
    }

    /// While a key is being replaced, the new one may be known to some already and first to none.
    #[test]
    fn the_first_key_names() {
        let place = |keys: &[[u8; 32]]| {
            let keys = SealingKeys::new(keys).unwrap();
            let naming = Naming::new(&keys, "b", Binding([0; 16])).unwrap();
            naming.place(&Subject::edition(List::Tools)).unwrap()
        };
        assert_eq!(place(&[[1; 32]]), place(&[[1; 32], [2; 32]]));
        assert_ne!(place(&[[1; 32]]), place(&[[2; 32], [1; 32]]));
    }
}
