//! `rdma-bench`: measures delegation over RDMA beside perftest, between two RDMA devices of this
//! machine; prints a table and writes JSON. `cargo xtask bench rdma` runs it in a guest that has
//! such devices.
//!
//! Everything is two processes, each with a device of its own and one thread that works, the
//! client's pinned to one core and the server's to another. A request is 8 bytes to add to a sum,
//! and its answer 8 bytes: the sum.
//!
//! In reading order:
//! - [`suites`]: the cases and their comparisons.
//! - [`rack`]: a rack of two hosts over RDMA.
//! - [`segment`]: segments over RDMA; [`jam`]: jams.
//! - [`perftest`]: latencies of writes, reads, sends and atomics, and `ib_write_bw`.
//! - [`lanes`]: bare lanes between two hosts of this process.
//! - [`payloads`]: payloads that have no room in a slot, between such lanes.
//! - [`plot`]: the picture of one suite.
//! - [`devices`]: who does the work of devices that are made of software.
//!
//! Rounds and report are those of bench-kit. Where devices are made of software, their work is
//! done on the two cores that are measured, and the cores may be emulated: so samples are not told
//! apart by the distance of the cores, and none is thrown away for time that a thread lost.
//!
//! It succeeds if every case was measured, whatever the figures are and whether bars hold.

#![forbid(unsafe_code)]

mod devices;
mod jam;
mod lanes;
mod payloads;
mod perftest;
mod plot;
mod rack;
mod segment;
mod suites;

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use bench_kit::measure::cores::Cores;
use bench_kit::{machine, roles, session};
use clap::Parser;

/// Names device and address of every host, as the guests of `cargo xtask rdma-vm` have it.
const HOSTS: &str = "GOSSAMER_RDMA_HOSTS";

/// Measures delegation over RDMA beside perftest.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    session: session::Options,
    /// Plot the suite `rdma-queue-pairs` to FILE as SVG.
    #[arg(long, value_name = "FILE", requires = "json")]
    plot: Option<PathBuf>,
    /// The program `kv`, built from the same sources, for the suite `get-rdma`.
    #[arg(long, value_name = "PROGRAM", env = "GOSSAMER_KV")]
    kv: Option<PathBuf>,
}

/// A host that is measured: where its device is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    /// Its RDMA device.
    device: String,
    /// The address of that.
    address: String,
}

fn main() -> ExitCode {
    if let Some(code) = roles::run_role(&[rack::HOST, segment::HOST]) {
        return code;
    }
    session::exit_code("rdma-bench", run(&Cli::parse()))
}

/// Measures the selected cases; returns whether all were measured.
fn run(options: &Cli) -> Result<bool, Box<dyn std::error::Error>> {
    let hosts = two_hosts(&env::var(HOSTS).unwrap_or_default());
    let kv = options.kv.as_deref();
    if options.session.list {
        let suites = suites::all(&hosts.unwrap_or_else(|| ["", ""].map(host)), kv);
        print!("{}", session::list(&options.session.filtered(suites)?));
        return Ok(true);
    }
    let hosts = hosts.ok_or_else(|| {
        format!("{HOSTS} does not name two RDMA devices; `cargo xtask bench rdma` has some")
    })?;
    let mut suites = options.session.filtered(suites::all(&hosts, kv))?;
    let cores = Cores::of_this_process()?;
    print!("{}", machine::header(cores, &[], include_str!("../Cargo.lock")));
    let [first, second] = hosts.map(|host| host.device);
    println!("rdma:    {first} and {second}, perftest {}\n", perftest::version());
    if let Err(e) = devices::favour() {
        println!("rdma:    the kernel's threads that do the devices' work have no priority: {e}\n");
    }
    let complete = options.session.run(cores, &mut suites)?;
    if let (Some(plot), Some(json)) = (&options.plot, &options.session.json) {
        let rows = serde_json::from_slice(&fs::read(json)?)?;
        let picture =
            plot::render(&rows).ok_or("--plot draws the suite rdma-queue-pairs, whole")?;
        fs::write(plot, picture).map_err(|e| format!("cannot write {}: {e}", plot.display()))?;
    }
    Ok(complete)
}

/// The first two hosts of a text such as `rxe0,10.77.0.1;rxe1,10.77.0.2`.
fn two_hosts(text: &str) -> Option<[Host; 2]> {
    let mut hosts = text.split(';').filter(|text| text.contains(',')).map(host);
    Some([hosts.next()?, hosts.next()?])
}

fn host(text: &str) -> Host {
    let (device, address) = text.split_once(',').unwrap_or_default();
    Host { device: device.to_owned(), address: address.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_devices_with_addresses() {
        let [first, second] = two_hosts("rxe0,10.77.0.1;rxe1,10.77.0.2").expect("two hosts");
        assert_eq!((&*first.device, &*first.address), ("rxe0", "10.77.0.1"));
        assert_eq!((&*second.device, &*second.address), ("rxe1", "10.77.0.2"));
        assert_eq!(two_hosts("rxe0,10.77.0.1"), None);
        assert_eq!(two_hosts(""), None);
    }
}
