//! [`scope`]: fibers and callbacks that borrow from the stack of the fiber that starts them.
//!
//! As [`std::thread::scope`], with fibers of any threads of the process. Once the call of `scope` has
//! ended in any way, no scoped fiber and no callback runs, and nothing of its closure or its result
//! exists outside the handles. These rules ensure it:
//!
//! 1. Each scoped fiber and each callback has a [`Child`], which counts it in [`Children`] and is dropped
//!    after the closure and the promise, also when the fiber does not start or is unwound, and when the
//!    callback is dropped without a call. One that is leaked is counted for ever.
//! 2. `scope` catches a panic of its closure, and goes on only when the count is zero.
//! 3. A fiber ends otherwise only when its scheduler is dropped (`core/teardown.rs`). That unwinds fibers
//!    without children first, and then those that still run the closure of their scope, which may hold
//!    callbacks: what children borrow outlives `'scope`, so it is not in the closure's frames. After the
//!    closure a fiber gives the processor back until its children have ended, so that rule 2 holds and
//!    no fiber keeps another from being unwound. Children at another scheduler of the thread, and
//!    callbacks that something else holds, cannot end meanwhile: the process ends with a message.
//! 4. A fiber that is being unwound starts no others and makes no callbacks.
//! 5. A program that leaks the scheduler leaks the stack of the fiber with it.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{self, Thread};

use primitive::sync::{AtomicUsize, Ordering};

use crate::abort::die;
use crate::core::block::{Children, State};
use crate::core::builder::Builder;
use crate::core::current;
use crate::core::inbox::{Job, Message};
use crate::core::run_to_end;
use crate::error::{JoinError, SpawnError};
use crate::join::{JoinHandle, Promise};
use crate::ops;
use crate::remote::Remote;
use crate::unparker::Unparker;

/// What the fibers and callbacks of a scope share.
struct ScopeData {
    /// Those that have not ended; the scheduler of the scope's fiber reads it, too.
    children: Arc<Children>,
    /// Those that have ended without a result, less the errors that joins have returned (which may come
    /// first, so it may pass below zero).
    failed: AtomicUsize,
    owner: Unparker,
    /// The owner's, which waits for the children when its scheduler is dropped.
    thread: Thread,
}

/// Counts one fiber or callback of a scope while it lives.
struct Child {
    data: Arc<ScopeData>,
    /// Whether it is on the thread of the scope's fiber.
    beside: bool,
    /// Whether its end is no failure of the scope: a fiber has a result, or it is a callback.
    succeeded: bool,
}

impl Drop for Child {
    fn drop(&mut self) {
        let ScopeData { children, failed, owner, thread } = &*self.data;
        if !self.succeeded {
            failed.fetch_add(1, Ordering::Relaxed);
        }
        let (left, all_beside) = children.end_one(self.beside);
        if left == 0 {
            owner.unpark();
        }
        // If that thread drops its scheduler, it waits for those on other threads.
        if left == 0 || (all_beside && !self.beside) {
            thread.unpark();
        }
    }
}

/// What a scoped fiber runs. Its fields go in this order, also when it is dropped and not run.
struct Body<F, T> {
    closure: F,
    promise: Promise<T>,
    child: Child,
}

impl<F: FnOnce() -> T, T> Body<F, T> {
    fn run(self, start: Result<(), SpawnError>) {
        // In this order, so that a panic drops them in the order of the fields.
        let mut child = self.child;
        let promise = self.promise;
        let closure = self.closure;
        let outcome = match start {
            Ok(()) => run_to_end(closure),
            Err(error) => {
                drop(closure);
                Err(error.into())
            }
        };
        child.succeeded = outcome.is_ok();
        // If the handle is gone, this drops the result.
        promise.settle(outcome);
    }
}

/// A callback. Its fields go in this order, also when it is dropped and not called.
struct Held<F> {
    closure: F,
    child: Child,
}

impl<F> Held<F> {
    fn call<A>(self, value: A)
    where
        F: FnOnce(A),
    {
        // Dropped after the closure, which the call drops, also if it panics.
        let _child = self.child;
        (self.closure)(value);
    }
}

/// Where scoped fibers are started and callbacks are made: the argument of the closure given to
/// [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<ScopeData>,
    choose: Box<dyn Fn() -> Remote + Send + Sync>,
    /// Both invariant, as those of `std::thread::Scope`.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// Runs `f`, which may start fibers and make callbacks that borrow what lives longer than this call, and
