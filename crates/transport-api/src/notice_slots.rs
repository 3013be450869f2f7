//! Notice slots: short notices from one thread to another through shared memory, which arrive with
//! one cache line.
//!
//! The sender writes a notice into the next slot of a small ring. The slot's last word is the number
//! of the notice, and nothing else says that it is there. So a receiver that polls the next slot has
//! the whole notice with the line that it polls.
//!
//! ```text
//!   +0    taken    notices taken out of the slots; written by the receiver
//!   +128  polled   1 while the receiver looks at the next slot in each poll; written by the receiver
//!   +256  slots    32 bytes each, in slot number % NOTICE_SLOTS: (length << 8 | KIND), the key,
//!                  the offset, then (number << 32 | a 32-bit value)
//! ```
//!
//! 1. Numbers begin with 1 and wrap. A slot is written only after the receiver has published that it
//!    has taken the notice before: so the slot of the next notice holds that of one lap earlier, and
//!    no other number.
//! 2. The receiver publishes `taken` after every quarter of the slots: each publication costs both
//!    sides a transfer of its line. The sender loads it only if there is no free slot behind the last
//!    one it saw.
//! 3. A receiver has too many senders to poll all their slots. A sender whose slots are not polled has
//!    to tell the receiver by other means that it should look:
//!
//! ```text
//!   sender                              receiver begins to poll, ends it, or goes to sleep
//!   slot = notice                       polled = 1             polled = 0             word = PARKED
//!   fence(SeqCst)                       fence(SeqCst)          fence(SeqCst)          fence(SeqCst)
//!   unless polled: tell the receiver    look at the slot, then look at the slot,      look at the slot
//!   if it is PARKED: wake it            in each poll           once more
//! ```
//!
//!    In each pair one side sees the other.
//! 4. What the other side wrote is read once, then checked, then used. What is no notice stays where
//!    it is: every look finds the violation again, until the lane ends the sender.
//!
//! `outbox.rs` has the two ends as threads hold them. `tests/loom_notice_slots.rs` checks this file.

use primitive::SharedBytes;
use primitive::sync::{AtomicU32, Ordering, fence};

use crate::RegionKey;

/// Notices that the slots hold.
pub const NOTICE_SLOTS: u32 = if cfg!(loom) { 2 } else { 64 };

const TAKEN: usize = 0;
const POLLED: usize = 128;
const SLOTS: usize = 256;
const SLOT_BYTES: usize = 32;

/// Bytes of the memory that a sender and a receiver share.
pub const NOTICE_SLOTS_BYTES: usize = SLOTS + NOTICE_SLOTS as usize * SLOT_BYTES;

/// Notices after which the receiver publishes how many it has taken.
const STEP: u32 = if NOTICE_SLOTS < 4 { 1 } else { NOTICE_SLOTS / 4 };

fn slot(number: u32) -> usize {
    SLOTS + (number % NOTICE_SLOTS) as usize * SLOT_BYTES
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
    /// The byte at which it was written.
    pub at: u64,
    /// Bytes that were written, fewer than 2^56.
    pub len: u64,
    /// The word that the sender sends along.
    pub value: u32,
}

impl Notice {
    /// As words, without the value.
    #[inline(always)]
    pub fn words(self) -> [u64; 3] {
        [KIND | self.len << 8, self.key.0, self.at]
    }

    /// From words of a peer; `None` if they are no notice.
    #[inline(always)]
    pub fn parse([kind, key, at]: [u64; 3], value: u32) -> Option<Notice> {
        let notice = Notice { key: RegionKey(key), at, len: kind >> 8, value };
        (kind & 0xff == KIND).then_some(notice)
    }
}

/// For backends: the sending end of notice slots. One thread at a time uses it.
///
/// ```
/// use gossamer_transport_api::{NOTICE_SLOTS_BYTES, Notice, NoticeReceiver, NoticeSender, RegionKey};
/// use primitive::SharedBytes;
///
/// let memory = SharedBytes::heap(NOTICE_SLOTS_BYTES);
/// let sender = NoticeSender::new(memory.clone());
/// let receiver = NoticeReceiver::new(memory);
/// let notice = Notice { key: RegionKey(1), at: 2, len: 3, value: 4 };
/// assert_eq!(sender.try_send(notice), Ok(true));
/// assert!(!sender.is_polled(), "the sender must tell the receiver");
/// assert_eq!(receiver.take(), Ok(Some(notice)));
/// assert_eq!(receiver.take(), Ok(None));
/// receiver.set_polled(true);
/// assert!(sender.is_polled());
/// ```
pub struct NoticeSender {
    memory: SharedBytes,
    sent: AtomicU32,
    /// What the receiver had taken when that was last loaded.
    taken: AtomicU32,
}

