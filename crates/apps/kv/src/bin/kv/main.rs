//! `kv`: a key-value store on a rack. `kv bench` measures it with YCSB workloads, `kv serve` speaks
//! the memcached protocol.
//!
//! With more than one host the rack starts this program again, with the same arguments, for each
//! further host. Everything that prints, reads or writes therefore runs inside the rack's `main`,
//! which runs once.

#![forbid(unsafe_code)]

mod bench;
mod serve;

use std::error::Error;
use std::iter;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use gossamer::Rack;

#[derive(Parser)]
#[command(version, about = "A key-value store with one delegated shard per thread of a rack")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a YCSB workload and report throughput and latencies
    Bench(bench::Bench),
    /// Serve the memcached text protocol on a TCP port
    Serve(serve::Serve),
}

fn positive() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// The rack that a command runs on.
#[derive(Args, Clone)]
struct RackArgs {
    /// Number of hosts: processes, each with its own heap and statics
    #[arg(long, default_value_t = 2, env = "GOSSAMER_HOSTS", value_parser = positive())]
    hosts: u32,
    /// Threads per host
    #[arg(long, default_value_t = 1, env = "GOSSAMER_THREADS", value_parser = positive())]
    threads: u32,
}

impl RackArgs {
    /// Runs `main` once, on the rack.
    fn run(&self, main: impl FnOnce() -> Result<(), String> + Send + 'static) -> ExitCode {
        let rack = Rack::new().hosts(self.hosts).threads(self.threads);
        let error = match rack.run(main) {
            Ok(Ok(())) => return ExitCode::SUCCESS,
            Ok(Err(error)) => error,
            // With its causes.
            Err(error) => format!("{error:?}"),
        };
        eprintln!("kv: {error}");
        ExitCode::FAILURE
    }
}

/// An error and its causes in one line. Causes that a message repeats are left out.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in iter::successors(error.source(), |&cause| cause.source()) {
        let cause = cause.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Bench(bench) => bench.run(),
        Command::Serve(serve) => serve.run(),
    }
}
