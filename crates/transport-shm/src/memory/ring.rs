//! What one thread sends another: notifications in notice slots, and a byte ring of bulk payloads and
//! of the notifications that found no free slot.
//!
//! Both lie in the receiver's host memory; the sender writes them one-sidedly. A payload larger
//! than the ring streams through it: both ends work in pieces, and neither ever waits for the
//! other.
//!
//! ```text
//!   +0     tail     bytes ever written;  written by the sender, after the bytes
//!   +128   head     bytes ever consumed; written by the receiver, after it copied them out
//!   +256   waiting  a park word (`transport_api::park_word`): the sender sleeps for room
//!   +384   noticed  notifications ever taken out of the ring; written by the receiver
//!   +512   slots    notice slots (`transport_api::NoticeSender`)
//!   +4096  data     frames: four header words, then the payload padded to 8 bytes
//! ```
//!
//! 1. The sender alone writes `tail` and believes its own copy of it; likewise the receiver and
//!    `head`.
//! 2. The receiver publishes `head` after every quarter of the ring, not after every frame: each
//!    publication costs both sides a transfer of its cache line. The sender loads it only if there is
//!    no room behind the last one it saw. A sender that waits for room has filled all but a part of a
//!    header of the ring, counted from the published `head`; when the receiver has consumed that, it
//!    has consumed more than a quarter since, and publishes.
//! 3. Notifications arrive in order. The sender uses a slot only while the receiver has taken all
//!    notifications that went into the ring; so what is in a slot is older than what is in the ring.
//!    The receiver loads `tail`, then takes what is in slots, and only then consumes the ring up to
//!    that `tail`. Bulk payloads have no order with notifications.
//! 4. What the other side wrote is read once, then checked, then used. A counter or a header that
//!    no peer of this build writes is an error in words, never a panic and never a wild access:
//!    positions are taken modulo the ring, which both sides know from the rack's size.

use std::collections::VecDeque;

use primitive::SharedBytes;
use primitive::limits::MESSAGE_BYTES;
use primitive::sync::{AtomicU32, Ordering};
use transport_api::park_word::ParkWord;
use transport_api::{
    NOTICE_SLOTS, NOTICE_SLOTS_BYTES, NoticeReceiver, NoticeSender, RegionKey, SlotMessage, Tag,
    Waiting,
};

use crate::memory::host_memory::RING_HEADER;

#[cfg(test)]
mod tests;

const TAIL: usize = 0;
const HEAD: usize = 128;
const WAITING: usize = 256;
const NOTICED: usize = 384;

/// Where the notice slots are, from the beginning of the header.
pub(crate) const SLOTS: usize = 512;

const _: () = assert!(SLOTS + NOTICE_SLOTS_BYTES <= RING_HEADER);

/// The most notifications that [`Receiver::advance`] takes out of slots in a row.
const SLOT_TURN: u32 = 4 * NOTICE_SLOTS;

/// Bytes of a frame header.
const HEADER: u64 = 32;

/// Bytes after which one side publishes its position, so that both work at the same time.
const STEP: u64 = 64 << 10;

/// One end's view of a ring: where it is in a host memory.
#[derive(Clone)]
pub(crate) struct Place {
    memory: SharedBytes,
    bytes: u64,
}

impl Place {
    /// The ring at byte `at` of `host_memory`, with `ring_bytes` of data.
    pub(crate) fn new(host_memory: &SharedBytes, at: usize, ring_bytes: usize) -> Self {
        let memory = host_memory.slice(at, RING_HEADER + ring_bytes);
        Self { memory, bytes: ring_bytes as u64 }
    }

    fn waiting(&self) -> &AtomicU32 {
        self.memory.word32(WAITING)
    }

    fn slots(&self) -> SharedBytes {
        self.memory.slice(SLOTS, NOTICE_SLOTS_BYTES)
    }

    fn at(&self, position: u64) -> usize {
        RING_HEADER + (position % self.bytes) as usize
    }

    /// Bytes from `position` to the end of the ring's memory.
    fn run(&self, position: u64) -> usize {
        (self.bytes - position % self.bytes) as usize
    }
}

