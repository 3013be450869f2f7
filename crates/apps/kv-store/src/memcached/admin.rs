//! Commands on the server or the whole store: flushes, statistics, settings.
//!
//! What memcached 1.6.18 has and this server has not:
//! - Slab classes: reports have one class, `slabs automove` is accepted without effect, and
//!   `slabs reassign` is refused, as by memcached without `slab_reassign`.
//! - Logs and dumps of keys: `watch`, `lru_crawler metadump` and `stats cachedump` are refused, as by
//!   memcached with the options `-W` and `-X`.
//! - External storage: `extstore` is accepted without effect, as by memcached without `ext_path`.
//! - TLS, passwords, UDP and `shutdown`, which memcached has only on request.
//! - The binary protocol, on which memcached is asked by the first byte of a connection: such a
//!   connection is closed.

use crate::memcached::float::float;
use crate::store::Setting;
use crate::store::number::{signed, unsigned};

const OK: &str = "OK\r\n";
const ERROR: &str = "ERROR\r\n";
const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
const BAD_CLASS: &str = "BADCLASS invalid class id\r\n";

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Slab classes of memcached: numbers from here on are invalid.
const CLASSES_MAX: u64 = 64;

/// A command on the server or the whole store.
#[derive(Clone, Debug, PartialEq)]
pub enum Admin {
    /// Invalidate all items.
    FlushAll {
        /// The time, in the format of an expiry.
        exptime: i32,
    },
    /// Report something.
    Report(Report),
    /// Reset the counters.
    ResetStats,
    /// Begin to count items by size, or stop.
    CountSizes(bool),
    /// Begin to count by prefix, or stop.
    CountPrefixes(bool),
    /// Change the memory limit.
    MemoryLimit {
        /// Of all shards together.
        bytes: u64,
    },
    /// Change how items are ordered by use.
    Lru(LruChange),
    /// Change a setting of the server.
    Set(Setting),
    /// Remove dead items.
    Crawl,
}

/// What `stats` reports. Long reports come in parts, each of which begins at an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The counters.
    General,
    /// The settings.
    Settings,
    /// The segments.
    Items,
    /// The memory.
    Slabs,
    /// Items by size.
    Sizes {
        /// The least size.
        from: u32,
    },
    /// The connections.
    Connections {
        /// The least number of one.
        from: u64,
        /// More than the largest number when the report began, unless it begins now: connections that
        /// come later are not in it.
        end: Option<u64>,
    },
    /// Counters by prefix.
    Prefixes {
        /// The least prefix.
        from: Vec<u8>,
    },
}

/// A change of how items are ordered by use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LruChange {
    /// With segments, or without.
    Segmented(bool),
    /// The shares and ages of the segments.
    Tune {
        /// Share of Hot in percent.
        hot_percent: u32,
        /// Share of Warm in percent.
        warm_percent: u32,
        /// Age of Hot, as a part of that of Cold.
        hot_factor: f64,
        /// Age of Warm.
        warm_factor: f64,
    },
    /// Items that expire within so many seconds go to a segment of their own.
    TemporaryTtl(Option<u32>),
}

/// Parses a command; `None` if there is no such command, and the response if it is refused.
pub(super) fn parse(
    name: &[u8],
    arguments: &[&[u8]],
    noreply: bool,
) -> Option<Result<Admin, &'static str>> {
    let quietly = |text| if noreply { "" } else { text };
    let parsed = match (name, arguments) {
        (b"verbosity", [level] | [level, _]) => match unsigned(level) {
            Some(level) => Ok(Admin::Set(Setting::Verbosity((level as u32).min(2)))),
            None => Err(quietly(BAD_FORMAT)),
        },
        (b"cache_memlimit", [limit] | [limit, _]) => memory_limit(limit).map_err(quietly),
        (b"lru", [_, ..]) => lru(arguments).map_err(quietly),
        (b"lru_crawler", _) => crawler(arguments),
        (b"slabs", _) => Err(quietly(slabs(arguments))),
        (b"extstore", _) => Err(quietly(extstore(arguments))),
        (b"refresh_certs", _) => Err("Error TLS not enabled\r\n"),
        (b"watch", _) => Err(quietly("CLIENT_ERROR watch commands not allowed\r\n")),
        (b"shutdown", _) => Err("ERROR: shutdown not enabled\r\n"),
        _ => return None,
    };
    Some(parsed)
}

