//! Builds jams in tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use jam_build::{Builder, BuiltJam, Error};
use tempfile::TempDir;

/// The target of this machine.
pub(crate) const TARGET: &str = if cfg!(target_arch = "x86_64") {
    "x86_64-unknown-linux-gnu"
} else {
    "aarch64-unknown-linux-gnu"
};

/// The target of another machine.
pub(crate) const OTHER_TARGET: &str = if cfg!(target_arch = "x86_64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

/// The folder of the committed jams, as cargo runs tests in the folder of the crate.
pub(crate) const JAMS: &str = "tests/jams";

/// A folder for the compilers, and a builder that uses it.
pub(crate) fn builder(target: &str) -> (TempDir, Builder) {
    let folder = TempDir::new().expect("a folder for the compilers");
    let builder = Builder::new(target, folder.path().join("work")).expect("a known target");
    (folder, builder)
}

/// Builds the committed jam in `file`.
pub(crate) fn build(file: &str) -> BuiltJam {
    let (_folder, builder) = builder(TARGET);
    built(builder.build_jam(Path::new(JAMS).join(file)))
}

/// The blob of the committed jam in `file`: from the folder of blobs, if there is one.
pub(crate) fn blob(file: &str) -> Vec<u8> {
    match env::var_os("JAM_TEST_BLOBS") {
        Some(folder) => fs::read(Path::new(&folder).join(file)).expect("a blob"),
        None => build(file).blob,
    }
}

/// What was built; fails with the whole chain of errors.
pub(crate) fn built<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("{error:?}"))
}

/// Writes a source `name` with this text to a folder `jams`, and builds it; returns the error.
pub(crate) fn error_of(name: &str, text: &str) -> Error {
    error_for(TARGET, name, text)
}

/// As [`error_of`], for another target.
pub(crate) fn error_for(target: &str, name: &str, text: &str) -> Error {
    let (folder, builder) = builder(target);
    let jams: PathBuf = folder.path().join("jams");
    fs::create_dir(&jams).expect("a folder");
    fs::write(jams.join(name), text).expect("a source");
    builder.build_jam(jams.join(name)).expect_err("it cannot be built")
}
