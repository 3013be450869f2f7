//! `tcp-bench`: measures delegation over TCP beside remote procedure calls and UCX, on the loopback
//! interface; prints a table and writes JSON.
//!
//! Everything is two processes, each of one thread that works, the client's pinned to one core and
//! the server's to another. A request is 8 bytes to add to a sum, and its answer 8 bytes: the sum.
//!
//! In reading order:
//! - [`suites`]: the cases and their comparisons.
//! - [`rack`]: a rack of two hosts over TCP, with TLS and without.
//! - [`segment`]: segments over TCP; [`jam`]: jams.
//! - [`peer`]: what the remote procedure calls share, tarpc, tonic.
//! - [`sockets`]: what the system itself takes.
//!
//! Rounds, placement, what counts as disturbed and the report are those of bench-kit. It succeeds
//! if every case whose program is on this machine was measured, whatever the figures are and
//! whether bars hold.

#![forbid(unsafe_code)]

mod jam;
mod peer;
mod rack;
mod segment;
mod sockets;
mod suites;

use std::path::PathBuf;
use std::process::ExitCode;

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
    /// The program `kv`, built from the same sources, for the suite `get-tcp`.
    #[arg(long, value_name = "PROGRAM", env = "GOSSAMER_KV")]
    kv: Option<PathBuf>,
}

fn main() -> ExitCode {
    if let Some(code) = roles::run_role(&suites::ROLES) {
        return code;
    }
    session::exit_code("tcp-bench", run(&Cli::parse()))
}

/// Measures the selected cases; returns whether every case whose program is on this machine was
/// measured.
fn run(Cli { options, kv }: &Cli) -> Result<bool, Box<dyn std::error::Error>> {
    let header = |cores| machine::header(cores, &PEERS, include_str!("../Cargo.lock"));
    match options.begin(suites::all(kv.as_deref()), header)? {
        Some((cores, mut suites)) => options.run(cores, &mut suites),
        None => Ok(true),
    }
}
