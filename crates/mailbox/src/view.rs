//! [`Frame`]: a frame that has come, as its receiver sees it.

use std::fmt;

use gossamer_segment::HostId;
use primitive::SharedBytes;

use crate::active::Active;
use crate::frame::FrameHeader;
use crate::incoming::Arrived;
use crate::layout::HEADER_BYTES;
use crate::senders::Senders;

/// A frame that has arrived. Its header and lengths are a copy that was checked; its bytes may be in memory
/// that the sender can write at any time, so copy them out, once, before you look at them.
///
/// Drop it as soon as you have copied its bytes: the sender may then reuse its slot.
pub struct Frame<'a> {
    active: &'a mut Active,
    /// [`Senders::owes_wakes`](crate::senders::Senders::owes_wakes).
    owes_wakes: &'a mut bool,
    /// Where the frame is.
    memory: &'a SharedBytes,
}

impl<'a> Frame<'a> {
    /// The frame of sender `number`: in the mailbox's memory, or, if it has a checksum, in the private copy.
    #[inline(always)]
    pub(crate) fn new(
        senders: &'a mut Senders,
        mailbox: &'a SharedBytes,
        copy: &'a SharedBytes,
        number: usize,
    ) -> Frame<'a> {
        let Senders { active, owes_wakes, .. } = senders;
        let active = &mut active[number];
        let memory = if active.incoming.arrived().is_copied { copy } else { mailbox };
        Frame { active, owes_wakes, memory }
    }
}

impl Frame<'_> {
    #[inline(always)]
    fn arrived(&self) -> &Arrived {
        self.active.incoming.arrived()
    }

    /// What the sender says about it.
    #[inline]
    pub fn header(&self) -> &FrameHeader {
        &self.arrived().header
    }

    /// The host of the sender, as the sender claims.
    pub fn sender(&self) -> HostId {
        self.active.host
    }

    /// Bytes of the arguments.
    pub fn args_len(&self) -> usize {
        self.arrived().lengths.args as usize
    }

    /// Bytes of the payload.
    pub fn payload_len(&self) -> usize {
        self.arrived().lengths.payload as usize
    }

    /// Bytes of the attachment.
    pub fn attachment_len(&self) -> usize {
        self.arrived().lengths.attachment as usize
    }

    /// Copies the arguments to `out`.
    ///
    /// # Panics
    /// If `out` is not as long as they are.
    #[inline]
    #[track_caller]
    pub fn copy_args(&self, out: &mut [u8]) {
        self.copy(HEADER_BYTES, self.args_len(), out);
    }

    /// Copies the payload to `out`.
    ///
    /// # Panics
    /// If `out` is not as long as it is.
    #[inline]
    #[track_caller]
    pub fn copy_payload(&self, out: &mut [u8]) {
        let (payload, _, _) = self.places();
        self.copy(payload, self.payload_len(), out);
    }

    /// Copies the attachment to `out`.
    ///
    /// # Panics
    /// If `out` is not as long as it is.
    #[inline]
    #[track_caller]
    pub fn copy_attachment(&self, out: &mut [u8]) {
        let (_, attachment, _) = self.places();
        self.copy(attachment, self.attachment_len(), out);
    }

    #[inline]
    fn places(&self) -> (usize, usize, usize) {
        self.arrived().lengths.places(self.active.incoming.mode())
    }

    #[inline]
    #[track_caller]
    fn copy(&self, at: usize, len: usize, out: &mut [u8]) {
        let room = out.len();
        assert!(room == len, "a buffer of {room} bytes for {len} bytes of a frame");
        if !out.is_empty() {
            self.memory.read_into(self.arrived().at + at, out);
        }
    }
}

impl Drop for Frame<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.active.advance() {
            *self.owes_wakes = true;
        }
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("header", self.header())
            .field("sender", &self.sender())
            .field("args", &self.args_len())
            .field("payload", &self.payload_len())
            .field("attachment", &self.attachment_len())
            .finish_non_exhaustive()
    }
}
