//! What must hold for whatever bytes a peer sends as a blob or a package: the bodies of fuzz targets.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run them on their committed corpora, `fuzz/corpus/jam_blob`, `jam_library` and `jam_package`.

use crate::{
    Blob, DATA_DISTANCE, FunctionTypes, Library, MAX_PROOF_BYTES, NewElement, NewFunction, Package,
    Parsed, Proof, SLOT_BYTES, encode_typed_package, functions_in, sign_package, split_proof,
};

/// Bytes are a blob, all of whose parts are in range and which has one encoding, or an error that
/// can be printed.
///
/// # Panics
/// When that does not hold.
pub fn jam_blob(data: &[u8]) {
    let parsed = match Parsed::parse(data) {
        Ok(parsed) => parsed,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!((parsed.entry() as usize) < parsed.text().len(), "the entry is outside text");
    let imports: Vec<_> = parsed.imports().collect();
    assert!(imports.len() * SLOT_BYTES <= parsed.data().len(), "an import has no slot");
    let relocations: Vec<_> = parsed.relocations().collect();
    for relocation in &relocations {
        let place = relocation.place as usize;
        assert!(place >= imports.len() * SLOT_BYTES, "a relocation in an import's slot");
        assert!(place + SLOT_BYTES <= parsed.data().len(), "a relocation outside data");
        let value = relocation.value;
        let in_text = value as usize <= parsed.text().len();
        let in_data =
            value >= DATA_DISTANCE && (value - DATA_DISTANCE) as usize <= parsed.data().len();
        assert!(in_text || in_data, "a relocation points outside the jam");
    }
    let blob = Blob {
        machine: parsed.machine(),
        features: parsed.features(),
        needs_page: parsed.alignment() == crate::MAX_ALIGN,
        name: parsed.name(),
        property: parsed.property(),
        entry: parsed.entry(),
        entry_signature: parsed.entry_signature(),
        args_bytes: parsed.args_bytes(),
        element_bytes: parsed.element_bytes(),
        reply_bytes: parsed.reply_bytes(),
        imports: &imports,
        relocations: &relocations,
        text: parsed.text(),
        data: parsed.data(),
    };
    assert_eq!(blob.encode().as_deref(), Ok(data), "a blob has two encodings");
}

/// Bytes are a package, whose elements are found by their ids and which has one encoding, or an error
/// that can be printed.
///
/// # Panics
/// When that does not hold.
pub fn jam_package(data: &[u8]) {
    let package = match Package::parse(data) {
        Ok(package) => package,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for element in package.elements() {
        let found = package.element(element.id, element.machine);
        assert_eq!(found, Some(element), "an element is not found");
    }
    let elements = package.elements().iter().map(|element| NewElement {
        kind: element.kind,
        machine: element.machine,
        name: element.name,
        bytes: element.bytes,
    });
    let name_of = |id| {
        let element = package.elements().iter().find(|element| element.id == id);
        element.expect("a function is of an element").name
    };
    let functions = package.types().functions().map(|function| {
        let FunctionTypes { id, kind, name, types } = function;
        let of_element = package.types().of_element(id);
        assert!(of_element.functions().any(|found| found == function), "a function is not found");
        assert!(functions_in(of_element.text()).eq(of_element.functions()));
        NewFunction { element: name_of(id), kind, name, types }
    });
    let functions: Vec<_> = functions.collect();
    let elements: Vec<_> = elements.collect();
    let encoded = encode_typed_package(package.name(), &elements, &functions);
    let unsigned = sign_package(&package, &[]);
    assert_eq!(encoded, unsigned, "a package has two encodings");
    assert_eq!(sign_package(&package, package.signature_block()).as_deref(), Ok(data));
    match package.signature() {
        Ok(Some(signature)) => {
            assert_eq!(signature.encode().as_deref(), Ok(package.signature_block()));
            let message = package.signed_message(signature.job);
            let proof = package.proof();
            let Some(bytes) = &proof else {
                return assert!(data.len() > MAX_PROOF_BYTES, "no proof of a short package");
            };
            let proof = Proof::parse(bytes).expect("the proof of a package");
            assert_eq!(proof.signed_message(), message, "the proof is of another message");
            let elements = package.elements();
            assert!(elements.iter().all(|element| proof.covers(&element.digest)));
            assert_eq!(proof.table().entries().len(), elements.len());
        }
        Ok(None) => assert!(package.proof().is_none(), "a proof without a signature"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Bytes are a proof that a jam is of a signed package, which has one encoding, or an error that can
/// be printed.
///
/// # Panics
/// When that does not hold.
pub fn jam_proof(data: &[u8]) {
    let (blob, rest) = split_proof(data);
    assert_eq!([blob, rest].concat(), data);
    let proof = match Proof::parse(data) {
        Ok(proof) => proof,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let block = proof.signature().encode().expect("a parsed block");
    assert!(data.ends_with(&block));
    assert!(proof.table().entries().iter().all(|entry| proof.covers(&entry.digest)));
}

/// Bytes are a shared library, of which none can be missing at the end, or an error that can be
/// printed.
///
/// # Panics
/// When that does not hold.
pub fn jam_library(data: &[u8]) {
    match Library::parse(data) {
        Ok(library) => {
            assert!(crate::Machine::ALL.contains(&library.machine()));
            assert!(Library::parse(&data[..64]).is_err(), "a header without what it says");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;

    use super::*;
    use crate::{
        Algorithm, ElementKind, Features, FunctionKind, Import, Machine, Relocation, Signature,
        encode_package,
    };

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of("jam_blob").run(jam_blob);
        Corpus::of("jam_library").run(jam_library);
        let package = |data: &[u8]| {
            jam_package(data);
            jam_proof(data);
        };
        Corpus::of("jam_package").run(package);
    }

    /// Where a format changes, its seeds have to be written again: a target that refuses all of them has
    /// nothing to begin with.
    #[test]
    fn whole_seeds_are_accepted() {
        let has_read = |target: &str, name: &str, is_read: fn(&[u8]) -> bool| {
            assert!(is_read(&Corpus::of(target).seed(name)), "{target}/{name}: run write_seeds");
        };
        for name in ["everything", "smallest", "x86-64"] {
            has_read("jam_blob", name, |seed| Parsed::parse(seed).is_ok());
        }
        has_read("jam_library", "smallest", |seed| Library::parse(seed).is_ok());
        for name in ["no-elements", "several", "signed", "signed-block", "types"] {
            has_read("jam_package", name, |seed| Package::parse(seed).is_ok());
        }
        has_read("jam_package", "types", |seed| {
            Package::parse(seed).is_ok_and(|package| package.types().functions().count() == 3)
        });
        has_read("jam_package", "signed-block", |seed| {
            Package::parse(seed).is_ok_and(|package| matches!(package.signature(), Ok(Some(_))))
        });
        has_read("jam_package", "proof", |seed| Proof::parse(seed).is_ok());
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-jam-format --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let put = |name: &str, blob: &Blob<'_>| {
            Corpus::of("jam_blob").write(name, blob.encode().expect("a blob"));
        };
        let ret = Blob { name: "answer", text: &[0xc3], ..Blob::new(Machine::X86_64) };
        put("smallest", &ret);
        let bytes = ret.encode().expect("a blob");
        Corpus::of("jam_blob").write("truncated", &bytes[..bytes.len() - 1]);
        Corpus::of("jam_blob").write("header", &bytes[..crate::HEADER_BYTES]);
        let imports =
            [Import { name: "memcpy", signature: 0 }, Import { name: "table_slot", signature: 7 }];
        let relocations = [
            Relocation { place: 16, value: 4 },
            Relocation { place: 32, value: DATA_DISTANCE + 40 },
        ];
        let all = Blob {
            features: Features::from_bits(3),
            needs_page: true,
            name: "indirect_put",
            property: Some("bench.Table@1"),
            entry: 4,
            entry_signature: 0x0123_4567_89ab_cdef,
            args_bytes: 16,
            element_bytes: 1,
            reply_bytes: 8,
            imports: &imports,
            relocations: &relocations,
            text: &[0xd6; 24],
            data: &[0; 48],
            ..Blob::new(Machine::Aarch64)
        };
        put("everything", &all);
        let x86_64 = Blob { machine: Machine::X86_64, entry: 3, ..all.clone() };
        put("x86-64", &x86_64);
        let (all, x86_64) = (all.encode().expect("a blob"), x86_64.encode().expect("a blob"));
        let jam =
            |machine, name, bytes| NewElement { kind: ElementKind::Jam, machine, name, bytes };
        let elements = [
            jam(Machine::X86_64, "answer", &bytes),
            jam(Machine::X86_64, "indirect_put", &x86_64),
            jam(Machine::Aarch64, "indirect_put", &all),
            NewElement {
                kind: ElementKind::Ried,
                machine: Machine::Aarch64,
                name: "tables",
                bytes: b"\x7fELF",
            },
        ];
        let put = |name, bytes: &[u8]| Corpus::of("jam_package").write(name, bytes);
        let none = encode_package("none", &[]).expect("a package");
        put("no-elements", &none);
        let several = encode_package("several", &elements).expect("a package");
        put("several", &several);
        let package = Package::parse(&several).expect("a package");
        let function = |element, kind, name, types| NewFunction { element, kind, name, types };
        let functions = [
            function(
                "indirect_put",
                FunctionKind::Entry,
                "indirect_put",
                "(&mut Table, u64) -> i64",
            ),
            function("indirect_put", FunctionKind::Import, "table_slot", "(&mut Table, u64)"),
            function("tables", FunctionKind::Export, "table_slot", "()"),
        ];
        let typed = encode_typed_package("typed", &elements, &functions).expect("a package");
        put("types", &typed);
        put("types-truncated", &typed[..typed.len() - 3]);
        put("signed", &sign_package(&package, b"signature").expect("a package"));
        put("truncated", &several[..several.len() - 1]);
        let signature = Signature {
            algorithm: Algorithm::EcdsaP256,
            job: Some(7),
            certificate: &[0x30; 40],
            signature: &[0x31; 70],
        };
        let signed = sign_package(&package, &signature.encode().expect("a block"));
        let signed = signed.expect("a package");
        put("signed-block", &signed);
        put("proof", &Package::parse(&signed).expect("a package").proof().expect("a proof"));
        let put = |name, bytes: &[u8]| Corpus::of("jam_library").write(name, bytes);
        let library = crate::library::tests::library();
        put("smallest", &library);
        put("truncated", &library[..library.len() - 1]);
        put("no-library", b"#!/bin/sh\n");
    }
}
