//! [`Sharded`]: one property on every trustee of the rack, found by key.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use trust_core::{Delegable, DelegateError, Portable, Trust};

use crate::hosts;

/// One `T` for every trustee of the rack; each key belongs to one of them. Key-value stores
/// and graphs are built on it.
///
/// Clone it for other fibers, or send it as an argument; every host finds the same shard for a key.
///
/// ```
/// use gossamer::{Rack, Sharded};
/// use std::collections::HashMap;
///
/// Rack::new().threads(2).run(|| {
///     let ages = Sharded::<String, HashMap<String, u32>>::new(HashMap::new);
///     let shard = ages.shard("Ada"); // found by `&str`, as in a `HashMap<String, _>`
///     shard.apply_with(|map, (name, age)| map.insert(name, age), ("Ada".to_owned(), 36));
///     let age = shard.apply_with(|map, name| map.get(&name).copied(), "Ada".to_owned());
///     assert_eq!(age, Some(36));
/// })?;
/// # Ok::<(), gossamer::RackError>(())
/// ```
pub struct Sharded<K: ?Sized, T: 'static> {
    /// Shared with the [`Scatter`](crate::Scatter)s of this value; a clone has trusts of its own.
    shards: Arc<[Trust<T>]>,
    _key: PhantomData<fn(&K)>,
}

/// Which of so many shards a key belongs to, or what has the hash of one.
#[inline]
pub(crate) fn index_of_hash<Q: Hash + ?Sized>(key: &Q, shards: usize) -> usize {
    // Multiply and shift instead of a remainder: the upper half of hash * shards.
    ((u128::from(HASHER.hash_one(key)) * shards as u128) >> 64) as usize
}

/// The same on every host of a rack.
const HASHER: foldhash::fast::FixedState =
    foldhash::fast::FixedState::with_seed(0x6f73_7361_6d65_7221);

impl<K: Hash + ?Sized, T: 'static> Sharded<K, T> {
    /// Has every trustee of the rack make its shard.
    ///
    /// # Panics
    /// Outside a fiber of a rack, and in delegated context.
    #[track_caller]
    pub fn new<F: FnOnce() -> T + Delegable + Clone>(make: F) -> Self {
        Self::new_with(move |()| make(), ())
    }

    /// As [`new`](Self::new), but failures come back as errors. Shards that were made before a failure
    /// are dropped.
    ///
    /// # Errors
    /// As [`Trustee::try_entrust_with`](crate::Trustee::try_entrust_with): the first failure.
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn try_new<F>(make: F) -> Result<Self, DelegateError>
    where
        F: FnOnce() -> T + Delegable + Clone,
    {
        Self::try_new_with(move |()| make(), ())
    }

    /// As [`new_with`](Self::new_with), but failures come back as errors.
    ///
    /// # Errors
    /// As [`try_new`](Self::try_new).
    ///
    /// # Panics
    /// In delegated context, and if the arguments' own code panics while they are encoded.
    #[track_caller]
    #[allow(clippy::clone_on_copy)] // On nightly, closures that capture are not `Copy`.
    pub fn try_new_with<A, F>(make: F, arguments: A) -> Result<Self, DelegateError>
    where
        A: Portable + Clone,
        F: FnOnce(A) -> T + Delegable + Clone,
    {
        let mut shards = Vec::new();
        for trustee in hosts::try_trustees()? {
            shards.push(trustee.try_entrust_with(make.clone(), arguments.clone())?);
        }
        Ok(Self::of_shards(shards))
    }

    /// Has every trustee of the rack make its shard from a copy of `arguments`.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    #[allow(clippy::clone_on_copy)] // On nightly, closures that capture are not `Copy`.
    pub fn new_with<A, F>(make: F, arguments: A) -> Self
    where
        A: Portable + Clone,
        F: FnOnce(A) -> T + Delegable + Clone,
    {
        let mut shards = Vec::new();
        // Not in a closure, whose panic would name this line instead of the caller's.
        for trustee in hosts::trustees() {
            shards.push(trustee.entrust_with(make.clone(), arguments.clone()));
        }
        Self::of_shards(shards)
    }

    /// These shards, one for every trustee of the rack, in their order.
    pub(crate) fn of_shards(shards: Vec<Trust<T>>) -> Self {
        Self { shards: shards.into(), _key: PhantomData }
    }

    /// The shard that `key` belongs to. As with the keys of a `HashMap`, it may be any borrowed form of
    /// `K`, such as `&str` for `String`: [`Borrow`] promises that both have the same hash.
    #[inline]
    pub fn shard<Q>(&self, key: &Q) -> &Trust<T>
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        &self.shards[self.index_of(key)]
    }

    /// Which of the [shards](Self::shards) `key`, or a borrowed form of it, belongs to: its index, the
    /// same on every host. For programs that sort their work by shard before they send it.
    #[inline]
    pub fn index_of<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: Hash + ?Sized,
    {
        index_of_hash(key, self.shards.len())
    }

    /// All shards, in the order of [`trustees`](crate::trustees).
    #[must_use]
    pub fn shards(&self) -> &[Trust<T>] {
        &self.shards
    }

    /// As [`shards`](Self::shards), shared.
    pub(crate) fn shared_shards(&self) -> Arc<[Trust<T>]> {
        Arc::clone(&self.shards)
    }
}

impl<K: ?Sized, T: 'static> Clone for Sharded<K, T> {
    fn clone(&self) -> Self {
        Self { shards: self.shards.iter().cloned().collect(), _key: PhantomData }
    }
}

impl<K: ?Sized, T: 'static> fmt::Debug for Sharded<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sharded({} of {})", self.shards.len(), std::any::type_name::<T>())
    }
}

impl<K: ?Sized, T: 'static> Serialize for Sharded<K, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.shards[..].serialize(serializer)
    }
}

impl<'de, K: ?Sized, T: 'static> Deserialize<'de> for Sharded<K, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let shards = Vec::<Trust<T>>::deserialize(deserializer)?;
        if shards.is_empty() {
            return Err(serde::de::Error::custom("a sharded property has at least one shard"));
        }
        Ok(Self { shards: shards.into(), _key: PhantomData })
    }
}
