//! What the `stats` command reports about the server, as opposed to the store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::memcached::{ServerState, VERSION};
use crate::store::Seconds;

/// Counters of the server, updated by the I/O thread.
#[derive(Debug)]
pub(super) struct ServerCounters {
    started: Seconds,
    threads: usize,
    pub(super) curr_connections: AtomicU64,
    pub(super) total_connections: AtomicU64,
    /// Connections closed because they were idle.
    pub(super) idle_kicks: AtomicU64,
    /// Connections closed because they did not read while the output budget was exhausted.
    pub(super) stalled_kicks: AtomicU64,
}

impl ServerCounters {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            started: unix_time(),
            threads,
            curr_connections: AtomicU64::new(0),
            total_connections: AtomicU64::new(0),
            idle_kicks: AtomicU64::new(0),
            stalled_kicks: AtomicU64::new(0),
        }
    }
}

impl ServerState for ServerCounters {
    fn stats(&self, now: Seconds) -> Vec<(&'static str, String)> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed).to_string();
        vec![
            ("pid", std::process::id().to_string()),
            ("uptime", now.saturating_sub(self.started).to_string()),
            ("time", now.to_string()),
            ("version", VERSION.to_owned()),
            ("pointer_size", usize::BITS.to_string()),
            ("curr_connections", count(&self.curr_connections)),
            ("total_connections", count(&self.total_connections)),
            ("idle_kicks", count(&self.idle_kicks)),
            ("stalled_kicks", count(&self.stalled_kicks)),
            ("threads", self.threads.to_string()),
        ]
    }
}

/// Whole seconds since the Unix epoch.
pub(super) fn unix_time() -> Seconds {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
