//! The order of use, and eviction: memcached's segmented LRU.
//!
//! Reading an item only marks it; the marks decide where it goes when it reaches the end of its
//! segment, so a read touches no other item.
//!
//! ```text
//!   stored --> Hot ---- read more than once ----> Warm <--.
//!               |                                  |  `---' read again
//!               `--------> Cold <------ unread ----'
//!                            `-- read more than once --> Warm
//!                            `-- memory is needed -----> evicted
//! ```
//!
//! Hot and Warm hold a share of the memory in use each (`lru tune`), and items that are not used for
//! long against the oldest of Cold leave them earlier. Items that expire within the time of
//! `lru temp_ttl` go to Temporary and stay there. With `lru mode flat` all items are in Cold, where
//! an item becomes the newest when it is read, at most once a minute.

use serde::{Deserialize, Serialize};

use crate::store::index::Store;
use crate::store::item::{Item, Mark, Seconds};
use crate::store::limit::{Pressure, Share};
use crate::store::lru::Segment;

/// Items that one insertion moves to another segment, at most. Each insertion adds one.
const MOVES: usize = 8;

/// In flat mode, an item becomes the newest at most once in so many seconds.
const FLAT_INTERVAL: u32 = 60;

/// How a store orders its items by use; memcached's command `lru` changes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LruSettings {
    /// Whether there are segments.
    pub segmented: bool,
    /// Share of Hot in the memory in use, in percent.
    pub hot_percent: u32,
    /// Share of Warm.
    pub warm_percent: u32,
    /// Items leave Hot when they are unused for longer than this part of the age of the oldest item
    /// of Cold.
    pub hot_factor: f64,
    /// The same, for Warm.
    pub warm_factor: f64,
    /// Items that expire within so many seconds go to Temporary.
    pub temporary_ttl: Option<u32>,
}

impl Default for LruSettings {
    fn default() -> Self {
        Self {
            segmented: true,
            hot_percent: 20,
            warm_percent: 40,
            hot_factor: 0.2,
            warm_factor: 2.0,
            temporary_ttl: None,
        }
    }
}

impl Store {
    /// The segment of a new item.
    pub(super) fn first_segment(&self, item: &Item, now: Seconds) -> Segment {
        let soon =
            |limit: u32| item.deadline() != 0 && item.deadline() <= now + Seconds::from(limit);
        match self.lru.temporary_ttl {
            Some(limit) if soon(limit) => Segment::Temporary,
            _ if self.lru.segmented => Segment::Hot,
            _ => Segment::Cold,
        }
    }

    /// Counts a read that has found the item.
    pub(super) fn count_hit(&mut self, index: u32) {
        self.stats.get_hits += 1;
        self.segment_hits[self.items.segment(index) as usize] += 1;
    }

    /// A read has used the item.
    pub(super) fn mark_read(&mut self, index: u32, now: Seconds) {
        let item = self.items.get_mut(index);
        if !self.lru.segmented {
            item.mark(Mark::Fetched);
            self.mark_changed(index, now);
        } else if !item.is_marked(Mark::Fetched) {
            item.mark(Mark::Fetched);
        } else if !item.is_marked(Mark::Active) {
            item.mark(Mark::Active);
            item.set_used(now);
            if self.items.segment(index) == Segment::Cold {
                self.items.get_mut(index).unmark(Mark::Active);
                self.place(index, Segment::Warm);
                self.stats.moves_to_warm += 1;
            }
        }
    }

    /// A write in place, or an attempt to add the item, has used it.
    pub(super) fn mark_changed(&mut self, index: u32, now: Seconds) {
        let item = self.items.get_mut(index);
        if self.lru.segmented {
            item.set_used(now);
        } else if item.idle(now) > FLAT_INTERVAL {
            item.set_used(now);
            self.place(index, self.items.segment(index));
        }
    }

    /// Makes an item the newest of a segment. Without a memory limit the order is not needed, and
    /// reads avoid touching the cache lines of neighbours.
    fn place(&mut self, index: u32, to: Segment) {
        if self.share.is_some() {
            let from = self.items.segment(index);
            let bytes = self.items.get(index).memory();
            self.segment_bytes[from as usize] -= bytes;
            self.segment_bytes[to as usize] += bytes;
            self.items.place(index, to);
        }
    }

    /// Makes room: moves items that are due to other segments, and evicts the least recently used
    /// until the limit has memory for the others, but never `keep`. Of what is beyond the limit since that
    /// was lowered, it evicts a few items. Returns where `keep` is then.
    pub(super) fn make_room(&mut self, keep: u32, now: Seconds) -> u32 {
        if self.share.is_none() {
            return keep;
        }
        self.balance(now);
        let before = self.memory;
        while self.share.as_mut().is_some_and(|share| !share.try_cover(self.memory))
            && self.evict_oldest(keep, now)
        {
            self.stats.direct_reclaims += 1;
        }
        self.evicted_bytes += (before - self.memory) as u64;
        if let Some(share) = &mut self.share {
            share.cover_beyond_limit(self.memory);
            share.return_unused(self.memory);
        }
        self.evict_some(MOVES, keep, now);
        self.compact(keep)
    }

    /// Evicts up to `count` of the items that the store is to evict since its limit was lowered, or
    /// another store needs the memory.
    pub(super) fn shrink(&mut self, count: usize, now: Seconds) {
        self.evict_some(count, u32::MAX, now);
        self.compact(0);
    }

