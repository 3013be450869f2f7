//! Every developer command of Gossamer. CI calls nothing else (and README's two commands).
//!
//! ```text
//! cargo xtask ci                all gates, in order, stopping at the first that fails
//! cargo xtask ahead             builds what later gates need; ci starts it
//! cargo xtask layers | unsafe   the rules of ARCHITECTURE.md that a compiler does not know
//! cargo xtask lint | doc        formatting, clippy, commit subjects; documentation
//! cargo xtask deny              licences, bans, sources and advisories of dependencies
//! cargo xtask package           what a registry would get, compiled with the oldest supported compiler
//! cargo xtask test | ui | loom  tests and their extras, compile-fail tests, model checking
//! cargo xtask asan              tests of fibers, delegation and jams with AddressSanitizer (needs a
//!                               nightly compiler)
//! cargo xtask hotpath           no lock, system call or allocation in a request
//! cargo xtask fuzz              arbitrary bytes for all decoders (needs a nightly compiler)
//! cargo xtask demo | chaos      the main command, short; processes killed at random
//! cargo xtask netns             a rack of network namespaces: up, down, run and test
//! cargo xtask rack-deploy       builds and deploys a program over ssh; deploy-test checks it
//! cargo xtask slurm-test        racks of tasks of a real Slurm
//! cargo xtask rdma-vm           a command in a virtual machine that has RDMA devices; rdma-test
//!                               runs the tests that need them
//! cargo xtask bench core | tcp  the measurements of docs/performance.md, docs/performance-tcp.md;
//!                               bench rdma those of docs/performance-rdma.md, in such a machine;
//!                               bench memcached, fadd, graph and figures those of single pages
//! ```
//!
//! One rule holds for all gates: **a gate that checked nothing fails.** Only those that need a nightly
//! compiler, or the database of advisories, print that they checked nothing and pass without it.
//!
//! Reading order:
//! 1. [`step`]: running a program, reading its output, timeouts; [`times`]: how long parts took;
//!    [`workspace`]: its folder, packages and sources.
//! 2. [`layers`]: which crates and folders may use which, and names that some may not use.
//! 3. [`unsafety`] (finding `unsafe` and its reasons) and [`ledger`] (where it may be).
//! 4. [`checks`] (cargo's own tools and tests; [`subjects`] of commits; [`pages`]), [`aarch64`] (the
//!    suites for another processor), [`deny`], [`mod@package`], [`fuzz`], [`programs`] (demo, chaos),
//!    [`netns`], [`rack_deploy`]
//!    and [`deploy_test`], [`slurm`], [`rdma_vm`], [`rdma_test`], [`mod@bench`].
//! 5. [`ci`]: all gates in order; [`ahead`]: what is built meanwhile for later ones; [`background`]:
//!    what runs beside others.

#![forbid(unsafe_code)]

mod aarch64;
mod ahead;
mod background;
mod bench;
mod checks;
mod ci;
mod deny;
mod deploy_test;
mod fuzz;
mod layers;
mod ledger;
mod netns;
mod package;
mod pages;
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

use std::process::ExitCode;

