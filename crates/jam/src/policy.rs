//! Whose code a host runs.
//!
//! A jam that runs is part of the program: it can do whatever the process can. So the question is not
//! what it does but who answers for it.

use std::collections::HashSet;

use jam_format::Digest;
use parking_lot::RwLock;

use crate::error::Refusal;

/// Whose jams a receiver runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Those of the program's own packages, and those that were [admitted](crate::Receiver::admit)
    /// by their digests, by code of the program that has checked who signed them.
    #[default]
    Signed,
    /// Those of every host of the rack. Each of them can then do in every process what it can do in
    /// its own.
    AnyPeer,
    /// None.
    Nothing,
}

/// A policy, and what was admitted under it.
#[derive(Default)]
pub(crate) struct Gatekeeper {
    policy: RwLock<Policy>,
    admitted: RwLock<HashSet<Digest>>,
}

impl Gatekeeper {
    pub(crate) fn set(&self, policy: Policy) {
        *self.policy.write() = policy;
    }

    pub(crate) fn admit(&self, digests: impl IntoIterator<Item = Digest>) {
        self.admitted.write().extend(digests);
    }

    pub(crate) fn check(&self, digest: &Digest) -> Result<(), Refusal> {
        let reason = match *self.policy.read() {
            Policy::AnyPeer => return Ok(()),
            Policy::Signed if self.admitted.read().contains(digest) => return Ok(()),
            Policy::Signed => {
                "only code of the program's packages and of signers runs on this host: sign the \
                 package, or set the policy `AnyPeer`"
            }
            Policy::Nothing => "this host runs no jams: its policy is `Nothing`",
        };
        Err(Refusal::Policy { reason: reason.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_admits_what_it_says() {
        let gatekeeper = Gatekeeper::default();
        let (known, unknown) = (Digest::of(b"known"), Digest::of(b"unknown"));
        gatekeeper.admit([known]);
        let admits = |digest| gatekeeper.check(&digest).is_ok();
        assert!(admits(known) && !admits(unknown), "the default is `Signed`");
        gatekeeper.set(Policy::AnyPeer);
        assert!(admits(known) && admits(unknown));
        gatekeeper.set(Policy::Nothing);
        assert!(!admits(known) && !admits(unknown));
    }
}
