//! [`Cache`]: the linked jams of a process, by digest.
//!
//! Any thread looks jams up without a lock, while one at a time adds and evicts. Buckets are lists of
//! atomic pointers: a jam is added in front, and taken out by having the one before it skip it. A
//! thread that stands on a jam which was taken out goes on through its `next`, which stays as it is
//! until no runner that could be there is inside any more ([`Reuse`]).

use std::ptr;

use jam_format::Digest;
use parking_lot::Mutex;
use primitive::sync::{AtomicPtr, AtomicU64, Ordering, spin_hint};

use crate::arena::{Arena, CHUNK};
use crate::error::Refusal;
use crate::frame::Verified;
use crate::handles::Handles;
use crate::link::{Linked, Resolved};
use crate::policy::{Admitted, Gate};
use crate::reuse::{Inside, Reuse};
use crate::symbols::Symbols;

const BUCKETS: usize = 1024;
/// How often an evicting thread looks whether the runners have left, about 25 ns apart.
const MAX_SPINS: u32 = 1000;
/// How many evicted jams may wait for runners before no more are evicted: a thread that stays inside
/// keeps the places of all, so that to evict more of them makes no room.
const MAX_WAITING: usize = 8;

/// The linked jams of a process.
pub(crate) struct Cache {
    buckets: Box<[AtomicPtr<Linked>]>,
    /// Counts additions: the time of "least recently used".
    time: AtomicU64,
    handles: Handles,
    reuse: Reuse<Owned>,
    arena: Mutex<Arena>,
}

/// A jam that is in no bucket any more, and is freed when this is dropped: when no runner uses it. Not
/// a `Box` before, since runners may still have references to it.
pub(crate) struct Owned(*mut Linked);

// SAFETY: it owns what it points to, which any thread may use and free.
unsafe impl Send for Owned {}

impl Owned {
    fn linked(&self) -> &Linked {
        // SAFETY: it owns what it points to.
        unsafe { &*self.0 }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it came from `Box::into_raw`, and nothing else refers to it: `Reuse` gives back
        // only what no runner uses.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

// SAFETY: every jam that a bucket refers to is owned by the cache, and is freed by `Reuse` only when
// no thread uses it any more; the fields of a jam that change are atomics.
unsafe impl Send for Cache {}
// SAFETY: the fields of a jam that change are atomics, and `Reuse` frees it when no thread uses it.
unsafe impl Sync for Cache {}

/// What a jam is linked with beside its code.
struct Standing {
    admitted: Admitted,
    /// The handle that it had before; 0 for none.
    handle: u64,
}

impl Cache {
    /// A cache whose jams take at most about this many bytes of executable memory.
    pub(crate) fn new(max_bytes: usize) -> Self {
        let buckets = (0..BUCKETS).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        let arena = Mutex::new(Arena::new((max_bytes / CHUNK).max(1)));
        let time = AtomicU64::new(1);
        Self { buckets, time, handles: Handles::new(), reuse: Reuse::new(), arena }
    }

    pub(crate) fn reuse(&self) -> &Reuse<Owned> {
        &self.reuse
    }

    #[inline(always)]
    fn bucket(&self, digest: &Digest) -> &AtomicPtr<Linked> {
        let [low, high, ..] = digest.as_bytes();
        &self.buckets[(usize::from(*low) | usize::from(*high) << 8) % BUCKETS]
    }

    /// The jam with this digest, for as long as the thread is inside.
    #[inline(always)]
    pub(crate) fn find<'i>(
        &'i self,
        digest: &Digest,
        _inside: &'i Inside<'_>,
    ) -> Option<&'i Linked> {
        let mut at = self.bucket(digest).load(Ordering::Acquire);
        // SAFETY: a jam is freed only after every runner has left that was inside when it was taken
        // out of its bucket; this one is inside.
        while let Some(linked) = unsafe { at.as_ref() } {
            if linked.digest == *digest {
                self.use_now(linked);
                return Some(linked);
            }
            at = linked.next.load(Ordering::Acquire);
        }
        None
    }

