//! The connections of one thread, and the fibers that serve those whose clients have sent something.
//!
//! A connection that waits for a command has no fiber. Once its socket is readable, a fiber of the
//! thread's pool takes it, until it waits for the next command:
//!
//! ```text
//!   idle --socket is readable--> ready --a fiber reads and runs commands--> unsent
//!    ^                                                                        |
//!    '--------------- a fiber sends the answers, when no other is ready ------'
//! ```
//!
//! As long as its commands do not wait, one fiber serves all connections that are ready, on one stack
//! that stays in the processor's caches. While it waits, the next fiber of the pool goes on. Answers
//! are sent when no connection is left that is ready, in a row: a client process that sleeps is woken
//! by the first. Before that, the fiber yields once, so that the worker sends the requests of fibers that
//! wait for other threads: those threads serve them while this one is in system calls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};

use fiber::{FiberId, Wait};
use gossamer::OnReadable;

use crate::server::client::{Next, Serving};

/// Maximum number of idle fibers per thread.
const IDLE_FIBERS: usize = 64;

/// Connections served in a row before the fiber yields to the worker.
const TURNS_MAX: u32 = 64;

/// Unsent answers from which on the fiber does not yield before it sends them. A client that stalls in the
/// middle of a command keeps a fiber busy, and each yield may find one more connection to serve first.
const UNSENT_MAX: usize = 64;

thread_local! {
    /// The pool of the thread's rack, as long as that runs: its fibers own it.
    static POOL: RefCell<Weak<Pool>> = const { RefCell::new(Weak::new()) };
}

/// The connections of one thread.
pub(super) struct Pool {
    /// Those that wait for a command, by the numbers of their sockets.
    idle: RefCell<Vec<Option<Box<Serving>>>>,
    /// Those that may read.
    ready: RefCell<VecDeque<Box<Serving>>>,
    /// Those that have run commands and send the answers next.
    unsent: RefCell<VecDeque<Box<Serving>>>,
    /// Fibers without a connection; the last one goes on first, since its stack is the warmest.
    fibers: RefCell<Vec<FiberId>>,
    /// Fibers that were woken, or have yielded, and have not run since. While there is one, no other is
    /// woken: it would be one more each time that the connections keep all of them busy.
    queued: Cell<usize>,
    /// Fibers that are serving a connection.
    busy: Cell<usize>,
    /// Whether the worker has polled since a fiber last took a ready connection.
    has_polled: Cell<bool>,
    on_readable: OnReadable,
}

impl Pool {
    /// The pool of this thread.
    fn of_thread() -> Rc<Self> {
        POOL.with_borrow_mut(|known| {
            known.upgrade().unwrap_or_else(|| {
                let pool = Rc::new_cyclic(|pool: &Weak<Self>| Self::new(pool.clone()));
                *known = Rc::downgrade(&pool);
                pool
            })
        })
    }

    fn new(this: Weak<Self>) -> Self {
        let on_readable = move |number: usize| {
            if let Some(pool) = this.upgrade() {
                let serving = pool.idle.borrow_mut()[number].take();
                pool.ready.borrow_mut().extend(serving);
                pool.wake();
            }
        };
        Self {
            idle: RefCell::default(),
            ready: RefCell::default(),
            unsent: RefCell::default(),
            fibers: RefCell::default(),
            queued: Cell::new(0),
            busy: Cell::new(0),
            has_polled: Cell::new(true),
            on_readable: Rc::new(on_readable),
        }
    }

    /// Makes sure that a fiber looks for ready connections soon; false if no stack can be mapped for one.
    fn wake(self: &Rc<Self>) -> bool {
        if self.queued.get() > 0 {
            return true;
        }
        let idle = self.fibers.borrow_mut().pop();
        match idle {
            Some(fiber) => {
                self.queued.set(1);
                fiber::unpark(fiber);
            }
            None => {
                let pool = self.clone();
                // If no stack can be mapped, the next readable socket tries again, or a fiber that ends its
                // turn takes what is ready.
                let started = fiber::Builder::new().spawn_local(move || pool.serve());
                self.queued.set(started.is_ok().into());
            }
        }
        self.queued.get() > 0
    }

