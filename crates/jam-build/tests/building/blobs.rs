//! The committed jams, built: what their blobs contain, and how large they are.

use std::path::Path;

use jam_abi::{Abi, entry::Types, signature};
use jam_format::{DATA_DISTANCE, Machine, Package, Parsed};

use crate::common::{JAMS, TARGET, build, builder, built};

mod types {
    jam_abi::plain! {
        pub struct PutArgs { pub key: u64, pub offset: u64 }
    }

    jam_abi::property! {
        pub struct Table = "bench.Table@1";
        pub struct Results = "bench.Results@1";
    }
}

fn imports(blob: &Parsed<'_>) -> Vec<(String, u64)> {
    blob.imports().map(|import| (import.name.to_owned(), import.signature)).collect()
}

#[test]
fn indirect_put_is_small() {
    let jam = build("indirect_put.rs");
    let blob = Parsed::parse(&jam.blob).unwrap();
    assert!(jam.blob.len() <= 600, "{} bytes", jam.blob.len());
    assert_eq!(Some(blob.machine()), Machine::CURRENT);
    assert_eq!((blob.name(), blob.property()), ("indirect_put", Some("bench.Table@1")));
    assert_eq!((blob.args_bytes(), blob.element_bytes(), blob.reply_bytes()), (16, 1, 8));
    type Put = Types<&'static mut types::Table, types::PutArgs, u8, i64>;
    assert_eq!(blob.entry_signature(), Put::SIGNATURE);
    let table = <&types::Table as Abi>::SIGNATURE;
    let word = <u64 as Abi>::SIGNATURE;
    let write = [<&mut types::Table as Abi>::SIGNATURE, word, <&[u8] as Abi>::SIGNATURE];
    let expected = [
        ("table_key", signature::of_function(&[table, word], word)),
        ("table_place", signature::of_function(&[table, word], word)),
        ("table_slots", signature::of_function(&[table], word)),
        ("table_write", signature::of_function(&write, <bool as Abi>::SIGNATURE)),
    ];
    assert_eq!(imports(&blob), expected.map(|(name, signature)| (name.to_owned(), signature)));
    assert_eq!(blob.relocations().len(), 0);
    assert_eq!(blob.data().len(), 4 * 8);
}

#[test]
fn a_sum_has_one_import_and_no_data() {
    let jam = build("server_side_sum.rs");
    let blob = Parsed::parse(&jam.blob).unwrap();
    assert_eq!(blob.imports().map(|import| import.name).collect::<Vec<_>>(), ["results_push"]);
    assert_eq!((blob.args_bytes(), blob.element_bytes(), blob.reply_bytes()), (0, 4, 8));
    assert!(jam.blob.len() < 700, "{} bytes", jam.blob.len());
}

#[test]
fn torture_has_everything() {
    let jam = build("torture.rs");
    let blob = Parsed::parse(&jam.blob).unwrap();
    let names: Vec<_> = blob.imports().map(|import| import.name).collect();
    for name in ["__jam_panic", "memcpy", "remainder", "triple"] {
        assert!(names.contains(&name), "no import {name} in {names:?}");
    }
    // Function pointers and vtables point to code, tables of references to data.
    let (text, data): (Vec<_>, Vec<_>) = blob.relocations().partition(|r| r.value < DATA_DISTANCE);
    assert!(text.len() >= 6 && data.len() >= 2, "{text:?} {data:?}");
    assert_eq!(blob.property(), None);
    let file = "tests/jams/torture.rs";
    let has_file = blob.data().windows(file.len()).any(|bytes| bytes == file.as_bytes());
    assert!(has_file, "a panic does not name the file as its author does");
}

#[test]
fn a_jam_in_c_has_the_signatures_of_rust() {
    let jam = build("weighted_sum.c");
    let blob = Parsed::parse(&jam.blob).unwrap();
    type Sum = Types<&'static mut types::Results, u64, i32, i64>;
    assert_eq!(blob.entry_signature(), Sum::SIGNATURE);
    assert_eq!(blob.property(), Some("bench.Results@1"));
    let word = <u64 as Abi>::SIGNATURE;
    let push = [<&mut types::Results as Abi>::SIGNATURE, <i64 as Abi>::SIGNATURE];
    let equal =
        [<&str as Abi>::SIGNATURE, <*const u8 as Abi>::SIGNATURE, <usize as Abi>::SIGNATURE];
    let expected = [
        ("results_push", signature::of_function(&push, word)),
        ("text_equal", signature::of_function(&equal, <bool as Abi>::SIGNATURE)),
        ("weight_of", signature::of_function(&[word], <i64 as Abi>::SIGNATURE)),
    ];
    assert_eq!(imports(&blob), expected.map(|(name, signature)| (name.to_owned(), signature)));
    // One function of the jam and, by its thunk, one of the receiver.
    assert_eq!(blob.relocations().filter(|r| r.value < DATA_DISTANCE).count(), 2);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn large_frames_in_c_touch_each_of_their_pages() {
    let (folder, builder) = builder(TARGET);
    let source = folder.path().join("deep.c");
    let text = "#include \"jam.h\"\n\
                JAM_SIGNATURE(void, void, uint8_t);\n\
                int64_t JAM_ENTRY(jam_call *call) {\n\
                volatile char room[65536];\n\
                room[call->payload_len & 1] = 1;\n\
                return room[0];\n\
                }";
    std::fs::write(&source, text).unwrap();
    let jam = built(builder.build_jam(&source));
    let blob = Parsed::parse(&jam.blob).unwrap();
    // As gcc and clang write to the lowest word: or qword ptr [rsp], 0; mov qword ptr [rsp], 0.
    let touches: [&[u8]; 2] = [&[0x48, 0x83, 0x0c, 0x24, 0], &[0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0]];
    let has = |bytes: &[u8]| blob.text().windows(bytes.len()).any(|window| window == bytes);
    assert!(touches.into_iter().any(has), "{:02x?}", blob.text());
}

#[test]
fn builds_are_reproducible() {
    let all = || {
        let (_folder, builder) = builder(TARGET);
        built(builder.build(JAMS)).bytes
    };
    let bytes = all();
    assert!(bytes == all(), "two builds in two folders differ");
    let package = Package::parse(&bytes).unwrap();
    let names: Vec<_> = package.elements().iter().map(|element| element.name).collect();
    assert_eq!(names, ["indirect_put", "server_side_sum", "torture", "weighted_sum"]);
    assert_eq!(package.name(), "jams");
}

#[test]
fn required_features_are_in_the_blob() {
    let name = if TARGET.starts_with("x86_64") { "avx2" } else { "dotprod" };
    let (_folder, builder) = builder(TARGET);
    let builder = builder.features(&[name]).unwrap();
    for file in ["server_side_sum.rs", "weighted_sum.c"] {
        let jam = built(builder.build_jam(Path::new(JAMS).join(file)));
        let blob = Parsed::parse(&jam.blob).unwrap();
        assert_eq!(blob.features().names(blob.machine()).collect::<Vec<_>>(), [name], "{file}");
    }
}
