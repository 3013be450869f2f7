//! [`Latch`]: mutual exclusion between the fibers of one thread, and `launch`: closures that may
//! wait (thesis 2.4.3).
//!
//! `launch` runs its closure in a fiber of its own at the trustee. That fiber may wait, and while
//! it does, other requests are served; so the property must be a latch, which the fiber holds from
//! the beginning to the end of the closure (`launch.rs` says how its result comes back).

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::rc::Rc;

use fiber::FiberId;

use crate::Trust;
use crate::api::apply::or_raise;
use crate::api::callback::{Tell, Then};
use crate::api::launch::{Begun, Started, begin, place_of};
use crate::api::may_wait::check_may_wait;
use crate::client::completion::{Completion, Outcome, boxed};
use crate::client::waiter::wait;
use crate::closure::invoke::{Delegable, Invoke, Plain, With, check_captures};
use crate::codec::Portable;
use crate::error::{CallResult, DelegateError, OUTSIDE, outside};
use crate::node::chain::{Call, Callers, Relation, relation};
use crate::node::system::ReplyTo;
use crate::node::{CallSite, Node, with_node};

/// A value that one fiber at a time may use, for the fibers of one thread. Like a `Mutex`, without
/// atomics; what a property must be wrapped in so that [`launch`](Trust::launch) can be used on it.
///
/// A latch is held by the fiber that has locked it, or that runs a closure launched on it. To lock
/// it once more in the same fiber, or in a launched closure that this fiber waits for, is a mistake
/// that would never end; it is found and refused ([`lock`](Self::lock), [`launch`](Trust::launch)).
/// Cycles through other waits are not found, and hang: two fibers that hold one latch each and want
/// the other's, or a fiber that joins another one which wants its latch.
///
/// Fibers do not give way between locking and unlocking a latch that is free: a loop over
/// `try_lock` keeps its thread to itself, unless it calls `yield_now`.
pub struct Latch<T>(Rc<Inner<T>>);

struct Inner<T> {
    holder: Cell<Option<Holder>>,
    waiting: RefCell<VecDeque<Holder>>,
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

    /// Waits until the latch is given to `me`, the current fiber.
    fn wait(&self, me: Holder) {
        self.waiting.borrow_mut().push_back(me);
        let queued = Queued { latch: self, fiber: me.fiber };
        while queued.is_waiting() {
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
            value: UnsafeCell::new(value),
        }))
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
        match self.acquire(Some(place)) {
            Ok(guard) => guard,
            Err(held) => panic!("`Latch::lock` at {place} would never return: {}", held.reason()),
        }
    }

    /// As [`lock`](Self::lock), at `place`, or for a launched closure; an error if that would wait
    /// for itself.
    fn acquire(&self, place: Option<CallSite>) -> Result<LatchGuard<'_, T>, HeldByCaller> {
        let me = Holder::current(place);
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
        Ok(LatchGuard(self))
    }

    /// Holds the latch if it is open.
    #[track_caller]
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        if self.0.holder.get().is_some() {
            return None;
        }
        self.0.holder.set(Some(Holder::current(Some(Location::caller()))));
        Some(LatchGuard(self))
    }
}

/// A latch is held by the fiber that wants it, or by one that waits for that fiber.
struct HeldByCaller {
    relation: Relation,
    /// Where the holder has locked it, if it was not launched on it.
    locked: Option<CallSite>,
}

impl HeldByCaller {
    /// Says where the holder got the latch. Asks the thread that launched it, and waits for that.
    fn reason(&self) -> String {
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

impl<T: fmt::Debug> fmt::Debug for Latch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("Latch").field(&*guard).finish(),
            None => f.write_str("Latch(held)"),
        }
    }
}

/// Holds a latch while it lives.
pub struct LatchGuard<'a, T>(&'a Latch<T>);

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the latch is held by this guard, of which there is one at a time, and latches
        // do not leave their thread.
        unsafe { &*self.0.0.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.0.0.value.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    fn drop(&mut self) {
        self.0.0.pass_on();
    }
}

/// Starts the fiber of a launched closure.
#[derive(Clone, Copy)]
struct Launch<I>(I);

impl<T, V, I> Invoke<Latch<T>, (Call, V)> for Launch<I>
where
    T: 'static,
    V: 'static,
    I: Invoke<T, V> + 'static,
    I::Output: Portable,
{
    type Output = Begun;
    fn invoke(self, latch: &mut Latch<T>, (call, arguments): (Call, V)) -> Begun {
        let latch = Latch(latch.0.clone());
        let reply_to = call.reply_to;
        begin(reply_to, move || {
            let _running = call.run();
            let mut value = latch.acquire(None).map_err(|held| {
                format!("launched at {}, but {}", place_of(reply_to), held.reason())
            })?;
            Ok(self.0.invoke(&mut value, arguments))
        })
    }
    fn name() -> &'static str {
        I::name()
    }
}

