//! [`ServerState`] of a host: what `stats` and its families report of the server, over all hosts.
//!
//! A connection is one host's, but clients do not know which one answers them. So the host that is
//! asked asks the others, by a fiber on each.

use std::sync::atomic::Ordering;

use gossamer::{HostId, Trustee};
use serde::{Deserialize, Serialize};

use crate::memcached::{ConnectionReport, ServerState, VERSION, crawl};
use crate::server::Options;
use crate::server::counters::{Client, HostState, State, unix_time};
use crate::server::host;
use crate::store::{Seconds, Settings};

/// The counters of a host.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counters {
    pid: u32,
    started: Seconds,
    connections_max: u64,
    current: u64,
    total: u64,
    rejected: u64,
    accepts: bool,
    listen_disabled: u64,
    listen_disabled_micros: u64,
    idle_kicks: u64,
    stalled_kicks: u64,
    yields: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Microseconds of processor time, in the program and in the system.
    user_micros: u64,
    system_micros: u64,
}

impl Counters {
    /// Adds those of another host.
    fn add(&mut self, other: &Self) {
        self.connections_max += other.connections_max;
        self.current += other.current;
        self.total += other.total;
        self.rejected += other.rejected;
        self.accepts &= other.accepts;
        self.listen_disabled += other.listen_disabled;
        self.listen_disabled_micros += other.listen_disabled_micros;
        self.idle_kicks += other.idle_kicks;
        self.stalled_kicks += other.stalled_kicks;
        self.yields += other.yields;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.user_micros += other.user_micros;
        self.system_micros += other.system_micros;
    }

    /// What was counted since `reset`, of all that a reset concerns.
    fn since(self, reset: &Self) -> Self {
        Self {
            total: self.total - reset.total,
            rejected: self.rejected - reset.rejected,
            listen_disabled: self.listen_disabled - reset.listen_disabled,
            listen_disabled_micros: self.listen_disabled_micros - reset.listen_disabled_micros,
            idle_kicks: self.idle_kicks - reset.idle_kicks,
            stalled_kicks: self.stalled_kicks - reset.stalled_kicks,
            yields: self.yields - reset.yields,
            bytes_read: self.bytes_read - reset.bytes_read,
            bytes_written: self.bytes_written - reset.bytes_written,
            ..self
        }
    }
}

/// The first thread of a host.
pub(super) fn first_thread(host: HostId) -> Option<Trustee> {
    gossamer::threads().find(|thread| thread.thread().host == host)
}

/// The results of `ask` on this host and of `asks` on all others that serve, in the order of hosts.
fn of_hosts<A, R>(
    own: R,
    asks: impl FnOnce(A) -> Option<R> + gossamer::Delegable,
    arguments: A,
) -> Vec<R>
where
    A: gossamer::Portable + Clone,
    R: gossamer::Portable + Send,
{
    let local = gossamer::local_host();
    // All at once, then one after the other.
    let asked: Vec<_> = gossamer::live_hosts()
        .map(|host| {
            let thread = first_thread(host).filter(|_| host != local);
            thread.map(|thread| gossamer::spawn_on_with(thread, asks, arguments.clone()))
        })
        .collect();
    let mut own = Some(own);
    let result = |asked: Option<gossamer::JoinHandle<Option<R>>>| match asked {
        Some(asked) => asked.join().ok().flatten(),
        None => own.take(),
    };
    asked.into_iter().filter_map(result).collect()
}

/// The counters of the server of this host, which another one asks for.
fn counters_of_host((): ()) -> Option<Counters> {
    host::running().map(|state| state.counters())
}

/// Resets the counters of this host, for another one.
fn reset_host((): ()) -> Option<()> {
    host::running().map(|state| state.reset_own())
}

/// The connections of this host; see [`ServerState::connections`].
fn connections_of_host(
    (from, count, now): (u64, usize, Seconds),
) -> Option<(Vec<ConnectionReport>, u64)> {
    host::running().map(|state| state.own_connections(from, count, now))
}

impl HostState {
    /// Since they were reset.
    fn counters(&self) -> Counters {
        // The reset first: counters only grow, so that no difference is negative.
        let reset = *self.reset.lock();
        self.counted().since(&reset)
    }

    fn reset_own(&self) {
        let mut reset = self.reset.lock();
        *reset = self.counted();
    }

    /// Since the host has started.
    fn counted(&self) -> Counters {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let clients = self.clients.lock();
        let [mut bytes_read, mut bytes_written] = clients.closed_traffic;
        for client in clients.open.values() {
            let [read, written] = client.traffic();
            bytes_read += read;
            bytes_written += written;
        }
        let [user_micros, system_micros] = processor_micros();
        Counters {
            pid: std::process::id(),
            started: self.started,
            connections_max: self.options.connections_max as u64,
            current: clients.open.len() as u64,
            total: count(&self.total_connections),
            rejected: count(&self.rejected),
            accepts: !self.drains.load(Ordering::Relaxed),
            listen_disabled: count(&self.listen_disabled),
            listen_disabled_micros: count(&self.listen_disabled_micros),
            idle_kicks: count(&self.idle_kicks),
            stalled_kicks: count(&self.stalled_kicks),
            yields: count(&self.yields),
            bytes_read,
            bytes_written,
            user_micros,
            system_micros,
        }
    }

