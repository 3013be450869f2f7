//! Every developer command of Gossamer. CI calls nothing else (and README's two commands).
//!
//! ```text
//! cargo xtask ci                all gates, in order, stopping at the first that fails
//! cargo xtask layers | unsafe   the rules of ARCHITECTURE.md that a compiler does not know
//! cargo xtask lint | doc        formatting and clippy; documentation without warnings
//! cargo xtask deny              licences, bans, sources and advisories of dependencies
//! cargo xtask test | ui | loom  tests and their extras, compile-fail tests, model checking
//! cargo xtask asan              tests of fibers and delegation with AddressSanitizer (needs a
//!                               nightly compiler)
//! cargo xtask hotpath           no lock, system call or allocation in a request
//! cargo xtask fuzz              arbitrary bytes for what reads them (needs a nightly compiler)
//! cargo xtask demo | chaos      the main command in small; processes killed at random
//! cargo xtask netns             a rack of several machines on this one, up, down, run and test
//! cargo xtask rack-deploy       a program onto a rack of machines, over ssh; deploy-test tries it
//! cargo xtask slurm-test        racks of tasks of a real Slurm
//! cargo xtask rdma-vm           a command in a virtual machine that has RDMA devices; rdma-test
//!                               runs the tests that need them
//! cargo xtask bench core | tcp  the measurements of docs/performance.md, docs/performance-tcp.md;
//!                               bench rdma those of docs/performance-rdma.md, in such a machine
//! ```
//!
//! One rule binds them all: **a gate that looked at nothing fails.** Only what needs a nightly
//! compiler, or the database of advisories, says so and passes where there is none.
//!
//! Reading order:
//! 1. [`workspace`]: where the workspace is, what is in it, its sources as tokens.
//! 2. [`step`]: running a program, reading what it prints, giving up in time; [`times`]: how long
//!    parts took.
//! 3. [`layers`]: who may name whom, and what may not be named at all.
//! 4. [`unsafety`] (finding `unsafe` and its reasons) and [`ledger`] (where it may be).
//! 5. [`checks`] (cargo's own tools and tests), [`aarch64`] (the suites for another processor), [`deny`], [`programs`] (demo, chaos), [`netns`],
//!    [`rack_deploy`] and [`deploy_test`], [`slurm`], [`rdma_vm`], [`rdma_test`], [`bench`], [`fuzz`],
//!    [`ci`].

#![forbid(unsafe_code)]

mod aarch64;
mod bench;
mod checks;
mod ci;
mod deny;
mod deploy_test;
mod fuzz;
mod layers;
mod ledger;
mod netns;
mod programs;
mod rack_deploy;
mod rdma_test;
mod rdma_vm;
mod slurm;
mod step;
mod subjects;
mod times;
mod unsafety;
mod workspace;

use bench::Bench;
use clap::{Parser, Subcommand};
use layers::Layers;
use netns::Netns;
use rack_deploy::RackDeploy;
use rdma_test::RdmaTest;
use rdma_vm::RdmaVm;
use std::process::ExitCode;
use workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of Gossamer", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Every gate of CI, in order, timed; stops at the first that fails
    Ci,
    /// A lower layer never names an upper one; the core has no socket, clock or thread
    Layers(Layers),
    /// `unsafe` only in the files of ARCHITECTURE.md's ledger, each with its reason
    Unsafe,
    /// Check formatting, clippy with warnings denied, and the length of commit subjects
    Lint,
    /// The documentation of every crate, warnings denied
    Doc,
    /// What deny.toml says about dependencies, by cargo-deny; advisories where they can be fetched
    Deny,
    /// README's test command, and on request what needs more than a Rust toolchain
    Test {
        /// Also drive `kv serve` with real memcached clients (pymemcache, memccapable)
        #[arg(long)]
        clients: bool,
        /// Also run the compile-fail tests with the feature `nightly`, if there is such a toolchain
        #[arg(long)]
        nightly: bool,
        /// Only the suites of what lies below TCP, built for 64-bit ARM and emulated (needs Debian,
        /// and apt's sources)
        #[arg(long, conflicts_with_all = ["clients", "nightly"])]
        aarch64: bool,
    },
    /// The compile-fail tests: what must not compile, and what the compiler says
    Ui,
    /// The loom models: every interleaving of the protocols
    Loom,
    /// The tests of fibers and delegation with AddressSanitizer, on a nightly compiler if there is one
    Asan,
    /// A request executes no locked instruction, no system call and no allocation: stepped through
    Hotpath,
    /// The fuzz targets, each from its committed corpus, on a nightly compiler if there is one
    Fuzz {
        /// Seconds for each target
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
    },
    /// README's main command in small, with a look at what it prints
    Demo,
    /// Kills processes of a rack at random moments, again and again
    Chaos {
        /// Jobs on three hosts, each a network namespace, instead of racks of one (needs root)
        #[arg(long)]
        net: bool,
        /// Racks to start and hurt [default: 200, with --net 100]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: Option<u32>,
        /// Where the randomness starts; by default a new place each time, which is printed
        #[arg(long)]
        seed: Option<u64>,
    },
    /// A rack of several machines on this one: hosts in network namespaces (needs root)
    #[command(subcommand)]
    Netns(Netns),
    /// Gets a rack of machines ready over ssh, and runs a program on it
    RackDeploy(RackDeploy),
    /// Deploys a rack in namespaces, again, and where it cannot be done (needs root and sshd)
    DeployTest,
    /// Racks under Slurm: four nodes on this machine (needs root, slurm-wlm and munge)
    SlurmTest,
    /// Runs a command in a virtual machine that has RDMA devices (needs Debian, and apt's sources)
    RdmaVm(RdmaVm),
    /// The tests that need RDMA devices, on those of such a machine, with both of Debian's kernels
    RdmaTest(RdmaTest),
    /// Measurements
    #[command(subcommand)]
    Bench(Bench),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; its exit status.
fn run(command: &Command) -> anyhow::Result<u8> {
    let workspace = Workspace::find()?;
    let done = match command {
        Command::RackDeploy(deploy) => return rack_deploy::run(&workspace, deploy),
        Command::RdmaVm(vm) => return rdma_vm::run(&workspace, vm),
        Command::DeployTest => deploy_test::run(&workspace),
        Command::Ci => ci::run(&workspace),
        Command::Layers(layers) => layers::run(&workspace, layers),
        Command::Unsafe => ledger::run(&workspace),
        Command::Lint => checks::lint(&workspace),
        Command::Doc => checks::doc(&workspace),
        Command::Deny => deny::run(&workspace),
        Command::Test { aarch64: true, .. } => aarch64::test(&workspace),
        Command::Test { clients, nightly, .. } => checks::test(&workspace, *clients, *nightly),
        Command::Ui => checks::ui(&workspace),
        Command::Loom => checks::loom(&workspace),
        Command::Asan => checks::asan(&workspace),
        Command::Hotpath => checks::hotpath(&workspace),
        Command::Fuzz { seconds } => fuzz::run(&workspace, *seconds),
        Command::Demo => programs::demo(&workspace),
        Command::Chaos { net: false, rounds, seed } => {
            programs::chaos(&workspace, rounds.unwrap_or(200), *seed)
        }
        Command::Chaos { net: true, rounds, seed } => {
            netns::chaos(&workspace, rounds.unwrap_or(100), *seed)
        }
        Command::Netns(netns) => netns::run(&workspace, netns),
        Command::RdmaTest(test) => rdma_test::run(&workspace, test),
        Command::SlurmTest => slurm::run(&workspace),
        Command::Bench(bench) => bench::run(&workspace, bench),
    };
    done.map(|()| 0)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
