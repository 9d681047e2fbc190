//! Who a caller is, as far as sharing goes.

use sha2::{Digest, Sha256};

/// Who a caller is, as far as sharing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub enum Principal {
    /// No credentials: all such callers look alike.
    Anonymous,
    /// The digest of what tells callers apart.
    Known(Binding),
}

impl Principal {
    /// What a `requestState` is bound to.
    #[must_use]
    pub fn binding(self) -> Binding {
        match self {
            Self::Anonymous => Binding([0; 16]),
            Self::Known(binding) => binding,
        }
    }
}

/// A truncated SHA-256 that binds a state to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Binding(pub [u8; 16]);

impl Binding {
    /// The digest of length-prefixed parts, so that no two lists of parts look alike.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut short = [0; 16];
        short.copy_from_slice(&hash.finalize()[..16]);
        Self(short)
    }
}
