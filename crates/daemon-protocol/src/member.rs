//! [`Name`] and [`Role`]: who a member of a rack is, and what it may request.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::DnsName;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The name of a rack, a host or a person: a DNS name in lower case that starts with a letter.
///
/// ```
/// use gossamer_daemon_protocol::Name;
///
/// assert!("node-1.rack".parse::<Name>().is_ok());
/// assert!("10.0.0.1".parse::<Name>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let starts_well = text.starts_with(|first: char| first.is_ascii_lowercase());
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b'_');
        if starts_well && is_lower && text.len() <= 63 && DnsName::try_from(text).is_ok() {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The role of a member, which decides what it may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May run and kill jobs, and read all information.
    Admin,
    /// May read all information, and change nothing.
    Viewer,
    /// A daemon: it answers requests and may send none.
    Host,
    /// May sign packages of code, and call no daemon: its key can be kept offline.
    Signer,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Viewer, Self::Host, Self::Signer];

    /// The role with this word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }

    /// Its word in certificates, messages and arguments.
    pub fn word(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Viewer => "viewer",
            Self::Host => "host",
            Self::Signer => "signer",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A text is not a name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "invalid name {0:?}: use lower-case letters, digits, dots and hyphens, starting with a letter"
)]
pub struct NameError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_names() {
        for good in ["a", "node-1", "node1.rack.example"] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "A", "1a", "a/b", "a b", "-a", "a..b", "a_b", "ä", &"a".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
