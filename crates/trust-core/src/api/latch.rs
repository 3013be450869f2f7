//! [`Latch`]: exclusion between the fibers of one thread, so that a fiber may wait while it works on
//! a property (thesis 2.4.3): one fiber that changes it, or several that read it.

use std::any::type_name;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::rc::Rc;

use fiber::FiberId;

use crate::api::latch_report::{AwaitsLatch, HeldByCaller, NamedHolder};
use crate::api::may_wait::check_may_wait;
use crate::node::CallSite;
use crate::node::chain::{launched_by, relation};

/// A value that one fiber at a time may use, or several may read, for the fibers of one thread. Like an
/// `RwLock`, without atomics. A property must be wrapped in one for [`launch`](crate::Trust::launch)
/// and [`launch_shared`](crate::Trust::launch_shared).
///
/// It is not [`Send`], so it is made on its thread:
/// [`local_trustee().entrust(Latch::new(v))`](crate::LocalTrustee::entrust) for this thread,
/// [`trustee.entrust_with(Latch::new, v)`](crate::Trustee::entrust_with) for another one.
///
/// A latch is held by the fiber that has locked it, or that runs a closure launched on it. To lock
/// it once more in the same fiber, or in a launched closure that this fiber waits for, is a mistake
/// that would never end; it is found and refused ([`lock`](Self::lock),
/// [`launch`](crate::Trust::launch)). Cycles through other waits are not found, and hang: two
/// fibers that hold one latch each and want the other's, or a fiber that joins another one which
/// wants its latch. With `GOSSAMER_STALL=10s` in its environment, a program that hangs in one prints
/// the latches, who holds them, and the lines.
///
/// Fibers do not give way between locking and unlocking a latch that is free: a loop over
/// `try_lock` keeps its thread to itself, unless it calls `yield_now`.
#[doc(alias = "Mutex")]
pub struct Latch<T>(Rc<Inner<T>>);

struct Inner<T> {
    /// Who holds it alone; `None` if it is open or shared.
    holder: Cell<Option<Holder>>,
    /// Who shares it. Empty while it has a holder.
    readers: RefCell<Vec<Holder>>,
    /// In the order in which they get it. Empty while the latch is open; the first one of a latch that
    /// is shared wants it alone.
    waiting: RefCell<VecDeque<(Holder, Access)>>,
    /// The number of its property, once a closure was launched on it: for messages.
    property: Cell<Option<u32>>,
    value: UnsafeCell<T>,
}

/// Who holds a latch, or waits for it.
#[derive(Clone, Copy)]
struct Holder {
    /// `None` outside fibers.
    fiber: Option<FiberId>,
    /// Where it locks the latch; `None` for a launched closure.
    place: Option<CallSite>,
}

/// How a fiber holds a latch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Alone,
    Shared,
}

impl Holder {
    #[inline(always)]
    fn current(place: Option<CallSite>) -> Holder {
        Holder { fiber: fiber::current(), place }
    }
}

impl<T> Inner<T> {
    /// Whether a fiber may have the latch now. A reader waits behind a writer that waits, so that
    /// readers cannot keep writers out.
    fn is_free_for(&self, access: Access) -> bool {
        self.holder.get().is_none()
            && match access {
                Access::Alone => self.readers.borrow().is_empty(),
                Access::Shared => self.waiting.borrow().is_empty(),
            }
    }

    /// Gives the latch to `me` if it may have it now.
    fn take(&self, me: Holder, access: Access) -> bool {
        let is_free = self.is_free_for(access);
        match access {
            _ if !is_free => {}
            Access::Alone => self.holder.set(Some(me)),
            Access::Shared => self.readers.borrow_mut().push(me),
        }
        is_free
    }

