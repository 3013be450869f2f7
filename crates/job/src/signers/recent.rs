//! [`Recent`]: what a [`Signers`](super::Signers) has verified lately, and how often that failed.

use std::time::{Duration, Instant};

use super::{MAX_FAILURES, MAX_KNOWN_SIGNERS};

/// What has been verified lately.
#[derive(Default)]
pub(super) struct Recent {
    /// Certificates of signers that the list does not revoke, the last used one last.
    pub(super) known: Vec<Box<[u8]>>,
    /// Certificates that the list revokes, with the names in them, in the order in which they came.
    revoked: Vec<(Box<[u8]>, String)>,
    /// When the current second began, and the failures in it.
    pub(super) since: Option<Instant>,
    pub(super) failures: u32,
}

impl Recent {
    pub(super) fn knows(&self, certificate: &[u8]) -> bool {
        self.known.iter().any(|known| **known == *certificate)
    }

    /// Remembers the certificate of a signer that is verified and not revoked.
    pub(super) fn keep(&mut self, certificate: &[u8]) {
        match self.known.iter().position(|known| **known == *certificate) {
            Some(index) => self.known[index..].rotate_left(1),
            None => {
                if self.known.len() >= MAX_KNOWN_SIGNERS {
                    self.known.remove(0);
                }
                self.known.push(certificate.into());
            }
        }
    }

    /// The name in this certificate, if it was found revoked.
    pub(super) fn revoked_name(&self, certificate: &[u8]) -> Option<&str> {
        let found = self.revoked.iter().find(|(revoked, _)| **revoked == *certificate);
        found.map(|(_, name)| &**name)
    }

    /// Remembers a certificate that the authority has signed and the list revokes.
    pub(super) fn keep_revoked(&mut self, certificate: &[u8], name: &str) {
        if self.revoked_name(certificate).is_some() {
            return;
        }
        if self.revoked.len() >= MAX_KNOWN_SIGNERS {
            self.revoked.remove(0);
        }
        self.revoked.push((certificate.into(), name.to_owned()));
    }

    /// Whether one more failure is allowed in this second.
    pub(super) fn may_fail(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            (self.since, self.failures) = (Some(now), 0);
        }
        self.failures < MAX_FAILURES
    }
}
