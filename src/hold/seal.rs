//! `requestState`: sealing, opening and what it is bound to.
//!
//! The state is XChaCha20-Poly1305 over a binary layout, base64url without padding. It names a hold and a round,
//! expires, and is bound to the caller's principal and to the request; where the server can resume its streams it
//! carries what another process needs to take the call over. The first key seals, all keys open, and each state names
//! its key, so keys can be rotated. Nothing in it is readable or forgeable without a key.
//! Spec: 2026-07-28 basic/patterns/mrtr, "Server Requirements" 4 and 5.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::call::{AnswersDigest, Footing, Kept, Round};
use crate::session::{Binding, SessionName};
use crate::wire::jsonrpc::UpstreamId;
use crate::wire::modern::Method;
use crate::wire::object::{self, RawObject};

mod keys;

pub use keys::{
    BadKey, DERIVED_BYTES, NoRandomness, SEAL_BYTES, STATE_BYTES_MAX, Sealed, SealingKeys,
    random_bytes,
};

/// The first byte of what is sealed.
const LAYOUT: u8 = 3;

/// As many bytes of answers may be kept in a state at most (`replay_answers_max`): a request that brings back much more
/// would be refused by servers in front, and by this one (`body_bytes_max`).
pub const REPLAY_BYTES_MAX: usize = 64 << 10;

/// The longest text that is looked at as a state. What goes with the answers, besides them, is a few bytes.
const READ_BYTES_MAX: usize = STATE_BYTES_MAX + base64_len(REPLAY_BYTES_MAX + 64);

/// The length of so many bytes in base64 without padding.
const fn base64_len(bytes: usize) -> usize {
    (bytes * 4).div_ceil(3)
}

/// Names a hold; random, so that nobody can guess another's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HoldId(pub [u8; 16]);

impl fmt::Debug for HoldId {
    /// Half of the id: enough for a log line, too little to be of use.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8]
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Binds to a request: backend, method and all params that are not the protocol's own. The same values
/// in another order of keys are the same request.
#[must_use]
pub fn request_binding(backend: &str, method: Method, params: &RawObject<'_>) -> Binding {
    let mut members: Vec<(&str, Vec<u8>)> = params
        .iter()
        .filter(|(key, _)| !matches!(*key, "_meta" | "inputResponses" | "requestState"))
        .map(|(key, value)| (key, object::canonical(value)))
        .collect();
    members.sort_unstable();
    let mut parts = vec![backend.as_bytes(), method.as_str().as_bytes()];
    for (key, value) in &members {
        parts.extend([key.as_bytes(), &value[..]]);
    }
    Binding::of(&parts)
}

/// Tells the answers of one re-issue from those of another, whatever the order of their keys.
#[must_use]
pub fn answers_digest(responses: &RawObject<'_>) -> AnswersDigest {
    let mut members: Vec<(&str, Vec<u8>)> = responses
        .iter()
        .map(|(key, value)| (key, object::canonical(value)))
        .collect();
    members.sort_unstable();
    let parts: Vec<&[u8]> = members
        .iter()
        .flat_map(|(key, value)| [key.as_bytes(), &value[..]])
        .collect();
    AnswersDigest(Binding::of(&parts).0)
}

/// Names a process of several; random, drawn when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReplicaId(pub [u8; 8]);

impl fmt::Debug for ReplicaId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// What a state says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The hold.
    pub hold: HoldId,
    /// The round whose answers it brings.
    pub round: Round,
    /// The re-issue runs the request anew.
    pub rerun: bool,
    /// Seconds since the Unix epoch after which it is worth nothing.
    pub expires_unix_s: u64,
    /// Whose it is.
    pub principal: Binding,
    /// For which request.
    pub request: Binding,
    /// The process that sealed it.
    pub owner: ReplicaId,
    /// Should the call be lost, nothing speaks against making it again.
    pub is_safe_to_repeat: bool,
    /// What another process needs to take the call over, where the server lets it.
    pub takeover: Option<Takeover>,
    /// What whoever finds the call lost needs to run it again, where the operator lets them.
    pub replay: Option<Replayable>,
}