    /// Whether it has neither a holder nor readers.
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.holder.get().is_none() && self.readers.borrow().is_empty()
    }

    /// Takes the latch from `me`, who has it, and gives it to those whose turn it is.
    fn give_up(&self, me: Holder, access: Access) {
        match access {
            Access::Alone => self.holder.set(None),
            Access::Shared => {
                let mut readers = self.readers.borrow_mut();
                let at = readers.iter().position(|reader| reader.fiber == me.fiber);
                at.map(|at| readers.swap_remove(at));
            }
        }
        if !self.waiting.borrow().is_empty() {
            self.pass_on();
        }
    }

    /// Gives the latch to the fiber that has waited longest, if it may have it, with those behind it
    /// that may share it. To them it is closed at once, before they run.
    #[inline(never)]
    fn pass_on(&self) {
        loop {
            let mut waiting = self.waiting.borrow_mut();
            let Some(&(next, access)) = waiting.front() else { return };
            let may_have = self.holder.get().is_none()
                && (access == Access::Shared || self.readers.borrow().is_empty());
            if !may_have {
                return;
            }
            waiting.pop_front();
            drop(waiting);
            match access {
                Access::Alone => self.holder.set(Some(next)),
                Access::Shared => self.readers.borrow_mut().push(next),
            }
            if let Some(fiber) = next.fiber {
                fiber::unpark(fiber);
            }
        }
    }

    /// Who holds it now.
    fn holders(&self) -> Vec<Holder> {
        self.holder.get().into_iter().chain(self.readers.borrow().iter().copied()).collect()
    }

    /// What `me`, the current fiber, waits for.
    fn awaited_by(&self, me: Holder) -> AwaitsLatch {
        let launched = me.fiber.filter(|_| me.place.is_none());
        let named = |holder: Holder| NamedHolder {
            name: holder.fiber.and_then(fiber::name_of),
            locked_at: holder.place,
            held_for: holder.fiber.and_then(launched_by),
        };
        AwaitsLatch {
            value: type_name::<T>(),
            property: self.property.get(),
            launched_by: launched.and_then(launched_by),
            is_shared: self.holder.get().is_none(),
            holders: self.holders().into_iter().map(named).collect(),
        }
    }

    /// Waits until the latch is given to `me`, the current fiber.
    fn wait(&self, me: Holder, access: Access) {
        self.waiting.borrow_mut().push_back((me, access));
        let queued = Queued { latch: self, me, access };
        let mut wait = me.place.map_or_else(fiber::Wait::new, fiber::Wait::at);
        while queued.is_waiting() {
            wait.explain(|| self.awaited_by(me));
            if !fiber::park_or_give_up() && queued.is_waiting() {
                panic!(
                    "a latch that is held by a fiber that does not end cannot be locked in a \
                     destructor while the rack ends: use `try_lock`"
                );
            }
        }
        std::mem::forget(queued);
    }
}

/// A fiber in the queue of a latch. Dropped when the fiber is unwound there.
struct Queued<'a, T> {
    latch: &'a Inner<T>,
    me: Holder,
    access: Access,
}

impl<T> Queued<'_, T> {
    fn is_waiting(&self) -> bool {
        self.latch.waiting.borrow().iter().any(|(other, _)| other.fiber == self.me.fiber)
    }
}

impl<T> Drop for Queued<'_, T> {
    fn drop(&mut self) {
        if self.is_waiting() {
            self.latch.waiting.borrow_mut().retain(|(other, _)| other.fiber != self.me.fiber);
            // Those behind it may be readers, for whom the latch is free without it.
            self.latch.pass_on();
        } else {
            self.latch.give_up(self.me, self.access);
        }
    }
}

impl<T> Latch<T> {
    /// An open latch.
    pub fn new(value: T) -> Self {
        Latch(Rc::new(Inner {
            holder: Cell::new(None),
            readers: RefCell::default(),
            waiting: RefCell::default(),
            property: Cell::new(None),
            value: UnsafeCell::new(value),
        }))
    }

    /// Another reference to the same latch, for a fiber that runs a launched closure.
    pub(super) fn share(&self) -> Self {
        Latch(self.0.clone())
    }

