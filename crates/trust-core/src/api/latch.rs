//! [`Latch`]: mutual exclusion between the fibers of one thread, so that a fiber may wait while it
//! works on a property (thesis 2.4.3).

use std::any::type_name;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::rc::Rc;

use fiber::FiberId;

use crate::api::may_wait::check_may_wait;
use crate::api::trustee::Trustee;
use crate::node::awaited::ReplyTo;
use crate::node::chain::{Relation, launched_by, relation};
use crate::node::{CallSite, Node, NodeId, on_node};

/// A value that one fiber at a time may use, for the fibers of one thread. Like a `Mutex`, without
/// atomics. A property must be wrapped in one for [`launch`](crate::Trust::launch).
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
    holder: Cell<Option<Holder>>,
    waiting: RefCell<VecDeque<Holder>>,
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

impl Holder {
    fn current(place: Option<CallSite>) -> Holder {
        Holder { fiber: fiber::current(), place }
    }
}

impl<T> Inner<T> {
    /// Gives the latch to the fiber that has waited longest, or opens it.
    fn pass_on(&self) {
        // The latch stays closed to other fibers until that fiber runs.
        let next = self.waiting.borrow_mut().pop_front();
        self.holder.set(next);
        if let Some(fiber) = next.and_then(|next| next.fiber) {
            fiber::unpark(fiber);
        }
    }

    /// What `me`, the current fiber, waits for.
    fn awaited_by(&self, me: Holder) -> AwaitsLatch {
        let launched = me.fiber.filter(|_| me.place.is_none());
        let holder = self.holder.get();
        let held_by = holder.and_then(|holder| holder.fiber);
        AwaitsLatch {
            value: type_name::<T>(),
            property: self.property.get(),
            launched_by: launched.and_then(launched_by),
            holder: held_by.and_then(fiber::name_of),
            locked_at: holder.and_then(|holder| holder.place),
            held_for: held_by.and_then(launched_by),
        }
    }

    /// Waits until the latch is given to `me`, the current fiber.
    fn wait(&self, me: Holder) {
        self.waiting.borrow_mut().push_back(me);
        let queued = Queued { latch: self, fiber: me.fiber };
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
    fiber: Option<FiberId>,
}

impl<T> Queued<'_, T> {
    fn is_waiting(&self) -> bool {
        self.latch.waiting.borrow().iter().any(|other| other.fiber == self.fiber)
    }
}

impl<T> Drop for Queued<'_, T> {
    fn drop(&mut self) {
        if self.is_waiting() {
            self.latch.waiting.borrow_mut().retain(|other| other.fiber != self.fiber);
        } else {
            self.latch.pass_on();
        }
    }
}

impl<T> Latch<T> {
    /// An open latch.
    pub fn new(value: T) -> Self {
        Latch(Rc::new(Inner {
            holder: Cell::new(None),
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
        match self.acquire(Some(place), None) {
            Ok(guard) => guard,
            Err(held) => panic!("`Latch::lock` at {place} would never return: {}", held.reason()),
        }
    }

    /// As [`lock`](Self::lock), at `place`, or for a closure launched on the latch, which is that
    /// property; an error if that would wait for itself.
    pub(super) fn acquire(
        &self,
        place: Option<CallSite>,
        property: Option<u32>,
    ) -> Result<LatchGuard<'_, T>, HeldByCaller> {
        let me = Holder::current(place);
        if property.is_some() {
            self.0.property.set(property);
        }
        match self.0.holder.get() {
            None => self.0.holder.set(Some(me)),
            Some(holder) => {
                if let Some(place) = place {
                    check_may_wait("`Latch::lock`", place);
                }
                let fiber = me.fiber.expect("a latch that is held is waited for by a fiber");
                if let Some(holding) = holder.fiber
                    && let Some(relation) = relation(holding, fiber)
                {
                    return Err(HeldByCaller { relation, locked: holder.place });
                }
                self.0.wait(me);
            }
        }
        Ok(LatchGuard::new(self))
    }

    /// Holds the latch if it is open.
    #[track_caller]
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        if self.0.holder.get().is_some() {
            return None;
        }
        self.0.holder.set(Some(Holder::current(Some(Location::caller()))));
        Some(LatchGuard::new(self))
    }
}

/// The wait of a fiber for a latch, as reports show it.
struct AwaitsLatch {
    value: &'static str,
    property: Option<u32>,
    /// The call that has launched the waiting fiber.
    launched_by: Option<ReplyTo>,
    /// The name of the fiber that holds it, and how that got it.
    holder: Option<String>,
    locked_at: Option<CallSite>,
    held_for: Option<ReplyTo>,
}

impl fmt::Display for AwaitsLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.property {
            Some(property) => {
                write!(f, "the latch of property {property} of this thread (`{}`)", self.value)?
            }
            None => write!(f, "a latch (`{}`)", self.value)?,
        }
        if let Some(call) = self.launched_by {
            write!(f, ", to run the closure launched at {}", place_of(call))?;
        }
        match &self.holder {
            Some(name) => write!(f, "; {name} holds it")?,
            None => f.write_str("; code outside fibers holds it")?,
        }
        match (self.locked_at, self.held_for) {
            (Some(place), _) => write!(f, ", locked at {place}"),
            (None, Some(call)) => write!(f, ", for the closure launched at {}", place_of(call)),
            (None, None) => Ok(()),
        }
    }
}