    /// The listeners and connections of this host. Their numbers are this host's in turn with the
    /// others'; the listeners come first.
    fn own_connections(
        &self,
        from: u64,
        count: usize,
        now: Seconds,
    ) -> (Vec<ConnectionReport>, u64) {
        let hosts = gossamer::hosts().count().max(1) as u64;
        let local = gossamer::local_host();
        let own = gossamer::hosts().position(|host| host == local).unwrap_or(0) as u64;
        let listeners = self.listeners.len() as u64;
        let first = from.saturating_sub(own).div_ceil(hosts);
        let listening = (first..listeners).map(|number| ConnectionReport {
            number: number * hosts + own,
            address: self.listeners[number as usize].clone(),
            listener: None,
            state: "conn_listening".to_owned(),
            idle: now.saturating_sub(self.started),
        });
        let clients = self.clients.lock();
        let open = clients.open.range(first.saturating_sub(listeners)..);
        let connected =
            open.map(|(number, client)| report((number + listeners) * hosts + own, client, now));
        let next = self.total_connections.load(Ordering::Relaxed) + listeners;
        (listening.chain(connected).take(count).collect(), next * hosts + own)
    }
}

fn report(number: u64, client: &Client, now: Seconds) -> ConnectionReport {
    let state = match client.state() {
        State::Reads => "conn_read",
        State::Writes => "conn_mwrite",
        State::Runs => "conn_parse_cmd",
    };
    ConnectionReport {
        number,
        address: client.peer.clone(),
        listener: Some(client.listener.to_string()),
        state: state.to_owned(),
        idle: now.saturating_sub(client.last_command.load(Ordering::Relaxed)),
    }
}

/// Microseconds of processor time of this process, in the program and in the system.
fn processor_micros() -> [u64; 2] {
    // The name of the program, in parentheses, may contain anything; the times follow 11 words later.
    let bytes = std::fs::read("/proc/self/stat").unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let words = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().skip(11);
    let mut ticks = words.map(|word| word.parse().unwrap_or(0));
    let micros = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
    [(); 2].map(|()| ticks.next().unwrap_or(0) * micros)
}

impl ServerState for HostState {
    fn stats(&self, now: Seconds) -> Vec<(&'static str, String)> {
        let mut hosts = of_hosts(self.counters(), counters_of_host, ()).into_iter();
        let mut all = hosts.next().unwrap_or_default();
        hosts.for_each(|other| all.add(&other));
        let seconds = |micros: u64| format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        vec![
            // Of the first host.
            ("pid", all.pid.to_string()),
            ("uptime", now.saturating_sub(all.started).to_string()),
            ("time", now.to_string()),
            ("version", VERSION.to_owned()),
            ("pointer_size", usize::BITS.to_string()),
            ("rusage_user", seconds(all.user_micros)),
            ("rusage_system", seconds(all.system_micros)),
            ("max_connections", all.connections_max.to_string()),
            ("curr_connections", all.current.to_string()),
            ("total_connections", all.total.to_string()),
            ("rejected_connections", all.rejected.to_string()),
            ("connection_structures", all.current.to_string()),
            ("idle_kicks", all.idle_kicks.to_string()),
            ("stalled_kicks", all.stalled_kicks.to_string()),
            ("bytes_read", all.bytes_read.to_string()),
            ("bytes_written", all.bytes_written.to_string()),
            ("accepting_conns", u8::from(all.accepts).to_string()),
            ("listen_disabled_num", all.listen_disabled.to_string()),
            ("time_in_listen_disabled_us", all.listen_disabled_micros.to_string()),
            ("conn_yields", all.yields.to_string()),
            ("threads", self.options.threads.to_string()),
        ]
    }

    fn reset(&self) {
        self.reset_own();
        of_hosts((), reset_host, ());
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let Options { connections_max, address, unix, threads, idle, .. } = &self.options;
        let connections_max = connections_max * gossamer::hosts().count().max(1);
        vec![
            ("maxconns", connections_max.to_string()),
            ("maxconns_fast", "yes".to_owned()),
            ("tcpport", address.map_or(0, |address| address.port()).to_string()),
            ("tcp_backlog", super::socket::BACKLOG.to_string()),
            ("udpport", "0".to_owned()),
            ("inter", address.map_or_else(String::new, |address| address.ip().to_string())),
            ("domain_socket", unix.clone().unwrap_or_else(|| "NULL".to_owned())),
            ("num_threads", threads.to_string()),
            ("read_buf_mem_limit", self.options.input_bytes.to_string()),
            ("idle_timeout", idle.map_or(0, |idle| idle.as_secs()).to_string()),
        ]
    }

    fn connections(&self, from: u64, count: usize, now: Seconds) -> (Vec<ConnectionReport>, u64) {
        let own = self.own_connections(from, count, now);
        let hosts = of_hosts(own, connections_of_host, (from, count, now));
        let end = hosts.iter().map(|(_, end)| *end).max().unwrap_or(0);
        let mut all: Vec<_> = hosts.into_iter().flat_map(|(reports, _)| reports).collect();
        all.sort_unstable_by_key(|report| report.number);
        all.truncate(count);
        (all, end)
    }

    fn start_crawl(&self, settings: Settings) {
        let (shards, drains) = (self.shards.clone(), self.drains.clone());
        drop(fiber::spawn_local(move || {
            crawl(&*shards, settings, unix_time, || !drains.load(Ordering::Relaxed));
        }));
    }
}
