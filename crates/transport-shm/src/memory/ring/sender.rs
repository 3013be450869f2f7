//! [`Sender`]: the end that puts notifications into slots and frames into the ring.

use std::collections::VecDeque;
use std::sync::Arc;

use primitive::sync::Ordering;
use transport_api::park_word::ParkWord;
use transport_api::{Notice, NoticeOutbox, Tag, Waiting};

use crate::memory::ring::{Frame, HEAD, HEADER, NOTICED, Place, STEP, TAIL};

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
    /// Open while no notification is in the ring.
    outbox: Arc<NoticeOutbox>,
    /// Notifications that were pushed into the ring, and those that the receiver had taken out of it
    /// when that was last loaded.
    notified: u64,
    noticed: u64,
}

impl Sender {
    /// `outbox` sends in the [slots](Place::slots) of `place`.
    pub(crate) fn new(place: Place, outbox: Arc<NoticeOutbox>) -> Self {
        Self {
            place,
            outbox,
            tail: 0,
            head: 0,
            queue: VecDeque::new(),
            waiting: Waiting::default(),
            notified: 0,
            noticed: 0,
        }
    }

    /// Sends a notification in a slot, if one is free and no earlier notification waits in the ring;
    /// false otherwise. `Err` says how the receiver broke the protocol.
    pub(crate) fn notify(&mut self, notice: Notice) -> Result<bool, String> {
        if self.notified != self.noticed && !self.reload_noticed()? {
            return Ok(false);
        }
        self.outbox.send(notice)
    }

    /// Where notifications go first.
    pub(crate) fn outbox(&self) -> &Arc<NoticeOutbox> {
        &self.outbox
    }

    /// Loads what the receiver has taken out of the ring; whether that is all.
    #[cold]
    fn reload_noticed(&mut self) -> Result<bool, String> {
        let noticed = self.place.memory.load(NOTICED, Ordering::Acquire);
        if !(self.noticed..=self.notified).contains(&noticed) {
            return Err(format!("{noticed} notifications taken of {} in a ring", self.notified));
        }
        self.noticed = noticed;
        let is_all = noticed == self.notified;
        self.outbox.set_open(is_all);
        Ok(is_all)
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
                self.outbox.set_open(false);
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
