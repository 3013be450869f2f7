//! What each policy admits, with and without signatures.

use jam_format::{
    Algorithm, Blob, ElementKind, NewElement, Package, Signature, encode_package, sign_package,
};
use primitive::sync::AtomicU32;

use super::*;

/// Takes what "ann" has signed, and counts how often it is asked.
#[derive(Default)]
struct Ann(AtomicU32);

impl Verifier for Ann {
    fn verify(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        self.0.fetch_add(1, Ordering::Relaxed);
        match proof.signature().signature {
            b"ann" => Ok("ann".to_owned()),
            b"busy" => Err(Refusal::NotNow { reason: "send it again".to_owned() }),
            _ => Err(not_admitted("it is forged")),
        }
    }
}

/// Accepts everything, and has [`Ann`] take its place meanwhile: a certificate is revoked while a
/// signature is verified.
struct Replaced(Arc<Gatekeeper>);

impl Verifier for Replaced {
    fn verify(&self, _: &Proof<'_>) -> Result<String, Refusal> {
        self.0.set_verifier(Arc::new(Ann::default()));
        Ok("bob".to_owned())
    }
}

/// The digests of the jams of a package, and its proof.
fn signed_by(signature: &[u8]) -> ([Digest; 2], Vec<u8>) {
    let machine = Machine::CURRENT.expect("a machine that jams run on");
    let blob = |name| Blob { name, text: &[0xc3; 4], ..Blob::new(machine) }.encode().unwrap();
    let (sum, put) = (blob("sum"), blob("put"));
    let element = |name, bytes| NewElement { kind: ElementKind::Jam, machine, name, bytes };
    let package = encode_package("p", &[element("sum", &sum), element("put", &put)]).unwrap();
    ([Digest::of(&sum), Digest::of(&put)], proof_of(&package, signature))
}

/// The proof of a package that is signed with these bytes.
fn proof_of(package: &[u8], signature: &[u8]) -> Vec<u8> {
    let (algorithm, certificate) = (Algorithm::Ed25519, &b"certificate"[..]);
    let block = Signature { algorithm, job: None, certificate, signature }.encode().unwrap();
    let package = sign_package(&Package::parse(package).unwrap(), &block).unwrap();
    Package::parse(&package).unwrap().proof().unwrap()
}

