//! What a backend has of its own towards its server: whom it trusts, the headers and the token it is known by.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use http::{HeaderMap, HeaderValue};

use super::error::UpstreamError;
use super::tls::Tls;

/// Bounds a token. Real ones with many claims reach 8 KiB, beyond which servers refuse the header.
const TOKEN_BYTES_MAX: u64 = 16 << 10;

/// What a backend has of its own. Secrets are masked when it is printed.
#[derive(Debug, Default)]
pub struct Access {
    /// TLS, if the server is reached by it.
    pub tls: Option<Tls>,
    /// Headers that go with every HTTP request, marked as sensitive.
    pub headers: HeaderMap,
    /// Where its token is found. It takes the place of the client's `Authorization`.
    pub bearer: Option<Bearer>,
}

/// Where a token is found. It is read anew for each session, so that a rotated one is taken up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bearer {
    /// In a variable of the environment.
    Env(String),
    /// In a file.
    File(PathBuf),
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum BearerError {
    /// There is no such variable, or it is not text.
    #[error("the variable {name:?} is not set to text")]
    Variable {
        /// Its name.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing is left when white space is taken away.
    #[error("the token is empty")]
    Empty,
    /// It is longer than any token.
    #[error("the token is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// It cannot stand in a header.
    #[error("the token has characters that no header may carry")]
    Characters,
}

/// What a session shows to the server as `Authorization`.
#[derive(Debug, Clone)]
pub(super) struct Credentials {
    /// It, if there is any.
    pub(super) value: Option<HeaderValue>,
    /// It is the backend's own, whatever the caller has.
    pub(super) is_own: bool,
}

impl Access {
    /// Those of a session that is about to be opened for a caller with these.
    ///
    /// # Errors
    /// When the backend should have a token and has none.
    pub(super) async fn credentials(
        &self,
        caller: Option<HeaderValue>,
    ) -> Result<Credentials, UpstreamError> {
        let own = self.authorization().await;
        let own = own.map_err(|error| UpstreamError::OwnCredentials(error.into()))?;
        Ok(Credentials {
            is_own: own.is_some(),
            value: own.or(caller),
        })
    }

    async fn authorization(&self) -> Result<Option<HeaderValue>, BearerError> {
        match &self.bearer {
            None => Ok(None),
            // Nothing is waited for.
            Some(bearer @ Bearer::Env(_)) => bearer.authorization().map(Some),
            Some(bearer @ Bearer::File(path)) => {
                let reading = bearer.clone();
                // A file may be on a slow disk, and this thread has other calls.
                let read = tokio::task::spawn_blocking(move || reading.authorization()).await;
                let lost = |error| BearerError::File {
                    path: path.clone(),
                    source: io::Error::other(error),
                };
                read.map_err(lost)?.map(Some)
            }
        }
    }
}

impl Bearer {
    /// Reads the token now, as the value of `Authorization`.
    ///
    /// # Errors
    /// When it is not there, empty or unfit.
    pub fn authorization(&self) -> Result<HeaderValue, BearerError> {
        let text = match self {
            Self::Env(name) => {
                std::env::var(name).map_err(|_| BearerError::Variable { name: name.clone() })?
            }
            Self::File(path) => {
                let unreadable = |source| BearerError::File {
                    path: path.clone(),
                    source,
                };
                let mut text = String::new();
                File::open(path)
                    .map_err(unreadable)?
                    .take(TOKEN_BYTES_MAX + 1)
                    .read_to_string(&mut text)
                    .map_err(unreadable)?;
                text
            }
        };
        if text.len() as u64 > TOKEN_BYTES_MAX {
            return Err(BearerError::TooLong);
        }
        let token = text.trim();
        if token.is_empty() {
            return Err(BearerError::Empty);
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BearerError::Characters);
        }
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| BearerError::Characters)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(text: &[u8]) -> Result<HeaderValue, BearerError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        Bearer::File(file.path().to_owned()).authorization()
    }

    #[test]
    fn a_token_is_trimmed_and_masked() {
        let value = read(b"  t0ken.a-b\r\n").unwrap();
        assert_eq!(value, "Bearer t0ken.a-b");
        assert!(!format!("{value:?}").contains("t0ken"));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        assert!(matches!(read(b" \n"), Err(BearerError::Empty)));
        assert!(matches!(read(b"a b"), Err(BearerError::Characters)));
        assert!(matches!(read(b"a\nb"), Err(BearerError::Characters)));
        assert!(matches!(read("é".as_bytes()), Err(BearerError::Characters)));
        assert!(matches!(read(&[0xff]), Err(BearerError::File { .. })));
        assert!(matches!(read(&[b'a'; 16_385]), Err(BearerError::TooLong)));
        let absent = Bearer::Env("HOLDFAST_TEST_NO_SUCH_VARIABLE".to_owned());
        assert!(matches!(
            absent.authorization(),
            Err(BearerError::Variable { .. })
        ));
    }
}
