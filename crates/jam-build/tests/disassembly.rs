//! The text of jams as instructions, with the names of their imports.

mod common;

use std::fs;
use std::process::Command;

use common::{OTHER_TARGET, TARGET, blob, builder, built};
use jam_build::{Error, disassemble};
use jam_format::Parsed;
use tempfile::TempDir;

/// The listing of a blob. The file for the disassembler is gone after it.
fn listing(blob: &[u8]) -> Result<String, Error> {
    let folder = TempDir::new().expect("a folder");
    let blob = Parsed::parse(blob).expect("a blob");
    let listed = disassemble(&blob, &folder.path().join("jam.o"));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "the file is removed");
    listed
}

#[test]
fn a_jam_of_this_machine() {
    let listed = listing(&blob("indirect_put.rs")).unwrap_or_else(|error| panic!("{error:?}"));
    assert!(listed.contains("<entry>:\n"), "{listed}");
    let calls = |name: &str| {
        listed.lines().any(|line| {
            (line.contains("\tcall") || line.contains("\tbl\t"))
                && line.contains(&format!("<{name}>"))
        })
    };
    for import in ["table_key", "table_place", "table_slots", "table_write"] {
        assert!(calls(import), "no call of {import}: {listed}");
    }
    assert!(!listed.contains("file format"), "{listed}");
}

/// Needs a disassembler that knows the machine, or is told that there is none.
#[test]
fn a_jam_of_another_machine() {
    let call = if OTHER_TARGET.starts_with("aarch64") { "\tbl" } else { "\tcall" };
    let (_folder, builder) = builder(OTHER_TARGET);
    let jam = match builder.build_jam("tests/jams/indirect_put.rs") {
        Err(Error::NoLibrary { target }) => {
            eprintln!("SKIPPED: rustc has no library for {target}");
            return;
        }
        jam => built(jam),
    };
    match listing(&jam.blob) {
        Ok(listed) => {
            let is_call = |line: &str| line.contains(call) && line.contains("<table_write>");
            assert!(listed.contains("<entry>:\n") && listed.lines().any(is_call), "{listed}");
        }
        Err(Error::NoDisassembler { .. }) => {
            eprintln!("SKIPPED: no disassembler of this system knows {OTHER_TARGET}");
        }
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
#[ignore = "another test runs it without programs"]
fn without_programs() {
    let blob = fs::read(std::env::var_os("JAM_BLOB").expect("a variable")).expect("a blob");
    println!("{}", listing(&blob).expect_err("there is no disassembler"));
}

#[test]
fn no_disassembler() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("put.jam");
    fs::write(&file, blob("indirect_put.rs")).expect("a file");
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", "without_programs", "--ignored", "--nocapture"]);
    let output = child.env("PATH", folder.path()).env("JAM_BLOB", &file).output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let machine = TARGET.split('-').next().expect("a machine");
    let expected = format!(
        "no disassembler for {machine}: expected one of objdump, llvm-objdump, \
         {machine}-linux-gnu-objdump that knows it; on Debian, install one with `apt install \
         binutils-multiarch` or `apt install llvm`\n"
    );
    assert!(output.status.success() && printed.contains(&expected), "{printed}");
}