fn reason(refused: Result<Origin, Refusal>) -> String {
    match refused {
        Err(Refusal::Policy { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_policy_admits_what_it_says() {
    let gatekeeper = Gatekeeper::default();
    let (known, unknown) = (Digest::of(b"known"), Digest::of(b"unknown"));
    gatekeeper.admit([known], &Origin::Program);
    let admits = |digest| gatekeeper.gate(None).check(&digest).is_ok();
    assert!(admits(known) && !admits(unknown), "the default is `Signed`");
    assert!(gatekeeper.gate(None).check_local().is_ok());
    gatekeeper.set(Policy::AnyPeer);
    assert_eq!(gatekeeper.gate(None).check(&known), Ok(Origin::Program));
    assert_eq!(gatekeeper.gate(None).check(&unknown), Ok(Origin::Peer));
    gatekeeper.set(Policy::Nothing);
    assert!(!admits(known) && !admits(unknown));
    assert!(gatekeeper.gate(None).check_local().is_err());
    gatekeeper.set(Policy::Signed);
    assert!(gatekeeper.gate(None).check_local().is_ok());
}

#[test]
fn a_signature_admits_every_jam_of_its_package_and_is_verified_once() {
    let gatekeeper = Gatekeeper::default();
    let ([sum, put], proof) = signed_by(b"ann");
    assert!(reason(gatekeeper.gate(None).check_with(&sum, &proof)).contains("knows no signers"));
    let ann = Arc::new(Ann::default());
    gatekeeper.set_verifier(ann.clone());
    assert!(gatekeeper.gate(None).check(&sum).is_err(), "not without its proof");
    let signed = Ok(Origin::Signer("ann".into()));
    assert_eq!(gatekeeper.gate(None).check_with(&sum, &proof), signed);
    assert_eq!(gatekeeper.gate(None).check_with(&sum, &proof), signed);
    assert_eq!(gatekeeper.gate(None).check_with(&put, &[]), signed, "of the same package");
    assert_eq!(ann.0.load(Ordering::Relaxed), 1);
}

/// The audit log shows the text.
#[test]
fn any_peer_s_code_is_not_called_unsigned_without_a_look_at_its_proof() {
    let gatekeeper = Gatekeeper::default();
    let ann = Arc::new(Ann::default());
    gatekeeper.set_verifier(ann.clone());
    gatekeeper.set(Policy::AnyPeer);
    let ([sum, _], proof) = signed_by(b"ann");
    let origin = gatekeeper.gate(None).check_with(&sum, &proof).unwrap();
    assert_eq!((&origin, ann.0.load(Ordering::Relaxed)), (&Origin::Peer, 0));
    assert_eq!(origin.to_string(), "sent by a host of the rack, no signature checked");
}

#[test]
fn a_proof_of_another_jam_or_a_forged_one_admits_nothing() {
    let gatekeeper = Gatekeeper::default();
    let ann = Arc::new(Ann::default());
    gatekeeper.set_verifier(ann.clone());
    let ([sum, _], proof) = signed_by(b"ann");
    let other = Digest::of(b"another jam");
    assert!(reason(gatekeeper.gate(None).check_with(&other, &proof)).contains("sign the package"));
    for len in 0..proof.len() {
        assert!(
            gatekeeper.gate(None).check_with(&sum, &proof[..len]).is_err(),
            "truncated to {len}"
        );
    }
    assert_eq!(ann.0.load(Ordering::Relaxed), 0, "no signature was looked at");
    let (_, forged) = signed_by(b"bob");
    assert_eq!(reason(gatekeeper.gate(None).check_with(&sum, &forged)), "it is forged");
    let (_, unseen) = signed_by(b"busy");
    let refused = gatekeeper.gate(None).check_with(&sum, &unseen);
    assert!(refused.is_err_and(|refusal| refusal.is_transient()), "as its verifier says");
    assert!(gatekeeper.gate(None).check(&sum).is_err());
}

#[test]
fn a_verifier_that_is_replaced_while_it_verifies_admits_nothing() {
    let gatekeeper = Arc::new(Gatekeeper::default());
    gatekeeper.set_verifier(Arc::new(Replaced(gatekeeper.clone())));
    let ([sum, put], proof) = signed_by(b"bob");
    let check = || gatekeeper.gate(None).check_with(&sum, &proof);
    assert!(check().is_err_and(|refusal| refusal.is_transient()), "it is to be sent again");
    for digest in [sum, put] {
        assert!(gatekeeper.gate(None).check(&digest).is_err());
    }
    assert_eq!(reason(check()), "it is forged", "the new one judges it");
}

#[test]
fn a_proof_of_code_for_another_machine_is_not_verified() {
    let gatekeeper = Gatekeeper::default();
    let ann = Arc::new(Ann::default());
    gatekeeper.set_verifier(ann.clone());
    let current = Machine::CURRENT.expect("a machine that jams run on");
    let other = if current == Machine::X86_64 { Machine::Aarch64 } else { Machine::X86_64 };
    let [own, foreign] = [current, other].map(|machine| {
        Blob { name: "sum", text: &[0xc3; 4], ..Blob::new(machine) }.encode().unwrap()
    });
    let (kind, name) = (ElementKind::Jam, "sum");
    let elements = [(current, &own), (other, &foreign)].map(|(machine, bytes)| NewElement {
        kind,
        machine,
        name,
        bytes,
    });
    let proof = proof_of(&encode_package("p", &elements).unwrap(), b"ann");
    let check = |bytes| gatekeeper.gate(None).check_with(&Digest::of(bytes), &proof);
    for _ in 0..2 {
        assert_eq!(check(&foreign), Err(Refusal::machine(other)));
    }
    assert_eq!(ann.0.load(Ordering::Relaxed), 0);
    assert_eq!(check(&own), Ok(Origin::Signer("ann".into())));
    assert_eq!(check(&foreign), Err(Refusal::machine(other)));
    assert_eq!(ann.0.load(Ordering::Relaxed), 1);
}

#[test]
fn no_signature_helps_where_nothing_runs() {
    let gatekeeper = Gatekeeper::default();
    let ann = Arc::new(Ann::default());
    gatekeeper.set_verifier(ann.clone());
    gatekeeper.set(Policy::Nothing);
    let ([sum, _], proof) = signed_by(b"ann");
    assert!(reason(gatekeeper.gate(None).check_with(&sum, &proof)).contains("`Nothing`"));
    assert!(gatekeeper.gate(None).admit_proven(&Proof::parse(&proof).unwrap()).is_err());
    assert_eq!(ann.0.load(Ordering::Relaxed), 0);
}

#[test]
fn data_that_is_not_authenticated_needs_signatures() {
    let gatekeeper = Gatekeeper::default();
    gatekeeper.set_verifier(Arc::new(Ann::default()));
    gatekeeper.set(Policy::AnyPeer);
    gatekeeper.set_unauthenticated();
    let ([sum, _], proof) = signed_by(b"ann");
    assert!(reason(gatekeeper.gate(None).check(&sum)).contains("not authenticated"));
    assert_eq!(gatekeeper.gate(None).check_with(&sum, &proof), Ok(Origin::Signer("ann".into())));
}

#[test]
fn a_part_of_the_process_has_a_policy_of_its_own() {
    let gatekeeper = Gatekeeper::default();
    let (known, unknown) = (Digest::of(b"known"), Digest::of(b"unknown"));
    gatekeeper.admit([known], &Origin::Admitted);
    for is_authenticated in [true, false] {
        for (policy, runs) in [
            (Policy::Signed, [true, false]),
            (Policy::AnyPeer, [true, is_authenticated]),
            (Policy::Nothing, [false, false]),
        ] {
            let gate = gatekeeper.gate(Some(policy));
            assert_eq!([known, unknown].map(|digest| gate.check(&digest).is_ok()), runs);
            // Linked jams are compared by bits.
            let bits = [known, unknown].map(|digest| gate.bits_of(&digest) & gate.bit() != 0);
            assert_eq!(bits, runs);
            assert_eq!(gate.check_local().is_ok(), policy != Policy::Nothing);
        }
        gatekeeper.set_unauthenticated();
    }
    assert_eq!(gatekeeper.gate(None).bit(), Policy::Signed.bit(), "the process keeps its own");
}

#[test]
fn changes_are_counted_where_an_answer_may_be_another() {
    let gatekeeper = Gatekeeper::default();
    let mut before = gatekeeper.changes();
    let mut has_changed = || {
        let now = gatekeeper.changes();
        now != std::mem::replace(&mut before, now)
    };
    let ([sum, put], proof) = signed_by(b"ann");
    gatekeeper.set(Policy::Signed);
    assert!(!has_changed(), "it was this one");
    gatekeeper.set(Policy::AnyPeer);
    assert!(has_changed());
    gatekeeper.set_verifier(Arc::new(Ann::default()));
    assert!(has_changed());
    gatekeeper.admit_proven(&Proof::parse(&proof).unwrap()).unwrap();
    assert!(has_changed());
    gatekeeper.admit([sum, put], &Origin::Admitted);
    assert!(!has_changed(), "they are admitted");
    gatekeeper.admit([Digest::of(b"another")], &Origin::Admitted);
    assert!(has_changed());
    gatekeeper.set_unauthenticated();
    assert!(has_changed());
}
