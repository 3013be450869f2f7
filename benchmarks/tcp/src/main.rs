//! `tcp-bench`: measures delegation over TCP beside remote procedure calls and UCX, on the loopback
//! interface; a table, and a list for machines.
//!
//! Everything is two processes, each of one thread that works, the client's pinned to one core and
//! the server's to another. A request is 8 bytes to add to a sum, and its answer 8 bytes: the sum.
//!
//! In reading order:
//! - [`suites`]: the cases, and what is held against what.
//! - [`ours`]: a rack of two hosts over TCP, with TLS and without.
//! - [`peer`]: what the remote procedure calls share, tarpc, tonic.
//! - [`sockets`]: what the system itself takes.
//!
//! Rounds, placement, what counts as disturbed and the report are those of bench-kit. It succeeds
//! when every case that this machine has the programs for came to a figure; what the figures are, and
//! whether bars hold, is for the reader to judge.

#![forbid(unsafe_code)]

mod ours;
mod peer;
mod sockets;
mod suites;

use std::process::ExitCode;

use bench_kit::measure::cores::Cores;
use bench_kit::session::{self, Options};
use bench_kit::{machine, roles};
use clap::Parser;

/// The crates that are compared with; their versions stand in the header.
const PEERS: [&str; 4] = ["prost", "tarpc", "tokio", "tonic"];

/// Measures delegation over TCP beside remote procedure calls and UCX.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    if let Some(code) = roles::play(&suites::ROLES) {
        return code;
    }
    session::ended("tcp-bench", run(&Cli::parse().options))
}

/// Measures what the options select; whether everything that this machine has came to a figure.
fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let mut suites = options.narrowed(suites::all())?;
    if options.list {
        print!("{}", session::list(&suites));
        return Ok(true);
    }
    let cores = Cores::of_this_process()?;
    println!("{}", machine::header(cores, &PEERS, include_str!("../Cargo.lock")));
    options.run(cores, &mut suites)
}
