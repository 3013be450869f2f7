//! Writing a segment that was opened: by a checked copy where its memory is mapped and the calling thread
//! is attached, otherwise over a lane.

use transport_api::{OpError, RemoteRegion, Rights, Window};

use crate::engine::{Engine, PIECE, attached, run, with_attached};
use crate::error::SegmentError;
use crate::remote::segment::RemoteSegment;
use crate::span::Span;

/// Bytes of one operation, at most: [`RemoteSegment::read_block`] and
/// [`RemoteSegment::write_block`] move more.
pub const MAX_OPERATION: usize = crate::engine::PIECE;

/// A length as a notification carries it.
fn notified_len(len: usize) -> Result<u32, SegmentError> {
    u32::try_from(len).map_err(|_| SegmentError::TooLarge { len, max: u32::MAX as usize })
}

/// Whether one operation may have `len` bytes.
fn check_operation(len: usize) -> Result<(), SegmentError> {
    if len <= MAX_OPERATION {
        Ok(())
    } else {
        Err(SegmentError::TooLarge { len, max: MAX_OPERATION })
    }
}

/// Writes at most [`PIECE`] bytes over the lane, and notifies `thread` of the owner, if it is one;
/// `is_written` as in [`Engine::write_mapped`].
#[track_caller]
fn write_piece(
    engine: &Engine,
    region: &RemoteRegion,
    at: usize,
    bytes: &[u8],
    thread: Option<u32>,
    is_written: &mut bool,
) -> Result<(), OpError> {
    match (thread, region.window()) {
        (Some(thread), Some(window)) => {
            engine.write_mapped((region, window), at, bytes, thread, is_written)
        }
        _ => engine.write(region, at, bytes, thread),
    }
}

