//! `kv`: a key-value store on a rack. `kv bench` measures it with YCSB workloads, `kv serve` speaks
//! the memcached protocol.
//!
//! With more than one host the program runs several times: the rack starts it again, with the same
//! arguments, for each further host. So everything that prints, reads or writes is inside the
//! rack's `main`, which runs once.

#![forbid(unsafe_code)]

mod bench;
mod serve;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use gossamer::Rack;

#[derive(Parser)]
#[command(version, about = "A key-value store on a rack of delegated shards")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load records and run a YCSB workload on them
    Bench(bench::Bench),
    /// Serve the memcached text protocol on a TCP port
    Serve(serve::Serve),
}

fn above_zero() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// The rack that a command runs on.
#[derive(Args, Clone)]
struct RackArgs {
    /// Hosts of the rack: processes that share nothing but what they delegate
    #[arg(long, default_value_t = 2, env = "GOSSAMER_HOSTS", value_parser = above_zero())]
    hosts: u32,
    /// Threads of each host
    #[arg(long, default_value_t = 1, env = "GOSSAMER_THREADS", value_parser = above_zero())]
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

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Bench(bench) => bench.run(),
        Command::Serve(serve) => serve.run(),
    }
}
