//! [`HostState`]: what the connections of one host share: budgets, counters, who is connected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::memcached::{Budget, Shards};
use crate::server::Options;
use crate::server::reports::Counters;
use crate::server::socket::Socket;
use crate::store::Seconds;

/// Time between two connections that are closed because they do not read or send.
pub(super) const STALL_INTERVAL: Duration = Duration::from_millis(100);

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Waits for a command.
    Reads,
    /// Waits until the client reads.
    Writes,
    /// Runs commands, or waits for memory for it.
    Runs,
}

/// One connection, as `stats conns` reports it. Its fiber writes, others read.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) socket: Socket,
    pub(super) peer: String,
    pub(super) listener: Arc<str>,
    /// When its last command came.
    pub(super) last_command: AtomicU64,
    /// When its last command came, or it last took a part of a response.
    pub(super) last_use: AtomicU64,
    state: AtomicU8,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    /// Whether it was closed because it was idle.
    is_kicked: AtomicBool,
}

impl Client {
    fn new(socket: Socket, peer: String, listener: Arc<str>) -> Self {
        let now = unix_time();
        Self {
            socket,
            peer,
            listener,
            last_command: now.into(),
            last_use: now.into(),
            state: AtomicU8::new(State::Reads as u8),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            is_kicked: AtomicBool::new(false),
        }
    }

    pub(super) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            state if state == State::Reads as u8 => State::Reads,
            state if state == State::Writes as u8 => State::Writes,
            _ => State::Runs,
        }
    }

    pub(super) fn count_read(&self, bytes: usize) {
        count(&self.bytes_read, bytes);
    }

    pub(super) fn count_written(&self, bytes: usize) {
        count(&self.bytes_written, bytes);
    }

    /// Bytes read and written.
    pub(super) fn traffic(&self) -> [u64; 2] {
        [&self.bytes_read, &self.bytes_written].map(|bytes| bytes.load(Ordering::Relaxed))
    }
}

/// Adds to a counter that no other thread writes.
fn count(counter: &AtomicU64, bytes: usize) {
    counter.store(counter.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
}

/// Whether to close a connection that is stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kick {
    /// Yes.
    Now,
    /// Not yet, since another one was closed just before.
    Later,
    /// No: no connection waits for memory that it holds.
    No,
}

/// The budgets that a connection holds memory of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holds {
    /// That for unsent responses.
    pub(super) output: bool,
    /// That for unfinished commands.
    pub(super) input: bool,
}

/// The connections of a host.
#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) open: BTreeMap<u64, Arc<Client>>,
    /// Bytes read and written by those that were closed.
    pub(super) closed_traffic: [u64; 2],
}

/// What the connections of one host share.
pub(super) struct HostState {
    pub(super) options: Options,
    pub(super) shards: Arc<dyn Shards + Send + Sync>,
    /// Where it listens, as `stats conns` reports it.
    pub(super) listeners: Vec<String>,
    /// The budget for unsent responses.
    pub(super) output: Budget,
    /// The budget for unfinished long commands.
    pub(super) input: Budget,
    pub(super) started: Seconds,
    pub(super) total_connections: AtomicU64,
    /// Connections refused because there were as many as there may be.
    pub(super) rejected: AtomicU64,
    /// How often descriptors had run out, and for how many microseconds.
    pub(super) listen_disabled: AtomicU64,
    pub(super) listen_disabled_micros: AtomicU64,
    /// Connections closed because they were idle.
    pub(super) idle_kicks: AtomicU64,
    /// Connections closed because they stalled while others waited for memory.
    pub(super) stalled_kicks: AtomicU64,
    /// How often a connection has let others run after many batches.
    pub(super) yields: AtomicU64,
    last_stalled: Mutex<Option<Instant>>,
    /// The counters when they were last reset.
    pub(super) reset: Mutex<Counters>,
    pub(super) clients: Mutex<Clients>,
    /// Whether no further connections are accepted.
    pub(super) drains: Arc<AtomicBool>,
}

impl HostState {
    pub(super) fn new(
        options: Options,
        shards: Arc<dyn Shards + Send + Sync>,
        listeners: Vec<String>,
    ) -> Self {
        Self {
            output: Budget::new(options.output_bytes),
            input: Budget::new(options.input_bytes),
            options,
            shards,
            listeners,
            started: unix_time(),
            total_connections: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            listen_disabled: AtomicU64::new(0),
            listen_disabled_micros: AtomicU64::new(0),
            idle_kicks: AtomicU64::new(0),
            stalled_kicks: AtomicU64::new(0),
            yields: AtomicU64::new(0),
            last_stalled: Mutex::default(),
            reset: Mutex::default(),
            clients: Mutex::default(),
            drains: Arc::default(),
        }
    }

