//! [`ShardedRecords`]: one map in a segment on every trustee of the rack.

use std::fmt;
use std::sync::{Arc, OnceLock};

use gossamer_segment::{
    Plain, Probed, RecordMap, RemoteMap, RemoteSegment, SegmentError, Segments,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trust_core::{Chain, Node, Trust, Trustee, local_trustee};

use super::bytes::Bytes;
use super::error::RecordsError;
use crate::hosts;
use crate::sharded::Sharded;

/// Slots that a GET by READ looks at before it asks the trustee: in a full shard, about three keys
/// in a hundred are further from their home slot.
const SLOTS_READ: usize = 4;

/// How a GET finds a value. Both give the same answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadMode {
    /// By one READ of the key's home slot, or loads where memory is mapped; the trustee runs no
    /// instruction for it. On a collision it reads up to three more slots, and then asks the trustee.
    #[default]
    OneSided,
    /// By asking the trustee, as [`Sharded`] does: one round trip, and the trustee's time.
    Delegated,
}

/// A map from `K` to `V`, of plain data, whose shards are spread over all trustees of the rack.
/// Changes are delegated to the shard's trustee, the only one that writes it; values are in a segment
/// of the trustee's host, which every host can read directly ([`ReadMode`]).
///
/// `K` and `V` are plain data, which zerocopy's derives check ([`Plain`]). Keys are compared by their
/// bytes. For other types there is [`Sharded`].
///
/// Clone it for other fibers, or send it as an argument; every host finds the same shard for a key.
///
/// ```
/// use gossamer::{Rack, ReadMode, ShardedRecords};
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Quote {
///     bid: u64,
///     ask: u64,
/// }
///
/// Rack::new().threads(2).run(|| {
///     // Up to 1000 records on each trustee.
///     let quotes = ShardedRecords::<[u8; 8], Quote>::new("quotes", 1000).unwrap();
///     quotes.put(b"GOSSAMER", &Quote { bid: 99, ask: 101 }).unwrap();
///
///     // On any host: by one READ, or by asking the trustee.
///     let quote = Some(Quote { bid: 99, ask: 101 });
///     assert_eq!(quotes.get(b"GOSSAMER").unwrap(), quote);
///     assert_eq!(quotes.get_by(b"GOSSAMER", ReadMode::Delegated).unwrap(), quote);
///
///     // What depends on the old value happens at the trustee, alone.
///     quotes.shard(b"GOSSAMER").apply(|shard| {
///         let old = shard.get(b"GOSSAMER").unwrap();
///         shard.put(b"GOSSAMER", &Quote { bid: old.bid + 1, ..old }).unwrap();
///     });
///     assert_eq!(quotes.get(b"GOSSAMER").unwrap().unwrap().bid, 100);
///     assert!(quotes.remove(b"GOSSAMER").unwrap());
/// })?;
/// # Ok::<(), gossamer::RackError>(())
/// ```
///
/// # What a GET sees
///
/// A value that the key had at some moment of the call, never a mixture of two; `None` only if the
/// key had no value at some moment of the call. Once a PUT or a removal has returned, every GET
/// that its caller begins, or a fiber that learns of it from the caller, sees it or a later one,
/// with both values of [`ReadMode`]: the trustee writes the record before it replies, and a READ that
/// starts after the reply finds what was written before. Two GETs of one fiber never go back to an
/// older value of the key.
///
/// # What it costs
///
/// A shard allocates twice the memory of its `capacity` when it is created. A PUT of a further key
/// fails with [`RecordsError::Full`]; keys are spread by their hash, so choose a capacity somewhat
/// above the average. Which way of reading is faster depends on the transport and on the load of the
/// trustee: measure both.
///
/// The shard of trustee `n` is the segment `NAME/n`, which a program without fibers can open as a
/// [`RemoteMap`].
pub struct ShardedRecords<K: 'static, V: 'static> {
    name: String,
    shards: Sharded<[u8], RecordMap<K, V>>,
    /// The shards as this process has opened them, each by the first READ.
    opened: Arc<[OnceLock<RemoteMap<K, V>>]>,
}

impl<K: Plain, V: Plain> ShardedRecords<K, V> {
    /// Has every trustee of the rack make a shard of up to `capacity` records. `name` begins the
    /// names of their segments.
    ///
    /// # Errors
    /// [`RecordsError::Make`] if the name is taken or invalid, or there is no memory;
    /// [`RecordsError::PeerLost`].
    ///
    /// # Panics
    /// Outside a fiber of a rack, and in delegated context.
    #[track_caller]
    pub fn new(name: &str, capacity: usize) -> Result<Self, RecordsError> {
        let mut shards = Vec::new();
        for trustee in hosts::trustees() {
            let make = |_: &Node, (name, capacity): (String, usize)| {
                make::<K, V>(&name, capacity).map_err(|error| Chain(&error).to_string())
            };
            let made = trustee.try_visit_node(make, (segment_name(name, trustee), capacity))?;
            let thread = trustee.thread();
            shards.push(made.map_err(|reason| RecordsError::Make { thread, reason })?);
        }
        Ok(Self::of_shards(name.to_owned(), Sharded::of_shards(shards)))
    }

    /// Makes `value` that of `key`, whether or not it had one, at the trustee.
    ///
    /// # Errors
    /// [`RecordsError::Full`], [`RecordsError::PeerLost`].
    ///
    /// # Panics
    /// As [`Trust::try_apply_with`].
    #[track_caller]
    pub fn put(&self, key: &K, value: &V) -> Result<(), RecordsError> {
        let shard = self.shard(key);
        let put = |shard: &mut RecordMap<K, V>, (key, value): (Bytes<K>, Bytes<V>)| {
            shard.put(&key.0, &value.0).map_err(|full| full.capacity)
        };
        let done = shard.try_apply_with(put, (Bytes(*key), Bytes(*value)))?;
        done.map_err(|capacity| RecordsError::Full { thread: shard.trustee().thread(), capacity })
    }

    /// Removes a key, at the trustee; whether it had a value.
    ///
    /// # Errors
    /// [`RecordsError::PeerLost`].
    ///
    /// # Panics
    /// As [`Trust::try_apply_with`].
    #[track_caller]
    pub fn remove(&self, key: &K) -> Result<bool, RecordsError> {
        let remove = |shard: &mut RecordMap<K, V>, key: Bytes<K>| shard.remove(&key.0);
        Ok(self.shard(key).try_apply_with(remove, Bytes(*key))?)
    }

    /// The value of a key, by READ.
    ///
    /// # Errors
    /// As [`get_by`](Self::get_by).
    ///
    /// # Panics
    /// As [`get_by`](Self::get_by).
    #[inline]
    #[track_caller]
    pub fn get(&self, key: &K) -> Result<Option<V>, RecordsError> {
        self.get_by(key, ReadMode::OneSided)
    }

    /// The value of a key, by READ or by delegation.
    ///
    /// # Errors
    /// [`RecordsError::PeerLost`].
    ///
    /// # Panics
    /// As [`Trust::try_apply_with`].
    #[inline]
    #[track_caller]
    pub fn get_by(&self, key: &K, mode: ReadMode) -> Result<Option<V>, RecordsError> {
        if mode == ReadMode::OneSided {
            let shard = self.shards.index_of(key.as_bytes());
            let map = match self.opened[shard].get() {
                Some(map) => map,
                None => self.open(shard)?,
            };
            match map.probe(key, SLOTS_READ) {
                Ok(Probed::Found(value)) => return Ok(Some(value)),
                Ok(Probed::Absent) => return Ok(None),
                // A trustee that was preempted in the middle of a write leaves a torn record until
                // it runs again; the delegated call waits for that.
                Ok(Probed::Unknown) | Err(SegmentError::Torn { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.ask(key)
    }

    /// The trust of the shard that `key` belongs to, for changes that depend on the old value or on
    /// several keys of one shard.
    #[inline]
    pub fn shard(&self, key: &K) -> &Trust<RecordMap<K, V>> {
        self.shards.shard(key.as_bytes())
    }

    /// All shards, in the order of [`trustees`](crate::trustees).
    #[must_use]
    pub fn shards(&self) -> &[Trust<RecordMap<K, V>>] {
        self.shards.shards()
    }

    #[inline(never)]
    #[track_caller]
    fn ask(&self, key: &K) -> Result<Option<V>, RecordsError> {
        let get = |shard: &mut RecordMap<K, V>, key: Bytes<K>| shard.get(&key.0).map(Bytes);
        let found = self.shard(key).try_apply_with(get, Bytes(*key))?;
        Ok(found.map(|value| value.0))
    }

    /// Opens a shard. If another fiber was first, returns that fiber's map.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn open(&self, shard: usize) -> Result<&RemoteMap<K, V>, RecordsError> {
        let trustee = self.shards.shards()[shard].trustee();
        let name = segment_name(&self.name, trustee);
        let map = RemoteMap::of(RemoteSegment::open_at(trustee.thread().host, &name)?)?;
        Ok(self.opened[shard].get_or_init(|| map))
    }
}

impl<K, V> ShardedRecords<K, V> {
    fn of_shards(name: String, shards: Sharded<[u8], RecordMap<K, V>>) -> Self {
        let opened = shards.shards().iter().map(|_| OnceLock::new()).collect();
        Self { name, shards, opened }
    }
}

/// The name of a trustee's segment.
fn segment_name(name: &str, trustee: Trustee) -> String {
    format!("{name}/{}", trustee.number())
}

/// Creates the shard of this thread, and entrusts it to this thread.
fn make<K: Plain, V: Plain>(
    name: &str,
    capacity: usize,
) -> Result<Trust<RecordMap<K, V>>, SegmentError> {
    let map = RecordMap::export(&Segments::current()?, name, capacity)?;
    Ok(local_trustee().entrust(map))
}

impl<K, V> Clone for ShardedRecords<K, V> {
    fn clone(&self) -> Self {
        let (name, shards, opened) = (self.name.clone(), self.shards.clone(), self.opened.clone());
        Self { name, shards, opened }
    }
}

impl<K, V> fmt::Debug for ShardedRecords<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardedRecords({} of {:?})", self.shards.shards().len(), self.name)
    }
}

impl<K, V> Serialize for ShardedRecords<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.name, &self.shards).serialize(serializer)
    }
}

impl<'de, K, V> Deserialize<'de> for ShardedRecords<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (name, shards) = Deserialize::deserialize(deserializer)?;
        Ok(Self::of_shards(name, shards))
    }
}