/// What a frame says before its payload.
#[derive(Clone, Copy)]
pub(crate) enum Frame {
    /// A payload of `len` bytes follows.
    Bulk { tag: u64, len: usize },
    /// No payload follows.
    Notify(Notice),
}

/// What a notification says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) key: RegionKey,
    pub(crate) at: u64,
    /// Bytes that were written, fewer than 2^56.
    pub(crate) len: u64,
    pub(crate) value: u32,
}

impl Notice {
    #[inline]
    fn message(self) -> SlotMessage {
        let Notice { key, at, len, value } = self;
        SlotMessage { words: [2 | len << 8, key.0, at], value }
    }

    #[inline]
    fn parse(SlotMessage { words: [kind, key, at], value }: SlotMessage) -> Option<Notice> {
        let notice = Notice { key: RegionKey(key), at, len: kind >> 8, value };
        (kind & 0xff == 2).then_some(notice)
    }
}

impl Frame {
    fn words(self) -> [u64; 4] {
        match self {
            Frame::Bulk { tag, len } => [1, tag, len as u64, 0],
            Frame::Notify(notice) => {
                let SlotMessage { words: [kind, key, at], value } = notice.message();
                [kind, key, at, value.into()]
            }
        }
    }

    fn parse(words: [u64; 4]) -> Option<Frame> {
        match words {
            [1, tag, len, 0] if len <= MESSAGE_BYTES as u64 => {
                Some(Frame::Bulk { tag, len: len as usize })
            }
            [kind, key, at, value] => {
                let value = u32::try_from(value).ok()?;
                Notice::parse(SlotMessage { words: [kind, key, at], value }).map(Frame::Notify)
            }
        }
    }
}

/// A frame on its way into the ring.
struct Outgoing {
    frame: Frame,
    payload: Vec<u8>,
    started: bool,
    sent: usize,
}

/// The sending end.
pub(crate) struct Sender {
    place: Place,
    tail: u64,
    /// The receiver's `head` when it was last loaded.
    head: u64,
    queue: VecDeque<Outgoing>,
    /// What is in the queue.
    waiting: Waiting,
    slots: NoticeSender,
    /// Notifications that were pushed into the ring, and those that the receiver had taken out of it
    /// when that was last loaded.
    notified: u64,
    noticed: u64,
}

