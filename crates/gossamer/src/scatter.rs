//! [`Scatter`]: many small updates of the shards of a [`Sharded`], collected by shard and sent together.

use std::cell::Cell;
use std::fmt;
use std::hash::Hash;
use std::panic::Location;
use std::rc::Rc;

use fiber::FiberId;
use trust_core::{AsView, Delegable, Portable, Trust, Updates};

use crate::Sharded;

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
    #[allow(clippy::clone_on_copy)] // On nightly, closures that capture are not `Copy`.
    #[track_caller]
    pub fn scatter<V, F>(&self, update: F) -> Scatter<'_, K, T, V, F>
    where
        V: Portable,
        F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
    {
        let buffer = |shard| (shard, Updates::new(update.clone()));
        let buffers = self.shards().iter().map(buffer).collect();
        let (place, unserved) = (Location::caller(), Rc::default());
        Scatter { sharded: self, buffers, unserved, place }
    }
}

/// A shard, and what has been collected for it.
type Buffer<'s, K, T, V, F> = (&'s Trust<T>, Updates<K, V, F>);

/// Updates that are collected by shard and sent together: made by [`Sharded::scatter`].
///
/// - **Sent** are the updates of a shard when 7 KiB of them have been collected, all of them by
///   [`flush`](Self::flush) and [`finish`](Self::finish), and the rest when the `Scatter` is dropped.
///   [`gossamer::flush`](crate::flush), [`gossamer::fence`](crate::fence) and
///   [`Team::barrier`](crate::Team::barrier) wait for updates that have been sent, as for other requests,
///   and not for those that are still being collected.
/// - **Order**: updates of one `Scatter` run in the order of their `send`, shard by shard. Another
///   request of the thread may overtake those that have not been sent.
/// - **Back-pressure**: [`send`](Self::send) waits while a trustee has no room for more requests.
/// - **Failures** are those of [`apply_then`](crate::Trust::apply_then): the rack ends with an error that
///   names the line of [`Sharded::scatter`]. Of a request with an update that panics, those behind it
///   do not run. On the caller's own shard a panic propagates to the caller of `send`.
///
/// The view of a key must have the hash of the key, as for all types that implement [`AsView`] here;
/// of a type of yours, derive [`Hash`] for both, with the same fields in the same order.
pub struct Scatter<'s, K, T, V, F>
where
    K: AsView + Hash + ?Sized + 'static,
    T: 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
{
    sharded: &'s Sharded<K, T>,
    buffers: Vec<Buffer<'s, K, T, V, F>>,
    unserved: Rc<Unserved>,
    place: &'static Location<'static>,
}

/// The requests of a scatter that have not ended, and who waits for them.
#[derive(Default)]
struct Unserved {
    requests: Cell<usize>,
    waiting: Cell<Option<FiberId>>,
}

impl<K, T, V, F> Scatter<'_, K, T, V, F>
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
        let index = self.sharded.index_by_hash(&key);
        let (shard, buffer) = &mut self.buffers[index];
        let bytes = buffer.push(shard, key, value, self.place);
        if bytes >= BYTES || buffer.count() >= UPDATES {
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
        for index in 0..self.buffers.len() {
            if self.buffers[index].1.count() > 0 {
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
        self.unserved.waiting.set(Some(fiber));
        // While the fiber is unwound, nothing is under way any more.
        while self.unserved.requests.get() > 0 && fiber::park_or_give_up() {}
    }

    #[cold]
    #[track_caller]
    fn flush_shard(&mut self, index: usize) {
        let unserved = self.unserved.clone();
        unserved.requests.set(unserved.requests.get() + 1);
        let done = move || {
            unserved.requests.set(unserved.requests.get() - 1);
            if unserved.requests.get() == 0 {
                unserved.waiting.get().into_iter().for_each(fiber::unpark);
            }
        };
        let (shard, buffer) = &mut self.buffers[index];
        buffer.send(shard, self.place, done);
    }
}

impl<K, T, V, F> Drop for Scatter<'_, K, T, V, F>
where
    K: AsView + Hash + ?Sized + 'static,
    T: 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
{
    fn drop(&mut self) {
        for (shard, buffer) in &mut self.buffers {
            buffer.send_or_drop(shard, self.place);
        }
    }
}

impl<K, T, V, F> fmt::Debug for Scatter<'_, K, T, V, F>
where
    K: AsView + Hash + ?Sized + 'static,
    T: 'static,
    V: Portable,
    F: for<'a> Fn(&mut T, K::View<'a>, V) + Delegable + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scatter")
            .field("sharded", self.sharded)
            .field(
                "collected",
                &self.buffers.iter().map(|(_, buffer)| buffer.count()).sum::<usize>(),
            )
            .field("requests", &self.unserved.requests.get())
            .finish()
    }
}
