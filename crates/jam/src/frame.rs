//! From bytes that a peer sent to code that may run, a type for each step:
//!
//! ```text
//!   Frame        bytes, and the digest that the sender claims
//!     parse      every range and name is inside, or an error
//!   Parsed
//!     verify     it is for this machine, the digest is that of the bytes, the policy admits it
//!   Verified
//!     link       imports resolved, copied into the arena (`link.rs`)
//!   Linked       the only one that can run
//! ```
//!
//! The bytes are the process's own copy from the beginning on: nothing that a peer can write is looked
//! at twice.

use jam_format::{Digest, Features, Machine, split_proof};

use crate::error::Refusal;
use crate::features;
use crate::policy::Gate;

/// What has arrived: a claim.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    bytes: &'a [u8],
    claimed: Digest,
}

/// A blob whose layout has been checked, and what travelled after it: the bytes of a proof that a
/// signer answers for it, or none.
pub(crate) struct Parsed<'a> {
    blob: jam_format::Parsed<'a>,
    proof: &'a [u8],
    claimed: Digest,
}

/// A blob that this host may run, and can.
pub(crate) struct Verified<'a> {
    blob: jam_format::Parsed<'a>,
    digest: Digest,
}

impl<'a> Frame<'a> {
    pub(crate) fn new(bytes: &'a [u8], claimed: Digest) -> Self {
        Self { bytes, claimed }
    }

    pub(crate) fn parse(self) -> Result<Parsed<'a>, Refusal> {
        let Frame { bytes, claimed } = self;
        let malformed =
            |error: jam_format::BlobError| Refusal::Malformed { reason: error.to_string() };
        let (blob, proof) = split_proof(bytes);
        Ok(Parsed { blob: jam_format::Parsed::parse(blob).map_err(malformed)?, proof, claimed })
    }
}

impl<'a> Parsed<'a> {
    pub(crate) fn verify(self, gate: Gate<'_>) -> Result<Verified<'a>, Refusal> {
        let Parsed { blob, proof, claimed } = self;
        check_machine(&blob)?;
        let found = Digest::of(blob.bytes());
        if found != claimed {
            return Err(Refusal::digest(claimed, found));
        }
        gate.check_with(&found, proof)?;
        Ok(Verified { blob, digest: found })
    }
}

impl<'a> Verified<'a> {
    /// A jam that was verified and linked before, to be linked again.
    pub(crate) fn again(blob: &'a [u8], digest: Digest) -> Result<Self, Refusal> {
        let Parsed { blob, .. } = Frame::new(blob, digest).parse()?;
        Ok(Verified { blob, digest })
    }

    pub(crate) fn blob(&self) -> &jam_format::Parsed<'a> {
        &self.blob
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }
}

/// Checks that this host can run the code of a blob.
///
/// # Errors
/// It is for another machine, or needs processor features that this host lacks.
pub fn check_machine(blob: &jam_format::Parsed<'_>) -> Result<(), Refusal> {
    let machine = blob.machine();
    if Machine::CURRENT != Some(machine) {
        return Err(Refusal::machine(machine));
    }
    check_features(blob, features::of_host())
}

/// Checks that a processor with the features `present` can run the code of a blob.
fn check_features(blob: &jam_format::Parsed<'_>, present: Features) -> Result<(), Refusal> {
    let missing = blob.features().missing_from(present);
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.names(blob.machine()).collect::<Vec<_>>().join(", ");
    Err(Refusal::Features { missing })
}

#[cfg(test)]
mod tests {
    use jam_format::Blob;

    use super::*;

    #[test]
    fn code_for_a_newer_processor_is_refused() {
        let machine = Machine::CURRENT.expect("a machine that jams are built for");
        let names = &machine.features()[..3];
        let needed = Features::from_names(machine, names.iter().copied()).unwrap();
        let blob = Blob { name: "newer", text: &[0; 4], features: needed, ..Blob::new(machine) };
        let blob = blob.encode().unwrap();
        let blob = jam_format::Parsed::parse(&blob).unwrap();
        for (present, missing) in [(&names[..0], names), (&names[..1], &names[1..])] {
            let present = Features::from_names(machine, present.iter().copied()).unwrap();
            let missing = missing.join(", ");
            assert_eq!(check_features(&blob, present), Err(Refusal::Features { missing }));
        }
        assert_eq!(check_features(&blob, needed), Ok(()));
        let host = features::of_host();
        assert_eq!(check_machine(&blob), check_features(&blob, host), "the host's are compared");
    }
}
