//! The log levels that the live requests of a session want. No I/O.

use crate::wire::modern::LogLevel;

/// How many live requests want each level.
#[derive(Debug, Default)]
pub(super) struct Wishes([u32; LogLevel::ALL.len()]);

impl Wishes {
    /// One more wants it.
    pub(super) fn add(&mut self, level: LogLevel) {
        self.0[level as usize] += 1;
    }

    /// One less.
    pub(super) fn remove(&mut self, level: LogLevel) {
        self.0[level as usize] -= 1;
    }

    /// The lowest level that is wanted.
    pub(super) fn lowest(&self) -> Option<LogLevel> {
        let at = self.0.iter().position(|count| *count > 0)?;
        Some(LogLevel::ALL[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_wish_counts() {
        let mut wishes = Wishes::default();
        assert_eq!(wishes.lowest(), None);
        for level in [LogLevel::Error, LogLevel::Debug, LogLevel::Debug] {
            wishes.add(level);
        }
        assert_eq!(wishes.lowest(), Some(LogLevel::Debug));
        wishes.remove(LogLevel::Debug);
        assert_eq!(wishes.lowest(), Some(LogLevel::Debug));
        wishes.remove(LogLevel::Debug);
        assert_eq!(wishes.lowest(), Some(LogLevel::Error));
    }
}
