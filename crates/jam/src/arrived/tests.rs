//! What a receiver does with packages that a daemon brings.

use jam_format::{
    Algorithm, Blob, NewElement, NewFunction, Signature, encode_package, encode_typed_package,
    sign_package, split_proof,
};
use parking_lot::Mutex;
use primitive::sync::{AtomicU32, Ordering};

use super::*;
use crate::error::SignatureHash;
use crate::policy::{Origin, Policy, Verifier};
use crate::receiver::Receiver;
use crate::ried::error::RiedRefusal;
use crate::ried::{ArrivedRied, LoadedBy, NotLoaded};
use crate::sender::Sendable;

/// Takes what "ann" has signed.
struct Ann;

/// Takes nothing.
struct Nobody;

/// Takes what others than "bob" have signed; after 32 refusals it verifies nothing that arrives.
#[derive(Default)]
struct BobRevoked(AtomicU32);

impl Verifier for BobRevoked {
    fn verify(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        if self.0.load(Ordering::Relaxed) >= 32 {
            return Err(Refusal::NotNow { reason: "send it again later".to_owned() });
        }
        self.verify_held(proof).inspect_err(|_| {
            self.0.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn verify_held(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        match proof.signature().signature {
            b"bob" => Err(Refusal::Policy { reason: "revoked".to_owned() }),
            name => Ok(String::from_utf8_lossy(name).into_owned()),
        }
    }
}

impl Verifier for Nobody {
    fn verify(&self, _: &Proof<'_>) -> Result<String, Refusal> {
        Err(Refusal::Policy { reason: "revoked".to_owned() })
    }
}

impl Verifier for Ann {
    fn verify(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
        match proof.signature().signature {
            b"ann" => Ok("ann".to_owned()),
            _ => Err(Refusal::Policy { reason: "it is forged".to_owned() }),
        }
    }
}

type NoArgs = LoadedJam<(), (), (), ()>;

fn here() -> Machine {
    Machine::CURRENT.expect("a machine that jams run on")
}

fn blob(name: &str, text: &[u8]) -> Vec<u8> {
    let blob = Blob { name, text, ..Blob::new(here()) };
    Blob { entry_signature: jam_abi::entry::Types::<(), (), (), ()>::SIGNATURE, ..blob }
        .encode()
        .unwrap()
}

/// A package of one jam, and the jam's digest.
fn package(name: &str, text: &[u8], signature: &[u8]) -> (Vec<u8>, Digest) {
    let bytes = &blob("jam", text);
    let (kind, machine) = (ElementKind::Jam, here());
    let unsigned = encode_package(name, &[NewElement { kind, machine, name: "jam", bytes }]);
    (sign(&unsigned.unwrap(), signature), Digest::of(bytes))
}

fn sign(package: &[u8], signature: &[u8]) -> Vec<u8> {
    let certificate = &b"certificate"[..];
    let block = Signature { algorithm: Algorithm::Ed25519, job: None, certificate, signature };
    let package = jam_format::Package::parse(package).unwrap();
    sign_package(&package, &block.encode().unwrap()).unwrap()
}

fn receiver() -> Receiver {
    let receiver = Receiver::new(1 << 21);
    receiver.set_verifier(Ann);
    receiver
}

fn reason(refused: Result<Arc<ArrivedPackage>, Refusal>) -> String {
    refused.unwrap_err().to_string()
}

#[test]
fn a_signed_package_is_kept_and_linked_on_first_use() {
    let (receiver, told) = (receiver(), Arc::new(Mutex::new(Vec::new())));
    let (of_callback, of_audit) = (told.clone(), told.clone());
    let callback = move |p: &Arc<ArrivedPackage>| of_callback.lock().push(p.name().to_owned());
    receiver.arrived().on_arrival(Arc::new(callback));
    receiver.set_audit(move |run| {
        of_audit.lock().push(format!("{}: {} {:?}", run.name, run.origin, run.host))
    });
    let (bytes, digest) = package("p", &[0xc3], b"ann");
    let taken = receiver.take_package(&bytes).unwrap();
    assert_eq!((taken.name(), taken.signer(), taken.jams().count()), ("p", "ann", 1));
    assert_eq!(receiver.size().1, 0, "nothing is linked before it is called");
    assert_eq!(receiver.link_arrived(None, None, &Digest::of(b"another")), Ok(None));
    assert_eq!(receiver.link_arrived(None, Some(3), &digest), Ok(Some(1)));
    assert_eq!(receiver.link_arrived(None, None, &digest), Ok(Some(1)));
    assert_eq!(receiver.size().1, 1);
    assert_eq!(*told.lock(), ["p", "jam: signed by ann Some(3)"]);
}

#[test]
fn a_first_run_is_noted_before_the_jam_can_be_found() {
    let (receiver, linked) = (Arc::new(receiver()), Arc::new(Mutex::new(Vec::new())));
    let (of_audit, watched) = (linked.clone(), Arc::downgrade(&receiver));
    receiver.set_audit(move |_| {
        let receiver = watched.upgrade().expect("it notes this");
        of_audit.lock().push(receiver.size().1);
    });
    let (bytes, digest) = package("p", &[0xc3], b"ann");
    receiver.take_package(&bytes).unwrap();
    assert_eq!(receiver.link_arrived(None, None, &digest), Ok(Some(1)));
    assert_eq!((&*linked.lock(), receiver.size().1), (&vec![0], 1));
}

/// As a mailbox links it, whose frames carry no types.
#[test]
fn a_function_that_is_missing_is_named_with_the_types_that_the_package_has() {
    let (receiver, types) = (receiver(), "(&Table) -> u64");
    let imports = [jam_format::Import { name: "rows", signature: 7 }];
    let jam =
        Blob { name: "jam", text: &[0xc3], imports: &imports, data: &[0; 8], ..Blob::new(here()) };
    let bytes = &jam.encode().unwrap();
    let element = NewElement { kind: ElementKind::Jam, machine: here(), name: "jam", bytes };
    let function = |kind, name| NewFunction { element: "jam", kind, name, types };
    let functions = [function(FunctionKind::Entry, "jam"), function(FunctionKind::Import, "rows")];
    let package = encode_typed_package("p", &[element], &functions).unwrap();
    receiver.take_package(&sign(&package, b"ann")).unwrap();
    let refused = receiver.link_arrived(None, None, &Digest::of(bytes)).unwrap_err();
    let (symbol, types) = ("rows".to_owned(), types.to_owned());
    assert_eq!(refused, Refusal::MissingSymbol { symbol, signature: SignatureHash(7), types });
}

#[test]
fn a_ried_of_a_package_is_loaded_without_its_bytes() {
    let (receiver, library) = (receiver(), b"no library, as its bytes say");
    let (kind, machine) = (ElementKind::Ried, here());
    let unsigned =
        encode_package("p", &[NewElement { kind, machine, name: "ried", bytes: library }]);
    let bytes = sign(&unsigned.unwrap(), b"ann");
    let load = || {
        let (claimed, by) = (Digest::of(library), LoadedBy::Peer(1));
        receiver.load_arrived(ArrivedRied { name: "ried", claimed, bytes: None, proof: &[], by })
    };
    let unknown = load();
    assert!(matches!(unknown, Err(NotLoaded::Refused(RiedRefusal::Code(_)))), "{unknown:?}");
    receiver.take_package(&bytes).unwrap();
    match load() {
        Err(NotLoaded::Refused(RiedRefusal::Malformed { .. })) => {}
        other => panic!("the bytes are there: {other:?}"),
    }
}

#[test]
fn what_is_not_signed_by_a_signer_is_neither_kept_nor_admitted() {
    let receiver = receiver();
    let (signed, digest) = package("p", &[0xc3], b"ann");
    let parsed = jam_format::Package::parse(&signed).unwrap();
    let unsigned = sign_package(&parsed, &[]).unwrap();
    assert!(reason(receiver.take_package(&unsigned)).contains("gossamer jam sign"));
    let (forged, _) = package("p", &[0xc3], b"bob");
    assert!(reason(receiver.take_package(&forged)).contains("it is forged"));
    for len in 0..signed.len() {
        assert!(receiver.take_package(&signed[..len]).is_err(), "truncated to {len}");
    }
    let none = sign(&encode_package("none", &[]).unwrap(), b"ann");
    assert!(reason(receiver.take_package(&none)).contains("has nothing for"));
    receiver.set_policy(Policy::Nothing);
    assert!(reason(receiver.take_package(&signed)).contains("`Nothing`"));
    receiver.set_policy(Policy::Signed);
    assert!(receiver.arrived().all().is_empty());
    assert_eq!(receiver.link_arrived(None, None, &digest), Ok(None));
    let (bytes, _) = package("p", &[0xc3], b"ann");
    let blob = jam_format::Package::parse(&bytes).unwrap().elements()[0].bytes.to_vec();
    assert!(receiver.receive(&blob, digest).is_err(), "not admitted");
}

#[test]
fn a_package_replaces_one_of_its_name_and_there_is_a_limit() {
    let receiver = receiver();
    let (old, old_digest) = package("p", &[0xc3], b"ann");
    let (new, new_digest) = package("p", &[0x90, 0xc3], b"ann");
    receiver.take_package(&old).unwrap();
    receiver.take_package(&new).unwrap();
    let all = receiver.arrived().all();
    assert_eq!(all.len(), 1);
    assert!(all[0].bytes_of(&new_digest).is_some() && all[0].bytes_of(&old_digest).is_none());
    assert_eq!(receiver.link_arrived(None, None, &old_digest), Ok(None));
    for number in 1..MAX_PACKAGES {
        let (more, _) = package(&format!("p{number}"), &[0xc3], b"ann");
        receiver.take_package(&more).unwrap();
    }
    let (more, _) = package("one-more", &[0xc3], b"ann");
    assert!(reason(receiver.take_package(&more)).contains("the limit"));
    receiver.take_package(&new).unwrap();
}

#[test]
fn another_verifier_judges_what_is_there_again() {
    let receiver = receiver();
    let (bytes, digest) = package("p", &[0xc3], b"ann");
    receiver.take_package(&bytes).unwrap();
    assert_eq!(receiver.link_arrived(None, None, &digest), Ok(Some(1)));
    receiver.set_verifier(Ann);
    assert_eq!((receiver.arrived().all().len(), receiver.size().1), (1, 0));
    assert_eq!(receiver.link_arrived(None, None, &digest), Ok(Some(1)));
    receiver.set_policy(Policy::Nothing);
    receiver.set_verifier(Ann);
    receiver.set_policy(Policy::Signed);
    assert_eq!(receiver.arrived().all().len(), 1, "the policy is not the signer's");
    receiver.set_verifier(Nobody);
    assert_eq!((receiver.arrived().all().len(), receiver.size().1), (0, 0));
    assert_eq!(receiver.link_arrived(None, None, &digest), Ok(None));
    let package = crate::Package::parse(&bytes).unwrap();
    let jam: NoArgs = package.find("jam").unwrap();
    assert!(receiver.receive(jam.code().unwrap().wire(), digest).is_err());
}

#[test]
fn many_packages_of_a_revoked_signer_take_no_other_with_them() {
    struct Anybody;
    impl Verifier for Anybody {
        fn verify(&self, proof: &Proof<'_>) -> Result<String, Refusal> {
            Ok(String::from_utf8_lossy(proof.signature().signature).into_owned())
        }
    }
    let receiver = receiver();
    receiver.set_verifier(Anybody);
    for number in 0..40 {
        let (of_bob, _) = package(&format!("bob{number}"), &[0x90, 0xc3], b"bob");
        receiver.take_package(&of_bob).unwrap();
    }
    let (of_ann, digest) = package("p", &[0xc3], b"ann");
    receiver.take_package(&of_ann).unwrap();
    receiver.set_verifier(BobRevoked::default());
    let left: Vec<_> = receiver.arrived().all().iter().map(|p| p.signer().to_owned()).collect();
    assert_eq!(left, ["ann"]);
    assert_eq!(receiver.link_arrived(None, None, &digest), Ok(Some(1)), "it is admitted");
}

#[test]
fn its_jams_are_found_by_name_and_types_and_prove_who_signed_them() {
    let receiver = receiver();
    let (bytes, digest) = package("p", &[0xc3], b"ann");
    let taken = receiver.take_package(&bytes).unwrap();
    let jam: NoArgs = taken.find("jam").unwrap();
    assert!(jam.code().unwrap().is_everywhere());
    assert!(taken.find::<(), u64, (), ()>("jam").is_err(), "of other types");
    assert!(taken.find::<(), (), (), ()>("other").is_err());
    // One that a program has read from a file is sent with its proof, which admits it elsewhere.
    let jam: NoArgs = crate::Package::parse(&bytes).unwrap().find("jam").unwrap();
    let code = jam.code().unwrap();
    assert!(!code.is_everywhere() && *code.digest() == digest);
    let (blob, proof) = split_proof(code.wire());
    assert!(blob == code.bytes() && Proof::parse(proof).unwrap().covers(&digest));
    let other = super::tests::receiver();
    assert!(other.receive(code.bytes(), digest).is_err());
    other.receive(code.wire(), digest).unwrap();
    let origin = Origin::Signer("ann".into());
    let noted = Arc::new(Mutex::new(None));
    let note = noted.clone();
    other.set_audit(move |run| *note.lock() = Some(run.origin.clone()));
    other.receive(code.bytes(), digest).unwrap();
    assert_eq!(*noted.lock(), Some(origin));
}
