//! One connection, served by a fiber of its own on the thread that owns the socket.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gossamer::{Polled, Readiness};

use crate::memcached::{Connection, Shards};
use crate::server::Options;
use crate::server::counters::{Client, HostState, unix_time};
use crate::server::socket::Socket;

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// Bytes that a client must read within [`Options::stall`] while the output budget is exhausted, or
/// its connection is stalled.
///
/// [`Options::stall`]: crate::server::Options::stall
const MIN_READ_BYTES: usize = 64 * 1024;

/// Batches in a row without a wait for the client, after which other fibers run. A batch that needs
/// nothing of the store does not wait by itself.
const BATCHES_MAX: u32 = 16;

/// Time between two looks at the budget, while it is exhausted.
const BUDGET_INTERVAL: Duration = Duration::from_millis(1);

thread_local! {
    /// Where sockets are read to: no fiber waits between a read and its use.
    static SCRATCH: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; READ_BYTES]);
}

/// Serves a connection until it ends.
pub(super) fn serve(socket: Socket, client: &Client, shards: &dyn Shards, host: &HostState) {
    if let Ok(socket) = Polled::new(socket) {
        let connection = Connection::new();
        // An error ends this connection only.
        let _ =
            Serving { socket, connection, client, shards, host, window: None, batches: 0 }.run();
    }
}

struct Serving<'a> {
    socket: Polled<Socket>,
    connection: Connection,
    client: &'a Client,
    shards: &'a dyn Shards,
    host: &'a HostState,
    /// Since when bytes that the client reads are counted, and how many, to detect stalls.
    window: Option<(Instant, usize)>,
    /// Batches since the last wait for the client.
    batches: u32,
}

impl Serving<'_> {
    fn run(mut self) -> io::Result<()> {
        loop {
            self.send()?;
            self.wait_for_budget();
            if let Some(batch) = self.connection.next_batch() {
                let now = unix_time();
                self.client.last_command.store(now, Ordering::Relaxed);
                let progress = batch.run(self.shards, self.host, now, &self.host.budget);
                if self.connection.output().is_empty() {
                    self.window = None;
                }
                self.connection.completed(progress);
                self.batches += 1;
                if self.batches == BATCHES_MAX {
                    self.batches = 0;
                    fiber::yield_to_worker();
                }
                continue;
            }
            if self.connection.is_finished() {
                return Ok(());
            }
            let goes_on = self.receive()?
                || match self.connection.output().is_empty() {
                    true => self.wait_for_input(),
                    false => self.wait_for_client(),
                };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Sends what the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while !self.connection.output().is_empty() {
            let output = self.connection.output();
            match self.socket.try_write_with(|socket| socket.write(&output.slices())) {
                Some(Ok(0)) => return Err(ErrorKind::WriteZero.into()),
                Some(Ok(length)) => {
                    self.connection.sent(length);
                    if let Some((_, sent)) = &mut self.window {
                        *sent += length;
                    }
                }
                Some(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        Ok(())
    }

    /// Reads once, if there may be something to read; whether there was.
    fn receive(&mut self) -> io::Result<bool> {
        if !self.connection.wants_input() {
            return Ok(false);
        }
        let (socket, connection) = (&self.socket, &mut self.connection);
        let read = SCRATCH.with_borrow_mut(|scratch| {
            let read = socket.try_read_with(|socket| socket.read(scratch));
            if let Some(Ok(length)) = read {
                connection.received(&scratch[..length]);
                if length > 0 && length < scratch.len() {
                    // A stream that returns less has no more; what comes now is a new event.
                    socket.clear_readable();
                }
            }
            read
        });
        match read {
            None => Ok(false),
            Some(Ok(0)) => {
                connection.input_ended();
                Ok(true)
            }
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Some(Err(error)) => Err(error),
        }
    }

    /// Waits for a command; false if the connection is to be closed, because none comes.
    fn wait_for_input(&self) -> bool {
        let idle = self.host.options.idle;
        let deadline = idle.map(|idle| Instant::now() + idle);
        let came = self.socket.wait(Readiness::Readable, deadline);
        if !came && idle.is_some() {
            self.host.idle_kicks.fetch_add(1, Ordering::Relaxed);
        }
        came
    }

    /// Waits until the client reads, or sends more if that is wanted; false if the connection is to
    /// be closed, because it does neither. Sending does not count as reading.
    fn wait_for_client(&mut self) -> bool {
        let Options { stall, idle, .. } = self.host.options;
        let what = match self.connection.wants_input() {
            true => Readiness::Either,
            false => Readiness::Writable,
        };
        let idle_at = idle.map(|idle| Instant::now() + idle);
        loop {
            let (start, sent) = *self.window.get_or_insert_with(|| (Instant::now(), 0));
            if self.socket.wait(what, Some(start + stall)) {
                return true;
            }
            let now = Instant::now();
            if idle_at.is_some_and(|at| at <= now) {
                self.host.idle_kicks.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            if now.duration_since(start) >= stall {
                if sent < MIN_READ_BYTES && self.host.kicks_stalled(now) {
                    return false;
                }
                self.window = Some((now, 0));
            }
        }
    }

    /// Waits while the next response needs more memory than the budget has. Other connections send
    /// meanwhile, or are closed because they do not.
    fn wait_for_budget(&mut self) {
        let Some(shortage) = self.connection.shortage() else { return };
        if !self.connection.output().is_empty() {
            // What this connection holds comes back once it is sent.
            return;
        }
        let _waiting = Waiting::new(&self.host.waiting);
        while self.host.budget.available() < shortage.bytes {
            gossamer::sleep(BUDGET_INTERVAL);
        }
        self.connection.resume();
    }
}

/// Counts a connection that waits for the budget, also if its fiber is unwound.
struct Waiting<'a>(&'a AtomicU64);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Ends the entry of a connection, also if its fiber is unwound.
pub(super) struct Entry {
    pub(super) host: Arc<HostState>,
    pub(super) number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.host.closed(self.number);
    }
}
