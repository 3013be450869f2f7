//! [`Acceptor`]: accepts connections of members of the rack whose certificates are not revoked.
//!
//! A daemon never replaces its list of revoked certificates by an older one. It keeps the newest list
//! in its state directory, so that this also holds after a restart.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use gossamer_job::SigningAuthority;
use rustix::fs::OFlags;
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use crate::causes::with_causes;
use crate::files;
use crate::quarantine::Quarantine;
use crate::security::identity::Identity;
use crate::security::known_signers::{self, SIGNERS};
use crate::security::member::IdentityError;
use crate::security::revocation::{self, LARGEST_LIST, List, ListError, REVOKED};
use crate::security::tls::{self, TlsError};

/// The newest list that a daemon has seen, in its state directory, as DER.
const NEWEST: &str = "revoked.crl";

/// Distinguishes versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// Why a daemon cannot accept connections.
#[derive(Debug, Error)]
pub enum AcceptorError {
    /// Encryption does not work with this identity.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The list of revoked certificates cannot be used.
    #[error("cannot use the list of revoked certificates {}: {reason}", path.display())]
    Revoked {
        /// The list.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Why a list is not used.
#[derive(Debug, Error)]
enum NotUsed {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    List(#[from] ListError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{REVOKED} was removed")]
    Gone,
    #[error("{offered} is older than {known}, the newest that this daemon has seen")]
    Older { offered: List, known: List },
}

impl NotUsed {
    /// Whether the system could not read the file, perhaps for want of descriptors: the same file may
    /// be readable later. What is in it stays wrong until it is replaced.
    fn is_of_system(&self) -> bool {
        match self {
            Self::Io(error) | Self::Identity(IdentityError::File { error, .. }) => {
                error.raw_os_error().is_some()
            }
            _ => false,
        }
    }
}

/// Makes encrypted connections with members of the rack, unless their certificates are revoked.
pub(crate) struct Acceptor {
    identity: Identity,
    directory: PathBuf,
    /// Where the newest list is kept.
    newest_file: PathBuf,
    /// Quarantines files that a job has put in place of the kept list.
    quarantine: Quarantine,
    /// The newest list, which is in force.
    newest: Option<List>,
    acceptor: TlsAcceptor,
    /// What processes verify signatures by, with the same list.
    signing: Arc<SigningAuthority>,
    /// The versions of the list, and of the file of signers, at the last check.
    seen: [Option<Stamp>; 2],
    /// Why the system could not read the list at the last check, if it could not.
    unread: Option<String>,
}

impl Acceptor {
    /// The acceptor of the daemon whose identity is in `directory`, and whose own files are in `state`.
    ///
    /// # Errors
    /// [`AcceptorError`], if the identity is not usable, or its list of revoked certificates is not from
    /// the rack's authority.
    pub(crate) fn new(
        identity: Identity,
        directory: PathBuf,
        state: &Path,
    ) -> Result<Self, AcceptorError> {
        let path = directory.join(REVOKED);
        let offered = identity.revoked.clone().map(|list| List::verify(list, &identity.ca));
        let offered = offered.transpose().map_err(|error| AcceptorError::Revoked {
            path,
            reason: with_causes(&error).to_string(),
        })?;
        let acceptor = TlsAcceptor::from(tls::server(&identity)?);
        let newest_file = state.join(NEWEST);
        let quarantine = Quarantine::within(state);
        if let Err(error) = quarantine.put_if(&newest_file, |kind| !kind.is_file()) {
            tracing::warn!(path = %newest_file.display(), %error, "cannot quarantine the file");
        }
        let newest = newest_seen(&newest_file, &identity.ca);
        let signing = Arc::new(signing_authority(&identity, &directory));
        let mut acceptor = Self {
            identity,
            directory,
            newest_file,
            quarantine,
            newest,
            acceptor,
            signing,
            seen: [None; 2],
            unread: None,
        };
        match (offered, acceptor.newest.clone()) {
            // Also if it is the same list, whose copy is then intact.
            (Some(offered), known) => match acceptor.check(offered) {
                Ok(list) => acceptor.adopt(list)?,
                Err(error) => {
                    let error = with_causes(&error);
                    tracing::error!(%error, "refused {REVOKED}; using the last loaded list");
                    known.map_or(Ok(()), |known| acceptor.adopt(known))?;
                }
            },
            (None, Some(known)) => {
                tracing::error!("{REVOKED} is missing; using the last loaded list, {known}");
                acceptor.adopt(known)?;
            }
            (None, None) => {}
        }
        // No version yet: the list may have been replaced since the identity was read.
        Ok(acceptor)
    }

    /// The TLS acceptor for the next connection. Loads a new list if there is one; keeps the last loaded
    /// list if the new one is invalid or older.
    pub(crate) fn current(&mut self) -> TlsAcceptor {
        let now = [REVOKED, SIGNERS].map(|name| stamp(&self.directory.join(name)));
        let before = std::mem::replace(&mut self.seen, now);
        if now[1] != before[1] {
            self.renew_signing();
        }
        if now[0] != before[0] || self.unread.is_some() {
            let reported = self.unread.take();
            match self.read() {
                Ok(()) => tracing::info!("loaded a new list of revoked certificates"),
                Err(error) => {
                    let text = with_causes(&error).to_string();
                    if reported.as_ref() != Some(&text) {
                        tracing::error!(
                            error = text,
                            "cannot use {REVOKED}; still using the last loaded list"
                        );
                    }
                    self.unread = error.is_of_system().then_some(text);
                }
            }
        }
        self.acceptor.clone()
    }

    /// The rack's authority, with the certificates of its signers and the list that was in force at the
    /// last call of [`current`](Self::current).
    pub(crate) fn signing(&self) -> Arc<SigningAuthority> {
        self.signing.clone()
    }

    fn read(&mut self) -> Result<(), NotUsed> {
        let list = revocation::read(&self.directory)?.ok_or(NotUsed::Gone)?;
        let list = self.check(List::verify(list, &self.identity.ca)?)?;
        Ok(self.adopt(list)?)
    }

    /// Refuses a list that is older than the newest one.
    fn check(&self, offered: List) -> Result<List, NotUsed> {
        match &self.newest {
            Some(known) if offered.is_older_than(known) => {
                Err(NotUsed::Older { offered, known: known.clone() })
            }
            _ => Ok(offered),
        }
    }

    /// Puts `list` in force, and stores it for the next daemon.
    fn adopt(&mut self, list: List) -> Result<(), TlsError> {
        let last = self.identity.revoked.replace(list.der().clone());
        match tls::server(&self.identity) {
            Ok(config) => {
                self.acceptor = TlsAcceptor::from(config);
                self.renew_signing();
            }
            Err(error) => {
                self.identity.revoked = last;
                return Err(error);
            }
        }
        let is_new = self.newest.as_ref() != Some(&list);
        if is_new && let Err(error) = self.store_newest(&list) {
            // It stays in force until the daemon ends.
            let path = self.newest_file.display();
            tracing::error!(%error, "cannot store the list of revoked certificates in {path}");
        }
        self.newest = Some(list);
        Ok(())
    }

    /// Makes `signing` new if what it is made of has changed.
    fn renew_signing(&mut self) {
        let signing = signing_authority(&self.identity, &self.directory);
        if signing != *self.signing {
            self.signing = Arc::new(signing);
        }
    }

    /// Stores `list` for the next daemon.
    fn store_newest(&self, list: &List) -> io::Result<()> {
        self.quarantine.put_if(&self.newest_file, |kind| !kind.is_file())?;
        files::write(&self.newest_file, list.der(), 0o600)
    }
}

fn signing_authority(identity: &Identity, directory: &Path) -> SigningAuthority {
    let revoked = identity.revoked.as_ref().map(|list| list.to_vec()).unwrap_or_default();
    let signers = known_signers::read(directory).unwrap_or_else(|error| {
        // Processes verify them when they sign.
        tracing::warn!(%error, "cannot read {SIGNERS}");
        Vec::new()
    });
    SigningAuthority { ca: identity.ca.to_vec(), revoked, signers }
}

/// The newest list, stored at `path`, if the authority `ca` has signed it.
fn newest_seen(path: &Path, ca: &CertificateDer<'_>) -> Option<List> {
    let read = match files::read_regular(path, LARGEST_LIST, OFlags::NOFOLLOW) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        read => read.map_err(NotUsed::from),
    };
    let verified = read.and_then(|der| Ok(List::verify(der.into(), ca)?));
    verified
        .map_err(|error| {
            // For example of another rack of the same name, made earlier.
            let error = with_causes(&error);
            tracing::warn!(%error, "ignoring the list in {}", path.display());
        })
        .ok()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    Some(Stamp { inode: file.ino(), bytes: file.len(), modified: file.modified().ok() })
}

#[cfg(test)]
mod tests;
