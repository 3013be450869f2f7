//! `cargo xtask ahead`: builds what later gates need. `ci` starts it beside its first gates: a test that
//! waits, the last crate of a build and a linker leave processors idle. It runs with the lowest
//! priority, so that it takes only those.
//!
//! It checks nothing: each gate builds again, and finds it done. So a failure here costs time only,
//! and is found, and shown, by the gate. All but the last build in folders of their own, where no other
//! gate waits for a lock of cargo.

use std::os::unix::process::parent_id;

use anyhow::{Result, ensure};

use crate::times::{HEADING, Times};
use crate::workspace::Workspace;
use crate::{checks, fuzz, rdma_test};

/// One thing to build.
type Build = fn(&Workspace) -> Result<()>;

/// What is built, in the order of the gates that need it.
const BUILDS: [(&str, Build); 6] = [
    ("tests with the switch of other processors, and on a nightly compiler", checks::build_others),
    ("loom models", checks::build_loom),
    ("hot path", checks::build_hotpath),
    ("fuzz targets", |workspace| fuzz::build(workspace).map(drop)),
    ("programs", Workspace::build_programs),
    // In the folder of the other tests, whose dependencies it shares.
    ("tests on RDMA devices", rdma_test::build_ahead),
];

/// `cargo xtask ahead`. It goes on after a failure, and ends early if what started it has ended.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut times = Times::new();
    let mut failed = Vec::new();
    let parent = parent_id();
    for (name, build) in BUILDS {
        ensure!(parent_id() == parent, "what started this has ended: nothing more is built ahead");
        if let Err(error) = times.of(format!("ahead: {name}"), || build(workspace)) {
            eprintln!("ahead: {name}: {error:#}");
            failed.push(name);
        }
    }
    println!("{times}");
    ensure!(failed.is_empty(), "not built ahead: {}", failed.join("; "));
    Ok(())
}

/// The times of the parts, and what failed, in what this command printed.
pub(crate) fn summary(printed: &str) -> &str {
    printed.rfind(HEADING).map_or("", |start| &printed[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_the_last_times_and_what_failed() {
        let printed = format!("Compiling\n{HEADING}\n 1\nCompiling\n{HEADING}\n 2\nfailed\n");
        assert_eq!(summary(&printed), format!("{HEADING}\n 2\nfailed\n"));
        assert_eq!(summary("killed"), "");
    }
}
