//! [`Notify`]: one fiber tells others, on any threads, that something has happened.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use serde::{Deserialize, Serialize};
use transport_api::HostId;
use trust_core::{Chain, Deferred, DelegateError, Trust, Trustee, local_trustee};

use crate::losses::{self, Losses};

/// The state of a [`Notify`], on the thread where it was made.
#[derive(Default)]
struct State {
    /// Whether the next wait returns at once.
    permit: Cell<bool>,
    waiting: RefCell<VecDeque<Deferred<()>>>,
}

impl State {
    fn notify_one(&self) {
        // The host of a waiter may be lost already, and this thread's listeners not told yet: such a
        // waiter would take the notification with it.
        while let Some(waiting) = self.next() {
            if !waiting.is_lost() {
                return waiting.reply(());
            }
        }
        self.permit.set(true);
    }

    fn next(&self) -> Option<Deferred<()>> {
        self.waiting.borrow_mut().pop_front()
    }

    fn notify_all(&self) {
        self.waiting.take().into_iter().for_each(|waiting| waiting.reply(()));
    }

    fn wait(&self, waiting: Deferred<()>) {
        if self.permit.take() {
            return waiting.reply(());
        }
        self.waiting.borrow_mut().push_back(waiting);
    }
}

impl Losses for State {
    /// Drops the waiters of the host: without a notification they would stay for good.
    fn host_lost(&self, host: HostId) {
        let is_there = |waiting: &Deferred<()>| waiting.thread().is_some_and(|at| at.host == host);
        let (lost, waiting) = self.waiting.take().into_iter().partition(is_there);
        self.waiting.replace(waiting);
        // Behind the change, since the drop of a waiter sends.
        drop::<VecDeque<_>>(lost);
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
pub struct Notify(Trust<Rc<State>>);

impl Notify {
    /// Without a permit, on the current thread.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it only works on threads of a rack")]
    #[must_use]
    pub fn new() -> Self {
        let trustee = local_trustee();
        let state = Rc::new(State::default());
        let weak: Weak<State> = Rc::downgrade(&state);
        losses::listen(weak);
        Notify(trustee.entrust(state))
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
        self.0.apply_then(|state| state.notify_all(), |()| {});
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::losses;

    #[test]
    fn fibers_of_a_lost_host_wait_no_more() {
        let run = crate::Rack::new().threads(2).run(|| {
            let notify = Notify::new();
            let last = crate::threads().last().unwrap();
            let wait = |notify: Notify| notify.try_wait().map_err(|error| error.to_string());
            let waiting = [(); 3].map(|()| crate::spawn_on_with(last, wait, notify.clone()));
            let number = || notify.0.apply(|state| state.waiting.borrow().len());
            while number() < waiting.len() {
                crate::yield_now();
            }
            // Another host is lost, then this one: so much a rack of one host can tell.
            losses::tell(transport_api::HostId(1));
            assert_eq!(number(), waiting.len());
            losses::tell(crate::local_host());
            assert_eq!(number(), 0);
            for fiber in waiting {
                let error = fiber.join().unwrap().unwrap_err();
                assert!(error.contains("dropped"), "{error}");
            }
            notify.notify_one();
            notify.wait();
        });
        run.unwrap();
    }
}
