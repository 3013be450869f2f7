//! Starting fibers on this thread. Those of other threads are started through a
//! [`Remote`](crate::Remote); both are described by a [`Builder`].

use std::any::type_name;

use crate::core::builder::Builder;
use crate::core::{current, run_to_end};
use crate::error::{NotStarted, SpawnError};
use crate::join::{LocalJoinHandle, LocalPromise};
use crate::switch::MAX_INLINE_CLOSURE_BYTES;

impl Builder {
    /// Starts the fiber on this thread.
    ///
    /// # Errors
    /// When no scheduler is entered or no stack can be had.
    #[inline]
    pub fn spawn_local<F, T>(self, f: F) -> Result<LocalJoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        if const { size_of::<F>() > MAX_INLINE_CLOSURE_BYTES } {
            // Without optimisation every layer below moves the closure once more over the new
            // stack.
            let f: Box<dyn FnOnce() -> T> = Box::new(f);
            start(self, f)
        } else {
            start(self, f)
        }
    }
}

impl Builder {
    /// Starts the fiber on this thread and runs it at once, until it waits or ends. Returns what `f`
    /// returns if it does so before its first wait. Otherwise `later` gets that, on the fiber.
    ///
    /// It does not run at once if the caller is a fiber: then its turn comes as that of any other, and
    /// `later` gets the value. If `f` panics, the value is lost, and `later` is not called.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// use gossamer_fiber::{Builder, Config, Scheduler, yield_now};
    ///
    /// let scheduler = Scheduler::new(Config::default())?;
    /// let slow = Rc::new(Cell::new(0));
    /// scheduler.enter(|| {
    ///     let quick = Builder::new().start_now(|| 1, |_| unreachable!("it does not wait"));
    ///     assert_eq!(quick?, Some(1));
    ///     let waits = || {
    ///         yield_now();
    ///         2
    ///     };
    ///     let later = slow.clone();
    ///     assert_eq!(Builder::new().start_now(waits, move |value| later.set(value))?, None);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// scheduler.run(64);
    /// assert_eq!(slow.get(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When no scheduler is entered or no stack can be had. Nothing has run then, not even a destructor
    /// of what `f` captures: the error gives `f` back.
    #[inline]
    pub fn start_now<F, L, T>(self, f: F, later: L) -> Result<Option<T>, NotStarted<F>>
    where
        F: FnOnce() -> T + 'static,
        L: FnOnce(T) + 'static,
        T: 'static,
    {
        let Builder { name, stack_bytes, code } = self;
        // SAFETY: `stack_bytes` is a local of this function.
        let Some(core) = (unsafe { current::core(&stack_bytes) }) else {
            return Err(NotStarted { error: SpawnError::NoScheduler, closure: f });
        };
        let block = match core.reserve(stack_bytes) {
            Ok(block) => block,
            Err(error) => return Err(NotStarted { error, closure: f }),
        };
        let code = code.unwrap_or(type_name::<F>());
        if !core.can_launch_now() {
            core.launch(block, name, code, move || drop(run_to_end(|| later(f()))));
            return Ok(None);
        }
        Ok(core.launch_now(block, name, code, f, later))
    }
}

/// Starts a fiber on this thread, with a default name and stack. It runs when the thread's
/// [`Scheduler::run`](crate::Scheduler::run) comes to it; dropping the handle detaches it.
///
/// # Panics
/// Panics when no scheduler is entered or no stack can be had; [`Builder::spawn_local`] returns an
/// error instead.
#[inline]
#[track_caller]
pub fn spawn_local<F, T>(f: F) -> LocalJoinHandle<T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    match Builder::new().spawn_local(f) {
        Ok(handle) => handle,
        Err(error) => panic!("{error}"),
    }
}

#[inline]
fn start<F, T>(builder: Builder, f: F) -> Result<LocalJoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    current::with_core(|core| {
        let block = core.reserve(builder.stack_bytes)?;
        let (promise, packet) = LocalPromise::new();
        let code = builder.code.unwrap_or(type_name::<F>());
        let id = core.launch(block, builder.name, code, move || promise.settle(run_to_end(f)));
        Ok(LocalJoinHandle::new(packet, id))
    })
    .unwrap_or(Err(SpawnError::NoScheduler))
}