fn slabs(arguments: &[&[u8]]) -> &'static str {
    match arguments {
        [b"reassign", from, to] => match (signed(from), signed(to)) {
            (Some(_), Some(_)) => "CLIENT_ERROR slab reassignment disabled\r\n",
            _ => BAD_FORMAT,
        },
        [b"automove", mode] | [b"automove", mode, _] => {
            match unsigned(mode).map(|mode| mode as u32) {
                Some(0..=2) => OK,
                Some(_) => ERROR,
                None => BAD_FORMAT,
            }
        }
        _ => ERROR,
    }
}

fn extstore(arguments: &[&[u8]]) -> &'static str {
    let is_number = |text| unsigned(text).is_some();
    let is_valid = match arguments {
        [b"free_memchunks", class, count, ..] => {
            unsigned(class).is_some_and(|class| class < CLASSES_MAX) && is_number(count)
        }
        [
            b"item_size" | b"item_age" | b"low_ttl" | b"recache_rate" | b"compact_under"
            | b"drop_under" | b"max_sleep" | b"drop_unread",
            value,
            ..,
        ] => is_number(value),
        [b"max_frag", value, ..] => float(value).is_some(),
        _ => false,
    };
    if is_valid { OK } else { ERROR }
}

/// Parses the arguments of `stats`.
pub(super) fn stats(arguments: &[&[u8]]) -> Result<Admin, &'static str> {
    let Some((&family, rest)) = arguments.split_first() else {
        return Ok(Admin::Report(Report::General));
    };
    match (family, rest) {
        (b"reset", _) => Ok(Admin::ResetStats),
        (b"settings", _) => Ok(Admin::Report(Report::Settings)),
        (b"items", _) => Ok(Admin::Report(Report::Items)),
        (b"slabs", _) => Ok(Admin::Report(Report::Slabs)),
        (b"sizes", _) => Ok(Admin::Report(Report::Sizes { from: 0 })),
        (b"sizes_enable", _) => Ok(Admin::CountSizes(true)),
        (b"sizes_disable", _) => Ok(Admin::CountSizes(false)),
        (b"conns", _) => Ok(Admin::Report(Report::Connections { from: 0, end: None })),
        (b"detail", [b"on", ..]) => Ok(Admin::CountPrefixes(true)),
        (b"detail", [b"off", ..]) => Ok(Admin::CountPrefixes(false)),
        (b"detail", [b"dump", ..]) => Ok(Admin::Report(Report::Prefixes { from: Vec::new() })),
        (b"detail", _) => Err("CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
        (b"extstore", _) => Err("END\r\n"),
        (b"cachedump", _) => Err("CLIENT_ERROR stats cachedump not allowed\r\n"),
        _ => Err(ERROR),
    }
}

fn memory_limit(limit: &[u8]) -> Result<Admin, &'static str> {
    match unsigned(limit).map(|limit| limit as u32) {
        None => Err(ERROR),
        Some(..8) => Err("MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"),
        Some(1_000_000_001..) => {
            Err("MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n")
        }
        Some(limit) => Ok(Admin::MemoryLimit { bytes: u64::from(limit) * MIB }),
    }
}

