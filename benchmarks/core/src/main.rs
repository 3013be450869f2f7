//! `core-bench`: measures the delegation core beside its peers; prints a table and writes JSON.
//!
//! In reading order: [`suites`], the cases and their comparisons; [`fadd`], one of them on many objects,
//! a command of its own; the other parts are in bench-kit.
//! Racks whose threads share memory stand beside locks, channels, fibers and IPC libraries.
//!
//! It succeeds if every case whose program is on this machine was measured, whatever the figures
//! are and whether bars hold.

#![deny(unsafe_code)]

mod fadd;
mod suites;

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use bench_kit::count::mark::MarkedAlloc;
use bench_kit::count::{self};
use bench_kit::harness::Suite;
use bench_kit::measure::cores::Cores;
use bench_kit::{machine, roles, session};
use clap::{Parser, Subcommand};
use suites::Programs;
use suites::prototype::Prototype;

/// The crates that the suites compare with; their versions stand in the header.
const PEERS: [&str; 11] = [
    "context",
    "corosensei",
    "crossbeam-channel",
    "dashmap",
    "flume",
    "generator",
    "iceoryx2",
    "may",
    "mcslock",
    "parking_lot",
    "spin",
];

// The system's allocator with a `nop` in front of it, for counted runs.
#[global_allocator]
static ALLOCATOR: MarkedAlloc = MarkedAlloc;

/// Measures Gossamer's delegation core beside locks, channels, fibers and IPC libraries.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    session: session::Options,
    /// Measure only this suite (repeatable).
    #[arg(long, value_name = "NAME")]
    suite: Vec<String>,
    /// Also build and run the prototype in DIR: a crate whose program takes FILTER ROUNDS LIMIT_S
    /// and prints a table of near and far figures.
    #[arg(long, value_name = "DIR", env = "GOSSAMER_PROTOTYPE")]
    prototype: Option<PathBuf>,
    /// The program `kv`, built from the same sources, for the suites `kv`, `memcached` and `get-shm`.
    #[arg(long, value_name = "PROGRAM", env = "GOSSAMER_KV")]
    kv: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure fetch-and-add on many objects, by locks, atomics, delegation, MPI and UCX
    Fadd(fadd::Fadd),
}

fn main() -> ExitCode {
    let other = || roles::run_role(&suites::ROLES);
    if let Some(code) = count::run_workload(&suites::WORKLOADS).or_else(other) {
        return code;
    }
    let options = Cli::parse();
    let result = match &options.command {
        Some(Command::Fadd(options)) => fadd::run(options, header),
        None => run(&options),
    };
    session::exit_code("core-bench", result)
}

/// What it runs on.
fn header(cores: Cores) -> String {
    machine::header(cores, &PEERS, include_str!("../Cargo.lock"))
}

/// Measures the selected cases; returns whether every case whose program is on this machine was
/// measured.
fn run(options: &Cli) -> Result<bool, Box<dyn std::error::Error>> {
    let prototype = match &options.prototype {
        Some(folder) => {
            eprintln!("building the prototype in {}", folder.display());
            Some(Rc::new(Prototype::build(folder)?))
        }
        None => None,
    };
    let programs = Programs { prototype, kv: options.kv.clone() };
    let wanted = |suite: &Suite| options.suite.is_empty() || options.suite.contains(&suite.name);
    let suites = suites::all(&programs).into_iter().filter(wanted).collect();
    match options.session.begin(suites, header)? {
        Some((cores, mut suites)) => options.session.run(cores, &mut suites),
        None => Ok(true),
    }
}
