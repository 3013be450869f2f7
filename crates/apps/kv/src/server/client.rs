//! One connection, served by fibers of the thread that owns the socket.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gossamer::{Polled, Readiness};

use crate::memcached::{Budget, Connection, Output, Reservation};
use crate::server::counters::{Client, Holds, HostState, Kick, STALL_INTERVAL, State, unix_time};
use crate::server::pool;
use crate::server::socket::Socket;

/// Maximum number of bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// Bytes that a client must read, or send of a long command, within [`Options::stall`] while others
/// wait for memory, or its connection is stalled.
///
/// [`Options::stall`]: crate::server::Options::stall
const MIN_BYTES: usize = 64 * 1024;

/// memcached's limit of batches in a row (`-R`), only to count `conn_yields`: here others run after each
/// batch.
const BATCHES_MAX: u32 = 16;

/// Bytes of answers above which they are sent before other connections are served: until then they hold
/// memory of the budget of all connections.
const SEND_BYTES: usize = 16 * 1024;

/// Time between two looks at whether the client of a connection that waits for memory is still there.
const HANG_UP_INTERVAL: Duration = Duration::from_millis(500);

thread_local! {
    /// Where sockets are read to: no fiber waits between a read and its use.
    static SCRATCH: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; READ_BYTES]);
}

/// Hands a new connection to this thread's pool.
pub(super) fn adopt(socket: Socket, client: Arc<Client>, entry: Entry) {
    if let Ok(socket) = Polled::new(socket) {
        let connection = Connection::new();
        let (window, granted, batches) = (None, None, 0);
        pool::add(Serving { socket, connection, client, entry, window, granted, batches });
    }
}

/// What a connection does next.
pub(super) enum Next {
    /// Sends answers, after the other connections that are ready have run their commands.
    Send,
    /// Waits for a command, without a fiber.
    Idle,
    /// Ends.
    End,
}

pub(super) struct Serving {
    socket: Polled<Socket>,
    connection: Connection,
    client: Arc<Client>,
    entry: Entry,
    /// Since when bytes that the client reads, or else sends, are counted, and how many, to detect
    /// stalls.
    window: Option<(Instant, usize)>,
    /// Memory for the next response.
    granted: Option<Reservation>,
    /// Batches since the last wait for the client.
    batches: u32,
}

impl Serving {
    pub(super) fn socket(&self) -> &Polled<Socket> {
        &self.socket
    }

    fn host(&self) -> &HostState {
        &self.entry.host
    }