use bench::Bench;
use clap::{Args, Parser, Subcommand};
use layers::Layers;
use netns::Netns;
use rack_deploy::RackDeploy;
use rdma_test::RdmaTest;
use rdma_vm::RdmaVm;
use workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of Gossamer", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The option of `lint` and `doc`.
#[derive(Args)]
struct Rdma {
    /// Include the code for RDMA; needs cmake, libclang and libibverbs
    #[arg(long)]
    rdma: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run every gate of CI in order, with times; stop at the first that fails
    Ci,
    /// Build what later gates need (`ci` does so beside its first gates)
    Ahead,
    /// Check that no lower crate or folder uses an upper one, and that the core has no socket, clock or
    /// thread
    Layers(Layers),
    /// Check that `unsafe` is only in the files of ARCHITECTURE.md's ledger, each use with its reason
    Unsafe,
    /// Check formatting, clippy with warnings denied, and the length of commit subjects
    Lint(Rdma),
    /// Build the documentation of every crate, warnings denied
    Doc(Rdma),
    /// Check dependencies against deny.toml with cargo-deny; advisories if they can be fetched
    Deny,
    /// Make the packages that a registry would get, and build each with the oldest supported compiler
    Package,
    /// Run README's test command, and tests of other features and builds
    Test {
        /// Also test `kv serve` with memcached clients (needs pymemcache and memccapable)
        #[arg(long)]
        clients: bool,
        /// Also run the compile-fail tests of the feature `nightly`, if a nightly toolchain is installed
        #[arg(long)]
        nightly: bool,
        /// Only run the suites of the layers below TCP, built for 64-bit ARM and emulated (needs
        /// Debian and its package sources)
        #[arg(long, conflicts_with_all = ["clients", "nightly"])]
        aarch64: bool,
    },
    /// Run the compile-fail tests: programs that must not compile, and the compiler's messages
    Ui,
    /// Run the loom models: every interleaving of the protocols
    Loom,
    /// Run the tests of fibers and delegation with AddressSanitizer, if a nightly toolchain is installed
    Asan,
    /// Trace a request: no locked instruction, no system call, no allocation
    Hotpath,
    /// Run the fuzz targets from their committed seeds, if a nightly toolchain is installed
    Fuzz {
        /// Time for each target
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
    },
    /// Run README's main command with a small workload, and check its output
    Demo,
    /// Kill processes of racks at random moments
    Chaos {
        /// Use jobs on three hosts, each a network namespace, instead of racks of one (needs root)
        #[arg(long)]
        net: bool,
        /// Number of racks [default: 200, with --net 100]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: Option<u32>,
        /// Seed of the random numbers, to repeat a run [default: a new one, which is printed]
        #[arg(long)]
        seed: Option<u64>,
        /// What every rack does: requests, segments or segments-tcp [default: drawn for each]
        #[arg(long, conflicts_with = "net")]
        workload: Option<String>,
    },
    /// Make, use, test and remove a rack of network namespaces (needs root)
    #[command(subcommand)]
    Netns(Netns),
    /// Build a program, install Gossamer on the machines of a rack over ssh, and run the program there
    RackDeploy(RackDeploy),
    /// Test rack-deploy and gossamer deploy on network namespaces (needs root and sshd)
    DeployTest,
    /// Test racks under Slurm, with four nodes on this machine (needs root, slurm-wlm and munge)
    SlurmTest,
    /// Run a command in a virtual machine that has RDMA devices (needs Debian and its package sources)
    RdmaVm(RdmaVm),
    /// Run the tests that need RDMA devices, in such a machine with each of Debian's two kernels
    RdmaTest(RdmaTest),
    /// Run measurements
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

/// Runs a command; returns its exit status.
fn run(command: &Command) -> anyhow::Result<u8> {
    let workspace = Workspace::find()?;
    let done = match command {
        Command::RackDeploy(deploy) => return rack_deploy::run(&workspace, deploy),
        Command::RdmaVm(vm) => return rdma_vm::run(&workspace, vm),
        Command::DeployTest => deploy_test::run(&workspace),
        Command::Ci => ci::run(&workspace),
        Command::Ahead => ahead::run(&workspace),
        Command::Layers(layers) => layers::run(&workspace, layers),
        Command::Unsafe => ledger::run(&workspace),
        Command::Lint(with) => checks::lint(&workspace, with.rdma),
        Command::Doc(with) => checks::doc(&workspace, with.rdma),
        Command::Deny => deny::run(&workspace),
        Command::Package => package::run(&workspace),
        Command::Test { aarch64: true, .. } => aarch64::test(&workspace),
        Command::Test { clients, nightly, .. } => checks::test(&workspace, *clients, *nightly),
        Command::Ui => checks::ui(&workspace),
        Command::Loom => checks::loom(&workspace),
        Command::Asan => checks::asan(&workspace),
        Command::Hotpath => checks::hotpath(&workspace),
        Command::Fuzz { seconds } => fuzz::run(&workspace, *seconds),
        Command::Demo => programs::demo(&workspace),
        Command::Chaos { net: false, rounds, seed, workload } => {
            programs::chaos(&workspace, rounds.unwrap_or(200), *seed, workload.as_deref())
        }
        Command::Chaos { net: true, rounds, seed, .. } => {
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
