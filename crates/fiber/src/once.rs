//! Values that are made on first use, by initialisers that may wait: [`OnceLock`] and [`LazyLock`].
//!
//! The standard library's types of the same names block every OS thread that needs the value while
//! the initialiser runs. On a thread with fibers that is a deadlock: if the initialiser waits, the next
//! fiber of its thread that needs the value blocks the thread, and the initialiser never continues.
//! Here fibers park instead. Only threads without fibers block.
//!
//! ```text
//!   empty --turn taken--> initialising --value set--> ready, for good
//!     ^                        |
//!     +--- panicked, unwound --+          leaving `initialising` wakes all who wait
//! ```
//!
//! The value itself is in a [`std::sync::OnceLock`], which never runs an initialiser, so no
//! thread waits inside it.

use std::any::type_name;
use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;

use crate::core::block::FiberId;
use crate::core::current;
use crate::ops;
use crate::wait::Wait;
use crate::waiter::Waiter;

/// A cell that is written once, by an initialiser that may wait.
///
/// As [`std::sync::OnceLock`], but while one fiber's initialiser waits, other fibers that need the
/// value park instead of blocking their OS threads. Threads that run no fiber block.
///
/// ```
/// use gossamer_fiber::OnceLock;
///
/// static PORT: OnceLock<u16> = OnceLock::new();
///
/// assert_eq!(PORT.get(), None);
/// assert_eq!(*PORT.get_or_init(|| 11211), 11211);
/// assert_eq!(PORT.set(80), Err(80));
/// ```
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    gate: Mutex<Gate>,
}

/// Who makes the value, and who waits for it.
struct Gate {
    initialising: Option<Initialiser>,
    waiters: Vec<Waiter>,
}

/// The code whose initialiser runs.
#[derive(Clone, Copy)]
struct Initialiser {
    runner: Runner,
    /// Where it asked for the value.
    place: &'static Location<'static>,
}

/// A flow of control: a fiber, or a thread outside fibers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Runner {
    thread: ThreadId,
    /// The scheduler and the fiber.
    fiber: Option<(u64, FiberId)>,
}

impl Runner {
    fn current() -> Runner {
        let fiber = current::with_fiber(|core, block| (core.shared.scheduler, block.id.get()));
        Runner { thread: thread::current().id(), fiber }
    }
}

impl<T> OnceLock<T> {
    /// An empty cell.
    pub const fn new() -> OnceLock<T> {
        let gate = Mutex::new(Gate { initialising: None, waiters: Vec::new() });
        OnceLock { value: std::sync::OnceLock::new(), gate }
    }

    /// The value, if it is there. Does not wait.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Sets the value, after waiting for an initialiser that runs.
    ///
    /// # Errors
    /// Gives `value` back if the cell has one already.
    ///
    /// # Panics
    /// As [`get_or_init`](Self::get_or_init).
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("an initialiser runs once"));
        value.map_or(Ok(()), Err)
    }

    /// The value, which `init` makes if it is not there. `init` may wait; others who need the value
    /// wait for it. If it panics, the panic goes to its caller and the next who needs the value runs
    /// an initialiser of its own.
    ///
    /// # Panics
    /// - If `init` does, or uses the cell that it is to fill.
    /// - On a thread outside fibers, if a fiber of the same thread runs the initialiser: blocking the
    ///   thread would keep it from ending.
    /// - In a destructor of a fiber that is unwound because its scheduler was dropped, if the
    ///   initialiser is suspended in a destructor that waits for this fiber. Such a panic ends the
    ///   process.
    /// - Where it would have to wait and [`Config::may_wait`](crate::Config::may_wait) refuses.
    #[inline]
    #[track_caller]
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        match self.value.get() {
            Some(value) => value,
            None => self.initialise(init, Location::caller()),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn initialise(&self, init: impl FnOnce() -> T, place: &'static Location<'static>) -> &T {
        if self.take_turn(place) {
            let turn = Turn(&self.gate);
            // A turn is only ever had while there is no value.
            let _ = self.value.set(init());
            drop(turn);
        }
        self.value.get().expect("either it was there, or it has just been set")
    }

    /// Waits until the value is there (false), or until the caller is the one to make it (true).
    #[track_caller]
    fn take_turn(&self, place: &'static Location<'static>) -> bool {
        let me = Runner::current();
        let mut wait = Wait::at(place);
        loop {
            let other = {
                let mut gate = self.gate.lock();
                if self.value.get().is_some() {
                    return false;
                }
                let Some(other) = gate.initialising else {
                    gate.initialising = Some(Initialiser { runner: me, place });
                    return true;
                };
                other
            };
            if other.runner == me {
                refuse_recursion::<T>(other.place, place);
            }
            match ops::unparker() {
                None if other.runner.thread == me.thread => {
                    refuse_deadlock::<T>(other.place, place)
                }
                None => {
                    self.wait(Waiter::thread(), place);
                }
                Some(unparker) => {
                    let made_at = other.place;
                    wait.explain(|| Initialising { name: type_name::<T>(), made_at });
                    if !self.wait(Waiter::Fiber(unparker), place) {
                        self.wait_without_fiber(me, place);
                    }
                }
            }
        }
    }

    /// Waits until an initialiser ends, or returns early; false if the wait is given up.
    #[track_caller]
    fn wait(&self, waiter: Waiter, place: &'static Location<'static>) -> bool {
        let in_fiber = matches!(waiter, Waiter::Fiber(_));
        ops::check_may_wait("the first use of a value", place);
        let mut gate = self.gate.lock();
        if gate.initialising.is_none() {
            return true;
        }
        gate.waiters.push(waiter);
        drop(gate);
        Waiter::park(in_fiber, None)
    }

    /// As [`wait`](Self::wait), in a destructor of a fiber that is unwound and cannot park. The other
    /// fibers of the thread have been unwound before, so what still runs is the initialiser of
    /// another thread, which this one can wait for.
    #[cold]
    #[track_caller]
    fn wait_without_fiber(&self, me: Runner, place: &'static Location<'static>) {
        let other = self.gate.lock().initialising;
        match other {
            Some(other) if other.runner.thread == me.thread => {
                refuse_cycle::<T>(other.place, place)
            }
            Some(_) => {
                self.wait(Waiter::thread(), place);
            }
            None => {}
        }
    }
}

