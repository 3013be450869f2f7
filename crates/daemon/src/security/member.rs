//! [`Member`]: a name and a role in a rack, as a certificate states them.

use std::io;
use std::path::PathBuf;

use daemon_protocol::{Name, NameError, Role};
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

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
        let role = Role::of(role).ok_or(IdentityError::NotAMember)?;
        Ok(Self { rack: rack.parse()?, role, name: name.parse()? })
    }
}

/// An identity, or a part of one, cannot be used.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A certificate's name is not one.
    #[error(transparent)]
    Name(#[from] NameError),
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
    fn garbage_is_no_certificate() {
        for garbage in [&b""[..], b"garbage", &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]] {
            let error = Member::of(&CertificateDer::from(garbage)).unwrap_err();
            assert!(matches!(error, IdentityError::NotAMember));
        }
    }
}
