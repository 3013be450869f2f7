//! [`Notify`]: one fiber tells others, on any threads, that something has happened.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use transport_api::HostId;
use trust_core::{
    Chain, Deferred, DeferredId, DelegateError, Trust, Trustee, check_may_wait, local_trustee,
};

use crate::losses::{self, Losses};

/// The state of a [`Notify`], on the thread where it was made.
#[derive(Default)]
struct State {
    /// Whether the next wait returns at once.
    permit: Cell<bool>,
    /// The reply says whether it is the permit, which somebody must use, or from `notify_all`.
    waiting: RefCell<VecDeque<Deferred<bool>>>,
}

impl State {
    fn notify_one(&self) {
        // The host of a waiter may be lost already, and this thread's listeners not told yet: such a
        // waiter would take the notification with it.
        while let Some(waiting) = self.next() {
            if !waiting.is_lost() {
                return waiting.reply(true);
            }
        }
        self.permit.set(true);
    }

    fn next(&self) -> Option<Deferred<bool>> {
        self.waiting.borrow_mut().pop_front()
    }

    fn notify_all(&self) {
        self.waiting.take().into_iter().for_each(|waiting| waiting.reply(false));
    }

    fn wait(&self, waiting: Deferred<bool>) {
        if self.permit.take() {
            return waiting.reply(true);
        }
        self.waiting.borrow_mut().push_back(waiting);
    }

    /// Ends a wait without a notification, unless it has got one.
    fn forget(&self, id: DeferredId) {
        let found = {
            let mut waiting = self.waiting.borrow_mut();
            let at = waiting.iter().position(|waiting| waiting.id() == Some(id));
            at.and_then(|at| waiting.remove(at))
        };
        // After the change, since the drop of a waiter sends.
        drop(found);
    }
}

impl Losses for State {
    /// Drops the waiters of the host: without a notification they would stay for good.
    fn host_lost(&self, host: HostId) {
        let is_there =
            |waiting: &Deferred<bool>| waiting.thread().is_some_and(|at| at.host == host);
        let (lost, waiting) = self.waiting.take().into_iter().partition(is_there);
        self.waiting.replace(waiting);
        // After the change, since the drop of a waiter sends.
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
    /// at once; several such notifications are one. Without effect if the host of the `Notify` is lost, or
    /// the rack has ended.
    ///
    /// It does not wait until the notification has arrived, and is allowed in delegated closures. A fiber
    /// waits while no more requests can be queued, as in [`apply_then`](Trust::apply_then).
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn notify_one(&self) {
        // Fibers that wait hear of the loss themselves.
        self.0.try_apply_then(|state| state.notify_one(), drop);
    }

    /// Wakes all fibers that wait, and none that waits later. As [`notify_one`](Self::notify_one), it waits
    /// only to queue its request, and has no effect if the host of the `Notify` is lost.
    ///
    /// # Panics
    /// Outside a thread of the rack.
    #[track_caller]
    pub fn notify_all(&self) {
        self.0.try_apply_then(|state| state.notify_all(), drop);
    }

    /// Waits for a notification, and uses it up.
    ///
    /// # Panics
    /// In delegated context, outside a fiber of the rack, and if the host of the `Notify` is lost.
    #[track_caller]
    pub fn wait(&self) {
        check_may_wait("`Notify::wait`", Location::caller());
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
        check_may_wait("`Notify::try_wait`", Location::caller());
        self.0.apply_deferred(|state, (), waiting| state.wait(waiting), ()).map(|_: bool| ())
    }

    /// As [`try_wait`](Self::try_wait), for up to `timeout`. A notification that comes too late is not
    /// used up.
    ///
    /// ```
    /// use gossamer::DelegateError;
    /// use gossamer::sync::Notify;
    /// use std::time::Duration;
    ///
    /// # gossamer::Rack::new().threads(2).run(|| {
    /// let notify = Notify::new();
    /// let late = notify.wait_timeout(Duration::from_millis(1));
    /// assert!(matches!(late, Err(DelegateError::TimedOut { .. })));
    /// notify.notify_one();
    /// notify.wait_timeout(Duration::from_secs(60)).unwrap();
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`DelegateError::TimedOut`] if there is no notification by then; otherwise as
    /// [`try_wait`](Self::try_wait).
    ///
    /// # Panics
    /// In delegated context, and outside a fiber.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), DelegateError> {
        let (deadline, place) = (fiber::deadline_after(timeout), Location::caller());
        fiber::drive_until("`Notify::wait_timeout`", pin!(self.notified()), deadline, place)
            .unwrap_or_else(|| {
                let trustee = self.trustee().thread();
                Err(DelegateError::TimedOut { trustee, timeout })
            })
    }

    /// A notification as a future, for [`select!`](crate::select) and [`block_on`](crate::block_on). It
    /// begins to wait when it is polled first, and uses the notification up when it is ready. If it is
    /// dropped before, a permit that it has got goes to the next fiber.
    ///
    /// ```
    /// use gossamer::sync::Notify;
    /// use gossamer::{after, select, spawn_on_with};
    /// use std::time::Duration;
    ///
    /// # gossamer::Rack::new().threads(2).run(|| {
    /// let stop = Notify::new();
    /// let work = |stop: Notify| {
    ///     let mut rounds = 0;
    ///     loop {
    ///         select! {
    ///             stopped = stop.notified() => break stopped.map(|()| rounds),
    ///             () = after(Duration::from_millis(1)) => rounds += 1,
    ///         }
    ///     }
    /// };
    /// let worker = spawn_on_with(gossamer::threads().last().unwrap(), work, stop.clone());
    /// gossamer::sleep(Duration::from_millis(5));
    /// stop.notify_one();
    /// assert!(worker.join().unwrap().is_ok());
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The future's: as [`try_wait`](Self::try_wait).
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, wait: None }
    }

    /// The thread that has its state.
    pub fn trustee(&self) -> Trustee {
        self.0.trustee()
    }
}

