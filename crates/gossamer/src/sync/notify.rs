//! [`Notify`]: one fiber tells others, on any threads, that something has happened.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use trust_core::{Chain, Deferred, DelegateError, Trust, Trustee, local_trustee};

/// The state of a [`Notify`], on the thread where it was made.
#[derive(Default)]
struct State {
    /// Whether the next wait returns at once.
    permit: bool,
    waiting: VecDeque<Deferred<()>>,
}

impl State {
    fn notify_one(&mut self) {
        // A waiter whose host is lost would take the notification with it.
        while let Some(waiting) = self.waiting.pop_front() {
            if !waiting.is_lost() {
                return waiting.reply(());
            }
        }
        self.permit = true;
    }

    fn wait(&mut self, waiting: Deferred<()>) {
        if std::mem::take(&mut self.permit) {
            return waiting.reply(());
        }
        self.waiting.push_back(waiting);
    }
}

/// Notifies fibers of any threads, as tokio's `Notify` does tasks: a permit, of which there is one at
/// most. It carries no data: use it beside a trust whose value has changed, or use a
/// [channel](crate::channel()).
///
/// Clone it, or send it as an argument; its state is on the thread where it was made. The name at the
/// top of this crate is taken by the setting of [segments](crate::Segment), so it is used as
/// `gossamer::sync::Notify`.
///
/// ```
/// use gossamer::sync::Notify;
/// use gossamer::{Trust, spawn_on_with};
///
/// # gossamer::Rack::new().threads(2).run(|| {
/// let (jobs, added) = (gossamer::entrust(Vec::<u64>::new()), Notify::new());
/// let work = |(jobs, added): (Trust<Vec<u64>>, Notify)| loop {
///     match jobs.apply(|jobs| jobs.pop()) {
///         Some(job) => break 2 * job,
///         None => added.wait(),
///     }
/// };
/// let last = gossamer::threads().last().unwrap();
/// let worker = spawn_on_with(last, work, (jobs.clone(), added.clone()));
/// jobs.apply(|jobs| jobs.push(21));
/// added.notify_one(); // is kept if the worker does not wait yet
/// assert_eq!(worker.join().unwrap(), 42);
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Notify(Trust<State>);

impl Notify {
    /// Without a permit, on the current thread.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it only works on threads of a rack")]
    pub fn new() -> Self {
        Notify(local_trustee().entrust(State::default()))
    }

    /// Wakes the fiber that has waited longest. If none waits, the next [`wait`](Self::wait) returns
    /// at once; several such notifications are one. Does not wait, so it is allowed in delegated
    /// closures.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn notify_one(&self) {
        self.0.apply_then(|state| state.notify_one(), |()| {});
    }

    /// Wakes all fibers that wait, and none that waits later. Does not wait, so it is allowed in
    /// delegated closures.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn notify_all(&self) {
        self.0.apply_then(|state| state.waiting.drain(..).for_each(|later| later.reply(())), drop);
    }

    /// Waits for a notification, and uses it up.
    ///
    /// # Panics
    /// In delegated context, outside a fiber of the rack, and if the host of the `Notify` is lost.
    #[track_caller]
    pub fn wait(&self) {
        if let Err(error) = self.try_wait() {
            panic!("cannot wait for a notification: {}", Chain(&error));
        }
    }

    /// As [`wait`](Self::wait), but the loss of the host is an error.
    ///
    /// # Errors
    /// [`DelegateError`], if the host of the `Notify` is lost, or the rack has ended.
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn try_wait(&self) -> Result<(), DelegateError> {
        self.0.apply_deferred(|state, (), waiting| state.wait(waiting), ())
    }

    /// The thread that has its state.
    pub fn trustee(&self) -> Trustee {
        self.0.trustee()
    }
}
