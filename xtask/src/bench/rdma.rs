//! `cargo xtask bench rdma`: the measurements that need RDMA devices. Their program is built on this
//! machine and runs in a guest ([`rdma_vm`](crate::rdma_vm)) that has two, on Debian's kernel 6.1.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::bench::{RdmaMeasuring, build_kv};
use crate::step::{Step, itself};
use crate::workspace::{Workspace, executable};

/// The program.
const PROGRAM: &str = "rdma-bench";
/// The timeout of a round of all cases, emulated, in seconds; most of it is the start of processes.
const ROUND: u32 = 400;

/// Builds the program, runs it in a guest, and brings its results here.
pub(crate) fn run(workspace: &Workspace, measuring: &RdmaMeasuring) -> Result<()> {
    let RdmaMeasuring { how, plot } = measuring;
    let build = "build --release --message-format json-render-diagnostics --bin";
    let build = Step::cargo(&workspace.benchmarks("rdma")?, build).arg(PROGRAM);
    let program = executable(&build.capture()?, PROGRAM)?;
    let kv = build_kv(workspace)?;
    // Files in other folders are removed with the guest.
    let out = workspace.target().join("rdma-vm/out");
    fs::create_dir_all(&out)?;
    let there = |name: &str, here: &Option<PathBuf>| Some((out.join(name), here.clone()?));
    let (rows, picture) = (there("rdma-bench.json", &how.json), there("rdma-bench.svg", plot));
    let timeout = how.rounds.saturating_mul(ROUND);
    let step = Step::program(&workspace.root, itself(), "rdma-vm --timeout");
    let step = step.arg(timeout.to_string()).arg("--").arg(program).arg("--kv").arg(kv);
    let mut step = how.applied_to(step, rows.as_ref().map(|(there, _)| &**there));
    if let Some((there, _)) = &picture {
        step = step.arg("--plot").arg(there);
    }
    let ran = step.run();
    // Also if some case failed: the figures of the others are of use.
    for (there, here) in rows.into_iter().chain(picture).filter(|(there, _)| there.exists()) {
        let copied = fs::copy(&there, &here);
        copied.with_context(|| format!("cannot copy {} to {}", there.display(), here.display()))?;
        fs::remove_file(there)?;
    }
    ran
}
