//! The operations of memcached's meta commands.

use crate::store::index::Store;
use crate::store::item::{Item, Mark, Seconds, deadline};
use crate::store::number::Decimal;
use crate::store::ops::larger_than;
use crate::store::reports::MetaItem;
use crate::store::wire::{Direction, Response, Step};

impl Store {
    pub(super) fn meta_get(
        &mut self,
        key: &[u8],
        binary_key: bool,
        max_bytes: Option<u32>,
        no_update: bool,
        steps: &[Step],
        now: Seconds,
    ) -> Response {
        let hash = self.hash(key);
        let found = self.live_for_read(hash, key, now);
        if let (Some(index), Some(max_bytes)) = (found, max_bytes)
            && let Some(large) = larger_than(max_bytes, self.items.get(index))
        {
            return large;
        }
        let is_created = found.is_none();
        let vivified = steps.iter().find_map(|step| match step {
            Step::Vivify(exptime) => Some(*exptime),
            _ => None,
        });
        let index = match (found, vivified) {
            (Some(index), _) => index,
            (None, Some(exptime)) if self.fits_limit(key.len()) => {
                let mut item = Item::new(key, hash, &[]);
                item.cas = self.next_cas();
                item.set_deadline(deadline(exptime, now));
                if binary_key {
                    item.mark(Mark::BinaryKey);
                }
                self.stats.total_items += 1;
                self.insert(item, now)
            }
            (None, _) => {
                self.stats.cmd_get += 1;
                self.stats.get_misses += 1;
                return Response::Miss;
            }
        };
        let mut is_won = is_created;
        let (mut ttl, mut touches) = (None, false);
        for step in steps {
            let item = self.items.get_mut(index);
            match step {
                Step::SetExpiry(exptime) => {
                    touches = true;
                    item.set_deadline(deadline(*exptime, now));
                }
                Step::Recache(exptime) => {
                    let is_due = item.deadline() != 0 && item.deadline() < deadline(*exptime, now);
                    is_won |= is_due && !is_created && !item.is_marked(Mark::TokenSent);
                }
                Step::Ttl => ttl = Some(item.ttl(now)),
                Step::Vivify(_) => {}
            }
        }
        if touches {
            self.stats.cmd_touch += 1;
            self.stats.touch_hits += 1;
        } else {
            self.stats.cmd_get += 1;
            self.count_hit(index);
        }
        let item = self.items.get_mut(index);
        let (is_stale, is_token_sent) =
            (item.is_marked(Mark::Stale), item.is_marked(Mark::TokenSent));
        is_won |= is_stale && !is_token_sent;
        if is_won {
            item.mark(Mark::TokenSent);
        }
        let data = max_bytes.map(|_| item.shared());
        let ttl = ttl.unwrap_or_else(|| item.ttl(now));
        let read = MetaItem { is_won, is_stale, is_token_sent, ttl, data, ..describe(item, now) };
        if !no_update {
            self.mark_read(index, now);
        }
        Response::Meta(Box::new(read))
    }

    pub(super) fn meta_delete(
        &mut self,
        key: &[u8],
        compare: Option<u64>,
        invalidate: Option<Option<i32>>,
        now: Seconds,
    ) -> Response {
        let Some(index) = self.live(self.hash(key), key, now) else {
            self.stats.delete_misses += 1;
            return Response::NotFound;
        };
        if compare.is_some_and(|cas| cas != self.items.get(index).cas) {
            self.stats.delete_misses += 1;
            return Response::Exists;
        }
        match invalidate {
            Some(exptime) => {
                let cas = self.next_cas();
                let item = self.items.get_mut(index);
                if let Some(exptime) = exptime {
                    item.set_deadline(deadline(exptime, now));
                }
                item.mark(Mark::Stale);
                // The next client that reads the item may recache it.
                item.unmark(Mark::TokenSent);
                item.cas = cas;
            }
            None => {
                self.remove(index);
                self.stats.delete_hits += 1;
            }
        }
        Response::Deleted
    }

    pub(super) fn meta_arithmetic(
        &mut self,
        key: &[u8],
        (direction, delta): (Direction, u64),
        compare: u64,
        initial: u64,
        steps: &[Step],
        now: Seconds,
    ) -> Response {
        let vivifies = steps.iter().any(|step| matches!(step, Step::Vivify(_)));
        let exists = self.live(self.hash(key), key, now).is_some();
        let (index, number) = if vivifies && !exists {
            if !self.fits_limit(key.len() + Decimal::new(initial).as_bytes().len()) {
                return Response::OutOfMemory;
            }
            let mut item = Item::new(key, self.hash(key), Decimal::new(initial).as_bytes());
            item.cas = self.next_cas();
            self.stats.total_items += 1;
            (self.insert(item, now), initial)
        } else {
            match self.arithmetic(key, direction, delta, compare, now) {
                Ok(changed) => changed,
                Err(refused) => return refused,
            }
        };
        let item = self.items.get_mut(index);
        let mut ttl = None;
        for step in steps {
            match step {
                Step::SetExpiry(exptime) => item.set_deadline(deadline(*exptime, now)),
                Step::Vivify(exptime) if !exists => item.set_deadline(deadline(*exptime, now)),
                Step::Vivify(_) | Step::Recache(_) => {}
                Step::Ttl => ttl = Some(item.ttl(now)),
            }
        }
        let ttl = ttl.unwrap_or_else(|| item.ttl(now));
        Response::MetaNumber { number, cas: item.cas, ttl, is_created: !exists }
    }

    pub(super) fn meta_debug(&mut self, key: &[u8], now: Seconds) -> Response {
        self.stats.cmd_meta += 1;
        match self.live(self.hash(key), key, now) {
            Some(index) => Response::Meta(Box::new(describe(self.items.get(index), now))),
            None => Response::Miss,
        }
    }
}

/// The circumstances of an item.
fn describe(item: &Item, now: Seconds) -> MetaItem {
    MetaItem {
        flags: item.flags,
        cas: item.cas,
        // Lossless: items have at most 1 MiB of data.
        bytes: item.data().len() as u32,
        ttl: item.ttl(now),
        idle: item.idle(now),
        is_fetched: item.is_marked(Mark::Fetched),
        is_binary_key: item.is_marked(Mark::BinaryKey),
        is_won: false,
        is_stale: item.is_marked(Mark::Stale),
        is_token_sent: item.is_marked(Mark::TokenSent),
        memory: item.memory() as u32,
        data: None,
    }
}