impl<T: 'static> Trust<Latch<T>> {
    /// As [`apply`](Trust::apply), but the closure runs in a fiber of its own at the trustee, with
    /// the latch held, and may wait: for other trusts, for fibers, for time.
    ///
    /// The closure may launch others in turn, on latches of any thread, and so may those. If one of
    /// them is launched on a latch that a closure further up this chain holds, it would wait for
    /// that closure, which waits for it. Such a launch is refused, with an error that names the
    /// places of both. The chain goes through `launch`, `launch_with` and `try_launch_with`, which
    /// wait; a closure launched by [`launch_then`](Self::launch_then) begins a new one, and so does
    /// a fiber that is spawned.
    ///
    /// # Panics
    /// As [`apply`](Trust::apply); if a closure that waits for this one holds the latch; and if
    /// launches are nested more than 256 deep (`primitive::limits::LAUNCH_DEPTH`).
    #[track_caller]
    pub fn launch<F, U>(&self, closure: F) -> U
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.launch_call(Plain(closure), ()))
    }

    /// As [`launch`](Self::launch), with `arguments` for the closure.
    ///
    /// # Panics
    /// As [`apply_with`](Trust::apply_with).
    #[track_caller]
    pub fn launch_with<F, V, U>(&self, closure: F, arguments: V) -> U
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        or_raise(self.launch_call(With(closure), arguments))
    }

    /// As [`launch_with`](Self::launch_with), but failures come back as errors.
    ///
    /// # Errors
    /// As [`try_apply`](Trust::try_apply); also when the closure panics on this very thread, and
    /// [`DelegateError::Refused`] if a closure that waits for this one holds the latch, or if
    /// launches are nested too deep (see [`launch`](Self::launch)).
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn try_launch_with<F, V, U>(&self, closure: F, arguments: V) -> Result<U, DelegateError>
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
    {
        const { check_captures::<F>() };
        self.launch_call(With(closure), arguments).map_err(|error| *error)
    }

    /// As [`launch`](Self::launch), without waiting; `then` is called with the result.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn launch_then<F, U, C>(&self, closure: F, then: C)
    where
        F: FnOnce(&mut T) -> U + Delegable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        let completion = Tell(Then(then, PhantomData), PhantomData);
        self.launch_cast(Plain(closure), (), completion);
    }

    /// As [`launch_then`](Self::launch_then), with `arguments` for the closure.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn launch_with_then<F, V, U, C>(&self, closure: F, arguments: V, then: C)
    where
        F: FnOnce(&mut T, V) -> U + Delegable,
        V: Portable,
        U: Portable,
        C: FnOnce(U) + 'static,
    {
        const { check_captures::<F>() };
        let completion = Tell(Then(then, PhantomData), PhantomData);
        self.launch_cast(With(closure), arguments, completion);
    }

    #[track_caller]
    fn launch_call<I, V>(&self, invoke: I, arguments: V) -> CallResult<I::Output>
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        let place = Location::caller();
        with_node(|node| {
            let node =
                node.filter(|node| node.id.rack() == self.home.rack()).ok_or_else(outside)?;
            node.context().check_may_wait("`launch`", place);
            let callers = node.callers()?;
            wait(|wake| self.start(node, callers, invoke, arguments, wake, place))
        })
    }

    #[track_caller]
    fn launch_cast<I, V, C>(&self, invoke: I, arguments: V, completion: C)
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Completion + 'static,
    {
        let place = Location::caller();
        or_raise(with_node(|node| {
            let node =
                node.filter(|node| node.id.rack() == self.home.rack()).ok_or_else(outside)?;
            // Nothing waits for it.
            self.start(node, Callers::default(), invoke, arguments, completion, place);
            Ok(())
        }));
    }

    /// Has the fiber started at the trustee; `completion` gets the result when it ends.
    fn start<I, V, C>(
        &self,
        node: &Node,
        callers: Callers,
        invoke: I,
        arguments: V,
        completion: C,
        place: CallSite,
    ) where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Completion + 'static,
    {
        let Some(trustee) = node.thread_numbered(self.home.number()) else {
            return completion.complete(Outcome::Failed(&OUTSIDE));
        };
        let reply_to = node.await_reply(trustee, place, boxed(completion));
        let started = Started::new(reply_to, trustee);
        let arguments = (Call { reply_to, callers }, arguments);
        if self.is_used_by(node) {
            node.request(self.target(), Launch(invoke), &arguments, started);
        } else {
            let trust = self.clone();
            node.run_or_defer(move |node| {
                let result = trust.run_inline(node, Launch(invoke), arguments, place);
                started.end(result.map_err(|error| *error));
            });
        }
    }
}
