//! What can be asked of a store, and what it answers: the values that cross the rack.

use serde::{Deserialize, Serialize};

use crate::store::data::Data;
use crate::store::stats::Stats;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// Whether or not there is an item.
    Set,
    /// Only where there is none.
    Add,
    /// Only where there is one.
    Replace,
    /// Behind the data of an item; its flags and expiry stay.
    Append,
    /// Before the data of an item; its flags and expiry stay.
    Prepend,
    /// Only over the very item that has this unique number.
    Cas(u64),
}

/// Which way a number is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Up, wrapping at 2^64.
    Increment,
    /// Down, stopping at 0.
    Decrement,
}

/// A request about one key. `exptime` is what clients send: 0 for never, below 0 for already
/// expired, up to 30 days relative to now, above that a Unix time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Read an item.
    Get {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// Bytes of data that the answer may carry; see [`Response::Large`].
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
        /// Bytes of data that the answer may carry; see [`Response::Large`].
        max_bytes: u32,
    },
    /// Write an item.
    Store {
        /// On which condition.
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
    /// Remove an item that a client tried to replace by a value that was refused: the old value
    /// must not outlive the attempt. Not counted as a delete.
    Discard {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
    },
    /// Change the decimal number that an item holds.
    Arithmetic {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// Up or down.
        direction: Direction,
        /// By how much.
        delta: u64,
    },
}

impl Request {
    /// The key that the request is about; it decides which shard serves it.
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
    /// Forget everything that is stored before the given moment (0 or less: now).
    FlushAll {
        /// When, written like an expiry.
        exptime: i32,
    },
    /// Counters.
    Stats,
    /// Set the counters of events to zero; those of what is there stay.
    ResetStats,
}

/// What a store answers.
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
    /// A read found an item with more data than it asked for. It has changed and counted nothing;
    /// the client makes room for that many bytes and asks again.
    Large {
        /// Bytes of data.
        bytes: u32,
    },
    /// A read found nothing.
    Miss,
    /// A write is done.
    Stored,
    /// The condition of an add, replace, append or prepend does not hold.
    NotStored,
    /// A cas found another version.
    Exists,
    /// There is no item to delete, touch, change, or compare.
    NotFound,
    /// An item is gone.
    Deleted,
    /// An item expires at another time now.
    Touched,
    /// The number after the change.
    Number(u64),
    /// The item to change is not a decimal number that fits into 64 bits.
    NotNumeric,
    /// The item would exceed the size limit of one item.
    TooLarge,
    /// The item alone would exceed the memory limit of the store.
    OutOfMemory,
    /// A control request is done.
    Done,
    /// Counters.
    Stats(Box<Stats>),
}
