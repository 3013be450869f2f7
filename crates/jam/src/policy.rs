//! Whose code a host runs.
//!
//! A jam that runs is part of the program: it can do whatever the process can. So the question is not
//! what it does but who answers for it.
//!
//! This crate verifies no certificates: the program that starts the process knows the rack's authority, and
//! gives the receiver a [`Verifier`].

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::Arc;

use jam_format::{Digest, Machine, Proof};
use parking_lot::RwLock;
use primitive::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

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
    /// Those of every host of the rack, which then controls this process as it does its own. Where
    /// data is not authenticated, as over RDMA, this is the same as `Signed`: otherwise anyone who can
    /// forge packets could send code.
    AnyPeer,
    /// None, and no Local Functions either.
    Nothing,
}

/// Who vouches for the code of a jam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program: it is of a package that the program was built with.
    Program,
    /// The program, which has [admitted](crate::Receiver::admit) its digest.
    Admitted,
    /// A signer of the rack, by name.
    Signer(Arc<str>),
    /// The host that sent it, under the policy [`Policy::AnyPeer`], which admits code without looking at
    /// its signature, if it has one.
    Peer,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("a package of the program"),
            Self::Admitted => f.write_str("admitted by the program"),
            Self::Signer(name) => write!(f, "signed by {name}"),
            Self::Peer => f.write_str("sent by a host of the rack, no signature checked"),
        }
    }
}

/// Verifies signatures of packages.
pub trait Verifier: Send + Sync {
    /// The name of the signer of the rack whose signature this is.
    ///
    /// # Errors
    /// The reason, which the sender of the code gets: [`Refusal::Policy`] if no signer of the rack has
    /// made the signature, [`Refusal::NotNow`] if it was not verified and may be accepted later. The
    /// first is remembered for a while.
    fn verify(&self, proof: &Proof<'_>) -> Result<String, Refusal>;

    /// As [`verify`](Self::verify), for a package or a ried that this process holds because an earlier
    /// verifier accepted it. The process drops what is refused here, for whatever reason, and holds a
    /// bounded amount: a verifier that limits how much it verifies does not limit this.
    ///
    /// # Errors
    /// Why it is dropped.
    fn verify_held(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        self.verify(proof)
    }
}

/// How a verifier is asked: [`Verifier::verify`] or [`Verifier::verify_held`].
type Verify = fn(&(dyn Verifier + 'static), &Proof<'_>) -> Result<String, Refusal>;

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

/// The policy of the process, and what was admitted, in whatever part of it.
pub(crate) struct Gatekeeper {
    policy: RwLock<Policy>,
    /// The bit of the policy: what calls of linked jams and of Local Functions look at.
    bit: AtomicU32,
    /// Whether anyone on the network can forge what arrives.
    is_unauthenticated: AtomicBool,
    admitted: RwLock<HashMap<Digest, Origin>>,
    verifier: RwLock<Option<Arc<dyn Verifier>>>,
    /// Changes of any of these.
    changes: AtomicU64,
}

/// The policy of one part of the process, such as a mailbox, or of the process itself.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'k> {
    keeper: &'k Gatekeeper,
    /// `None` for that of the process.
    policy: Option<Policy>,
}

impl Gate<'_> {
    /// Who answers for the jam with this digest.
    pub(crate) fn check(&self, digest: &Digest) -> Result<Origin, Refusal> {
        let policy = self.policy.unwrap_or_else(|| *self.keeper.policy.read());
        match (policy, self.keeper.origin(digest)) {
            (Policy::Nothing, _) => Err(not_admitted(NOTHING)),
            (_, Some(origin)) => Ok(origin),
            (Policy::AnyPeer, None) if self.keeper.is_authenticated() => Ok(Origin::Peer),
            (Policy::AnyPeer, None) => Err(not_admitted(UNAUTHENTICATED)),
            (Policy::Signed, None) => Err(not_admitted(UNSIGNED)),
        }
    }

    /// As [`check`](Self::check), of a jam that came with the bytes of a proof; none if there are none.
    pub(crate) fn check_with(&self, digest: &Digest, proof: &[u8]) -> Result<Origin, Refusal> {
        self.check_by(digest, proof, <dyn Verifier>::verify)
    }

    /// As [`check_with`](Self::check_with), of code that the process holds, with the proof that admitted
    /// it.
    pub(crate) fn check_held(&self, digest: &Digest, proof: &[u8]) -> Result<Origin, Refusal> {
        self.check_by(digest, proof, <dyn Verifier>::verify_held)
    }

    fn check_by(&self, digest: &Digest, proof: &[u8], verify: Verify) -> Result<Origin, Refusal> {
        let refusal = match self.check(digest) {
            Err(refusal) if !proof.is_empty() && !self.is_nothing() => refusal,
            checked => return checked,
        };
        let proof = Proof::parse(proof).map_err(|error| not_admitted(error.to_string()))?;
        // Before any signature is looked at: a proof of other jams costs nothing, nor does one of code
        // for other machines, which it would not admit here.
        let mut machines = proof.machines_of(digest).peekable();
        let Some(&first) = machines.peek() else { return Err(refusal) };
        if !machines.any(|machine| Machine::CURRENT == Some(machine)) {
            return Err(Refusal::machine(first));
        }
        self.keeper.admit_by(&proof, verify)?;
        self.check(digest)
    }

