//! Bytes that are kept where others may read and write them: sealed for one place alone.
//!
//! The same keys seal them as seal `requestState`, under additional data of their own, so that neither is ever
//! taken for the other, nor what was sealed for one place for what belongs into another.

use chacha20poly1305::XNonce;
use chacha20poly1305::aead::{Aead, Payload};

use super::{KEY_ID_BYTES, Key, NONCE_BYTES, NoRandomness, SealingKeys, random_bytes};

/// Parts these seals from those of states, whose additional data is the key's id alone.
const DOMAIN: &[u8] = b"holdfast sealed bytes 1";

/// What sealing adds: the key's id, the nonce, the tag.
pub const SEAL_BYTES: usize = KEY_ID_BYTES + NONCE_BYTES + 16;

impl SealingKeys {
    /// Seals `bytes` for the place that `context` names.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn seal_bytes(&self, context: &[u8], bytes: &[u8]) -> Result<Vec<u8>, NoRandomness> {
        let nonce: [u8; NONCE_BYTES] = random_bytes()?;
        let aad = self.first.aad(context);
        let payload = Payload {
            msg: bytes,
            aad: &aad,
        };
        // It has no way to fail below 256 GiB.
        let sealed = self
            .first
            .cipher
            .encrypt(&XNonce::from(nonce), payload)
            .unwrap_or_default();
        Ok([&self.first.id[..], &nonce, &sealed].concat())
    }

    /// Opens what was sealed for the same context; `None` for everything else.
    #[must_use]
    pub fn open_bytes(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (id, rest) = sealed.split_at_checked(KEY_ID_BYTES)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
        std::iter::once(&self.first)
            .chain(&self.older)
            .filter(|key| key.id == id)
            .find_map(|key| {
                let payload = Payload {
                    msg: sealed,
                    aad: &key.aad(context),
                };
                key.cipher.decrypt(&XNonce::from(*nonce), payload).ok()
            })
    }
}

impl Key {
    /// The context stands last, so that its length needs no mark.
    fn aad(&self, context: &[u8]) -> Vec<u8> {
        [&self.id[..], DOMAIN, context].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_for_their_own_context_alone() {
        let keys = SealingKeys::new(&[[1; 32]]).unwrap();
        for bytes in [&b""[..], b"10.0.0.7:9000", &[7; 100_000]] {
            let sealed = keys.seal_bytes(b"a", bytes).unwrap();
            assert_eq!(sealed.len(), bytes.len() + SEAL_BYTES);
            assert_eq!(keys.open_bytes(b"a", &sealed).as_deref(), Some(bytes));
            assert_eq!(keys.open_bytes(b"b", &sealed), None);
            assert_eq!(keys.open_bytes(b"", &sealed), None);
        }
    }

    #[test]
    fn older_keys_open_and_unknown_keys_do_not() {
        let old = SealingKeys::new(&[[1; 32]]).unwrap();
        let rotated = SealingKeys::new(&[[2; 32], [1; 32]]).unwrap();
        let sealed = old.seal_bytes(b"a", b"x").unwrap();
        assert_eq!(
            rotated.open_bytes(b"a", &sealed).as_deref(),
            Some(&b"x"[..])
        );
        assert_eq!(
            old.open_bytes(b"a", &rotated.seal_bytes(b"a", b"x").unwrap()),
            None
        );
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_refused() {
        let keys = SealingKeys::new(&[[1; 32]]).unwrap();
        let sealed = keys.seal_bytes(b"a", b"some bytes").unwrap();
        for end in 0..sealed.len() {
            assert_eq!(keys.open_bytes(b"a", &sealed[..end]), None, "cut at {end}");
        }
        for bit in 0..sealed.len() * 8 {
            let mut forged = sealed.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.open_bytes(b"a", &forged), None, "bit {bit}");
        }
    }
}