impl RemoteSegment {
    /// Writes `bytes` at byte `at`. They are in flight when this returns.
    ///
    /// # Errors
    /// Those that this host detects: [`SegmentError::OutOfBounds`], [`SegmentError::Rights`],
    /// [`SegmentError::TooLarge`] above [`MAX_OPERATION`], [`SegmentError::PeerLost`],
    /// [`SegmentError::Revoked`]; [`SegmentError::WouldWait`], before anything is written, where the
    /// caller cannot wait. A write that the owner refuses later is an error of the next
    /// [`fence`](Self::fence).
    #[inline(always)]
    #[track_caller]
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        // A word, whose length is a constant in most callers, costs a few instructions.
        if let Ok(word) = <[u8; 8]>::try_from(bytes)
            && self.store_word(at, u64::from_ne_bytes(word))
        {
            return Ok(());
        }
        self.write_bytes(at, bytes)
    }

    // A separate function, so that callers of `write` inline the case of a word alone.
    #[inline(never)]
    #[track_caller]
    fn write_bytes(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        if self.is_silent()
            && let Some(window) = self.mapped()
            && bytes.len() <= MAX_OPERATION
            && window.write_from(at, bytes).is_ok()
        {
            return Ok(());
        }
        self.write_and_notify(at, bytes, false)
    }

    /// For layers above: stores `word` at byte `at`, in flight when this returns. A reader that sees it
    /// sees every earlier write of this thread to the host.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`SegmentError::Misaligned`] if `at` is not a multiple of eight.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn signal(&self, at: usize, word: u64) -> Result<(), SegmentError> {
        if self.store_word(at, word) { Ok(()) } else { self.signal_over_lane(at, word) }
    }

    /// For layers above: stores words from byte `at` on, in order, in flight when this returns; a reader
    /// that sees the last one sees the others, and every earlier write of this thread to the host.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn signal_words<const N: usize>(
        &self,
        at: usize,
        words: &[u64; N],
    ) -> Result<(), SegmentError> {
        if self.is_silent()
            && let Some(window) = self.mapped()
            && window.store_words(at, N, |index| words[index]).is_ok()
        {
            return Ok(());
        }
        words.iter().enumerate().try_for_each(|(number, word)| {
            self.signal_over_lane(at.saturating_add(8 * number), *word)
        })
    }

    /// For layers above: the mapping, where the calling thread may store into it without notifying the
    /// owner. An operation that it refuses is to be repeated on this segment, which knows why.
    #[doc(hidden)]
    #[inline(always)]
    pub fn window(&self) -> Option<&Window> {
        if self.is_silent() { self.mapped() } else { None }
    }

    /// For layers above: prefetches the cache line at byte `at` for writing, where memory is mapped; does
    /// nothing for a place outside.
    #[doc(hidden)]
    #[inline(always)]
    pub fn prefetch_write(&self, at: usize) {
        if let Some(window) = self.region.window() {
            window.prefetch_write(at..at.saturating_add(1));
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn signal_over_lane(&self, at: usize, word: u64) -> Result<(), SegmentError> {
        let span = Span { at, len: size_of::<u64>(), needs: Rights::WRITE };
        let segment = self.clone();
        run(&self.shared, move |engine| {
            segment.check_room(engine, size_of::<u64>(), None)?;
            segment.with_engine(span, |engine, region| engine.signal(region, at, word))
        })
    }

    /// As [`write`](Self::write), and then notifies the owner of `bytes.len()` bytes at `at`. Waits
    /// while 1,024 notifications of this thread wait here for the same thread of the owner to take
    /// earlier ones.
    ///
    /// The owner decides which writes notify it. If it exported the segment with
    /// [`Notify::Never`](crate::Notify::Never), this is [`write`](Self::write), and so is every other
    /// `_notify` operation its plain form: no error, and no notification.
    /// [`notify_mode`](Self::notify_mode) tells.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[track_caller]
    pub fn write_notify(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        self.write_and_notify(at, bytes, true)
    }

    /// Writes at most [`MAX_OPERATION`] bytes, and notifies the owner if the segment takes that.
    #[inline(always)]
    #[track_caller]
    fn write_and_notify(
        &self,
        at: usize,
        bytes: &[u8],
        is_notify_requested: bool,
    ) -> Result<(), SegmentError> {
        let thread = self.thread_to_notify(is_notify_requested);
        if bytes.len() <= MAX_OPERATION
            && let Some(thread) = thread
            && self.notify_mapped(at, bytes, thread)
        {
            return Ok(());
        }
        self.write_over_lane(at, bytes, thread)
    }

    /// Writes and notifies where memory is mapped; false, and nothing is done, if that cannot be done
    /// here and at once, for any reason.
    #[inline(never)]
    fn notify_mapped(&self, at: usize, bytes: &[u8], thread: u32) -> bool {
        let write = |engine: &Engine| engine.try_write_notify(&self.region, at, bytes, thread);
        with_attached(&self.shared, write) == Some(true)
    }

    /// For layers above: as [`write_notify`](Self::write_notify), without waiting for notifications or
    /// writes that the owner has not taken; false, and nothing is written, if it would have to.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`SegmentError::Revoked`] or [`SegmentError::Rights`] also if the owner has
    /// only changed the access, because this does not wait for it, until an operation that waits has
    /// followed the change.
    #[doc(hidden)]
    #[track_caller]
    pub fn try_write_notify(&self, at: usize, bytes: &[u8]) -> Result<bool, SegmentError> {
        let Some(engine) = attached(&self.shared) else {
            let (segment, bytes) = (self.clone(), bytes.to_vec());
            return run(&self.shared, move |_| segment.try_write_notify(at, &bytes));
        };
        check_operation(bytes.len())?;
        let thread = self.thread_to_notify(true);
        // Nothing of this thread comes between: the write does not wait.
        if !engine.has_room(self.owner(), bytes.len(), thread) {
            return Ok(false);
        }
        if thread.is_some_and(|thread| self.notify_mapped(at, bytes, thread)) {
            return Ok(true);
        }
        let span = Span { at, len: bytes.len(), needs: Rights::WRITE };
        self.try_with_region(span, |region| {
            write_piece(&engine, region, at, bytes, thread, &mut false)
        })
        .map(|()| true)
    }

    /// For layers above: whether a [`write_notify`](Self::write_notify) of `bytes` bytes need not wait
    /// for notifications that the owner has not taken, nor its first 64 KiB for other writes. True
    /// if that cannot be found out: the write then says why.
    #[doc(hidden)]
    #[track_caller]
    pub fn can_notify(&self, bytes: usize) -> bool {
        let (host, thread) = (self.owner(), self.thread_to_notify(true));
        let bytes = bytes.min(PIECE);
        run(&self.shared, move |engine| Ok(engine.has_room(host, bytes, thread))).unwrap_or(true)
    }

    /// Writes any number of bytes at byte `at`, in pieces, with a limited number of bytes in flight.
    ///
    /// # Errors
    /// As [`write`](Self::write), but for [`SegmentError::TooLarge`], which only a segment that is
    /// always notified returns ([`write_block_notify`](Self::write_block_notify)).
    #[track_caller]
    pub fn write_block(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        if self.is_silent()
            && let Some(window) = self.mapped()
            && window.write_from(at, bytes).is_ok()
        {
            return Ok(());
        }
        self.block_over_lane(at, bytes, false)
    }

    /// As [`write_block`](Self::write_block), and notifies the owner once, after all of it.
    ///
    /// # Errors
    /// As [`write_block`](Self::write_block); [`SegmentError::TooLarge`] from 4 GiB on, more
    /// than a notification can report (4 GiB - 1): write one part, then the other.
    #[track_caller]
    pub fn write_block_notify(&self, at: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        self.block_over_lane(at, bytes, true)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn write_over_lane(
        &self,
        at: usize,
        bytes: &[u8],
        thread: Option<u32>,
    ) -> Result<(), SegmentError> {
        check_operation(bytes.len())?;
        let mut is_written = false;
        self.with_bytes(at, bytes, thread, move |engine, region, bytes| {
            write_piece(engine, region, at, bytes, thread, &mut is_written)
        })
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn block_over_lane(
        &self,
        at: usize,
        bytes: &[u8],
        is_notify_requested: bool,
    ) -> Result<(), SegmentError> {
        let announcement = match self.thread_to_notify(is_notify_requested) {
            Some(thread) => Some((thread, notified_len(bytes.len())?)),
            None => None,
        };
        let thread = announcement.map(|(thread, _)| thread);
        if let Some(thread) = thread
            && self.notify_mapped(at, bytes, thread)
        {
            return Ok(());
        }
        // If only the notification is refused, the bytes are not written again: others may have
        // written to them since.
        let mut is_written = false;
        self.with_bytes(at, bytes, thread, move |engine, region, bytes| {
            if !is_written {
                if let Some(thread) = thread {
                    // Checked first: nothing is written if this must not wait for the notification.
                    engine.make_room(region, bytes.len(), thread)?;
                }
                match region.window() {
                    Some(window) => window.write_from(at, bytes)?,
                    None => engine.write_block(region, at, bytes)?,
                }
                is_written = true;
            }
            match announcement {
                Some((thread, len)) => engine.announce(region, at, len, thread),
                None => Ok(()),
            }
        })
    }

    /// Runs an operation that writes bytes of the caller, and notifies the thread `notify` of the owner.
    #[track_caller]
    fn with_bytes(
        &self,
        at: usize,
        bytes: &[u8],
        notify: Option<u32>,
        mut operation: impl FnMut(&Engine, &RemoteRegion, &[u8]) -> Result<(), OpError> + Send + 'static,
    ) -> Result<(), SegmentError> {
        let span = Span { at, len: bytes.len(), needs: Rights::WRITE };
        if let Some(engine) = attached(&self.shared) {
            self.check_room(&engine, bytes.len(), notify)?;
            return self.with_engine(span, |engine, region| operation(engine, region, bytes));
        }
        let (segment, bytes) = (self.clone(), bytes.to_vec());
        run(&self.shared, move |_| {
            segment.with_engine(span, |engine, region| operation(engine, region, &bytes))
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_no_notification_can_carry_is_refused() {
        let max = u32::MAX as usize;
        assert_eq!(notified_len(max).expect("the largest"), u32::MAX);
        let refused = notified_len(max + 1).expect_err("it would arrive as another length");
        assert!(
            matches!(refused, SegmentError::TooLarge { len, max: m } if (len, m) == (max + 1, max))
        );
        assert_eq!(
            refused.to_string(),
            "4294967296 bytes exceed the 4294967295 bytes of one operation: use write_block or \
             read_block; split a block with a notification"
        );
    }
}
