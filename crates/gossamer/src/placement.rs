//! Where fibers and properties go: the pool of this host's threads, the pool of the rack's threads,
//! and any thread of the rack (thesis 1.2, 2.3.2, 2.3.3).
//!
//! | | Who chooses the thread | What it takes |
//! |---|---|---|
//! | [`entrust`], [`spawn`] | the pool of this host | any value or closure that is `Send` |
//! | [`entrust_with`], [`spawn_with`] | the policy of the rack ([`Placement`](crate::Placement)): a thread of any host, unless it is set otherwise | a function that captures nothing, and its arguments, which are encoded |
//! | [`Trustee::entrust_with`], [`spawn_on`], [`spawn_on_with`] | the caller | the same |
//!
//! All that start fibers return a [`JoinHandle`].

use fiber::{JoinHandle, Scope};
use transport_api::ThreadId;
use trust_core::{Delegable, DelegateError, Portable, Trust, Trustee, local_trustee};

use crate::hosts::{shared, trustee};
use crate::worker::try_shared;

/// Entrusts `value` to a thread of this host; values are spread over the threads in turn (over the
/// dedicated trustees, if the rack has them). It does not wait for that thread, so it also works in
/// delegated closures, and in initialisers that must not wait, such as those of
/// [`std::thread_local!`].
///
/// A value that is not `Send`, such as an [`Rc`](std::rc::Rc) or a [`Latch`](crate::Latch), is made where
/// it stays: `entrust_with(Latch::new, value)`, or `local_trustee().entrust(Latch::new(value))` on this
/// thread.
///
/// # Panics
/// Outside a thread of a rack, and when the rack has ended.
#[track_caller]
pub fn entrust<T: Send + 'static>(value: T) -> Trust<T> {
    let shared = shared();
    let me = local_trustee();
    let thread = shared.thread_for_property();
    match Trustee::from_thread(ThreadId { host: shared.transport.local(), thread }) {
        Some(trustee) if trustee != me.trustee() => trustee.entrust_moved(value),
        _ => me.entrust(value),
    }
}

/// As [`entrust`], but failures come back as errors.
///
/// # Errors
/// [`DelegateError::NoRack`], outside a thread of a rack and when the rack has ended.
pub fn try_entrust<T: Send + 'static>(value: T) -> Result<Trust<T>, DelegateError> {
    let shared = try_shared()?;
    let thread = shared.thread_for_property();
    let thread = ThreadId { host: shared.transport.local(), thread };
    match Trustee::from_thread(thread) {
        Some(trustee) => trustee.try_entrust_moved(value),
        None => Err(*trust_core::outside()),
    }
}

/// Has a thread of the rack make a value from `arguments`, and entrusts it there. The rack's
/// [`Placement`](crate::Placement) chooses the thread: values are spread over the threads of all hosts
/// in turn (over the dedicated trustees, if the rack has them), or over those of this host. The value
/// itself need not be able to travel.
///
/// ```
/// use std::collections::HashMap;
///
/// # gossamer::Rack::new().threads(2).run(|| {
/// let ages = gossamer::entrust_with(|()| HashMap::<String, u32>::new(), ());
/// ages.apply_with(|ages, (name, age)| ages.insert(name, age), ("Ada".to_owned(), 36));
/// assert_eq!(ages.apply(|ages| ages.len()), 1);
/// # }).unwrap();
/// ```
///
/// # Panics
/// As [`Trust::apply_with`], for which it waits unless the thread is this one; with the panic of
/// `make`.
#[track_caller]
pub fn entrust_with<A, T, F>(make: F, arguments: A) -> Trust<T>
where
    A: Portable,
    T: 'static,
    F: FnOnce(A) -> T + Delegable,
{
    trustee(shared().place_property()).entrust_with(make, arguments)
}

/// As [`entrust_with`], but failures come back as errors.
///
/// # Errors
/// As [`Trustee::try_entrust_with`]: the panic of `make`, the loss of the host that was chosen, and
/// [`DelegateError::NoRack`] outside a thread of a rack.
///
/// # Panics
/// In delegated context, and if the arguments' own code panics while they are encoded.
#[track_caller]
pub fn try_entrust_with<A, T, F>(make: F, arguments: A) -> Result<Trust<T>, DelegateError>
where
    A: Portable,
    T: 'static,
    F: FnOnce(A) -> T + Delegable,
{
    let place = try_shared()?.place_property();
    let trustee = Trustee::from_thread(place).ok_or_else(|| *trust_core::outside())?;
    trustee.try_entrust_with(make, arguments)
}

