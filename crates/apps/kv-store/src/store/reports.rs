//! What a store reports of itself and of its items, and the settings that it keeps: the parts of requests
//! and responses ([`wire`](crate::store::wire)) that have fields of their own.

use serde::{Deserialize, Serialize};

use crate::store::data::Data;

/// The settings that commands change at run time. Every shard keeps them; the first one's are
/// reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How much to log; nothing is logged.
    pub verbosity: u32,
    /// Whether dead items are crawled for.
    pub crawls: bool,
    /// Items of a shard that a crawl looks at, at most; 0 for all.
    pub crawler_items: u32,
    /// Microseconds that a crawl sleeps between two parts of its work.
    pub crawler_sleep: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { verbosity: 0, crawls: true, crawler_items: 0, crawler_sleep: 100 }
    }
}

/// A change of [`Settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// How much to log.
    Verbosity(u32),
    /// Whether dead items are crawled for.
    Crawler(bool),
    /// Items of a shard that a crawl looks at, at most; 0 for all.
    CrawlerItems(u32),
    /// Microseconds that a crawl sleeps between two parts of its work.
    CrawlerSleep(u32),
}

/// The circumstances of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaItem {
    /// As stored.
    pub flags: u32,
    /// The number of this version of the item.
    pub cas: u64,
    /// Bytes of data.
    pub bytes: u32,
    /// Seconds until it expires, -1 for never; as [`Step::Ttl`](crate::store::Step::Ttl) found it, or else in
    /// the end.
    pub ttl: i64,
    /// Seconds since its last use.
    pub idle: u32,
    /// Whether it was read before.
    pub is_fetched: bool,
    /// Whether the key was stored in base64.
    pub is_binary_key: bool,
    /// Whether this client may recache the item.
    pub is_won: bool,
    /// Whether the item was invalidated.
    pub is_stale: bool,
    /// Whether another client was told to recache it.
    pub is_token_sent: bool,
    /// Memory that the item uses.
    pub memory: u32,
    /// The data, if it was asked for.
    pub data: Option<Data>,
}

/// What the segments of a store hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemsReport {
    /// Items in Hot, Warm, Cold and Temporary.
    pub counts: [u64; 4],
    /// Seconds since the last use of the oldest item of each.
    pub ages: [u32; 4],
    /// Memory of all items.
    pub bytes: u64,
    /// Seconds for which the item that was evicted last had not been used.
    pub evicted_idle: u32,
    /// Items evicted that would have expired.
    pub evicted_with_deadline: u64,
    /// Reads that found an item in Hot, Warm, Cold and Temporary.
    pub hits: [u64; 4],
}

impl ItemsReport {
    /// Adds that of another shard.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        for (hits, more) in self.hits.iter_mut().zip(other.hits) {
            *hits += more;
        }
        for (age, other) in self.ages.iter_mut().zip(other.ages) {
            *age = (*age).max(other);
        }
        self.bytes += other.bytes;
        self.evicted_idle = self.evicted_idle.max(other.evicted_idle);
        self.evicted_with_deadline += other.evicted_with_deadline;
    }
}
