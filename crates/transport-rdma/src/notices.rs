//! [`Notices`]: what the two ends of a queue pair say to each other beside data, without the device.
//!
//! Two things use up receives of the peer, of which every queue pair has [`RECEIVES`]:
//!
//! - a *notice*, the word that a write may carry: which thread must not sleep, how many
//!   notifications have been taken, or what became of payloads ([`payloads`](crate::payloads));
//! - a *record*, a message of [`RECORD`] bytes: a notification (`write_notify`), behind its data, or
//!   a piece of a payload.
//!
//! ```text
//!   notice   | 0: 2 bits | thread: 30 |                 must not sleep
//!            | 1 | pieces: 30 |                         have been fetched
//!            | 2 | notifications: 30 |                  have been taken
//!            | 3 | thread: 10 | cost: 20 |              is granted
//!   record   | key: 8 | at: 8 | len: 8 | value: 4 | thread: 4 | generation: 4 | zero: 4 |
//!            | tag: 8 | total: 4 | len: 4 | thread: 4 | zero: 16 | one: 4 |
//! ```
//!
//! The place of a message is used again at once. So that notifications which nobody takes need no
//! memory without end, at most [`WINDOW`] of them are on their way or waiting to be taken. A peer
//! that says anything else breaks the rules, and is told in words what it has said.

use std::collections::VecDeque;
use transport_api::{Event, RegionKey, ThreadId};

/// Receives of a queue pair.
pub(crate) const RECEIVES: u32 = 128;

/// Bytes of a record.
pub(crate) const RECORD: usize = 40;

/// Notifications that may be on their way or wait to be taken.
pub(crate) const WINDOW: u32 = 64;

/// What a notice begins with that counts pieces of payloads, or notifications; one that does with
/// both grants room for payloads.
pub(crate) const FETCHED: u32 = 1 << 30;
pub(crate) const TAKEN: u32 = 1 << 31;
const GRANTED: u32 = FETCHED | TAKEN;

/// Bits of a cost.
const COST: u32 = 20;

/// The notice that `thread` has taken payloads that were charged `cost`.
pub(crate) fn granted(thread: u32, cost: u32) -> u32 {
    GRANTED | thread << COST | cost
}

/// A notification, as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: RegionKey,
    pub(crate) at: u64,
    /// Bytes that were written.
    pub(crate) len: u64,
    pub(crate) value: u32,
    pub(crate) thread: u32,
    pub(crate) generation: u32,
}

impl Record {
    pub(crate) fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[0..8].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.value.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.thread.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD]) -> Option<Record> {
        let word = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let (fourth, last) = (word(24), word(32));
        (last >> 32 == 0).then_some(Record {
            key: RegionKey(word(0)),
            at: word(8),
            len: word(16),
            value: fourth as u32,
            thread: (fourth >> 32) as u32,
            generation: last as u32,
        })
    }
}

/// What a peer's notice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// This thread must not sleep.
    Wake(u32),
    /// Some notifications have been taken: there is room for more.
    Room,
    /// So many pieces of payloads have been fetched.
    Fetched(u32),
    /// Payloads for a thread that were charged so much have been taken.
    Granted { thread: u32, cost: u32 },
}

/// What one end of a queue pair has to keep in mind.
pub(crate) struct Notices {
    /// The thread at the other end.
    peer: ThreadId,
    /// Threads of this host.
    threads: u32,
    /// Notifications of this side that the peer's threads have not taken, as far as is known, and
    /// those that wait until they have.
    out: u32,
    waiting: VecDeque<Record>,
    /// Notifications of the peer that nobody has taken, and taken ones that it has not been told
    /// of.
    untaken: u32,
    owed: u32,
}

impl Notices {
    /// Between a thread of a host with so many and `peer`.
    pub(crate) fn new(peer: ThreadId, threads: u32) -> Self {
        Self { peer, threads, out: 0, waiting: VecDeque::new(), untaken: 0, owed: 0 }
    }

    /// Leaves a notification for [`next`](Self::next).
    pub(crate) fn notify(&mut self, record: Record) {
        self.waiting.push_back(record);
    }

    /// The next notification to send, if there is one and the window has room for it.
    pub(crate) fn next(&mut self) -> Option<Record> {
        let record = self.waiting.pop_front_if(|_| self.out < WINDOW)?;
        self.out += 1;
        Some(record)
    }

    /// So many of the peer's notifications have been taken here; the notice that it is to be sent,
    /// if it is time for one.
    pub(crate) fn taken(&mut self, count: u32) -> Option<u32> {
        self.untaken -= count;
        self.owed += count;
        (self.owed >= WINDOW / 2).then(|| TAKEN | std::mem::take(&mut self.owed))
    }

    /// What the peer says with the notice `word`.
    ///
    /// # Errors
    /// In words, if no peer of this build would.
    pub(crate) fn noticed(&mut self, word: u32) -> Result<Notice, String> {
        let count = word & !GRANTED;
        match word & GRANTED {
            TAKEN => {}
            FETCHED => return Ok(Notice::Fetched(count)),
            GRANTED => {
                return Ok(Notice::Granted {
                    thread: count >> COST,
                    cost: count & ((1 << COST) - 1),
                });
            }
            _ => {
                let is_one = word < self.threads;
                return is_one
                    .then_some(Notice::Wake(word))
                    .ok_or(format!("a wake of thread {word}"));
            }
        }
        let left = self.out.checked_sub(count);
        self.out = left.ok_or(format!("{count} notifications taken, of {}", self.out))?;
        Ok(Notice::Room)
    }

    /// The notification that is a message of `len` bytes, of which `bytes` are the first, and the
    /// event that it is for its thread.
    ///
    /// # Errors
    /// In words, if it is none.
    pub(crate) fn notified(
        &mut self,
        bytes: &[u8; RECORD],
        len: usize,
    ) -> Result<(Record, Event), String> {
        let is_fine = |record: &Record| len == RECORD && record.thread < self.threads;
        let Some(record) = Record::decode(bytes).filter(is_fine) else {
            return Err(format!("a notification of {len} bytes: {bytes:?}"));
        };
        if self.untaken == WINDOW {
            return Err(format!("a notification behind {WINDOW} that nobody has taken"));
        }
        self.untaken += 1;
        let Record { key, at, len, value, .. } = record;
        Ok((record, Event::Notified { from: self.peer, key, at, len, value }))
    }

    /// Whether nothing waits to be sent.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets what waits: the queue pair has failed.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_way_and_have_no_stray_bits() {
        let key = RegionKey(u64::MAX - 1);
        let record = Record { key, at: 7, len: u64::MAX, value: 9, thread: 3, generation: 4 };
        let mut bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record));
        bytes[RECORD - 1] = 1;
        assert_eq!(Record::decode(&bytes), None);
    }
}
