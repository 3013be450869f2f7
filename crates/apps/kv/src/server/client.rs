//! One client's socket, and its turns on the I/O thread.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use crate::memcached::{Connection, Progress};
use crate::server::job::{CompletionSender, ConnectionId, Executor, Job};

/// Bytes that a client must read within [`Options::stall`] while the output budget is exhausted, or
/// its connection is stalled.
///
/// [`Options::stall`]: crate::server::Options::stall
pub(super) const MIN_READ_BYTES: usize = 64 * 1024;

/// Maximum number of reads from one connection in a turn.
const READS_PER_TURN: usize = 8;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) connection: Connection,
    pub(super) serial: u64,
    /// Whether the socket may be readable; the poll is edge-triggered.
    pub(super) readable: bool,
    /// Whether the socket may be writable.
    pub(super) writable: bool,
    /// Whether the client is in the list of turns.
    pub(super) queued: bool,
    /// Time of the last read, write or completed batch.
    pub(super) active: Instant,
    /// Bytes sent since `window_start`.
    pub(super) sent: usize,
    /// Start of the time window in which `sent` is counted, to detect stalls.
    pub(super) window_start: Instant,
}

/// The result of a client's turn.
pub(super) enum Turn {
    Waits,
    WantsAnother,
    Ended,
}

impl Client {
    /// Sends, runs and reads as much as possible without blocking.
    pub(super) fn turn(
        &mut self,
        slot: usize,
        now: Instant,
        executor: &dyn Executor,
        completions: &CompletionSender,
        scratch: &mut [u8],
    ) -> Turn {
        for _ in 0..READS_PER_TURN {
            if self.send(now).is_err() {
                return Turn::Ended;
            }
            if let Some(batch) = self.connection.next_batch() {
                let connection = ConnectionId { slot, serial: self.serial };
                executor.start(Job::new(connection, batch, completions.clone()));
            }
            if self.connection.is_finished() {
                return Turn::Ended;
            }
            if !self.readable || !self.connection.wants_input() {
                return Turn::Waits;
            }
            match self.stream.read(scratch) {
                Ok(0) => {
                    self.readable = false;
                    self.connection.input_ended();
                }
                Ok(length) => {
                    self.active = now;
                    self.connection.received(&scratch[..length]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Turn::Ended,
            }
        }
        Turn::WantsAnother
    }

    /// Handles the result of a batch.
    pub(super) fn completed(&mut self, progress: Progress, now: Instant) {
        self.active = now;
        if self.connection.output().is_empty() {
            (self.window_start, self.sent) = (now, 0);
        }
        self.connection.completed(progress);
    }

    /// Whether output is pending and the client has read less than [`MIN_READ_BYTES`] in `limit`.
    /// Input from the client does not count.
    pub(super) fn is_stalled(&mut self, now: Instant, limit: Duration) -> bool {
        if self.connection.output().is_empty() || now.duration_since(self.window_start) < limit {
            return false;
        }
        let is_stalled = self.sent < MIN_READ_BYTES;
        if !is_stalled {
            (self.window_start, self.sent) = (now, 0);
        }
        is_stalled
    }

    fn send(&mut self, now: Instant) -> io::Result<()> {
        while self.writable && !self.connection.output().is_empty() {
            match self.stream.write_vectored(&self.connection.output().slices()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => {
                    self.active = now;
                    self.sent += length;
                    self.connection.sent(length);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
