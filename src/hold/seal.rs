//! `requestState`: sealing, opening and what it is bound to.
//!
//! The state is XChaCha20-Poly1305 over a fixed binary layout, base64url without padding, about 150 bytes.
//! It names a hold and a round, expires, and is bound to the caller's principal and to the request. The first
//! key seals, all keys open, so keys can be rotated. Nothing in it is readable or forgeable without a key.
//! Spec: 2026-07-28 basic/patterns/mrtr, "Server Requirements" 4 and 5.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};

use crate::call::{AnswersDigest, Round};
use crate::session::Binding;
use crate::wire::modern::Method;
use crate::wire::object::{self, RawObject};

mod bytes;

pub use bytes::SEAL_BYTES;

/// Bounds a `requestState` that is worth decoding; ours are far shorter.
pub const STATE_BYTES_MAX: usize = 2048;

const LAYOUT: u8 = 1;
const FLAG_RERUN: u8 = 1;
const KEY_ID_BYTES: usize = 4;
const NONCE_BYTES: usize = 24;
const PLAIN_BYTES: usize = 2 + 4 + 8 + 16 + 16 + 16;

/// Names a replica; drawn anew by each process that starts, so that a restarted one is another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplicaId(pub [u8; 8]);

impl fmt::Debug for ReplicaId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Names a hold; random, so that nobody can guess another's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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

/// What a state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// A key that is not 32 bytes of base64.
#[derive(Debug, thiserror::Error)]
#[error("a sealing key is 32 bytes in base64, as `holdfast keygen` prints")]
pub struct BadKey;

/// The randomness of the operating system failed.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no randomness")]
pub struct NoRandomness(#[from] getrandom::Error);

struct Key {
    id: [u8; KEY_ID_BYTES],
    cipher: XChaCha20Poly1305,
}

/// The sealing keys: the first seals, all open.
pub struct SealingKeys {
    first: Key,
    older: Vec<Key>,
}

impl fmt::Debug for SealingKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SealingKeys({} masked)", 1 + self.older.len())
    }
}

impl SealingKeys {
    /// Keys from the configuration.
    ///
    /// # Errors
    /// When there is none.
    pub fn new(keys: &[[u8; 32]]) -> Result<Self, BadKey> {
        let mut keys = keys.iter().map(Key::new);
        let first = keys.next().ok_or(BadKey)?;
        Ok(Self {
            first,
            older: keys.collect(),
        })
    }

    /// One key that is gone when the process ends.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn random() -> Result<Self, NoRandomness> {
        Ok(Self {
            first: Key::new(&random_bytes()?),
            older: Vec::new(),
        })
    }

    /// Seals a state.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn seal(&self, state: &State) -> Result<String, NoRandomness> {
        let nonce: [u8; NONCE_BYTES] = random_bytes()?;
        let plain = state.to_bytes();
        let payload = Payload {
            msg: &plain,
            aad: &self.first.id,
        };
        // Encrypting a few dozen bytes has no way to fail: the only limit is 256 GiB.
        let sealed = self
            .first
            .cipher
            .encrypt(&XNonce::from(nonce), payload)
            .unwrap_or_default();
        let mut out = Vec::with_capacity(KEY_ID_BYTES + NONCE_BYTES + sealed.len());
        out.extend_from_slice(&self.first.id);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(URL_SAFE_NO_PAD.encode(out))
    }

    /// Opens a state; `None` for everything that no key of ours sealed.
    #[must_use]
    pub fn open(&self, text: &str) -> Option<State> {
        if text.len() > STATE_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (id, rest) = bytes.split_at_checked(KEY_ID_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_BYTES)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
        let keys = std::iter::once(&self.first)
            .chain(&self.older)
            .filter(|key| key.id == id);
        let plain = keys
            .filter_map(|key| {
                let payload = Payload {
                    msg: sealed,
                    aad: &key.id,
                };
                key.cipher.decrypt(&XNonce::from(nonce), payload).ok()
            })
            .next()?;
        State::from_bytes(&plain)
    }
}

impl Key {
    fn new(key: &[u8; 32]) -> Self {
        let digest = Sha256::digest(key);
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&digest[..KEY_ID_BYTES]);
        Self {
            id,
            cipher: XChaCha20Poly1305::new(&(*key).into()),
        }
    }
}

/// Random bytes of the operating system.
///
/// # Errors
/// When it gives none.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

impl State {
    fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PLAIN_BYTES);
        out.extend_from_slice(&[LAYOUT, u8::from(self.rerun) * FLAG_RERUN]);
        out.extend_from_slice(&self.round.0.to_be_bytes());
        out.extend_from_slice(&self.expires_unix_s.to_be_bytes());
        out.extend_from_slice(&self.hold.0);
        out.extend_from_slice(&self.principal.0);
        out.extend_from_slice(&self.request.0);
        out
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PLAIN_BYTES] = bytes.try_into().ok()?;
        let (head, rest) = bytes.split_first_chunk::<2>()?;
        let (round, rest) = rest.split_first_chunk::<4>()?;
        let (expires, rest) = rest.split_first_chunk::<8>()?;
        let (hold, rest) = rest.split_first_chunk::<16>()?;
        let (principal, rest) = rest.split_first_chunk::<16>()?;
        let request: [u8; 16] = rest.try_into().ok()?;
        (head[0] == LAYOUT).then_some(Self {
            hold: HoldId(*hold),
            round: Round(u32::from_be_bytes(*round)),
            rerun: head[1] & FLAG_RERUN != 0,
            expires_unix_s: u64::from_be_bytes(*expires),
            principal: Binding(*principal),
            request: Binding(request),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state() -> State {
        State {
            hold: HoldId([7; 16]),
            round: Round(3),
            rerun: true,
            expires_unix_s: expiry(SystemTime::now(), Duration::from_secs(60)),
            principal: Binding([1; 16]),
            request: Binding([2; 16]),
        }
    }

    #[test]
    fn a_state_comes_back_and_is_small() {
        let keys = SealingKeys::new(&[[1; 32]]).unwrap();
        let sealed = keys.seal(&state()).unwrap();
        assert!(sealed.len() <= 512, "{} bytes", sealed.len());
        assert_eq!(keys.open(&sealed), Some(state()));
        assert_ne!(sealed, keys.seal(&state()).unwrap());
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
