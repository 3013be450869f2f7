//! [`Active`]: a sender that has said hello, as the receiver sees it.

use gossamer_segment::{HostId, Segment, Segments};
use primitive::sync::Ordering;

use crate::claim::{AWAITED, Claim, Hello, identity};
use crate::frame::Mode;
use crate::incoming::Incoming;
use crate::layout::Geometry;
use crate::peer_flags::Flags;

/// A sender that has said hello.
pub(crate) struct Active {
    pub(crate) set: u32,
    pub(crate) claim: Claim,
    pub(crate) host: HostId,
    pub(crate) mode: Mode,
    pub(crate) incoming: Incoming,
    pub(crate) flags: Flags,
    /// Flags set that may not have been sent.
    held: u32,
    /// When `held` reaches this, the flag is sent at once, so that the sender always has a bank to write.
    held_most: u32,
    /// Whether some flag was not written that should have been.
    is_owed: bool,
    /// The last [`SLEEPS_FOR`] that the sender was woken for.
    answered: u64,
}

impl Active {
    #[track_caller]
    pub(crate) fn new(
        (segments, segment): (&Segments, &Segment),
        geometry: Geometry,
        (set, host): (u32, HostId),
        hello: Hello,
    ) -> Option<Self> {
        let Hello { claim, flags, mode } = hello;
        let incoming = Incoming::new(geometry, set, claim.epoch(), mode);
        let identity = identity(segment.name(), segment.generation(), set, claim);
        let flags = Flags::begin_open(segments, (host, flags), geometry.flags_bytes(), identity)?;
        let is_owed = matches!(flags, Flags::Opening(_));
        let held_most = geometry.banks / 2;
        Some(Active {
            set,
            claim,
            host,
            mode,
            incoming,
            flags,
            held: 0,
            held_most,
            is_owed,
            answered: 0,
        })
    }

    /// Whether the sender, whose claim is at byte `at`, waits for its release.
    pub(crate) fn is_awaited(&self, segment: &Segment, at: usize) -> bool {
        segment.memory().load(at + AWAITED, Ordering::Acquire) == self.claim.0
    }

    /// The next frame was taken, or skipped; true if the flag of a bank was set, whose sender may sleep.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn advance(&mut self) -> bool {
        let emptied = self.incoming.advance();
        if emptied.is_none()
            && let Some(bank) = self.incoming.ending_bank()
        {
            // The line of the flag is then here when it is set, and no later store waits for it.
            self.flags.prefetch(bank);
        }
        match emptied {
            Some((bank, emptied)) => self.set_flag(bank, emptied),
            None => return false,
        }
        true
    }

    /// Sets the flag of a bank that was emptied.
    #[inline(never)]
    #[track_caller]
    fn set_flag(&mut self, bank: u32, emptied: u64) {
        // What waits must not do so while a panic unwinds the stack.
        if self.is_owed || std::thread::panicking() {
            self.is_owed = true;
        } else {
            if self.held > 0 && !self.flags.have_unsent() {
                self.held = 0;
            }
            self.held += 1;
            let is_urgent = self.held >= self.held_most;
            self.is_owed = !self.flags.set(bank, emptied, is_urgent);
        }
    }

    /// Writes the flags that are owed, as far as the sender takes them.
    #[track_caller]
    pub(crate) fn settle(&mut self) {
        self.flags.take_opened();
        if self.is_owed && !matches!(self.flags, Flags::Opening(_)) {
            let flags = &mut self.flags;
            self.is_owed =
                !self.incoming.emptied().all(|(bank, emptied)| flags.set(bank, emptied, true));
            self.flags.wake();
        }
    }

    /// Wakes the sender if its memory is not mapped and `word`, that of its claim, says that it sleeps for a
    /// frame which it may write now. Looks at that whenever it looks at the claim: the flag may have left
    /// before the sender fell asleep.
    #[track_caller]
    pub(crate) fn wake_if_unmapped(&mut self, word: u64) {
        let Some(frame) = self.claim.frame_of(word) else { return };
        let is_due = word != self.answered && !self.is_owed && self.incoming.has_room_for(frame);
        if is_due && self.flags.notify_unmapped() {
            self.answered = word;
        }
    }
}