impl Sender {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            slots: NoticeSender::new(place.slots()),
            place,
            tail: 0,
            head: 0,
            queue: VecDeque::new(),
            waiting: Waiting::default(),
            notified: 0,
            noticed: 0,
        }
    }

    /// Puts a notification into a slot, if one is free and no earlier notification waits in the ring;
    /// false otherwise. Then ask [`is_polled`](Self::is_polled). `Err` says how the receiver broke the
    /// protocol.
    #[inline]
    pub(crate) fn notify(&mut self, notice: Notice) -> Result<bool, String> {
        if self.notified != self.noticed && !self.reload_noticed()? {
            return Ok(false);
        }
        self.slots.try_send(notice.message())
    }

    /// Whether the receiver looks at the slots by itself: then it need not be asked to.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        self.slots.is_polled()
    }

    /// Loads what the receiver has taken out of the ring; whether that is all.
    #[cold]
    fn reload_noticed(&mut self) -> Result<bool, String> {
        let noticed = self.place.memory.load(NOTICED, Ordering::Acquire);
        if !(self.noticed..=self.notified).contains(&noticed) {
            return Err(format!("{noticed} notifications taken of {} in a ring", self.notified));
        }
        self.noticed = noticed;
        Ok(noticed == self.notified)
    }

    /// The frames that wait for room.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Queues a frame behind those that wait for room. Call [`advance`](Self::advance) next.
    pub(crate) fn push(&mut self, frame: Frame, payload: Vec<u8>) {
        match frame {
            Frame::Bulk { tag, len } => self.waiting.add_bulk(Tag(tag), len),
            Frame::Notify(_) => {
                self.waiting.add_notification();
                self.notified += 1;
            }
        }
        self.queue.push_back(Outgoing { frame, payload, started: false, sent: 0 });
    }

    /// Whether frames wait for room.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Writes as much as there is room for; true if anything was written. `Err` says how the
    /// receiver broke the protocol. When frames are left over, the receiver will know that we wait.
    pub(crate) fn advance(&mut self) -> Result<bool, String> {
        let start = self.tail;
        while !self.queue.is_empty() {
            if self.fill(self.place.bytes - (self.tail - self.head)) {
                continue;
            }
            let room = self.room()?;
            if self.fill(room) {
                continue;
            }
            ParkWord::new(self.place.waiting()).announce();
            if self.room()? == room {
                break;
            }
            ParkWord::new(self.place.waiting()).cancel();
        }
        Ok(self.tail != start)
    }

    /// The room behind the receiver's `head`, which it loads.
    fn room(&mut self) -> Result<u64, String> {
        let head = self.place.memory.load(HEAD, Ordering::Acquire);
        if !(self.head..=self.tail).contains(&head) || !head.is_multiple_of(8) {
            return Err(format!("a ring consumed up to {head} and written up to {}", self.tail));
        }
        self.head = head;
        Ok(self.place.bytes - (self.tail - head))
    }

    /// Writes into `room` bytes, at most a step; false if nothing fits.
    fn fill(&mut self, room: u64) -> bool {
        let (start, end) = (self.tail, self.tail + room.min(STEP));
        while let Some(front) = self.queue.front_mut() {
            if !front.started {
                if end - self.tail < HEADER {
                    break;
                }
                for word in front.frame.words() {
                    self.place.memory.store(self.place.at(self.tail), word, Ordering::Relaxed);
                    self.tail += 8;
                }
                front.started = true;
            }
            while front.sent < front.payload.len() && self.tail < end {
                let rest = &front.payload[front.sent..];
                let count =
                    rest.len().min((end - self.tail) as usize).min(self.place.run(self.tail));
                self.place.memory.write_from(self.place.at(self.tail), &rest[..count]);
                front.sent += count;
                self.tail += count.next_multiple_of(8) as u64;
            }
            if front.sent < front.payload.len() {
                break;
            }
            match front.frame {
                Frame::Bulk { tag, len } => self.waiting.remove_bulk(Tag(tag), len),
                Frame::Notify(_) => self.waiting.remove_notification(),
            }
            self.queue.pop_front();
        }
        if self.tail != start {
            self.place.memory.store(TAIL, self.tail, Ordering::Release);
        }
        self.tail != start
    }
}

/// What a receiver makes of the ring.
pub(crate) enum Arrival {
    /// A whole payload.
    Bulk { tag: u64, payload: Vec<u8> },
    /// A notification.
    Notify(Notice),
}

/// A payload that is still arriving.
struct Partial {
    tag: u64,
    len: usize,
    payload: Vec<u8>,
}

/// What [`Receiver::advance`] did.
#[derive(Default)]
pub(crate) struct Progress {
    /// Bytes were consumed.
    pub(crate) moved: bool,
    /// The sender waits for the room that was made: wake it.
    pub(crate) wake_sender: bool,
    /// There may be more: come again.
    pub(crate) more: bool,
    /// Notifications that were in slots.
    pub(crate) in_slots: u32,
}

/// The receiving end.
pub(crate) struct Receiver {
    place: Place,
    head: u64,
    /// The `head` that the sender can see.
    published: u64,
    partial: Option<Box<Partial>>,
    slots: NoticeReceiver,
    /// Notifications that were taken out of the ring.
    noticed: u64,
}

impl Receiver {
    pub(crate) fn new(place: Place) -> Self {
        let slots = NoticeReceiver::new(place.slots());
        Self { place, head: 0, published: 0, partial: None, slots, noticed: 0 }
    }

    /// The number of the next notification in a slot.
    pub(crate) fn next_in_slot(&self) -> u32 {
        self.slots.next()
    }

    /// Tells the sender whether the slots are looked at in each poll from now on. Look once more
    /// afterwards, with [`take_slots`](Self::take_slots), before they are no longer.
    pub(crate) fn set_polled(&self, is_polled: bool) {
        self.slots.set_polled(is_polled);
    }

    /// Whether the next notification is in a slot.
    #[inline]
    pub(crate) fn has_slot(&self) -> bool {
        self.slots.has_next()
    }

