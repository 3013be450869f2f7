//! Which signatures are taken, and that wrong ones cost a bounded amount of work.

use std::time::{Duration, SystemTime};

use jam_format::{Blob, ElementKind, Machine, NewElement, Package, encode_package, sign_package};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519,
    RevokedCertParams, SanType, SerialNumber, SignatureAlgorithm, SigningKey,
};

use super::*;

mod revoked;

const HOUR: Duration = Duration::from_secs(3600);

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    authority: SigningAuthority,
}

/// A member with the key that it signs with.
struct Member {
    certificate: Vec<u8>,
    key: KeyPair,
    algorithm: Algorithm,
}

/// As new racks have it.
fn authority() -> Authority {
    authority_with(&PKCS_ED25519)
}

fn authority_with(kind: &'static SignatureAlgorithm) -> Authority {
    let key = KeyPair::generate_for(kind).unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca = params.self_signed(&key).unwrap().der().to_vec();
    let authority = SigningAuthority { ca, ..SigningAuthority::default() };
    Authority { issuer: Issuer::new(params, key), authority }
}

impl Authority {
    fn member(&self, uri: &str, change: impl FnOnce(&mut CertificateParams)) -> Member {
        self.member_with(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap(), uri, change)
    }

    fn member_with(
        &self,
        key: KeyPair,
        uri: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Member {
        let mut params = CertificateParams::new([]).unwrap();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        params.not_after = (SystemTime::now() + HOUR).into();
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from(vec![7]));
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        let is_p256 = key.is_compatible(&PKCS_ECDSA_P256_SHA256);
        let algorithm = if is_p256 { Algorithm::EcdsaP256 } else { Algorithm::Ed25519 };
        Member { certificate, key, algorithm }
    }

    fn revoke(&mut self, serial: u8) {
        let now = SystemTime::now();
        let list = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: (now + HOUR).into(),
            crl_number: vec![1].into(),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: vec![serial].into(),
                revocation_time: now.into(),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        self.authority.revoked = list.signed_by(&self.issuer).unwrap().der().to_vec();
    }

    fn signers(&self) -> Signers {
        let signers = Signers::new("lab", Some(JobId(7)), &self.authority).unwrap();
        assert_eq!(
            by_authority(&signers),
            0,
            "a list is in force before anything is verified by it"
        );
        signers.verify_ahead(self.authority.signers.iter().map(Vec::as_slice));
        signers
    }
}

impl Member {
    /// A package that it has signed.
    fn sign(&self, job: Option<u128>) -> Vec<u8> {
        let blob = Blob { name: "sum", text: &[0xc3], ..Blob::new(Machine::X86_64) };
        let bytes = &blob.encode().unwrap();
        let (kind, machine, name) = (ElementKind::Jam, Machine::X86_64, "sum");
        let package = encode_package("sums", &[NewElement { kind, machine, name, bytes }]);
        let package = package.unwrap();
        let package = Package::parse(&package).unwrap();
        let signature = self.key.sign(&package.signed_message(job)).unwrap();
        let Self { certificate, algorithm, .. } = self;
        let block = Signature { algorithm: *algorithm, job, certificate, signature: &signature };
        sign_package(&package, &block.encode().unwrap()).unwrap()
    }
}

/// Verifies the proof of a package, after `change` of the proof's bytes.
fn verify_changed(
    signers: &Signers,
    package: &[u8],
    change: impl FnOnce(&mut Vec<u8>),
) -> Result<Signer, SignatureError> {
    let mut proof = Package::parse(package).unwrap().proof().unwrap();
    change(&mut proof);
    signers.verify(&Proof::parse(&proof).unwrap())
}

fn verify(signers: &Signers, package: &[u8]) -> Result<Signer, SignatureError> {
    verify_changed(signers, package, |_| ())
}

