//! `gossamer jam` builds a package of jams and rieds, and shows what is in one.

use std::fs;
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
    assert!(built.status.success() && built.stdout.is_empty(), "{built:?}");
    let shown = jam(&["inspect", file_name]);
    let text = String::from_utf8_lossy(&shown.stdout);
    let machine = std::env::consts::ARCH;
    for part in [
        &format!("0 ried limits for {machine}: ")[..],
        "  export total_add_some ",
        "  import total_add ",
        "  needs libc.so",
    ] {
        assert!(text.contains(part), "{text} lacks {part:?}");
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
    assert!(built.status.success() && built.stdout.is_empty(), "{built:?}");
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
        "  import total_add ",
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
    assert!(errors.contains("sums.jampkg: package of 4 bytes, expected 20"), "{errors}");
}
