//! `gossamer jam` builds a package of jams and rieds, and shows what is in one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn jam(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gossamer"));
    command.arg("jam").args(arguments).output().expect("it runs")
}

const ADD: &str = "jam::property! { pub struct Total = \"test.Total@1\"; }\n\
                   jam::import! { fn total_add(total: &mut Total, value: u64); }\n\
                   pub fn add(total: &mut Total, args: u64, payload: &[u16]) {\n\
                   \x20   total_add(total, args + payload.len() as u64)\n\
                   }\n";

const LIMITS: &str = "ried::property! { pub struct Total = \"test.Total@1\"; }\n\
                      ried::interface! {\n\
                      \x20   import { fn total_add(total: &mut Total, value: u64); }\n\
                      \x20   export {\n\
                      \x20       fn total_add_some(total: &mut Total, value: u64) {\n\
                      \x20           total_add(total, value.min(9))\n\
                      \x20       }\n\
                      \x20   }\n\
                      }\n";

#[test]
fn a_ried_is_built_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, file) = (directory.path().join("sums"), directory.path().join("sums.jampkg"));
    let (folder_name, file_name) = (folder.to_str().unwrap(), file.to_str().unwrap());
    fs::create_dir_all(folder.join("limits/src")).unwrap();
    let ried = concat!(env!("CARGO_MANIFEST_DIR"), "/../ried");
    let manifest = format!(
        "[package]\nname = \"limits\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\nried = {{ package = \"gossamer-ried\", path = {ried:?} }}\n"
    );
    fs::write(folder.join("limits/Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("limits/src/lib.rs"), LIMITS).unwrap();
    let built = jam(&["build", folder_name, "--output", file_name]);
    assert_built(&built, &file, "1 ried");
    let shown = jam(&["inspect", file_name]);
    let text = String::from_utf8_lossy(&shown.stdout);
    let machine = std::env::consts::ARCH;
    for part in [
        &format!("0 ried limits for {machine}: ")[..],
        "  export fn total_add_some(&mut Total, u64) (",
        "  import fn total_add(&mut Total, u64) (",
        "  needs libc.so",
    ] {
        assert!(text.contains(part), "{text} lacks {part:?}");
    }
    names_do_not_control_the_terminal(&file);
}

/// That `jam build` says in one line what it has made.
fn assert_built(built: &Output, file: &Path, parts: &str) {
    let bytes = fs::metadata(file).unwrap().len();
    let line = format!("{}: {parts}, {bytes} bytes\n", file.display());
    assert_eq!(String::from_utf8_lossy(&built.stdout), line, "{built:?}");
    assert!(built.status.success(), "{built:?}");
}

/// The names of the libraries that a package's rieds need are its maker's choice.
fn names_do_not_control_the_terminal(file: &Path) {
    let (before, after) = (b"libc.so.6\0", b"\x1b[31mc.so\0");
    let bytes = fs::read(file).unwrap();
    let package = jam_format::Package::parse(&bytes).unwrap();
    let [ried] = package.elements() else { panic!("one ried") };
    let mut library = ried.bytes.to_vec();
    let at = library.windows(before.len()).position(|name| name == before).expect("a library");
    library[at..][..after.len()].copy_from_slice(after);
    for (bytes, expected) in
        [(&library[..], "\n  needs \\x1b[31mc.so\n"), (&library[..100], "\n  not loadable: ")]
    {
        let (kind, machine, name) = (ried.kind, ried.machine, ried.name);
        let element = jam_format::NewElement { kind, machine, name, bytes };
        fs::write(file, jam_format::encode_package("sums", &[element]).unwrap()).unwrap();
        let shown = jam(&["inspect", file.to_str().unwrap()]);
        let text = String::from_utf8(shown.stdout).unwrap();
        assert!(text.contains(expected) && !text.contains('\x1b'), "{text:?}");
    }
}

#[test]
fn a_package_is_built_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, file) = (directory.path().join("sums"), directory.path().join("sums.jampkg"));
    let (folder_name, file_name) = (folder.to_str().unwrap(), file.to_str().unwrap());
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("add.rs"), ADD).unwrap();
    let built = jam(&["build", folder_name, "--output", file_name]);
    assert_built(&built, &file, "1 jam");
    let shown = jam(&["inspect", file_name]);
    let text = String::from_utf8_lossy(&shown.stdout);
    let machine = std::env::consts::ARCH;
    for part in [
        "package sums: ",
        "  not signed\n",
        &format!("0 jam add for {machine}: "),
        "  property test.Total@1\n",
        "  arguments 8 bytes\n",
        "  payload elements 2 bytes\n",
        "  entry fn add(&mut Total, u64, &[u16]) (",
        "  import fn total_add(&mut Total, u64) (",
    ] {
        assert!(text.contains(part), "{text} lacks {part:?}");
    }
    assert!(!text.contains("result"), "{text}");

    fs::write(folder.join("add.rs"), "pub fn add(text: String) {}").unwrap();
    let refused = jam(&["build", folder_name, "--output", file_name]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("sums/add.rs:1:18: type `String` in an entry"), "{errors}");
    assert!(!refused.status.success());

    fs::write(&file, "JAMP").unwrap();
    let refused = jam(&["inspect", file_name]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("sums.jampkg: package of 4 bytes, expected 40"), "{errors}");
    let refused = jam(&["inspect", folder_name]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    let to_do = format!("expected a package: `gossamer jam build {folder_name}` builds one of it");
    assert!(errors.contains(&to_do), "{errors}");
}

