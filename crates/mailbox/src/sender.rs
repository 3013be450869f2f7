//! [`Sender`]: writes frames to a mailbox of any host.

use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

use gossamer_segment::{HostId, Label, RemoteSegment, Segments};
use primitive::sync::Ordering;

use crate::claim::{AWAITED, Claim, DONE, HELLO, Hello, SLEEPS_FOR, identity};
use crate::error::MailboxError;
use crate::flags::OwnFlags;
use crate::frame::{FrameHeader, Mode, Parts};
use crate::layout::{ASLEEP, FRAME_OVERHEAD, Geometry, IDENTITY, WAITING};
use crate::outgoing::Outgoing;
use crate::sleep;
use crate::target::{Mapped, To};
use crate::wait::CpuWait;

/// How long a sender whose bank is full looks on before it sleeps.
const AWAKE: Duration = Duration::from_micros(50);

/// An open mailbox, with banks there that no other sender uses. Dropping it releases them; the receiver
/// still gets every frame that was sent.
///
/// A fiber that has to wait parks. Where the receiver's memory is mapped, an attached thread, such as a
/// fiber's, stores frames there directly.
pub struct Sender {
    segments: Segments,
    pub(crate) mailbox: RemoteSegment,
    pub(crate) geometry: Geometry,
    pub(crate) set: u32,
    pub(crate) claim: Claim,
    pub(crate) outgoing: Outgoing,
    pub(crate) flags: OwnFlags,
    is_done: bool,
}

/// Which mailbox an error is about.
pub(crate) fn label(mailbox: &RemoteSegment) -> Label {
    Label { name: *mailbox.name(), host: mailbox.owner() }
}

/// The claim at byte `at`, if the receiver is still there.
#[track_caller]
fn claim_now(
    segments: &Segments,
    mailbox: &RemoteSegment,
    at: usize,
) -> Result<Claim, MailboxError> {
    segments.check_peer(mailbox.owner())?;
    mailbox.at_byte::<u64>(at).read().map(Claim).map_err(MailboxError::of_mailbox)
}

impl Sender {
    /// The sender that has claimed a bank set: says hello, and wakes the receiver.
    #[track_caller]
    pub(crate) fn begin(
        segments: &Segments,
        mailbox: RemoteSegment,
        geometry: Geometry,
        (set, claim): (u32, Claim),
        flags: OwnFlags,
    ) -> Result<Sender, MailboxError> {
        let mode = match (mailbox.is_mapped(), mailbox.is_streamed()) {
            (true, _) => Mode::Mapped,
            (false, true) => Mode::Streamed,
            (false, false) => Mode::Checked,
        };
        let at = geometry.claim_at(set);
        let say_hello = || {
            let identity = identity(mailbox.name(), mailbox.generation(), set, claim);
            flags.segment.write(IDENTITY, &identity.to_ne_bytes())?;
            let hello = Hello { claim, flags: flags.number(), mode }.encode();
            mailbox.write_notify(at + HELLO, &hello).map_err(MailboxError::of_mailbox)
        };
        if let Err(error) = say_hello() {
            // The receiver may free the set. If this fails as well, it does so later.
            let _ = mailbox.signal(at + DONE, claim.frame_word(0));
            return Err(error);
        }
        Ok(Sender {
            segments: segments.clone(),
            geometry,
            set,
            claim,
            outgoing: Outgoing::new(geometry, set, claim.epoch(), mode),
            flags,
            is_done: false,
            mailbox,
        })
    }

    /// The segments of the rack that it was opened with.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The host that has the mailbox.
    pub fn receiver(&self) -> HostId {
        self.mailbox.owner()
    }

    /// Bytes that a frame has for arguments, payload and attachment, each of which takes a multiple of
    /// eight.
    pub fn frame_bytes(&self) -> usize {
        self.geometry.body as usize
    }

    /// Whether frames are stored in the receiver's memory, or travel there.
    pub fn is_mapped(&self) -> bool {
        self.mailbox.is_mapped()
    }

    /// Frames that were sent.
    pub fn sent(&self) -> u64 {
        self.outgoing.next()
    }