/// What it takes to run a lost call again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayable {
    /// The server says that nothing speaks against making the call twice.
    pub is_annotated: bool,
    /// What it is run again with.
    pub kept: Kept,
    /// The run that will be lost with whoever reads it, where that can be ended from elsewhere and not be taken over.
    pub run: Option<Run>,
}

/// A run of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The session as the server knows it.
    pub session: SessionName,
    /// The id of its request towards the server.
    pub request: UpstreamId,
}

impl Replayable {
    /// How much longer it makes a state. That of a call that is never run again is as short as ever.
    fn text_len(&self) -> usize {
        let bytes = postcard::to_allocvec(self).map_or(0, |bytes| bytes.len());
        base64_len(bytes)
    }
}

/// What a process needs to take a call over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Takeover {
    /// The session as the server knows it.
    pub session: SessionName,
    /// Where the call stands.
    pub footing: Footing,
}

impl State {
    /// Whether it is too old at `now`.
    #[must_use]
    pub fn is_expired(&self, now: SystemTime) -> bool {
        now.duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::MAX)
            .as_secs()
            >= self.expires_unix_s
    }
}

/// The second after which a state sealed at `now` is worth nothing.
#[must_use]
pub fn expiry(now: SystemTime, valid_for: Duration) -> u64 {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_add(valid_for).as_secs().saturating_add(1)
}

impl State {
    fn to_bytes(&self) -> Vec<u8> {
        // Into a vector nothing of it can fail to be written.
        postcard::to_extend(self, vec![LAYOUT]).unwrap_or_default()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (layout, rest) = bytes.split_first()?;
        let (state, unread) = postcard::take_from_bytes(rest).ok()?;
        (*layout == LAYOUT && unread.is_empty()).then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;
    use crate::call::{Asked, Open, Position};
    use crate::wire::jsonrpc::ServerId;

    fn state() -> State {
        State {
            hold: HoldId([7; 16]),
            round: Round(3),
            rerun: true,
            expires_unix_s: 2_000_000_000,
            principal: Binding([1; 16]),
            request: Binding([2; 16]),
            owner: ReplicaId([3; 8]),
            is_safe_to_repeat: false,
            takeover: None,
            replay: None,
        }
    }

    /// With ids as long as real ones, or longer.
    fn adoptable() -> State {
        let exchange = Position {
            after: "e".repeat(64).into(),
            heard: 300,
        };
        let asked = Asked {
            id: serde_json::from_str("\"f81d4fae-7dec-11d0-a765-00a0c91e6bf6\"")
                .ok()
                .and_then(ServerId::new)
                .unwrap(),
            open: Some(Open {
                key: "confirmation".into(),
                entry: None,
            }),
        };
        State {
            takeover: Some(Takeover {
                session: SessionName {
                    id: Some("f81d4fae-7dec-11d0-a765-00a0c91e6bf6".into()),
                    revision: "2025-11-25".into(),
                    is_shared: false,
                },
                footing: Footing {
                    request: UpstreamId(1 << 40),
                    exchange,
                    asked: vec![asked],
                },
            }),
            ..state()
        }
    }

    #[test]
    fn a_state_comes_back_and_is_small() {
        let keys = SealingKeys::new(&[[1; 32]]).unwrap();
        let sealed = keys.seal(&state()).unwrap();
        assert!(sealed.len() <= 200, "{} bytes", sealed.len());
        assert_eq!(keys.open(&sealed), Some(state()));
        let sealed = keys.seal(&adoptable()).unwrap();
        assert!(sealed.len() <= 512, "{} bytes", sealed.len());
        assert_eq!(keys.open(&sealed), Some(adoptable()));
        let sealed = keys.seal(&state()).unwrap();
        assert_ne!(sealed, keys.seal(&state()).unwrap());
    }

    #[test]
    fn answers_make_a_state_longer_and_leave_the_rest_as_it_is() {
        let keys = SealingKeys::new(&[[1; 32]]).unwrap();
        let with = |bytes: usize| State {
            replay: Some(Replayable {
                is_annotated: true,
                kept: Kept::of_answer(&"R".repeat(bytes)),
                run: None,
            }),
            ..adoptable()
        };
        for bytes in [10, 4 << 10, REPLAY_BYTES_MAX] {
            let state = with(bytes);
            let sealed = keys.seal_within_bound(state.clone()).unwrap();
            assert!(sealed.is_portable, "{bytes}");
            let longest = 512 + base64_len(bytes + 64);
            assert!(sealed.text.len() <= longest, "{}", sealed.text.len());
            assert_eq!(keys.open(&sealed.text), Some(state.clone()));
            assert!(!format!("{state:?}").contains("RRR"));
        }
        // What is too long without them is so with them.
        let mut state = with(100);
        let takeover = state.takeover.as_mut().unwrap();
        takeover.footing.exchange.after = "e".repeat(900).into();
        let sealed = keys.seal_within_bound(state).unwrap();
        assert!(!sealed.is_portable);
        let opened = keys.open(&sealed.text).unwrap();
        assert!(opened.replay.is_some() && opened.takeover.is_none());
    }

    #[test]
    fn older_keys_open_and_unknown_keys_do_not() {
        let old = SealingKeys::new(&[[1; 32]]).unwrap();
        let rotated = SealingKeys::new(&[[2; 32], [1; 32]]).unwrap();
        let sealed = old.seal(&state()).unwrap();
        assert_eq!(rotated.open(&sealed), Some(state()));
        assert_eq!(old.open(&rotated.seal(&state()).unwrap()), None);
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_refused() {
        let keys = SealingKeys::new(&[[1; 32]]).unwrap();
        let sealed = keys.seal(&state()).unwrap();
        for end in 0..sealed.len() {
            assert_eq!(keys.open(&sealed[..end]), None, "cut at {end}");
        }
        let bytes = URL_SAFE_NO_PAD.decode(&sealed).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut forged = bytes.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                keys.open(&URL_SAFE_NO_PAD.encode(forged)),
                None,
                "bit {bit}"
            );
        }
    }

