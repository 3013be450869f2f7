//! Blobs as bytes and back: any blob returns as it was, and no change of its bytes makes the parser
//! panic.

use gossamer_jam_format::{
    Blob, BlobError, DATA_DISTANCE, Features, HEADER_BYTES, Import, MAX_BLOB_BYTES, Machine,
    NameKind, Parsed, Relocation, SLOT_BYTES,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

/// A blob that owns its parts.
#[derive(Clone, Debug)]
struct Owned {
    machine: Machine,
    needs_page: bool,
    features: u64,
    name: String,
    property: Option<String>,
    entry: u32,
    signature: u64,
    sizes: (u32, u32, u32),
    imports: Vec<(String, u64)>,
    relocations: Vec<Relocation>,
    text: Vec<u8>,
    data: Vec<u8>,
}

impl Owned {
    fn encode(&self) -> Result<Vec<u8>, BlobError> {
        let imports: Vec<_> = self.imports.iter().map(|(name, s)| import(name, *s)).collect();
        let blob = Blob {
            machine: self.machine,
            features: Features::from_bits(self.features),
            needs_page: self.needs_page,
            name: &self.name,
            property: self.property.as_deref(),
            entry: self.entry,
            entry_signature: self.signature,
            args_bytes: self.sizes.0,
            element_bytes: self.sizes.1,
            reply_bytes: self.sizes.2,
            imports: &imports,
            relocations: &self.relocations,
            text: &self.text,
            data: &self.data,
        };
        blob.encode()
    }
}

fn import(name: &str, signature: u64) -> Import<'_> {
    Import { name, signature }
}

prop_compose! {
    fn blobs()(
        machine in select(&Machine::ALL),
        needs_page in any::<bool>(),
        features in 0..1_u64 << 15,
        name in "[a-z_]{1,20}",
        property in proptest::option::of("[!-~]{1,255}"),
        signature in any::<u64>(),
        sizes in (0..=4096_u32, 0..=65536_u32, 0..=256_u32),
        imports in btree_map("[!-~]{1,40}", any::<u64>(), 0..8),
        text in vec(any::<u8>(), 4..200),
        words in vec(any::<u64>(), 0..20),
        places in btree_set(0..20_usize, 0..10),
        value in any::<u32>(),
        entry in any::<u32>(),
    ) -> Owned {
        let imports: Vec<_> = imports.into_iter().collect();
        let mut data = vec![0; imports.len() * SLOT_BYTES];
        data.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let mut relocations = Vec::new();
        for word in places.into_iter().filter(|word| *word < words.len()) {
            let place = (imports.len() + word) * SLOT_BYTES;
            data[place..place + SLOT_BYTES].fill(0);
            let (len, base) = if value & 1 == 0 {
                (text.len(), 0)
            } else {
                (data.len(), DATA_DISTANCE)
            };
            let value = base + value % (len as u32 + 1);
            relocations.push(Relocation { place: place as u32, value });
        }
        let entry = (entry % text.len() as u32) & !3;
        Owned {
            machine, needs_page, features, name, property, entry, signature, sizes, imports,
            relocations, text, data,
        }
    }
}

