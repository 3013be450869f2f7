//! Calls of all shards of a [`Sharded`] at the same time: `gather`, `for_each`, `broadcast`, `reduce`.

use std::cell::{Cell, RefCell};
use std::hash::Hash;
use std::panic::Location;
use std::rc::Rc;

use trust_core::{Chain, Delegable, DelegateError, Portable, Trust};

use crate::Sharded;

impl<K: Hash + ?Sized, T: 'static> Sharded<K, T> {
    /// Runs `closure` on every shard, on all of them at the same time, and returns the results in the
    /// order of the [shards](Self::shards).
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use gossamer::Sharded;
    ///
    /// # gossamer::Rack::new().threads(2).run(|| {
    /// let words = Sharded::<String, HashMap<String, u32>>::new(HashMap::new);
    /// for word in ["to", "be", "or", "not", "to", "be"] {
    ///     let count = |counts: &mut HashMap<String, u32>, word| *counts.entry(word).or_default() += 1;
    ///     words.shard(word).apply_with_then(count, word.to_owned(), drop);
    /// }
    /// let distinct: usize = words.gather(|counts| counts.len()).into_iter().sum();
    /// assert_eq!(distinct, 4);
    /// let most = words.reduce(|counts| counts.values().max().copied(), Option::max);
    /// assert_eq!(most, Some(2));
    /// words.broadcast(|counts, least| counts.retain(|_, count| *count >= least), 2);
    /// assert_eq!(words.gather(|counts| counts.len()).into_iter().sum::<usize>(), 2);
    /// words.for_each(|counts| counts.clear());
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    /// If the closure panics at any shard, or the host of one is lost; in delegated context; outside a
    /// fiber of a rack. [`try_gather`](Self::try_gather) returns the first two as an error.
    #[track_caller]
    pub fn gather<F, U>(&self, closure: F) -> Vec<U>
    where
        F: FnOnce(&mut T) -> U + Delegable + Clone,
        U: Portable,
    {
        or_panic(self.try_gather(closure))
    }

    /// As [`gather`](Self::gather), but a failure is an error: the first one, in the order of the
    /// shards. The closure has run on the other shards all the same.
    ///
    /// # Errors
    /// As [`Trust::try_apply`].
    ///
    /// # Panics
    /// In delegated context, and outside a fiber of a rack.
    #[track_caller]
    #[allow(clippy::clone_on_copy)] // On nightly, closures that capture are not `Copy`.
    pub fn try_gather<F, U>(&self, closure: F) -> Result<Vec<U>, DelegateError>
    where
        F: FnOnce(&mut T) -> U + Delegable + Clone,
        U: Portable,
    {
        at_once(self.shards(), |shard, done| shard.try_apply_then(closure.clone(), done))
    }

    /// Runs `closure` on every shard, on all of them at the same time, and waits for it.
    ///
    /// # Panics
    /// As [`gather`](Self::gather).
    #[track_caller]
    pub fn for_each<F: FnOnce(&mut T) + Delegable + Clone>(&self, closure: F) {
        or_panic(self.try_gather(closure));
    }

    /// Runs `closure` on every shard with a copy of `value`, on all of them at the same time, and waits
    /// for it.
    ///
    /// # Panics
    /// As [`gather`](Self::gather).
    #[track_caller]
    #[allow(clippy::clone_on_copy)] // As above.
    pub fn broadcast<F, V>(&self, closure: F, value: V)
    where
        F: FnOnce(&mut T, V) + Delegable + Clone,
        V: Portable + Clone,
    {
        or_panic(at_once(self.shards(), |shard, done| {
            shard.try_apply_with_then(closure.clone(), value.clone(), done);
        }));
    }

    /// Runs `closure` on every shard, on all of them at the same time, and combines the results here, in
    /// the order of the [shards](Self::shards).
    ///
    /// # Panics
    /// As [`gather`](Self::gather).
    #[track_caller]
    pub fn reduce<F, U>(&self, closure: F, combine: impl FnMut(U, U) -> U) -> U
    where
        F: FnOnce(&mut T) -> U + Delegable + Clone,
        U: Portable,
    {
        let results = or_panic(self.try_gather(closure));
        results.into_iter().reduce(combine).expect("a rack has at least one trustee")
    }
}

type Done<U> = Box<dyn FnOnce(Result<U, DelegateError>)>;

/// Makes a call of every shard with `call`, and waits for all of them.
#[track_caller]
fn at_once<T, U: 'static>(
    shards: &[Trust<T>],
    call: impl Fn(&Trust<T>, Done<U>),
) -> Result<Vec<U>, DelegateError> {
    trust_core::check_may_wait("a call of all shards", Location::caller());
    let me = fiber::current().expect("fibers of a rack call all shards");
    let left = Rc::new(Cell::new(shards.len()));
    let results = Rc::new(RefCell::new(Vec::new()));
    results.borrow_mut().resize_with(shards.len(), || None);
    for (index, shard) in shards.iter().enumerate() {
        let (left, results) = (left.clone(), results.clone());
        let done = move |result| {
            results.borrow_mut()[index] = Some(result);
            left.set(left.get() - 1);
            if left.get() == 0 {
                fiber::unpark(me);
            }
        };
        call(shard, Box::new(done));
    }
    // Callbacks are called when the rack ends, too: after a wait that is given up, all were.
    while left.get() > 0 && fiber::park_or_give_up() {}
    let ended = || Err(DelegateError::NoRack("the rack has ended".into()));
    results.take().into_iter().map(|result| result.unwrap_or_else(ended)).collect()
}

#[track_caller]
fn or_panic<U>(result: Result<U, DelegateError>) -> U {
    match result {
        Ok(value) => value,
        Err(error) => panic!("a call of all shards failed: {}", Chain(&error)),
    }
}
