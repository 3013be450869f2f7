//! [`RemoteRecord`]: a record in a segment, read by one READ and never torn.

use std::fmt;
use std::marker::PhantomData;

use transport_api::Rights;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::engine::{is_attached, run};
use crate::error::SegmentError;
use crate::record::Record;
use crate::remote::MAX_OPERATION;
use crate::remote::segment::RemoteSegment;

/// How often a record that is not mapped is read before it counts as torn. Its writer needs less than
/// a microsecond, and a READ takes longer.
const READS: u32 = 256;

/// A record of a `T` in a [`RemoteSegment`]: [`RemoteSegment::record`].
///
/// ```
/// use gossamer_segment::Record;
///
/// # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
/// # let segments = gossamer_segment::Segments::new(hosts[0].clone());
/// # let _attached = segments.attach(0)?;
/// type Quote = [u64; 3]; // bid, ask, volume
///
/// let owner = segments.builder("quotes").len(100 * Record::<Quote>::BYTES).export()?;
/// let mut writer = owner.record_writer::<Quote>(7)?;
/// writer.write(&[99, 101, 5]);
///
/// // Any thread of any host:
/// let quotes = segments.open("quotes")?;
/// assert_eq!(quotes.record::<Quote>(7).read()?, Some((1, [99, 101, 5])));
/// assert_eq!(quotes.record::<Quote>(8).read()?, None, "never written");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RemoteRecord<'a, T> {
    segment: &'a RemoteSegment,
    at: usize,
    _value: PhantomData<fn() -> T>,
}

/// Records, which are never torn.
impl RemoteSegment {
    /// Record `index` of the segment as an array of records of `T`.
    #[inline]
    pub fn record<T>(&self, index: usize) -> RemoteRecord<'_, T> {
        self.record_at(index.saturating_mul(Record::<T>::BYTES))
    }

    /// The record at byte `offset`, which must be a multiple of eight.
    #[inline]
    pub fn record_at<T>(&self, offset: usize) -> RemoteRecord<'_, T> {
        RemoteRecord { segment: self, at: offset, _value: PhantomData }
    }
}

impl<T> RemoteRecord<'_, T> {
    /// Its first byte in the segment.
    pub fn offset(&self) -> usize {
        self.at
    }
}

impl<T: FromBytes + IntoBytes + Immutable + Send + 'static> RemoteRecord<'_, T> {
    /// Reads it: its version and its value; `None` if it was never written.
    ///
    /// # Errors
    /// As [`RemoteSegment::read`]; [`SegmentError::Misaligned`]; [`SegmentError::Torn`] if its writer
    /// writes without pause or has died in the middle.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> Result<Option<(u64, T)>, SegmentError> {
        if let Some(window) = self.segment.mapped()
            && let Ok(Ok(found)) = Record::<T>::read_window(window, self.at)
        {
            return Ok(found);
        }
        self.read_over_lane()
    }

    #[cold]
    #[track_caller]
    fn read_over_lane(&self) -> Result<Option<(u64, T)>, SegmentError> {
        let (segment, at) = (self.segment, self.at);
        self.check()?;
        if !is_attached(segment.shared()) {
            let there = segment.clone();
            return run(segment.shared(), move |_| there.record_at::<T>(at).read());
        }
        let place = (at, Record::<T>::BYTES, Rights::READ);
        // One read of mapped memory is many attempts.
        for _ in 0..if segment.is_mapped() { 1 } else { READS } {
            let read = segment.with_engine(place, |engine, region| match region.window() {
                Some(window) => Record::<T>::read_window(window, at),
                None => {
                    let (read, copy) = engine.begin_read(region, at, Record::<T>::BYTES)?;
                    engine.wait(read)?;
                    Ok(Record::<T>::decode(&copy, 0))
                }
            });
            if let Ok(found) = read? {
                return Ok(found);
            }
        }
        Err(SegmentError::Torn { segment: segment.label(), at })
    }

    /// Writes it, by one WRITE. `version` is above that of the last write, and this is the only writer
    /// at the time; that the versions rise is what tells readers the writes apart.
    ///
    /// # Errors
    /// As [`RemoteSegment::write`]; [`SegmentError::Misaligned`].
    ///
    /// # Panics
    /// If `version` is zero, which says that a record was never written.
    #[track_caller]
    pub fn write(&self, value: &T, version: u64) -> Result<(), SegmentError> {
        self.check()?;
        let record = Record::<T>::encode(value, version);
        let mut bytes = vec![0; record.len()];
        record.read_into(0, &mut bytes);
        self.segment.write(self.at, &bytes)
    }

    fn check(&self) -> Result<(), SegmentError> {
        let (segment, at, len) = (self.segment, self.at, Record::<T>::BYTES);
        if !at.is_multiple_of(8) {
            return Err(SegmentError::Misaligned { segment: segment.label(), at, align: 8 });
        }
        if len > MAX_OPERATION {
            return Err(SegmentError::TooLarge { len, max: MAX_OPERATION });
        }
        Ok(())
    }
}

impl<T> fmt::Debug for RemoteRecord<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteRecord")
            .field("segment", self.segment)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