proptest! {
    #[test]
    fn a_blob_returns_as_it_was(blob in blobs()) {
        let bytes = blob.encode().unwrap();
        let parsed = Parsed::parse(&bytes).unwrap();
        prop_assert_eq!(parsed.machine(), blob.machine);
        prop_assert_eq!(parsed.alignment(), if blob.needs_page { 4096 } else { 64 });
        prop_assert_eq!(parsed.features().bits(), blob.features);
        prop_assert_eq!(parsed.name(), &blob.name);
        prop_assert_eq!(parsed.property(), blob.property.as_deref());
        prop_assert_eq!(parsed.entry(), blob.entry);
        prop_assert_eq!(parsed.entry_signature(), blob.signature);
        let sizes = (parsed.args_bytes(), parsed.element_bytes(), parsed.reply_bytes());
        prop_assert_eq!(sizes, blob.sizes);
        let imports: Vec<_> = parsed.imports().map(|i| (i.name.to_owned(), i.signature)).collect();
        prop_assert_eq!(imports, blob.imports);
        prop_assert_eq!(parsed.relocations().collect::<Vec<_>>(), blob.relocations);
        prop_assert_eq!(parsed.text(), &blob.text);
        prop_assert_eq!(parsed.data(), &blob.data);
        prop_assert_eq!(parsed.bytes(), &bytes);
    }

    #[test]
    fn one_changed_byte_is_an_error_or_another_blob(
        blob in blobs(), at in any::<prop::sample::Index>(), value in any::<u8>(),
    ) {
        let mut bytes = blob.encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = value;
        walk(&bytes);
    }

    #[test]
    fn a_truncated_or_extended_blob_is_an_error(blob in blobs(), len in any::<prop::sample::Index>()) {
        let mut bytes = blob.encode().unwrap();
        prop_assert!(Parsed::parse(&bytes[..len.index(bytes.len())]).is_err());
        bytes.push(0);
        let len = bytes.len();
        prop_assert_eq!(
            Parsed::parse(&bytes).unwrap_err(),
            BlobError::Length { len, expected: len - 1 }
        );
    }

    #[test]
    fn random_bytes_do_no_harm(mut bytes in vec(any::<u8>(), 0..200), is_repaired in any::<bool>()) {
        if is_repaired && bytes.len() >= HEADER_BYTES {
            bytes[..8].copy_from_slice(b"JAM3\x01\0\0\0");
            let len = bytes.len() as u32;
            bytes[52..56].copy_from_slice(&len.to_le_bytes());
        }
        walk(&bytes);
    }
}