/// How far the wait of a [`Notified`] has come.
enum Stage {
    /// At the `Notify`; the waker of the fiber that waits.
    Waits(Option<Waker>),
    Ended(Result<bool, DelegateError>),
    /// The future was dropped before: a permit goes back to the `Notify`.
    Dropped(Notify),
    /// The end was taken.
    Over,
}

/// A wait that a [`Notified`] has begun.
struct Begun {
    stage: Rc<Cell<Stage>>,
    /// `None` if there is no `Notify` that can be asked any more.
    id: Option<DeferredId>,
}

impl Begun {
    fn at(notify: &Notify) -> Begun {
        let stage = Rc::new(Cell::new(Stage::Waits(None)));
        let ended = stage.clone();
        let wait = |state: &mut Rc<State>, (), waiting| state.wait(waiting);
        let id = notify.0.apply_deferred_then(wait, (), move |outcome| {
            match ended.replace(Stage::Over) {
                Stage::Waits(waker) => {
                    ended.set(Stage::Ended(outcome));
                    waker.into_iter().for_each(Waker::wake);
                }
                Stage::Dropped(notify) if matches!(outcome, Ok(true)) => notify.pass_on(),
                Stage::Dropped(_) => {}
                Stage::Ended(_) | Stage::Over => unreachable!("a wait ends once"),
            }
        });
        Begun { stage, id }
    }
}

/// The next notification: [`Notify::notified`]. It stays on its thread.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Notified<'a> {
    notify: &'a Notify,
    /// `None` before the first poll.
    wait: Option<Begun>,
}

impl Future for Notified<'_> {
    type Output = Result<(), DelegateError>;

    /// # Panics
    /// After it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { notify, wait } = self.get_mut();
        let stage = &wait.get_or_insert_with(|| Begun::at(notify)).stage;
        match stage.replace(Stage::Over) {
            Stage::Ended(outcome) => Poll::Ready(outcome.map(|_| ())),
            Stage::Waits(before) => {
                stage.set(Stage::Waits(Some(context.waker().clone())));
                drop(before);
                Poll::Pending
            }
            Stage::Dropped(_) | Stage::Over => panic!("a notification was polled after its end"),
        }
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Some(Begun { stage, id }) = self.wait.take() else { return };
        match stage.replace(Stage::Over) {
            Stage::Waits(_) => {
                // First, since the wait may end at once.
                stage.set(Stage::Dropped(self.notify.clone()));
                let forget = |state: &mut Rc<State>, id, done: Deferred<()>| {
                    state.forget(id);
                    done.reply(());
                };
                id.map(|id| self.notify.0.apply_deferred_then(forget, id, drop));
            }
            Stage::Ended(Ok(true)) => self.notify.pass_on(),
            Stage::Ended(_) | Stage::Dropped(_) | Stage::Over => {}
        }
    }
}

impl fmt::Debug for Notified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified").field("of", self.notify).finish_non_exhaustive()
    }
}

impl Notify {
    /// As `notify_one`, from destructors: it neither waits for room nor fails.
    fn pass_on(&self) {
        let notify = |state: &mut Rc<State>, (), done: Deferred<()>| {
            state.notify_one();
            done.reply(());
        };
        self.0.apply_deferred_then(notify, (), drop);
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
            let tell = |host| losses::tell(host, |panic| std::panic::resume_unwind(panic));
            tell(HostId(1));
            assert_eq!(number(), waiting.len());
            tell(crate::local_host());
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
