//! What scripts say.

use crate::hold::seal::ReplicaId;
use crate::hold::shared::Unavailable;

/// What a script said: a word, and what belongs to it.
pub(super) struct Said(pub(super) Vec<redis::Value>);

impl Said {
    pub(super) fn word(&self) -> Result<&str, Unavailable> {
        self.text(0)
    }

    fn text(&self, at: usize) -> Result<&str, Unavailable> {
        match self.0.get(at) {
            Some(redis::Value::BulkString(bytes)) => std::str::from_utf8(bytes).map_err(|_| odd()),
            _ => Err(odd()),
        }
    }

    /// A number, where -1 stands for none.
    pub(super) fn number(&self, at: usize) -> Result<Option<u32>, Unavailable> {
        match self.0.get(at) {
            Some(redis::Value::Int(-1)) => Ok(None),
            Some(redis::Value::Int(number)) => u32::try_from(*number).map(Some).map_err(|_| odd()),
            _ => Err(odd()),
        }
    }

    pub(super) fn replica(&self) -> Result<ReplicaId, Unavailable> {
        let text = self.text(1)?;
        let number = u64::from_str_radix(text, 16).map_err(|_| odd())?;
        Ok(ReplicaId(number.to_be_bytes()))
    }
}

/// A reply that no script of ours gives.
pub(super) fn odd() -> Unavailable {
    Unavailable::Failed("a record is not what this gateway writes".into())
}
