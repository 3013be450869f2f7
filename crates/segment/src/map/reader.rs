//! [`RemoteMap`]: a map of another host, or of this one, that was opened.

use std::fmt;
use std::marker::PhantomData;

use crate::error::SegmentError;
use crate::map::layout::{EMPTY, Header, LIVE, Plain, Slot, home, place, slots_in};
use crate::remote::RemoteSegment;

/// How a lookup ended that may read so many slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed<V> {
    /// The key has this value.
    Found(V),
    /// It has none.
    Absent,
    /// Other keys are in all slots that were read: read more of them, or ask the owner.
    Unknown,
}

/// A [`RecordMap`](crate::RecordMap) that was opened; its owner runs no instruction for lookups.
/// Clones are the same.
///
/// A lookup gives a value that the key had at some moment of the lookup, and one that is at least as
/// new as what the caller knows of: see [the module](crate::map).
pub struct RemoteMap<K, V> {
    segment: RemoteSegment,
    slots: usize,
    _entry: PhantomData<fn() -> (K, V)>,
}

impl<K: Plain, V: Plain> RemoteMap<K, V> {
    /// The map in a segment.
    ///
    /// # Errors
    /// [`SegmentError::OtherKind`] if it is none, or one with keys or values of other sizes; as
    /// [`RemoteSegment::record_at`].
    #[track_caller]
    pub fn of(segment: RemoteSegment) -> Result<Self, SegmentError> {
        let slots = slots_in::<K, V>(segment.len());
        let expected = Header::of::<K, V>(slots);
        let is_map = slots > 0
            && segment
                .record_at::<Header>(0)?
                .read()?
                .is_some_and(|(_, header)| header == expected);
        if !is_map {
            let (name, host) = (*segment.name(), segment.owner());
            let expected = "map with keys and values of these sizes";
            return Err(SegmentError::OtherKind { name, host, expected });
        }
        Ok(Self { segment, slots, _entry: PhantomData })
    }

    /// The value of a key. It reads the slot where the search for the key begins, which answers most
    /// lookups, and then the next ones.
    ///
    /// # Errors
    /// As [`RemoteSegment::record_at`].
    #[inline]
    #[track_caller]
    pub fn get(&self, key: &K) -> Result<Option<V>, SegmentError> {
        Ok(match self.probe(key, self.slots)? {
            Probed::Found(value) => Some(value),
            // It has read all slots, in each of which there was another key at that time.
            Probed::Absent | Probed::Unknown => None,
        })
    }

    /// As [`get`](Self::get), but it reads at most `slots` slots.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    #[inline]
    #[track_caller]
    pub fn probe(&self, key: &K, slots: usize) -> Result<Probed<V>, SegmentError> {
        let home = home(key, self.slots);
        for passed in 0..slots.min(self.slots) {
            let slot = (home + passed) % self.slots;
            let found = self.segment.record_at::<Slot<K, V>>(place::<K, V>(slot))?.read()?;
            match found.map(|(_, Slot { state, key, value })| (state, key, value)) {
                None | Some((EMPTY, ..)) => return Ok(Probed::Absent),
                Some((LIVE, found, value)) if found.as_bytes() == key.as_bytes() => {
                    return Ok(Probed::Found(value));
                }
                Some(_) => {}
            }
        }
        Ok(Probed::Unknown)
    }

    /// The segment that it is in.
    pub fn segment(&self) -> &RemoteSegment {
        &self.segment
    }
}

impl<K, V> Clone for RemoteMap<K, V> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), slots: self.slots, _entry: PhantomData }
    }
}

impl<K, V> fmt::Debug for RemoteMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteMap")
            .field("name", &self.segment.name())
            .field("owner", &self.segment.owner())
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}
