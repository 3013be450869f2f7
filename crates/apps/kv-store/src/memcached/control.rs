//! Executes commands on the server: reports, settings, flushes, the crawler.

use crate::memcached::admin::{Admin, LruChange};
use crate::memcached::output::Output;
use crate::memcached::stats;
use crate::memcached::target::{ServerState, Shards};
use crate::store::{Control, LruSettings, Response, Seconds, Setting, Settings};

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
pub(super) fn shrink(shards: &dyn Shards, shard: usize, now: Seconds) {
    let shrink = Control::Shrink { count: ITEMS_AT_ONCE };
    while shards.control_one(shard, shrink.clone(), now) == Some(Response::Busy) {}
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
