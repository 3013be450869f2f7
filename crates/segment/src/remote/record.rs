//! Reading a [`Record`] of a segment that was opened.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::SegmentError;
use crate::record::Record;
use crate::remote::segment::RemoteSegment;
use crate::table::TORN_READS;

impl RemoteSegment {
    /// The version and value of the [`Record`] at byte `at`, which is never torn; `None` if it was
    /// never written. Where memory is not mapped, this is one READ, and another one for each that
    /// finds the record between two states.
    ///
    /// ```
    /// use gossamer_segment::{Record, RecordWriter};
    ///
    /// # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
    /// # let segments = gossamer_segment::Segments::new(hosts[0].clone());
    /// # let _attached = segments.attach(0)?;
    /// let owner = segments.builder("quotes").len(4096).export()?;
    /// let at = 3 * Record::<[u64; 4]>::BYTES;
    /// RecordWriter::<[u64; 4]>::new(owner.memory().clone(), at).write(&[70, 71, 72, 73]);
    ///
    /// let quotes = segments.open("quotes")?;
    /// assert_eq!(quotes.read_record::<[u64; 4]>(at)?, Some((1, [70, 71, 72, 73])));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`read_block`](Self::read_block); [`SegmentError::Misaligned`] if `at` is not a multiple of
    /// eight; [`SegmentError::Torn`] if no READ of many found it whole.
    #[inline]
    #[track_caller]
    pub fn read_record<T>(&self, at: usize) -> Result<Option<(u64, T)>, SegmentError>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        if at.is_multiple_of(8)
            && let Some(window) = self.mapped()
            && let Ok(read) = Record::<T>::read_window(window, at)
        {
            return read.map_err(|_| self.torn(at));
        }
        self.read_record_over_lane(at)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_record_over_lane<T>(&self, at: usize) -> Result<Option<(u64, T)>, SegmentError>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        if !at.is_multiple_of(8) {
            return Err(SegmentError::Misaligned { segment: self.label(), at, align: 8 });
        }
        let mut bytes = vec![0; Record::<T>::BYTES];
        for _ in 0..TORN_READS {
            self.read_block(at, &mut bytes)?;
            if let Ok(found) = Record::decode_bytes(&bytes) {
                return Ok(found);
            }
        }
        Err(self.torn(at))
    }

    #[cold]
    fn torn(&self, at: usize) -> SegmentError {
        SegmentError::Torn { segment: self.label(), at }
    }
}
