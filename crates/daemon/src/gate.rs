//! [`Gate`]: who is let in, as far as certificates say, by the list of revoked ones as it is now.

use crate::{
    identity::{Identity, IdentityError},
    revocation::{self, REVOKED},
    tls::{self, TlsError},
};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

/// Tells one content of a file from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// Why a list is not used.
#[derive(Debug, Error)]
enum NotUsed {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the list is gone; the last one counts")]
    Gone,
}

/// Makes encrypted connections with members of the rack, unless their certificates are revoked.
pub(crate) struct Gate {
    identity: Identity,
    directory: PathBuf,
    acceptor: TlsAcceptor,
    /// The list as it was last looked at.
    seen: Option<Stamp>,
}

impl Gate {
    /// The gate of the daemon whose identity is in `directory`.
    ///
    /// # Errors
    /// [`TlsError`], if the identity is not usable.
    pub(crate) fn new(identity: Identity, directory: PathBuf) -> Result<Self, TlsError> {
        let acceptor = TlsAcceptor::from(tls::server(&identity)?);
        // Nothing has been seen: the list may have been replaced since the identity was read.
        Ok(Self { identity, directory, acceptor, seen: None })
    }

    /// For the next connection. A new list is read when there is one; if it is of no use, the old
    /// one still counts.
    pub(crate) fn acceptor(&mut self) -> TlsAcceptor {
        let now = stamp(&self.directory);
        if now != self.seen {
            self.seen = now;
            match self.read() {
                Ok(()) => tracing::info!("a new list of revoked certificates counts"),
                Err(error) => tracing::error!(%error, "cannot use {REVOKED}"),
            }
        }
        self.acceptor.clone()
    }

    fn read(&mut self) -> Result<(), NotUsed> {
        let list = revocation::read(&self.directory)?.ok_or(NotUsed::Gone)?;
        let last = self.identity.revoked.replace(list);
        match tls::server(&self.identity) {
            Ok(config) => self.acceptor = TlsAcceptor::from(config),
            Err(error) => {
                self.identity.revoked = last;
                return Err(error.into());
            }
        }
        Ok(())
    }
}

fn stamp(directory: &Path) -> Option<Stamp> {
    let file = fs::metadata(directory.join(REVOKED)).ok()?;
    Some(Stamp { inode: file.ino(), bytes: file.len(), modified: file.modified().ok() })
}
