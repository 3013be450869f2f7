//! The reports of `stats` and its families, with memcached's names.
//!
//! The store has no slab classes, so reports by class have one, number 1.

use std::collections::BTreeMap;

use crate::memcached::admin::Report;
use crate::memcached::output::Output;
use crate::memcached::target::{ConnectionReport, ServerState, Shards};
use crate::store::prefixes::PrefixStats;
use crate::store::{
    Control, ITEM_BYTES_MAX, ItemsReport, LruSettings, Response, Seconds, Settings, Stats,
};

/// Bytes of a page of memcached's slabs.
const PAGE_BYTES: u64 = 1 << 20;

/// Sizes, connections or prefixes of a part of a report. So many prefixes of 250 bytes take less than
/// `REPORT_BYTES` of `batch.rs`, even if all of their bytes are escaped.
const ENTRIES_AT_ONCE: usize = 16;

/// Memory of a bucket of the tables that find items by key: an index, and a byte of its hash.
const HASH_BUCKET_BYTES: u64 = 5;

/// Counters of memcached for what this server never does or has not.
const NEVER_COUNTED: [&str; 24] = [
    "response_obj_oom",
    "read_buf_oom",
    "reserved_fds",
    "auth_cmds",
    "auth_errors",
    "hash_is_expanding",
    "slab_reassign_rescues",
    "slab_reassign_chunk_rescues",
    "slab_reassign_evictions_nomem",
    "slab_reassign_inline_reclaim",
    "slab_reassign_busy_items",
    "slab_reassign_busy_deletes",
    "slab_reassign_running",
    "slabs_moved",
    "lru_maintainer_juggles",
    "malloc_fails",
    "log_worker_dropped",
    "log_worker_written",
    "log_watcher_skipped",
    "log_watcher_sent",
    "log_watchers",
    "slab_global_page_pool",
    "lrutail_reflocked",
    "lru_bumps_dropped",
];

/// Lines of a report.
struct Lines<'a>(&'a mut Output);

impl Lines<'_> {
    fn put(&mut self, name: &str, value: impl ToString) {
        for part in ["STAT ", name, " ", &value.to_string(), "\r\n"] {
            self.0.push(part.as_bytes());
        }
    }
}

/// Writes a report with its end, or a part of it; what goes on with the rest, if there is more.
pub(super) fn write(
    report: Report,
    shards: &dyn Shards,
    server: &dyn ServerState,
    now: Seconds,
    output: &mut Output,
) -> Option<Report> {
    let mut lines = Lines(output);
    let rest = match report {
        Report::General => {
            server.stats(now).iter().for_each(|(name, value)| lines.put(name, value));
            let stats = total(shards, now);
            stats.each().for_each(|(name, value)| lines.put(name, value));
            // Of all shards together, rounded down.
            let buckets = stats.hash_bytes / HASH_BUCKET_BYTES;
            lines.put("hash_power_level", buckets.checked_ilog2().unwrap_or(0));
            NEVER_COUNTED.iter().for_each(|name| lines.put(name, 0));
            None
        }
        Report::Settings => {
            all_settings(shards, server, now, &mut lines);
            None
        }
        Report::Items => {
            items(shards, now, &mut lines);
            None
        }
        Report::Slabs => {
            slabs(&total(shards, now), &mut lines);
            None
        }
        Report::Sizes { from } => sizes(shards, from, now, &mut lines),
        Report::Connections { from, end } => connections(server, (from, end), now, &mut lines),
        Report::Prefixes { from } => prefixes(shards, from, now, output),
    };
    if rest.is_none() {
        output.push(b"END\r\n");
    }
    rest
}

/// Writes whether items are counted by size now; memcached ends this report with no `END`.
pub(super) fn write_sizes_status(counts: bool, output: &mut Output) {
    Lines(output).put("sizes_status", if counts { "enabled" } else { "disabled" });
}

/// The counters of all shards.
fn total(shards: &dyn Shards, now: Seconds) -> Stats {
    let mut total = Stats::default();
    for response in shards.control(Control::Stats, now) {
        if let Response::Stats(stats) = response {
            total.add(&stats);
        }
    }
    total
}

/// How items are ordered by use.
pub(super) fn lru_settings(shards: &dyn Shards, now: Seconds) -> LruSettings {
    let settings = shards.control(Control::Lru, now).into_iter().find_map(|response| {
        if let Response::Lru(settings) = response { Some(settings) } else { None }
    });
    settings.unwrap_or_default()
}

