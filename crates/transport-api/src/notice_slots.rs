//! Notices between two threads through shared memory, each of which arrives with one cache line.
//!
//! The sender writes a notice into the next slot of a small ring. The slot's last word is the number
//! of the notice, and nothing else says that it is there. So a receiver that polls the next slot has
//! the whole notice with the line that it polls.
//!
//! ```text
//!   +0     taken    notices taken; written by the receiver
//!   +128   polled   1 while the receiver looks for the next notice in each poll; written by it
//!   +256   slots    32 bytes each, in slot number % NOTICE_SLOTS: (length << 16 | took << 8 | KIND),
//!                   the key, (more of took << 48 | the offset), then (number << 32 | a 32-bit value)
//!   +2304  line     two slots, one for a notice in each direction
//! ```
//!
//! There is such memory for each direction. Two threads that answer each other use neither ring: both
//! put their notices into the *line*, which lies in the memory that the first of them receives in. Its
//! first slot is for the notices of the first thread, its second for those of the other. So the line
//! that brings a notice is the line that takes the answer back, and no other line has to be fetched.
//!
//! 1. Numbers begin with 1 and wrap. A slot of the ring is written only after the receiver has
//!    published that it has taken the notice before. A place that is not used would keep an old
//!    number, which one day seemed to be that of a later notice: so the sender renews the numbers of
//!    such places now and then ([`RENEWAL`]). The next notice's places hold its number, or an earlier
//!    one.
//! 2. The receiver publishes `taken` after every quarter of the slots: each publication costs both
//!    sides a transfer of its line. The sender loads it only if there is no free slot behind the last
//!    one it saw.
//! 3. Each notice also carries how many its sender took (`took`), without its highest byte. The other
//!    end makes of it the least number that is not below the one before, so at most what was taken. If
//!    that is all it has sent, its next notice goes into the line; otherwise into the ring. So what is
//!    in the line is written over only after it was taken. The receiver looks for the number in both
//!    places.
//! 4. A receiver has too many senders to poll all their slots. A sender whose slots are not polled has
//!    to tell the receiver by other means that it should look:
//!
//! ```text
//!   sender                              receiver begins to poll, ends it, or goes to sleep
//!   slot = notice                       polled = 1             polled = 0             word = PARKED
//!   fence(SeqCst)                       fence(SeqCst)          fence(SeqCst)          fence(SeqCst)
//!   unless polled: tell the receiver    look at the slots,     look at the slots      look at the slots
//!   if it is PARKED: wake it            in each poll           once more
//! ```
//!
//!    In each pair one side sees the other.
//! 5. What the other side wrote is read once, then checked, then used. What is no notice stays where
//!    it is: every look finds the violation again, until the lane ends the sender.
//!
//! `outbox.rs` has the two ends as threads hold them. `tests/loom_notice_slots.rs` checks this file.

use std::cmp;

use primitive::SharedBytes;
use primitive::sync::{AtomicU32, Ordering, fence};

use crate::RegionKey;

#[cfg(all(test, not(loom)))]
mod tests;

/// Notices that the slots hold.
pub const NOTICE_SLOTS: u32 = if cfg!(loom) { 2 } else { 64 };

const TAKEN: usize = 0;
const POLLED: usize = 128;
const SLOTS: usize = 256;
const SLOT_BYTES: usize = 32;
const LINE: usize = (SLOTS + NOTICE_SLOTS as usize * SLOT_BYTES).next_multiple_of(128);

/// Bytes of the memory for one direction.
pub const NOTICE_SLOTS_BYTES: usize = LINE + 2 * SLOT_BYTES;

/// Notices after which the receiver publishes how many it has taken.
const STEP: u32 = if NOTICE_SLOTS < 4 { 1 } else { NOTICE_SLOTS / 4 };

/// Notices after which the sender renews the numbers of places that it did not use.
const RENEWAL: u32 = if cfg!(loom) { 2 } else { 1 << 20 };

/// Bits of `took`.
const TOOK: u32 = (1 << 24) - 1;

/// Bits of an offset.
const AT: u64 = (1 << 48) - 1;

fn slot(number: u32) -> usize {
    SLOTS + (number % NOTICE_SLOTS) as usize * SLOT_BYTES
}

/// The byte of the line at which the first of two threads, or the other, puts its notices.
fn half(is_first: bool) -> usize {
    LINE + if is_first { 0 } else { SLOT_BYTES }
}

/// Whether `number` is `first` or one of those that come later.
#[inline]
fn is_from(number: u32, first: u32) -> bool {
    number.wrapping_sub(first) <= u32::MAX / 2
}

/// The kind of what is in a slot. Nothing else is, and no memory that is zero has it.
const KIND: u64 = 2;

/// For backends: a notification on its way, without its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The region that was written.
    pub key: RegionKey,
    /// The byte at which it was written, below 2^48.
    pub at: u64,
    /// Bytes that were written, fewer than 2^48.
    pub len: u64,
    /// The word that the sender sends along.
    pub value: u32,
}

impl Notice {
    /// As words, without the value.
    #[inline(always)]
    pub fn words(self) -> [u64; 3] {
        [KIND | self.len << 16, self.key.0, self.at]
    }