    /// Sends a frame, which is in flight when this returns. Waits until the receiver has emptied the bank
    /// for the frame.
    ///
    /// # Errors
    /// [`MailboxError::TooLarge`]; [`MailboxError::Closed`]; [`MailboxError::Segment`] with
    /// [`SegmentError::PeerLost`](gossamer_segment::SegmentError::PeerLost) if the receiver's host is gone.
    /// Where memory is mapped, that shows when the sender would wait.
    ///
    /// # Panics
    /// If it would wait where that is impossible: in a delegated closure or a callback.
    #[inline]
    #[track_caller]
    pub fn send(&mut self, header: &FrameHeader, parts: Parts<'_>) -> Result<(), MailboxError> {
        if self.outgoing.has_room() && self.store(header, &parts) {
            return Ok(());
        }
        self.send_any(header, &parts)
    }

    #[inline(never)]
    #[track_caller]
    fn send_any(&mut self, header: &FrameHeader, parts: &Parts<'_>) -> Result<(), MailboxError> {
        if !self.outgoing.may_write(self.flags.segment.memory()) {
            self.wait_for_bank()?;
        }
        self.write(header, parts)
    }

    /// Stores a frame where memory is mapped; false, and nothing is sent, if that cannot be done here, for
    /// any reason.
    #[inline(always)]
    #[track_caller]
    fn store(&mut self, header: &FrameHeader, parts: &Parts<'_>) -> bool {
        let Some(window) = self.mailbox.window() else { return false };
        let Ok(lengths) = parts.lengths(&self.geometry) else { return false };
        let to = Mapped(window);
        if self.outgoing.store(&to, header, parts, lengths).is_err() {
            return false;
        }
        self.outgoing.advance();
        self.wake_receiver();
        self.outgoing.look_ahead(self.flags.segment.memory());
        self.outgoing.prefetch_next(&to, lengths);
        true
    }

    /// Called after a frame in mapped memory: wakes the receiver, if it sleeps.
    #[inline(always)]
    #[track_caller]
    fn wake_receiver(&self) {
        if self.geometry.may_sleep {
            // The frame was sent. If the receiver is gone, the next one fails.
            let _ = sleep::wake(&self.mailbox, ASLEEP);
        }
    }

    /// As [`send`](Self::send), without waiting for the receiver: returns false, and sends nothing, if the
    /// receiver has not emptied the bank, or has not taken the notifications of earlier frames.
    ///
    /// # Errors
    /// As [`send`](Self::send). Where memory is not mapped, a sender whose bank is full does not learn that
    /// the receiver has dropped the mailbox, as it would have to ask.
    #[inline]
    #[track_caller]
    pub fn try_send(
        &mut self,
        header: &FrameHeader,
        parts: Parts<'_>,
    ) -> Result<bool, MailboxError> {
        if !self.outgoing.may_write(self.flags.segment.memory()) || !self.may_notify(&parts) {
            self.segments.poll();
            self.segments.check_peer(self.receiver())?;
            if self.is_mapped() {
                self.check_claim()?;
            }
            return Ok(false);
        }
        self.write(header, &parts).map(|()| true)
    }

    /// Whether the notification that travels with a frame need not wait for the receiver.
    #[inline]
    #[track_caller]
    fn may_notify(&self, parts: &Parts<'_>) -> bool {
        let is_alone = !self.geometry.may_sleep || self.mailbox.is_mapped();
        is_alone
            || match parts.lengths(&self.geometry) {
                Ok(lengths) => self.mailbox.can_notify(lengths.body() as usize + FRAME_OVERHEAD),
                // It is refused when it is written.
                Err(_) => true,
            }
    }

    /// Sends a frame, whose bank is empty.
    #[track_caller]
    fn write(&mut self, header: &FrameHeader, parts: &Parts<'_>) -> Result<(), MailboxError> {
        if self.is_mapped() && self.store(header, parts) {
            return Ok(());
        }
        let lengths = parts.lengths(&self.geometry).map_err(|len| self.too_large(len))?;
        let to = To { mailbox: &self.mailbox, notifies: self.geometry.may_sleep };
        let written = self.outgoing.write_parts(&to, header, parts, lengths);
        written.map_err(MailboxError::of_mailbox)?;
        if self.mailbox.is_mapped() {
            self.wake_receiver();
            self.outgoing.look_ahead(self.flags.segment.memory());
        }
        Ok(())
    }

    #[cold]
    fn too_large(&self, len: usize) -> MailboxError {
        MailboxError::TooLarge { mailbox: label(&self.mailbox), len, max: self.frame_bytes() }
    }

