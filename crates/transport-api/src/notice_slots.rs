//! Notice slots: short messages from one thread to another through shared memory, which arrive with
//! one cache line.
//!
//! The sender writes a message into the next slot of a small ring. The slot's last word is the number
//! of the message, and nothing else says that it is there. So a receiver that polls the next slot has
//! the whole message with the line that it polls.
//!
//! ```text
//!   +0    taken    messages taken out of the slots; written by the receiver
//!   +128  polled   1 while the receiver looks at the next slot in each poll; written by the receiver
//!   +256  slots    32 bytes each: three words, then (number << 32 | a 32-bit value), in slot
//!                  number % NOTICE_SLOTS
//! ```
//!
//! 1. Numbers begin with 1 and wrap. A slot is written only after the receiver has published that it
//!    has taken the message before: so the slot of the next message holds that of one lap earlier, and
//!    no other number.
//! 2. The receiver publishes `taken` after every quarter of the slots: each publication costs both
//!    sides a transfer of its line. The sender loads it only if there is no free slot behind the last
//!    one it saw.
//! 3. A receiver has too many senders to poll all their slots. A sender whose slots are not polled has
//!    to tell the receiver by other means that it should look:
//!
//! ```text
//!   sender                              receiver begins to poll, ends it, or goes to sleep
//!   slot = message                      polled = 1             polled = 0             word = PARKED
//!   fence(SeqCst)                       fence(SeqCst)          fence(SeqCst)          fence(SeqCst)
//!   unless polled: tell the receiver    look at the slot, then look at the slot,      look at the slot
//!   if it is PARKED: wake it            in each poll           once more
//! ```
//!
//!    In each pair one side sees the other.
//! 4. What the other side wrote is read once, then checked, then used.
//!
//! `tests/loom_notice_slots.rs` checks this file.

use primitive::SharedBytes;
use primitive::sync::{Ordering, fence};

/// Messages that the slots hold.
pub const NOTICE_SLOTS: u32 = if cfg!(loom) { 2 } else { 64 };

const TAKEN: usize = 0;
const POLLED: usize = 128;
const SLOTS: usize = 256;
const SLOT_BYTES: usize = 32;

/// Bytes of the memory that a sender and a receiver share.
pub const NOTICE_SLOTS_BYTES: usize = SLOTS + NOTICE_SLOTS as usize * SLOT_BYTES;

/// Messages after which the receiver publishes how many it has taken.
const STEP: u32 = if NOTICE_SLOTS < 4 { 1 } else { NOTICE_SLOTS / 4 };

fn slot(number: u32) -> usize {
    SLOTS + (number % NOTICE_SLOTS) as usize * SLOT_BYTES
}

/// Whether `number` is `first` or one of those that come later.
#[inline]
fn is_from(number: u32, first: u32) -> bool {
    number.wrapping_sub(first) <= u32::MAX / 2
}

/// For backends: a message in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotMessage {
    /// Whatever the two sides agree on.
    pub words: [u64; 3],
    /// The same.
    pub value: u32,
}

/// For backends: the sending end of notice slots.
///
/// ```
/// use gossamer_transport_api::{NOTICE_SLOTS_BYTES, NoticeReceiver, NoticeSender, SlotMessage};
/// use primitive::SharedBytes;
///
/// let memory = SharedBytes::heap(NOTICE_SLOTS_BYTES);
/// let mut sender = NoticeSender::new(memory.clone());
/// let mut receiver = NoticeReceiver::new(memory);
/// let message = SlotMessage { words: [1, 2, 3], value: 4 };
/// assert_eq!(sender.try_send(message), Ok(true));
/// assert!(!sender.is_polled(), "the sender must tell the receiver");
/// assert_eq!(receiver.take(), Ok(Some(message)));
/// assert_eq!(receiver.take(), Ok(None));
/// receiver.set_polled(true);
/// assert!(sender.is_polled());
/// ```
pub struct NoticeSender {
    memory: SharedBytes,
    sent: u32,
    /// What the receiver had taken when that was last loaded.
    taken: u32,
}

impl NoticeSender {
    /// The sending end in `memory`, which is zero.
    ///
    /// # Panics
    /// If it has fewer than [`NOTICE_SLOTS_BYTES`].
    pub fn new(memory: SharedBytes) -> Self {
        let memory = memory.slice(0, NOTICE_SLOTS_BYTES);
        Self { memory, sent: 0, taken: 0 }
    }

