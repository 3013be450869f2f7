//! Packages as bytes and back: every change of a byte of the content is noticed.

use gossamer_jam_format::{
    Algorithm, Blob, Digest, ElementKind, FunctionKind, Machine, NewElement, NewFunction, Package,
    PackageError, Proof, Signature, encode_package, encode_typed_package, functions_in, is_layout,
    sign_package, split_proof,
};
use proptest::prelude::*;

fn blob(machine: Machine, name: &str) -> Vec<u8> {
    Blob { name, text: &[0xc3; 8], ..Blob::new(machine) }.encode().unwrap()
}

fn element<'a>(
    kind: ElementKind,
    machine: Machine,
    name: &'a str,
    bytes: &'a [u8],
) -> NewElement<'a> {
    NewElement { kind, machine, name, bytes }
}

fn sample() -> Vec<u8> {
    let (sum, put) = (blob(Machine::X86_64, "sum"), blob(Machine::X86_64, "put"));
    let put_arm = blob(Machine::Aarch64, "put");
    let elements = [
        element(ElementKind::Jam, Machine::X86_64, "sum", &sum),
        element(ElementKind::Jam, Machine::Aarch64, "put", &put_arm),
        element(ElementKind::Ried, Machine::X86_64, "hash", b"ELF"),
        element(ElementKind::Jam, Machine::X86_64, "put", &put),
    ];
    encode_typed_package("bench", &elements, &FUNCTIONS).unwrap()
}

const FUNCTIONS: [NewFunction<'static>; 4] = [
    function("put", FunctionKind::Import, "table_slot", "(&mut Table, u64) -> u64"),
    function("put", FunctionKind::Entry, "put", "(&mut Table, Größe, &[u8]) -> i64"),
    function("hash", FunctionKind::Export, "hash_of", "(&str) -> u64"),
    function("put", FunctionKind::Import, "table_slot", "(&mut Table, u64) -> u64"),
];

const fn function(
    element: &'static str,
    kind: FunctionKind,
    name: &'static str,
    types: &'static str,
) -> NewFunction<'static> {
    NewFunction { element, kind, name, types }
}

#[test]
fn types_return_as_they_were() {
    let bytes = sample();
    let package = Package::parse(&bytes).unwrap();
    let all: Vec<_> = package.types().functions().map(|f| (f.id, f.to_string())).collect();
    let expected = [
        (0, "fn hash_of(&str) -> u64"),
        (1, "fn put(&mut Table, Größe, &[u8]) -> i64"),
        (1, "fn table_slot(&mut Table, u64) -> u64"),
    ];
    assert_eq!(all, expected.map(|(id, text)| (id, text.to_owned())));
    let put = package.types().of_element(1);
    assert_eq!(put.functions().count(), 2);
    assert!(functions_in(put.text()).eq(put.functions()));
    let slot = put.find(FunctionKind::Import, "table_slot").unwrap();
    assert_eq!(slot.types, "(&mut Table, u64) -> u64");
    assert_eq!(put.find(FunctionKind::Export, "table_slot"), None);
    assert_eq!(package.types().of_element(2).text(), "");
    let untyped = encode_package("bench", &[]).unwrap();
    assert_eq!(Package::parse(&untyped).unwrap().types().text(), "");
}

#[test]
fn types_have_rules() {
    let put = blob(Machine::X86_64, "put");
    let elements = [element(ElementKind::Jam, Machine::X86_64, "put", &put)];
    let refused = |function| {
        let refused = encode_typed_package("p", &elements, &[function]).unwrap_err();
        assert!(matches!(refused, PackageError::Types { line: 1, .. }), "{refused}");
    };
    refused(function("sum", FunctionKind::Import, "f", "()"));
    refused(function("put", FunctionKind::Entry, "sum", "()"));
    refused(function("put", FunctionKind::Export, "f", "()"));
}

