//! [`Target`]: the memory of a receiver, as a sender writes to it: [`To`] by messages, [`Mapped`] by stores.

use std::ops::Range;

use gossamer_segment::{MAX_OPERATION, RemoteSegment, SegmentError};
use primitive::SharedBytes;
use transport_api::{OpError, Window};

use crate::layout::WORD;

/// Memory of the receiver, as a sender writes to it. Writes and signals of one caller take effect in
/// their order.
pub trait Target {
    /// Why nothing was written.
    type Error;

    /// Writes `bytes`, any number, at byte `at`, in no order among themselves. The caller writes at byte
    /// `next` afterwards, whose line this may prefetch.
    ///
    /// # Errors
    /// If they cannot be written.
    fn write(&self, at: usize, bytes: &[u8], next: usize) -> Result<(), Self::Error>;

    /// Stores words from byte `at` on, the first one last: a receiver that sees that sees the others, and
    /// every earlier write.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn signal<const N: usize>(&self, at: usize, words: &[u64; N]) -> Result<(), Self::Error>;

    /// Prefetches the cache lines of `bytes` for writing, from `bytes.start` in steps of a line.
    #[inline(always)]
    fn prefetch(&self, _bytes: Range<usize>) {}

    /// Writes a whole frame, as [`write`](Self::write) does; `frame` must not change until this returns. It
    /// may also wake the receiver.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_frame(&self, at: usize, frame: &SharedBytes) -> Result<(), Self::Error> {
        let mut bytes = vec![0; frame.len()];
        frame.read_into(0, &mut bytes);
        self.write(at, &bytes, at)
    }

    /// As [`write_frame`](Self::write_frame), of `tag` and `parts`, one behind the other: a reader that sees
    /// the tag sees all of it.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_tagged(&self, at: usize, tag: u64, parts: &[&[u8]]) -> Result<(), Self::Error> {
        self.write(at + WORD, &parts.concat(), at)?;
        self.signal(at, &[tag])
    }
}

/// The memory of a mailbox, as a sender writes to it.
pub(crate) struct To<'a> {
    pub(crate) mailbox: &'a RemoteSegment,
    /// Whether a frame that is written at once notifies the receiver.
    pub(crate) notifies: bool,
}

impl Target for To<'_> {
    type Error = SegmentError;

    fn write(&self, at: usize, bytes: &[u8], _next: usize) -> Result<(), SegmentError> {
        if bytes.len() <= MAX_OPERATION {
            self.mailbox.write(at, bytes)
        } else {
            self.mailbox.write_block(at, bytes)
        }
    }

    fn signal<const N: usize>(&self, at: usize, words: &[u64; N]) -> Result<(), SegmentError> {
        let mut numbered = words.iter().enumerate().rev();
        numbered.try_for_each(|(number, word)| self.mailbox.signal(at + number * WORD, *word))
    }

    fn write_frame(&self, at: usize, frame: &SharedBytes) -> Result<(), SegmentError> {
        self.mailbox.write_memory(at, frame, self.notifies)
    }

    fn write_tagged(&self, at: usize, tag: u64, parts: &[&[u8]]) -> Result<(), SegmentError> {
        self.mailbox.write_tagged(at, tag, parts, self.notifies)
    }
}

/// The same memory where it is mapped, and the calling thread may store into it.
pub(crate) struct Mapped<'a>(pub(crate) &'a Window);

impl Target for Mapped<'_> {
    type Error = OpError;

    #[inline(always)]
    fn write(&self, at: usize, bytes: &[u8], next: usize) -> Result<(), OpError> {
        self.0.write_loose(at, bytes, next)
    }

    #[inline(always)]
    fn signal<const N: usize>(&self, at: usize, words: &[u64; N]) -> Result<(), OpError> {
        self.0.store_words_down(at, words)
    }

    #[inline(always)]
    fn prefetch(&self, bytes: Range<usize>) {
        self.0.prefetch_write(bytes);
    }
}
