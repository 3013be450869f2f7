//! Operations on one word of a segment that was opened, which return its old value.

use transport_api::{OpError, Rights};

use crate::engine::{Atomic, run};
use crate::error::SegmentError;
use crate::remote::segment::RemoteSegment;
use crate::span::Span;

impl RemoteSegment {
    /// If the word at byte `at` is `expected`, makes it `new`, atomically. Returns the old value,
    /// which is `expected` if it did.
    ///
    /// It waits where memory is not mapped, and over RDMA in a rack of several hosts for the owner, too:
    /// its device's atomics are the only ones that are atomic with those of others.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`SegmentError::Misaligned`] if `at` is not a multiple of eight.
    ///
    /// # Panics
    /// If it would have to wait where that is impossible, before anything is done.
    #[track_caller]
    pub fn compare_swap(&self, at: usize, expected: u64, new: u64) -> Result<u64, SegmentError> {
        if self.is_silent()
            && let Some(window) = self.mapped_atomics()
            && let Ok(old) = window.compare_swap(at, expected, new)
        {
            return Ok(old);
        }
        self.atomic_over_lane(at, Atomic::CompareSwap { expected, new }, false)
    }

    /// As [`compare_swap`](Self::compare_swap), and notifies the owner of the word, whether or not
    /// it was swapped. The segment must allow [`Rights::WRITE`], too. An operation that has taken effect
    /// notifies once, also if the owner changes the access meanwhile; unless it revokes the segment.
    ///
    /// # Errors
    /// As [`compare_swap`](Self::compare_swap); [`SegmentError::WouldWait`], before anything is
    /// done, if too many notifications are in flight and the caller cannot wait.
    #[track_caller]
    pub fn compare_swap_notify(
        &self,
        at: usize,
        expected: u64,
        new: u64,
    ) -> Result<u64, SegmentError> {
        self.atomic_over_lane(at, Atomic::CompareSwap { expected, new }, true)
    }

    /// Adds `addend` (wrapping) to the word at byte `at`, atomically. Returns the old value. It waits where
    /// [`compare_swap`](Self::compare_swap) does.
    ///
    /// # Errors
    /// As [`compare_swap`](Self::compare_swap).
    ///
    /// # Panics
    /// As [`compare_swap`](Self::compare_swap).
    #[doc(alias = "AtomicU64")]
    #[track_caller]
    pub fn fetch_add(&self, at: usize, addend: u64) -> Result<u64, SegmentError> {
        if self.is_silent()
            && let Some(window) = self.mapped_atomics()
            && let Ok(old) = window.fetch_add(at, addend)
        {
            return Ok(old);
        }
        self.atomic_over_lane(at, Atomic::FetchAdd { addend }, false)
    }

    /// As [`fetch_add`](Self::fetch_add), and notifies the owner of the word. The segment must allow
    /// [`Rights::WRITE`], too.
    ///
    /// # Errors
    /// As [`compare_swap_notify`](Self::compare_swap_notify).
    #[track_caller]
    pub fn fetch_add_notify(&self, at: usize, addend: u64) -> Result<u64, SegmentError> {
        self.atomic_over_lane(at, Atomic::FetchAdd { addend }, true)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn atomic_over_lane(
        &self,
        at: usize,
        atomic: Atomic,
        is_notify_requested: bool,
    ) -> Result<u64, SegmentError> {
        let thread = self.thread_to_notify(is_notify_requested);
        let needs = if thread.is_some() { Rights::ATOMIC | Rights::WRITE } else { Rights::ATOMIC };
        let span = Span { at, len: size_of::<u64>(), needs };
        let segment = self.clone();
        run(&self.shared, move |engine| {
            if thread.is_some() {
                segment.check_room(engine, 0, thread)?;
            }
            segment.with_engine(span, |engine, region| {
                if !at.is_multiple_of(8) {
                    return Err(OpError::Misaligned(at));
                }
                // Checked first: a notification must not be refused after the word was changed.
                region.check(span.at, span.len, needs)?;
                if let Some(thread) = thread {
                    engine.make_room(region, 0, thread)?;
                }
                let old = engine.atomic(region, at, atomic)?;
                if let Some(thread) = thread {
                    // The operation has taken effect: only an owner that is gone gets no notification.
                    let _ = engine.notify(region, span.at, span.len, thread);
                }
                Ok(old)
            })
        })
    }
}