    /// The number of open connections.
    pub(super) fn connections(&self) -> usize {
        self.clients.lock().open.len()
    }

    /// Adds a connection; its number and its entry. If the server drains by now, its input ends.
    pub(super) fn connected(
        &self,
        socket: Socket,
        peer: String,
        listener: Arc<str>,
    ) -> (u64, Arc<Client>) {
        let number = self.total_connections.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client::new(socket, peer, listener));
        self.clients.lock().open.insert(number, client.clone());
        // After the insertion: `drain` either finds the entry, or has stored this before.
        if self.drains.load(Ordering::Acquire) {
            client.socket.end_input();
        }
        (number, client)
    }

    /// Removes a connection.
    pub(super) fn closed(&self, number: u64) {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.open.remove(&number) {
            let [read, written] = client.traffic();
            clients.closed_traffic[0] += read;
            clients.closed_traffic[1] += written;
        }
    }

    /// Accepts no further connections, and ends the input of all. Each runs and answers the commands
    /// that have arrived, and is then closed.
    pub(super) fn drain(&self) {
        self.drains.store(true, Ordering::Release);
        self.clients.lock().open.values().for_each(|client| client.socket.end_input());
    }

    /// Ends connections whose clients have not sent a command or read for `idle`: what arrives of a
    /// command that is never finished does not count.
    pub(super) fn end_idle(&self, idle: Duration, now: Seconds) {
        for client in self.clients.lock().open.values() {
            let unused = now.saturating_sub(client.last_use.load(Ordering::Relaxed));
            if unused > idle.as_secs()
                && client.state() != State::Runs
                && !client.is_kicked.swap(true, Ordering::Relaxed)
            {
                self.idle_kicks.fetch_add(1, Ordering::Relaxed);
                client.socket.end();
            }
        }
    }

    /// Whether to close a connection whose client has neither read nor sent for long, although it
    /// holds memory: while others wait for that, one at a time.
    pub(super) fn kicks_stalled(&self, holds: Holds, now: Instant) -> Kick {
        let waits_for = |holds: bool, budget: &Budget| holds && budget.waiting() > 0;
        if !waits_for(holds.output, &self.output) && !waits_for(holds.input, &self.input) {
            return Kick::No;
        }
        let mut last = self.last_stalled.lock();
        if last.is_some_and(|last| now.duration_since(last) < STALL_INTERVAL) {
            return Kick::Later;
        }
        *last = Some(now);
        self.stalled_kicks.fetch_add(1, Ordering::Relaxed);
        Kick::Now
    }
}

impl std::fmt::Debug for HostState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostState").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Whole seconds since the Unix epoch; of the clock that is cheap to read, since every command does.
pub(super) fn unix_time() -> Seconds {
    clock_gettime(ClockId::RealtimeCoarse).tv_sec.try_into().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::memcached::local::LocalShards;

    fn host() -> HostState {
        HostState::new(Options::default(), Arc::new(LocalShards::new(1, None)), Vec::new())
    }

    #[test]
    fn the_input_of_a_connection_that_was_accepted_during_a_drain_ends() {
        let host = host();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        host.drain();
        let (_, client) =
            host.connected(Socket::Unix(Arc::new(ours)), "peer".to_owned(), "listener".into());
        assert_eq!(client.socket.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn stalled_connections_are_closed_one_after_the_other_while_others_wait() {
        let (host, now) = (host(), Instant::now());
        let both = Holds { output: true, input: true };
        assert_eq!(host.kicks_stalled(both, now), Kick::No);
        let _place = host.output.queue(usize::MAX, || ());
        assert_eq!(host.kicks_stalled(both, now), Kick::Now);
        assert_eq!(host.kicks_stalled(both, now), Kick::Later);
        assert_eq!(host.kicks_stalled(both, now + STALL_INTERVAL), Kick::Now);
    }

    #[test]
    fn no_connection_is_closed_for_memory_that_it_does_not_hold() {
        let (host, now) = (host(), Instant::now());
        let _place = host.output.queue(usize::MAX, || ());
        let input = Holds { input: true, ..Holds::default() };
        assert_eq!(host.kicks_stalled(input, now), Kick::No);
        let output = Holds { output: true, ..Holds::default() };
        assert_eq!(host.kicks_stalled(output, now), Kick::Now);
    }
}