#[test]
fn a_signer_of_the_rack_is_taken_with_either_kind_of_key() {
    const KINDS: [&SignatureAlgorithm; 2] = [&PKCS_ECDSA_P256_SHA256, &PKCS_ED25519];
    for (of_authority, kind) in KINDS.into_iter().flat_map(|of| KINDS.map(|kind| (of, kind))) {
        let authority = authority_with(of_authority);
        let key = KeyPair::generate_for(kind).unwrap();
        let ann = authority.member_with(key, "gossamer:lab/signer/ann", |_| ());
        let signers = authority.signers();
        // The second time the certificate is known.
        for job in [None, Some(7), None] {
            let signer = verify(&signers, &ann.sign(job)).unwrap();
            assert_eq!((signer.name.as_str(), signer.certificate.as_str()), ("ann", "07"));
        }
    }
}

#[test]
fn another_role_another_rack_and_another_authority_are_refused() {
    let authority = authority();
    let signers = authority.signers();
    let admin = authority.member("gossamer:lab/admin/bob", |_| ());
    let error = verify(&signers, &admin.sign(None)).unwrap_err();
    assert!(matches!(&error, SignatureError::Role { role, .. } if role == "admin"), "{error}");
    let other = authority.member("gossamer:other/signer/ann", |_| ());
    let error = verify(&signers, &other.sign(None)).unwrap_err();
    assert!(matches!(error, SignatureError::Stranger { .. }), "{error}");
    let foreign = super::tests::authority().member("gossamer:lab/signer/ann", |_| ());
    let error = verify(&signers, &foreign.sign(None)).unwrap_err();
    assert!(matches!(error, SignatureError::Certificate { .. }), "{error}");
    let late = authority.member("gossamer:lab/signer/ann", |params| {
        params.not_after = (SystemTime::now() - HOUR).into();
    });
    let error = verify(&signers, &late.sign(None)).unwrap_err();
    assert!(matches!(error, SignatureError::Certificate { .. }), "{error}");
    // A certificate for TLS, should one ever name a signer.
    let tls = authority.member("gossamer:lab/signer/ann", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let error = verify(&signers, &tls.sign(None)).unwrap_err();
    assert!(matches!(error, SignatureError::Certificate { .. }), "{error}");
}

#[test]
fn a_revoked_signer_is_refused_and_others_are_not() {
    let mut authority = authority();
    let ann = authority.member("gossamer:lab/signer/ann", |_| ());
    let bob = authority.member("gossamer:lab/signer/bob", |params| {
        params.serial_number = Some(SerialNumber::from(vec![8]));
    });
    assert!(verify(&authority.signers(), &ann.sign(None)).is_ok());
    authority.revoke(7);
    let error = verify(&authority.signers(), &ann.sign(None)).unwrap_err();
    assert_eq!(error, SignatureError::Revoked { name: "ann".into() });
    assert!(verify(&authority.signers(), &bob.sign(None)).is_ok());
}

#[test]
fn a_list_of_another_authority_lets_nobody_through() {
    let mut ours = authority();
    let mut theirs = authority();
    theirs.revoke(9);
    let ann = ours.member("gossamer:lab/signer/ann", |_| ());
    ours.authority.revoked = theirs.authority.revoked;
    let error = verify(&ours.signers(), &ann.sign(None)).unwrap_err();
    assert!(matches!(error, SignatureError::Certificate { .. }), "{error}");
    ours.authority.revoked = b"garbage".to_vec();
    assert!(matches!(Signers::new("lab", None, &ours.authority), Err(SignersError::Revoked(_))));
}

#[test]
fn a_changed_package_is_forged_also_by_a_known_signer() {
    let authority = authority();
    let ann = authority.member("gossamer:lab/signer/ann", |_| ());
    let signed = ann.sign(None);
    let signers = authority.signers();
    for _ in 0..2 {
        // A byte of the digest of its element, and the last of the signature.
        for at in [40 + 12, usize::MAX] {
            let change = |proof: &mut Vec<u8>| {
                let at = at.min(proof.len() - 1);
                proof[at] ^= 1;
            };
            let error = verify_changed(&signers, &signed, change).unwrap_err();
            assert_eq!(error, SignatureError::Forged { name: "ann".into() });
        }
        assert!(verify(&signers, &signed).is_ok());
    }
}

#[test]
fn a_package_for_one_job_is_refused_in_another() {
    let authority = authority();
    let ann = authority.member("gossamer:lab/signer/ann", |_| ());
    let signed = ann.sign(Some(8));
    let error = verify(&authority.signers(), &signed).unwrap_err();
    assert_eq!(error, SignatureError::OtherJob { signed_for: JobId(8), job: JobId(7) });
    // The job cannot be changed afterwards: it is part of what is signed.
    let signers = Signers::new("lab", Some(JobId(8)), &authority.authority).unwrap();
    assert!(verify(&signers, &signed).is_ok());
    let block = Package::parse(&signed).unwrap().signature_block().len();
    let every_job = |proof: &mut Vec<u8>| {
        let job = proof.len() - block + 8;
        proof[job..job + 16].fill(0);
    };
    let error = verify_changed(&authority.signers(), &signed, every_job).unwrap_err();
    assert_eq!(error, SignatureError::Forged { name: "ann".into() });
}

#[test]
fn many_wrong_signatures_stop_the_work_for_a_while() {
    let authority = authority();
    let ann = authority.member("gossamer:lab/signer/ann", |_| ());
    let signed = ann.sign(None);
    let signers = authority.signers();
    let forge = || verify_changed(&signers, &signed, |proof| proof[40 + 12] ^= 1).unwrap_err();
    let errors: Vec<_> = (0..3 * MAX_FAILURES).map(|_| forge()).collect();
    assert!(errors.contains(&SignatureError::TooMany), "more than {MAX_FAILURES} a second");
    signers.recent.lock().since = Some(Instant::now() - Duration::from_secs(2));
    assert!(verify(&signers, &signed).is_ok(), "they are over");
}

/// The signatures of the authority that were verified.
fn by_authority(signers: &Signers) -> usize {
    signers.by_authority.iter().map(Remembered::count).sum()
}

#[test]
fn a_package_that_comes_again_is_verified_once() {
    let authority = authority();
    let ann = authority.member("gossamer:lab/signer/ann", |_| ());
    let (signers, signed) = (authority.signers(), ann.sign(None));
    let of_packages = || signers.by_signers.iter().map(Remembered::count).sum::<usize>();
    for _ in 0..2 {
        verify(&signers, &signed).unwrap();
        assert_eq!(of_packages(), 1);
        // The same signature of another message.
        let change = |proof: &mut Vec<u8>| proof[40 + 12] ^= 1;
        assert!(verify_changed(&signers, &signed, change).is_err());
        assert_eq!(of_packages(), 1);
    }
    verify(&signers, &ann.sign(Some(7))).unwrap();
    assert_eq!(of_packages(), 2);
}

#[test]
fn the_authority_s_signatures_are_verified_once_and_ahead_of_time() {
    let mut authority = authority();
    let ann = authority.member("gossamer:lab/signer/ann", |_| ());
    authority.revoke(9);
    let signers = authority.signers();
    assert_eq!(by_authority(&signers), 0);
    for _ in 0..2 {
        verify(&signers, &ann.sign(None)).unwrap();
        assert_eq!(by_authority(&signers), 2, "of the certificate and of the list");
    }
    // With the certificate beside the list, and one that is not of a signer.
    let bob = authority.member("gossamer:lab/admin/bob", |_| ());
    let foreign = super::tests::authority().member("gossamer:lab/signer/eve", |_| ());
    authority.authority.signers =
        vec![foreign.certificate, b"garbage".to_vec(), bob.certificate, ann.certificate.clone()];
    let signers = authority.signers();
    let known = || signers.recent.lock().known.clone();
    assert_eq!((by_authority(&signers), known()), (2, vec![ann.certificate.clone().into()]));
    verify(&signers, &ann.sign(None)).unwrap();
    assert_eq!((by_authority(&signers), known()), (2, vec![ann.certificate.clone().into()]));
}

#[test]
fn a_remembered_certificate_expires() {
    let mut authority = authority();
    let ann = authority.member("gossamer:lab/signer/ann", |_| ());
    authority.authority.signers = vec![ann.certificate.clone()];
    let (signers, signed) = (authority.signers(), ann.sign(None));
    let proof = Package::parse(&signed).unwrap().proof().unwrap();
    let proof = Proof::parse(&proof).unwrap();
    let verify_in = |time: Duration| {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let at = UnixTime::since_unix_epoch(since_1970 + time);
        signers.verify_at(at, proof.signature(), &proof.signed_message())
    };
    assert!(verify_in(Duration::ZERO).is_ok());
    assert!(verify_in(HOUR / 2).is_ok());
    let error = verify_in(2 * HOUR).unwrap_err();
    assert!(matches!(error, SignatureError::Certificate { .. }), "{error}");
}

#[test]
fn what_is_known_is_verified_by_the_next_list() {
    let mut authority = authority();
    let ann = authority.member("gossamer:lab/signer/ann", |_| ());
    let bob = authority.member("gossamer:lab/signer/bob", |params| {
        params.serial_number = Some(SerialNumber::from(vec![8]));
    });
    let before = authority.signers();
    for member in [&ann, &bob] {
        verify(&before, &member.sign(None)).unwrap();
    }
    authority.revoke(7);
    // Also if the daemon still hands out the certificate of the one who was revoked.
    authority.authority.signers = vec![ann.certificate.clone()];
    let after = authority.signers();
    after.succeed(&before);
    assert_eq!(after.recent.lock().known, [bob.certificate.clone().into()]);
    let error = verify(&after, &ann.sign(None)).unwrap_err();
    assert_eq!(error, SignatureError::Revoked { name: "ann".into() });
    assert!(verify(&after, &bob.sign(None)).is_ok());
}

#[test]
fn those_used_last_are_remembered() {
    let mut recent = Recent::default();
    (0..MAX_KNOWN_SIGNERS as u8).for_each(|number| recent.keep(&[number]));
    recent.keep(&[0]);
    recent.keep(&[255]);
    assert_eq!(recent.known.len(), MAX_KNOWN_SIGNERS);
    assert!(recent.knows(&[0]) && recent.knows(&[255]) && !recent.knows(&[1]));
}

#[test]
fn the_authority_survives_json() {
    let mut authority = authority();
    authority.revoke(7);
    authority.authority.signers = vec![vec![1, 255], vec![]];
    let json = serde_json::to_string(&authority.authority).unwrap();
    let read: SigningAuthority = serde_json::from_str(&json).unwrap();
    assert_eq!(read, authority.authority);
    for wrong in ["{\"ca\":\"0\"}", "{\"ca\":\"0g\"}", "{\"ca\":\"+1\"}", "{}"] {
        assert!(serde_json::from_str::<SigningAuthority>(wrong).is_err(), "{wrong}");
    }
}

#[test]
#[ignore = "prints figures: cargo test --release -p gossamer-job --lib figures -- --ignored --nocapture"]
fn figures() {
    for kind in [&PKCS_ECDSA_P256_SHA256, &PKCS_ED25519] {
        let mut authority = authority_with(kind);
        authority.revoke(9);
        let key = KeyPair::generate_for(kind).unwrap();
        let ann = authority.member_with(key, "gossamer:lab/signer/ann", |_| ());
        let proof = Package::parse(&ann.sign(None)).unwrap().proof().unwrap();
        for signers in [Vec::new(), vec![ann.certificate.clone()]] {
            authority.authority.signers = signers;
            let is_ahead = !authority.authority.signers.is_empty();
            for is_first in [false, true] {
                let signers: Vec<_> = (0..11 * 100).map(|_| authority.signers()).collect();
                let mut signers = signers.iter();
                let known = authority.signers();
                let verify = |signers: &Signers| {
                    drop(signers.verify(&Proof::parse(&proof).unwrap()).unwrap());
                };
                let mut rounds: Vec<_> = (0..11)
                    .map(|_| {
                        let start = Instant::now();
                        for _ in 0..100 {
                            let next = signers.next().unwrap();
                            verify(if is_first { next } else { &known });
                            // As if it were another package.
                            known.by_signers.iter().for_each(Remembered::forget);
                        }
                        start.elapsed() / 100
                    })
                    .collect();
                rounds.sort();
                let (algorithm, time) = (ann.algorithm, rounds[rounds.len() / 2]);
                println!("{algorithm:?}: first {is_first}, ahead {is_ahead}: {time:?}");
            }
        }
    }
}
