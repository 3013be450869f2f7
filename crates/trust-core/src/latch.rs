//! [`Latch`]: mutual exclusion between the fibers of one thread, and `launch`: closures that may
//! wait (thesis 2.4.3).
//!
//! `launch` runs its closure in a fiber of its own at the trustee. That fiber may wait, and while
//! it does, other requests are served; so the property must be a latch, which the fiber holds from
//! the beginning to the end of the closure (`launch.rs` says how its result comes back).

use crate::{
    Trust,
    apply::{Portable, or_raise},
    completion::{Completion, Outcome, boxed},
    context::check_may_wait,
    error::{DelegateError, Ended, OUTSIDE, outside},
    invoke::{Delegable, Invoke, Plain, With, check_captures},
    launch::{Begun, Started, begin},
    node::{Node, Place, with_node},
    system::ReplyTo,
    tell::{Tell, Then},
    waiter::wait,
};
use fiber::FiberId;
use std::{
    cell::{Cell, RefCell, UnsafeCell},
    collections::VecDeque,
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    panic::Location,
    rc::Rc,
};

/// A value that one fiber at a time may use, for the fibers of one thread. Like a `Mutex`, without
/// atomics; what a property must be wrapped in so that [`launch`](Trust::launch) can be used on it.
pub struct Latch<T>(Rc<Inner<T>>);

struct Inner<T> {
    held: Cell<bool>,
    waiting: RefCell<VecDeque<FiberId>>,
    value: UnsafeCell<T>,
}

impl<T> Latch<T> {
    /// A latch that nobody holds.
    pub fn new(value: T) -> Self {
        Latch(Rc::new(Inner {
            held: Cell::new(false),
            waiting: RefCell::default(),
            value: UnsafeCell::new(value),
        }))
    }

    /// Waits until no other fiber holds the latch, and holds it while the guard lives. Fibers get
    /// it in the order they came.
    ///
    /// # Panics
    /// If it is held and the caller is not a fiber, or is in delegated context: there, use
    /// [`try_lock`](Self::try_lock).
    #[track_caller]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        if self.0.held.get() {
            check_may_wait("`Latch::lock`", Location::caller());
            let me = fiber::current().expect("a latch that is held is waited for by a fiber");
            self.0.waiting.borrow_mut().push_back(me);
            // Whoever drops the guard hands the latch over without opening it.
            while self.0.waiting.borrow().contains(&me) {
                fiber::park();
            }
        } else {
            self.0.held.set(true);
        }
        LatchGuard(self)
    }

    /// Holds the latch if nobody does.
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        // Made only if it is ours: dropping a guard opens the latch.
        (!self.0.held.replace(true)).then(|| LatchGuard(self))
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
        let inner = &self.0.0;
        let next = inner.waiting.borrow_mut().pop_front();
        match next {
            Some(fiber) => fiber::unpark(fiber),
            None => inner.held.set(false),
        }
    }
}

/// Starts the fiber of a launched closure.
#[derive(Clone, Copy)]
struct Launch<I>(I);

impl<T, V, I> Invoke<Latch<T>, (ReplyTo, V)> for Launch<I>
where
    T: 'static,
    V: 'static,
    I: Invoke<T, V> + 'static,
    I::Output: Portable,
{
    type Output = Begun;
    fn invoke(self, latch: &mut Latch<T>, (reply_to, arguments): (ReplyTo, V)) -> Begun {
        let latch = Latch(latch.0.clone());
        begin(reply_to, move || self.0.invoke(&mut latch.lock(), arguments))
    }
    fn name() -> &'static str {
        I::name()
    }
}

impl<T: 'static> Trust<Latch<T>> {
    /// As [`apply`](Trust::apply), but the closure runs in a fiber of its own at the trustee, with
    /// the latch held, and may wait: for other trusts, for fibers, for time.
    ///
    /// # Panics
    /// As [`apply`](Trust::apply).
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
    /// As [`try_apply`](Trust::try_apply); also when the closure panics on this very thread.
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
        let told = Tell(Then(then, PhantomData), PhantomData);
        self.launch_cast(Plain(closure), (), told);
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
        let told = Tell(Then(then, PhantomData), PhantomData);
        self.launch_cast(With(closure), arguments, told);
    }

    #[track_caller]
    fn launch_call<I, V>(&self, invoke: I, arguments: V) -> Ended<I::Output>
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
    {
        let place = Location::caller();
        with_node(|node| {
            let node =
                node.filter(|node| node.seat.rack() == self.home.rack()).ok_or_else(outside)?;
            node.context().check_may_wait("`launch`", place);
            wait(|wake| self.start(node, invoke, arguments, wake, place))
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
                node.filter(|node| node.seat.rack() == self.home.rack()).ok_or_else(outside)?;
            self.start(node, invoke, arguments, completion, place);
            Ok(())
        }));
    }

    /// Has the fiber started at the trustee; `completion` gets the result when it ends.
    fn start<I, V, C>(&self, node: &Node, invoke: I, arguments: V, completion: C, place: Place)
    where
        I: Invoke<T, V> + 'static,
        I::Output: Portable,
        V: Portable,
        C: Completion + 'static,
    {
        let Some(trustee) = node.thread_numbered(self.home.number()) else {
            return completion.complete(Outcome::Failed(&OUTSIDE));
        };
        let reply_to = node.await_reply(trustee, boxed(completion));
        let started = Started::new(reply_to, trustee);
        let arguments = (reply_to, arguments);
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
