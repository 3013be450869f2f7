//! [`Scatter`]: many small updates of the shards of a [`Sharded`], collected by shard and sent together.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::Hash;
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use fiber::FiberId;
use trust_core::{AsView, Collects, Delegable, Portable, Trust, Updates};

use crate::Sharded;
use crate::sharded::index_of_hash;

/// Updates of one shard are sent when they have this many bytes, or are so many. A request with one more
/// small update still travels inside a slot, and a batch takes two such requests; *measured* with a word
/// count by two threads, which takes 9 to 12 % longer with 1 to 4 KiB than with 8000 bytes.
const BYTES: usize = 7 << 10;
const UPDATES: usize = 1 << 12;

impl<K, T> Sharded<K, T>
where
    K: AsView + Hash + ?Sized + 'static,
    T: 'static,
{
    /// For many small updates: a [`Scatter`], whose [`send`](Scatter::send) has `update` run for a key
    /// and a value at the shard of that key. Updates travel together, in one request for a buffer of
    /// them, so that each costs little more than its bytes; those of the caller's own shard run at once.
    ///
    /// `update` captures nothing. It gets a [view](AsView) of the key, which borrows from the buffer
    /// (`&str` where `K` is `String`, a number where it is one), so that a map need not allocate a key
    /// that it has:
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use gossamer::Sharded;
    ///
    /// # gossamer::Rack::new().threads(2).run(|| {
    /// let words = Sharded::<String, HashMap<String, u64>>::new(HashMap::new);
    /// let mut counts = words.scatter(|map, word, times| match map.get_mut(word) {
    ///     Some(count) => *count += times,
    ///     None => _ = map.insert(word.to_owned(), times),
    /// });
    /// "to be or not to be".split(' ').for_each(|word| counts.send(word, 1));
    /// counts.finish(); // all of them are counted
    /// assert_eq!(words.gather(|map| map.len()).into_iter().sum::<usize>(), 4);
    /// # }).unwrap();
    /// ```
    ///
    /// For keys that are literals, make a `Sharded<str, T>`. `Sharded<&'static str, T>` has no `scatter`,
    /// since a key that has arrived borrows from the buffer and is not `'static`:
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use gossamer::Sharded;
    ///
    /// # gossamer::Rack::new().threads(2).run(|| {
    /// let events = Sharded::<str, HashMap<String, u64>>::new(HashMap::new);
    /// let mut counts = events.scatter(|map, name, n| *map.entry(name.to_owned()).or_default() += n);
    /// counts.send("opened", 1);
    /// counts.finish();
    /// # }).unwrap();
    /// ```
    #[allow(clippy::clone_on_copy)] // On nightly, closures that capture are not `Copy`.
    #[track_caller]
    pub fn scatter<V, F>(&self, update: F) -> Scatter<K, T, V, F>
    where
        V: Portable,
        F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
    {
        let shards = self.shared_shards();
        let buffer = |_: &Trust<T>| RefCell::new(Updates::new(update.clone()));
        let collected = Rc::new(Collected {
            buffers: shards.iter().map(buffer).collect(),
            shards,
            unserved: Rc::default(),
            fiber: fiber::current(),
            place: Location::caller(),
        });
        let collector: Weak<Collected<K, T, V, F>> = Rc::downgrade(&collected);
        trust_core::register_collector(collector);
        Scatter { collected }
    }
}

/// Updates that are collected by shard and sent together: made by [`Sharded::scatter`].
///
/// - **Sent** are the updates of a shard when 7 KiB of them have been collected, and the rest by
///   [`flush`](Self::flush) and [`finish`](Self::finish), when the `Scatter` is dropped, and when any fiber
///   of its thread calls [`gossamer::flush`](crate::flush) or a collective of a [`Team`](crate::Team), or
///   any thread [`gossamer::fence`](crate::fence). These wait for the updates as for all other requests.
/// - **Order**: updates of one `Scatter` run in the order of their `send`, shard by shard. Another
///   request of the thread may overtake those that have not been sent.
/// - **Back-pressure**: [`send`](Self::send) waits while a trustee has no room for more requests.
/// - **Failures** are those of [`apply_then`](crate::Trust::apply_then): the rack ends with an error that
///   names the line of [`Sharded::scatter`]. Of a request with an update that panics, those after it
///   do not run. On the caller's own shard a panic propagates to the caller of `send`.
///
/// The view of a key must have the hash of the key, as for all types that implement [`AsView`] here;
/// of a type of yours, derive [`Hash`] for both, with the same fields in the same order.
pub struct Scatter<K, T, V, F>
where
    K: AsView + Hash + ?Sized + 'static,
    T: 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
{
    collected: Rc<Collected<K, T, V, F>>,
}

/// What a scatter has collected. It is shared with the thread's list of what collects updates, which
/// does not keep it; a scatter that is forgotten keeps it for good.
struct Collected<K: ?Sized, T: 'static, V, F> {
    shards: Arc<[Trust<T>]>,
    /// By shard. One is borrowed only while an update is added to it.
    buffers: Box<[RefCell<Updates<K, V, F>>]>,
    unserved: Rc<Unserved>,
    /// That made the scatter.
    fiber: Option<FiberId>,
    place: &'static Location<'static>,
}

/// The requests of a scatter that have not ended, and who waits for them.
#[derive(Default)]
struct Unserved {
    requests: Cell<usize>,
    waiting: Cell<Option<FiberId>>,
}