/// Touches every part of what the parser accepts.
fn walk(bytes: &[u8]) {
    match Parsed::parse(bytes) {
        Ok(parsed) => {
            let names = parsed.imports().map(|import| import.name.len()).sum::<usize>();
            let places = parsed.relocations().map(|r| r.place as usize).max().unwrap_or(0);
            assert!(names + places < bytes.len() + parsed.data().len());
            assert!((parsed.entry() as usize) < parsed.text().len());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A blob with one import and one relocation, which is changed to break one rule each.
fn sample() -> Owned {
    Owned {
        machine: Machine::X86_64,
        needs_page: false,
        features: 0,
        name: "sample".to_owned(),
        property: None,
        entry: 0,
        signature: 1,
        sizes: (0, 0, 0),
        imports: vec![("a".to_owned(), 1), ("b".to_owned(), 2)],
        relocations: vec![Relocation { place: 16, value: 8 }],
        text: vec![0xc3; 8],
        data: vec![0; 32],
    }
}

fn refused(change: impl FnOnce(&mut Owned)) -> String {
    let mut blob = sample();
    change(&mut blob);
    blob.encode().expect_err("it breaks a rule").to_string()
}

#[test]
fn a_header_that_claims_another_length_is_an_error() {
    let bytes = sample().encode().unwrap();
    let len = bytes.len();
    for claimed in [0, len - 1, len + 1, u32::MAX as usize] {
        let mut bytes = bytes.clone();
        bytes[52..56].copy_from_slice(&(claimed as u32).to_le_bytes());
        let error = Parsed::parse(&bytes).unwrap_err();
        assert_eq!(error, BlobError::Length { len, expected: claimed });
    }
}

fn refused_bytes(at: usize, value: u8) -> String {
    let mut bytes = sample().encode().unwrap();
    bytes[at] = value;
    Parsed::parse(&bytes).expect_err("it breaks a rule").to_string()
}

#[test]
fn each_rule_has_its_error() {
    assert!(sample().encode().is_ok());
    let not_a_blob = "not a blob: it begins with \"KAM3\", expected \"JAM3\"";
    assert_eq!(refused_bytes(0, b'K'), not_a_blob);
    assert_eq!(refused_bytes(4, 3), "machine 3 of a blob, expected 1 (x86_64) or 2 (aarch64)");
    assert_eq!(refused_bytes(5, 2), "flags 0x02 of a blob, expected 0 or 1");
    let padding = HEADER_BYTES + 2 * 8 + 8 + 2 + 6 + 2;
    assert_eq!(
        refused_bytes(padding, 1),
        format!("byte {padding} of a blob is padding, expected 0")
    );
    let slot = sample().encode().unwrap().len() - 32;
    assert_eq!(
        refused_bytes(slot + 9, 1),
        format!("byte {} of a blob is padding, expected 0", slot + 9)
    );
    assert_eq!(
        refused(|blob| blob.features = 1 << 40),
        "required features 0x10000000000 of a blob, expected only known ones"
    );
    assert_eq!(
        refused(|blob| blob.entry = 8),
        "entry at 8 of a blob's text of 8 bytes, expected an instruction in it"
    );
    assert_eq!(
        refused(|blob| (blob.machine, blob.entry) = (Machine::Aarch64, 2)),
        "entry at 2 of a blob's text of 8 bytes, expected an instruction in it"
    );
    assert_eq!(
        refused(|blob| blob.data.truncate(15)),
        "data of 15 bytes in a blob, expected a slot of 8 for each of 2 imports"
    );
    assert_eq!(
        refused(|blob| blob.name.clear()),
        "name of the jam in a blob: expected 1 to 255 printable ASCII characters"
    );
    assert_eq!(
        refused(|blob| blob.property = Some("x y".to_owned())),
        "name of the property in a blob: expected 1 to 255 printable ASCII characters"
    );
    assert_eq!(
        refused(|blob| blob.imports[1].0 = "b".repeat(256)),
        "name of import 1 in a blob: expected 1 to 255 printable ASCII characters"
    );
    for name in ["a", "A"] {
        assert_eq!(
            refused(|blob| blob.imports[1].0 = name.to_owned()),
            "import 1 of a blob: expected a name that sorts after the previous one"
        );
    }
    let sizes = |sizes| refused(|blob| blob.sizes = sizes);
    assert_eq!(sizes((4097, 0, 0)), "arguments of 4097 bytes, expected at most 4096");
    assert_eq!(sizes((0, 65537, 0)), "payload elements of 65537 bytes, expected at most 65536");
    assert_eq!(sizes((0, 0, 257)), "result of 257 bytes, expected at most 256");
    assert_eq!(
        BlobError::Name { of: NameKind::Import(0) },
        Parsed::parse(&{
            let mut bytes = sample().encode().unwrap();
            // The first name has no characters, the second both.
            (bytes[80], bytes[81]) = (0, 2);
            bytes
        })
        .unwrap_err()
    );
}

#[test]
fn a_relocation_is_in_data_and_points_into_the_jam() {
    let with = |relocations: Vec<Relocation>| refused(|blob| blob.relocations = relocations);
    let at = |place, value| Relocation { place, value };
    let of = |place| format!("relocation 0 of a blob, of the word at {place} in data: expected ");
    assert_eq!(with(vec![at(17, 0)]), of(17) + "a multiple of 8");
    let after = "a place after the imports and the previous relocation";
    assert_eq!(with(vec![at(8, 0)]), of(8) + after);
    assert!(with(vec![at(16, 0), at(16, 0)]).ends_with(after));
    assert_eq!(with(vec![at(32, 0)]), of(32) + "a place in data");
    assert_eq!(with(vec![at(u32::MAX - 7, 0)]), of(u32::MAX - 7) + "a place in data");
    for value in [9, DATA_DISTANCE - 1, DATA_DISTANCE + 33, u32::MAX] {
        assert_eq!(with(vec![at(16, value)]), of(16) + "a value in text or data");
    }
    let word = refused(|blob| blob.data[16] = 1);
    assert_eq!(word, of(16) + "the word to be 0");
}

#[test]
fn lengths_are_limited() {
    let long = refused(|blob| blob.text = vec![0xc3; MAX_BLOB_BYTES]);
    assert!(long.ends_with("bytes, expected at most 983040"), "{long}");
    let mut blob = sample();
    blob.text = vec![0xc3; MAX_BLOB_BYTES - 256];
    assert!(blob.encode().is_ok());
    let relocations = vec![Relocation { place: 16, value: 0 }; 1 << 16];
    assert_eq!(
        refused(|blob| blob.relocations = relocations),
        "65536 relocations of a jam, expected at most 65535"
    );
}
