//! One client's socket and what it waits for; its turns on the I/O thread.

use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use crate::memcached::{Connection, Progress};
use crate::server::job::{CompletionSender, ConnectionId, Execute, Job};

/// Bytes that a client must take while answers have no room, in the time that [`Options::stall`]
/// says, to be kept.
///
/// [`Options::stall`]: crate::server::Options::stall
pub(super) const MIN_READ_BYTES: usize = 64 * 1024;

/// Reads from one connection before the others get their turn.
const READS_PER_TURN: usize = 8;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) connection: Connection,
    pub(super) serial: u64,
    /// The socket may have more to read; the poll reports it only once.
    pub(super) readable: bool,
    /// The socket may take more; likewise.
    pub(super) writable: bool,
    /// In the list of those that want another turn.
    pub(super) queued: bool,
    /// When bytes last came or went, or a batch ended.
    pub(super) active: Instant,
    /// Bytes of answers that the client has taken since `owed`.
    pub(super) taken: usize,
    /// When it was last looked at how much the client takes of what it is owed.
    pub(super) owed: Instant,
}

/// What a client's turn came to.
pub(super) enum Turn {
    Waits,
    WantsAnother,
    Ended,
}

impl Client {
    /// Sends, runs and reads what can be sent, run and read without waiting.
    pub(super) fn turn(
        &mut self,
        slot: usize,
        now: Instant,
        executor: &dyn Execute,
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

    /// Takes back what a batch has come to.
    pub(super) fn completed(&mut self, progress: Progress, now: Instant) {
        self.active = now;
        if self.connection.output().is_empty() {
            (self.owed, self.taken) = (now, 0);
        }
        self.connection.completed(progress);
    }

    /// Whether the client has taken less than [`MIN_READ_BYTES`] of what it is owed for `limit`. What it
    /// sends does not count.
    pub(super) fn is_stalled(&mut self, now: Instant, limit: Duration) -> bool {
        if self.connection.output().is_empty() || now.duration_since(self.owed) < limit {
            return false;
        }
        let is_stalled = self.taken < MIN_READ_BYTES;
        if !is_stalled {
            (self.owed, self.taken) = (now, 0);
        }
        is_stalled
    }

    fn send(&mut self, now: Instant) -> io::Result<()> {
        while self.writable && !self.connection.output().is_empty() {
            match self.stream.write_vectored(&self.connection.output().slices()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => {
                    self.active = now;
                    self.taken += length;
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
