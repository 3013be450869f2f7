//! What the arrival of code costs, and how long the code is.

use std::time::{Duration, Instant, SystemTime};

use gossamer::jam::{Policy, Proof, Sendable, receiver};
use gossamer_job::{JobId, Signers, SigningAuthority};
use jam_format::{
    Algorithm, ElementKind, Machine, NewElement, Package, Signature, encode_package, sign_package,
};
use jam_tests::jams::indirect_put::INDIRECT_PUT;
use jam_tests::jams::server_side_sum::SERVER_SIDE_SUM;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, SanType, SerialNumber, SigningKey,
};

use crate::harness::Limit::AtMost;
use crate::harness::{Bar, Case, Placement, Suite, Unit};
use crate::measure::sampling::{CaseError, Reading};

/// What a first arrival may take, in nanoseconds: without a signature, with one. What Indirect Put may
/// have, in bytes.
const UNSIGNED: f64 = 2_000.0;
const SIGNED: f64 = 50_000.0;
const BYTES: f64 = 600.0;

/// The suite `jam-arrival`.
pub fn suite() -> Suite {
    let about = "one thread; an operation is the first arrival of a jam: its digest, the policy, \
                 parsing, linking, into memory that has held another jam before; with a signature also \
                 the proof of its package, by a signer whose certificate is known";
    let mut suite = Suite::new("jam-arrival", about, Placement::SingleThread);
    suite.push(first("gossamer/Server-Side Sum, unsigned", &SERVER_SIDE_SUM, false));
    let bar = |most| Bar::value(AtMost(most));
    suite.push(
        first("gossamer/Indirect Put, unsigned", &INDIRECT_PUT, false).bar_value(bar(UNSIGNED)),
    );
    let signed = first("gossamer/Indirect Put, signed", &INDIRECT_PUT, true);
    suite.push(signed.bar_value(bar(SIGNED)));
    let size = Case::new("gossamer/Indirect Put, its code", Unit::Bytes, |_| {
        let code = INDIRECT_PUT.code().map_err(|e| CaseError::Failed(e.to_string()))?;
        Ok(Reading::of(code.bytes().len() as f64))
    });
    suite.push(size.bar_value(bar(BYTES)));
    suite
}

/// First arrivals of a jam, each given up before the next one; by a proof if it is signed.
fn first<J>(name: &str, jam: &'static J, is_signed: bool) -> Case
where
    J: Sendable + Sync,
{
    let failed = |e: &dyn std::error::Error| CaseError::Failed(e.to_string());
    Case::new(name, Unit::Nanoseconds, move |sampler| {
        let signed = if is_signed {
            let code = jam.code().map_err(|e| failed(&e))?;
            Some(Signed::new(code.name(), code.bytes()).map_err(|e| failed(&*e))?)
        } else {
            None
        };
        sampler.try_single_thread(|thread| {
            let code = jam.code().map_err(|e| failed(&e))?;
            let (bytes, digest) = (code.bytes(), *code.digest());
            let receiver = receiver();
            thread.measure_timed(|n| {
                let mut took = Duration::ZERO;
                for _ in 0..n {
                    receiver.set_policy(Policy::Signed);
                    // Signers that have not verified the package before.
                    let fresh = signed.as_ref().map(|signed| (signed, signed.signers()));
                    let start = Instant::now();
                    if let Some((signed, signers)) = &fresh {
                        signed.verify(signers);
                    }
                    assert!(receiver.receive(bytes, digest).is_ok(), "it is of this program");
                    took += start.elapsed();
                }
                took
            });
            Ok(())
        })
    })
}

/// The proof of a package that a member of a rack has signed, and the authority of that rack.
struct Signed {
    authority: SigningAuthority,
    proof: Vec<u8>,
}

impl Signed {
    /// A package with this jam.
    fn new(name: &str, blob: &[u8]) -> Result<Signed, Box<dyn std::error::Error>> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = CertificateParams::new([])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = params.self_signed(&key)?.der().to_vec();
        let issuer = Issuer::new(params, key);

        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = CertificateParams::new([])?;
        params.subject_alt_names = vec![SanType::URI("gossamer:bench/signer/ann".try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        params.not_after = (SystemTime::now() + Duration::from_secs(3600)).into();
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from(vec![7]));
        let certificate = params.signed_by(&key, &issuer)?.der().to_vec();

        let machine = Machine::CURRENT.ok_or("jams do not run on this machine")?;
        let kind = ElementKind::Jam;
        let package = encode_package("bench", &[NewElement { kind, machine, name, bytes: blob }])?;
        let package = Package::parse(&package)?;
        let signature = key.sign(&package.signed_message(None))?;
        let (algorithm, job) = (Algorithm::Ed25519, None);
        let block = Signature { algorithm, job, certificate: &certificate, signature: &signature };
        let package = sign_package(&package, &block.encode()?)?;
        let proof = Package::parse(&package)?.proof().ok_or("the package has no proof")?;

        let authority = SigningAuthority { ca, revoked: Vec::new(), signers: vec![certificate] };
        let signed = Signed { authority, proof };
        signed.verify(&signed.signers());
        Ok(signed)
    }

    /// The signers of the rack, whose certificates have been verified.
    fn signers(&self) -> Signers {
        let signers = Signers::new("bench", Some(JobId(1)), &self.authority);
        let signers = signers.expect("a valid authority");
        signers.verify_ahead(self.authority.signers.iter().map(Vec::as_slice));
        signers
    }

    /// Verifies the proof, as the first arrival of a jam of the package does.
    fn verify(&self, signers: &Signers) {
        let proof = Proof::parse(&self.proof).expect("a proof");
        assert!(signers.verify(&proof).is_ok(), "it is of a signer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_jam_is_proven_and_its_proof_covers_it() {
        let code = INDIRECT_PUT.code().expect("code");
        let signed = Signed::new(code.name(), code.bytes()).expect("a signed package");
        let proof = Proof::parse(&signed.proof).expect("a proof");
        assert!(proof.covers(code.digest()));
    }
}