/// What a fiber waits for that needs a value which another one makes.
struct Initialising {
    name: &'static str,
    made_at: &'static Location<'static>,
}

impl fmt::Display for Initialising {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} whose initialiser was started at {}", self.name, self.made_at)
    }
}

/// Ends a turn when the initialiser has ended in any way, and wakes those who wait.
struct Turn<'a>(&'a Mutex<Gate>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiters = {
            let mut gate = self.0.lock();
            gate.initialising = None;
            std::mem::take(&mut gate.waiters)
        };
        for waiter in waiters {
            waiter.wake();
        }
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn refuse_recursion<T>(outer: &Location<'_>, inner: &Location<'_>) -> ! {
    panic!(
        "the initialiser of a {}, started at {outer}, uses the value that it makes, at {inner}",
        std::any::type_name::<T>()
    );
}

#[cold]
#[inline(never)]
#[track_caller]
fn refuse_deadlock<T>(outer: &Location<'_>, inner: &Location<'_>) -> ! {
    panic!(
        "the first use of a {} at {inner}, outside fibers, would block the thread forever: its \
         initialiser, started at {outer}, waits in a fiber of this thread; use the value once in a \
         fiber before it is used outside fibers",
        std::any::type_name::<T>()
    );
}

#[cold]
#[inline(never)]
#[track_caller]
fn refuse_cycle<T>(outer: &Location<'_>, inner: &Location<'_>) -> ! {
    panic!(
        "the use of a {} at {inner}, in a destructor of a fiber that is unwound, waits for that \
         initialiser in a destructor: the one started at {outer}, which waits for this fiber; use \
         the value before its scheduler is dropped",
        std::any::type_name::<T>()
    );
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}

/// A value that is made on first use, by an initialiser that may wait; for statics.
///
/// As [`std::sync::LazyLock`], but while the initialiser waits, other fibers that need the value
/// park instead of blocking their OS threads; and if the initialiser panics, the next use runs it
/// again.
///
/// ```
/// use gossamer_fiber::LazyLock;
///
/// static PRIMES: LazyLock<Vec<u32>> = LazyLock::new(|| vec![2, 3, 5, 7]);
///
/// assert_eq!(PRIMES.len(), 4);
/// ```
pub struct LazyLock<T> {
    cell: OnceLock<T>,
    init: fn() -> T,
}

impl<T> LazyLock<T> {
    /// A value that `init` makes on first use.
    pub const fn new(init: fn() -> T) -> LazyLock<T> {
        LazyLock { cell: OnceLock::new(), init }
    }

    /// The value, which is made now if it is not there.
    ///
    /// # Panics
    /// As [`OnceLock::get_or_init`].
    #[inline]
    #[track_caller]
    pub fn force(this: &LazyLock<T>) -> &T {
        this.cell.get_or_init(this.init)
    }
}

/// Makes the value if it is not there.
///
/// # Panics
/// As [`OnceLock::get_or_init`].
impl<T> Deref for LazyLock<T> {
    type Target = T;

    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T: fmt::Debug> fmt::Debug for LazyLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyLock").field(&self.cell.get()).finish()
    }
}
