//! Packages as bytes and back: every change of a byte of the content is noticed.

use gossamer_jam_format::{
    Blob, ElementKind, Machine, NewElement, Package, PackageError, encode_package, sign_package,
};

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
    encode_package("bench", &elements).unwrap()
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
    let name = "byte 20 of a package, expected a name of 1 to 255 printable ASCII characters";
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
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let error = Package::parse(&bytes).unwrap_err();
    assert_eq!(error, PackageError::Element { index: 3, expected: "the digest of its bytes" });
    bytes[4] = 2;
    let version = "package of version 2, expected 1";
    assert_eq!(Package::parse(&bytes).unwrap_err().to_string(), version);
    bytes[0] = b'K';
    let magic = "not a package: it begins with [4b, 41, 4d, 50], expected \"JAMP\"";
    assert_eq!(Package::parse(&bytes).unwrap_err().to_string(), magic);
}