/// Starts a fiber on a thread of the rack, with `arguments`. The rack's
/// [`Placement`](crate::Placement) chooses the thread: fibers are spread over the threads of all hosts in
/// turn, or over those of this host. The closure captures nothing; it works on its arguments, such as
/// trusts.
///
/// ```
/// # gossamer::Rack::new().threads(2).run(|| {
/// let counter = gossamer::entrust(0u64);
/// let fibers: Vec<_> = (0..4)
///     .map(|_| gossamer::spawn_with(|counter| counter.apply(|c| *c += 1), counter.clone()))
///     .collect();
/// fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
/// assert_eq!(counter.apply(|c| *c), 4);
/// # }).unwrap();
/// ```
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn spawn_with<A, F, U>(closure: F, arguments: A) -> JoinHandle<U>
where
    A: Portable,
    F: FnOnce(A) -> U + Delegable,
    U: Portable + Send,
{
    trustee(shared().place_fiber()).spawn_with(closure, arguments)
}

/// Starts a fiber on a thread of this host; fibers are spread over the threads in turn. The
/// closure may capture any value that can be sent to another thread, such as a trust.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn spawn<F, U>(closure: F) -> JoinHandle<U>
where
    F: FnOnce() -> U + Send + 'static,
    U: Send + 'static,
{
    let shared = shared();
    shared.remote(shared.thread_for_fiber()).spawn(closure)
}

/// Starts fibers on threads of this host that borrow what lives longer than this call, and waits until
/// all of them have ended: [`std::thread::scope`] for fibers. They are spread over the threads in turn.
///
/// ```
/// # gossamer::Rack::new().threads(2).run(|| {
/// let mut samples = vec![3, 1, 4, 1, 5, 9, 2, 6];
/// let total = gossamer::entrust(0);
/// gossamer::scope(|s| {
///     for part in samples.chunks_mut(2) {
///         let total = &total;
///         s.spawn(move || {
///             part.sort();
///             total.apply_with(|total, sum| *total += sum, part.iter().sum::<i32>());
///         });
///     }
/// });
/// assert_eq!(samples, [1, 3, 1, 4, 5, 9, 2, 6]);
/// assert_eq!(total.apply(|total| *total), 31);
/// # }).unwrap();
/// ```
///
/// Callbacks of any call with `_then` borrow as well, if the scope makes them
/// ([`Scope::callback`]). The scope waits until they have run, so no [`flush`](crate::flush) is needed:
///
/// ```
/// # gossamer::Rack::new().threads(2).run(|| {
/// use std::cell::Cell;
///
/// let lists: Vec<_> =
///     gossamer::trustees().map(|trustee| trustee.entrust(vec![1, 2, 3])).collect();
/// let (total, mut first) = (Cell::new(0), None);
/// gossamer::scope(|s| {
///     for list in &lists {
///         list.apply_then(|list| list.len(), s.callback(|len| total.set(total.get() + len)));
///     }
///     lists[0].apply_then(|list| list.first().copied(), s.callback(|found| first = found));
/// });
/// assert_eq!((total.get(), first), (6, Some(1)));
/// # }).unwrap();
/// ```
///
/// They run on the thread that made them, outside fibers, and must not wait. If a request fails, its
/// callback is dropped without a call, and the failure is reported as it is outside a scope; the forms
/// with `try_` pass it to the callback. If the compiler asks for the type of a callback's parameter, name
/// it: `s.callback(|text: String| ..)`.
///
/// Borrows do not cross hosts: delegated closures and fibers of other hosts take arguments.
///
/// If the rack ends meanwhile, the fibers of the scope are unwound, and its callbacks dropped, before the
/// fiber that waits for them is unwound; callbacks that `f` still holds are dropped when `f` is unwound.
/// One that is leaked, or held by a property of the thread that made it, ends the process with a message
/// then ([`Scope::callback`]).
///
/// # Panics
/// If `f` does, or a fiber of the scope whose handle is not joined; in delegated context; outside a
/// fiber of a rack.
#[doc(alias = "thread_scope")]
#[track_caller]
pub fn scope<'env, F, R>(f: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    let shared = shared();
    fiber::scope(move || shared.remote(shared.thread_for_fiber()).clone(), f)
}

/// Starts a fiber at `trustee`'s thread: this one ([`local_trustee`]), another one of this host, or
/// one of another host. The closure captures nothing; [`spawn_on_with`] passes values.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn spawn_on<F, U>(trustee: impl Into<Trustee>, closure: F) -> JoinHandle<U>
where
    F: FnOnce() -> U + Delegable,
    U: Portable + Send,
{
    trustee.into().spawn(closure)
}

/// Starts a fiber at `trustee`'s thread, on any host of the rack, with `arguments`.
///
/// ```
/// # gossamer::Rack::new().threads(2).run(|| {
/// let counter = gossamer::entrust(0u64);
/// let fibers: Vec<_> = gossamer::trustees()
///     .map(|trustee| {
///         gossamer::spawn_on_with(trustee, |counter| counter.apply(|c| *c += 1), counter.clone())
///     })
///     .collect();
/// fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
/// assert_eq!(counter.apply(|c| *c), 2);
/// # }).unwrap();
/// ```
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn spawn_on_with<A, F, U>(
    trustee: impl Into<Trustee>,
    closure: F,
    arguments: A,
) -> JoinHandle<U>
where
    A: Portable,
    F: FnOnce(A) -> U + Delegable,
    U: Portable + Send,
{
    trustee.into().spawn_with(closure, arguments)
}
