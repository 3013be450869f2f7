//! `cargo xtask ahead`: builds what later gates need. `ci` starts it beside its first gates: a test that
//! waits, the last crate of a build and a linker leave processors idle. It runs with the lowest
//! priority, so that it takes only those; and it makes two builds at a time, since each ends with
//! crates that are compiled one after the other.
//!
//! It checks nothing: each gate builds again, and finds it done. So a failure here costs time only,
//! and is found, and shown, by the gate. All are made in folders of their own, or as releases, so the first
//! gates wait for no lock of cargo, and find no programs that were built for something else. So the tests
//! over RDMA, which share the folder of the other tests, are not among them.

use std::os::unix::process::parent_id;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::times::{HEADING, Times};
use crate::workspace::Workspace;
use crate::{checks, fuzz};

/// One thing to build.
type Build = fn(&Workspace) -> Result<()>;

/// The builds that are made at the same time.
const AT_ONCE: usize = 2;

/// What is built, in the order of the gates that need it.
const BUILDS: [(&str, Build); 4] = [
    ("tests with the switch of other processors, and on a nightly compiler", checks::build_others),
    ("programs", Workspace::build_programs),
    ("loom models", checks::build_loom),
    ("fuzz targets", |workspace| fuzz::build(workspace).map(drop)),
];

/// `cargo xtask ahead`. It goes on after a failure, and ends early if what started it has ended.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let parent = parent_id();
    let is_left = || parent_id() != parent;
    let (times, failed) = (Mutex::new(Times::new()), Mutex::new(Vec::new()));
    let builds = Mutex::new(BUILDS.iter());
    let next = || builds.lock().expect("no lane panics").next().filter(|_| !is_left());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((name, build)) = next() {
                    let start = Instant::now();
                    if let Err(error) = build(workspace) {
                        eprintln!("ahead: {name}: {error:#}");
                        failed.lock().expect("no lane panics").push(*name);
                    }
                    // Without the processors that it used: programs of the other lane count, too.
                    let mut times = times.lock().expect("no lane panics");
                    times.add(format!("ahead: {name}"), start.elapsed());
                }
            });
        }
    });
    ensure!(!is_left(), "what started this has ended: nothing more is built ahead");
    println!("{}", times.into_inner().expect("no lane panics"));
    let failed = failed.into_inner().expect("no lane panics");
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