/// The settings that commands change.
pub(super) fn settings(shards: &dyn Shards, now: Seconds) -> Settings {
    match shards.control_one(0, Control::Settings, now) {
        Some(Response::Settings(settings)) => settings,
        _ => Settings::default(),
    }
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn all_settings(
    shards: &dyn Shards,
    server: &dyn ServerState,
    now: Seconds,
    lines: &mut Lines<'_>,
) {
    let lru = lru_settings(shards, now);
    let settings = settings(shards, now);
    let counts = |control, is: fn(&Response) -> bool| shards.control(control, now).iter().any(is);
    let prefixes = Control::Prefixes { from: Vec::new(), count: 0 };
    lines.put("maxbytes", total(shards, now).limit_maxbytes);
    server.settings().iter().for_each(|(name, value)| lines.put(name, value));
    lines.put("verbosity", settings.verbosity);
    lines.put("lru_crawler", yes(settings.crawls));
    lines.put("lru_crawler_sleep", settings.crawler_sleep);
    lines.put("lru_crawler_tocrawl", settings.crawler_items);
    lines.put("lru_maintainer_thread", "no");
    lines.put("hash_algorithm", "foldhash");
    lines.put("hashpower_init", 0);
    lines.put("tail_repair_time", 0);
    lines.put("inline_ascii_response", "no");
    lines.put("oldest", 0);
    lines.put("evictions", "on");
    lines.put("shutdown_command", "no");
    lines.put("stat_key_prefix", ":");
    let detail =
        counts(prefixes, |found| matches!(found, Response::Prefixes { counting: true, .. }));
    lines.put("detail_enabled", yes(detail));
    lines.put("cas_enabled", "yes");
    lines.put("binding_protocol", "ascii");
    lines.put("auth_enabled_sasl", "no");
    lines.put("auth_enabled_ascii", "no");
    lines.put("item_size_max", ITEM_BYTES_MAX);
    lines.put("slab_reassign", "no");
    lines.put("slab_automove", 0);
    lines.put("flush_enabled", "yes");
    lines.put("dump_enabled", "no");
    lines.put("lru_segmented", yes(lru.segmented));
    lines.put("hot_lru_pct", lru.hot_percent);
    lines.put("warm_lru_pct", lru.warm_percent);
    // As C prints values that are not a number, in lower case.
    lines.put("hot_max_factor", format!("{:.2}", lru.hot_factor).to_lowercase());
    lines.put("warm_max_factor", format!("{:.2}", lru.warm_factor).to_lowercase());
    lines.put("temp_lru", yes(lru.temporary_ttl.is_some()));
    lines.put("temporary_ttl", lru.temporary_ttl.unwrap_or(61));
    let sizes = counts(Control::Sizes { from: 0, count: 0 }, |found| {
        matches!(found, Response::Sizes(Some(_)))
    });
    lines.put("track_sizes", yes(sizes));
    lines.put("ssl_enabled", "no");
}

fn items(shards: &dyn Shards, now: Seconds, lines: &mut Lines<'_>) {
    let mut report = ItemsReport::default();
    for response in shards.control(Control::Items, now) {
        if let Response::Items(items) = response {
            report.add(&items);
        }
    }
    let ItemsReport { counts: [hot, warm, cold, temporary], ages, .. } = report;
    let number = hot + warm + cold + temporary;
    if number == 0 {
        return;
    }
    let stats = total(shards, now);
    let mut put = |name: &str, value: u64| lines.put(&format!("items:1:{name}"), value);
    put("number", number);
    put("number_hot", hot);
    put("number_warm", warm);
    put("number_cold", cold);
    if temporary > 0 {
        put("number_temp", temporary);
    }
    put("age_hot", ages[0].into());
    put("age_warm", ages[1].into());
    put("age", ages[2].into());
    put("mem_requested", report.bytes);
    put("evicted", stats.evictions);
    put("evicted_nonzero", report.evicted_with_deadline);
    put("evicted_time", report.evicted_idle.into());
    put("outofmemory", stats.store_no_memory);
    put("tailrepairs", 0);
    put("reclaimed", stats.reclaimed);
    put("expired_unfetched", stats.expired_unfetched);
    put("evicted_unfetched", stats.evicted_unfetched);
    put("evicted_active", stats.evicted_active);
    put("crawler_reclaimed", stats.crawler_reclaimed);
    put("crawler_items_checked", stats.crawler_items_checked);
    put("lrutail_reflocked", 0);
    put("moves_to_cold", stats.moves_to_cold);
    put("moves_to_warm", stats.moves_to_warm);
    put("moves_within_lru", stats.moves_within_lru);
    put("direct_reclaims", stats.direct_reclaims);
    put("hits_to_hot", report.hits[0]);
    put("hits_to_warm", report.hits[1]);
    put("hits_to_cold", report.hits[2]);
    put("hits_to_temp", report.hits[3]);
}

fn slabs(stats: &Stats, lines: &mut Lines<'_>) {
    let pages = stats.bytes.div_ceil(PAGE_BYTES);
    if pages > 0 {
        let mut put = |name: &str, value: u64| lines.put(&format!("1:{name}"), value);
        put("chunk_size", PAGE_BYTES);
        put("chunks_per_page", 1);
        put("total_pages", pages);
        put("total_chunks", pages);
        put("used_chunks", pages);
        put("free_chunks", 0);
        put("free_chunks_end", 0);
        put("get_hits", stats.get_hits);
        put("cmd_set", stats.cmd_set);
        put("delete_hits", stats.delete_hits);
        put("incr_hits", stats.incr_hits);
        put("decr_hits", stats.decr_hits);
        put("cas_hits", stats.cas_hits);
        put("cas_badval", stats.cas_badval);
        put("touch_hits", stats.touch_hits);
    }
    lines.put("active_slabs", u64::from(pages > 0));
    lines.put("total_malloced", stats.bytes);
}

/// Adds up the entries of all shards, each of which has returned its first [`ENTRIES_AT_ONCE`]: the
/// first of the whole store, which are complete.
fn merged<K: Ord, V: Default>(
    shards: impl Iterator<Item = Vec<(K, V)>>,
    add: impl Fn(&mut V, V),
) -> BTreeMap<K, V> {
    let mut all = BTreeMap::new();
    for (key, value) in shards.flatten() {
        add(all.entry(key).or_default(), value);
    }
    let rest = all.len().saturating_sub(ENTRIES_AT_ONCE);
    (0..rest).for_each(|_| drop(all.pop_last()));
    all
}

fn sizes(shards: &dyn Shards, from: u32, now: Seconds, lines: &mut Lines<'_>) -> Option<Report> {
    let responses = shards.control(Control::Sizes { from, count: ENTRIES_AT_ONCE as u32 }, now);
    if !responses.iter().any(|response| matches!(response, Response::Sizes(Some(_)))) {
        // Unless a command has disabled it between two parts.
        if from == 0 {
            lines.put("sizes_status", "disabled");
        }
        return None;
    }
    let of = |response| if let Response::Sizes(sizes) = response { sizes } else { None };
    let all = merged(responses.into_iter().filter_map(of), |items, more| *items += more);
    all.iter().for_each(|(bytes, items)| lines.put(&bytes.to_string(), items));
    let last = is_part(all.len()).then(|| all.last_key_value()).flatten();
    last.and_then(|(bytes, _)| bytes.checked_add(1)).map(|from| Report::Sizes { from })
}

fn connections(
    server: &dyn ServerState,
    (from, end): (u64, Option<u64>),
    now: Seconds,
    lines: &mut Lines<'_>,
) -> Option<Report> {
    let (all, next) = server.connections(from, ENTRIES_AT_ONCE, now);
    let end = end.unwrap_or(next);
    for ConnectionReport { number, address, listener, state, idle } in &all {
        if *number >= end {
            return None;
        }
        let mut put = |name: &str, value: &str| lines.put(&format!("{number}:{name}"), value);
        put("addr", address);
        if let Some(listener) = listener {
            put("listen_addr", listener);
        }
        put("state", state);
        put("secs_since_last_cmd", &idle.to_string());
    }
    let last = is_part(all.len()).then(|| all.last()).flatten();
    last.and_then(|last| last.number.checked_add(1))
        .map(|from| Report::Connections { from, end: Some(end) })
}

fn prefixes(
    shards: &dyn Shards,
    from: Vec<u8>,
    now: Seconds,
    output: &mut Output,
) -> Option<Report> {
    let responses = shards.control(Control::Prefixes { from, count: ENTRIES_AT_ONCE as u32 }, now);
    let of = |response| match response {
        Response::Prefixes { counters, .. } => Some(counters),
        _ => None,
    };
    let mut all: BTreeMap<Vec<u8>, PrefixStats> =
        merged(responses.into_iter().filter_map(of), |stats, more| stats.add(&more));
    for (prefix, PrefixStats { gets, hits, sets, deletes }) in &all {
        output.push(b"PREFIX ");
        output.push(&escaped(prefix));
        let counters = format!(" get {gets} hit {hits} set {sets} del {deletes}\r\n");
        output.push(counters.as_bytes());
    }
    let last = is_part(all.len()).then(|| all.pop_last()).flatten();
    last.map(|(last, _)| Report::Prefixes { from: [last, vec![0]].concat() })
}

/// Whether more may follow `count` entries.
fn is_part(count: usize) -> bool {
    count == ENTRIES_AT_ONCE
}

/// A part of a key, with control characters as `%0D`: a line end within a key must not end the line.
fn escaped(key: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(key.len());
    for &byte in key {
        match byte.is_ascii_control() {
            true => escaped.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            false => escaped.push(byte),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
