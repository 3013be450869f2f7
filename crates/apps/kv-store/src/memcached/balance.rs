//! Moves memory among the shards of a host.

use crate::memcached::control::shrink;
use crate::memcached::target::Shards;
use crate::store::limit::donations;
use crate::store::{Control, Pressure, Response, Seconds};

/// Moves memory among the shards with these numbers, which share a limit: to those that have evicted items
/// since the last time, from those whose items have not been used for longer.
pub fn balance_memory(shards: &dyn Shards, sharing: &[usize], now: Seconds) {
    let pressure = |&shard: &usize| match shards.control_one(shard, Control::Pressure, now) {
        Some(Response::Pressure(pressure)) => pressure,
        _ => Pressure::default(),
    };
    let donations = donations(&sharing.iter().map(pressure).collect::<Vec<_>>());
    for (&shard, bytes) in sharing.iter().zip(donations) {
        if bytes > 0 {
            shards.control_one(shard, Control::Donate { bytes }, now);
            shrink(shards, shard, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::local::LocalShards;
    use crate::store::{Key, Request, Verb};

    const NOW: Seconds = 1_700_000_000;

    /// The bytes in use of each shard, in order.
    fn used(shards: &LocalShards) -> Vec<u64> {
        let stats = shards.control(Control::Stats, NOW).into_iter();
        stats
            .map(|stats| if let Response::Stats(stats) = stats { stats.bytes } else { 0 })
            .collect()
    }

    fn set(shards: &LocalShards, shard: usize, number: usize, now: Seconds) -> Response {
        // The first of these that belongs to the shard.
        let keys = (0..).map(|attempt| format!("{number}:{attempt}"));
        let key =
            keys.map(|key| Key::new(key.as_bytes())).find(|key| shards.index_of(key) == shard);
        let (verb, data, meta) = (Verb::Set, vec![b'v'; 900], None);
        let key = key.expect("a key of every shard");
        shards.call(Request::Store { verb, key, flags: 0, exptime: 0, data, meta }, now)
    }

    #[test]
    fn one_shard_may_use_nearly_all_memory() {
        let shards = LocalShards::new(4, Some(1 << 20));
        (0..2000).for_each(|number| assert_eq!(set(&shards, 2, number, NOW), Response::Stored));
        let used = used(&shards);
        assert!(used[2] > (1 << 20) * 9 / 10 && used[2] <= 1 << 20, "{used:?}");
        assert_eq!(used.iter().sum::<u64>(), used[2]);
    }

    #[test]
    fn memory_moves_to_shards_whose_items_are_in_use() {
        let shards = LocalShards::new(2, Some(1 << 20));
        (0..2000).for_each(|number| drop(set(&shards, 0, number, NOW)));
        // Without the others', which have not been used for longer, there is memory for few of these.
        let later = NOW + 1000;
        for number in 0..500 {
            set(&shards, 1, number, later);
            if number % 20 == 0 {
                balance_memory(&shards, &shards.local_shards(), later);
            }
        }
        let both = used(&shards);
        assert!(both[1] > 200 * 900, "{both:?}");
        assert!(both.iter().sum::<u64>() <= 1 << 20, "{both:?}");
        // Between shards whose items are as old, none moves.
        balance_memory(&shards, &shards.local_shards(), later);
        (500..2000).for_each(|number| drop(set(&shards, 0, number, later)));
        (500..2000).for_each(|number| drop(set(&shards, 1, number, later)));
        let before = used(&shards);
        balance_memory(&shards, &shards.local_shards(), later);
        assert_eq!(used(&shards), before);
    }
}
