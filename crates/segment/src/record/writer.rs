//! [`RecordWriter`]: the one writer of a record, at its owner.

use std::marker::PhantomData;

use primitive::SharedBytes;
use primitive::sync::Ordering;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::layout::place;
use super::{Record, Torn};

/// The one writer of a record in memory of this process, or in memory that is mapped.
///
/// Nothing keeps a second one from being made. If two write at the same time, readers get a value
/// of one of them or [`Torn`], and the record may stay torn until the next write.
///
/// ```
/// use gossamer_segment::{Record, RecordWriter};
/// use primitive::SharedBytes;
/// let memory = SharedBytes::heap(Record::<[u64; 4]>::BYTES);
/// let mut writer = RecordWriter::<[u64; 4]>::new(memory.clone(), 0);
/// assert_eq!(writer.write(&[1; 4]), 1);
/// assert_eq!(writer.write(&[2; 4]), 2);
/// assert_eq!(writer.read(), Ok(Some((2, [2; 4]))));
/// drop(writer);
/// let mut next = RecordWriter::<[u64; 4]>::new(memory.clone(), 0);
/// assert_eq!(next.write(&[3; 4]), 3, "versions go on");
/// ```
#[derive(Debug)]
pub struct RecordWriter<T> {
    memory: SharedBytes,
    at: usize,
    /// The last version that was written.
    version: u64,
    _value: PhantomData<fn(T)>,
}

impl<T: FromBytes + IntoBytes + Immutable> RecordWriter<T> {
    /// The writer of the record at byte `at` of `memory`. Versions continue from the one that is
    /// there, even if its writer died in the middle. Nothing is written yet: fresh memory is a
    /// record that was never written.
    ///
    /// # Panics
    /// If the record is not inside `memory`, or `at` is no multiple of 8.
    pub fn new(memory: SharedBytes, at: usize) -> Self {
        place(&memory, at, Record::<T>::BYTES);
        let version = memory.load(at, Ordering::Relaxed);
        Self { memory, at, version, _value: PhantomData }
    }

    /// Writes `value`, and returns its version. It never waits: readers that are in the middle try
    /// again. A reader that gets this version sees what this thread did before.
    #[inline]
    pub fn write(&mut self, value: &T) -> u64 {
        // A peer may have written any version here before; 0 is taken.
        self.version = self.version.wrapping_add(1).max(1);
        Record::<T>::encode_into(&self.memory, self.at, value, self.version);
        self.version
    }

    /// The version and value in memory; `None` if it was never written.
    ///
    /// # Errors
    /// [`Torn`] if an earlier writer died in the middle of a write, or there is another writer.
    #[inline]
    pub fn read(&self) -> Result<Option<(u64, T)>, Torn> {
        Record::read_mapped(&self.memory, self.at)
    }

    /// The last version that was written; 0 if the record was never written.
    pub fn version(&self) -> u64 {
        self.version
    }
}
