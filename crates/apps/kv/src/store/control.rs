//! Requests on a whole store: flushes, counters, limits, the order of use, the crawler.

use crate::store::index::Store;
use crate::store::item::{Seconds, deadline};
use crate::store::lru::Segment;
use crate::store::prefixes::Prefixes;
use crate::store::stats::Stats;
use crate::store::wire::{Control, ItemsReport, Response};

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
                if let Some(prefixes) = &mut self.prefixes {
                    **prefixes = Prefixes::default();
                }
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
                let prefixes = self.prefixes.as_ref();
                let read = prefixes.map(|prefixes| prefixes.from(&from, count as usize));
                return Response::Prefixes(read);
            }
            Control::CountPrefixes(count) => {
                self.prefixes = count.then(|| self.prefixes.take().unwrap_or_default());
            }
            Control::MemoryLimit { bytes } => {
                self.set_memory_limit(usize::try_from(bytes).unwrap_or(usize::MAX), now);
            }
            Control::Lru => return Response::Lru(self.lru),
            Control::SetLru(settings) => self.set_lru(settings),
            Control::Crawl { from, count } => {
                return Response::Crawled { next: self.crawl(from, count, now) };
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
                self.remove(index);
            }
        }
        (next < end && count > 0).then_some(next)
    }
}