/// A latch is held by the fiber that wants it, or by one that waits for that fiber.
pub(super) struct HeldByCaller {
    relation: Relation,
    /// Where the holder has locked it, if it was not launched on it.
    locked: Option<CallSite>,
}

impl HeldByCaller {
    /// Says where the holder got the latch. Asks the thread that launched it, and waits for that.
    pub(super) fn reason(&self) -> String {
        let launched = |call: ReplyTo| format!("launched at {}", place_of(call));
        let got = |call: Option<ReplyTo>| match (self.locked, call) {
            (Some(place), _) => format!("locked at {place}"),
            (None, Some(call)) => launched(call),
            (None, None) => "launched".to_owned(),
        };
        match self.relation {
            Relation::Itself(call) => {
                format!("its own fiber holds the latch ({}): drop that guard first", got(call))
            }
            Relation::Caller(call) => format!(
                "the latch is held by a fiber ({}) that waits for this one: let that closure end \
                 first, or use another latch",
                got(Some(call))
            ),
        }
    }
}

/// Where a launch was made; asks the thread that made it, and waits for the answer.
pub(super) fn place_of(call: ReplyTo) -> String {
    let ask = |node: &Node, token| node.place_of(token).map(ToString::to_string);
    on_node(|node| NodeId::new(node.id.rack(), call.thread()))
        .and_then(|id| Trustee::with_id(id).try_visit_node(ask, call.token()).ok().flatten())
        .unwrap_or_else(|| "an unknown place".to_owned())
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
    /// False only while its fiber waits at a [`Condvar`](crate::Condvar), and after it was unwound
    /// there.
    holds: bool,
}

impl<'a, T> LatchGuard<'a, T> {
    fn new(latch: &'a Latch<T>) -> Self {
        LatchGuard { latch, holds: true }
    }

    /// Opens the latch, runs `wait`, and holds the latch again, in the current fiber. Where `wait`
    /// unwinds, the guard goes on without it.
    ///
    /// # Panics
    /// If it has been unwound so before.
    pub(super) fn open_while(&mut self, wait: impl FnOnce()) {
        // Without it, this would open the latch of another fiber's guard.
        self.check();
        // The holder may be another fiber, or none, that has locked the latch and handed on the guard.
        let me = Holder::current(self.latch.0.holder.get().and_then(|holder| holder.place));
        self.holds = false;
        self.latch.0.pass_on();
        wait();
        if self.latch.0.holder.get().is_none() {
            self.latch.0.holder.set(Some(me));
        } else {
            self.latch.0.wait(me);
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
        // SAFETY: the latch is held by this guard, of which there is one at a time, and latches
        // do not leave their thread.
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
            self.latch.0.pass_on();
        }
    }
}
