//! The committed jams, built for another machine than this one; `execute.rs` can run them there.

mod common;

use std::env;
use std::fs;
use std::path::PathBuf;

use common::{JAMS, builder, built};
use jam_format::Parsed;

/// Builds for `JAM_TEST_TARGET` with `JAM_TEST_RUSTC` and `JAM_TEST_CC`, and writes each blob to the
/// folder `JAM_TEST_BLOBS`.
#[test]
#[ignore = "needs compilers for another machine: cargo xtask test --aarch64"]
fn write_blobs() {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("no variable {name}"));
    let (_folder, builder) = builder(&variable("JAM_TEST_TARGET"));
    let builder = builder.rustc(variable("JAM_TEST_RUSTC")).cc(variable("JAM_TEST_CC"));
    let blobs = PathBuf::from(variable("JAM_TEST_BLOBS"));
    fs::create_dir_all(&blobs).expect("a folder");
    for jam in built(builder.build(JAMS)).jams {
        let blob = Parsed::parse(&jam.blob).expect("a blob");
        let machine = blob.machine();
        println!("{}: {} bytes for {machine}", jam.name, jam.blob.len());
        let file = jam.path.file_name().expect("a file");
        fs::write(blobs.join(file), &jam.blob).expect("a blob is written");
    }
}