    /// Takes the next notification, if it is in a slot. `Err` says how the sender broke the protocol.
    #[inline]
    pub(crate) fn take_slot(&mut self) -> Result<Option<Notice>, String> {
        let Some(message) = self.slots.take() else { return Ok(None) };
        match Notice::parse(message) {
            Some(notice) => Ok(Some(notice)),
            None => Err(format!("a notice {message:x?}")),
        }
    }

    /// Takes the notifications that are in slots, at most as many as there are slots; how many that
    /// was. `Err` says how the sender broke the protocol.
    #[inline]
    pub(crate) fn take_slots(&mut self, sink: &mut dyn FnMut(Arrival)) -> Result<u32, String> {
        let mut count = 0;
        while count < NOTICE_SLOTS
            && let Some(notice) = self.take_slot()?
        {
            sink(Arrival::Notify(notice));
            count += 1;
        }
        Ok(count)
    }

    /// Consumes what is there, at most one ring of it, and hands what is whole to `sink`. `Err`
    /// says how the sender broke the protocol.
    pub(crate) fn advance(&mut self, sink: &mut dyn FnMut(Arrival)) -> Result<Progress, String> {
        let mut progress = Progress::default();
        let limit = self.head + self.place.bytes;
        while self.head < limit {
            let tail = self.place.memory.load(TAIL, Ordering::Acquire);
            let in_slots = self.take_slots(sink)?;
            progress.in_slots += in_slots;
            progress.moved |= in_slots > 0;
            if in_slots == NOTICE_SLOTS {
                // There may be more, which are older than what is in the ring.
                if progress.in_slots >= SLOT_TURN {
                    break;
                }
                continue;
            }
            let there = tail.wrapping_sub(self.head);
            if there > self.place.bytes || !tail.is_multiple_of(8) {
                return Err(format!(
                    "a ring written up to {tail} and consumed up to {}",
                    self.head
                ));
            }
            if there == 0 {
                return Ok(progress);
            }
            let noticed = self.noticed;
            self.consume(self.head + there.min(STEP), there > STEP, sink)?;
            progress.moved = true;
            if self.noticed != noticed {
                self.place.memory.store(NOTICED, self.noticed, Ordering::Release);
            }
            if self.head - self.published >= STEP.min(self.place.bytes / 4) {
                self.place.memory.store(HEAD, self.head, Ordering::Release);
                self.published = self.head;
                progress.wake_sender |= ParkWord::new(self.place.waiting()).must_wake();
            }
        }
        progress.more = true;
        Ok(progress)
    }

    /// Consumes up to `end`, or to a header that crosses it if there is `more` behind.
    fn consume(
        &mut self,
        end: u64,
        more: bool,
        sink: &mut dyn FnMut(Arrival),
    ) -> Result<(), String> {
        while self.head < end {
            if let Some(partial) = &mut self.partial {
                let missing = partial.len - partial.payload.len();
                let count = missing.min((end - self.head) as usize).min(self.place.run(self.head));
                let old = partial.payload.len();
                partial.payload.resize(old + count, 0);
                self.place.memory.read_into(self.place.at(self.head), &mut partial.payload[old..]);
                self.head += count.next_multiple_of(8) as u64;
            } else {
                if !more && end - self.head < HEADER {
                    return Err(format!("{} bytes where a header should be", end - self.head));
                }
                let mut words = [0; 4];
                for word in &mut words {
                    *word = self.place.memory.load(self.place.at(self.head), Ordering::Relaxed);
                    self.head += 8;
                }
                match Frame::parse(words) {
                    None => return Err(format!("a frame header {words:x?}")),
                    Some(Frame::Notify(notice)) => {
                        self.noticed += 1;
                        sink(Arrival::Notify(notice));
                    }
                    Some(Frame::Bulk { tag, len }) => {
                        self.partial = Some(Box::new(Partial { tag, len, payload: Vec::new() }));
                    }
                }
            }
            if let Some(whole) = self.partial.take_if(|p| p.payload.len() == p.len) {
                let Partial { tag, payload, .. } = *whole;
                sink(Arrival::Bulk { tag, payload });
            }
        }
        Ok(())
    }
}
