//! Requests to a store and its responses: the values that cross the rack.

use serde::{Deserialize, Serialize};

use crate::store::data::Data;
use crate::store::eviction::LruSettings;
use crate::store::key::Key;
use crate::store::limit::Pressure;
use crate::store::prefixes::PrefixStats;
use crate::store::reports::{ItemsReport, MetaItem, Setting, Settings};
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

/// What a meta command does with the expiry of an item; carried out in the order of its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Change when it expires (flag T).
    SetExpiry(i32),
    /// If the item does not exist, create it with this expiry (flag N).
    Vivify(i32),
    /// Let the client recache the item if it expires sooner than this (flag R).
    Recache(i32),
    /// Return the seconds until it expires (flag t).
    Ttl,
}

/// What a meta set adds to a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaStore {
    /// For appends and prepends: only if the item has this unique number; 0 is any.
    pub compare: u64,
    /// With [`Verb::Cas`]: an older number than the item's stores a stale value (flag I).
    pub invalidate: bool,
    /// The key came in base64.
    pub binary_key: bool,
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The item would exceed the size limit of one item.
    TooLarge {
        /// Whether to remove the old item, which must not be served after an attempt to replace it.
        removes: bool,
    },
    /// The data did not end where the command said.
    BadData,
}

/// A request on one key. `exptime` is the value that clients send: 0 for never, negative for
/// already expired, up to 30 days relative to now, above that a Unix time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Read an item.
    Get {
        /// The key.
        key: Key,
        /// Maximum size of the data in the response; see [`Response::Large`].
        max_bytes: u32,
    },
    /// Read an item of which a read was counted and whose data was not kept: counts nothing.
    GetAgain {
        /// The key.
        key: Key,
        /// Maximum size of the data in the response; see [`Response::Large`].
        max_bytes: u32,
    },
    /// Change when an item expires.
    Touch {
        /// The key.
        key: Key,
        /// The new expiry.
        exptime: i32,
    },
    /// Read an item and change when it expires.
    GetAndTouch {
        /// The key.
        key: Key,
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
        key: Key,
        /// Opaque to the store.
        flags: u32,
        /// When it expires.
        exptime: i32,
        /// The data.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        /// Of a meta set, whose response is [`Response::MetaStored`].
        meta: Option<MetaStore>,
    },
    /// Read an item with its circumstances.
    MetaGet {
        /// The key.
        key: Key,
        /// Whether the key came in base64, for an item that is created.
        binary_key: bool,
        /// Whether to return the data, of up to so many bytes; see [`Response::Large`].
        max_bytes: Option<u32>,
        /// Whether the read does not count as a use of the item.
        no_update: bool,
        /// What to do with the expiry.
        steps: Vec<Step>,
    },
    /// Remove or invalidate an item.
    MetaDelete {
        /// The key.
        key: Key,
        /// Only if the item has this unique number.
        compare: Option<u64>,
        /// Mark the item as stale instead, and change when it expires.
        invalidate: Option<Option<i32>>,
    },
    /// Change the decimal number in an item, or create it.
    MetaArithmetic {
        /// The key.
        key: Key,
        /// Increment or decrement.
        direction: Direction,
        /// The amount.
        delta: u64,
        /// Only if the item has this unique number; 0 is any.
        compare: u64,
        /// The number of an item that is created; see [`Step::Vivify`].
        initial: u64,
        /// What to do with the expiry.
        steps: Vec<Step>,
    },
    /// Read the circumstances of an item, and change none.
    MetaDebug {
        /// The key.
        key: Key,
    },
    /// Remove an item.
    Delete {
        /// The key.
        key: Key,
    },
    /// Count a write that was refused before it reached the store.
    Refused {
        /// The key.
        key: Key,
        /// Why.
        reason: Refusal,
        /// Whether a meta command sent it, which does not count by prefix.
        meta: bool,
    },
    /// Change the decimal number in an item.
    Arithmetic {
        /// The key.
        key: Key,
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
            | Self::GetAgain { key, .. }
            | Self::Touch { key, .. }
            | Self::GetAndTouch { key, .. }
            | Self::Store { key, .. }
            | Self::Delete { key }
            | Self::Refused { key, .. }
            | Self::MetaGet { key, .. }
            | Self::MetaDelete { key, .. }
            | Self::MetaArithmetic { key, .. }
            | Self::MetaDebug { key }
            | Self::Arithmetic { key, .. } => key,
        }
    }
}

/// A request to every shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Read what the segments hold.
    Items,
    /// Read the number of items by size, smallest sizes first.
    Sizes {
        /// The least size.
        from: u32,
        /// Sizes to read, at most.
        count: u32,
    },
    /// Begin to count items by size, or stop.
    CountSizes(bool),
    /// Read the counters by prefix, in the order of the prefixes.
    Prefixes {
        /// The least prefix.
        from: Vec<u8>,
        /// Prefixes to read, at most.
        count: u32,
    },
    /// Begin to count by prefix, or stop.
    CountPrefixes(bool),
    /// Change the memory limit. [`Control::Shrink`] frees what is beyond it.
    MemoryLimit {
        /// Of each shard, in bytes.
        bytes: u64,
    },
    /// Evict some of the items beyond the memory limit, or of those to [donate](Self::Donate).
    Shrink {
        /// Items to evict, at most.
        count: u32,
    },
    /// Read the need for memory, and count evicted bytes anew; see [`Pressure`].
    Pressure,
    /// Free memory for the stores that share the limit. [`Control::Shrink`] does it.
    Donate {
        /// Bytes to free.
        bytes: u64,
    },
    /// Read how items are ordered by use.
    Lru,
    /// Change it.
    SetLru(LruSettings),
    /// Read the settings.
    Settings,
    /// Change a setting.
    Set(Setting),
    /// Begin a crawl of all shards, of which there is one at a time: the first shard answers
    /// [`Response::Busy`] while there is one.
    BeginCrawl,
    /// End it.
    EndCrawl,
    /// Remove dead items among some.
    Crawl {
        /// Where to begin: 0, or what the last response said.
        from: u32,
        /// Items to look at, at most.
        count: u32,
    },
}

/// A response of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// A crawl runs already, or a part of the work is left.
    Busy,
    /// The settings.
    Settings(Settings),
    /// The need for memory.
    Pressure(Pressure),
    /// Counters.
    Stats(Box<Stats>),
    /// The item of a meta get or meta debug.
    Meta(Box<MetaItem>),
    /// A meta set has stored a value with this unique number.
    MetaStored {
        /// The number.
        cas: u64,
    },
    /// The number after a meta arithmetic command.
    MetaNumber {
        /// The number.
        number: u64,
        /// The unique number of the item.
        cas: u64,
        /// Seconds until it expires; see [`MetaItem::ttl`].
        ttl: i64,
        /// Whether the item was created.
        is_created: bool,
    },
    /// What the segments hold.
    Items(Box<ItemsReport>),
    /// Items by size; `None` if they are not counted.
    Sizes(Option<Vec<(u32, u64)>>),
    /// Counters by prefix, and whether keys are counted now.
    Prefixes {
        /// The prefixes.
        counters: Vec<(Vec<u8>, PrefixStats)>,
        /// Whether keys are counted.
        counting: bool,
    },
    /// How items are ordered by use.
    Lru(LruSettings),
    /// Where the next [`Control::Crawl`] begins; `None` at the end.
    Crawled {
        /// The next item.
        next: Option<u32>,
    },
}
