//! Why a configuration is refused.

use std::path::Path;

use crate::hold::seal::{BadKey, NoRandomness};

/// Why a configuration is refused. It is refused whole.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The text is not TOML of the right form.
    #[error("{}{line}:{column}: {why}", .path.as_deref().map(|path| format!("{path}:")).unwrap_or_default())]
    Form {
        /// Which file, if it is one.
        path: Option<String>,
        /// Where, counted from 1.
        line: usize,
        /// Where in the line, counted from 1.
        column: usize,
        /// What is wrong there.
        why: String,
    },
    /// A value has the right form and makes no sense.
    #[error("`{field}`: {why}")]
    Value {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A key is no key.
    #[error("`{field}`: {which}")]
    Key {
        /// Which field.
        field: &'static str,
        /// Which key of it.
        which: String,
        /// Why.
        #[source]
        source: BadKey,
    },
    /// What is wrong stands in this file.
    #[error("{path}")]
    InFile {
        /// Which file.
        path: String,
        /// What is wrong.
        #[source]
        source: Box<Self>,
    },
    /// No key could be drawn.
    #[error("no sealing key")]
    Randomness(#[from] NoRandomness),
}

impl ConfigError {
    pub(super) fn of_file(self, file: &Path) -> Self {
        let path = file.display().to_string();
        match self {
            Self::Form {
                line, column, why, ..
            } => Self::Form {
                path: Some(path),
                line,
                column,
                why,
            },
            wrong @ (Self::Value { .. } | Self::Key { .. }) => Self::InFile {
                path,
                source: Box::new(wrong),
            },
            other @ (Self::Read { .. } | Self::InFile { .. } | Self::Randomness(_)) => other,
        }
    }

    /// The same for whoever gave the value as this option of the command line.
    pub(super) fn of_option(self, option: &'static str) -> Self {
        match self {
            Self::Value { why, .. } => Self::Value { field: option, why },
            other => other,
        }
    }
}

pub(super) fn wrong(field: &'static str, why: impl Into<String>) -> ConfigError {
    ConfigError::Value {
        field,
        why: why.into(),
    }
}
