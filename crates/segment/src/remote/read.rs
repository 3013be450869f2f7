//! Reading a segment that was opened: by a checked copy where its memory is mapped and the calling thread
//! is attached, otherwise over a lane.

use transport_api::Rights;

use crate::engine::{is_attached, run};
use crate::error::SegmentError;
use crate::remote::segment::RemoteSegment;
use crate::remote::write::MAX_OPERATION;
use crate::span::Span;

impl RemoteSegment {
    /// Fills `out` with the bytes at byte `at`. A fiber that has to wait parks. Nothing writes to
    /// `out` after this has returned, or the fiber was unwound.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`], [`SegmentError::Rights`], [`SegmentError::TooLarge`] above
    /// [`MAX_OPERATION`], [`SegmentError::Revoked`], [`SegmentError::PeerLost`].
    #[inline(always)]
    #[track_caller]
    pub fn read(&self, at: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        // As in `write`: a word, whose length is a constant in most callers, costs a few instructions.
        if let Ok(out) = <&mut [u8; 8]>::try_from(&mut *out)
            && let Some(word) = self.load_word(at)
        {
            *out = word.to_ne_bytes();
            return Ok(());
        }
        self.read_bytes(at, out)
    }

    #[inline(never)]
    #[track_caller]
    fn read_bytes(&self, at: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        if let Some(window) = self.mapped()
            && out.len() <= MAX_OPERATION
            && window.read_into(at, out).is_ok()
        {
            return Ok(());
        }
        self.read_over_lane(at, out)
    }

    /// Fills `out`, of any length, with the bytes at byte `at`, several pieces at a time.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for [`SegmentError::TooLarge`].
    #[track_caller]
    pub fn read_block(&self, at: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        if let Some(window) = self.mapped()
            && window.read_into(at, out).is_ok()
        {
            return Ok(());
        }
        self.read_block_over_lane(at, out)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_over_lane(&self, at: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        if out.len() > MAX_OPERATION {
            return Err(SegmentError::TooLarge { len: out.len(), max: MAX_OPERATION });
        }
        self.read_block_over_lane(at, out)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_block_over_lane(&self, at: usize, out: &mut [u8]) -> Result<(), SegmentError> {
        if is_attached(&self.shared) {
            let span = Span { at, len: out.len(), needs: Rights::READ };
            return self.with_engine(span, |engine, region| match region.window() {
                Some(window) => window.read_into(at, out),
                None => engine.read_block(region, at, out),
            });
        }
        // Another thread reads, into memory of its own.
        let (segment, len) = (self.clone(), out.len());
        let bytes = run(&self.shared, move |_| {
            let mut bytes = vec![0; len];
            segment.read_block(at, &mut bytes)?;
            Ok(bytes)
        })?;
        out.copy_from_slice(&bytes);
        Ok(())
    }
}
