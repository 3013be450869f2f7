//! Requests on a whole store: flushes, counters, limits, the order of use, the crawler.

use crate::store::index::Store;
use crate::store::item::{Seconds, deadline};
use crate::store::lru::{SEGMENTS, Segment};
use crate::store::reports::{ItemsReport, Setting};
use crate::store::stats::Stats;
use crate::store::wire::{Control, Response};

/// Items that an insertion looks at, to remove dead ones.
const CRAWLED_BY_INSERTION: u32 = 8;

impl Store {
    /// Executes a request that goes to every shard.
    pub fn control(&mut self, control: Control, now: Seconds) -> Response {
        self.apply_due_flush(now);
        match control {
            Control::FlushAll { exptime } => {
                self.stats.cmd_flush += 1;
                match deadline(exptime, now) {
                    at if at > now => self.flush_at = Some(at),
                    _ => self.flush(),
                }
            }
            Control::Stats => return Response::Stats(Box::new(self.stats())),
            Control::ResetStats => {
                self.stats = Stats::default();
                self.prefixes.reset();
                self.segment_hits = [0; SEGMENTS];
                (self.evicted_idle, self.evicted_with_deadline) = (0, 0);
            }
            Control::Items => return Response::Items(Box::new(self.items_report(now))),
            Control::Sizes { from, count } => {
                let sizes = self.sizes.as_ref();
                return Response::Sizes(sizes.map(|sizes| sizes.from(from, count as usize)));
            }
            Control::CountSizes(count) => {
                self.sizes = count.then(|| self.sizes.take().unwrap_or_default());
            }
            Control::Prefixes { from, count } => {
                let counters = self.prefixes.from(&from, count as usize);
                return Response::Prefixes { counters, counting: self.prefixes.counts };
            }
            Control::CountPrefixes(count) => self.prefixes.counts = count,
            Control::MemoryLimit { bytes } => {
                self.set_memory_limit(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            Control::Shrink { count } => {
                self.shrink(count as usize, now);
                if self.shrinks_to.is_some() {
                    return Response::Busy;
                }
            }
            Control::Pressure => return Response::Pressure(self.pressure(now)),
            Control::Donate { bytes } => self.donate(usize::try_from(bytes).unwrap_or(usize::MAX)),
            Control::Settings => return Response::Settings(self.settings),
            Control::Set(setting) => self.set(setting),
            Control::BeginCrawl if self.is_crawled => return Response::Busy,
            Control::BeginCrawl => {
                self.is_crawled = true;
                self.stats.lru_crawler_starts += 1;
            }
            Control::EndCrawl => self.is_crawled = false,
            Control::Lru => return Response::Lru(self.lru),
            Control::SetLru(settings) => self.set_lru(settings),
            Control::Crawl { .. } if !self.settings.crawls => {
                return Response::Crawled { next: None };
            }
            Control::Crawl { from, count } => {
                let next = self.crawl(from, count, now);
                let moved = self.compact(next.unwrap_or(0));
                return Response::Crawled { next: next.map(|_| moved) };
            }
        }
        Response::Done
    }

    fn items_report(&self, now: Seconds) -> ItemsReport {
        let segments = [Segment::Hot, Segment::Warm, Segment::Cold, Segment::Temporary];
        let age = |segment| self.items.oldest(segment).map(|index| self.items.get(index).idle(now));
        ItemsReport {
            counts: segments.map(|segment| self.items.count(segment) as u64),
            ages: segments.map(|segment| age(segment).unwrap_or(0)),
            bytes: self.memory as u64,
            evicted_idle: self.evicted_idle,
            evicted_with_deadline: self.evicted_with_deadline,
            hits: self.segment_hits,
        }
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::Verbosity(level) => self.settings.verbosity = level,
            Setting::Crawler(crawls) => self.settings.crawls = crawls,
            Setting::CrawlerItems(items) => self.settings.crawler_items = items,
            Setting::CrawlerSleep(micros) => self.settings.crawler_sleep = micros,
        }
    }

    /// Looks for dead items among the next few, unless there is no memory limit or crawls are
    /// disabled. A full round of all items takes an eighth as many insertions, so that dead items
    /// rarely stay until live ones have to be evicted.
    pub(super) fn crawl_a_little(&mut self, now: Seconds) {
        if self.share.is_some() && self.settings.crawls && !self.items.is_empty() {
            self.crawler = self.crawl(self.crawler, CRAWLED_BY_INSERTION, now).unwrap_or(0);
        }
    }

    /// Removes dead items among `count` from `from` on; where to go on, if there are more.
    fn crawl(&mut self, from: u32, count: u32, now: Seconds) -> Option<u32> {
        let end = self.items.end();
        let next = from.saturating_add(count).min(end);
        for index in from..next {
            let Some(item) = self.items.at(index) else { continue };
            self.stats.crawler_items_checked += 1;
            if self.is_dead(item, now) {
                self.stats.crawler_reclaimed += 1;
                self.take_out(index);
            }
        }
        (next < end && count > 0).then_some(next)
    }
}
