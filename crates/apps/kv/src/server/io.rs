//! [`Server`]: the I/O thread, which owns all sockets. It accepts connections, gives clients their
//! turns, resumes those that waited for the output budget, and closes idle and stalled ones.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;

use crate::memcached::{Budget, Connection};
use crate::server::client::{Client, Turn};
use crate::server::counters::ServerCounters;
use crate::server::job::{Completion, CompletionSender, ConnectionId, Executor};

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 64 * 1024;

/// Delay before the next `accept` after one failed, for example because descriptors ran out.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Interval between checks for stalled clients while the output budget is exhausted.
const STALL_SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum number of connections; further ones wait in the listener's queue.
    pub connections_max: usize,
    /// Number of threads that run requests, reported by `stats`.
    pub threads: usize,
    /// Memory budget in bytes for unsent responses of all connections; at least 2 MiB, so that the
    /// largest item can be read.
    pub output_bytes: usize,
    /// While the output budget is exhausted, connections whose client reads less than 64 KiB in
    /// this time are closed, one at a time, the longest stalled first.
    pub stall: Duration,
    /// Idle connections are closed after this time.
    pub idle: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            threads: 1,
            output_bytes: 64 << 20,
            stall: Duration::from_secs(2),
            idle: None,
        }
    }
}

/// A listening server; [`Server::run`] serves connections.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    listener: TcpListener,
    options: Options,
    clients: Slab<Client>,
    next_serial: u64,
    completed: Receiver<Completion>,
    completions: CompletionSender,
    stop: Arc<AtomicBool>,
    /// Whether there may be connections to accept.
    acceptable: bool,
    /// Connections that wait for the output budget, in order of arrival.
    waiting_for_budget: VecDeque<ConnectionId>,
    /// Time of the next check for stalled and idle connections.
    next_sweep: Instant,
}

/// Stops a server from another thread.
#[derive(Clone, Debug)]
pub struct StopHandle {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl StopHandle {
    /// Makes [`Server::run`] return and closes all connections; results of running jobs are
    /// discarded.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.waker.wake();
    }
}

