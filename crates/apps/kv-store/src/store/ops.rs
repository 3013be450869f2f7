//! The operations of a store, one for each request.

use trust_core::Step;

use crate::store::index::Store;
use crate::store::item::{Item, KEY_BYTES_MAX, Mark, Seconds, deadline, is_too_large};
use crate::store::number::{Decimal, unsigned};
use crate::store::wire::{Direction, MetaStore, Refusal, Request, Response, Verb};

/// Requests whose memory is asked for together.
const AHEAD: usize = 8;

impl Store {
    /// Executes requests one after the other at the time `now`. The memory that the next ones will touch
    /// is asked for before they are executed.
    pub fn execute_all(&mut self, requests: Vec<Request>, now: Seconds) -> Vec<Response> {
        let mut responses = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter();
        while !requests.as_slice().is_empty() {
            let next = requests.as_slice();
            let mut hashes = [0; AHEAD];
            for (hash, request) in hashes.iter_mut().zip(next) {
                *hash = self.hash(request.key());
            }
            for step in [Step::First, Step::Second] {
                hashes.iter().take(next.len()).for_each(|&hash| self.prefetch(hash, step));
            }
            let next = requests.by_ref().take(AHEAD);
            responses.extend(next.map(|request| self.execute(request, now)));
        }
        responses
    }

    /// Executes a request on one key at the time `now`.
    pub fn execute(&mut self, request: Request, now: Seconds) -> Response {
        // Requests of other hosts may have keys that no client of theirs can have sent.
        if request.key().len() > KEY_BYTES_MAX {
            return Response::TooLarge;
        }
        self.apply_due_flush(now);
        match request {
            Request::Get { key, max_bytes } => self.get(&key, max_bytes, now),
            Request::GetAgain { key, max_bytes } => match self.peek(&key, now) {
                Some(item) => larger_than(max_bytes, item).unwrap_or_else(|| value(item)),
                None => Response::Miss,
            },
            Request::Touch { key, exptime } => self.touch(&key, exptime, now),
            Request::GetAndTouch { key, exptime, max_bytes } => {
                self.get_and_touch(&key, exptime, max_bytes, now)
            }
            Request::Store { verb, key, flags, exptime, data, meta } => {
                let stored = self.write(verb, &key, (flags, exptime), &data, meta, now);
                match (stored, meta) {
                    (Ok(_), None) => Response::Stored,
                    (Ok(index), Some(_)) => Response::MetaStored { cas: self.items.get(index).cas },
                    (Err(refused), _) => refused,
                }
            }
            Request::Delete { key } => self.delete(&key, now),
            Request::Refused { key, reason, meta } => {
                self.refused(&key, reason, meta, now);
                Response::Done
            }
            Request::Arithmetic { key, direction, delta } => {
                match self.arithmetic(&key, direction, delta, 0, now) {
                    Ok((_, number)) => Response::Number(number),
                    Err(refused) => refused,
                }
            }
            Request::MetaGet { key, binary_key, max_bytes, no_update, steps } => {
                self.meta_get(&key, binary_key, max_bytes, no_update, &steps, now)
            }
            Request::MetaDelete { key, compare, invalidate } => {
                self.meta_delete(&key, compare, invalidate, now)
            }
            Request::MetaArithmetic { key, direction, delta, compare, initial, steps } => {
                self.meta_arithmetic(&key, (direction, delta), compare, initial, &steps, now)
            }
            Request::MetaDebug { key } => self.meta_debug(&key, now),
        }
    }

    fn get(&mut self, key: &[u8], max_bytes: u32, now: Seconds) -> Response {
        let found = self.live_for_read(self.hash(key), key, now);
        if let Some(large) = found.and_then(|index| larger_than(max_bytes, self.items.get(index))) {
            return large;
        }
        self.stats.cmd_get += 1;
        match found {
            Some(index) => self.count_hit(index),
            None => self.stats.get_misses += 1,
        }
        self.read_response(key, found, now)
    }

