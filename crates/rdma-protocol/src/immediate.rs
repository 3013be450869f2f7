//! [`Notifications`]: what the two ends of a queue pair send each other beside data, without the
//! device: immediate data and records.
//!
//! Both use up receives of the peer, of which every queue pair has [`RECEIVES`]:
//!
//! - *immediate data*, the word that a write may carry: a thread to wake, credits for notifications
//!   and payloads, or acknowledged pieces of [payloads](crate::payloads);
//! - a *record*, a message of [`RECORD`] bytes: a notification (`write_notify`) behind its data, or a
//!   piece of a payload.
//!
//! ```text
//!   immediate | 0: 2 bits | thread: 30 |                wake this thread
//!             | 1 | pieces: 30 |                        acknowledges pieces
//!             | 2 | notifications: 30 |                 credits for notifications
//!             | 3 | thread: 10 | cost: 20 |             credits for payloads
//!   record    | key: 8 | at: 8 | len: 8 | value: 4 | thread: 4 | generation: 4 | zero: 4 |
//!             | tag: 8 | total: 4 | len: 4 | thread: 4 | zero: 16 | one: 4 |
//! ```
//!
//! A receive is reposted as soon as its message is handled. At most [`WINDOW`] notifications are in
//! flight or wait to be taken, to all threads of the peer together: untaken ones need bounded memory,
//! and those in flight never use up the receives, so that no message waits for the peer's device to
//! have one. A window for each thread would bound the first, but not the second, which would need
//! credits of its own for handled messages. Anything else is a violation of the protocol, which the
//! error describes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use primitive::sync::{AtomicBool, Ordering};
use transport_api::{Event, RegionKey, ThreadId};

/// Receives of a queue pair.
pub const RECEIVES: u32 = 128;

/// Bytes of a record.
pub const RECORD: usize = 40;

/// Notifications that are in flight or wait to be taken, at most.
pub const WINDOW: u32 = 64;

// The kinds of immediate data, in its uppermost two bits; without any it wakes a thread.

/// Immediate data: acknowledges pieces of payloads, whose number is in the other bits.
pub const FETCHED: u32 = 1 << 30;
/// Immediate data: credits for notifications, whose number is in the other bits.
pub const NOTIFICATION_CREDITS: u32 = 1 << 31;
const PAYLOAD_CREDITS: u32 = FETCHED | NOTIFICATION_CREDITS;

/// Bits of the cost in credits for payloads.
const COST: u32 = 20;

/// Immediate data: `thread` has taken payloads that were charged `cost` credits.
///
/// # Panics
/// If `thread` has more than 10 bits, or `cost` more than 20.
pub fn payload_credits(thread: u32, cost: u32) -> u32 {
    assert!(thread < 1 << 10 && cost < 1 << COST, "{cost} credits of thread {thread}");
    PAYLOAD_CREDITS | thread << COST | cost
}

/// The record of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The region that was written.
    pub key: RegionKey,
    /// The first byte that was written.
    pub at: u64,
    /// The number of bytes.
    pub len: u64,
    /// What the writer gives the owner along with them.
    pub value: u32,
    /// The receiver's thread that is notified.
    pub thread: u32,
    /// The generation of the region.
    pub generation: u32,
}

impl Record {
    /// The record as bytes.
    pub fn encode(&self) -> [u8; RECORD] {
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
        let (second, third) = (word(24), word(32));
        (third >> 32 == 0).then_some(Record {
            key: RegionKey(word(0)),
            at: word(8),
            len: word(16),
            value: second as u32,
            thread: (second >> 32) as u32,
            generation: third as u32,
        })
    }
}

/// Whether the data of a notification was refused: then the notification must not be sent. Shared by the
/// two, if the data waits for room; data that was started cannot be refused.
#[derive(Clone, Debug, Default)]
pub struct Refusal(Arc<AtomicBool>);

impl Refusal {
    /// The data is refused.
    pub fn set(&self) {
        // Those that ask hold the same lock.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the data was refused.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Decoded immediate data of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immediate {
    /// Wake this thread.
    Wake(u32),
    /// Some notifications have been taken: more may be sent.
    NotificationCredits,
    /// This number of pieces of payloads has been read.
    Fetched(u32),
    /// `thread` has taken payloads that were charged `cost`.
    PayloadCredits {
        /// The thread of the peer that took them.
        thread: u32,
        /// What they were charged, in credits.
        cost: u32,
    },
}

/// The credits of one end of a queue pair, and the notifications that wait for some.
///
/// ```
/// use gossamer_rdma_protocol::immediate::{Notifications, Record};
/// use transport_api::{HostId, RegionKey, ThreadId};
///
/// // Host 0, of one thread, notifies thread 0 of host 1, which has one thread, too.
/// let thread = |host| ThreadId { host: HostId(host), thread: 0 };
/// let (mut here, mut there) = (Notifications::new(thread(1), 1), Notifications::new(thread(0), 1));
/// let record = Record { key: RegionKey(7), at: 0, len: 8, value: 0, thread: 0, generation: 1 };
/// here.notify(record, None);
/// let (record, _) = here.pop().expect("a credit");
/// let sent = record.encode();
/// let (received, _) = there.receive_record(&sent, sent.len()).expect("a notification");
/// assert_eq!(received, record);
/// // A thread that host 1 does not have is a violation.
/// let stray = Record { thread: 1, ..record }.encode();
/// assert!(there.receive_record(&stray, stray.len()).is_err());
/// ```
#[derive(Debug)]
pub struct Notifications {
    /// The thread at the other end.
    peer: ThreadId,
    /// Threads of this host.
    threads: u32,
    /// Notifications of this side that the peer has not returned credits for, and those that wait for
    /// credits.
    out: u32,
    waiting: VecDeque<(Record, Option<Refusal>)>,
    /// How many of those wait, by thread of the peer.
    waiting_for: BTreeMap<u32, usize>,
    /// Notifications of the peer that are not taken, and credits that it has not been sent.
    untaken: u32,
    owed: u32,
}

impl Notifications {
    /// For a queue pair to `peer`, of a host with `threads` threads.
    pub fn new(peer: ThreadId, threads: u32) -> Self {
        let (waiting, waiting_for) = (VecDeque::new(), BTreeMap::new());
        Self { peer, threads, out: 0, waiting, waiting_for, untaken: 0, owed: 0 }
    }