impl Server {
    /// Listens on `address`.
    ///
    /// # Errors
    /// If the address cannot be bound, for example because the port is in use.
    pub fn bind(address: SocketAddr, options: Options) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(address)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (sender, completed) = mpsc::channel();
        let counters = Arc::new(ServerCounters::new(options.threads));
        let budget = Budget::new(options.output_bytes);
        Ok(Self {
            poll,
            listener,
            options,
            clients: Slab::new(),
            next_serial: 0,
            completed,
            completions: CompletionSender { sender, waker, counters, budget },
            stop: Arc::new(AtomicBool::new(false)),
            acceptable: true,
            waiting_for_budget: VecDeque::new(),
            next_sweep: Instant::now(),
        })
    }

    /// The listening address, with the actual port if port 0 was requested.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// A handle that stops [`Server::run`].
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { stop: Arc::clone(&self.stop), waker: Arc::clone(&self.completions.waker) }
    }

    /// Serves until stopped. An error on a connection closes only that connection.
    ///
    /// # Errors
    /// If polling fails.
    pub fn run(mut self, executor: &dyn Executor) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        let mut scratch = vec![0; READ_BYTES];
        let mut turns: Vec<usize> = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            match self.poll.poll(&mut events, self.timeout(&turns)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.acceptable = true,
                    WAKER => {}
                    Token(slot) => {
                        if let Some(client) = self.clients.get_mut(slot) {
                            client.readable |= event.is_readable() || event.is_read_closed();
                            client.writable |= event.is_writable() || event.is_write_closed();
                            queue(client, slot, &mut turns);
                        }
                    }
                }
            }
            let now = Instant::now();
            self.accept(now, &mut turns);
            self.take_completions(now, &mut turns);
            self.resume(&mut turns);
            self.sweep(now);
            for slot in std::mem::take(&mut turns) {
                let Some(client) = self.clients.get_mut(slot) else { continue };
                client.queued = false;
                match client.turn(slot, now, executor, &self.completions, &mut scratch) {
                    Turn::Waits => {}
                    Turn::WantsAnother => queue(client, slot, &mut turns),
                    Turn::Ended => self.remove(slot),
                }
            }
        }
        Ok(())
    }

    /// The timeout of the next poll.
    fn timeout(&self, turns: &[usize]) -> Option<Duration> {
        if !turns.is_empty() {
            return Some(Duration::ZERO);
        }
        let may_accept = self.acceptable && self.clients.len() < self.options.connections_max;
        let sweep = !self.waiting_for_budget.is_empty()
            || (self.options.idle.is_some() && !self.clients.is_empty());
        let sweep = sweep.then(|| self.next_sweep.saturating_duration_since(Instant::now()));
        sweep.into_iter().chain(may_accept.then_some(ACCEPT_RETRY_DELAY)).min()
    }

    fn accept(&mut self, now: Instant, turns: &mut Vec<usize>) {
        while self.acceptable && self.clients.len() < self.options.connections_max {
            match self.listener.accept() {
                Ok((stream, _)) => self.register(stream, now, turns),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.acceptable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The client has disconnected, or descriptors have run out; `acceptable` stays set,
                // so the next attempt follows after a delay.
                Err(_) => return,
            }
        }
    }

    fn register(&mut self, mut stream: TcpStream, now: Instant, turns: &mut Vec<usize>) {
        let entry = self.clients.vacant_entry();
        let slot = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        // Without nodelay responses are only slower. A connection that cannot be polled is dropped,
        // which closes it.
        let _ = stream.set_nodelay(true);
        if self.poll.registry().register(&mut stream, Token(slot), interest).is_err() {
            return;
        }
        self.next_serial += 1;
        entry.insert(Client {
            stream,
            connection: Connection::new(),
            serial: self.next_serial,
            readable: true,
            writable: true,
            queued: true,
            active: now,
            sent: 0,
            window_start: now,
        });
        turns.push(slot);
        self.completions.counters.curr_connections.fetch_add(1, Ordering::Relaxed);
        self.completions.counters.total_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Passes the output of finished jobs to their connections.
    fn take_completions(&mut self, now: Instant, turns: &mut Vec<usize>) {
        for completion in self.completed.try_iter() {
            let ConnectionId { slot, serial } = completion.connection;
            let Some(client) = self.clients.get_mut(slot).filter(|c| c.serial == serial) else {
                continue;
            };
            match completion.progress {
                Some(progress) => {
                    client.completed(progress, now);
                    if client.connection.shortage().is_some() {
                        self.waiting_for_budget.push_back(completion.connection);
                    }
                    queue(client, slot, turns);
                }
                None => remove(&mut self.clients, &self.poll, &self.completions, slot),
            }
        }
    }

    /// Resumes connections that wait for the output budget, in order, as far as it covers them.
    fn resume(&mut self, turns: &mut Vec<usize>) {
        let mut available = self.completions.budget.available();
        while let Some(&ConnectionId { slot, serial }) = self.waiting_for_budget.front() {
            if let Some(client) = self.clients.get_mut(slot).filter(|c| c.serial == serial)
                && let Some(shortage) = client.connection.shortage()
            {
                if shortage.bytes > available {
                    return;
                }
                available -= shortage.bytes;
                client.connection.resume();
                queue(client, slot, turns);
            }
            self.waiting_for_budget.pop_front();
        }
    }

    /// Closes idle connections and, while the output budget is exhausted, the longest stalled one.
    fn sweep(&mut self, now: Instant) {
        if now < self.next_sweep {
            return;
        }
        let since = |client: &Client| now.saturating_duration_since(client.active);
        let mut next = Duration::from_secs(1);
        if let Some(limit) = self.options.idle {
            let idle = |client: &Client| client.connection.is_idle() && since(client) >= limit;
            let idle: Vec<_> = self
                .clients
                .iter()
                .filter(|(_, client)| idle(client))
                .map(|(slot, _)| slot)
                .collect();
            self.completions.counters.idle_kicks.fetch_add(idle.len() as u64, Ordering::Relaxed);
            idle.into_iter().for_each(|slot| self.remove(slot));
            next = next.min(limit);
        }
        if !self.waiting_for_budget.is_empty() {
            let limit = self.options.stall;
            let stalled = self.clients.iter_mut().filter_map(|(slot, client)| {
                client.is_stalled(now, limit).then_some((client.window_start, slot))
            });
            if let Some((_, slot)) = stalled.min() {
                self.completions.counters.stalled_kicks.fetch_add(1, Ordering::Relaxed);
                self.remove(slot);
            }
            next = STALL_SWEEP_INTERVAL;
        }
        self.next_sweep = now + next;
    }

    fn remove(&mut self, slot: usize) {
        remove(&mut self.clients, &self.poll, &self.completions, slot);
    }
}

fn queue(client: &mut Client, slot: usize, turns: &mut Vec<usize>) {
    if !client.queued {
        client.queued = true;
        turns.push(slot);
    }
}

fn remove(clients: &mut Slab<Client>, poll: &Poll, completions: &CompletionSender, slot: usize) {
    let mut client = clients.remove(slot);
    // Closing the descriptor also deregisters it.
    let _ = poll.registry().deregister(&mut client.stream);
    completions.counters.curr_connections.fetch_sub(1, Ordering::Relaxed);
}
