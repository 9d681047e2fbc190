//! The sealing keys: the first seals, all open, and other secrets are derived from each.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use ring::hmac;
use sha2::{Digest, Sha256};

use super::{READ_BYTES_MAX, Replayable, State};

mod bytes;

pub use bytes::SEAL_BYTES;

/// The longest `requestState` that is given out, besides answers that are kept. Clients carry it back in every re-issue, some within what a model reads;
/// a call with more to say cannot be taken over.
pub const STATE_BYTES_MAX: usize = 1024;

/// The length of a secret that is derived from a key: what HMAC-SHA256 yields.
pub const DERIVED_BYTES: usize = 32;

const KEY_ID_BYTES: usize = 4;
const NONCE_BYTES: usize = 24;

/// What is no key.
#[derive(Debug, thiserror::Error)]
pub enum BadKey {
    /// It is not 32 bytes of base64.
    #[error("a sealing key is 32 bytes in base64, as `holdfast keygen` prints")]
    Form,
    /// Nobody has to guess it.
    #[error("32 zero bytes are no secret; `holdfast keygen` prints a key")]
    Zero,
}

/// The randomness of the operating system failed.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gave no randomness")]
pub struct NoRandomness(#[from] getrandom::Error);

struct Key {
    id: [u8; KEY_ID_BYTES],
    cipher: XChaCha20Poly1305,
    derive: hmac::Key,
}

/// The sealing keys: the first seals, all open.
pub struct SealingKeys {
    first: Key,
    older: Vec<Key>,
    are_lasting: bool,
}

/// A state as its client gets it.
#[derive(Debug)]
pub struct Sealed {
    /// The `requestState`.
    pub text: String,
    /// It says what another process needs to take the call over.
    pub is_portable: bool,
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
        let first = keys.next().ok_or(BadKey::Form)?;
        Ok(Self {
            first,
            older: keys.collect(),
            are_lasting: true,
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
            are_lasting: false,
        })
    }

    /// Secrets that whoever has the same keys derives as well: one of each key, that of the first first. Those of one
    /// context say nothing of those of another, nor of the keys.
    pub fn derived(&self, context: &str) -> impl Iterator<Item = [u8; DERIVED_BYTES]> {
        std::iter::once(&self.first)
            .chain(&self.older)
            .map(move |key| key.derived(context))
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

    /// Seals a state; one that would be too long goes without what another process needs to take the call over.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn seal_within_bound(&self, state: State) -> Result<Sealed, NoRandomness> {
        let is_portable = state.takeover.is_some();
        let kept = state.replay.as_ref().map_or(0, Replayable::text_len);
        let text = self.seal(&state)?;
        if text.len() <= STATE_BYTES_MAX + kept || !is_portable {
            return Ok(Sealed { text, is_portable });
        }
        let bytes = text.len();
        tracing::debug!(
            bytes,
            "a call cannot be taken over: its state would be too long"
        );
        let text = self.seal(&State {
            takeover: None,
            ..state
        })?;
        Ok(Sealed {
            text,
            is_portable: false,
        })
    }

    /// Whether another process can have them: they were not drawn at the start of this one.
    #[must_use]
    pub fn are_lasting(&self) -> bool {
        self.are_lasting
    }

    /// Opens a state; `None` for everything that no key of ours sealed.
    #[must_use]
    pub fn open(&self, text: &str) -> Option<State> {
        if text.len() > READ_BYTES_MAX {
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
            derive: hmac::Key::new(hmac::HMAC_SHA256, key),
        }
    }

    /// HKDF-Expand of RFC 5869 for as many bytes as the hash has: one block. The key is uniformly random already, so
    /// nothing has to be extracted first (3.3).
    fn derived(&self, context: &str) -> [u8; DERIVED_BYTES] {
        let mut block = hmac::Context::with_key(&self.derive);
        block.update(context.as_bytes());
        block.update(&[1]);
        let mut secret = [0; DERIVED_BYTES];
        secret.copy_from_slice(block.sign().as_ref());
        secret
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The figure was computed with another implementation of HKDF-Expand.
    #[test]
    fn secrets_are_derived_for_a_context_and_in_the_order_of_the_keys() {
        let of = |keys: &[[u8; 32]], context| -> Vec<[u8; DERIVED_BYTES]> {
            SealingKeys::new(keys).unwrap().derived(context).collect()
        };
        let one = of(&[[1; 32]], "a");
        assert_eq!(one[0][..4], [0x9b, 0xbd, 0xd0, 0x1d]);
        assert_ne!(one, of(&[[1; 32]], "b"));
        let both = of(&[[2; 32], [1; 32]], "a");
        assert_eq!((both.len(), both[1]), (2, one[0]));
        assert_ne!(both[0], both[1]);
    }
}