/// A package `sums` with the jam `add` in a directory: its folder and its file, as text.
fn sums(directory: &Path) -> (String, String) {
    let folder = directory.join("sums");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("add.rs"), ADD).unwrap();
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    (text(folder), text(directory.join("sums.jampkg")))
}

/// Where rustc has no library for 64-bit ARM, this checks the error that says so.
#[test]
fn a_package_for_two_machines_is_built_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, file) = sums(directory.path());
    let both = ["--machine", "aarch64", "--machine", "x86-64"];
    let build = |more: &[&str]| jam(&[&["build", &folder, "--output", &file], more].concat());
    let built = build(&[&both[..], &["--features", "avx2,aes"]].concat());
    let errors = String::from_utf8_lossy(&built.stderr);
    if errors.contains("no library of Rust") {
        assert!(errors.contains("install it with `rustup target add "), "{errors}");
        eprintln!("SKIPPED: {errors}");
        return;
    }
    assert!(built.status.success(), "{errors}");
    let shown = jam(&["inspect", &file]);
    let text = String::from_utf8_lossy(&shown.stdout);
    let x86 = text.split("0 jam add for ").nth(1).expect("a jam");
    let arm = text.split("0 jam add for ").nth(2).expect("another jam");
    assert!(x86.starts_with("x86_64: ") && arm.starts_with("aarch64: "), "{text}");
    assert!(x86.contains("  processor features avx2, aes\n"), "{text}");
    assert!(arm.contains("  processor features aes\n"), "{text}");

    let refused = |more: &[&str], expected: &str| {
        let output = build(more);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(expected), "{errors}");
    };
    let features = &[&both[..], &["--features", "avx3"]].concat();
    refused(features, "unknown processor feature \"avx3\" of aarch64: expected one of crc, ");
    refused(&["--machine", "riscv64"], "unknown machine \"riscv64\": expected x86-64 or aarch64");
    refused(
        &["--machine", "x86-64", "--machine", "x86_64"],
        "x86_64 twice: expected a machine once",
    );
    let target = ["--machine", "x86-64", "--target", "x86_64-unknown-linux-musl"];
    refused(&target, "'--machine <MACHINE>' cannot be used with '--target <TARGET>'");
}

#[test]
fn the_code_of_a_package_is_shown_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, file) = sums(directory.path());
    let temporary = directory.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let built = jam(&["build", &folder, "--output", &file]);
    assert!(built.status.success(), "{built:?}");
    let inspect = |path: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gossamer"));
        command.args(["jam", "inspect", "--disassemble", &file]).env("TMPDIR", &temporary);
        let output = match path {
            Some(path) => command.env("PATH", path).output().unwrap(),
            None => command.output().unwrap(),
        };
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "nothing is left");
        output
    };
    let shown = inspect(None);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let (fields, code) = text.split_once(" <entry>:\n").expect("the entry");
    assert!(fields.contains("  import fn total_add(&mut Total, u64) ("), "{text}");
    let is_call = |line: &str| line.starts_with("  ") && line.contains("<total_add>");
    assert!(code.lines().any(is_call), "{text}");
    let plain = jam(&["inspect", &file]);
    assert!(!String::from_utf8_lossy(&plain.stdout).contains("<entry>"), "{plain:?}");

    let refused = inspect(Some(&temporary));
    let errors = String::from_utf8_lossy(&refused.stderr);
    let machine = std::env::consts::ARCH;
    let expected = format!("sums.jampkg: no disassembler for {machine}: expected one of objdump, ");
    assert!(!refused.status.success() && errors.contains(&expected), "{errors}");
}
