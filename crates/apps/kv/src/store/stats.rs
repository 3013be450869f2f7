//! Counters of a store, named as memcached's `stats` command names them.

use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The counters of one shard, or of several added up.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Stats {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Adds the counters of another shard.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Every counter with the name that clients know it by.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Keys asked for.
    cmd_get,
    /// Writes of every kind.
    cmd_set,
    /// Flushes.
    cmd_flush,
    /// Touches, with reads or without.
    cmd_touch,
    /// Keys asked for and found.
    get_hits,
    /// Keys asked for and not found.
    get_misses,
    /// Keys asked for and found expired.
    get_expired,
    /// Keys asked for and found flushed.
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
    /// Bytes that the store may use; 0 without a limit.
    limit_maxbytes,
    /// Bytes in use.
    bytes,
    /// Items in the store, expired ones that nobody asked for included.
    curr_items,
    /// Items ever stored.
    total_items,
    /// Items removed before they expired, to make room.
    evictions,
    /// Items among those evicted that were never read.
    evicted_unfetched,
    /// Dead items whose room was taken by others.
    reclaimed,
}
