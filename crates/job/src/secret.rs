//! The secrets of a job, [`Secret`] and [`SecretPem`]: `Debug` shows neither, and no error quotes
//! one.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, de};
use thiserror::Error;
use transport_api::HostId;

/// What only the processes of a job know. `Debug` does not show it.
///
/// ```
/// use gossamer_job::Secret;
///
/// let secret = Secret::new([7; 32]);
/// let text = secret.to_hex();
/// assert_eq!(text.len(), 64);
/// assert_eq!(text.parse::<Secret>()?, secret);
/// assert!(!format!("{secret:?}").contains("07"));
/// # Ok::<(), gossamer_job::SecretError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The secret with these bytes, which must come from a cryptographic source.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret's bytes.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The secret as 64 hexadecimal digits, for the environment of the job.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The secret by which the processes of one machine, of which `first` is the first, find each
    /// other. Each machine has its own.
    pub fn of_neighbours(&self, first: HostId) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("gossamer, 2026: neighbours");
        hasher.update(&self.0).update(&first.0.to_le_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// The text is not a secret. The error does not quote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("invalid secret: expected 64 hexadecimal digits, as `gossamer secret` prints them")]
pub struct SecretError;

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(SecretError);
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| SecretError)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'_, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A private key in PEM, which `Debug` does not show.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretPem(pub String);

impl fmt::Debug for SecretPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretPem(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_a_secret_is_refused_and_not_shown() {
        for text in ["", "abc", &"g".repeat(64), &"é".repeat(32), &"ab".repeat(33)] {
            let error = text.parse::<Secret>().unwrap_err().to_string();
            assert!(error.contains("gossamer secret"), "{error}");
            assert!(text.len() < 4 || !error.contains(text), "{error}");
        }
    }
}
