//! [`RemoteMap`]: a map of another host, or of this one, that was opened.

use std::fmt;
use std::marker::PhantomData;

use crate::error::SegmentError;
use crate::map::layout::{EMPTY, Header, LIVE, Plain, Slot, home, place, slots_in};
use crate::remote::RemoteSegment;

/// The result of [`RemoteMap::probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed<V> {
    /// The key has this value.
    Found(V),
    /// The key has no value.
    Absent,
    /// All slots that were read have other keys: read more slots, or ask the owner.
    Unknown,
}

/// A [`RecordMap`](crate::RecordMap) that was opened; its owner runs no instruction for lookups.
/// Clones share the segment.
///
/// # What a lookup sees
/// 1. A value that the key had at some moment of the lookup, never a mixture of two; or `None`, if at
///    some moment of the lookup the key had no value.
/// 2. Every write that happened before a message that the caller has received from the owner: the
///    reply to a delegated call, or a notification.
pub struct RemoteMap<K, V> {
    segment: RemoteSegment,
    slots: usize,
    _entry: PhantomData<fn() -> (K, V)>,
}

impl<K: Plain, V: Plain> RemoteMap<K, V> {
    /// The map in a segment.
    ///
    /// # Errors
    /// [`SegmentError::OtherKind`] if the segment contains no map, or one with keys or values of
    /// other sizes; as [`RemoteRecord::read`](crate::RemoteRecord::read).
    #[track_caller]
    pub fn of(segment: RemoteSegment) -> Result<Self, SegmentError> {
        let slots = slots_in::<K, V>(segment.len());
        let expected = Header::of::<K, V>(slots);
        let is_map = slots > 0
            && segment
                .record_at_byte::<Header>(0)?
                .read()?
                .is_some_and(|(_, header)| header == expected);
        if !is_map {
            let (name, host) = (*segment.name(), segment.owner());
            let expected = "map with keys and values of these sizes".into();
            return Err(SegmentError::OtherKind { name, host, expected });
        }
        Ok(Self { segment, slots, _entry: PhantomData })
    }

    /// The value of a key. It reads the key's home slot, which answers most lookups, and then the
    /// following ones.
    ///
    /// # Errors
    /// As [`RemoteRecord::read`](crate::RemoteRecord::read).
    #[inline]
    #[track_caller]
    pub fn get(&self, key: &K) -> Result<Option<V>, SegmentError> {
        Ok(match self.probe(key, self.slots)? {
            Probed::Found(value) => Some(value),
            // All slots were read, and each had another key at that time.
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
            let found = self.segment.record_at_byte::<Slot<K, V>>(place::<K, V>(slot))?.read()?;
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
