//! Whose code a host runs.
//!
//! A jam that runs is part of the program: it can do whatever the process can. So the question is not
//! what it does but who answers for it.

use std::collections::HashSet;

use jam_format::Digest;
use parking_lot::RwLock;
use primitive::sync::{AtomicU32, Ordering};

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

/// Under which policies a jam runs: bits that are compared with [`Policy::bit`].
pub(crate) type Admitted = u32;

impl Policy {
    /// The bit that a jam must have to run under this policy; none for [`Policy::Nothing`].
    #[inline(always)]
    pub(crate) const fn bit(self) -> Admitted {
        match self {
            Policy::Nothing => 0,
            Policy::Signed => 1,
            Policy::AnyPeer => 2,
        }
    }
}

/// The policy of the process, and what was admitted under [`Policy::Signed`], in whatever part of it.
pub(crate) struct Gatekeeper {
    policy: RwLock<Policy>,
    /// The bit of the policy: what calls of linked jams and of Local Functions look at.
    bit: AtomicU32,
    admitted: RwLock<HashSet<Digest>>,
}

/// The policy of one part of the process, such as a mailbox, or of the process itself.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'k> {
    keeper: &'k Gatekeeper,
    /// `None` for that of the process.
    policy: Option<Policy>,
}

impl Gate<'_> {
    /// Whether a jam of this digest runs here.
    pub(crate) fn check(&self, digest: &Digest) -> Result<(), Refusal> {
        let policy = self.policy.unwrap_or_else(|| *self.keeper.policy.read());
        let reason = match policy {
            Policy::AnyPeer => return Ok(()),
            Policy::Signed if self.keeper.is_admitted(digest) => return Ok(()),
            Policy::Signed => {
                "only code of the program's packages and of signers runs on this host: sign the \
                 package, or set the policy `AnyPeer`"
            }
            Policy::Nothing => NOTHING,
        };
        Err(Refusal::Policy { reason: reason.to_owned() })
    }

    /// The bit that a linked jam must have to run here.
    #[inline(always)]
    pub(crate) fn bit(&self) -> Admitted {
        match self.policy {
            Some(policy) => policy.bit(),
            None => self.keeper.bit.load(Ordering::Relaxed),
        }
    }

    /// The bits of a jam.
    pub(crate) fn bits_of(&self, digest: &Digest) -> Admitted {
        let signed = if self.keeper.is_admitted(digest) { Policy::Signed.bit() } else { 0 };
        Policy::AnyPeer.bit() | signed
    }

    /// For a Local Function, which is of the program's packages, so that `Signed` admits it.
    #[inline]
    pub(crate) fn check_local(&self) -> Result<(), Refusal> {
        if self.bit() == Policy::Nothing.bit() {
            return Err(Refusal::Policy { reason: NOTHING.to_owned() });
        }
        Ok(())
    }
}

impl Default for Gatekeeper {
    fn default() -> Self {
        let policy = Policy::default();
        Gatekeeper {
            policy: RwLock::new(policy),
            bit: AtomicU32::new(policy.bit()),
            admitted: RwLock::default(),
        }
    }
}

impl Gatekeeper {
    pub(crate) fn set(&self, policy: Policy) {
        let mut now = self.policy.write();
        *now = policy;
        self.bit.store(policy.bit(), Ordering::Relaxed);
    }

    /// The gate of a part of the process that has this policy; of the process if that is `None`.
    #[inline(always)]
    pub(crate) fn gate(&self, policy: Option<Policy>) -> Gate<'_> {
        Gate { keeper: self, policy }
    }

    fn is_admitted(&self, digest: &Digest) -> bool {
        self.admitted.read().contains(digest)
    }

    pub(crate) fn admit(&self, digests: impl IntoIterator<Item = Digest>) {
        self.admitted.write().extend(digests);
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
        let admits = |digest| gatekeeper.gate(None).check(&digest).is_ok();
        assert!(admits(known) && !admits(unknown), "the default is `Signed`");
        assert!(gatekeeper.gate(None).check_local().is_ok());
        gatekeeper.set(Policy::AnyPeer);
        assert!(admits(known) && admits(unknown));
        gatekeeper.set(Policy::Nothing);
        assert!(!admits(known) && !admits(unknown));
        assert!(gatekeeper.gate(None).check_local().is_err());
        gatekeeper.set(Policy::Signed);
        assert!(gatekeeper.gate(None).check_local().is_ok());
    }

    #[test]
    fn a_part_of_the_process_has_a_policy_of_its_own() {
        let gatekeeper = Gatekeeper::default();
        let (known, unknown) = (Digest::of(b"known"), Digest::of(b"unknown"));
        gatekeeper.admit([known]);
        for (policy, runs) in [
            (Policy::Signed, [true, false]),
            (Policy::AnyPeer, [true, true]),
            (Policy::Nothing, [false, false]),
        ] {
            let gate = gatekeeper.gate(Some(policy));
            assert_eq!([known, unknown].map(|digest| gate.check(&digest).is_ok()), runs);
            // Linked jams are compared by bits.
            assert_eq!(
                [known, unknown].map(|digest| gate.bits_of(&digest) & gate.bit() != 0),
                runs
            );
            assert_eq!(gate.check_local().is_ok(), policy != Policy::Nothing);
        }
        assert_eq!(gatekeeper.gate(None).bit(), Policy::Signed.bit(), "the process keeps its own");
    }
}
