//! [`Receiver`]: the end that takes notifications out of slots, and frames out of the ring.

use std::sync::Arc;

use primitive::sync::Ordering;
use transport_api::park_word::ParkWord;
use transport_api::{NOTICE_SLOTS, Notice, NoticeEnd};

use crate::memory::ring::{Frame, HEAD, HEADER, NOTICED, Place, STEP, TAIL};

/// The most notifications that [`Receiver::advance`] takes out of slots in a row.
const SLOT_TURN: u32 = 4 * NOTICE_SLOTS;

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
    slots: Arc<NoticeEnd>,
    /// Notifications that were taken out of the ring.
    noticed: u64,
}

impl Receiver {
    /// `slots` is the end that receives in the [slots](Place::slots) of `place`.
    pub(crate) fn new(place: Place, slots: Arc<NoticeEnd>) -> Self {
        Self { place, head: 0, published: 0, partial: None, slots, noticed: 0 }
    }

    /// The number of the next notification in a slot.
    pub(crate) fn next_in_slot(&self) -> u32 {
        self.slots.next()
    }

    /// The slots, for a thread that polls them without its lane.
    pub(crate) fn slots(&self) -> &Arc<NoticeEnd> {
        &self.slots
    }

    /// Tells the sender whether the slots are looked at in each poll from now on. Look once more
    /// afterwards, with [`take_slots`](Self::take_slots), before they are no longer.
    pub(crate) fn set_polled(&self, is_polled: bool) {
        self.slots.set_polled(is_polled);
    }

    /// Takes the notifications that are in slots, at most as many as there are slots; how many that
    /// was. `Err` says how the sender broke the protocol.
    #[inline]
    pub(crate) fn take_slots(&mut self, sink: &mut dyn FnMut(Arrival)) -> Result<u32, String> {
        let mut count = 0;
        while count < NOTICE_SLOTS
            && let Some(notice) = self.slots.take()?
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