/// waits until all of them have ended. `choose` says where the next fiber is started.
///
/// If the scheduler of this fiber is dropped meanwhile, this fiber is unwound when all of them have
/// ended. Callbacks that fibers of the scheduler hold are dropped then, also those that `f` holds. A
/// thread with several schedulers must drop those of the scoped fibers first, and what else holds
/// callbacks: while it waits for them in the drop of this fiber's scheduler, it cannot run, unwind or
/// drop them. Then the process ends with a message; or the drop never returns, if it waits for such a
/// fiber or callback by way of another thread.
///
/// ```
/// use gossamer_fiber::{Config, Scheduler, scope, spawn_local};
///
/// let scheduler = Scheduler::new(Config::default())?;
/// let remote = scheduler.remote();
/// let sum = scheduler.enter(|| {
///     spawn_local(move || {
///         let numbers = vec![1, 2, 3, 4];
///         scope(move || remote.clone(), |s| {
///             let (low, high) = numbers.split_at(2);
///             let low = s.spawn(|| low.iter().sum::<i32>());
///             let high = s.spawn(|| high.iter().sum::<i32>());
///             low.join().unwrap() * high.join().unwrap()
///         })
///     })
/// });
/// while !sum.is_finished() {
///     scheduler.run(64);
/// }
/// assert_eq!(sum.join()?, 21);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If `f` does, or a scoped fiber whose handle is not joined; outside fibers; and where
/// [`Config::may_wait`](crate::Config::may_wait) refuses.
#[track_caller]
pub fn scope<'env, F, R>(choose: impl Fn() -> Remote + Send + Sync + 'static, f: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    ops::check_caller_may_wait("`scope`");
    let Some(owner) = ops::unparker() else {
        panic!("fiber::scope was called outside a fiber; spawn a fiber that calls it")
    };
    let children = Arc::new(Children::new());
    let pinned = Pinned::new(&children);
    let scope = Scope {
        data: Arc::new(ScopeData {
            children,
            failed: AtomicUsize::new(0),
            owner,
            thread: thread::current(),
        }),
        choose: Box::new(choose),
        _scope: PhantomData,
        _env: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    pinned.children.closure_runs.store(false, Ordering::Relaxed);
    pinned.wait();
    drop(pinned);
    match result {
        Err(panic) => resume_unwind(panic),
        Ok(_) if scope.data.failed.load(Ordering::Relaxed) != 0 => {
            panic!("a scoped fiber panicked")
        }
        Ok(result) => result,
    }
}

/// Keeps the frames of the running fiber, up to `scope`, while it has children.
struct Pinned {
    children: Arc<Children>,
    /// Whether the thread was panicking when the scope began.
    began_panicking: bool,
}

impl Pinned {
    fn new(children: &Arc<Children>) -> Self {
        current::with_fiber(|_, block| block.scopes.borrow_mut().push(Arc::clone(children)));
        Pinned { children: Arc::clone(children), began_panicking: thread::panicking() }
    }