    /// From words of a peer; `None` if they are no notice.
    #[inline(always)]
    pub fn parse([kind, key, at]: [u64; 3], value: u32) -> Option<Notice> {
        let notice = Notice { key: RegionKey(key), at: at & AT, len: kind >> 16, value };
        (kind & 0xff == KIND).then_some(notice)
    }
}

/// For backends: a thread's end of the notices between it and another thread, in both directions. One
/// thread at a time uses it.
///
/// ```
/// use gossamer_transport_api::{NOTICE_SLOTS_BYTES, Notice, NoticeEnd, RegionKey};
/// use primitive::SharedBytes;
///
/// let (there, back) = (SharedBytes::heap(NOTICE_SLOTS_BYTES), SharedBytes::heap(NOTICE_SLOTS_BYTES));
/// let first = NoticeEnd::new(there.clone(), back.clone(), 1.cmp(&2));
/// let second = NoticeEnd::new(back, there, 2.cmp(&1));
/// let notice = Notice { key: RegionKey(1), at: 2, len: 3, value: 4 };
/// assert_eq!(first.try_send(notice), Ok(true));
/// assert!(!first.is_polled(), "the sender must tell the receiver");
/// assert_eq!(second.take(), Ok(Some(notice)));
/// assert_eq!(second.take(), Ok(None));
/// second.set_polled(true);
/// assert!(first.is_polled());
/// ```
pub struct NoticeEnd {
    /// Of the notices that this end sends, and of those that it takes.
    sends: SharedBytes,
    receives: SharedBytes,
    /// The slots of the line that this end writes and reads.
    writes_line: SharedBytes,
    reads_line: SharedBytes,
    sent: AtomicU32,
    /// What the other end had taken when its count was last loaded.
    freed: AtomicU32,
    /// At most what it had taken when it sent the last notice that this end took.
    confirmed: AtomicU32,
    taken: AtomicU32,
    /// What the other end can see of it.
    published: AtomicU32,
}

impl NoticeEnd {
    /// The end of a thread that sends in `sends` and receives in `receives`, which are zero. `order` is
    /// how it compares with the other thread, in any order of threads on which both ends agree; `Equal`
    /// is for a thread that notifies itself, in one memory.
    ///
    /// # Panics
    /// If either memory has fewer than [`NOTICE_SLOTS_BYTES`].
    pub fn new(sends: SharedBytes, receives: SharedBytes, order: cmp::Ordering) -> Self {
        let line = if order.is_gt() { &sends } else { &receives };
        let part = |is_first| line.slice(half(is_first), SLOT_BYTES);
        let (writes_line, reads_line) = (part(order.is_le()), part(order.is_ge()));
        let [sends, receives] = [sends, receives].map(|memory| memory.slice(0, NOTICE_SLOTS_BYTES));
        let [sent, freed, confirmed, taken, published] = [0; 5].map(AtomicU32::new);
        Self { sends, receives, writes_line, reads_line, sent, freed, confirmed, taken, published }
    }

    /// Sends a notice; `false` if no slot is free. Then ask [`is_polled`](Self::is_polled).
    ///
    /// # Errors
    /// How the receiver broke the protocol.
    #[inline(always)]
    pub fn try_send(&self, notice: Notice) -> Result<bool, String> {
        let has_room = self.has_room()?;
        if has_room {
            self.put(notice);
        }
        Ok(has_room)
    }

    /// Sends a notice, for which there is [room](Self::has_room).
    #[inline(always)]
    pub(crate) fn put(&self, notice: Notice) {
        let before = self.sent.load(Ordering::Relaxed);
        let sent = before.wrapping_add(1);
        if sent.is_multiple_of(RENEWAL) {
            self.renew(sent);
        }
        self.sent.store(sent, Ordering::Relaxed);
        let words = if self.confirmed.load(Ordering::Relaxed) == before {
            self.writes_line.words()
        } else {
            self.sends.words().part(slot(sent) / 8, SLOT_BYTES / 8)
        };
        let [first, second, third] = notice.words();
        let took = u64::from(self.taken.load(Ordering::Relaxed) & TOOK);
        words.store(0, first | (took & 0xff) << 8, Ordering::Relaxed);
        words.store(1, second, Ordering::Relaxed);
        words.store(2, third | took >> 8 << 48, Ordering::Relaxed);
        words.store(3, u64::from(sent) << 32 | u64::from(notice.value), Ordering::Release);
    }

    /// Gives places whose notices were taken for certain the number of one that was taken lately:
    /// notice `sent` is about to be sent, so at most [`NOTICE_SLOTS`] before it are under way.
    #[cold]
    #[inline(never)]
    fn renew(&self, sent: u32) {
        let is_under_way = |number: u32| sent.wrapping_sub(number).wrapping_sub(1) < NOTICE_SLOTS;
        let taken = sent.wrapping_sub(NOTICE_SLOTS + 1);
        let slots = (0..NOTICE_SLOTS).map(|number| (&self.sends, slot(number)));
        for (memory, at) in slots.chain([(&self.writes_line, 0)]) {
            if !is_under_way((memory.load(at + 24, Ordering::Relaxed) >> 32) as u32) {
                memory.store(at + 24, u64::from(taken) << 32, Ordering::Relaxed);
            }
        }
    }