#[test]
fn types_that_have_no_line_are_left_out() {
    let put = blob(Machine::X86_64, "put");
    let elements = [element(ElementKind::Jam, Machine::X86_64, "put", &put)];
    let long = format!("({})", "u8,".repeat(2000));
    let import =
        |name, types| NewFunction { element: "put", kind: FunctionKind::Import, name, types };
    let functions = [
        import("größe", "()"),
        import("f", &long),
        import("f g", "()"),
        import("", "()"),
        import("g", "u64"),
        import("h", "()\n0 import z ()"),
        import("i", "(\u{1b}[2J)"),
        import("j", "(\u{202e})"),
        import("k", "(\u{2028})"),
        import("l", "(Größe)"),
    ];
    let bytes = encode_typed_package("p", &elements, &functions).unwrap();
    let package = Package::parse(&bytes).unwrap();
    assert_eq!(package.types().text(), "0 import l (Größe)\n");
    // As many as have room.
    let (names, long): (Vec<_>, _) =
        ((0..400).map(|n| format!("f{n}")).collect(), format!("({})", "u8,".repeat(1300)));
    let functions: Vec<_> = names.iter().map(|name| import(name, &long)).collect();
    let bytes = encode_typed_package("p", &elements, &functions).unwrap();
    let found = Package::parse(&bytes).unwrap().types().functions().count();
    assert!((200..400).contains(&found), "{found}");
}

