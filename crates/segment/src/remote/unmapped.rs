//! Writes of layers above, nearly all of them where memory is not mapped: with a word that is seen last, without
//! a message of their own, or without a copy that their own memory makes unnecessary.

use primitive::SharedBytes;
use transport_api::Rights;

use crate::engine::{Engine, attached, run};
use crate::error::SegmentError;
use crate::remote::segment::RemoteSegment;
use crate::span::Span;

impl RemoteSegment {
    /// For layers above: writes `parts`, one behind the other, behind the word at byte `at`, in flight when
    /// this returns, and behind them stores `tag` as that word, as [`signal`](Self::signal) does; then
    /// notifies the owner, if that is requested and the segment takes it. One message where all of it fits
    /// into one.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    #[doc(hidden)]
    #[track_caller]
    pub fn write_tagged(
        &self,
        at: usize,
        tag: u64,
        parts: &[&[u8]],
        is_notify_requested: bool,
    ) -> Result<(), SegmentError> {
        let Some(engine) = attached(&self.shared) else {
            let (segment, bytes) = (self.clone(), parts.concat());
            let write =
                move |_: &Engine| segment.write_tagged(at, tag, &[&bytes], is_notify_requested);
            return run(&self.shared, write);
        };
        let thread = self.thread_to_notify(is_notify_requested);
        let len = parts.iter().map(|part| part.len()).sum::<usize>() + size_of::<u64>();
        self.check_room(&engine, len, thread)?;
        self.with_engine(Span { at, len, needs: Rights::WRITE }, |engine, region| {
            engine.write_tagged(region, (at, tag), parts, thread)
        })
    }

    /// For layers above: as [`signal`](Self::signal), but where memory is not mapped a word that is not urgent
    /// leaves with the next operation of this thread on a segment of the host, or when it polls. False, and
    /// nothing is stored, if that would have to wait for earlier writes.
    ///
    /// # Errors
    /// As [`signal`](Self::signal); [`SegmentError::Revoked`] or [`SegmentError::Rights`] also if the owner has
    /// only changed the access, because this does not wait for it, until an operation that waits has
    /// followed the change.
    #[doc(hidden)]
    #[track_caller]
    pub fn try_signal(&self, at: usize, word: u64, is_urgent: bool) -> Result<bool, SegmentError> {
        if self.store_word(at, word) {
            return Ok(true);
        }
        let Some(engine) = attached(&self.shared) else {
            let segment = self.clone();
            return run(&self.shared, move |_| segment.try_signal(at, word, is_urgent));
        };
        if !engine.has_room(self.owner(), size_of::<u64>(), None) {
            return Ok(false);
        }
        let span = Span { at, len: size_of::<u64>(), needs: Rights::WRITE };
        self.try_with_region(span, |region| match is_urgent {
            true => engine.signal(region, at, word),
            false => engine.signal_later(region, at, word),
        })
        .map(|()| true)
    }

    /// For layers above: whether a word of [`try_signal`](Self::try_signal) may still wait for the next
    /// operation or poll of this thread.
    #[doc(hidden)]
    #[track_caller]
    pub fn has_unsent(&self) -> bool {
        let host = self.owner();
        run(&self.shared, move |engine| Ok(engine.progress.is_unflushed(host))).unwrap_or(true)
    }

    /// For layers above, where memory is not mapped: writes any number of bytes at byte `at`, in flight when
    /// this returns, straight from `from`, which must not change until then. The first bytes go last, with a
    /// notification of the owner, if that is requested and the segment takes it.
    ///
    /// # Errors
    /// As [`write`](Self::write), but for [`SegmentError::TooLarge`].
    #[doc(hidden)]
    #[track_caller]
    pub fn write_memory(
        &self,
        at: usize,
        from: &SharedBytes,
        is_notify_requested: bool,
    ) -> Result<(), SegmentError> {
        let Some(engine) = attached(&self.shared) else {
            let (segment, from) = (self.clone(), from.clone());
            let write = move |_: &Engine| segment.write_memory(at, &from, is_notify_requested);
            return run(&self.shared, write);
        };
        let thread = self.thread_to_notify(is_notify_requested);
        self.check_room(&engine, from.len(), thread)?;
        self.with_engine(Span { at, len: from.len(), needs: Rights::WRITE }, |engine, region| {
            engine.write_memory(region, at, from, thread)
        })
    }
}