    fn get_and_touch(
        &mut self,
        key: &[u8],
        exptime: i32,
        max_bytes: u32,
        now: Seconds,
    ) -> Response {
        if let Some(large) = self.peek(key, now).and_then(|item| larger_than(max_bytes, item)) {
            return large;
        }
        // As in memcached, it counts as a touch and not as a read.
        let found = self.set_expiry(key, exptime, now);
        self.read_response(key, found, now)
    }

    /// The response to a read, given the item that it found.
    fn read_response(&mut self, key: &[u8], found: Option<u32>, now: Seconds) -> Response {
        self.prefixes.count(key, |counters| {
            counters.gets += 1;
            counters.hits += u64::from(found.is_some());
        });
        match found {
            Some(index) => {
                self.mark_read(index, now);
                value(self.items.get(index))
            }
            None => Response::Miss,
        }
    }

    fn touch(&mut self, key: &[u8], exptime: i32, now: Seconds) -> Response {
        match self.set_expiry(key, exptime, now) {
            Some(index) => {
                self.mark_read(index, now);
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

    fn delete(&mut self, key: &[u8], now: Seconds) -> Response {
        self.prefixes.count(key, |counters| counters.deletes += 1);
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
        self.write(verb, key, (flags, exptime), data, None, now).err().unwrap_or(Response::Stored)
    }

    /// Writes an item; its index, or why it was not written.
    fn write(
        &mut self,
        verb: Verb,
        key: &[u8],
        (flags, exptime): (u32, i32),
        data: &[u8],
        meta: Option<MetaStore>,
        now: Seconds,
    ) -> Result<u32, Response> {
        if key.len() > KEY_BYTES_MAX || is_too_large(key.len(), data.len(), flags) {
            self.refused(key, Refusal::TooLarge { removes: false }, meta.is_some(), now);
            return Err(Response::TooLarge);
        }
        self.stats.cmd_set += 1;
        // As in memcached, which does not count meta commands by prefix.
        if meta.is_none() {
            self.prefixes.count(key, |counters| counters.sets += 1);
        }
        let meta = meta.unwrap_or_default();
        let hash = self.hash(key);
        let found = self.live(hash, key, now);
        // Set if the value is stale: the item has been invalidated since the client read it.
        let mut is_late = false;
        match (verb, found) {
            (Verb::Append | Verb::Prepend, Some(index)) => {
                if meta.compare != 0 && meta.compare != self.items.get(index).cas {
                    return Err(Response::Exists);
                }
                return self.extend(index, data, verb == Verb::Prepend, now);
            }
            (Verb::Add, Some(index)) => {
                // As in memcached, the attempt counts as a use of the item.
                self.mark_changed(index, now);
                return Err(Response::NotStored);
            }
            (Verb::Replace | Verb::Append | Verb::Prepend, None) => {
                return Err(Response::NotStored);
            }
            (Verb::Cas(_), None) => {
                self.stats.cas_misses += 1;
                return Err(Response::NotFound);
            }
            (Verb::Cas(expected), Some(index)) => {
                let cas = self.items.get(index).cas;
                is_late = meta.invalidate && expected < cas && expected != 0;
                if expected != cas && !is_late {
                    self.stats.cas_badval += 1;
                    return Err(Response::Exists);
                }
                self.stats.cas_hits += 1;
            }
            (Verb::Set, _) | (Verb::Add, None) | (Verb::Replace, Some(_)) => {}
        }
        if !self.fits_limit(key.len() + data.len()) {
            // The old value must not be served after an attempt to replace it.
            if let Some(index) = found {
                self.remove(index);
            }
            self.stats.store_no_memory += 1;
            return Err(Response::OutOfMemory);
        }
        let cas = self.next_cas();
        let describe = |item: &mut Item| {
            (item.flags, item.cas) = (flags, cas);
            let is_token_sent = item.is_marked(Mark::TokenSent);
            item.unmark_all();
            if meta.binary_key {
                item.mark(Mark::BinaryKey);
            }
            if !is_late {
                item.set_deadline(deadline(exptime, now));
                return;
            }
            item.mark(Mark::Stale);
            if is_token_sent {
                item.mark(Mark::TokenSent);
            }
        };
        self.stats.total_items += 1;
        match found {
            Some(index) => Ok(self.replace(index, now, |item| {
                item.set_data(data);
                describe(item);
            })),
            None => {
                let mut item = Item::new(key, hash, data);
                describe(&mut item);
                Ok(self.insert(item, now))
            }
        }
    }

    /// Counts a write that was refused.
    fn refused(&mut self, key: &[u8], reason: Refusal, meta: bool, now: Seconds) {
        if !meta {
            self.prefixes.count(key, |counters| counters.sets += 1);
        }
        match reason {
            Refusal::BadData => self.stats.cmd_set += 1,
            Refusal::TooLarge { removes } => {
                self.stats.store_too_large += 1;
                if removes && let Some(index) = self.live(self.hash(key), key, now) {
                    self.remove(index);
                }
            }
        }
    }

    fn extend(
        &mut self,
        index: u32,
        data: &[u8],
        before: bool,
        now: Seconds,
    ) -> Result<u32, Response> {
        let item = self.items.get(index);
        let length = item.data().len() + data.len();
        let key_bytes = item.key().len();
        if is_too_large(key_bytes, length, item.flags) || !self.fits_limit(key_bytes + length) {
            // As in memcached, which has no separate error for this.
            return Err(Response::NotStored);
        }
        let cas = self.next_cas();
        self.stats.total_items += 1;
        Ok(self.replace(index, now, |item| {
            item.extend_data(data, before);
            item.unmark_all();
            item.cas = cas;
        }))
    }

    /// Changes the number in an item, if that has the unique number `compare` or this is 0; the
    /// item's index and the number, or why it was not changed.
    pub(super) fn arithmetic(
        &mut self,
        key: &[u8],
        direction: Direction,
        delta: u64,
        compare: u64,
        now: Seconds,
    ) -> Result<(u32, u64), Response> {
        let found = self.live(self.hash(key), key, now);
        let Some(index) = found else { return Err(self.arithmetic_missed(direction)) };
        let item = self.items.get(index);
        let data = item.data();
        if data.is_empty() {
            return Err(Response::NotNumeric);
        }
        if compare != 0 && compare != item.cas {
            return Err(Response::Exists);
        }
        let Some(before) = unsigned(data) else { return Err(Response::NotNumeric) };
        let (after, hits) = match direction {
            Direction::Increment => (before.wrapping_add(delta), &mut self.stats.incr_hits),
            Direction::Decrement => (before.saturating_sub(delta), &mut self.stats.decr_hits),
        };
        *hits += 1;
        let digits = Decimal::new(after);
        let digits = digits.as_bytes();
        let grows = digits.len() > data.len();
        if grows && !self.fits_limit(key.len() + digits.len()) {
            return Err(Response::OutOfMemory);
        }
        let cas = self.next_cas();
        let index = if grows {
            self.replace(index, now, |item| {
                item.set_data(digits);
                item.unmark_all();
                item.cas = cas;
            })
        } else {
            let item = self.items.get_mut(index);
            // As in memcached, a shorter number is padded with spaces to the old length.
            let target = item.data_mut();
            target.fill(b' ');
            target[..digits.len()].copy_from_slice(digits);
            item.cas = cas;
            self.mark_changed(index, now);
            index
        };
        Ok((index, after))
    }

    /// Counts a change of a number that does not exist.
    fn arithmetic_missed(&mut self, direction: Direction) -> Response {
        match direction {
            Direction::Increment => self.stats.incr_misses += 1,
            Direction::Decrement => self.stats.decr_misses += 1,
        }
        Response::NotFound
    }
}

/// The response to a read of a live item.
fn value(item: &Item) -> Response {
    Response::Value { flags: item.flags, cas: item.cas, data: item.shared() }
}

/// The response to a read of a live item whose data is larger than `max_bytes`.
pub(super) fn larger_than(max_bytes: u32, item: &Item) -> Option<Response> {
    // Lossless: items have at most 1 MiB of data.
    let bytes = item.data().len() as u32;
    (bytes > max_bytes).then_some(Response::Large { bytes })
}
