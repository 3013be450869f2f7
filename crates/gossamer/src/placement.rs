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

use std::sync::Arc;

use fiber::JoinHandle;
use transport_api::{HostId, ThreadId};
use trust_core::{Delegable, Portable, Trust, Trustee, local_trustee};

use crate::shared::Shared;
use crate::topology::Topology;
use crate::worker;

#[track_caller]
fn shared() -> Arc<Shared> {
    worker::shared().expect("this works on threads of a rack only: call it inside `Rack::run`")
}

/// Entrusts `value` to a thread of this host; values are spread over the threads in turn (over the
/// dedicated trustees, if the rack has them). It does not wait for that thread, so it also works in
/// delegated closures, and in initialisers that must not wait, such as those of
/// [`std::thread_local!`].
///
/// # Panics
/// Outside a thread of a rack, and when the rack has ended.
#[track_caller]
pub fn entrust<T: Send + 'static>(value: T) -> Trust<T> {
    let shared = shared();
    let me = local_trustee();
    let thread = shared.thread_for_property();
    match Trustee::of(ThreadId { host: shared.transport.local(), thread }) {
        Some(trustee) if trustee != me.trustee() => trustee.entrust_moved(value),
        _ => me.entrust(value),
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

/// Starts a fiber on a thread of the rack, with `arguments`. The rack's
/// [`Placement`](crate::Placement) chooses the thread: fibers are spread over the threads of all hosts in
/// turn, or over those of this host. The closure captures nothing; what it works with are its
/// arguments, such as trusts.
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
    trustee.into().spawn_with(move |()| closure(), ())
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

/// This process's host: where [`entrust`] and [`spawn`] put things, and where exported segments are.
/// In the closure of [`spawn_on`] and in a delegated closure, it is the host that runs the closure.
///
/// ```
/// use gossamer::{Access, Rack, Segment, local_host};
///
/// Rack::new().run(|| {
///     // All hosts may read it, and fibers of this one may write it through a remote segment.
///     let access = Access::read().write_for([local_host()]);
///     let prices = Segment::builder("prices").len(4096).access(access).export().unwrap();
///     let last = gossamer::threads().last().unwrap();
///     let opened = gossamer::spawn_on(last, || {
///         let prices = gossamer::RemoteSegment::open("prices")?;
///         Ok::<_, gossamer::SegmentError>((prices.owner(), local_host()))
///     });
///     assert_eq!(opened.join().unwrap().unwrap(), (local_host(), last.thread().host));
///     drop(prices);
/// })?;
/// # Ok::<(), gossamer::RackError>(())
/// ```
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn local_host() -> HostId {
    shared().transport.local()
}

/// The machines of the rack, and the hosts on each. A rack on a transport of the caller
/// ([`Rack::run_on`](crate::Rack::run_on)) counts as one of processes of this machine.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn topology() -> Topology {
    shared().topology.clone()
}

/// Every thread of the rack, host by host.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn threads() -> impl Iterator<Item = Trustee> {
    let shared = shared();
    let count = shared.transport.hosts() * shared.transport.threads();
    (0..count).filter_map(Trustee::numbered)
}

/// Every thread of the rack that holds properties, host by host: the dedicated trustees, or all
/// threads if the rack has no dedicated ones.
///
/// # Panics
/// Outside a thread of a rack.
#[track_caller]
pub fn trustees() -> impl Iterator<Item = Trustee> {
    let holders = shared().trustees_of_a_host();
    threads().filter(move |trustee| holders.contains(&trustee.thread().thread))
}

/// The trustee of one thread of the rack.
///
/// # Panics
/// If the rack has no such thread; outside a thread of a rack.
#[track_caller]
pub fn trustee(thread: ThreadId) -> Trustee {
    let transport = &shared().transport;
    let (hosts, threads) = (transport.hosts(), transport.threads());
    // Not in a closure, whose panic would name this line instead of the caller's.
    match Trustee::of(thread) {
        Some(trustee) => trustee,
        None => {
            panic!("there is no {thread} in this rack of {hosts} hosts with {threads} threads each")
        }
    }
}