    /// Admits what a signed package consists of, if a signer of the rack has signed it. Returns the
    /// signer's name.
    pub(crate) fn admit_proven(&self, proof: &Proof<'_>) -> Result<Arc<str>, Refusal> {
        if self.is_nothing() {
            return Err(not_admitted(NOTHING));
        }
        self.keeper.admit_proven(proof)
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
        match self.keeper.origin(digest) {
            Some(_) => Policy::AnyPeer.bit() | Policy::Signed.bit(),
            None if self.keeper.is_authenticated() => Policy::AnyPeer.bit(),
            None => 0,
        }
    }

    /// For a Local Function, which is of the program's packages, so that `Signed` admits it.
    #[inline]
    pub(crate) fn check_local(&self) -> Result<(), Refusal> {
        if self.is_nothing() {
            return Err(not_admitted(NOTHING));
        }
        Ok(())
    }

    #[inline(always)]
    fn is_nothing(&self) -> bool {
        self.bit() == Policy::Nothing.bit()
    }
}

impl Default for Gatekeeper {
    fn default() -> Self {
        let policy = Policy::default();
        Gatekeeper {
            policy: RwLock::new(policy),
            bit: AtomicU32::new(policy.bit()),
            is_unauthenticated: AtomicBool::new(false),
            admitted: RwLock::default(),
            verifier: RwLock::default(),
            changes: AtomicU64::new(0),
        }
    }
}

impl Gatekeeper {
    pub(crate) fn set(&self, policy: Policy) {
        let mut now = self.policy.write();
        let before = mem::replace(&mut *now, policy);
        self.bit.store(policy.bit(), Ordering::Relaxed);
        if before != policy {
            self.note_change();
        }
    }

    /// The gate of a part of the process that has this policy; of the process if that is `None`.
    #[inline(always)]
    pub(crate) fn gate(&self, policy: Option<Policy>) -> Gate<'_> {
        Gate { keeper: self, policy }
    }

    /// Has `verifier` verify from now on, and forgets what signatures have admitted.
    pub(crate) fn set_verifier(&self, verifier: Arc<dyn Verifier>) {
        let mut now = self.verifier.write();
        *now = Some(verifier);
        // With the lock, so that nothing is admitted behind this by the one before.
        self.admitted.write().retain(|_, origin| !matches!(origin, Origin::Signer(_)));
        self.note_change();
    }

    pub(crate) fn set_unauthenticated(&self) {
        self.is_unauthenticated.store(true, Ordering::Relaxed);
        self.note_change();
    }

    /// How often policy, verifier or what is admitted has changed: while this is the same, so is the answer
    /// to a question, as far as it does not depend on the time.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Called after the change, so that an answer from before it carries an older number.
    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn is_authenticated(&self) -> bool {
        !self.is_unauthenticated.load(Ordering::Relaxed)
    }

    pub(crate) fn admit(&self, digests: impl IntoIterator<Item = Digest>, origin: &Origin) {
        let mut admitted = self.admitted.write();
        let before = admitted.len();
        for digest in digests {
            admitted.entry(digest).or_insert_with(|| origin.clone());
        }
        if admitted.len() > before {
            self.note_change();
        }
    }

    fn origin(&self, digest: &Digest) -> Option<Origin> {
        self.admitted.read().get(digest).cloned()
    }

    /// Admits what a signed package consists of, whatever the policy. Returns the signer's name.
    fn admit_proven(&self, proof: &Proof<'_>) -> Result<Arc<str>, Refusal> {
        self.admit_by(proof, <dyn Verifier>::verify)
    }

    /// As [`Gate::admit_proven`], of a package that the process holds, whatever the policy.
    pub(crate) fn admit_held(&self, proof: &Proof<'_>) -> Result<Arc<str>, Refusal> {
        self.admit_by(proof, <dyn Verifier>::verify_held)
    }

    fn admit_by(&self, proof: &Proof<'_>, verify: Verify) -> Result<Arc<str>, Refusal> {
        let Some(verifier) = self.verifier.read().clone() else {
            return Err(not_admitted(NO_VERIFIER));
        };
        let signer: Arc<str> = verify(&*verifier, proof)?.into();
        let of_machine =
            proof.table().entries().iter().filter(|e| Machine::CURRENT == Some(e.machine));
        if self.admitted.read().len() + of_machine.clone().count() > MAX_SIGNED {
            return Err(not_admitted(format!("{MAX_SIGNED} jams are admitted, the limit")));
        }
        let now = self.verifier.read();
        if !now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &verifier)) {
            return Err(Refusal::NotNow { reason: CHANGED.to_owned() });
        }
        self.admit(of_machine.map(|entry| entry.digest), &Origin::Signer(signer.clone()));
        Ok(signer)
    }
}

fn not_admitted(reason: impl Into<String>) -> Refusal {
    Refusal::Policy { reason: reason.into() }
}

const NOTHING: &str = "this host runs no jams: its policy is `Nothing`";
const UNSIGNED: &str = "this host runs only the program's own packages and signed ones: sign the package \
                        (`gossamer jam sign`), admit its digests (`Receiver::admit`), or set the \
                        policy `AnyPeer`";
const UNAUTHENTICATED: &str = "data of this rack is not authenticated, so code needs a signature in spite of \
                               the policy `AnyPeer`: sign the package (`gossamer jam sign`)";
const CHANGED: &str = "the rack's list of revoked certificates has just changed: send it again";
const NO_VERIFIER: &str = "this process knows no signers: no daemon of a rack has started it";

#[cfg(test)]
mod tests;
