//! Packages of a signer whom the test believes, or counts as revoked. Real signatures are tested where they
//! are made and verified, in the crates `gossamer-job` and `gossamer-daemon`.
#![allow(dead_code, reason = "each test program uses a part")]

use gossamer::jam::{Proof, Refusal, Verifier};
use jam_format::{Algorithm, Package, Signature, sign_package};

/// A verifier that believes that "ann" signed what names her.
pub(crate) struct Ann {
    pub(crate) is_revoked: bool,
}

impl Verifier for Ann {
    fn verify(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        let reason = match proof.signature().signature {
            b"ann" if self.is_revoked => "the certificate of its signer ann was revoked",
            b"ann" => return Ok("ann".to_owned()),
            _ => "it is forged",
        };
        Err(Refusal::Policy { reason: reason.to_owned() })
    }
}

/// The same package, signed by ann.
pub(crate) fn signed(package: &[u8]) -> Vec<u8> {
    signed_with(package, b"ann")
}

/// The same package, with bytes in the place of a signature.
pub(crate) fn signed_with(package: &[u8], signature: &[u8]) -> Vec<u8> {
    let (algorithm, certificate) = (Algorithm::Ed25519, &b"hers"[..]);
    let block = Signature { algorithm, job: None, certificate, signature }.encode();
    let package = Package::parse(package).expect("a package");
    sign_package(&package, &block.expect("a block")).expect("a package")
}
