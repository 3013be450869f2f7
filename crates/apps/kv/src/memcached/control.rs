//! Executes commands on the server: reports, settings, flushes, the crawler.

use crate::memcached::admin::{Admin, LruChange};
use crate::memcached::batch::{ServerState, Shards};
use crate::memcached::output::Output;
use crate::memcached::stats;
use crate::store::{Control, LruSettings, Response, Seconds};

/// Items that one request to a shard crawls.
const CRAWLED_AT_ONCE: u32 = 1000;

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
            text = "RESET\r\n";
        }
        Admin::CountPrefixes(counts) => drop(shards.control(Control::CountPrefixes(counts), now)),
        Admin::MemoryLimit { bytes } => {
            let count = shards.control(Control::Lru, now).len().max(1) as u64;
            shards.control(Control::MemoryLimit { bytes: bytes / count }, now);
        }
        Admin::Lru(change) => {
            let settings = stats::lru_settings(shards, now);
            shards.control(Control::SetLru(changed(settings, change)), now);
        }
        Admin::Set(setting) => server.set(setting),
        Admin::Crawl => match server.crawler() {
            (false, ..) => text = "CLIENT_ERROR lru crawler disabled\r\n",
            (true, items, sleep) => crawl(shards, items, sleep, now),
        },
    }
    if !noreply {
        output.push(text.as_bytes());
    }
    None
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

/// Removes dead items of all shards, a few at a time.
fn crawl(shards: &dyn Shards, items: u32, sleep_micros: u32, now: Seconds) {
    let mut shard = 0;
    let (mut from, mut left) = (0, if items == 0 { u32::MAX } else { items });
    loop {
        let count = left.min(CRAWLED_AT_ONCE);
        match shards.control_one(shard, Control::Crawl { from, count }, now) {
            None => return,
            Some(Response::Crawled { next: Some(next) }) if left > count => {
                (from, left) = (next, left - count);
            }
            Some(_) => {
                (from, left) = (0, if items == 0 { u32::MAX } else { items });
                shard += 1;
            }
        }
        if sleep_micros > 0 {
            shards.sleep_micros(sleep_micros);
        }
    }
}