    /// Queues a notification for [`pop`](Self::pop). `data` tells whether its data is refused, if it still
    /// can be.
    pub fn notify(&mut self, record: Record, data: Option<Refusal>) {
        *self.waiting_for.entry(record.thread).or_default() += 1;
        self.waiting.push_back((record, data));
    }

    /// The next notification to send, if there is one and a credit for it; those before it whose data was
    /// refused are dropped. If its own data is refused later, before it is sent, the caller drops it, and
    /// calls [`dropped`](Self::dropped).
    pub fn pop(&mut self) -> Option<(Record, Option<Refusal>)> {
        let is_refused = |data: &Option<Refusal>| data.as_ref().is_some_and(Refusal::is_set);
        loop {
            let (_, data) = self.waiting.front()?;
            let is_dropped = is_refused(data);
            if !is_dropped && self.out >= WINDOW {
                return None;
            }
            let (record, data) = self.waiting.pop_front()?;
            if let Some(count) = self.waiting_for.get_mut(&record.thread) {
                *count -= 1;
            }
            if !is_dropped {
                self.out += 1;
                return Some((record, data));
            }
        }
    }

    /// A notification that [`pop`](Self::pop) returned is not sent: takes its credit back.
    pub fn dropped(&mut self) {
        // A peer may have returned credits for what it was not sent.
        self.out = self.out.saturating_sub(1);
    }

    /// `count` of the peer's notifications have been taken here. Returns the immediate data that gives
    /// it credits, once enough have accumulated.
    ///
    /// # Panics
    /// If fewer than `count` have been received and not taken.
    pub fn taken(&mut self, count: u32) -> Option<u32> {
        self.untaken = self.untaken.checked_sub(count).expect("received, and not taken before");
        self.owed += count;
        (self.owed >= WINDOW / 2).then(|| NOTIFICATION_CREDITS | std::mem::take(&mut self.owed))
    }

    /// Decodes immediate data of the peer.
    ///
    /// # Errors
    /// The violation, in words.
    pub fn receive_immediate(&mut self, word: u32) -> Result<Immediate, String> {
        let count = word & !PAYLOAD_CREDITS;
        match word & PAYLOAD_CREDITS {
            NOTIFICATION_CREDITS => {}
            FETCHED => return Ok(Immediate::Fetched(count)),
            PAYLOAD_CREDITS => {
                return Ok(Immediate::PayloadCredits {
                    thread: count >> COST,
                    cost: count & ((1 << COST) - 1),
                });
            }
            _ => {
                let is_one = word < self.threads;
                return is_one
                    .then_some(Immediate::Wake(word))
                    .ok_or_else(|| format!("a wake of thread {word}"));
            }
        }
        let out = self.out;
        let left = out.checked_sub(count);
        self.out = left.ok_or_else(|| format!("credits for {count} notifications of {out}"))?;
        Ok(Immediate::NotificationCredits)
    }

    /// Decodes a message of `len` bytes that begins with `bytes` as a notification, and returns it with
    /// the event for its thread.
    ///
    /// # Errors
    /// The violation, in words.
    pub fn receive_record(
        &mut self,
        bytes: &[u8; RECORD],
        len: usize,
    ) -> Result<(Record, Event), String> {
        let is_fine = |record: &Record| len == RECORD && record.thread < self.threads;
        let Some(record) = Record::decode(bytes).filter(is_fine) else {
            return Err(format!("a notification of {len} bytes: {bytes:?}"));
        };
        if self.untaken >= WINDOW {
            return Err(format!("a notification beyond a window of {WINDOW}"));
        }
        self.untaken += 1;
        let Record { key, at, len, value, .. } = record;
        Ok((record, Event::Notified { from: self.peer, key, at, len, value }))
    }

    /// Notifications for `thread` of the peer that wait for credits.
    pub fn waiting(&self, thread: u32) -> usize {
        self.waiting_for.get(&thread).copied().unwrap_or(0)
    }

    /// Whether no notification waits for credits.
    pub fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Drops waiting notifications: the queue pair has failed.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.waiting_for.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_decoded_as_encoded_and_have_no_stray_bits() {
        let key = RegionKey(u64::MAX - 1);
        let record = Record { key, at: 7, len: u64::MAX, value: 9, thread: 3, generation: 4 };
        let mut bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record));
        bytes[RECORD - 1] = 1;
        assert_eq!(Record::decode(&bytes), None);
    }
}
