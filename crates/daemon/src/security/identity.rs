//! [`Identity`]: the certificate of a member of a rack with its key, in a directory of its own.
//!
//! | File | Content |
//! |---|---|
//! | `certificate.pem` | the certificate: name, role and rack, signed by the rack's authority |
//! | `key.pem` | its private key, made where it is used and never carried anywhere (mode 0600) |
//! | `ca.pem` | the certificate of the rack's authority |
//! | `signers.pem` | the certificates of the rack's signers; of hosts, not required |
//! | `revoked.pem` | the list of revoked certificates, if the authority has revoked any |
//! | `hosts.toml` | the addresses of the rack's daemons, for members that call them |

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use daemon_protocol::Name;
use rustix::fs::OFlags;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::security::member::{IdentityError, Member};
use crate::security::revocation;

/// Where the daemons of a rack's hosts listen, as `host:port`, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hosts {
    /// The addresses.
    #[serde(default)]
    pub hosts: BTreeMap<Name, String>,
}

/// A member and its credentials, read from its directory.
pub struct Identity {
    /// The member that its certificate names.
    pub member: Member,
    /// Its certificate.
    pub certificate: CertificateDer<'static>,
    /// The certificate's private key.
    pub key: PrivateKeyDer<'static>,
    /// The certificate of the rack's authority.
    pub ca: CertificateDer<'static>,
    /// Which certificates are revoked, if any are.
    pub revoked: Option<CertificateRevocationListDer<'static>>,
    /// The rack's hosts, as far as this member knows.
    pub hosts: Hosts,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads the identity in `directory`.
    ///
    /// # Errors
    /// [`IdentityError`], if a file is missing or malformed, or if other users than its owner can read
    /// the key.
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

/// The port at which a daemon listens if its address names none.
pub const PORT: u16 = 7474;

pub(crate) const CERTIFICATE: &str = "certificate.pem";
pub(crate) const KEY: &str = "key.pem";
pub(crate) const CA: &str = "ca.pem";
pub(crate) const HOSTS: &str = "hosts.toml";

/// The most bytes that are read of a file; the list of all certificates of an authority has the most.
const LARGEST: u64 = 64 << 20;

fn read_pem<T: PemObject>(path: &Path) -> Result<T, IdentityError> {
    // The parser's error may quote the file, which may be a key.
    T::from_pem_slice(&read(path)?)
        .map_err(|_| IdentityError::Content { path: path.to_owned(), reason: "not PEM".into() })
}

pub(crate) fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, IdentityError> {
    toml::from_slice(&read(path)?)
        .map_err(|e| IdentityError::Content { path: path.to_owned(), reason: e.to_string() })
}

/// The content of a file, which is never waited for.
fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    files::read_regular(path, LARGEST, OFlags::empty())
        .map_err(|error| IdentityError::File { path: path.to_owned(), error })
}
