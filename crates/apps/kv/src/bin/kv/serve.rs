//! `kv serve`.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use gossamer::{HostId, Trustee};
use gossamer_kv::server::limits::raise_open_files;
use gossamer_kv::server::rack::RackShards;
use gossamer_kv::server::{Options, drain, find_free, serve};
use signal_hook::consts::SIGTERM;
use signal_hook::flag;

use crate::RackArgs;

/// Time between two looks for a signal.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// How long a server that gets SIGTERM waits for its connections to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How many ports of its choice the first host tries, until one is free on all others, too.
const PORTS_TRIED: u32 = 16;

#[derive(Args, Clone)]
pub(super) struct Serve {
    #[command(flatten)]
    rack: RackArgs,
    /// Port to listen on; 0 picks a free port. Every host listens there: those of one machine share
    /// the port, and the kernel spreads connections over them
    #[arg(long, default_value_t = 11211)]
    port: u16,
    /// Address to listen on, or one for each host, separated by commas. The protocol has no
    /// authentication: every client that can connect can read and write all items
    #[arg(long, default_value = "127.0.0.1", value_delimiter = ',', value_name = "ADDRESS,..")]
    listen: Vec<IpAddr>,
    /// Path of a Unix socket on which the first host listens, too
    #[arg(long)]
    unix: Option<String>,
    /// Memory limit for items in MiB, over all hosts: each has an equal part, which its threads share. On
    /// each host, unsent responses and unfinished commands use up to 64 MiB more each, and every
    /// connection up to 60 KiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    memory: u32,
    /// Maximum number of open connections of each host. Further ones get `ERROR Too many open
    /// connections` and are closed. Each takes an open file, whose limit is raised if need be
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Close connections after this many seconds without a command; 0 never closes them
    #[arg(long, default_value_t = 600)]
    idle_timeout: u32,
}

impl Serve {
    pub(super) fn run(self) -> ExitCode {
        // In every process of the rack: the first one ends the others once it has drained them.
        let stop = Arc::new(AtomicBool::new(false));
        // A second signal ends the process at once: the first is only looked at once the rack runs.
        let registered = flag::register_conditional_default(SIGTERM, stop.clone())
            .and_then(|_| flag::register(SIGTERM, stop.clone()));
        if let Err(error) = registered {
            eprintln!("kv: cannot handle SIGTERM: {error}");
            return ExitCode::FAILURE;
        }
        if let Err(error) = raise_open_files(self.connections as usize) {
            eprintln!("kv: {error}");
            return ExitCode::FAILURE;
        }
        self.rack.clone().run(move || self.main(&stop))
    }

    fn main(self, stop: &AtomicBool) -> Result<(), String> {
        let hosts = gossamer::hosts().count();
        if self.listen.len() > 1 && self.listen.len() != hosts {
            let count = self.listen.len();
            return Err(format!(
                "--listen must be one address, or one for each of {hosts} hosts, got {count}"
            ));
        }
        let shards = RackShards::new(self.memory as usize * (1 << 20));
        let mut options = Options {
            address: None,
            shares_port: hosts > 1,
            unix: self.unix.clone(),
            connections_max: self.connections as usize,
            threads: gossamer::threads().count(),
            idle: (self.idle_timeout > 0).then(|| Duration::from_secs(self.idle_timeout.into())),
            ..Options::default()
        };
        let addresses: Vec<_> =
            gossamer::hosts().zip(self.listen.iter().copied().cycle()).collect();
        let mut port = self.port;
        if hosts > 1 {
            port = free_port(&addresses, port)?;
        }
        for (host, listen) in addresses {
            options.address = Some(SocketAddr::new(listen, port));
            let arguments = (shards.clone(), options.clone());
            let serving = gossamer::spawn_on_with(first_thread(host), serve, arguments);
            let address = serving.join().map_err(|error| error.to_string())??;
            port = address.map_or(port, |address| address.port());
        }
        let mut listen = self.listen.clone();
        listen.dedup();
        for address in listen {
            let address = SocketAddr::new(address, port);
            println!("kv: serving the memcached protocol on {address}");
        }
        if let Some(path) = &self.unix {
            println!("kv: serving the memcached protocol on {path}");
        }
        while !stop.load(Ordering::Acquire) {
            gossamer::sleep(SIGNAL_INTERVAL);
        }
        let drains: Vec<_> = gossamer::live_hosts()
            .map(|host| gossamer::spawn_on_with(first_thread(host), drain, DRAIN_TIMEOUT))
            .collect();
        let (mut ended, mut left) = (0, 0);
        for drained in drains.into_iter().filter_map(|drained| drained.join().ok()) {
            ended += drained.ended;
            left += drained.left;
        }
        // Standard output may be closed by now; the server still ends normally.
        let _ = writeln!(io::stdout(), "kv: ended by SIGTERM, {} drained", connections(ended));
        if left > 0 {
            eprintln!("kv: {} not drained in time", connections(left));
        }
        Ok(())
    }
}

/// A port that is free at the addresses of all hosts: `port`, or one that the first host chooses if it is 0.
fn free_port(addresses: &[(HostId, IpAddr)], port: u16) -> Result<u16, String> {
    let find = || {
        addresses.iter().try_fold(port, |port, &(host, listen)| {
            let address = SocketAddr::new(listen, port);
            let found = gossamer::spawn_on_with(first_thread(host), find_free, address).join();
            Ok(found.map_err(|error| error.to_string())??.port())
        })
    };
    let attempts = if port == 0 { PORTS_TRIED } else { 1 };
    let mut found: Result<u16, String> = find();
    for _ in 1..attempts {
        if found.is_ok() {
            break;
        }
        found = find();
    }
    found
}

/// How many connections, in words.
fn connections(count: usize) -> String {
    format!("{count} connection{}", if count == 1 { "" } else { "s" })
}

/// The first thread of a host.
fn first_thread(host: HostId) -> Trustee {
    let mut threads = gossamer::threads();
    threads.find(|thread| thread.thread().host == host).expect("a host has a thread")
}

#[cfg(test)]
mod tests {
    use super::connections;

    #[test]
    fn one_connection_is_not_plural() {
        assert_eq!([0, 1, 2].map(connections), ["0 connections", "1 connection", "2 connections"]);
    }
}
