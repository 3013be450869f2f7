//! Whose code a host runs.
//!
//! A jam that runs is part of the program: it can do whatever the process can. So the question is not
//! what it does but who answers for it.

use std::collections::HashSet;

use jam_format::Digest;
use parking_lot::RwLock;
use primitive::sync::{AtomicBool, Ordering};

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
    /// None, and no Local Functions either.
    Nothing,
}

/// A policy, and what was admitted under it.
#[derive(Default)]
pub(crate) struct Gatekeeper {
    policy: RwLock<Policy>,
    /// Whether the policy is [`Policy::Nothing`]: what calls of Local Functions look at.
    is_nothing: AtomicBool,
    admitted: RwLock<HashSet<Digest>>,
}

impl Gatekeeper {
    pub(crate) fn set(&self, policy: Policy) {
        let mut now = self.policy.write();
        *now = policy;
        self.is_nothing.store(policy == Policy::Nothing, Ordering::Relaxed);
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
            Policy::Nothing => NOTHING,
        };
        Err(Refusal::Policy { reason: reason.to_owned() })
    }

    /// For a Local Function, which is of the program's packages, so that `Signed` admits it.
    #[inline]
    pub(crate) fn check_local(&self) -> Result<(), Refusal> {
        if self.is_nothing.load(Ordering::Relaxed) {
            return Err(Refusal::Policy { reason: NOTHING.to_owned() });
        }
        Ok(())
    }
}

const NOTHING: &str = "this host runs no jams: its policy is `Nothing`";

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
        assert!(gatekeeper.check_local().is_ok());
        gatekeeper.set(Policy::AnyPeer);
        assert!(admits(known) && admits(unknown));
        gatekeeper.set(Policy::Nothing);
        assert!(!admits(known) && !admits(unknown));
        assert!(gatekeeper.check_local().is_err());
        gatekeeper.set(Policy::Signed);
        assert!(gatekeeper.check_local().is_ok());
    }
}
