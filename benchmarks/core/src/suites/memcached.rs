//! `kv serve` beside memcached with as many threads: many clients, one command of each at a time or 32.

use std::path::PathBuf;
use std::time::Duration;

use bench_kit::harness::Limit::{AtLeast, AtMost};
use bench_kit::harness::{Bar, Case, Peer, Placement, Suite, Unit};
use bench_kit::measure::cores::on_core;
use bench_kit::measure::sampling::{CaseError, Reading, Sampler};
use bench_kit::memcached::Server;
use bench_kit::memcached_load::{Measured, Plan, load};

/// Threads of the servers. One is pinned to the second core, and the clients to the first; two are
/// wherever the kernel puts them, and so are the clients.
const THREADS: [usize; 2] = [1, 2];
const CONNECTIONS: [usize; 2] = [16, 256];
const DEPTHS: [usize; 2] = [1, 32];
/// Further connections that send nothing.
const IDLE: usize = 10_000;

/// The suite `memcached`; `program` is `kv`, if there is one.
pub(crate) fn suite(program: Option<PathBuf>) -> Suite {
    let about = "clients of the memcached protocol, 9 GETs to 1 SET of 100 bytes";
    let mut suite = Suite::new("memcached", about, Placement::Unpinned);
    suite.time = Duration::from_millis(400);
    let servers = [Server::Memcached, Server::Kv(program)];
    for threads in THREADS {
        for depth in DEPTHS {
            for connections in CONNECTIONS {
                let plan = Plan { connections, depth, idle: 0 };
                let rate = Bar::ratio(AtLeast(if depth == 1 { 1.0 } else { 3.0 }));
                let per_second = |measured: Measured| measured.per_second / 1e6;
                push(&mut suite, &servers, threads, plan, Unit::Mops, rate, per_second);
                if depth == 1 {
                    let bar = Bar::ratio(AtMost(1.2));
                    let p99 = |measured: Measured| measured.p99.as_secs_f64() * 1e6;
                    push(&mut suite, &servers, threads, plan, Unit::Microseconds, bar, p99);
                }
            }
        }
    }
    // Without effect on the others' rate, and within 200 MB.
    let alone = Plan { connections: 16, depth: 1, idle: 0 };
    let beside_idle = Plan { idle: IDLE, ..alone };
    for server in &servers {
        let rate = case(server, 1, beside_idle, Unit::Mops, |measured| measured.per_second / 1e6);
        let memory = case(server, 1, beside_idle, Unit::Bytes, |measured| measured.resident as f64);
        let (rate, memory) = match server {
            Server::Memcached => (rate, memory),
            Server::Kv(_) => {
                let own = Peer::case(name(server, 1, alone, Unit::Mops));
                let peer = Peer::case(name(&Server::Memcached, 1, beside_idle, Unit::Bytes));
                let rate_bar = Bar::ratio(AtLeast(0.95));
                (rate.bar(own, rate_bar), memory.bar(peer, Bar::value(AtMost(200e6))))
            }
        };
        suite.push(rate);
        suite.push(memory);
    }
    suite
}

/// The name of a case.
fn name(server: &Server, threads: usize, plan: Plan, unit: Unit) -> String {
    let Plan { connections, depth, idle } = plan;
    let what = match unit {
        Unit::Mops => "",
        Unit::Bytes => ", resident memory",
        _ => ", 99th percentile",
    };
    let beside = if idle > 0 { format!(" beside {idle} idle") } else { String::new() };
    let server = server.name();
    format!("{server}/{threads} threads, {connections} clients{beside}, depth {depth}{what}")
}

/// What `value` takes of a server that is loaded.
fn case(
    server: &Server,
    threads: usize,
    plan: Plan,
    unit: Unit,
    value: fn(Measured) -> f64,
) -> Case {
    let taken = server.clone();
    Case::new(name(server, threads, plan, unit), unit, move |sampler| {
        measure(sampler, &taken, threads, plan).map(|measured| Reading::of(value(measured)))
    })
}

/// Adds a case for each server; that of `kv` beside memcached's.
fn push(
    suite: &mut Suite,
    servers: &[Server],
    threads: usize,
    plan: Plan,
    unit: Unit,
    bar: Bar,
    value: fn(Measured) -> f64,
) {
    for server in servers {
        let case = case(server, threads, plan, unit, value);
        let peer = Peer::case(name(&Server::Memcached, threads, plan, unit));
        suite.push(match server {
            Server::Memcached => case,
            Server::Kv(_) => case.bar(peer, bar),
        });
    }
}

fn measure(
    sampler: &Sampler,
    server: &Server,
    threads: usize,
    plan: Plan,
) -> Result<Measured, CaseError> {
    let is_pinned = threads == 1;
    let (process, address) = server.start(threads, is_pinned.then_some(sampler.cores.second))?;
    let target = (process.0.id(), address);
    let loaded = match is_pinned {
        true => on_core(sampler.cores.first, || load(target, plan, sampler.time))?,
        false => load(target, plan, sampler.time),
    };
    loaded.map_err(|error| CaseError::Failed(format!("{}: {error}", server.name())))
}