    fn wait(&self) {
        let Pinned { children, began_panicking } = self;
        while children.any() {
            if is_being_unwound() {
                current::with_fiber(|core, block| {
                    core.wait_for_children(
                        block,
                        children,
                        *began_panicking && thread::panicking(),
                    );
                });
            } else {
                ops::park();
            }
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.children.any() {
            // The frames that the children borrow from would go. Rule 3 keeps that from happening.
            die(&[b"a fiber was unwound while fibers or callbacks of its scope are left\n"]);
        }
        current::with_fiber(|_, block| block.scopes.borrow_mut().pop());
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts a fiber that may borrow what lives longer than the scope. When it cannot be started,
    /// [`ScopedJoinHandle::join`] says why. A fiber that is being unwound starts none (`Cancelled`).
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let remote = (self.choose)();
        let (promise, handle) = Promise::at(remote.shared.scheduler);
        let handle = ScopedJoinHandle { handle, data: Arc::clone(&self.data), _scope: PhantomData };
        if is_being_unwound() {
            self.data.failed.fetch_add(1, Ordering::Relaxed);
            return handle;
        }
        let ScopeData { children, thread, .. } = &*self.data;
        let beside = remote.shared.thread == thread.id();
        children.live.fetch_add(1, Ordering::Relaxed);
        let child = Child { data: Arc::clone(&self.data), beside, succeeded: false };
        let body = Body { closure: f, promise, child };
        let job: Box<dyn FnOnce(Result<(), SpawnError>) + Send + 'scope> =
            Box::new(move |start| body.run(start));
        // SAFETY: only the lifetime changes. What the job holds is gone before its `Child`, which is
        // its last field and what `scope` waits for (rules 1 to 5 above), and `'scope` lasts until
        // then.
        let job: Job = unsafe { std::mem::transmute(job) };
        remote.shared.send(Message::Spawn { builder: Builder::new().code(type_name::<F>()), job });
        if beside {
            // Not before: the scheduler may have been closed, and have dropped the fiber unseen.
            children.beside.fetch_add(1, Ordering::SeqCst);
            // If that thread waits for the fiber already, it finds that out.
            thread.unpark();
        }
        handle
    }

    /// Makes a callback of `f`, which may borrow what lives longer than the scope. It is `'static` and
    /// stays on this thread, so it can be given to what calls it later. The scope waits until it has
    /// been called or dropped; one that is leaked, or that the scope's closure returns, keeps the scope
    /// from ending. If the scheduler of the scope's fiber is dropped while one is leaked, returned, or
    /// held by what its thread drops later (a variable outside the scope's closure, a thread-local, or
    /// a property of the thread), the process ends with a message; or the drop of the scheduler never
    /// returns, if the callback is of another thread than the scope's fiber.
    ///
    /// It runs where it is called, outside fibers or in one, and a panic of it goes to its caller. A
    /// fiber that is being unwound makes none: `f` is dropped, and a call of what is returned does
    /// nothing.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// use gossamer_fiber::{Config, Scheduler, scope, spawn_local};
    ///
    /// let scheduler = Scheduler::new(Config::default())?;
    /// let remote = scheduler.remote();
    /// let sum = scheduler.enter(|| {
    ///     spawn_local(move || {
    ///         let sum = Cell::new(0);
    ///         scope(move || remote.clone(), |s| {
    ///             let add = s.callback(|n: u32| sum.set(sum.get() + n));
    ///             spawn_local(move || add(5)); // has not run yet when this closure returns
    ///         });
    ///         sum.get()
    ///     })
    /// });
    /// while !sum.is_finished() {
    ///     scheduler.run(64);
    /// }
    /// assert_eq!(sum.join()?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "a callback that is dropped is never called"]
    pub fn callback<F, A>(&'scope self, f: F) -> impl FnOnce(A) + 'static + use<F, A>
    where
        F: FnOnce(A) + 'scope,
        A: 'static,
    {
        let callback = (!is_being_unwound()).then(|| {
            let held = Held { closure: f, child: self.callback_child() };
            let callback: Box<dyn FnOnce(A) + 'scope> = Box::new(move |value| held.call(value));
            // SAFETY: only the lifetime changes. The closure is gone, with what it borrows, before
            // its `Child`, which is the last field of `Held` and what `scope` waits for (rules 1 to 5
            // above), and `'scope` lasts until then. The box is not `Send`, so `f`, which need not
            // be, is called and dropped on this thread.
            let callback: Box<dyn FnOnce(A)> = unsafe { std::mem::transmute(callback) };
            callback
        });
        move |value| {
            if let Some(callback) = callback {
                callback(value);
            }
        }
    }

    /// Counts a callback of this thread.
    fn callback_child(&self) -> Child {
        let ScopeData { children, thread, .. } = &*self.data;
        let here = current::with_core(|core| core.shared.thread);
        let beside = here.unwrap_or_else(|| thread::current().id()) == thread.id();
        if beside {
            children.beside.fetch_add(1, Ordering::SeqCst);
        }
        children.live.fetch_add(1, Ordering::Relaxed);
        Child { data: Arc::clone(&self.data), beside, succeeded: true }
    }
}

/// Whether the running fiber is being unwound because its scheduler was dropped.
fn is_being_unwound() -> bool {
    current::with_fiber(|_, block| block.state.get()) == Some(State::Cancelled)
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live = self.data.children.live.load(Ordering::Relaxed);
        f.debug_struct("Scope").field("live", &live).finish_non_exhaustive()
    }
}

/// Waits for a scoped fiber. Dropping it leaves the wait to the end of the scope.
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    data: Arc<ScopeData>,
    _scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Whether the outcome is there: `join` will not wait.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits for the fiber's outcome.
    ///
    /// # Errors
    /// As [`JoinHandle::join`]. The scope does not panic for a failure of the fiber that was returned
    /// here; it does for one after a join that could not wait for the fiber's end.
    ///
    /// # Panics
    /// As [`JoinHandle::join`].
    #[track_caller]
    pub fn join(self) -> Result<T, JoinError> {
        // A wait that fails, or is given up, leaves the fiber to the scope: only the fiber's own
        // failure is counted, and taken back here.
        self.handle.wait_until("`join`", None, Location::caller())?;
        let outcome = self.handle.settled().ok_or(JoinError::Cancelled)?;
        if outcome.is_err() {
            self.data.failed.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle").field("finished", &self.is_finished()).finish()
    }
}