impl NoticeSender {
    /// The sending end in `memory`, which is zero.
    ///
    /// # Panics
    /// If it has fewer than [`NOTICE_SLOTS_BYTES`].
    pub fn new(memory: SharedBytes) -> Self {
        let memory = memory.slice(0, NOTICE_SLOTS_BYTES);
        Self { memory, sent: AtomicU32::new(0), taken: AtomicU32::new(0) }
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

    /// Sends a notice into a slot, which is [free](Self::has_room).
    #[inline(always)]
    pub(crate) fn put(&self, notice: Notice) {
        let sent = self.sent().wrapping_add(1);
        self.sent.store(sent, Ordering::Relaxed);
        let words = self.memory.words().part(slot(sent) / 8, SLOT_BYTES / 8);
        let [first, second, third] = notice.words();
        words.store(0, first, Ordering::Relaxed);
        words.store(1, second, Ordering::Relaxed);
        words.store(2, third, Ordering::Relaxed);
        words.store(3, u64::from(sent) << 32 | u64::from(notice.value), Ordering::Release);
    }

    /// Whether a slot is free.
    ///
    /// # Errors
    /// How the receiver broke the protocol.
    #[inline(always)]
    pub fn has_room(&self) -> Result<bool, String> {
        let under_way = self.sent().wrapping_sub(self.taken.load(Ordering::Relaxed));
        if under_way < NOTICE_SLOTS { Ok(true) } else { self.reload() }
    }

    /// Notices sent so far, wrapping.
    #[inline(always)]
    pub fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Brings the next slot into this processor's cache, to be written. For a sender that is about to
    /// send: the receiver, which polls the slot, has it too, so that the notice would wait for the line.
    #[inline(always)]
    pub fn prefetch(&self) {
        let at = slot(self.sent().wrapping_add(1));
        self.memory.prefetch_write(at, at + SLOT_BYTES);
    }

    /// Loads what the receiver has taken; whether a slot is free.
    #[cold]
    #[inline(never)]
    fn reload(&self) -> Result<bool, String> {
        let word = self.memory.load(TAKEN, Ordering::Acquire);
        let (sent, before) = (self.sent(), self.taken.load(Ordering::Relaxed));
        let taken = word as u32;
        if word > u64::from(u32::MAX) || sent.wrapping_sub(taken) > sent.wrapping_sub(before) {
            return Err(format!("{word} notices taken, of {sent} sent and {before} taken before"));
        }
        self.taken.store(taken, Ordering::Relaxed);
        Ok(sent.wrapping_sub(taken) < NOTICE_SLOTS)
    }

    /// Whether the receiver looks at what was sent by itself, in each of its polls. Contains a
    /// sequentially consistent fence, in front of the look.
    #[inline(always)]
    pub fn is_polled(&self) -> bool {
        fence(Ordering::SeqCst);
        self.memory.load(POLLED, Ordering::Relaxed) == 1
    }
}

/// For backends: the receiving end of notice slots. One thread at a time uses it.
pub struct NoticeReceiver {
    memory: SharedBytes,
    taken: AtomicU32,
    /// What the sender can see of it.
    published: AtomicU32,
}

impl NoticeReceiver {
    /// The receiving end in `memory`.
    ///
    /// # Panics
    /// As [`NoticeSender::new`].
    pub fn new(memory: SharedBytes) -> Self {
        let memory = memory.slice(0, NOTICE_SLOTS_BYTES);
        Self { memory, taken: AtomicU32::new(0), published: AtomicU32::new(0) }
    }

    /// The number of the next notice.
    #[inline(always)]
    pub fn next(&self) -> u32 {
        self.taken.load(Ordering::Relaxed).wrapping_add(1)
    }

    /// Takes the next notice, if it is there.
    ///
    /// # Errors
    /// How the sender broke the protocol: the slot has the number of a notice that comes later, or
    /// what is no notice. It is found again the next time.
    #[inline(always)]
    pub fn take(&self) -> Result<Option<Notice>, String> {
        let next = self.next();
        let words = self.memory.words().part(slot(next) / 8, SLOT_BYTES / 8);
        let last = words.load(3, Ordering::Acquire);
        let number = (last >> 32) as u32;
        if number != next {
            // An earlier one, unless the sender is broken. A later one would keep the parker awake
            // for ever (`is_there`).
            return if is_from(number, next) { Err(later(number, next)) } else { Ok(None) };
        }
        let words = [0, 1, 2].map(|word| words.load(word, Ordering::Relaxed));
        let Some(notice) = Notice::parse(words, last as u32) else { return Err(bad(words)) };
        self.taken.store(next, Ordering::Relaxed);
        if next.wrapping_sub(self.published.load(Ordering::Relaxed)) >= STEP {
            self.memory.store(TAKEN, u64::from(next), Ordering::Release);
            self.published.store(next, Ordering::Relaxed);
        }
        Ok(Some(notice))
    }

