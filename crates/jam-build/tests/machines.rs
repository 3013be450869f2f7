//! Packages for several machines, and what is said where compilers for another machine are missing.
//!
//! Where rustc has no library for the other machine, the test of such a package checks the error that
//! says so, and prints that it skips the rest.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{JAMS, OTHER_TARGET, TARGET, built};
use jam_build::{Builder, Error};
use jam_format::{ElementKind, Machine, Package};
use tempfile::TempDir;

/// A folder `jams` in `folder` with these sources.
fn write(folder: &Path, sources: &[(&str, &str)]) -> PathBuf {
    let jams = folder.join("jams");
    for (name, text) in sources {
        let path = jams.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a source");
    }
    jams
}

/// A builder for a target, which works in `folder`.
fn builder(folder: &Path, target: &str) -> Builder {
    Builder::new(target, folder.join(target)).expect("a known target")
}

/// One for both machines, this one last.
fn both(folder: &Path) -> Builder {
    builder(folder, OTHER_TARGET).and(builder(folder, TARGET))
}

fn machine(target: &str) -> &str {
    target.split('-').next().expect("a machine")
}

#[test]
fn every_jam_is_in_the_package_for_each_machine() {
    let folder = TempDir::new().expect("a folder");
    let put = fs::read_to_string(format!("{JAMS}/indirect_put.rs")).expect("a source");
    let sources = [("indirect_put.rs", &put[..]), ("answer.rs", "pub fn answer() -> u64 { 42 }")];
    let jams = write(folder.path(), &sources);
    let package = match both(folder.path()).build(&jams) {
        Err(Error::NoLibrary { target }) => {
            assert_eq!(target, OTHER_TARGET);
            eprintln!("SKIPPED: rustc has no library for {target}: rustup target add {target}");
            return;
        }
        package => built(package),
    };
    let parsed = Package::parse(&package.bytes).expect("a package");
    let (x86, arm) = (Machine::X86_64, Machine::Aarch64);
    let elements = parsed.elements().iter().map(|e| (e.id, e.name, e.machine));
    let expected = [
        (0, "answer", x86),
        (0, "answer", arm),
        (1, "indirect_put", x86),
        (1, "indirect_put", arm),
    ];
    assert!(elements.eq(expected), "{parsed:?}");
    let listed = package.jams.iter().map(|jam| (&jam.name[..], jam.machine, &jam.blob[..]));
    assert!(listed.eq(parsed.elements().iter().map(|e| (e.name, e.machine, e.bytes))));
    assert!(parsed.elements().iter().all(|element| element.kind == ElementKind::Jam));
    // A program knows one of each.
    let module = package.module(Path::new("jams.jampkg"));
    assert!(module.contains("jams: &[&answer::ELEMENT, &indirect_put::ELEMENT]"), "{module}");
    assert_eq!(module.matches("pub mod indirect_put {").count(), 1, "{module}");
    // The same as if each had been built for itself.
    let own = built(builder(folder.path(), TARGET).build(&jams));
    let is_own = |machine: Machine| machine.name() == self::machine(TARGET);
    let of_own = package.jams.iter().filter(|jam| is_own(jam.machine)).map(|jam| &jam.blob);
    assert!(of_own.eq(own.jams.iter().map(|jam| &jam.blob)));
}

#[test]
fn what_a_package_for_several_machines_must_not_have() {
    let folder = TempDir::new().expect("a folder");
    let jams = write(folder.path(), &[("answer.rs", "pub fn answer() -> u64 { 42 }")]);
    let twice = builder(folder.path(), TARGET).and(builder(folder.path(), TARGET));
    let error = both(folder.path()).and(twice).build(&jams).unwrap_err().to_string();
    let expected = format!("{} twice: expected a machine once in a build", machine(TARGET));
    assert_eq!(error, expected);
    let source = "#[cfg(target_arch = \"x86_64\")]\n\
                  type Answer = u64;\n\
                  #[cfg(target_arch = \"aarch64\")]\n\
                  type Answer = u32;\n\
                  jam::plain! { pub struct Reply { pub answer: Answer } }\n\
                  pub fn answer() -> Reply { Reply { answer: 42 } }\n";
    let jams = write(folder.path(), &[("answer.rs", source)]);
    match both(folder.path()).build(jams) {
        Err(Error::NoLibrary { target }) => {
            eprintln!("SKIPPED: rustc has no library for {target}: rustup target add {target}");
        }
        result => {
            let expected = "`answer` has other types on aarch64 than on x86_64: expected the same on \
                            every machine of a package";
            assert_eq!(result.expect_err("the types differ").to_string(), expected);
        }
    }
}

#[test]
fn a_compiler_of_rust_without_the_library_of_the_target() {
    let folder = TempDir::new().expect("a folder");
    let jams = write(folder.path(), &[("answer.rs", "pub fn answer() -> u64 { 42 }")]);
    let rustc = folder.path().join("rustc");
    fs::write(&rustc, "#!/bin/sh\nexec rustc --sysroot /nowhere \"$@\"\n").expect("a script");
    fs::set_permissions(&rustc, fs::Permissions::from_mode(0o755)).expect("a program");
    let error = builder(folder.path(), OTHER_TARGET).rustc(rustc).build(jams).unwrap_err();
    let expected = format!(
        "no library of Rust for {OTHER_TARGET}: install it with `rustup target add {OTHER_TARGET}`"
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
#[ignore = "another test runs it without programs"]
fn without_programs() {
    let folder = PathBuf::from(std::env::var_os("JAM_FOLDER").expect("a variable"));
    println!("{}", builder(&folder, OTHER_TARGET).build(folder.join("jams")).unwrap_err());
}

/// The error of building these sources for the other machine where there are no programs.
fn error_without_programs(sources: &[(&str, &str)]) -> String {
    let folder = TempDir::new().expect("a folder");
    write(folder.path(), sources);
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "without_programs", "--ignored", "--nocapture"]);
    let variable = linker_variable();
    child.env("PATH", folder.path()).env("JAM_FOLDER", folder.path()).env_remove(variable);
    let output = child.output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed.replace(&format!("{}/", folder.path().display()), "")
}

fn linker_variable() -> String {
    format!("CARGO_TARGET_{}_LINKER", OTHER_TARGET.to_uppercase().replace('-', "_"))
}

#[test]
fn no_compiler_of_c() {
    let machine = machine(OTHER_TARGET);
    let (gcc, packages) = match machine {
        "aarch64" => ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
        _ => ("x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu libc6-dev-amd64-cross"),
    };
    let install = format!("on Debian, install it with `apt install {packages}`");
    let error = error_without_programs(&[("sum.c", "")]);
    let expected = format!(
        "no C compiler for {machine}, which jams/sum.c needs: expected {gcc} or clang; {install}\n"
    );
    assert!(error.contains(&expected), "{error} lacks {expected}");
    let error = error_without_programs(&[("prices/Cargo.toml", "")]);
    let expected = format!(
        "no C compiler for {machine}, which jams/prices/Cargo.toml needs: expected {gcc}, or a linker \
         that {} names; {install}\n",
        linker_variable()
    );
    assert!(error.contains(&expected), "{error} lacks {expected}");
}
