//! Tests that use up what their process may have, such as its descriptors, run alone in one of their own.

use std::env;
use std::process::Command;

/// Set in such a process.
const VARIABLE: &str = "GOSSAMER_TEST_OWN_PROCESS";

/// Runs the test with this path in a process of its own and returns true; false in that process, where
/// the caller goes on.
///
/// # Panics
/// If the test fails there, or is not one of this program.
pub(crate) fn runs_elsewhere(test: &str) -> bool {
    if env::var_os(VARIABLE).is_some() {
        return false;
    }
    let mut own = Command::new(env::current_exe().unwrap());
    let ran = own.args(["--exact", test]).env(VARIABLE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    true
}