    /// Whether a notice can be sent.
    ///
    /// # Errors
    /// How the receiver broke the protocol.
    #[inline(always)]
    pub fn has_room(&self) -> Result<bool, String> {
        let sent = self.sent.load(Ordering::Relaxed);
        let under_way = sent.wrapping_sub(self.freed.load(Ordering::Relaxed));
        if under_way < NOTICE_SLOTS { Ok(true) } else { self.reload() }
    }

    /// Loads what the receiver has taken; whether a slot is free.
    #[cold]
    #[inline(never)]
    fn reload(&self) -> Result<bool, String> {
        let word = self.sends.load(TAKEN, Ordering::Acquire);
        let (sent, before) =
            (self.sent.load(Ordering::Relaxed), self.freed.load(Ordering::Relaxed));
        let taken = word as u32;
        if word > u64::from(u32::MAX) || sent.wrapping_sub(taken) > sent.wrapping_sub(before) {
            return Err(format!("{word} notices taken, of {sent} sent and {before} taken before"));
        }
        self.freed.store(taken, Ordering::Relaxed);
        Ok(sent.wrapping_sub(taken) < NOTICE_SLOTS)
    }

    /// Whether the receiver looks at what was sent by itself, in each of its polls. Contains a
    /// sequentially consistent fence, in front of the look.
    #[inline(always)]
    pub fn is_polled(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sends.load(POLLED, Ordering::Relaxed) == 1
    }

    /// The number of the next notice to take.
    #[inline(always)]
    pub fn next(&self) -> u32 {
        self.taken.load(Ordering::Relaxed).wrapping_add(1)
    }

    /// Takes the next notice, if it is there.
    ///
    /// # Errors
    /// How the sender broke the protocol: a slot has the number of a notice that comes later, or what
    /// is no notice. It is found again the next time.
    #[inline(always)]
    pub fn take(&self) -> Result<Option<Notice>, String> {
        let next = self.next();
        let line = self.reads_line.words();
        let in_line = line.load(3, Ordering::Acquire);
        if (in_line >> 32) as u32 == next {
            return self
                .take_from([0, 1, 2].map(|n| line.load(n, Ordering::Relaxed)), in_line)
                .map(Some);
        }
        let slot = self.receives.words().part(slot(next) / 8, SLOT_BYTES / 8);
        let in_slot = slot.load(3, Ordering::Acquire);
        if (in_slot >> 32) as u32 == next {
            return self
                .take_from([0, 1, 2].map(|n| slot.load(n, Ordering::Relaxed)), in_slot)
                .map(Some);
        }
        // Earlier ones, unless the sender is broken. A later one would keep the parker awake for ever
        // (`is_there`).
        for last in [in_line, in_slot] {
            let number = (last >> 32) as u32;
            if is_from(number, next) {
                return Err(later(number, next));
            }
        }
        Ok(None)
    }

    /// Takes the next notice, whose words these are.
    #[inline(always)]
    fn take_from(&self, words: [u64; 3], last: u64) -> Result<Notice, String> {
        let Some(notice) = Notice::parse(words, last as u32) else { return Err(bad(words)) };
        let next = (last >> 32) as u32;
        self.taken.store(next, Ordering::Relaxed);
        if next.wrapping_sub(self.published.load(Ordering::Relaxed)) >= STEP {
            self.receives.store(TAKEN, u64::from(next), Ordering::Release);
            self.published.store(next, Ordering::Relaxed);
        }
        let took = (words[0] >> 8 & 0xff | words[2] >> 48 << 8) as u32;
        let before = self.confirmed.load(Ordering::Relaxed);
        let more = took.wrapping_sub(before) & TOOK;
        self.confirmed.store(before.wrapping_add(more), Ordering::Relaxed);
        Ok(notice)
    }

    /// Tells the sender whether this end looks in each poll from now on. The caller looks once after
    /// this has returned, either way, and from then on as it says here.
    pub fn set_polled(&self, is_polled: bool) {
        self.receives.store(POLLED, is_polled.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the notice with this number, or a later one, was sent: for a parker, which does not have
    /// the end. The end's memories begin at these bytes of larger ones.
    ///
    /// # Panics
    /// If they are not inside.
    pub fn is_there(
        sends: (&SharedBytes, usize),
        receives: (&SharedBytes, usize),
        order: cmp::Ordering,
        number: u32,
    ) -> bool {
        let line = if order.is_gt() { sends } else { receives };
        [(receives, slot(number)), (line, half(order.is_ge()))].into_iter().any(
            |((memory, at), slot)| {
                is_from((memory.load(at + slot + 24, Ordering::Relaxed) >> 32) as u32, number)
            },
        )
    }
}

#[cold]
#[inline(never)]
fn later(number: u32, next: u32) -> String {
    format!("a notice with number {number} in place of {next}")
}

#[cold]
#[inline(never)]
fn bad(words: [u64; 3]) -> String {
    format!("a notice {words:x?}")
}