    /// Sends a message; `false` if no slot is free. Then ask [`is_polled`](Self::is_polled).
    ///
    /// # Errors
    /// How the receiver broke the protocol.
    #[inline]
    pub fn try_send(&mut self, message: SlotMessage) -> Result<bool, String> {
        if self.sent.wrapping_sub(self.taken) >= NOTICE_SLOTS && !self.reload()? {
            return Ok(false);
        }
        self.sent = self.sent.wrapping_add(1);
        let (at, number) = (slot(self.sent), u64::from(self.sent) << 32);
        let [first, second, third] = message.words;
        let words = self.memory.words().part(at / 8, SLOT_BYTES / 8);
        words.store(0, first, Ordering::Relaxed);
        words.store(1, second, Ordering::Relaxed);
        words.store(2, third, Ordering::Relaxed);
        words.store(3, number | u64::from(message.value), Ordering::Release);
        Ok(true)
    }

    /// Messages sent so far, wrapping.
    #[inline]
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Brings the next slot into this processor's cache, to be written. For a sender that is about to
    /// send: the receiver, which polls the slot, has it too, so that the message would wait for the line.
    #[inline(always)]
    pub fn prefetch(&self) {
        let at = slot(self.sent.wrapping_add(1));
        self.memory.prefetch_write(at, at + SLOT_BYTES);
    }

    /// Loads what the receiver has taken; whether a slot is free.
    #[cold]
    fn reload(&mut self) -> Result<bool, String> {
        let word = self.memory.load(TAKEN, Ordering::Acquire);
        let (under_way, taken) = (self.sent.wrapping_sub(self.taken), word as u32);
        if word > u64::from(u32::MAX) || self.sent.wrapping_sub(taken) > under_way {
            return Err(format!(
                "{word} notices taken, of {} sent and {} taken before",
                self.sent, self.taken
            ));
        }
        self.taken = taken;
        Ok(self.sent.wrapping_sub(taken) < NOTICE_SLOTS)
    }

    /// Whether the receiver looks at what was sent by itself, in each of its polls. Contains a
    /// sequentially consistent fence, in front of the look.
    #[inline]
    pub fn is_polled(&self) -> bool {
        fence(Ordering::SeqCst);
        self.memory.load(POLLED, Ordering::Relaxed) == 1
    }
}

/// For backends: the receiving end of notice slots.
pub struct NoticeReceiver {
    memory: SharedBytes,
    taken: u32,
    /// What the sender can see of it.
    published: u32,
}

impl NoticeReceiver {
    /// The receiving end in `memory`.
    ///
    /// # Panics
    /// As [`NoticeSender::new`].
    pub fn new(memory: SharedBytes) -> Self {
        let memory = memory.slice(0, NOTICE_SLOTS_BYTES);
        Self { memory, taken: 0, published: 0 }
    }

    /// The number of the next message.
    #[inline]
    pub fn next(&self) -> u32 {
        self.taken.wrapping_add(1)
    }

    /// The word that changes when the next message comes: the memory, and the byte in it.
    #[inline]
    pub fn next_word(&self) -> (&SharedBytes, usize) {
        (&self.memory, slot(self.next()) + 24)
    }

    /// Takes the next message, if it is there.
    ///
    /// # Errors
    /// How the sender broke the protocol: the slot has the number of a message that comes later.
    #[inline]
    pub fn take(&mut self) -> Result<Option<SlotMessage>, String> {
        let next = self.next();
        let words = self.memory.words().part(slot(next) / 8, SLOT_BYTES / 8);
        let last = words.load(3, Ordering::Acquire);
        if (last >> 32) as u32 != next {
            return self.nothing((last >> 32) as u32);
        }
        let words = [0, 1, 2].map(|word| words.load(word, Ordering::Relaxed));
        self.taken = next;
        if next.wrapping_sub(self.published) >= STEP {
            self.memory.store(TAKEN, u64::from(next), Ordering::Release);
            self.published = next;
        }
        Ok(Some(SlotMessage { words, value: last as u32 }))
    }

