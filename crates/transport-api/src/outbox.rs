//! [`NoticeOutbox`] and [`NoticeInbox`]: notice slots as the threads at both ends hold them, so that a
//! notification of a thread that polls is a few instructions there, past the lanes.
//!
//! ```text
//!   writer                                            owner
//!   NoticeOutbox::write_notify                        NoticeInbox::take
//!     open? a slot free? region exported, in range?     the next number in the next slot?
//!     the bytes, then the slot   ------------------>    the notice
//!     fence; polled? awake?
//! ```
//!
//! A lane makes them and shares them with the layer above it on its thread. All that is rare stays
//! with the lane: an outbox that refuses has done nothing, and the lane's
//! [`write_notify`](crate::Lane::write_notify) then does it or says why not; an inbox that finds a
//! violation leaves it where it is, and the lane's [`poll`](crate::Lane::poll) finds it again.

use std::sync::Arc;

use primitive::SharedBytes;
use primitive::sync::{AtomicBool, Ordering};

#[cfg(not(loom))]
use crate::park_word::ParkWord;
use crate::{HostId, Notice, NoticeEnd, Notification, ThreadId, Window};

/// For backends: what a sender does about a receiver that does not see a notice by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rouse {
    /// It polls, but was asleep: wake it. The caller has cleared its park word.
    Wake,
    /// It does not poll the slots: ask it to look, and wake it if it sleeps.
    Ask,
}

type RouseReceiver = Box<dyn Fn(Rouse) + Send + Sync>;

/// For backends: the notifications of a thread to one thread of a peer whose memory is mapped. One
/// thread at a time uses it.
pub struct NoticeOutbox {
    slots: Arc<NoticeEnd>,
    /// Of the regions that may be written: the transport that imported them, and their owner.
    issuer: u64,
    peer: HostId,
    /// Whether a notice may go into a slot: no earlier one is elsewhere, and the peer is there.
    is_open: AtomicBool,
    /// The receiver's park word.
    #[cfg_attr(loom, expect(dead_code, reason = "models have park words of their own"))]
    park_word: SharedBytes,
    rouse: RouseReceiver,
}

impl NoticeOutbox {
    /// Over `slots`, whose other end is that of a thread of `peer` whose park word is the first of
    /// `park_word`. `issuer` is the transport's. `rouse` is called behind a notice that the receiver may
    /// not see.
    ///
    /// # Panics
    /// If there is no park word.
    pub fn new(
        slots: Arc<NoticeEnd>,
        (issuer, peer): (u64, HostId),
        park_word: SharedBytes,
        rouse: impl Fn(Rouse) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (park_word, rouse) = (park_word.slice(0, 8), Box::new(rouse));
        Arc::new(Self { slots, issuer, peer, is_open: AtomicBool::new(true), park_word, rouse })
    }

    /// Whether [`write_notify`](Self::write_notify) may use the slots from now on: not while an earlier
    /// notice is on another way, and not once the peer has ended.
    pub fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }

    /// Writes `bytes` to byte `at` of the region, and sends a notice of it with the value 0. False if
    /// that cannot be done at once, for any reason, and nothing is done then.
    #[inline(always)]
    pub fn write_notify(&self, window: &Window, at: usize, bytes: &[u8]) -> bool {
        let is_ours = window.issuer() == self.issuer && window.owner() == self.peer;
        if !self.is_open.load(Ordering::Relaxed)
            || !is_ours
            || !matches!(self.slots.has_room(), Ok(true))
        {
            return false;
        }
        let is_written = match <[u8; 8]>::try_from(bytes) {
            Ok(word) if at.is_multiple_of(8) => window.store_word(at, u64::from_ne_bytes(word)),
            _ => window.write_from(at, bytes).is_ok(),
        };
        if is_written {
            let (at, len) = (at as u64, bytes.len() as u64);
            self.slots.put(Notice { key: window.key(), at, len, value: 0 });
            self.note_sent();
        }
        is_written
    }

    /// For the lane: sends a notice, whether it is open or not; false if no slot is free.
    ///
    /// # Errors
    /// How the receiver broke the protocol.
    pub fn send(&self, notice: Notice) -> Result<bool, String> {
        let is_sent = self.slots.try_send(notice)?;
        if is_sent {
            self.note_sent();
        }
        Ok(is_sent)
    }

    /// A notice is in its slot: sees to it that the receiver looks.
    #[inline(always)]
    fn note_sent(&self) {
        if !self.slots.is_polled() {
            self.rouse(Rouse::Ask);
        } else if self.must_wake() {
            self.rouse(Rouse::Wake);
        }
    }

    #[cfg(not(loom))]
    #[inline(always)]
    fn must_wake(&self) -> bool {
        ParkWord::new(self.park_word.word32(0)).must_wake_behind_fence()
    }

    /// Models have park words of their own: shared bytes have words of 64 bits only under loom.
    #[cfg(loom)]
    fn must_wake(&self) -> bool {
        unreachable!("no model uses the ends that threads hold")
    }

    #[cold]
    #[inline(never)]
    fn rouse(&self, how: Rouse) {
        (self.rouse)(how);
    }
}

/// For backends: the notifications of one thread of a peer whose notice slots a thread polls. One
/// thread at a time uses it and its clones.
#[derive(Clone)]
pub struct NoticeInbox {
    from: ThreadId,
    slots: Arc<NoticeEnd>,
}

impl NoticeInbox {
    /// Over `slots`, whose other end is that of the thread `from`.
    pub fn new(from: ThreadId, slots: Arc<NoticeEnd>) -> Self {
        Self { from, slots }
    }

    /// Whether it is of the same slots.
    pub fn is_same(&self, other: &NoticeInbox) -> bool {
        Arc::ptr_eq(&self.slots, &other.slots)
    }

    /// Takes the next notification, if it is there.
    ///
    /// # Errors
    /// How the sender broke the protocol. A poll of the lane finds it, too.
    #[inline(always)]
    pub fn take(&self) -> Result<Option<Notification>, String> {
        let Some(Notice { key, at, len, value }) = self.slots.take()? else { return Ok(None) };
        Ok(Some(Notification { from: self.from, key, at, len, value }))
    }
}