    /// Waits until the receiver has emptied the bank of the next frame.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn wait_for_bank(&mut self) -> Result<(), MailboxError> {
        fiber::check_may_wait("the wait for a bank of a mailbox", Location::caller());
        // A flag that comes through a lane comes by `let_others` only: no processor waits for that. A
        // fiber's thread has other things to do.
        let waits_on_flag = self.mailbox.is_mapped() && !fiber::in_fiber();
        let cpu = if waits_on_flag { CpuWait::detected() } else { CpuWait::Pause };
        let awake = Instant::now();
        while awake.elapsed() < AWAKE {
            let memory = self.flags.segment.memory();
            let flag = memory.word(self.outgoing.watched());
            let seen = flag.load(Ordering::Relaxed);
            if self.outgoing.may_write(memory) {
                return Ok(());
            }
            sleep::let_others(&self.segments);
            cpu.wait(flag, seen);
        }
        if !self.is_mapped() {
            // Flags come without a notification, but for a sender that says that it sleeps.
            let at = self.geometry.claim_at(self.set) + SLEEPS_FOR;
            let word = self.claim.frame_word(self.sent()).to_ne_bytes();
            self.mailbox.write_notify(at, &word).map_err(MailboxError::of_mailbox)?;
        }
        loop {
            let Sender { flags: OwnFlags { segment, notifications, .. }, outgoing, .. } = self;
            let is_ready = || outgoing.may_write(segment.memory());
            sleep::sleep(segment, WAITING, notifications, sleep::LONGEST, is_ready)?;
            if self.outgoing.may_write(self.flags.segment.memory()) {
                return Ok(());
            }
            self.check_claim()?;
        }
    }

    /// Checks that the receiver is there, and that this sender has its banks. Where memory is not mapped,
    /// this asks the receiver's host.
    ///
    /// # Errors
    /// [`MailboxError::Closed`]; [`MailboxError::Segment`] with
    /// [`SegmentError::PeerLost`](gossamer_segment::SegmentError::PeerLost) if the receiver's host is gone.
    #[track_caller]
    pub fn check_claim(&self) -> Result<(), MailboxError> {
        let at = self.geometry.claim_at(self.set);
        if claim_now(&self.segments, &self.mailbox, at)? == self.claim {
            return Ok(());
        }
        Err(MailboxError::Closed(label(&self.mailbox)))
    }

    // ---- the end -------------------------------------------------------------------------------

    /// Waits up to `timeout` until the receiver has taken all frames, and releases the banks.
    ///
    /// # Errors
    /// [`MailboxError::NotTaken`]; as [`send`](Self::send).
    #[track_caller]
    pub fn close(mut self, timeout: Duration) -> Result<(), MailboxError> {
        let at = self.geometry.claim_at(self.set);
        let awaited = self.mailbox.write(at + AWAITED, &self.claim.0.to_ne_bytes());
        awaited.map_err(MailboxError::of_mailbox)?;
        self.end()?;
        let deadline = Instant::now().checked_add(timeout);
        let released = || {
            let word =
                self.flags.segment.memory().load(self.geometry.released_at(), Ordering::Acquire);
            word == self.claim.0
        };
        while !released() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(MailboxError::NotTaken(label(&self.mailbox)));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let longest = left.map_or(sleep::LONGEST, |left| left.min(sleep::LONGEST));
            let OwnFlags { segment, notifications, .. } = &self.flags;
            sleep::sleep(segment, WAITING, notifications, longest, released)?;
            if !released() {
                claim_now(&self.segments, &self.mailbox, at)?;
            }
        }
        Ok(())
    }

    /// Says that no more frames come.
    #[track_caller]
    fn end(&mut self) -> Result<(), MailboxError> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(());
        }
        let done = self.claim.frame_word(self.outgoing.next());
        let at = self.geometry.claim_at(self.set) + DONE;
        self.mailbox.signal(at, done).map_err(MailboxError::of_mailbox)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // A receiver that is gone needs no goodbye.
        let _ = self.end();
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("mailbox", &self.mailbox.name())
            .field("receiver", &self.receiver())
            .field("geometry", &self.geometry)
            .field("sent", &self.sent())
            .finish_non_exhaustive()
    }
}
