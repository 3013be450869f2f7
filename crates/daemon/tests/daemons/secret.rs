//! `gossamer secret` prints a secret, or writes it to a file that only its owner can read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use gossamer_job::Secret;

fn secret(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gossamer"));
    command.arg("secret").args(arguments).output().expect("it runs")
}

#[test]
fn a_secret_is_printed_or_written_to_a_private_file() {
    let printed = secret(&[]);
    let printed: Secret = String::from_utf8(printed.stdout).unwrap().parse().unwrap();

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    fs::write(&path, "an older one that everybody can read").unwrap();
    let written = secret(&["--file", path.to_str().unwrap()]);
    assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let written: Secret = fs::read_to_string(&path).unwrap().parse().unwrap();
    assert!(written != printed, "each is a new one");

    let refused = secret(&["--file", "/nonexistent/secret"]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && errors.contains("/nonexistent/secret"), "{errors}");
}