fn lru(arguments: &[&[u8]]) -> Result<Admin, &'static str> {
    let change = match arguments {
        [b"tune", hot, warm, hot_factor, warm_factor, ..] => {
            let percent = |text| unsigned(text).map(|percent| percent as u32);
            let (Some(hot_percent), Some(warm_percent), Some(hot_factor), Some(warm_factor)) =
                (percent(hot), percent(warm), float(hot_factor), float(warm_factor))
            else {
                return Err(ERROR);
            };
            // As in memcached, in 32 bits.
            if hot_percent.wrapping_add(warm_percent) > 80 {
                return Err("ERROR hot and warm pcts must not exceed 80\r\n");
            }
            if hot_factor <= 0.0 || warm_factor <= 0.0 {
                return Err("ERROR hot/warm age factors must be greater than 0\r\n");
            }
            LruChange::Tune { hot_percent, warm_percent, hot_factor, warm_factor }
        }
        [b"mode", b"flat", ..] => LruChange::Segmented(false),
        [b"mode", b"segmented", ..] => LruChange::Segmented(true),
        [b"temp_ttl", ttl, ..] => match signed(ttl).map(|ttl| ttl as i32) {
            Some(ttl) => LruChange::TemporaryTtl(u32::try_from(ttl).ok()),
            None => return Err(ERROR),
        },
        _ => return Err(ERROR),
    };
    Ok(Admin::Lru(change))
}

fn crawler(arguments: &[&[u8]]) -> Result<Admin, &'static str> {
    match arguments {
        [b"enable"] => Ok(Admin::Set(Setting::Crawler(true))),
        [b"disable"] => Ok(Admin::Set(Setting::Crawler(false))),
        [b"crawl", b"all"] => Ok(Admin::Crawl),
        [b"crawl", b"hash"] => Err("ERROR an unknown error happened\r\n"),
        [b"crawl", classes] => {
            // All items are of one class, whichever is named.
            let is_class = |class: &[u8]| matches!(unsigned(class), Some(1..CLASSES_MAX));
            let mut named = classes.split(|&byte| byte == b',').filter(|class| !class.is_empty());
            if named.clone().next().is_none() {
                Err("NOTSTARTED no items to crawl\r\n")
            } else if named.all(is_class) {
                Ok(Admin::Crawl)
            } else {
                Err(BAD_CLASS)
            }
        }
        [b"metadump", _] => Err("ERROR metadump not allowed\r\n"),
        [b"tocrawl", count] => match unsigned(count) {
            Some(count) => Ok(Admin::Set(Setting::CrawlerItems(count as u32))),
            None => Err(BAD_FORMAT),
        },
        [b"sleep", micros] => match unsigned(micros).map(|micros| micros as u32) {
            Some(1_000_001..) => Err("CLIENT_ERROR sleep must be one second or less\r\n"),
            Some(micros) => Ok(Admin::Set(Setting::CrawlerSleep(micros))),
            None => Err(BAD_FORMAT),
        },
        _ => Err(ERROR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Result<Admin, &'static str>> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        parse(words[0], &words[1..], words.last() == Some(&&b"noreply"[..]))
    }

    #[test]
    fn settings_are_checked() {
        let mib = |limit: u64| Some(Ok(Admin::MemoryLimit { bytes: limit << 20 }));
        assert_eq!(parsed("cache_memlimit 64"), mib(64));
        assert!(
            matches!(parsed("cache_memlimit 7"), Some(Err(text)) if text.contains("TOO_SMALL"))
        );
        assert_eq!(parsed("cache_memlimit x noreply"), Some(Err("")));
        assert_eq!(
            parsed("lru tune 10 80 1 1"),
            Some(Err("ERROR hot and warm pcts must not exceed 80\r\n"))
        );
        assert_eq!(parsed("lru temp_ttl -1"), Some(Ok(Admin::Lru(LruChange::TemporaryTtl(None)))));
        assert_eq!(parsed("lru_crawler crawl 1,x"), Some(Err(BAD_CLASS)));
        assert_eq!(parsed("lru_crawler crawl 1,,3"), Some(Ok(Admin::Crawl)));
        assert_eq!(parsed("slabs automove 1"), Some(Err(OK)));
        assert_eq!(parsed("slabs automove x"), Some(Err(BAD_FORMAT)));
        assert_eq!(parsed("slabs automove 1 noreply"), Some(Err("")));
        let verbosity = Admin::Set(Setting::Verbosity(2));
        assert_eq!(parsed("verbosity 9"), Some(Ok(verbosity)));
    }
}