    /// The jam with this handle, for as long as the thread is inside.
    #[inline(always)]
    pub(crate) fn find_by_handle<'i>(
        &'i self,
        handle: u64,
        _inside: &'i Inside<'_>,
    ) -> Option<&'i Linked> {
        // SAFETY: as in `find`: `remove` takes a jam out of the handles when it takes it out of its
        // bucket.
        let linked = unsafe { self.handles.find(handle).as_ref() }?;
        if linked.handle != handle {
            return None;
        }
        self.use_now(linked);
        Some(linked)
    }

    /// The place of a handle: what is there changes when its jam is taken out.
    pub(crate) fn place_of(&self, handle: u64) -> &AtomicPtr<Linked> {
        self.handles.place(handle)
    }

    /// Notes that a jam is used, for "least recently used".
    #[inline(always)]
    fn use_now(&self, linked: &Linked) {
        let time = self.time.load(Ordering::Relaxed);
        if linked.used.load(Ordering::Relaxed) != time {
            linked.used.store(time, Ordering::Relaxed);
        }
    }

    /// Links a jam, unless it is there.
    ///
    /// The policy is asked once more, with the lock that [`clear`](Self::clear) takes, too: a thread
    /// that sets another policy and then clears leaves nothing behind that only the old one admits.
    pub(crate) fn add(
        &self,
        verified: &Verified<'_>,
        symbols: &Symbols,
        gate: Gate<'_>,
    ) -> Result<(), Refusal> {
        let mut arena = self.arena.lock();
        gate.check(&verified.digest())?;
        let admitted = gate.bits_of(&verified.digest());
        if let Some(linked) = self.owned(&verified.digest()) {
            linked.admitted.store(admitted, Ordering::Relaxed);
            return Ok(());
        }
        let resolved = Resolved::of(verified, symbols)?;
        self.push(&mut arena, verified, resolved, Standing { admitted, handle: 0 })
    }

    /// Links a jam again if its imports resolve to something else than when it was linked.
    pub(crate) fn renew(&self, digest: &Digest, symbols: &Symbols) -> Result<(), Refusal> {
        let mut arena = self.arena.lock();
        let Some(old) = self.owned(digest) else { return Ok(()) };
        let (blob, admitted) = (old.blob.clone(), old.admitted.load(Ordering::Relaxed));
        let verified = Verified::again(&blob, *digest)?;
        let resolved = match Resolved::of(&verified, symbols) {
            Ok(resolved) if resolved.is_that_of(old) => return Ok(()),
            Ok(resolved) => resolved,
            Err(refusal) => {
                self.remove(old);
                return Err(refusal);
            }
        };
        let handle = old.handle;
        self.remove(old);
        self.push(&mut arena, &verified, resolved, Standing { admitted, handle })
    }

    /// Takes all jams out.
    pub(crate) fn clear(&self) {
        let _arena = self.arena.lock();
        for bucket in &self.buckets {
            while let Some(linked) = of_bucket(bucket).next() {
                self.remove(linked);
            }
        }
    }

    /// Bytes of executable memory that linked jams take, and how many there are.
    pub(crate) fn size(&self) -> (usize, usize) {
        let _arena = self.arena.lock();
        let all = || self.all();
        (all().map(|linked| linked.place.bytes()).sum(), all().count())
    }

    /// Links a jam and adds it, with the handle that it had before, if it had one.
    fn push(
        &self,
        arena: &mut Arena,
        verified: &Verified<'_>,
        resolved: Resolved,
        standing: Standing,
    ) -> Result<(), Refusal> {
        let blob = verified.blob();
        let (text, data) = (blob.text().len(), blob.data().len());
        let draft = loop {
            let draft = arena.take(text, data, blob.alignment());
            if let Some(draft) = draft.map_err(|e| Refusal::NoMemory { reason: e.to_string() })? {
                break draft;
            }
            if self.reclaim(arena) {
                continue;
            }
            let no_room = Refusal::NoRoom { bytes: (text + data) as u64 };
            let may_evict = self.reuse.waiting() < MAX_WAITING;
            if may_evict {
                let oldest = self.all().min_by_key(|linked| linked.used.load(Ordering::Relaxed));
                self.remove(oldest.ok_or_else(|| no_room.clone())?);
            }
            // Threads that run jams at this moment leave soon, mostly: without this the memory of
            // many would be given up to get one's.
            let is_freed = (0..MAX_SPINS).any(|_| {
                let is_freed = self.reclaim(arena);
                if !is_freed {
                    spin_hint();
                }
                is_freed
            });
            if !is_freed && !may_evict {
                return Err(no_room);
            }
        };
        let mut linked = Linked::new(verified, resolved, standing.admitted, draft);
        linked.handle = self.handles.take(standing.handle);
        let time = self.time.fetch_add(1, Ordering::Relaxed) + 1;
        linked.used.store(time, Ordering::Relaxed);
        let bucket = self.bucket(&linked.digest);
        linked.next.store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        let handle = linked.handle;
        let linked = Box::into_raw(linked);
        bucket.store(linked, Ordering::Release);
        self.handles.set(handle, linked);
        Ok(())
    }

    /// Frees the places of evicted jams that no thread uses any more; whether there was one.
    fn reclaim(&self, arena: &mut Arena) -> bool {
        let mut is_freed = false;
        self.reuse.reclaim(|owned| {
            arena.free(&owned.linked().place);
            is_freed = true;
        });
        is_freed
    }

    /// Takes a jam out of its bucket. The caller has the lock.
    fn remove(&self, linked: &Linked) {
        let mut link = self.bucket(&linked.digest);
        loop {
            let at = link.load(Ordering::Relaxed);
            // SAFETY: what a bucket refers to is alive while the lock is held.
            let Some(found) = (unsafe { at.as_ref() }) else { return };
            if ptr::eq(found, linked) {
                link.store(found.next.load(Ordering::Relaxed), Ordering::Release);
                self.handles.free(found.handle);
                self.reuse.retire(Owned(at));
                return;
            }
            link = &found.next;
        }
    }

    /// The jam with this digest. The caller has the lock, so nobody removes it.
    fn owned(&self, digest: &Digest) -> Option<&Linked> {
        of_bucket(self.bucket(digest)).find(|linked| linked.digest == *digest)
    }

    /// All jams, for one who has the lock.
    fn all(&self) -> impl Iterator<Item = &Linked> {
        self.buckets.iter().flat_map(of_bucket)
    }
}

/// The jams of a bucket, for one who has the lock.
fn of_bucket(bucket: &AtomicPtr<Linked>) -> impl Iterator<Item = &Linked> {
    // SAFETY: what a bucket refers to is alive while the lock is held.
    let load = |link: &AtomicPtr<Linked>| unsafe { link.load(Ordering::Relaxed).as_ref() };
    std::iter::successors(load(bucket), move |linked| load(&linked.next))
}

impl Drop for Cache {
    fn drop(&mut self) {
        for bucket in &self.buckets {
            let mut at = bucket.load(Ordering::Relaxed);
            while !at.is_null() {
                // With `&mut self` no thread is inside.
                let owned = Owned(at);
                at = owned.linked().next.load(Ordering::Relaxed);
            }
        }
    }
}
