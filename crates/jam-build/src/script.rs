//! What a build script calls: [`package()`].

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::builder::{Builder, BuiltPackage};
use crate::compile;
use crate::error::Error;

/// Builds the package of the jams and rieds in `folder`, in a build script: writes `NAME.jampkg` and
/// `NAME.rs` to `OUT_DIR`, where `NAME` is the folder's, for the target, the compiler and the folder
/// that cargo says; [`Builder`] builds for several machines. Cargo then runs the script again when a source changes.
///
/// # Errors
/// [`Error`]; a build script that returns it fails with its message.
pub fn package(folder: impl AsRef<Path>) -> Result<BuiltPackage, Error> {
    let variable = |name| env::var_os(name).ok_or(Error::NoVariable { name });
    let folder = folder.as_ref();
    println!("cargo::rerun-if-changed={}", folder.display());
    let out = PathBuf::from(variable("OUT_DIR")?);
    let target = variable("TARGET")?.to_string_lossy().into_owned();
    let mut builder = Builder::new(&target, out.join("jam-build"))?.rustc(variable("RUSTC")?);
    let is_own = env::var("HOST").is_ok_and(|host| host == target);
    // As build scripts name the C compiler of a target.
    let names = [format!("CC_{}", target.replace('-', "_")), "CC".to_owned()];
    let usable = if is_own { &names[..] } else { &names[..1] };
    for name in usable {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let is_set = |cc: &OsString| !cc.is_empty();
    if let Some(cc) = usable.iter().filter_map(env::var_os).find(is_set) {
        builder = builder.cc(cc);
    }
    let built = builder.build(folder)?;
    // What they include may be elsewhere.
    let of_jams = built.jams.iter().flat_map(|jam| &jam.sources);
    let sources = of_jams.chain(built.rieds.iter().flat_map(|ried| &ried.sources));
    // What build scripts make is always newer than their start, so cargo would run them every time.
    for source in sources.filter(|source| !source.starts_with(&out)) {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    let file = out.join(format!("{}.jampkg", built.name));
    compile::write(&file, &built.bytes)?;
    let library = builder.c_locals(&built, folder, &out)?;
    if library.is_some() {
        println!("cargo::rustc-link-search=native={}", out.display());
    }
    let module = built.module_with(&file, library.as_deref());
    compile::write(&out.join(format!("{}.rs", built.name)), module)?;
    Ok(built)
}
