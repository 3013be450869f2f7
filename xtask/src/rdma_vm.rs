//! `cargo xtask rdma-vm`: runs a command where there are RDMA devices, on a machine that has none.
//! It boots a small virtual machine (a guest) with Debian's kernel, whose Soft-RoCE makes an RDMA
//! device out of a network interface; the real verbs libraries talk to it. docs/rdma-vm.md says
//! what a command finds there.
//!
//! Nothing is installed on this machine: what is missing is downloaded from Debian and unpacked in
//! a folder of the build output.
//!
//! Reading order: [`packages`] and [`kernel`] (what is downloaded and made of it), [`archive`] and
//! [`guest`] (what a guest starts with; its two scripts are `init.sh` and `guest.sh`), [`qemu`]
//! (the machine), [`mod@run`] (from start to end), [`watch`] (what guests print and say meanwhile).

mod archive;
mod guest;
mod kernel;
mod packages;
mod qemu;
mod run;
mod watch;

use crate::apt::Apt;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use clap::Args;
use gossamer_deploy::interrupt::Interrupt;
use guest::{Layout, Task, Work};
use kernel::Kernel;
pub(crate) use kernel::Version;
pub(crate) use packages::check;
use qemu::{Accelerator, utf8};
use run::Run;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What `--help` says beyond the flags.
const HELP: &str = "\
The command is root in the guest, in this folder and with this environment. It sees this machine's
files; what it writes is gone at the end, but for the folder GOSSAMER_VM_OUT. It also finds:

  GOSSAMER_RDMA_HOSTS  RDMA device and address of each host: rxe0,10.77.0.1;rxe1,10.77.0.2
  GOSSAMER_VM_GUEST    which guest this is, from 0; with --guests 2 also which host
  GOSSAMER_VM_GUESTS   how many guests there are
  GOSSAMER_VM_OUT      the folder that it shares with this machine, target/rdma-vm/out

Exit status: that of the command (of the first that fails, if there are two guests); 124 if it was
cut off; 1 if there was no guest to run it in, for the reason that is printed.";

/// What to run, and where.
#[derive(Args)]
#[command(after_long_help = HELP)]
pub(crate) struct RdmaVm {
    /// Simulated hosts, each with an RDMA device and an address [default: 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16))]
    hosts: Option<u32>,
    /// 1: all hosts in one guest; 2: two guests on a virtual network, one host and the same
    /// command in each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    guests: u32,
    /// Debian's kernel
    #[arg(long, value_enum, default_value = "6.1")]
    kernel: Version,
    /// Seconds that the command may take
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// A shell on this terminal instead of a command, without a timeout
    #[arg(long, conflicts_with_all = ["command", "guests", "timeout"])]
    shell: bool,
    /// The command with its arguments
    #[arg(last = true, required_unless_present = "shell")]
    command: Vec<String>,
}

/// Downloads what guests with these kernels need, unless it is there.
pub(crate) fn fetch(workspace: &Workspace, kernels: &[Version]) -> Result<()> {
    kernels.iter().try_for_each(|kernel| prepare(&cache(workspace), *kernel).map(drop))
}

/// `cargo xtask rdma-vm`; the exit status of the command.
pub(crate) fn run(workspace: &Workspace, vm: &RdmaVm) -> Result<u8> {
    check()?;
    let layout = layout(vm.hosts, vm.guests)?;
    let cache = cache(workspace);
    let (packages, kernel) = prepare(&cache, vm.kernel)?;
    let out = cache.join("out");
    make_folder(&out)?;
    let accelerator = Accelerator::find();
    if accelerator == Accelerator::Emulator {
        eprintln!("rdma-vm: this machine has no KVM of kvm_intel or kvm_amd: guests are emulated");
    }
    let work = if vm.shell { Work::Shell(terminal()) } else { Work::Command(vm.command.clone()) };
    let task = Task {
        layout,
        work,
        folder: utf8(&env::current_dir()?)?.to_owned(),
        out: utf8(&out)?.to_owned(),
        environment: environment(),
    };
    let patience = (!vm.shell).then(|| Duration::from_secs(vm.timeout));
    let run = Run { task: &task, kernel: &kernel, packages: &packages, accelerator, patience };
    run.run(&Interrupt::new()?)
}

/// Where what was downloaded is.
fn cache(workspace: &Workspace) -> PathBuf {
    workspace.target().join("rdma-vm")
}

/// The environment of this process, as far as it is text.
fn environment() -> Vec<(String, String)> {
    let text =
        |(name, value): (OsString, OsString)| name.into_string().ok().zip(value.into_string().ok());
    env::vars_os().filter_map(text).collect()
}

fn layout(hosts: Option<u32>, guests: u32) -> Result<Layout> {
    let hosts = hosts.unwrap_or(2);
    ensure!(guests == 1 || hosts == guests, "--guests 2 means two hosts, one in each guest");
    Ok(Layout { hosts, guests })
}

/// Brings what guests need into `cache`, unless it is there; one process after the other.
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

/// The words that tell `stty` how large this terminal is.
fn terminal() -> String {
    let size = Command::new("stty").arg("size").stdin(Stdio::inherit()).output();
    let size = size.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let size = size.as_deref().and_then(|text| text.trim().split_once(' '));
    let (rows, columns) = size.unwrap_or(("24", "80"));
    format!("rows {rows} cols {columns}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        vm: RdmaVm,
    }

    fn parse(line: &str) -> Result<RdmaVm, clap::Error> {
        Cli::try_parse_from(line.split(' ')).map(|cli| cli.vm)
    }

    #[test]
    fn there_is_a_command_or_a_shell() {
        let vm = parse("rdma-vm --kernel 6.12 -- kv --hosts 3").unwrap();
        assert_eq!((vm.kernel, vm.hosts, vm.shell), (Version::Six12, None, false));
        assert_eq!(vm.command, ["kv", "--hosts", "3"]);
        assert!(parse("rdma-vm --shell --hosts 3").unwrap().shell);
        for wrong in [
            "rdma-vm",
            "rdma-vm kv",
            "rdma-vm --shell -- kv",
            "rdma-vm --shell --guests 2",
            "rdma-vm --guests 3 -- kv",
            "rdma-vm --hosts 0 -- kv",
            "rdma-vm --kernel 5 -- kv",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_guests_are_two_hosts() {
        assert_eq!(layout(None, 1).unwrap(), Layout { hosts: 2, guests: 1 });
        assert_eq!(layout(Some(5), 1).unwrap(), Layout { hosts: 5, guests: 1 });
        assert_eq!(layout(Some(2), 2).unwrap(), Layout { hosts: 2, guests: 2 });
        assert!(layout(Some(3), 2).is_err());
    }
}
