//! Who somebody is in a rack: a name, a role and a certificate that says so, kept in a directory
//! of their own.
//!
//! | File | What it is |
//! |---|---|
//! | `certificate.pem` | the certificate: name, role and rack, signed by the rack's authority |
//! | `key.pem` | its private key, made where it is used and never carried anywhere (mode 0600) |
//! | `ca.pem` | the certificate of the rack's authority |
//! | `revoked.pem` | which certificates the authority has taken back, if it has any |
//! | `hosts.toml` | where the daemons of the rack's hosts listen, for those who call them |

use crate::{files, security::revocation};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, DnsName, PrivateKeyDer,
    pem::{self, PemObject},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
};
use thiserror::Error;
use x509_parser::{extensions::GeneralName, prelude::FromDer, prelude::X509Certificate};

/// The name of a rack, a host or a person: a DNS name in lower case that starts with a letter.
///
/// ```
/// use gossamer_daemon::security::identity::Name;
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

/// What a certificate lets its holder do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May run and kill jobs, and look at everything.
    Admin,
    /// May look at everything, and change nothing.
    Viewer,
    /// Is a daemon: is called, and may call nobody.
    Host,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Viewer => "viewer",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What the certificate of a member of a rack says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The rack.
    pub rack: Name,
    /// What its holder may do.
    pub role: Role,
    /// Its holder.
    pub name: Name,
}

impl Member {
    /// As it stands in the certificate: a URI among the subject's alternative names.
    pub(crate) fn uri(&self) -> String {
        format!("gossamer:{}/{}/{}", self.rack, self.role, self.name)
    }

    /// What `certificate` says. That it is genuine is not checked here.
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
        // Two statements about one holder are none.
        let (Some(words), None) = (uris.next(), uris.next()) else {
            return Err(IdentityError::NotAMember);
        };
        let [rack, role, name] = words.split('/').collect::<Vec<_>>()[..] else {
            return Err(IdentityError::NotAMember);
        };
        let role = [Role::Admin, Role::Viewer, Role::Host].into_iter().find(|r| r.word() == role);
        let role = role.ok_or(IdentityError::NotAMember)?;
        Ok(Self { rack: rack.parse()?, role, name: name.parse()? })
    }
}

/// Where the daemons of a rack's hosts listen, as `host:port`, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// The addresses.
    #[serde(default)]
    pub hosts: BTreeMap<Name, String>,
}

/// A member with its credentials, as its directory holds them.
pub struct Identity {
    /// What its certificate says.
    pub member: Member,
    /// Its certificate.
    pub certificate: CertificateDer<'static>,
    /// The certificate's private key.
    pub key: PrivateKeyDer<'static>,
    /// The certificate of the rack's authority.
    pub ca: CertificateDer<'static>,
    /// Which certificates are revoked, if any are.
    pub revoked: Option<CertificateRevocationListDer<'static>>,
    /// The rack's hosts, as far as this member was told.
    pub hosts: Hosts,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("member", &self.member).finish_non_exhaustive()
    }
}

/// Why there is no such identity.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A name is none.
    #[error("{0:?} is no name: use lower-case letters, digits, dots and hyphens, a letter first")]
    Name(String),
    /// A certificate does not say who its holder is.
    #[error("the certificate is not that of a member of a rack")]
    NotAMember,
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A file holds something else.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl Identity {
    /// Reads the identity in `directory`.
    ///
    /// # Errors
    /// [`IdentityError`], if a file is missing, holds something else, or the key can be read by
    /// others than its owner.
    pub fn load(directory: &Path) -> Result<Self, IdentityError> {
        let certificate = read_pem(&directory.join(CERTIFICATE))?;
        let key_file = directory.join(KEY);
        files::only_for_owner(&key_file)
            .map_err(|error| IdentityError::File { path: key_file.clone(), error })?;
        let hosts = directory.join(HOSTS);
        Ok(Self {
            member: Member::of(&certificate)?,
            certificate,
            key: read_pem(&key_file)?,
            ca: read_pem(&directory.join(CA))?,
            revoked: revocation::read(directory)?,
            hosts: if hosts.exists() { read_toml(&hosts)? } else { Hosts::default() },
        })
    }
}

pub(crate) const CERTIFICATE: &str = "certificate.pem";
pub(crate) const KEY: &str = "key.pem";
pub(crate) const CA: &str = "ca.pem";
pub(crate) const HOSTS: &str = "hosts.toml";

fn read_pem<T: PemObject>(path: &Path) -> Result<T, IdentityError> {
    T::from_pem_file(path).map_err(|error| match error {
        pem::Error::Io(error) => IdentityError::File { path: path.to_owned(), error },
        // What the parser says may quote the file, and the file may be a key.
        _ => IdentityError::Content { path: path.to_owned(), reason: "it is not as PEM".into() },
    })
}

pub(crate) fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, IdentityError> {
    let file = |error| IdentityError::File { path: path.to_owned(), error };
    let text = std::fs::read_to_string(path).map_err(file)?;
    toml::from_str(&text)
        .map_err(|e| IdentityError::Content { path: path.to_owned(), reason: e.to_string() })
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
