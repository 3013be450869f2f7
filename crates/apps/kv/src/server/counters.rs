//! [`HostState`]: what the connections of one host share: counters, settings, who is connected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::memcached::admin::Setting;
use crate::memcached::{Budget, ConnectionReport, ServerState, VERSION};
use crate::server::Options;
use crate::server::socket::Socket;
use crate::store::Seconds;

/// Time between two connections that are closed because they do not read.
const STALL_INTERVAL: Duration = Duration::from_millis(100);

/// One connection, as `stats conns` reports it.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) socket: Socket,
    peer: String,
    listener: Arc<str>,
    /// When its last command came.
    pub(super) last_command: AtomicU64,
}

/// What the connections of one host share.
#[derive(Debug)]
pub(super) struct HostState {
    pub(super) options: Options,
    /// The budget for unsent responses.
    pub(super) budget: Budget,
    started: Seconds,
    total_connections: AtomicU64,
    /// Connections closed because they were idle.
    pub(super) idle_kicks: AtomicU64,
    /// Connections closed because they did not read while the output budget was exhausted.
    stalled_kicks: AtomicU64,
    /// Connections that wait for the budget.
    pub(super) waiting: AtomicU64,
    last_stalled: Mutex<Option<Instant>>,
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Whether no further connections are accepted.
    pub(super) drains: AtomicBool,
    verbosity: AtomicU64,
    crawls: AtomicBool,
    crawler_items: AtomicU64,
    crawler_sleep: AtomicU64,
}

impl HostState {
    pub(super) fn new(options: Options) -> Self {
        Self {
            budget: Budget::new(options.output_bytes),
            options,
            started: unix_time(),
            total_connections: AtomicU64::new(0),
            idle_kicks: AtomicU64::new(0),
            stalled_kicks: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            last_stalled: Mutex::default(),
            clients: Mutex::default(),
            drains: AtomicBool::new(false),
            verbosity: AtomicU64::new(0),
            crawls: AtomicBool::new(true),
            crawler_items: AtomicU64::new(0),
            crawler_sleep: AtomicU64::new(100),
        }
    }

    /// The number of open connections.
    pub(super) fn connections(&self) -> usize {
        self.clients.lock().len()
    }

    /// Adds a connection; its number and its entry. If the server drains by now, its input ends.
    pub(super) fn connected(
        &self,
        socket: Socket,
        peer: String,
        listener: Arc<str>,
    ) -> (u64, Arc<Client>) {
        let number = self.total_connections.fetch_add(1, Ordering::Relaxed);
        let last_command = AtomicU64::new(unix_time());
        let client = Arc::new(Client { socket, peer, listener, last_command });
        self.clients.lock().insert(number, client.clone());
        // After the insertion: `drain` either finds the entry, or has stored this before.
        if self.drains.load(Ordering::Acquire) {
            client.socket.end_input();
        }
        (number, client)
    }

    /// Removes a connection.
    pub(super) fn closed(&self, number: u64) {
        self.clients.lock().remove(&number);
    }

    /// Accepts no further connections, and ends the input of all. Each runs and answers the commands
    /// that have arrived, and is then closed.
    pub(super) fn drain(&self) {
        self.drains.store(true, Ordering::Release);
        self.clients.lock().values().for_each(|client| client.socket.end_input());
    }

    /// Whether a connection whose client has not read for long is to be closed: while others wait for
    /// the budget, one at a time.
    pub(super) fn kicks_stalled(&self, now: Instant) -> bool {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut last = self.last_stalled.lock();
        let kicks = last.is_none_or(|last| now.duration_since(last) >= STALL_INTERVAL);
        if kicks {
            *last = Some(now);
            self.stalled_kicks.fetch_add(1, Ordering::Relaxed);
        }
        kicks
    }
}

impl ServerState for HostState {
    fn stats(&self, now: Seconds) -> Vec<(&'static str, String)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed).to_string();
        vec![
            ("pid", std::process::id().to_string()),
            ("uptime", now.saturating_sub(self.started).to_string()),
            ("time", now.to_string()),
            ("version", VERSION.to_owned()),
            ("pointer_size", usize::BITS.to_string()),
            ("max_connections", self.options.connections_max.to_string()),
            ("curr_connections", self.connections().to_string()),
            ("total_connections", count(&self.total_connections)),
            ("idle_kicks", count(&self.idle_kicks)),
            ("stalled_kicks", count(&self.stalled_kicks)),
            ("accepting_conns", u8::from(!self.drains.load(Ordering::Relaxed)).to_string()),
            ("threads", self.options.threads.to_string()),
        ]
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed).to_string();
        let Options { connections_max, address, unix, threads, idle, .. } = &self.options;
        let yes = if self.crawls.load(Ordering::Relaxed) { "yes" } else { "no" };
        vec![
            ("maxconns", connections_max.to_string()),
            ("tcpport", address.map_or(0, |address| address.port()).to_string()),
            ("udpport", "0".to_owned()),
            ("inter", address.map_or_else(String::new, |address| address.ip().to_string())),
            ("domain_socket", unix.clone().unwrap_or_else(|| "NULL".to_owned())),
            ("verbosity", count(&self.verbosity)),
            ("num_threads", threads.to_string()),
            ("idle_timeout", idle.map_or(0, |idle| idle.as_secs()).to_string()),
            ("lru_crawler", yes.to_owned()),
            ("lru_crawler_sleep", count(&self.crawler_sleep)),
            ("lru_crawler_tocrawl", count(&self.crawler_items)),
        ]
    }

    fn connections(&self, from: u64, count: usize, now: Seconds) -> Vec<ConnectionReport> {
        let report = |(&number, client): (&u64, &Arc<Client>)| {
            let idle = now.saturating_sub(client.last_command.load(Ordering::Relaxed));
            let report = vec![
                ("addr", client.peer.clone()),
                ("listen_addr", client.listener.to_string()),
                ("state", "conn_read".to_owned()),
                ("secs_since_last_cmd", idle.to_string()),
            ];
            (number, report)
        };
        self.clients.lock().range(from..).take(count).map(report).collect()
    }

    fn set(&self, setting: Setting) {
        match setting {
            Setting::Verbosity(level) => self.verbosity.store(level.into(), Ordering::Relaxed),
            Setting::Crawler(allowed) => self.crawls.store(allowed, Ordering::Relaxed),
            Setting::CrawlerItems(items) => {
                self.crawler_items.store(items.into(), Ordering::Relaxed);
            }
            Setting::CrawlerSleep(micros) => {
                self.crawler_sleep.store(micros.into(), Ordering::Relaxed);
            }
        }
    }

    fn crawler(&self) -> (bool, u32, u32) {
        let small = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as u32;
        let allowed = self.crawls.load(Ordering::Relaxed);
        (allowed, small(&self.crawler_items), small(&self.crawler_sleep))
    }
}

/// Whole seconds since the Unix epoch.
pub(super) fn unix_time() -> Seconds {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_input_of_a_connection_that_was_accepted_during_a_drain_ends() {
        let host = HostState::new(Options::default());
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        host.drain();
        let (_, client) =
            host.connected(Socket::Unix(Arc::new(ours)), "peer".to_owned(), "listener".into());
        assert_eq!(client.socket.read(&mut [0]).unwrap(), 0);
    }
}
