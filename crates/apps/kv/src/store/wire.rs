//! Requests to a store and its responses: the values that cross the rack.

use serde::{Deserialize, Serialize};

use crate::store::data::Data;
use crate::store::stats::Stats;

/// The condition and kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// Unconditional.
    Set,
    /// Only if the key does not exist.
    Add,
    /// Only if the key exists.
    Replace,
    /// Appends to the data of an item, keeping its flags and expiry.
    Append,
    /// Prepends to the data of an item, keeping its flags and expiry.
    Prepend,
    /// Only if the item has this unique number.
    Cas(u64),
}

/// Increment or decrement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Wraps at 2^64.
    Increment,
    /// Stops at 0.
    Decrement,
}

/// A request on one key. `exptime` is the value that clients send: 0 for never, negative for
/// already expired, up to 30 days relative to now, above that a Unix time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Read an item.
    Get {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// Maximum size of the data in the response; see [`Response::Large`].
        max_bytes: u32,
    },
    /// Change when an item expires.
    Touch {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// The new expiry.
        exptime: i32,
    },
    /// Read an item and change when it expires.
    GetAndTouch {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// The new expiry.
        exptime: i32,
        /// Maximum size of the data in the response; see [`Response::Large`].
        max_bytes: u32,
    },
    /// Write an item.
    Store {
        /// The condition.
        verb: Verb,
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// Opaque to the store.
        flags: u32,
        /// When it expires.
        exptime: i32,
        /// The data.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Remove an item.
    Delete {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
    },
    /// Remove an item after a refused attempt to replace it: the old value must not be served any
    /// more. Not counted as a delete.
    Discard {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
    },
    /// Change the decimal number in an item.
    Arithmetic {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// Increment or decrement.
        direction: Direction,
        /// The amount.
        delta: u64,
    },
}

impl Request {
    /// The key, which determines the shard.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Get { key, .. }
            | Self::Touch { key, .. }
            | Self::GetAndTouch { key, .. }
            | Self::Store { key, .. }
            | Self::Delete { key }
            | Self::Discard { key }
            | Self::Arithmetic { key, .. } => key,
        }
    }
}

/// A request to every shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Invalidate all items stored before the given time (0 or less: now).
    FlushAll {
        /// The time, in the format of an expiry.
        exptime: i32,
    },
    /// Read the counters.
    Stats,
    /// Reset the counters of events; those of current contents remain.
    ResetStats,
}

/// A response of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// The item of a read.
    Value {
        /// As stored.
        flags: u32,
        /// The number of this version of the item.
        cas: u64,
        /// As stored.
        data: Data,
    },
    /// The item has more data than `max_bytes` of the read, which changed and counted nothing. The
    /// client reserves memory for that many bytes and repeats the request.
    Large {
        /// Bytes of data.
        bytes: u32,
    },
    /// The item of a read does not exist.
    Miss,
    /// The value was stored.
    Stored,
    /// The condition of an add, replace, append or prepend is false.
    NotStored,
    /// The item of a cas has another unique number.
    Exists,
    /// The item to delete, touch, change or compare does not exist.
    NotFound,
    /// The item was deleted.
    Deleted,
    /// The expiry was changed.
    Touched,
    /// The number after the change.
    Number(u64),
    /// The item is not a decimal number of 64 bits.
    NotNumeric,
    /// The item would exceed the size limit of one item.
    TooLarge,
    /// The item by itself would exceed the memory limit of the store.
    OutOfMemory,
    /// The control request was executed.
    Done,
    /// Counters.
    Stats(Box<Stats>),
}
