//! Starting fibers, here or elsewhere, through one interface.
//!
//! What differs between places is what may travel there: anything on this thread, `Send` values on
//! another thread, serialisable ones on another host. So the job is a type parameter of [`Spawn`],
//! and each place says by its bounds which jobs it takes.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::block::State;
use crate::error::{JoinError, SpawnError};
use crate::here;
use crate::join::{Join, LocalJoinHandle, LocalPromise};
use crate::local::Locals;
use crate::switch::MAX_INLINE_CLOSURE_BYTES;

/// A place where fibers can be started with jobs of type `J`.
///
/// ```
/// use gossamer_fiber::{Config, Here, Join, JoinError, Scheduler, Spawn};
///
/// /// Works the same wherever `place` is.
/// fn double<S>(place: &S, n: u64) -> Result<u64, JoinError>
/// where
///     S: Spawn<Box<dyn FnOnce() -> u64 + Send>, Output = u64>,
/// {
///     place.spawn(Box::new(move || 2 * n))?.join()
/// }
///
/// let scheduler = Scheduler::new(Config::default())?;
/// let remote = scheduler.remote();
/// let sum = scheduler.enter(|| {
///     gossamer_fiber::spawn_local(move || Ok::<_, JoinError>(double(&Here, 20)? + double(&remote, 1)?))
/// });
/// while !sum.is_finished() {
///     scheduler.run(64);
/// }
/// assert_eq!(sum.join()??, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Spawn<J> {
    /// What the fiber returns.
    type Output;
    /// Waits for it.
    type Handle: Join<Output = Self::Output>;

    /// Starts a fiber that does `job`, as `builder` describes it.
    ///
    /// # Errors
    /// Says why the fiber could not be started, as far as that is known at once; what is found out
    /// later is an error of the join.
    fn spawn_with(&self, builder: Builder, job: J) -> Result<Self::Handle, SpawnError>;

    /// Starts a fiber that does `job`, with a default name and stack.
    ///
    /// # Errors
    /// As [`Spawn::spawn_with`].
    fn spawn(&self, job: J) -> Result<Self::Handle, SpawnError> {
        self.spawn_with(Builder::new(), job)
    }
}

/// The scheduler that the calling thread has entered, as a place to spawn on. Takes every closure.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

impl<F, T> Spawn<F> for Here
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    type Output = T;
    type Handle = LocalJoinHandle<T>;

    #[inline]
    fn spawn_with(&self, builder: Builder, job: F) -> Result<LocalJoinHandle<T>, SpawnError> {
        if size_of::<F>() > MAX_INLINE_CLOSURE_BYTES {
            // Without optimisation every layer below moves the job once more over the new stack.
            let job: Box<dyn FnOnce() -> T> = Box::new(job);
            start_here(builder, job)
        } else {
            start_here(builder, job)
        }
    }
}

#[inline]
fn start_here<F, T>(builder: Builder, job: F) -> Result<LocalJoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    here::with_core(|core| {
        let block = core.reserve(builder.stack_bytes)?;
        let (promise, packet) = LocalPromise::new();
        let id = core.launch(block, builder.name, move || promise.settle(run_to_end(job)));
        Ok(LocalJoinHandle::new(packet, id))
    })
    .unwrap_or(Err(SpawnError::NoScheduler))
}

/// Describes a fiber to be: its name and its stack.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder starts nothing until it is given a closure"]
pub struct Builder {
    name: Option<Cow<'static, str>>,
    stack_bytes: Option<usize>,
}

impl Builder {
    /// A fiber named "fiber N" with a stack of the scheduler's standard size.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the fiber, for messages.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Asks for a stack of at least this many usable bytes; it is raised to
    /// [`MIN_STACK_BYTES`](crate::MIN_STACK_BYTES). Stacks of other than the scheduler's standard
    /// size are not pooled: mapping one costs about 10 microseconds.
    pub fn stack_bytes(mut self, bytes: usize) -> Builder {
        self.stack_bytes = Some(bytes);
        self
    }

    /// Name and stack size, for implementations of [`Spawn`].
    pub fn into_parts(self) -> (Option<Cow<'static, str>>, Option<usize>) {
        (self.name, self.stack_bytes)
    }

    /// Starts the fiber on this thread.
    ///
    /// # Errors
    /// When no scheduler is entered or no stack can be had.
    pub fn spawn_local<F, T>(self, f: F) -> Result<LocalJoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        Here.spawn_with(self, f)
    }

    /// Starts the fiber at `place`.
    ///
    /// # Errors
    /// As [`Spawn::spawn_with`].
    pub fn spawn_on<S: Spawn<J>, J>(self, place: &S, job: J) -> Result<S::Handle, SpawnError> {
        place.spawn_with(self, job)
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
    match Here.spawn(f) {
        Ok(handle) => handle,
        Err(error) => panic!("{error}"),
    }
}

/// Runs a fiber's closure on its fiber, drops the fiber's local values, and says how it ended.
pub(crate) fn run_to_end<T>(f: impl FnOnce() -> T) -> Result<T, JoinError> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let value = f();
        close_locals();
        value
    }));
    result.map_err(|payload| {
        if let Err(second) = catch_unwind(close_locals) {
            std::mem::forget(second);
        }
        how_it_ended(payload)
    })
}

#[cold]
fn how_it_ended(payload: Box<dyn std::any::Any + Send>) -> JoinError {
    let fiber = here::with_fiber(|_, block| match block.state.get() {
        State::Cancelled => None,
        _ => Some(block.name()),
    });
    match fiber.flatten() {
        Some(fiber) => JoinError::Panicked { fiber, payload },
        None => JoinError::Cancelled,
    }
}

fn close_locals() {
    here::with_fiber(|_, block| Locals::close(&block.locals));
}
