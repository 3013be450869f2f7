//! Runs commands where there are RDMA devices, on a machine that has none: in a small virtual machine
//! (a guest) with Debian's kernel, whose Soft-RoCE makes an RDMA device out of a network interface;
//! the real verbs libraries talk to it. docs/rdma-vm.md says what a command finds there.
//!
//! Nothing is installed on this machine: what is missing is downloaded from Debian and unpacked in
//! a cache.
//!
//! Reading order: [`apt`], `packages` and [`kernel`] (what is downloaded and made of it), [`archive`]
//! and [`task`] (what a guest starts with; its two scripts are `init.sh` and `guest.sh`), `qemu` (the
//! machine), `run` (from start to end), `watch` (what guests print and report meanwhile).

#![forbid(unsafe_code)]

mod packages;
mod qemu;
mod run;
mod watch;

pub mod apt;
pub mod archive;
pub mod kernel;
pub mod task;

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use gossamer_deploy::interrupt::Interrupt;

use crate::apt::Apt;
use crate::kernel::{Kernel, Version};
pub use crate::packages::check;
use crate::qemu::{Accelerator, utf8};
use crate::run::Run;
use crate::task::{Layout, Task, Work};

/// What to run, and in which guests.
#[derive(Debug)]
pub struct Vm {
    /// The simulated hosts, and the guests that they are in.
    pub layout: Layout,
    /// Debian's kernel.
    pub kernel: Version,
    /// What runs in every guest.
    pub work: Work,
    /// The time that the work may take once all guests are ready; none for no limit.
    pub timeout: Option<Duration>,
}

/// Downloads what guests with these kernels need into `cache`, unless it is there.
///
/// # Errors
/// If a package cannot be downloaded, or is not as expected.
pub fn fetch(cache: &Path, kernels: &[Version]) -> Result<()> {
    kernels.iter().try_for_each(|kernel| prepare(cache, *kernel).map(drop))
}

/// Runs guests with what is in `cache`; returns the exit status of the command, the first that was
/// not 0 if there are two guests, 124 after the timeout.
///
/// # Errors
/// If a guest does not start, or ends before its work does; also after a signal.
pub fn run(cache: &Path, vm: Vm) -> Result<u8> {
    check()?;
    let (packages, kernel) = prepare(cache, vm.kernel)?;
    let out = cache.join("out");
    make_folder(&out)?;
    let accelerator = Accelerator::find();
    if accelerator == Accelerator::Emulator {
        eprintln!("rdma-vm: no KVM of kvm_intel or kvm_amd on this machine: guests are emulated");
    }
    let task = Task {
        layout: vm.layout,
        work: vm.work,
        folder: utf8(&env::current_dir()?)?.to_owned(),
        out: utf8(&out)?.to_owned(),
        environment: environment(),
    };
    let (kernel, packages, timeout) = (&kernel, &packages, vm.timeout);
    Run { task: &task, kernel, packages, accelerator, timeout }.run(&Interrupt::new()?)
}

/// The environment of this process, as far as it is text.
fn environment() -> Vec<(String, String)> {
    let text =
        |(name, value): (OsString, OsString)| name.into_string().ok().zip(value.into_string().ok());
    env::vars_os().filter_map(text).collect()
}

/// Brings what guests need into `cache`, unless it is there. Other processes wait meanwhile.
fn prepare(cache: &Path, version: Version) -> Result<(PathBuf, Kernel)> {
    make_folder(cache)?;
    let lock = File::create(cache.join("lock"))?;
    lock.lock().context("cannot wait for another process that prepares a guest")?;
    let apt = Apt::new("rdma-vm", cache, &["amd64"]);
    Ok((packages::ready(cache, &apt)?, Kernel::ready(cache, &apt, version)?))
}

fn make_folder(folder: &Path) -> Result<()> {
    let made = fs::create_dir_all(folder);
    made.with_context(|| format!("cannot make the folder {}", folder.display()))
}