    #[test]
    fn expiry_is_a_point_in_wall_clock_time() {
        let now = SystemTime::now();
        let state = State {
            expires_unix_s: expiry(now, Duration::from_secs(5)),
            ..state()
        };
        assert!(!state.is_expired(now + Duration::from_secs(5)));
        assert!(state.is_expired(now + Duration::from_secs(7)));
    }

    #[test]
    fn a_request_is_bound_by_its_values_not_by_their_order() {
        let of = |text: &str| {
            request_binding(
                "b",
                Method::ToolsCall,
                &RawObject::parse(text.as_bytes()).unwrap(),
            )
        };
        let one = of(r#"{"name":"t","arguments":{"a":1,"b":2}}"#);
        assert_eq!(
            one,
            of(r#"{"arguments":{ "b":2,"a":1},"requestState":"s","name":"t","_meta":{}}"#)
        );
        assert_ne!(one, of(r#"{"name":"t","arguments":{"a":1,"b":3}}"#));
        assert_ne!(one, of(r#"{"name":"u","arguments":{"a":1,"b":2}}"#));
        assert_ne!(one, of(r#"{"name":"t"}"#));
        // Beyond what a double can tell apart, and what a tree would forget.
        let large = |n: &str| of(&format!(r#"{{"name":"t","arguments":{{"account":{n}}}}}"#));
        assert_ne!(large("9007199254740993"), large("9007199254740992"));
        assert_ne!(large(r#"{"a":1,"a":2}"#), large(r#"{"a":2}"#));
        assert_eq!(
            large(r#"[{"b":"\u0041","a":1}]"#),
            large(r#"[ {"a":1, "b":"A"} ]"#)
        );
    }

    proptest! {
        #[test]
        fn any_text_opens_to_nothing(text in ".{0,300}") {
            let keys = SealingKeys::new(&[[1; 32]]).unwrap();
            prop_assert_eq!(keys.open(&text), None);
        }
    }
}