    /// Waits until no other fiber holds the latch, and holds it while the guard lives. Fibers get
    /// it in the order they came.
    ///
    /// # Panics
    /// If the latch is held and
    /// - the caller is in delegated context or not a fiber: use [`try_lock`](Self::try_lock) there;
    /// - its holder is the calling fiber, or waits for a launched closure that this fiber runs;
    /// - this is called in a destructor while the rack ends, and the latch stays held when all
    ///   other fibers of the thread have been unwound. Such a panic ends the process: use
    ///   [`try_lock`](Self::try_lock) in destructors.
    #[track_caller]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        let place = Location::caller();
        self.check_may_hold("`Latch::lock`", place, Access::Alone);
        match self.acquire(Some(place), None) {
            Ok(guard) => guard,
            Err(held) => panic!("`Latch::lock` at {place} would never return: {}", held.reason()),
        }
    }

    /// Waits until no fiber holds the latch alone, nor waits for that, and shares it while the guard
    /// lives: other readers have it at the same time. Pays only where readers wait while they hold it.
    ///
    /// # Panics
    /// As [`lock`](Self::lock), also where another guard of the calling fiber, or of one that waits for
    /// it, shares the latch: a writer that comes between the two would wait for the first, and the
    /// second for the writer.
    #[track_caller]
    pub fn read(&self) -> LatchReadGuard<'_, T> {
        let place = Location::caller();
        self.check_may_hold("`Latch::read`", place, Access::Shared);
        match self.acquire_shared(Some(place), None) {
            Ok(guard) => guard,
            Err(held) => panic!("`Latch::read` at {place} may never return: {}", held.reason()),
        }
    }

    /// As [`lock`](Self::lock), at `place`, or for a closure launched on the latch, which is that
    /// property; an error if that would wait for itself.
    pub(super) fn acquire(
        &self,
        place: Option<CallSite>,
        property: Option<u32>,
    ) -> Result<LatchGuard<'_, T>, HeldByCaller> {
        let me = self.hold(place, property, Access::Alone)?;
        Ok(LatchGuard { latch: self, me, holds: true })
    }

    /// As [`acquire`](Self::acquire), for [`read`](Self::read).
    pub(super) fn acquire_shared(
        &self,
        place: Option<CallSite>,
        property: Option<u32>,
    ) -> Result<LatchReadGuard<'_, T>, HeldByCaller> {
        let me = self.hold(place, property, Access::Shared)?;
        Ok(LatchReadGuard { latch: self, me })
    }

    /// Refuses to wait for the latch in delegated context, if the call `what` at `place` would.
    #[inline]
    #[track_caller]
    fn check_may_hold(&self, what: &str, place: CallSite, access: Access) {
        if !self.0.is_free_for(access) {
            check_may_wait(what, place);
        }
    }

    fn hold(
        &self,
        place: Option<CallSite>,
        property: Option<u32>,
        access: Access,
    ) -> Result<Holder, HeldByCaller> {
        let me = Holder::current(place);
        if property.is_some() {
            self.0.property.set(property);
        }
        if self.0.is_open() && self.0.take(me, access) {
            return Ok(me);
        }
        self.hold_slow(me, access)
    }

    /// As [`hold`](Self::hold), if the latch has a holder or readers.
    #[inline(never)]
    fn hold_slow(&self, me: Holder, access: Access) -> Result<Holder, HeldByCaller> {
        // Readers also where they need not wait: whether a writer comes between is a matter of chance.
        if let Some(held) = self.held_by_caller(me) {
            return Err(held);
        }
        if !self.0.take(me, access) {
            assert!(me.fiber.is_some(), "a latch that is held is waited for by a fiber");
            self.0.wait(me, access);
        }
        Ok(me)
    }

    /// Whether a wait for the latch would wait for `me`, the current fiber.
    fn held_by_caller(&self, me: Holder) -> Option<HeldByCaller> {
        let fiber = me.fiber?;
        let holders = self.0.holders();
        let fibers = holders.iter().filter_map(|holder| holder.fiber);
        let (holding, relation) = relation(fibers, fiber)?;
        let holder = holders.iter().find(|holder| holder.fiber == Some(holding))?;
        Some(HeldByCaller { relation, locked: holder.place })
    }

    /// Holds the latch if it is open.
    #[track_caller]
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        let me = Holder::current(Some(Location::caller()));
        self.0.take(me, Access::Alone).then(|| LatchGuard { latch: self, me, holds: true })
    }
}

impl<T: fmt::Debug> fmt::Debug for Latch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("Latch").field(&*guard).finish(),
            None => f.write_str("Latch(held)"),
        }
    }
}

/// Holds a latch while it lives.
#[must_use = "the latch is open again when the guard is dropped"]
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
    me: Holder,
    /// False only while its fiber waits at a [`Condvar`](crate::Condvar), and after it was unwound
    /// there.
    holds: bool,
}

impl<T> LatchGuard<'_, T> {
    /// Opens the latch, runs `wait`, and holds the latch again, in the current fiber. Where `wait`
    /// unwinds, the guard goes on without it.
    ///
    /// # Panics
    /// If it has been unwound so before.
    pub(super) fn open_while(&mut self, wait: impl FnOnce()) {
        // Without it, this would open the latch of another fiber's guard.
        self.check();
        self.holds = false;
        self.latch.0.give_up(self.me, Access::Alone);
        wait();
        // The fiber that has locked the latch may be another one, and have handed on the guard.
        self.me = Holder::current(self.me.place);
        if !self.latch.0.take(self.me, Access::Alone) {
            self.latch.0.wait(self.me, Access::Alone);
        }
        self.holds = true;
    }

    /// Panics unless the guard holds its latch.
    #[inline(always)]
    pub(super) fn check(&self) {
        assert!(self.holds, "the fiber was unwound where it waited, and does not hold the latch");
    }
}

impl<T: fmt::Debug> fmt::Debug for LatchGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.check();
        // SAFETY: the latch is held by this guard alone, and latches do not leave their thread.
        unsafe { &*self.latch.0.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.check();
        // SAFETY: as for `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.latch.0.value.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    fn drop(&mut self) {
        if self.holds {
            self.latch.0.give_up(self.me, Access::Alone);
        }
    }
}

/// Shares a latch while it lives, with other readers.
#[must_use = "the latch is open again when the guard is dropped"]
pub struct LatchReadGuard<'a, T> {
    latch: &'a Latch<T>,
    me: Holder,
}

impl<T: fmt::Debug> fmt::Debug for LatchReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for LatchReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: while the latch is shared, by this guard too, no `LatchGuard` exists, so all
        // references to the value are shared ones. Latches do not leave their thread, so that `T`
        // need not be `Sync`.
        unsafe { &*self.latch.0.value.get() }
    }
}

impl<T> Drop for LatchReadGuard<'_, T> {
    fn drop(&mut self) {
        self.latch.0.give_up(self.me, Access::Shared);
    }
}
