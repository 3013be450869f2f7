//! The counters of a store, with the names of memcached's `stats` command.

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The counters of one shard or the sum over several.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Stats {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Adds the counters of another shard.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Every counter with its name in the protocol.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Keys requested.
    cmd_get,
    /// Writes of every kind.
    cmd_set,
    /// Flushes.
    cmd_flush,
    /// Touches, with or without a read.
    cmd_touch,
    /// Meta debug commands.
    cmd_meta,
    /// Keys requested and found.
    get_hits,
    /// Keys requested and not found.
    get_misses,
    /// Keys requested and found expired.
    get_expired,
    /// Keys requested and found flushed.
    get_flushed,
    /// Deletes that found nothing.
    delete_misses,
    /// Deletes that removed an item.
    delete_hits,
    /// Increments that found nothing.
    incr_misses,
    /// Increments that changed an item.
    incr_hits,
    /// Decrements that found nothing.
    decr_misses,
    /// Decrements that changed an item.
    decr_hits,
    /// Compare-and-sets that found nothing.
    cas_misses,
    /// Compare-and-sets that stored.
    cas_hits,
    /// Compare-and-sets that found another version.
    cas_badval,
    /// Touches that found an item.
    touch_hits,
    /// Touches that found nothing.
    touch_misses,
    /// Writes of items that are larger than the largest item may be.
    store_too_large,
    /// Writes of items that are larger than the memory limit.
    store_no_memory,
    /// Memory limit in bytes; 0 for none.
    limit_maxbytes,
    /// Memory in use, in bytes.
    bytes,
    /// Items in the store, including expired ones that were not removed yet.
    curr_items,
    /// Items stored since the start.
    total_items,
    /// Dead items removed to free memory that were never read.
    expired_unfetched,
    /// Evicted items that were never read.
    evicted_unfetched,
    /// Evicted items that were read since they were last moved.
    evicted_active,
    /// Items evicted to free memory.
    evictions,
    /// Dead items removed to free memory.
    reclaimed,
    /// Dead items removed by the crawler.
    crawler_reclaimed,
    /// Items that the crawler has looked at.
    crawler_items_checked,
    /// Crawls of all items that a command has begun.
    lru_crawler_starts,
    /// 1 while such a crawl runs.
    lru_crawler_running,
    /// Memory of the tables that find items by key, in bytes.
    hash_bytes,
    /// Dead items and others that insertions have removed to make room.
    direct_reclaims,
    /// Items moved to the segment Cold.
    moves_to_cold,
    /// Items moved to the segment Warm.
    moves_to_warm,
    /// Items moved inside the segment Warm.
    moves_within_lru,
}