    /// The work of a fiber.
    fn serve(self: Rc<Self>) {
        // A connection whose commands panic ends alone, with the fiber.
        let _guard = WakeOnPanic(&self);
        let mut turns = 0;
        loop {
            self.queued.update(|fibers| fibers - 1);
            while let Some(mut serving) = self.next_ready() {
                if !self.ready.borrow().is_empty() || !self.unsent.borrow().is_empty() {
                    // It goes on while this fiber waits.
                    self.wake();
                }
                match self.run(&mut serving) {
                    Ok(Next::Send) => self.unsent.borrow_mut().push_back(serving),
                    Ok(Next::Idle) => self.put_idle(serving),
                    // An error ends this connection only.
                    Ok(Next::End) | Err(_) => drop(serving),
                }
                turns += 1;
                if turns == TURNS_MAX {
                    turns = 0;
                    self.yield_to_worker();
                }
            }
            turns = 0;
            if self.fibers.borrow().len() >= IDLE_FIBERS || !self.wait() {
                break;
            }
        }
    }

    /// Runs a connection's commands; it counts as busy meanwhile.
    fn run(&self, serving: &mut Serving) -> io::Result<Next> {
        self.busy.update(|fibers| fibers + 1);
        let _busy = Busy(self);
        serving.run()
    }

    /// The next connection to serve. If another fiber waits for a reply, it yields to the worker between
    /// commands and answers, and serves the connections that are ready then.
    fn next_ready(&self) -> Option<Box<Serving>> {
        let answers_next =
            self.ready.borrow().is_empty() && (1..UNSENT_MAX).contains(&self.unsent.borrow().len());
        // A fiber that is in `run` now is suspended there: it mostly waits for a trustee.
        if answers_next && self.busy.get() > 0 && !self.has_polled.get() {
            self.yield_to_worker();
        }
        let ready = self.ready.borrow_mut().pop_front();
        if ready.is_some() {
            self.has_polled.set(false);
        }
        ready.or_else(|| self.unsent.borrow_mut().pop_front())
    }

    fn yield_to_worker(&self) {
        self.has_polled.set(true);
        self.queued.update(|fibers| fibers + 1);
        fiber::yield_to_worker();
        self.queued.update(|fibers| fibers - 1);
    }

    fn put_idle(&self, serving: Box<Serving>) {
        let number = serving.socket().number();
        serving.socket().when_readable(&self.on_readable);
        let mut idle = self.idle.borrow_mut();
        if idle.len() <= number {
            idle.resize_with(number + 1, || None);
        }
        idle[number] = Some(serving);
    }

    /// Parks the fiber until [`wake`](Self::wake) chooses it; false if the rack has ended.
    fn wait(&self) -> bool {
        let Some(me) = fiber::current() else { return false };
        self.fibers.borrow_mut().push(me);
        let mut wait = Wait::new();
        // It may be woken to be asked what it waits for.
        while self.fibers.borrow().contains(&me) {
            wait.explain(|| "a connection that is ready");
            if !fiber::park_or_give_up() {
                return false;
            }
        }
        true
    }
}

/// How many fibers of this thread wait for connections.
#[cfg(test)]
pub(super) fn idle_fibers() -> usize {
    POOL.with_borrow(|pool| pool.upgrade().map_or(0, |pool| pool.fibers.borrow().len()))
}

/// Ends [`Pool::run`], also by a panic.
struct Busy<'a>(&'a Pool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.update(|fibers| fibers - 1);
    }
}

/// Wakes another fiber if this one ends by a panic.
struct WakeOnPanic<'a>(&'a Rc<Pool>);

impl Drop for WakeOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.wake();
        }
    }
}

/// Adds a connection, which may have a command already. If no other fiber can serve it, the
/// calling fiber joins the pool: the pool lives only as long as one of its fibers.
pub(super) fn add(serving: Serving) {
    let pool = Pool::of_thread();
    pool.ready.borrow_mut().push_back(Box::new(serving));
    if !pool.wake() {
        pool.queued.set(1);
        pool.serve();
    }
}
