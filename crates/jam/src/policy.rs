//! Whose code a host runs.
//!
//! A jam that runs is part of the program: it can do whatever the process can. So the question is not
//! what it does but who answers for it.
//!
//! This crate verifies no certificates: whoever starts the process knows the rack's authority, and
//! gives the receiver a [`Verifier`].

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use jam_format::{Digest, Machine, Proof};
use parking_lot::RwLock;
use primitive::sync::{AtomicBool, Ordering};

use crate::error::Refusal;

/// Jams that are admitted because of signatures, at most: a process that is sent more packages refuses
/// them.
const MAX_SIGNED: usize = 1 << 16;

/// Whose jams a receiver runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Those of the program's own packages, those of packages that a signer of the rack has signed,
    /// and those that were [admitted](crate::Receiver::admit) by their digests.
    #[default]
    Signed,
    /// Those of every host of the rack. Each of them can then do in every process what it can do in
    /// its own. Where data is not authenticated, as over RDMA, this is the same as `Signed`: anyone
    /// who can forge packets could send code there.
    AnyPeer,
    /// None, and no Local Functions either.
    Nothing,
}

/// Who answers for the code of a jam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program: it is of a package that the program was built with.
    Program,
    /// Code of the program that has [admitted](crate::Receiver::admit) its digest.
    Admitted,
    /// A signer of the rack, by name.
    Signer(Arc<str>),
    /// The host that sent it, under the policy [`Policy::AnyPeer`].
    Peer,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("a package of the program"),
            Self::Admitted => f.write_str("admitted by the program"),
            Self::Signer(name) => write!(f, "signed by {name}"),
            Self::Peer => f.write_str("sent by a host of the rack, unsigned"),
        }
    }
}

/// Verifies signatures of packages.
pub trait Verifier: Send + Sync {
    /// The name of the signer of the rack whose signature this is.
    ///
    /// # Errors
    /// Why it is none, for the sender of the code.
    fn verify(&self, proof: &Proof<'_>) -> Result<String, String>;
}

/// A policy, and what was admitted under it.
#[derive(Default)]
pub(crate) struct Gatekeeper {
    policy: RwLock<Policy>,
    /// Whether the policy is [`Policy::Nothing`]: what calls of Local Functions look at.
    is_nothing: AtomicBool,
    /// Whether anyone on the network can forge what arrives.
    is_unauthenticated: AtomicBool,
    admitted: RwLock<HashMap<Digest, Origin>>,
    verifier: RwLock<Option<Arc<dyn Verifier>>>,
}

impl Gatekeeper {
    pub(crate) fn set(&self, policy: Policy) {
        let mut now = self.policy.write();
        *now = policy;
        self.is_nothing.store(policy == Policy::Nothing, Ordering::Relaxed);
    }

    /// Has `verifier` verify from now on, and forgets what signatures have admitted.
    pub(crate) fn set_verifier(&self, verifier: Arc<dyn Verifier>) {
        let mut now = self.verifier.write();
        *now = Some(verifier);
        // With the lock, so that nothing is admitted behind this by the one before.
        self.admitted.write().retain(|_, origin| !matches!(origin, Origin::Signer(_)));
    }

    pub(crate) fn set_unauthenticated(&self) {
        self.is_unauthenticated.store(true, Ordering::Relaxed);
    }

    pub(crate) fn admit(&self, digests: impl IntoIterator<Item = Digest>, origin: &Origin) {
        let mut admitted = self.admitted.write();
        for digest in digests {
            admitted.entry(digest).or_insert_with(|| origin.clone());
        }
    }

    /// Who answers for the jam with this digest.
    pub(crate) fn check(&self, digest: &Digest) -> Result<Origin, Refusal> {
        let policy = *self.policy.read();
        let needs_signature = |reason: &str| Err(Refusal::Policy { reason: reason.to_owned() });
        match (policy, self.admitted.read().get(digest)) {
            (Policy::Nothing, _) => needs_signature(NOTHING),
            (_, Some(origin)) => Ok(origin.clone()),
            (Policy::AnyPeer, None) if !self.is_unauthenticated.load(Ordering::Relaxed) => {
                Ok(Origin::Peer)
            }
            (Policy::AnyPeer, None) => needs_signature(UNAUTHENTICATED),
            (Policy::Signed, None) => needs_signature(UNSIGNED),
        }
    }

    /// As [`check`](Self::check), of a jam that came with the bytes of a proof; none if there are none.
    pub(crate) fn check_with(&self, digest: &Digest, proof: &[u8]) -> Result<Origin, Refusal> {
        let refusal = match self.check(digest) {
            Err(refusal) if !proof.is_empty() && !self.is_nothing.load(Ordering::Relaxed) => {
                refusal
            }
            checked => return checked,
        };
        let proof = Proof::parse(proof).map_err(|error| not_admitted(error.to_string()))?;
        // Before any signature is looked at: a proof of other jams costs nothing.
        if !proof.covers(digest) {
            return Err(refusal);
        }
        self.admit_proven(&proof)?;
        self.check(digest)
    }

    /// Admits what a signed package consists of, if a signer of the rack has signed it. Returns the
    /// signer's name.
    pub(crate) fn admit_proven(&self, proof: &Proof<'_>) -> Result<Arc<str>, Refusal> {
        if self.is_nothing.load(Ordering::Relaxed) {
            return Err(not_admitted(NOTHING.to_owned()));
        }
        let Some(verifier) = self.verifier.read().clone() else {
            return Err(not_admitted(NO_VERIFIER.to_owned()));
        };
        let signer: Arc<str> = verifier.verify(proof).map_err(not_admitted)?.into();
        let of_machine =
            proof.table().entries().iter().filter(|e| Machine::CURRENT == Some(e.machine));
        if self.admitted.read().len() + of_machine.clone().count() > MAX_SIGNED {
            return Err(not_admitted(format!("{MAX_SIGNED} jams are admitted, the limit")));
        }
        let now = self.verifier.read();
        if !now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &verifier)) {
            let reason = "the rack's list of revoked certificates has just changed: send it again";
            return Err(not_admitted(reason.to_owned()));
        }
        self.admit(of_machine.map(|entry| entry.digest), &Origin::Signer(signer.clone()));
        Ok(signer)
    }

    /// For a Local Function, which is of the program's packages, so that `Signed` admits it.
    #[inline]
    pub(crate) fn check_local(&self) -> Result<(), Refusal> {
        if self.is_nothing.load(Ordering::Relaxed) {
            return Err(not_admitted(NOTHING.to_owned()));
        }
        Ok(())
    }
}

fn not_admitted(reason: String) -> Refusal {
    Refusal::Policy { reason }
}

const NOTHING: &str = "this host runs no jams: its policy is `Nothing`";
const UNSIGNED: &str = "only code of the program's packages and of signers runs on this host: sign the \
                        package (`gossamer jam sign`), or set the policy `AnyPeer`";
const UNAUTHENTICATED: &str = "data of this rack is not authenticated, so code needs a signature in spite of \
                               the policy `AnyPeer`: sign the package (`gossamer jam sign`)";
const NO_VERIFIER: &str = "this process knows no signers: no daemon of a rack has started it";

#[cfg(test)]
mod tests;