    /// Tells the sender whether this end looks in each poll from now on. The caller looks once after
    /// this has returned, either way, and from then on as it says here.
    pub fn set_polled(&self, is_polled: bool) {
        self.memory.store(POLLED, is_polled.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the notice with this number, or a later one, was put into its slot, in the slots at byte
    /// `at` of `memory`: for a parker, which does not have the receiving end.
    ///
    /// # Panics
    /// If the slots are not inside the memory.
    pub fn is_there(memory: &SharedBytes, at: usize, number: u32) -> bool {
        is_from((memory.load(at + slot(number) + 24, Ordering::Relaxed) >> 32) as u32, number)
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ends() -> (NoticeSender, NoticeReceiver, SharedBytes) {
        let memory = SharedBytes::heap(NOTICE_SLOTS_BYTES);
        (NoticeSender::new(memory.clone()), NoticeReceiver::new(memory.clone()), memory)
    }

    fn notice(n: u32) -> Notice {
        let word = u64::from(n);
        Notice { key: RegionKey(word), at: !word, len: word << 8, value: !n }
    }

    #[test]
    fn notices_arrive_in_order_over_many_laps_and_the_wrap_of_their_numbers() {
        let (sender, receiver, memory) = ends();
        let start = u32::MAX - 100 * NOTICE_SLOTS;
        for count in [&sender.sent, &sender.taken, &receiver.taken, &receiver.published] {
            count.store(start, Ordering::Relaxed);
        }
        memory.store(TAKEN, start.into(), Ordering::Relaxed);
        let (mut sent, mut taken) = (0, 0);
        for lap in 0..1000u32 {
            while sender.try_send(notice(sent)) == Ok(true) {
                sent += 1;
                if sent % 7 == 0 {
                    break;
                }
            }
            for _ in 0..=lap % 9 {
                let is_there = NoticeReceiver::is_there(&memory, 0, receiver.next());
                let Some(arrived) = receiver.take().expect("an honest sender") else {
                    assert!(!is_there);
                    break;
                };
                assert!(is_there);
                assert_eq!(arrived, notice(taken));
                taken += 1;
            }
        }
        assert!(sent > 200 * NOTICE_SLOTS / 4 && sent - taken <= NOTICE_SLOTS);
    }

    #[test]
    fn no_slot_is_free_until_a_quarter_was_taken() {
        let (sender, receiver, _) = ends();
        for n in 0..NOTICE_SLOTS {
            assert_eq!(sender.try_send(notice(n)), Ok(true));
        }
        for _ in 0..STEP {
            assert_eq!(sender.try_send(notice(0)), Ok(false));
            assert!(matches!(receiver.take(), Ok(Some(_))));
        }
        for _ in 0..STEP {
            assert_eq!(sender.try_send(notice(0)), Ok(true));
        }
        assert_eq!(sender.try_send(notice(0)), Ok(false));
    }

    /// A receiver takes no more than was sent, and gives nothing back.
    #[test]
    fn a_count_outside_of_what_was_sent_is_an_error() {
        let laps = u64::from(NOTICE_SLOTS);
        for taken in [4, laps + 6, u64::MAX, 1 << 32] {
            let (sender, _, memory) = ends();
            for n in 0..NOTICE_SLOTS {
                assert_eq!(sender.try_send(notice(n)), Ok(true));
            }
            memory.store(TAKEN, 5, Ordering::Relaxed);
            for n in 0..5 {
                assert_eq!(sender.try_send(notice(n)), Ok(true));
            }
            memory.store(TAKEN, taken, Ordering::Relaxed);
            assert!(sender.try_send(notice(0)).is_err(), "{taken}");
        }
    }

    /// It would otherwise keep a parker awake that no look at the slots lets sleep.
    #[test]
    fn a_slot_with_a_later_number_is_an_error() {
        for ahead in [1, 5, NOTICE_SLOTS, u32::MAX / 2] {
            let (sender, receiver, memory) = ends();
            assert_eq!(sender.try_send(notice(1)), Ok(true));
            assert!(matches!(receiver.take(), Ok(Some(_))));
            let next = receiver.next();
            let number = u64::from(next.wrapping_add(ahead));
            memory.store(slot(next) + 24, number << 32, Ordering::Relaxed);
            assert!(NoticeReceiver::is_there(&memory, 0, next), "{ahead}");
            assert!(receiver.take().is_err(), "{ahead}");
        }
    }

    /// A look that consumed it would hide it from the lane, which ends the sender.
    #[test]
    fn what_is_no_notice_is_an_error_each_time() {
        let (sender, receiver, memory) = ends();
        assert_eq!(sender.try_send(notice(1)), Ok(true));
        memory.store(slot(1), 3, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(receiver.take().is_err());
        }
        memory.store(slot(1), KIND, Ordering::Relaxed);
        assert!(matches!(receiver.take(), Ok(Some(_))), "it is still there");
    }

    #[test]
    fn only_one_means_polled() {
        let (sender, receiver, memory) = ends();
        receiver.set_polled(true);
        assert!(sender.is_polled());
        receiver.set_polled(false);
        assert!(!sender.is_polled());
        memory.store(POLLED, 2, Ordering::Relaxed);
        assert!(!sender.is_polled());
    }
}