proptest! {
    #[test]
    fn any_types_return_as_they_were(
        lines in proptest::collection::btree_map("[!-~]{1,20}", "\\([^\\p{Cc}]{0,40}", 0..20)
    ) {
        let sum = blob(Machine::X86_64, "sum");
        let elements = [element(ElementKind::Jam, Machine::X86_64, "sum", &sum)];
        let kind = FunctionKind::Import;
        let functions = lines.iter().map(|(name, types)| NewFunction { element: "sum", kind, name, types });
        let functions: Vec<_> = functions.collect();
        let bytes = encode_typed_package("p", &elements, &functions).unwrap();
        let package = Package::parse(&bytes).unwrap();
        let found: Vec<_> = package.types().functions().map(|f| (f.name, f.types)).collect();
        let expected: Vec<_> = lines
            .iter()
            .map(|(name, types)| (&name[..], &types[..]))
            .filter(|(_, types)| !types.contains(is_layout))
            .collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_package_returns_as_it_was() {
    let bytes = sample();
    let package = Package::parse(&bytes).unwrap();
    assert_eq!(package.name(), "bench");
    let found: Vec<_> = package.elements().iter().map(|e| (e.id, e.name, e.machine)).collect();
    let x86_64 = Machine::X86_64;
    let expected =
        [(0, "hash", x86_64), (1, "put", x86_64), (1, "put", Machine::Aarch64), (2, "sum", x86_64)];
    assert_eq!(found, expected);
    assert_eq!(package.element(1, Machine::Aarch64).unwrap().bytes, blob(Machine::Aarch64, "put"));
    assert_eq!(package.element(0, x86_64).unwrap().kind, ElementKind::Ried);
    assert_eq!(package.element(2, Machine::Aarch64), None);
    assert_eq!(package.content(), bytes);
    assert!(package.signature_block().is_empty());
}

#[test]
fn a_signature_follows_the_content() {
    let bytes = sample();
    let package = Package::parse(&bytes).unwrap();
    let signed = sign_package(&package, b"signature").unwrap();
    let signed_package = Package::parse(&signed).unwrap();
    assert_eq!(signed_package.signature_block(), b"signature");
    let unsigned = sign_package(&signed_package, b"").unwrap();
    assert_eq!(unsigned, bytes);
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = sample();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        match Package::parse(&changed) {
            // The names of package and rieds are covered by a signature only.
            Ok(package) => {
                assert!(package.name() != "bench" || package.elements()[0].name != "hash")
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert!(Package::parse(&bytes[..at]).is_err());
    }
}

#[test]
fn each_rule_has_its_error() {
    let (sum, put) = (blob(Machine::X86_64, "sum"), blob(Machine::X86_64, "put"));
    let refused = |name: &str, elements: &[NewElement<'_>]| {
        encode_package(name, elements).expect_err("it breaks a rule").to_string()
    };
    let jam = |name, bytes| element(ElementKind::Jam, Machine::X86_64, name, bytes);
    let name = "byte 40 of a package, expected a name of 1 to 255 printable ASCII characters";
    assert_eq!(refused("", &[]), name);
    assert_eq!(refused(&"n".repeat(256), &[]), name);
    assert_eq!(
        refused("p", &[jam("sum", &sum), jam("sum", &sum)]),
        "element 1 of a package: expected ids from 0 on in the order of names, and each machine once"
    );
    assert_eq!(
        refused("p", &[jam("sum", &put)]),
        "element 0 of a package: expected machine and name of its blob"
    );
    assert_eq!(refused("p", &[jam("sum", &sum[1..])]), "element 0 of a package is not a jam");
    let mut bytes = sample();
    let sum = bytes.windows(sum.len()).position(|window| window == sum).unwrap();
    bytes[sum] ^= 1;
    let error = Package::parse(&bytes).unwrap_err();
    assert_eq!(error, PackageError::Changed { index: 3 });
    let changed = "the bytes of element 3 do not match its digest: the package was changed";
    assert_eq!(error.to_string(), changed);
    bytes[4] = 1;
    let version = "package of version 1, expected 4";
    assert_eq!(Package::parse(&bytes).unwrap_err().to_string(), version);
    bytes[0] = b'K';
    for (bytes, expected) in [
        (&bytes[..], "not a package: it begins with \"KAMP\", expected \"JAMP\""),
        (b"\x7fELF", "not a package: it begins with \"\\x7fELF\", expected \"JAMP\""),
        (b"#!", "not a package: it begins with \"#!\", expected \"JAMP\""),
        (b"JAM", "package of 3 bytes, expected 40"),
        (b"", "not a package: it is empty"),
    ] {
        assert_eq!(Package::parse(bytes).unwrap_err().to_string(), expected);
    }
}

fn signature(job: Option<u128>) -> Signature<'static> {
    Signature {
        algorithm: Algorithm::Ed25519,
        job,
        certificate: b"certificate",
        signature: b"signature",
    }
}

#[test]
fn a_signature_covers_every_byte_and_its_job() {
    let bytes = sample();
    let package = Package::parse(&bytes).unwrap();
    let message = package.signed_message(None);
    assert_ne!(message, package.signed_message(Some(7)));
    let signed = sign_package(&package, &signature(None).encode().unwrap()).unwrap();
    let signed = Package::parse(&signed).unwrap();
    assert_eq!(signed.signed_message(None), message, "the block is not part of what is signed");
    assert_eq!(signed.digest(), package.digest());
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        if let Ok(package) = Package::parse(&changed) {
            assert_ne!(package.signed_message(None), message, "byte {at}");
        }
    }
}

#[test]
fn a_proof_names_the_jams_of_its_package() {
    let bytes = sample();
    let package = Package::parse(&bytes).unwrap();
    assert_eq!((package.signature(), package.proof()), (Ok(None), None));
    let signed = sign_package(&package, &signature(Some(7)).encode().unwrap()).unwrap();
    let package = Package::parse(&signed).unwrap();
    let bytes = package.proof().unwrap();
    let proof = Proof::parse(&bytes).unwrap();
    assert_eq!((proof.signature(), proof.table().name()), (&signature(Some(7)), "bench"));
    assert_eq!(proof.signed_message(), package.signed_message(Some(7)));
    assert!(package.elements().iter().all(|element| proof.covers(&element.digest)));
    assert!(!proof.covers(&Digest::of(b"another")));
    for len in 0..bytes.len() {
        assert!(Proof::parse(&bytes[..len]).is_err(), "{len}");
    }
    assert!(Proof::parse(&[bytes.as_slice(), b"1"].concat()).is_err());

    let put = blob(Machine::X86_64, "put");
    let sent = [put.as_slice(), &bytes].concat();
    assert_eq!(split_proof(&sent), (&put[..], &bytes[..]));
    assert_eq!(split_proof(&put), (&put[..], &[][..]));
    assert_eq!(split_proof(b"JAM3"), (&b"JAM3"[..], &[][..]));
}

#[test]
fn a_signature_block_has_bounds() {
    let block = signature(None).encode().unwrap();
    assert_eq!(Signature::parse(&block), Ok(signature(None)));
    for len in 0..block.len() {
        assert!(Signature::parse(&block[..len]).is_err(), "{len}");
    }
    for (at, byte) in [(0, 2), (1, 0), (1, 3), (2, 200), (4, 12), (6, 1)] {
        let mut changed = block.clone();
        changed[at] = byte;
        assert!(Signature::parse(&changed).is_err(), "byte {at} as {byte}");
    }
    let long = vec![0; 9 << 10];
    assert!(Signature { certificate: &long, ..signature(None) }.encode().is_err());
    assert!(Signature { signature: &long, ..signature(None) }.encode().is_err());
}