    /// Serves the connection until it is the turn of others. The fiber waits where commands do, and for
    /// a client that does not read or go on with a long command.
    pub(super) fn run(&mut self) -> io::Result<Next> {
        loop {
            self.send()?;
            if !self.wait_for_output_memory() {
                return Ok(Next::End);
            }
            if let Some(batch) = self.connection.next_batch() {
                let now = unix_time();
                self.client.set_state(State::Runs);
                self.client.last_command.store(now, Ordering::Relaxed);
                self.client.last_use.store(now, Ordering::Relaxed);
                let host = &self.entry.host;
                let output = match self.granted.take() {
                    Some(granted) => Output::with(granted),
                    None => self.connection.next_output(&host.output),
                };
                let progress = batch.run(&*host.shards, &**host, now, output);
                if self.connection.output().is_empty() {
                    self.window = None;
                }
                self.connection.completed(progress);
                if self.connection.output().len() > SEND_BYTES {
                    self.send()?;
                }
                self.batches += 1;
                if self.batches == BATCHES_MAX {
                    self.batches = 0;
                    self.host().yields.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(Next::Send);
            }
            if self.connection.is_finished() || !self.wait_for_input_memory() {
                return Ok(Next::End);
            }
            if !self.receive()?
                && let Some(next) = self.wait()
            {
                return Ok(next);
            }
        }
    }

    /// Sends what the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while !self.connection.output().is_empty() {
            let output = self.connection.output();
            let write = |socket: &Socket| output.write_with(|parts| socket.write(parts));
            match self.socket.try_write_with(write) {
                Some(Ok(0)) => return Err(ErrorKind::WriteZero.into()),
                Some(Ok(length)) => {
                    self.connection.sent(length);
                    self.client.count_written(length);
                    if self.client.state() == State::Writes {
                        // It was not the first part: the client has read the one before.
                        self.client.last_use.store(unix_time(), Ordering::Relaxed);
                    }
                    if let Some((_, moved)) = &mut self.window {
                        *moved += length;
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
            Some(Ok(length)) => {
                self.client.count_read(length);
                if connection.output().is_empty()
                    && let Some((_, moved)) = &mut self.window
                {
                    *moved += length;
                }
                Ok(true)
            }
            Some(Err(error)) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Some(Err(error)) => Err(error),
        }
    }

    /// Waits for the client in the middle of a response or a command, and returns what is next if the
    /// connection does not go on here: it is idle if the client is to send a command, and ends if it
    /// holds memory that others wait for, and its client neither reads nor, with nothing to read, goes on
    /// to send a long command. A connection that is idle for too long finds its socket at the end.
    fn wait(&mut self) -> Option<Next> {
        let (has_output, wants) =
            (!self.connection.output().is_empty(), self.connection.wants_input());
        self.client.set_state(if has_output { State::Writes } else { State::Reads });
        self.batches = 0;
        if !has_output && !self.connection.holds_input() {
            self.window = None;
            return Some(Next::Idle);
        }
        let what = match (has_output, wants) {
            (true, true) => Readiness::Either,
            (true, false) => Readiness::Writable,
            (false, _) => Readiness::Readable,
        };
        (!self.wait_unless_stalled(what)).then_some(Next::End)
    }

    /// Waits until the socket is ready; false if the connection is stalled and others wait for memory.
    fn wait_unless_stalled(&mut self, what: Readiness) -> bool {
        let stall = self.host().options.stall;
        loop {
            let now = Instant::now();
            let (start, moved) = *self.window.get_or_insert((now, 0));
            let mut until = start + stall;
            if until <= now {
                let is_stalled = moved < MIN_BYTES;
                match is_stalled.then(|| self.host().kicks_stalled(self.holds(), now)) {
                    Some(Kick::Now) => return false,
                    // It is still stalled then, unless its client makes good what it has missed.
                    Some(Kick::Later) => until = now + STALL_INTERVAL,
                    Some(Kick::No) | None => {
                        self.window = Some((now, 0));
                        until = now + stall;
                    }
                }
            }
            if self.socket.wait(what, Some(until)) {
                return true;
            }
        }
    }

    /// The budgets that this connection holds memory of.
    fn holds(&self) -> Holds {
        Holds { output: !self.connection.output().is_empty(), input: self.connection.holds_input() }
    }

    /// Waits while the next response needs more memory than there is; false if the client is gone.
    /// Other connections send meanwhile, or are closed because they do not.
    fn wait_for_output_memory(&mut self) -> bool {
        let Some(shortage) = self.connection.shortage() else { return true };
        if !self.connection.output().is_empty() {
            // What this connection holds comes back once it is sent.
            return true;
        }
        self.granted = self.wait_for_memory(&self.host().output, shortage.bytes, || true);
        self.connection.resume();
        self.granted.is_some()
    }

    /// Waits while the unfinished command needs more memory than there is; false if the client is gone,
    /// or the server drains: the command never ends then.
    fn wait_for_input_memory(&mut self) -> bool {
        let Some(bytes) = self.connection.input_shortage() else { return true };
        if !self.connection.output().is_empty() {
            return true;
        }
        let drains = &self.host().drains;
        let goes_on = || !drains.load(Ordering::Relaxed);
        let reserved = self.wait_for_memory(&self.host().input, bytes, goes_on);
        let is_there = reserved.is_some();
        self.window = None;
        reserved.into_iter().for_each(|reserved| self.connection.reserved_input(reserved));
        is_there
    }

    /// Waits for memory in turn with other connections; `None` if the client is gone or `goes_on` is
    /// false.
    fn wait_for_memory(
        &self,
        budget: &Budget,
        bytes: usize,
        goes_on: impl Fn() -> bool,
    ) -> Option<Reservation> {
        if let Some(reserved) = budget.reserve(bytes) {
            return Some(reserved);
        }
        let unparker = fiber::unparker()?;
        self.client.set_state(State::Runs);
        let place = budget.queue(bytes, move || unparker.unpark());
        while !place.is_granted() {
            if self.socket.get().has_hung_up() || !goes_on() {
                return None;
            }
            fiber::park_until(Instant::now() + HANG_UP_INTERVAL);
        }
        place.into_reservation()
    }
}

/// Ends the entry of a connection, also if the rack ends.
pub(super) struct Entry {
    pub(super) host: Arc<HostState>,
    pub(super) number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.host.closed(self.number);
    }
}
