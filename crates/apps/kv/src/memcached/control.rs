//! Executes commands on the server: reports, settings, flushes, the crawler; moves memory among shards.

use crate::memcached::admin::{Admin, LruChange};
use crate::memcached::output::Output;
use crate::memcached::stats;
use crate::memcached::target::{ServerState, Shards};
use crate::store::limit::donations;
use crate::store::{Control, LruSettings, Pressure, Response, Seconds, Setting, Settings};

/// Items that one request to a shard crawls or evicts.
const ITEMS_AT_ONCE: u32 = 1000;

/// Executes a command on the server, and writes its response, of a long report a part. Returns the
/// command that goes on with the rest, if there is more.
pub(super) fn run(
    admin: Admin,
    noreply: bool,
    (shards, server, now): (&dyn Shards, &dyn ServerState, Seconds),
    output: &mut Output,
) -> Option<Admin> {
    let mut text = "OK\r\n";
    match admin {
        Admin::Report(report) => {
            let rest = stats::write(report, shards, server, now, output);
            return rest.map(Admin::Report);
        }
        Admin::CountSizes(counts) => {
            shards.control(Control::CountSizes(counts), now);
            stats::write_sizes_status(counts, output);
            return None;
        }
        Admin::FlushAll { exptime } => drop(shards.control(Control::FlushAll { exptime }, now)),
        Admin::ResetStats => {
            shards.control(Control::ResetStats, now);
            server.reset();
            text = "RESET\r\n";
        }
        Admin::CountPrefixes(counts) => drop(shards.control(Control::CountPrefixes(counts), now)),
        Admin::MemoryLimit { bytes } => {
            let count = shards.control(Control::Lru, now).len();
            shards.control(Control::MemoryLimit { bytes: bytes / count.max(1) as u64 }, now);
            (0..count).for_each(|shard| shrink(shards, shard, now));
        }
        Admin::Lru(change) => {
            let settings = stats::lru_settings(shards, now);
            shards.control(Control::SetLru(changed(settings, change)), now);
        }
        Admin::Set(Setting::Crawler(true)) if stats::settings(shards, now).crawls => {
            text = "ERROR failed to start lru crawler thread\r\n";
        }
        Admin::Set(setting) => drop(shards.control(Control::Set(setting), now)),
        Admin::Crawl => {
            let settings = stats::settings(shards, now);
            if !settings.crawls {
                text = "CLIENT_ERROR lru crawler disabled\r\n";
            } else if shards.control_one(0, Control::BeginCrawl, now) == Some(Response::Busy) {
                text = "BUSY currently processing crawler request\r\n";
            } else {
                server.start_crawl(settings);
            }
        }
    }
    if !noreply {
        output.push(text.as_bytes());
    }
    None
}

/// Evicts what a shard is to evict: a few items at a time, because many take long.
fn shrink(shards: &dyn Shards, shard: usize, now: Seconds) {
    let shrink = Control::Shrink { count: ITEMS_AT_ONCE };
    while shards.control_one(shard, shrink.clone(), now) == Some(Response::Busy) {}
}

/// Moves memory among shards that share a limit: to those that have evicted items since the last time, from
/// those whose items have not been used for longer.
pub fn balance(shards: &dyn Shards, of: &[usize], now: Seconds) {
    let pressure = |&shard: &usize| match shards.control_one(shard, Control::Pressure, now) {
        Some(Response::Pressure(pressure)) => pressure,
        _ => Pressure::default(),
    };
    let donations = donations(&of.iter().map(pressure).collect::<Vec<_>>());
    for (&shard, bytes) in of.iter().zip(donations) {
        if bytes > 0 {
            shards.control_one(shard, Control::Give { bytes }, now);
            shrink(shards, shard, now);
        }
    }
}

fn changed(settings: LruSettings, change: LruChange) -> LruSettings {
    match change {
        LruChange::Segmented(segmented) => LruSettings { segmented, ..settings },
        LruChange::Tune { hot_percent, warm_percent, hot_factor, warm_factor } => {
            LruSettings { hot_percent, warm_percent, hot_factor, warm_factor, ..settings }
        }
        LruChange::TemporaryTtl(temporary_ttl) => LruSettings { temporary_ttl, ..settings },
    }
}

/// Removes dead items of all shards, a few at a time, while `goes_on` is true and no command disables
/// crawls. [`Control::BeginCrawl`] was executed before; this ends with [`Control::EndCrawl`].
pub fn crawl(
    shards: &dyn Shards,
    settings: Settings,
    now: impl Fn() -> Seconds,
    goes_on: impl Fn() -> bool,
) {
    let Settings { crawler_items: items, crawler_sleep, .. } = settings;
    let all = if items == 0 { u32::MAX } else { items };
    let (mut shard, mut from, mut left) = (0, 0, all);
    while goes_on() {
        let count = left.min(ITEMS_AT_ONCE);
        match shards.control_one(shard, Control::Crawl { from, count }, now()) {
            None => break,
            Some(Response::Crawled { next: Some(next) }) if left > count => {
                (from, left) = (next, left - count);
            }
            Some(_) => {
                (from, left) = (0, all);
                shard += 1;
            }
        }
        if crawler_sleep > 0 {
            shards.sleep_micros(crawler_sleep);
        }
    }
    shards.control_one(0, Control::EndCrawl, now());
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
                balance(&shards, &shards.of_host(), later);
            }
        }
        let both = used(&shards);
        assert!(both[1] > 200 * 900, "{both:?}");
        assert!(both.iter().sum::<u64>() <= 1 << 20, "{both:?}");
        // Between shards whose items are as old, none moves.
        balance(&shards, &shards.of_host(), later);
        (500..2000).for_each(|number| drop(set(&shards, 0, number, later)));
        (500..2000).for_each(|number| drop(set(&shards, 1, number, later)));
        let before = used(&shards);
        balance(&shards, &shards.of_host(), later);
        assert_eq!(used(&shards), before);
    }
}