    /// What [`take`](Self::take) returns where the slot has another number: an earlier one, unless the
    /// sender is broken. A later one would keep the parker awake for ever ([`is_there`](Self::is_there)).
    #[inline]
    fn nothing<T>(&self, number: u32) -> Result<Option<T>, String> {
        if is_from(number, self.next()) {
            return Err(format!("a notice with number {number}, after {}", self.taken));
        }
        Ok(None)
    }

    /// Tells the sender whether this end looks in each poll from now on. The caller looks once after
    /// this has returned, either way, and from then on as it says here.
    pub fn set_polled(&self, is_polled: bool) {
        self.memory.store(POLLED, is_polled.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the message with this number, or a later one, was put into its slot, in the slots at byte
    /// `at` of `memory`: for a parker, which does not have the receiving end.
    ///
    /// # Panics
    /// If the slots are not inside the memory.
    pub fn is_there(memory: &SharedBytes, at: usize, number: u32) -> bool {
        is_from((memory.load(at + slot(number) + 24, Ordering::Relaxed) >> 32) as u32, number)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ends() -> (NoticeSender, NoticeReceiver, SharedBytes) {
        let memory = SharedBytes::heap(NOTICE_SLOTS_BYTES);
        (NoticeSender::new(memory.clone()), NoticeReceiver::new(memory.clone()), memory)
    }

    fn message(n: u32) -> SlotMessage {
        let word = u64::from(n);
        SlotMessage { words: [word, !word, word << 8], value: !n }
    }

    #[test]
    fn messages_arrive_in_order_over_many_laps_and_the_wrap_of_their_numbers() {
        let (mut sender, mut receiver, memory) = ends();
        let start = u32::MAX - 100 * NOTICE_SLOTS;
        (sender.sent, sender.taken) = (start, start);
        (receiver.taken, receiver.published) = (start, start);
        memory.store(TAKEN, start.into(), Ordering::Relaxed);
        let (mut sent, mut taken) = (0, 0);
        for lap in 0..1000u32 {
            while sender.try_send(message(sent)) == Ok(true) {
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
                assert_eq!(arrived, message(taken));
                taken += 1;
            }
        }
        assert!(sent > 200 * NOTICE_SLOTS / 4 && sent - taken <= NOTICE_SLOTS);
    }

    #[test]
    fn no_slot_is_free_until_a_quarter_was_taken() {
        let (mut sender, mut receiver, _) = ends();
        for n in 0..NOTICE_SLOTS {
            assert_eq!(sender.try_send(message(n)), Ok(true));
        }
        for _ in 0..STEP {
            assert_eq!(sender.try_send(message(0)), Ok(false));
            assert!(matches!(receiver.take(), Ok(Some(_))));
        }
        for _ in 0..STEP {
            assert_eq!(sender.try_send(message(0)), Ok(true));
        }
        assert_eq!(sender.try_send(message(0)), Ok(false));
    }

    /// A receiver takes no more than was sent, and gives nothing back.
    #[test]
    fn a_count_outside_of_what_was_sent_is_an_error() {
        let laps = u64::from(NOTICE_SLOTS);
        for taken in [4, laps + 6, u64::MAX, 1 << 32] {
            let (mut sender, _, memory) = ends();
            for n in 0..NOTICE_SLOTS {
                assert_eq!(sender.try_send(message(n)), Ok(true));
            }
            memory.store(TAKEN, 5, Ordering::Relaxed);
            for n in 0..5 {
                assert_eq!(sender.try_send(message(n)), Ok(true));
            }
            memory.store(TAKEN, taken, Ordering::Relaxed);
            assert!(sender.try_send(message(0)).is_err(), "{taken}");
        }
    }

    /// It would otherwise keep a parker awake that no look at the slots lets sleep.
    #[test]
    fn a_slot_with_a_later_number_is_an_error() {
        for ahead in [1, 5, NOTICE_SLOTS, u32::MAX / 2] {
            let (mut sender, mut receiver, memory) = ends();
            assert_eq!(sender.try_send(message(1)), Ok(true));
            assert!(matches!(receiver.take(), Ok(Some(_))));
            let next = receiver.next();
            let number = u64::from(next.wrapping_add(ahead));
            memory.store(slot(next) + 24, number << 32, Ordering::Relaxed);
            assert!(NoticeReceiver::is_there(&memory, 0, next), "{ahead}");
            assert!(receiver.take().is_err(), "{ahead}");
        }
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
