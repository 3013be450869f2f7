//! The operations of a store, one for each request.

use crate::store::index::Store;
use crate::store::item::{DATA_BYTES_MAX, Item, KEY_BYTES_MAX, Seconds, deadline};
use crate::store::number::{Decimal, unsigned};
use crate::store::stats::Stats;
use crate::store::wire::{Control, Direction, Request, Response, Verb};

impl Store {
    /// Executes a request on one key at the time `now`.
    pub fn execute(&mut self, request: Request, now: Seconds) -> Response {
        self.apply_due_flush(now);
        match request {
            Request::Get { key, max_bytes } => self.get(&key, max_bytes, now),
            Request::Touch { key, exptime } => self.touch(&key, exptime, now),
            Request::GetAndTouch { key, exptime, max_bytes } => {
                self.get_and_touch(&key, exptime, max_bytes, now)
            }
            Request::Store { verb, key, flags, exptime, data } => {
                self.store(verb, &key, flags, exptime, &data, now)
            }
            Request::Delete { key } => self.delete(&key, now),
            Request::Discard { key } => {
                if let Some(index) = self.live(self.hash(&key), &key, now) {
                    self.remove(index);
                }
                Response::Done
            }
            Request::Arithmetic { key, direction, delta } => {
                self.arithmetic(&key, direction, delta, now)
            }
        }
    }

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
                Response::Done
            }
            Control::Stats => Response::Stats(Box::new(self.stats())),
            Control::ResetStats => {
                self.stats = Stats::default();
                Response::Done
            }
        }
    }

    fn get(&mut self, key: &[u8], max_bytes: u32, now: Seconds) -> Response {
        let hash = self.hash(key);
        if let Some(large) = self.larger_than(max_bytes, hash, key, now) {
            return large;
        }
        self.stats.cmd_get += 1;
        self.count_dead(hash, key, now);
        let found = self.live(hash, key, now);
        self.read_response(found)
    }

    /// The response to a read of a live item whose data is larger than `max_bytes`.
    fn larger_than(&self, max_bytes: u32, hash: u32, key: &[u8], now: Seconds) -> Option<Response> {
        let item = self.items.get(self.find(hash, key)?);
        // Lossless: items have at most DATA_BYTES_MAX bytes of data.
        let bytes = item.data().len() as u32;
        (bytes > max_bytes && !self.is_dead(item, now)).then_some(Response::Large { bytes })
    }

    fn get_and_touch(
        &mut self,
        key: &[u8],
        exptime: i32,
        max_bytes: u32,
        now: Seconds,
    ) -> Response {
        if let Some(large) = self.larger_than(max_bytes, self.hash(key), key, now) {
            return large;
        }
        self.stats.cmd_get += 1;
        let found = self.set_expiry(key, exptime, now);
        self.read_response(found)
    }

    /// The response to a read, given the item that it found.
    fn read_response(&mut self, found: Option<u32>) -> Response {
        match found {
            Some(index) => {
                self.stats.get_hits += 1;
                self.value(index)
            }
            None => {
                self.stats.get_misses += 1;
                Response::Miss
            }
        }
    }

    fn touch(&mut self, key: &[u8], exptime: i32, now: Seconds) -> Response {
        match self.set_expiry(key, exptime, now) {
            Some(index) => {
                self.mark_used(index);
                Response::Touched
            }
            None => Response::NotFound,
        }
    }

    fn set_expiry(&mut self, key: &[u8], exptime: i32, now: Seconds) -> Option<u32> {
        self.stats.cmd_touch += 1;
        let index = self.live(self.hash(key), key, now);
        match index {
            Some(index) => {
                self.stats.touch_hits += 1;
                self.items.get_mut(index).set_deadline(deadline(exptime, now));
            }
            None => self.stats.touch_misses += 1,
        }
        index
    }

    fn value(&mut self, index: u32) -> Response {
        self.mark_used(index);
        let item = self.items.get_mut(index);
        item.fetched = true;
        Response::Value { flags: item.flags, cas: item.cas, data: item.shared() }
    }

    fn delete(&mut self, key: &[u8], now: Seconds) -> Response {
        match self.live(self.hash(key), key, now) {
            Some(index) => {
                self.remove(index);
                self.stats.delete_hits += 1;
                Response::Deleted
            }
            None => {
                self.stats.delete_misses += 1;
                Response::NotFound
            }
        }
    }

    /// Writes an item, as [`Request::Store`] does.
    pub fn store(
        &mut self,
        verb: Verb,
        key: &[u8],
        flags: u32,
        exptime: i32,
        data: &[u8],
        now: Seconds,
    ) -> Response {
        self.stats.cmd_set += 1;
        if key.len() > KEY_BYTES_MAX || data.len() > DATA_BYTES_MAX {
            return Response::TooLarge;
        }
        let hash = self.hash(key);
        let found = self.live(hash, key, now);
        match (verb, found) {
            (Verb::Append | Verb::Prepend, Some(index)) => {
                return self.extend(index, data, verb == Verb::Prepend);
            }
            (Verb::Add, Some(index)) => {
                // As in memcached, the attempt counts as a use of the item.
                self.mark_used(index);
                return Response::NotStored;
            }
            (Verb::Replace | Verb::Append | Verb::Prepend, None) => return Response::NotStored,
            (Verb::Cas(_), None) => {
                self.stats.cas_misses += 1;
                return Response::NotFound;
            }
            (Verb::Cas(expected), Some(index)) if self.items.get(index).cas != expected => {
                self.stats.cas_badval += 1;
                return Response::Exists;
            }
            (Verb::Cas(_), Some(_)) => self.stats.cas_hits += 1,
            (Verb::Set, _) | (Verb::Add, None) | (Verb::Replace, Some(_)) => {}
        }
        if !self.fits_limit(key.len() + data.len()) {
            // The old value must not be served after an attempt to replace it.
            if let Some(index) = found {
                self.remove(index);
            }
            return Response::OutOfMemory;
        }
        let cas = self.next_cas();
        let describe = |item: &mut Item| {
            (item.flags, item.cas) = (flags, cas);
            item.set_deadline(deadline(exptime, now));
            item.fetched = false;
        };
        match found {
            Some(index) => self.resize(index, |item| {
                item.set_data(data);
                describe(item);
            }),
            None => {
                let mut item = Item::new(key, hash, data);
                describe(&mut item);
                self.insert(item);
            }
        }
        self.stats.total_items += 1;
        Response::Stored
    }

    fn extend(&mut self, index: u32, data: &[u8], before: bool) -> Response {
        let item = self.items.get(index);
        let length = item.data().len() + data.len();
        if length > DATA_BYTES_MAX || !self.fits_limit(item.key().len() + length) {
            // As in memcached, which has no separate error for this.
            return Response::NotStored;
        }
        let cas = self.next_cas();
        self.resize(index, |item| {
            item.extend_data(data, before);
            item.cas = cas;
        });
        self.stats.total_items += 1;
        Response::Stored
    }

    fn arithmetic(
        &mut self,
        key: &[u8],
        direction: Direction,
        delta: u64,
        now: Seconds,
    ) -> Response {
        let found = self.live(self.hash(key), key, now);
        let Some(index) = found else {
            match direction {
                Direction::Increment => self.stats.incr_misses += 1,
                Direction::Decrement => self.stats.decr_misses += 1,
            }
            return Response::NotFound;
        };
        let data = self.items.get(index).data();
        let Some(before) = unsigned(data) else { return Response::NotNumeric };
        let (after, hits) = match direction {
            Direction::Increment => (before.wrapping_add(delta), &mut self.stats.incr_hits),
            Direction::Decrement => (before.saturating_sub(delta), &mut self.stats.decr_hits),
        };
        *hits += 1;
        let digits = Decimal::new(after);
        let digits = digits.as_bytes();
        if digits.len() > data.len() && !self.fits_limit(key.len() + digits.len()) {
            return Response::OutOfMemory;
        }
        let cas = self.next_cas();
        self.resize(index, |item| {
            if digits.len() <= item.data().len() {
                // As in memcached, a shorter number is padded with spaces to the old length.
                let target = item.data_mut();
                target.fill(b' ');
                target[..digits.len()].copy_from_slice(digits);
            } else {
                item.set_data(digits);
            }
            item.cas = cas;
        });
        Response::Number(after)
    }
}
