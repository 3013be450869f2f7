//! [`RemoteRecord`]: a record ([`Record`]) at a place in a segment that was opened: read by one READ,
//! written by one WRITE, never torn.

use std::time::Duration;

use transport_api::{OpError, Rights};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::engine::attached;
use crate::error::SegmentError;
use crate::record::Record;
use crate::remote::segment::RemoteSegment;
use crate::remote::write::MAX_OPERATION;

/// The most READs of a record that is not mapped, if each is torn.
const ATTEMPTS: u32 = 200;

/// READs after which a reader pauses between two of them.
const EAGER: u32 = 20;

/// How long it pauses.
const PAUSE: Duration = Duration::from_micros(200);

/// A [`Record`] of one `T` in a segment that was opened. Any number of hosts read it; one writes it,
/// which is its owner ([`Segment::record`](crate::Segment::record)) or one other host.
///
/// ```
/// # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
/// # let segments = gossamer_segment::Segments::new(hosts[0].clone());
/// # let _attached = segments.attach(0)?;
/// let owner = segments.builder("rates").len(4096).export()?;
/// let mut writer = owner.record::<[u64; 5]>(2)?;
///
/// // Any thread of any host:
/// let rates = segments.open("rates")?;
/// let record = rates.record::<[u64; 5]>(2)?;
/// assert_eq!(record.read()?, None, "never written");
/// writer.write(&[1, 2, 3, 4, 5]);
/// assert_eq!(record.read()?, Some((1, [1, 2, 3, 4, 5])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RemoteRecord<'a, T> {
    segment: &'a RemoteSegment,
    at: usize,
    /// The version that this wrote last, or found when it began to write.
    version: Option<u64>,
    _value: std::marker::PhantomData<fn(T) -> T>,
}

impl RemoteSegment {
    /// Record `index` of the segment as an array of records of `T`.
    ///
    /// # Errors
    /// [`SegmentError::OutOfBounds`].
    #[inline]
    pub fn record<T>(&self, index: usize) -> Result<RemoteRecord<'_, T>, SegmentError> {
        self.record_at_byte(index.saturating_mul(Record::<T>::BYTES))
    }

    /// The record of a `T` at byte `at`, which has [`Record::BYTES`] bytes.
    ///
    /// # Errors
    /// [`SegmentError::Misaligned`] if `at` is not a multiple of eight, [`SegmentError::OutOfBounds`].
    #[inline]
    pub fn record_at_byte<T>(&self, at: usize) -> Result<RemoteRecord<'_, T>, SegmentError> {
        let place = (at, Record::<T>::BYTES, Rights::NONE);
        OpError::check(self.region.key(), (Rights::ALL, self.len()), place)
            .and_then(|()| if at.is_multiple_of(8) { Ok(()) } else { Err(OpError::Misaligned(at)) })
            .map_err(|error| self.refused(error))?;
        let _value = std::marker::PhantomData;
        Ok(RemoteRecord { segment: self, at, version: None, _value })
    }
}

impl<T> RemoteRecord<'_, T> {
    /// Its first byte in the segment.
    pub fn offset(&self) -> usize {
        self.at
    }
}

impl<T: FromBytes + IntoBytes + Immutable> RemoteRecord<'_, T> {
    /// The version and the value; `None` if it was never written. Where memory is not mapped, this is
    /// one READ, and another one if the record was written meanwhile. One reader that reads it twice
    /// never gets an older version the second time.
    ///
    /// # Errors
    /// As [`RemoteSegment::read`]; [`SegmentError::Torn`] if every attempt found it half written: its
    /// writer writes without pause, or has died.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> Result<Option<(u64, T)>, SegmentError> {
        if let Some(window) = self.segment.mapped()
            && let Ok(Ok(found)) = Record::read_window(window, self.at)
        {
            return Ok(found);
        }
        self.read_copies()
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn read_copies(&self) -> Result<Option<(u64, T)>, SegmentError> {
        let mut bytes = vec![0; Record::<T>::BYTES];
        for attempt in 0..ATTEMPTS {
            if attempt >= EAGER {
                self.pause();
            }
            self.segment.read_block(self.at, &mut bytes)?;
            // Torn: it was written meanwhile.
            if let Ok(found) = Record::decode_bytes(&bytes) {
                return Ok(found);
            }
        }
        Err(SegmentError::Torn { segment: self.segment.label(), at: self.at })
    }

    #[track_caller]
    fn pause(&self) {
        match attached(&self.segment.shared) {
            Some(engine) => engine.sleep(PAUSE),
            None => std::thread::sleep(PAUSE),
        }
    }

    /// Writes it, by one WRITE, and returns its version. It is on its way when this returns
    /// ([`RemoteSegment::fence`]). There must be no other writer, neither the owner nor another host:
    /// readers would never get a mixture, but find it torn, and versions would repeat. The first write
    /// reads which version is there, so that versions go on; this needs [`Rights::READ`].
    ///
    /// # Errors
    /// As [`RemoteSegment::write`].
    #[inline]
    #[track_caller]
    pub fn write(&mut self, value: &T) -> Result<u64, SegmentError> {
        let before = match self.version {
            Some(version) => version,
            None => self.segment.at_byte::<u64>(self.at).read()?,
        };
        // Any version may have been there; 0 is taken.
        let version = before.wrapping_add(1).max(1);
        self.write_version(value, version)?;
        self.version = Some(version);
        Ok(version)
    }

    #[inline]
    #[track_caller]
    fn write_version(&self, value: &T, version: u64) -> Result<(), SegmentError> {
        if self.segment.is_silent()
            && let Some(window) = self.segment.mapped()
            && Record::write_window(window, self.at, value, version).is_ok()
        {
            return Ok(());
        }
        self.write_copy(value, version)
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn write_copy(&self, value: &T, version: u64) -> Result<(), SegmentError> {
        let record = Record::encode(value, version);
        let mut bytes = vec![0; record.len()];
        record.read_into(0, &mut bytes);
        if bytes.len() <= MAX_OPERATION {
            self.segment.write(self.at, &bytes)
        } else {
            self.segment.write_block(self.at, &bytes)
        }
    }
}
