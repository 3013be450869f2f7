//! The reports of `stats` and its families, with memcached's names.
//!
//! The store has no slab classes, so reports by class have one, number 1.

use std::collections::BTreeMap;

use crate::memcached::admin::Report;
use crate::memcached::batch::{ServerState, Shards};
use crate::memcached::output::Output;
use crate::store::prefixes::PrefixStats;
use crate::store::{Control, DATA_BYTES_MAX, ItemsReport, LruSettings, Response, Seconds, Stats};

/// Bytes of a page of memcached's slabs.
const PAGE_BYTES: u64 = 1 << 20;

/// Lines of a report.
struct Lines<'a>(&'a mut Output);

impl Lines<'_> {
    fn put(&mut self, name: &str, value: impl ToString) {
        for part in ["STAT ", name, " ", &value.to_string(), "\r\n"] {
            self.0.push(part.as_bytes());
        }
    }
}

/// Writes a report with its end.
pub(super) fn write(
    report: Report,
    shards: &dyn Shards,
    server: &dyn ServerState,
    now: Seconds,
    output: &mut Output,
) {
    match report {
        Report::General => {
            let mut lines = Lines(output);
            server.stats(now).iter().for_each(|(name, value)| lines.put(name, value));
            total(shards, now).each().for_each(|(name, value)| lines.put(name, value));
        }
        Report::Settings => settings(shards, server, now, &mut Lines(output)),
        Report::Items => items(shards, now, &mut Lines(output)),
        Report::Slabs => slabs(&total(shards, now), &mut Lines(output)),
        Report::Sizes => sizes(shards, now, &mut Lines(output)),
        Report::Connections => {
            let mut lines = Lines(output);
            server.connections(now).iter().for_each(|(name, value)| lines.put(name, value));
        }
        Report::Prefixes => prefixes(shards, now, output),
    }
    output.push(b"END\r\n");
}

/// Writes whether items are counted by size now.
pub(super) fn write_sizes_status(counts: bool, output: &mut Output) {
    Lines(output).put("sizes_status", if counts { "enabled" } else { "disabled" });
    output.push(b"END\r\n");
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

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn settings(shards: &dyn Shards, server: &dyn ServerState, now: Seconds, lines: &mut Lines<'_>) {
    let lru = lru_settings(shards, now);
    let counts = |control, is: fn(&Response) -> bool| shards.control(control, now).iter().any(is);
    lines.put("maxbytes", total(shards, now).limit_maxbytes);
    server.settings().iter().for_each(|(name, value)| lines.put(name, value));
    lines.put("evictions", "on");
    lines.put("shutdown_command", "no");
    lines.put("stat_key_prefix", ":");
    let detail = counts(Control::Prefixes, |found| matches!(found, Response::Prefixes(Some(_))));
    lines.put("detail_enabled", yes(detail));
    lines.put("cas_enabled", "yes");
    lines.put("binding_protocol", "ascii");
    lines.put("auth_enabled_sasl", "no");
    lines.put("auth_enabled_ascii", "no");
    lines.put("item_size_max", DATA_BYTES_MAX);
    lines.put("slab_reassign", "no");
    lines.put("slab_automove", 0);
    lines.put("flush_enabled", "yes");
    lines.put("dump_enabled", "no");
    lines.put("lru_segmented", yes(lru.segmented));
    lines.put("hot_lru_pct", lru.hot_percent);
    lines.put("warm_lru_pct", lru.warm_percent);
    lines.put("hot_max_factor", format!("{:.2}", lru.hot_factor));
    lines.put("warm_max_factor", format!("{:.2}", lru.warm_factor));
    lines.put("temp_lru", yes(lru.temporary_ttl.is_some()));
    lines.put("temporary_ttl", lru.temporary_ttl.unwrap_or(61));
    let sizes = counts(Control::Sizes, |found| matches!(found, Response::Sizes(Some(_))));
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
    put("direct_reclaims", stats.evictions + stats.reclaimed);
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

fn sizes(shards: &dyn Shards, now: Seconds, lines: &mut Lines<'_>) {
    let mut all = None;
    for response in shards.control(Control::Sizes, now) {
        if let Response::Sizes(Some(sizes)) = response {
            let all: &mut BTreeMap<u32, u64> = all.get_or_insert_default();
            sizes.iter().for_each(|(bytes, count)| *all.entry(*bytes).or_default() += count);
        }
    }
    match all {
        Some(all) => {
            all.iter().for_each(|(bytes, count)| lines.put(&bytes.to_string(), count));
        }
        None => lines.put("sizes_status", "disabled"),
    }
}

fn prefixes(shards: &dyn Shards, now: Seconds, output: &mut Output) {
    let mut all: BTreeMap<Vec<u8>, PrefixStats> = BTreeMap::new();
    for response in shards.control(Control::Prefixes, now) {
        if let Response::Prefixes(Some(prefixes)) = response {
            for (prefix, counters) in prefixes {
                all.entry(prefix).or_default().add(&counters);
            }
        }
    }
    for (prefix, PrefixStats { gets, hits, sets, deletes }) in all {
        output.push(b"PREFIX ");
        output.push(&escaped(&prefix));
        let counters = format!(" get {gets} hit {hits} set {sets} del {deletes}\r\n");
        output.push(counters.as_bytes());
    }
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
