//! `cargo xtask rdma-vm`: runs a command in a virtual machine that has RDMA devices
//! ([`gossamer_guest`]).

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use gossamer_guest::Vm;
use gossamer_guest::kernel::Version;
use gossamer_guest::task::{Layout, Work};

use crate::workspace::Workspace;

/// The part of `--help` beyond the options.
const HELP: &str = "\
The command runs as root in the guest, in this folder and with this environment. It sees this
machine's files; what it writes is removed at the end, except in the folder GOSSAMER_VM_OUT. It has
these variables:

  GOSSAMER_RDMA_HOSTS  RDMA device and address of each host: rxe0,10.77.0.1;rxe1,10.77.0.2
  GOSSAMER_VM_GUEST    the number of this guest, from 0; with --guests 2 also that of its host
  GOSSAMER_VM_GUESTS   the number of guests
  GOSSAMER_VM_OUT      the folder that it shares with this machine, target/rdma-vm/out

Exit status: that of the command (of the first that fails, if there are two guests); 124 after the
timeout; 1 if no guest could run it, for the reason that is printed.";

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
    /// End the command after SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// A shell on this terminal instead of a command, without a timeout
    #[arg(long, conflicts_with_all = ["command", "guests", "timeout"])]
    shell: bool,
    /// The command with its arguments
    #[arg(last = true, required_unless_present = "shell")]
    command: Vec<String>,
}

/// `cargo xtask rdma-vm`; returns the exit status of the command.
pub(crate) fn run(workspace: &Workspace, vm: &RdmaVm) -> Result<u8> {
    let layout = layout(vm.hosts, vm.guests)?;
    let work = if vm.shell { Work::Shell(terminal()) } else { Work::Command(vm.command.clone()) };
    let timeout = (!vm.shell).then(|| Duration::from_secs(vm.timeout));
    gossamer_guest::run(&cache(workspace), Vm { layout, kernel: vm.kernel, work, timeout })
}

/// The folder for what guests need, and for what they write.
pub(crate) fn cache(workspace: &Workspace) -> PathBuf {
    workspace.target().join("rdma-vm")
}

fn layout(hosts: Option<u32>, guests: u32) -> Result<Layout> {
    let hosts = hosts.unwrap_or(2);
    ensure!(
        guests == 1 || hosts == guests,
        "--hosts must be 2 with --guests 2, one in each guest, got {hosts}"
    );
    Ok(Layout { hosts, guests })
}

/// The arguments of `stty` that set the size of this terminal.
fn terminal() -> String {
    let size = Command::new("stty").arg("size").stdin(Stdio::inherit()).output();
    let size = size.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let size = size.as_deref().and_then(|text| text.trim().split_once(' '));
    let (rows, columns) = size.unwrap_or(("24", "80"));
    format!("rows {rows} cols {columns}")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

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
