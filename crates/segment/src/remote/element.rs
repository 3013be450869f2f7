//! [`RemoteElement`]: a value of plain data at an offset in a segment.

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::SegmentError;
use crate::remote::segment::RemoteSegment;

/// A `T` at an offset in a [`RemoteSegment`]. `T` is plain data: every pattern of its bytes is a
/// value, and it has no padding; `zerocopy`'s derives check that.
///
/// ```
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(FromBytes, IntoBytes, Immutable, Debug, PartialEq)]
/// #[repr(C)]
/// struct Quote {
///     bid: u64,
///     ask: u64,
/// }
///
/// # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
/// # let segments = gossamer_segment::Segments::new(hosts[0].clone());
/// # let _attached = segments.attach(0)?;
/// # let _segment = segments.builder("quotes").len(4096).export()?;
/// let quotes = segments.open("quotes")?;
/// quotes.at::<Quote>(7).write(&Quote { bid: 99, ask: 101 })?;
/// assert_eq!(quotes.at::<Quote>(7).read()?.ask, 101);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A read of a value of more than a word can be torn; one of a [`Record`](crate::Record) cannot.
#[derive(Clone, Copy)]
pub struct RemoteElement<'a, T> {
    segment: &'a RemoteSegment,
    at: usize,
    _value: PhantomData<fn() -> T>,
}

impl<'a, T> RemoteElement<'a, T> {
    #[inline(always)]
    pub(super) fn new(segment: &'a RemoteSegment, at: usize) -> Self {
        Self { segment, at, _value: PhantomData }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn segment(&self) -> &'a RemoteSegment {
        self.segment
    }

    /// Its first byte in the segment.
    pub fn offset(&self) -> usize {
        self.at
    }

    #[inline(always)]
    fn check_alignment(&self) -> Result<(), SegmentError> {
        if self.at.is_multiple_of(align_of::<T>()) { Ok(()) } else { Err(self.misaligned()) }
    }

    #[cold]
    fn misaligned(&self) -> SegmentError {
        let (segment, at, align) = (self.segment.label(), self.at, align_of::<T>());
        SegmentError::Misaligned { segment, at, align }
    }
}

impl<T: FromBytes + IntoBytes> RemoteElement<'_, T> {
    /// Reads it.
    ///
    /// # Errors
    /// As [`RemoteSegment::read`], and [`SegmentError::Misaligned`].
    #[inline(always)]
    #[track_caller]
    pub fn read(&self) -> Result<T, SegmentError> {
        if size_of::<T>() == size_of::<u64>()
            && let Some(word) = self.segment.load_word(self.at)
            && let Ok(value) = T::read_from_bytes(&word.to_ne_bytes())
        {
            return Ok(value);
        }
        self.read_any()
    }

    // A separate function, so that callers of `read` keep the word in a register.
    #[inline(never)]
    #[track_caller]
    fn read_any(&self) -> Result<T, SegmentError> {
        self.check_alignment()?;
        let mut value = T::new_zeroed();
        self.segment.read(self.at, value.as_mut_bytes())?;
        Ok(value)
    }
}

impl<T: IntoBytes + Immutable> RemoteElement<'_, T> {
    /// Writes it.
    ///
    /// # Errors
    /// As [`RemoteSegment::write`], and [`SegmentError::Misaligned`].
    #[inline(always)]
    #[track_caller]
    pub fn write(&self, value: &T) -> Result<(), SegmentError> {
        if let Ok(word) = <[u8; 8]>::try_from(value.as_bytes())
            && self.segment.store_word(self.at, u64::from_ne_bytes(word))
        {
            return Ok(());
        }
        self.write_any(value)
    }

    #[inline(never)]
    #[track_caller]
    fn write_any(&self, value: &T) -> Result<(), SegmentError> {
        self.check_alignment()?;
        self.segment.write(self.at, value.as_bytes())
    }

    /// As [`write`](Self::write), and notifies the owner.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    #[track_caller]
    pub fn write_notify(&self, value: &T) -> Result<(), SegmentError> {
        self.check_alignment()?;
        self.segment.write_notify(self.at, value.as_bytes())
    }
}