impl<K, T, V, F> Scatter<K, T, V, F>
where
    K: AsView + Hash + ?Sized + 'static,
    T: 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
{
    /// Has the closure run at the shard of `key`, with `key` and `value`: at once if that is on the
    /// caller's thread, else when the buffer of the shard is full or [flushed](Self::flush). Allowed in
    /// delegated context, where the closure runs later on the own shard, too.
    ///
    /// # Panics
    /// Outside a thread of the rack; if the closure panics while it runs at once, or the code of `key` or
    /// `value` while they are encoded.
    #[inline]
    #[track_caller]
    pub fn send<'k>(&mut self, key: K::View<'k>, value: V)
    where
        K::View<'k>: Hash,
    {
        let Collected { shards, buffers, place, .. } = &*self.collected;
        let index = index_of_hash(&key, shards.len());
        // Lent, not taken: the fiber may give way here, and others flush meanwhile.
        let here = buffers[index].borrow().run_here(&shards[index], key, value, place);
        let Err((key, value)) = here else { return };
        let mut buffer = buffers[index].borrow_mut();
        let bytes = buffer.push(&shards[index], key, value, place);
        if bytes >= BYTES || buffer.count() >= UPDATES {
            drop(buffer);
            self.flush_shard(index);
        }
    }

    /// Sends what has been collected. It waits for room only; [`finish`](Self::finish) waits until the
    /// updates have run.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn flush(&mut self) {
        for index in 0..self.collected.buffers.len() {
            if self.collected.buffers[index].borrow().count() > 0 {
                self.flush_shard(index);
            }
        }
    }

    /// Sends what has been collected, and waits until all updates have run, or failed.
    ///
    /// # Panics
    /// In delegated context, and outside a fiber of a rack.
    #[track_caller]
    pub fn finish(mut self) {
        trust_core::check_may_wait("`Scatter::finish`", Location::caller());
        self.flush();
        let fiber = fiber::current().expect("fibers of a rack wait for updates");
        self.collected.unserved.waiting.set(Some(fiber));
        // While the fiber is unwound, nothing is under way any more.
        while self.collected.unserved.requests.get() > 0 && fiber::park_or_give_up() {}
    }

    #[cold]
    #[track_caller]
    fn flush_shard(&mut self, index: usize) {
        self.collected.send(index, |updates, shard, place, done| updates.send(shard, place, done));
    }
}

impl<K, T, V, F> Collected<K, T, V, F>
where
    K: AsView + Hash + ?Sized + 'static,
    T: 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
{
    /// Sends what has been collected for a shard, without waiting for room.
    fn send_now(&self, index: usize) {
        self.send(index, |updates, shard, place, done| updates.send_or_drop(shard, place, done));
    }

    /// Sends what has been collected for a shard by `send`, which calls the last argument that it gets
    /// when the updates have run.
    #[track_caller]
    fn send<S>(&self, index: usize, send: S)
    where
        S: FnOnce(&mut Updates<K, V, F>, &Trust<T>, &'static Location<'static>, Box<dyn FnOnce()>),
    {
        // Not borrowed meanwhile: the fiber may wait for room, and updates of this thread's shard run.
        let mut updates = self.buffers[index].borrow_mut().take();
        let unserved = self.unserved.clone();
        unserved.requests.set(unserved.requests.get() + 1);
        let done = move || {
            unserved.requests.set(unserved.requests.get() - 1);
            if unserved.requests.get() == 0 {
                unserved.waiting.get().into_iter().for_each(fiber::unpark);
            }
        };
        send(&mut updates, &self.shards[index], self.place, Box::new(done));
        // Its memory is used again, unless what has run has added updates.
        let mut buffer = self.buffers[index].borrow_mut();
        if buffer.count() == 0 {
            *buffer = updates;
        }
    }
}

impl<K, T, V, F> Collects for Collected<K, T, V, F>
where
    K: AsView + Hash + ?Sized + 'static,
    T: 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
{
    fn send_collected(&self) -> bool {
        let mut all = true;
        for (index, buffer) in self.buffers.iter().enumerate() {
            match buffer.try_borrow().map(|buffer| buffer.count()) {
                Ok(0) => {}
                Ok(_) => self.send_now(index),
                Err(_) if self.fiber == fiber::current() => panic!(
                    "the code that encodes an update must not wait for updates: it is of the scatter made at {}",
                    self.place
                ),
                // Another fiber waits in the code that encodes an update.
                Err(_) => all = false,
            }
        }
        all
    }
}

impl<K, T, V, F> Drop for Scatter<K, T, V, F>
where
    K: AsView + Hash + ?Sized + 'static,
    T: 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
{
    fn drop(&mut self) {
        let Collected { buffers, .. } = &*self.collected;
        let filled = (0..buffers.len()).filter(|index| buffers[*index].borrow().count() > 0);
        filled.for_each(|index| self.collected.send_now(index));
    }
}

impl<K, T, V, F> fmt::Debug for Scatter<K, T, V, F>
where
    K: AsView + Hash + ?Sized + 'static,
    T: 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Collected { shards, buffers, unserved, .. } = &*self.collected;
        let count = |buffer: &RefCell<Updates<K, V, F>>| buffer.borrow().count();
        f.debug_struct("Scatter")
            .field("shards", &shards.len())
            .field("collected", &buffers.iter().map(count).sum::<usize>())
            .field("requests", &unserved.requests.get())
            .finish()
    }
}
