//! [`Member`]: a name and a role in a rack, as a certificate states them.

use std::path::PathBuf;
use std::str::FromStr;
use std::{fmt, io};

use rustls::pki_types::{CertificateDer, DnsName};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The name of a rack, a host or a person: a DNS name in lower case that starts with a letter.
///
/// ```
/// use gossamer_daemon::security::member::Name;
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
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let starts_well = text.starts_with(|first: char| first.is_ascii_lowercase());
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b'_');
        if starts_well && is_lower && text.len() <= 63 && DnsName::try_from(text).is_ok() {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdentityError::Name(text.chars().take(80).collect()))
        }
    }
}

impl TryFrom<String> for Name {
    type Error = IdentityError;

    fn try_from(text: String) -> Result<Self, IdentityError> {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
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
    const ALL: [Self; 4] = [Self::Admin, Self::Viewer, Self::Host, Self::Signer];
}

impl Role {
    fn word(self) -> &'static str {
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

/// A member of a rack, as its certificate names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The rack.
    pub rack: Name,
    /// The role of the holder.
    pub role: Role,
    /// The name of the holder.
    pub name: Name,
}

impl Member {
    /// Its form in a certificate: a URI among the subject's alternative names.
    pub(crate) fn uri(&self) -> String {
        format!("gossamer:{}/{}/{}", self.rack, self.role, self.name)
    }

    /// The member that `certificate` names. Does not check that the certificate is genuine.
    ///
    /// # Errors
    /// [`IdentityError::NotAMember`], if it is not the certificate of a member of a rack.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, IdentityError> {
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|_| IdentityError::NotAMember)?;
        let names = parsed.subject_alternative_name().map_err(|_| IdentityError::NotAMember)?;
        let mut uris = names.iter().flat_map(|names| &names.value.general_names).filter_map(
            |name| match name {
                GeneralName::URI(uri) => uri.strip_prefix("gossamer:"),
                _ => None,
            },
        );
        // A certificate with two members is refused.
        let (Some(words), None) = (uris.next(), uris.next()) else {
            return Err(IdentityError::NotAMember);
        };
        let [rack, role, name] = words.split('/').collect::<Vec<_>>()[..] else {
            return Err(IdentityError::NotAMember);
        };
        let role = Role::ALL.into_iter().find(|known| known.word() == role);
        let role = role.ok_or(IdentityError::NotAMember)?;
        Ok(Self { rack: rack.parse()?, role, name: name.parse()? })
    }
}

/// An identity, or a part of one, cannot be used.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The text is not a name.
    #[error(
        "invalid name {0:?}: use lower-case letters, digits, dots and hyphens, starting with a letter"
    )]
    Name(String),
    /// A certificate does not name a member.
    #[error("the certificate does not name a member of a rack")]
    NotAMember,
    /// A file could not be read or written.
    #[error("cannot access {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// A file has other content than expected.
    #[error("invalid {}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

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

    #[test]
    fn garbage_is_no_certificate() {
        for garbage in [&b""[..], b"garbage", &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]] {
            let error = Member::of(&CertificateDer::from(garbage)).unwrap_err();
            assert!(matches!(error, IdentityError::NotAMember));
        }
    }
}
