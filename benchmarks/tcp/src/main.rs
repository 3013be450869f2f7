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
//! Rounds, placement, what counts as disturbed and the report are those of `core-bench`. It succeeds
//! when every case that this machine has the programs for came to a figure; what the figures are, and
//! whether bars hold, is for the reader to judge.

#![forbid(unsafe_code)]

mod ours;
mod peer;
mod sockets;
mod suites;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use core_bench::measure::cores::Cores;
use core_bench::session::{self, Session};
use core_bench::{machine, roles};

/// The crates that are compared with; their versions stand in the header.
const PEERS: [&str; 4] = ["prost", "tarpc", "tokio", "tonic"];

/// Measures delegation over TCP beside remote procedure calls and UCX.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Interleaved rounds over all candidates of a suite; published figures take at least 7.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Write every row to this file, as one JSON list.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure only cases whose "suite/case" contains this.
    #[arg(long, value_name = "SUBSTR")]
    filter: Option<String>,
    /// Print every sample that counts as well, tab-separated.
    #[arg(long)]
    raw: bool,
    /// Print the names of suites and cases, and measure nothing.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    if let Some(code) = roles::play(&suites::ROLES) {
        return code;
    }
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("tcp-bench: {e}");
            ExitCode::from(2)
        }
    }
}

/// Measures what the options select; whether everything that this machine has came to a figure.
fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let mut suites = session::narrowed(suites::all(), options.filter.as_deref())?;
    if options.list {
        print!("{}", session::list(&suites));
        return Ok(true);
    }
    let cores = Cores::of_this_process()?;
    println!("{}", machine::header(cores, &PEERS, include_str!("../Cargo.lock")));
    let session = Session {
        cores,
        rounds: options.rounds.into(),
        raw: options.raw,
        json: options.json.as_deref(),
    };
    session.run(&mut suites)
}
