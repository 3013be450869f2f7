//! [`Element`]: a value of plain data in a segment of this process, as its owner accesses it.

use std::marker::PhantomData;

use primitive::SharedBytes;
use primitive::sync::Ordering;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::SegmentError;
use crate::local::segment::Segment;
use crate::span::offset_of;

/// A `T` at an offset in a [`Segment`], for its owner; importers have
/// [`RemoteElement`](crate::RemoteElement), with the same methods. `T` is plain data: every pattern of
/// its bytes is a value, and it has no padding; `zerocopy`'s derives check that.
///
/// ```
/// # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
/// # let segments = gossamer_segment::Segments::new(hosts[0].clone());
/// # let _attached = segments.attach(0)?;
/// let owner = segments.builder("prices").len(4096).export()?;
/// owner.at::<u64>(3).write(&70)?;
/// assert_eq!(owner.at::<u64>(3).read()?, 70);
/// assert_eq!(owner.at_byte::<u64>(24).read()?, 70);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An aligned word is never torn. A larger value that a peer writes meanwhile can be; a
/// [`Record`](crate::Record) cannot.
#[derive(Clone, Copy)]
pub struct Element<'a, T> {
    segment: &'a Segment,
    at: usize,
    _value: PhantomData<fn() -> T>,
}

impl Segment {
    /// Element `index` of the segment as an array of `T`.
    #[inline(always)]
    pub fn at<T>(&self, index: usize) -> Element<'_, T> {
        Element::new(self, offset_of::<T>(index))
    }

    /// The `T` at byte `offset`, which must be a multiple of `T`'s alignment.
    #[inline(always)]
    pub fn at_byte<T>(&self, offset: usize) -> Element<'_, T> {
        Element::new(self, offset)
    }
}

impl<'a, T> Element<'a, T> {
    #[inline(always)]
    fn new(segment: &'a Segment, at: usize) -> Self {
        Self { segment, at, _value: PhantomData }
    }

    /// Its first byte in the segment.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The number of its word, if it is one.
    #[inline(always)]
    fn word(&self, memory: &SharedBytes) -> Option<usize> {
        let word = self.at / size_of::<u64>();
        let is_word = size_of::<T>() == size_of::<u64>() && self.at.is_multiple_of(8);
        (is_word && word < memory.words().len()).then_some(word)
    }

    #[inline(always)]
    fn check_alignment(&self) -> Result<(), SegmentError> {
        let align = align_of::<T>();
        if self.at.is_multiple_of(align) {
            Ok(())
        } else {
            Err(self.segment.misaligned(self.at, align))
        }
    }
}

impl<T: FromBytes + IntoBytes> Element<'_, T> {
    /// Reads it.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`], [`SegmentError::Misaligned`].
    #[inline(always)]
    pub fn read(&self) -> Result<T, SegmentError> {
        let memory = self.segment.memory();
        if let Some(word) = self.word(memory)
            && let word = memory.words().load(word, Ordering::Relaxed)
            && let Ok(value) = T::read_from_bytes(&word.to_ne_bytes())
        {
            return Ok(value);
        }
        self.read_any()
    }

    // A separate function, so that callers of `read` keep the word in a register.
    #[inline(never)]
    fn read_any(&self) -> Result<T, SegmentError> {
        self.check_alignment()?;
        let mut value = T::new_zeroed();
        self.segment.read(self.at, value.as_mut_bytes())?;
        Ok(value)
    }
}

impl<T: IntoBytes + Immutable> Element<'_, T> {
    /// Writes it.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`], [`SegmentError::Misaligned`].
    #[inline(always)]
    pub fn write(&self, value: &T) -> Result<(), SegmentError> {
        let memory = self.segment.memory();
        if let Some(place) = self.word(memory)
            && let Ok(word) = <[u8; 8]>::try_from(value.as_bytes())
        {
            // Behind every earlier write of this thread, as a write by an importer; free on x86.
            memory.words().store(place, u64::from_ne_bytes(word), Ordering::Release);
            return Ok(());
        }
        self.write_any(value)
    }

    #[inline(never)]
    fn write_any(&self, value: &T) -> Result<(), SegmentError> {
        self.check_alignment()?;
        self.segment.write(self.at, value.as_bytes())
    }
}