    fn evict_some(&mut self, count: usize, keep: u32, now: Seconds) {
        let Some(target) = self.shrinks_to else { return };
        let mut left = count;
        while self.memory > target && left > 0 && self.evict_oldest(keep, now) {
            left -= 1;
        }
        // With items to spare nothing is left to evict.
        if left > 0 || self.memory <= target {
            self.shrinks_to = None;
            if let Some(share) = &mut self.share {
                share.return_all_unused(self.memory);
            }
        }
    }

    /// The item that is due next, besides `keep`, and its segment.
    fn next_to_evict(&self, keep: u32) -> Option<(Segment, u32)> {
        let candidates = [Segment::Cold, Segment::Hot, Segment::Warm, Segment::Temporary];
        candidates.into_iter().find_map(|segment| {
            let oldest = self.items.oldest(segment).filter(|&oldest| oldest != keep)?;
            Some((segment, oldest))
        })
    }

    /// Evicts the item that is due next, as in memcached: the oldest of Cold, or of Hot, from where it
    /// leaves by way of Cold unless it was read more than once. Whether there was one besides `keep`.
    fn evict_oldest(&mut self, keep: u32, now: Seconds) -> bool {
        loop {
            let Some((segment, oldest)) = self.next_to_evict(keep) else { return false };
            if segment == Segment::Hot && self.lru.segmented && self.leave(segment, oldest) {
                continue;
            }
            self.evict(oldest, now);
            return true;
        }
    }

    /// Moves an item that is due to where it belongs; whether that is Warm.
    fn leave(&mut self, segment: Segment, index: u32) -> bool {
        let item = self.items.get_mut(index);
        if !item.is_marked(Mark::Active) {
            self.place(index, Segment::Cold);
            self.stats.moves_to_cold += 1;
            return false;
        }
        item.unmark(Mark::Active);
        self.place(index, Segment::Warm);
        match segment {
            Segment::Warm => self.stats.moves_within_lru += 1,
            _ => self.stats.moves_to_warm += 1,
        }
        true
    }

    fn evict(&mut self, index: u32, now: Seconds) {
        let item = self.items.get(index);
        let unfetched = u64::from(!item.is_marked(Mark::Fetched));
        if self.is_dead(item, now) {
            self.stats.reclaimed += 1;
            self.stats.expired_unfetched += unfetched;
        } else {
            self.stats.evictions += 1;
            self.stats.evicted_unfetched += unfetched;
            self.stats.evicted_active += u64::from(item.is_marked(Mark::Active));
            self.evicted_idle = item.idle(now);
            self.evicted_with_deadline += u64::from(item.deadline() != 0);
        }
        self.take_out(index);
    }

    /// Moves the oldest items of Hot and Warm to where they belong, if these hold too much or too
    /// old ones.
    fn balance(&mut self, now: Seconds) {
        if !self.lru.segmented {
            return;
        }
        let LruSettings { hot_percent, warm_percent, hot_factor, warm_factor, .. } = self.lru;
        for (segment, percent, factor) in
            [(Segment::Hot, hot_percent, hot_factor), (Segment::Warm, warm_percent, warm_factor)]
        {
            let share = ((self.memory as u64).saturating_mul(percent.into()) / 100) as usize;
            let oldest_cold = self.items.oldest(Segment::Cold).map(|cold| self.items.get(cold));
            let most_idle =
                oldest_cold.map_or(u32::MAX, |cold| (f64::from(cold.idle(now)) * factor) as u32);
            for _ in 0..MOVES {
                let Some(oldest) = self.items.oldest(segment) else { break };
                let item = self.items.get(oldest);
                let is_due = self.segment_bytes[segment as usize] > share
                    || (item.idle(now) > most_idle && most_idle > 0);
                if !is_due {
                    break;
                }
                self.leave(segment, oldest);
            }
        }
    }

    /// Changes the order of use. Items of segments that are not used any more leave them one by one,
    /// as their memory is needed.
    pub(super) fn set_lru(&mut self, settings: LruSettings) {
        self.lru = settings;
    }

    /// Changes the memory limit of all stores that share it, to `bytes` for each, if there was one before:
    /// without one, the order of use is not known. Items beyond it are evicted by
    /// [`Store::shrink`], and a few by each insertion, because to evict all at once would take long.
    pub(super) fn set_memory_limit(&mut self, bytes: usize) {
        if let Some(share) = &mut self.share {
            self.shrinks_to = share.set_limit(bytes, self.memory);
        }
    }

    /// What the store says of its need for memory, since it was last asked.
    pub(super) fn pressure(&mut self, now: Seconds) -> Pressure {
        let next = self.next_to_evict(u32::MAX).map(|(_, index)| self.items.get(index));
        let share = self.share.as_ref().filter(|_| self.shrinks_to.is_none());
        Pressure {
            bytes: self.memory as u64,
            evicted: std::mem::take(&mut self.evicted_bytes),
            idle: next.map_or(0, |item| item.idle(now)),
            exceeded: share.map_or(0, Share::exceeded) as u64,
        }
    }

    /// Makes the store shrink by `bytes`, as after a lowered limit.
    pub(super) fn donate(&mut self, bytes: usize) {
        let target = self.memory.saturating_sub(bytes);
        self.shrinks_to = Some(self.shrinks_to.map_or(target, |earlier| earlier.min(target)));
    }
}
