//! [`RecordMap`]: the owner's side of a map in a segment.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use primitive::sync::Ordering;
use thiserror::Error;
use transport_api::Access;

use crate::error::SegmentError;
use crate::local::Segment;
use crate::map::layout::{
    EMPTY, Header, LIVE, Plain, REMOVED, Slot, home, place, slots_for, value_place,
};
use crate::record::Record;
use crate::segments::Segments;
use crate::table::{Notify, Places};

/// The map is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the map is full: it has {capacity} entries; remove one, or export a map of a larger capacity"
)]
pub struct MapFull {
    /// The most entries that it can have.
    pub capacity: usize,
}

/// A map from `K` to `V`, of plain data, in a segment that every host of the rack may read, as a
/// [`RemoteMap`](crate::RemoteMap). Only this value writes it.
///
/// ```
/// use gossamer_segment::{RecordMap, RemoteMap};
///
/// # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
/// # let segments = gossamer_segment::Segments::new(hosts[0].clone());
/// # let _attached = segments.attach(0)?;
/// let mut ages = RecordMap::<u64, [u32; 2]>::export(&segments, "ages", 100)?;
/// ages.put(&7, &[36, 4])?;
///
/// // Any thread of any host:
/// let there = RemoteMap::<u64, [u32; 2]>::of(segments.open("ages")?)?;
/// assert_eq!(there.get(&7)?, Some([36, 4]));
///
/// assert!(ages.remove(&7));
/// assert_eq!(there.get(&7)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping it withdraws the name and revokes the segment.
pub struct RecordMap<K, V> {
    segment: Segment,
    places: Places,
    /// The slot of each entry, so that the owner need not search exported memory.
    index: HashMap<Key<K>, usize>,
    capacity: usize,
    _value: PhantomData<fn(V)>,
}

/// A key that is compared by its bytes.
struct Key<K>(K);

impl<K: Plain> PartialEq for Key<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes() == other.0.as_bytes()
    }
}

impl<K: Plain> Eq for Key<K> {}

impl<K: Plain> Hash for Key<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0.as_bytes());
    }
}

impl<K: Plain, V: Plain> RecordMap<K, V> {
    /// Exports an empty map for up to `capacity` entries as the segment `name`, which all hosts may
    /// read and none may write.
    ///
    /// It allocates twice the memory of `capacity` entries, each of which has 24 bytes in addition to
    /// its key and value.
    ///
    /// # Errors
    /// As [`SegmentBuilder::export`](crate::SegmentBuilder::export); [`SegmentError::MapTooLarge`] if `capacity`
    /// entries exceed the address space.
    #[track_caller]
    pub fn export(segments: &Segments, name: &str, capacity: usize) -> Result<Self, SegmentError> {
        let slots = slots_for::<K, V>(capacity)?;
        let segment = segments
            .builder(name)
            .len(place::<K, V>(slots))
            .access(Access::read())
            .notify(Notify::Never)
            .export()?;
        Record::encode_into(segment.memory(), 0, &Header::of::<K, V>(slots), 1);
        let places = Places::new(slots);
        Ok(Self { segment, places, index: HashMap::new(), capacity, _value: PhantomData })
    }

    /// Inserts or replaces the value of `key`. A concurrent lookup finds the old or the new one.
    ///
    /// # Errors
    /// [`MapFull`] if the key is new and the map has [`capacity`](Self::capacity) entries.
    pub fn put(&mut self, key: &K, value: &V) -> Result<(), MapFull> {
        let slot = match self.index.get(&Key(*key)) {
            Some(slot) => *slot,
            None => {
                let full = MapFull { capacity: self.capacity };
                if self.index.len() >= self.capacity {
                    return Err(full);
                }
                let slot = self.places.take(home(key, self.places.len())).ok_or(full)?;
                self.index.insert(Key(*key), slot);
                slot
            }
        };
        self.write(slot, &Slot { state: LIVE, key: *key, value: *value });
        Ok(())
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        let slot = *self.index.get(&Key(*key))?;
        let mut value = V::new_zeroed();
        self.segment.memory().read_words(value_place::<K, V>(slot), value.as_mut_bytes());
        Some(value)
    }

    /// Removes a key; returns whether it had a value.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some(slot) = self.index.remove(&Key(*key)) else { return false };
        self.places.vacate(slot);
        // Before its path: as long as it can be found, no lookup may end in front of it.
        let state = if self.places.is_passed(slot) { REMOVED } else { EMPTY };
        self.write_without_entry(slot, state);
        for passed in self.places.forget_path(home(key, self.places.len()), slot) {
            self.write_without_entry(passed, EMPTY);
        }
        true
    }

    fn write_without_entry(&self, slot: usize, state: u64) {
        self.write(slot, &Slot { state, key: K::new_zeroed(), value: V::new_zeroed() });
    }

    /// Writes the content of a slot, with a version above the last.
    fn write(&self, slot: usize, content: &Slot<K, V>) {
        let (memory, at) = (self.segment.memory(), place::<K, V>(slot));
        let version = memory.load(at, Ordering::Relaxed).wrapping_add(1).max(1);
        Record::encode_into(memory, at, content, version);
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The most entries that it can have.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The segment that it is in.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }
}

impl<K, V> fmt::Debug for RecordMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordMap")
            .field("name", &self.segment.name())
            .field("len", &self.index.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
