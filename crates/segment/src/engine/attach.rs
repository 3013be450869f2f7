//! The rack that a thread is attached to, and how an unattached thread hands over an operation.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use progress::Progress;
use transport_api::Parker;

use crate::engine::Engine;
use crate::error::SegmentError;
use crate::notification::callback;
use crate::shared::{Job, Shared};

thread_local! {
    /// The segments that this thread may use directly: compared, never dereferenced.
    static ATTACHED: Cell<*const Shared> = const { Cell::new(ptr::null()) };
    static ENGINE: RefCell<Option<Rc<Engine>>> = const { RefCell::new(None) };
}

/// Whether the calling thread is attached to this rack, so that it may touch mapped memory directly:
/// revocation waits for its polls.
#[inline(always)]
pub(crate) fn is_attached(shared: &Arc<Shared>) -> bool {
    ptr::eq(ATTACHED.get(), Arc::as_ptr(shared))
}

/// The engine of the calling thread, if it is attached to this rack.
pub(crate) fn attached(shared: &Arc<Shared>) -> Option<Rc<Engine>> {
    if is_attached(shared) { ENGINE.with_borrow(Clone::clone) } else { None }
}

/// The segments of the rack that the calling thread is attached to.
pub(crate) fn current() -> Option<Arc<Shared>> {
    ENGINE.with_borrow(|engine| engine.as_ref().map(|engine| engine.shared.clone()))
}

/// Runs `operation` on the calling thread if it is attached, otherwise on an attached one.
#[track_caller]
pub(crate) fn run<R: Send + 'static>(
    shared: &Arc<Shared>,
    operation: impl FnOnce(&Engine) -> Result<R, SegmentError> + Send + 'static,
) -> Result<R, SegmentError> {
    if let Some(engine) = attached(shared) {
        return operation(&engine);
    }
    callback::check_may_wait("an operation of a thread that is not attached", Location::caller());
    let spawn = shared.spawn.get().ok_or(SegmentError::NotAttached)?;
    if shared.has_ended() {
        return Err(SegmentError::RackEnded);
    }
    let (sender, receiver) = mpsc::channel();
    let there = shared.clone();
    spawn(Box::new(move || {
        if let Some(engine) = attached(&there) {
            // The receiver waits.
            let _ = sender.send(operation(&engine));
        }
    }));
    receiver.recv().unwrap_or(Err(SegmentError::RackEnded))
}

/// Keeps the calling thread attached to a rack while it lives.
#[must_use = "the thread is attached as long as this lives"]
pub struct Attached {
    engine: Rc<Engine>,
    _not_send: PhantomData<*const ()>,
}

impl Attached {
    /// Attaches the calling thread; `progress` has its lanes. A thread without fibers brings a
    /// `parker`, and waits by polling and sleeping itself.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        thread: u32,
        progress: Rc<Progress>,
        parker: Option<Box<dyn Parker>>,
    ) -> Attached {
        let engine = Engine::new(shared.clone(), thread, progress, parker);
        ENGINE.set(Some(engine.clone()));
        ATTACHED.set(Arc::as_ptr(shared));
        Attached { engine, _not_send: PhantomData }
    }

    /// Makes progress: takes notifications, answers peers, lets revocations go on; true if it did
    /// anything. For a thread without fibers that does other work between operations.
    pub fn poll(&self) -> bool {
        self.engine.poll()
    }

    /// As [`poll`](Self::poll), and sleeps for up to `timeout` if there is nothing to do.
    pub fn park(&self, timeout: Duration) {
        self.engine.poll_or_park(timeout, || false);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // A thread that was attached again since stays so.
        let is_own = |engine: &Option<Rc<Engine>>| {
            engine.as_ref().is_some_and(|engine| Rc::ptr_eq(engine, &self.engine))
        };
        if ENGINE.with_borrow(is_own) {
            ATTACHED.set(ptr::null());
            ENGINE.set(None);
        }
        if self.engine.has_no_fibers() {
            self.engine.progress.close();
        }
    }
}

/// A thread that serves the segments of a process without runtime threads: it polls, and executes the
/// operations of threads that are not attached. Dropping this stops it.
pub struct Server {
    shared: Arc<Shared>,
    thread: u32,
    serving: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the thread, which attaches itself as `number`.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        number: u32,
        attach: impl FnOnce() -> Result<Attached, SegmentError> + Send + 'static,
    ) -> Result<Server, SegmentError> {
        if shared.spawn.get().is_some() {
            return Err(SegmentError::Served);
        }
        let (jobs, taken) = mpsc::channel::<Job>();
        let transport = shared.transport.clone();
        let spawn = Box::new(move |job| {
            // It fails when the thread has ended; the caller then sees that its job is gone.
            if jobs.send(job).is_ok() {
                transport.unpark(number);
            }
        });
        let (started, is_up) = mpsc::channel();
        let there = shared.clone();
        let serve = move || {
            let attached = match attach() {
                Ok(attached) => attached,
                Err(error) => return drop(started.send(Err(error))),
            };
            // Only now: a thread that could not be attached must get no job.
            let is_first = there.spawn.set(spawn).is_ok();
            let _ = started.send(if is_first { Ok(()) } else { Err(SegmentError::Served) });
            if !is_first {
                return;
            }
            let next = RefCell::new(None);
            while !there.has_ended() {
                let has_job = || {
                    let mut next = next.borrow_mut();
                    if next.is_none() {
                        *next = taken.try_recv().ok();
                    }
                    next.is_some() || there.has_ended()
                };
                attached.engine.poll_or_park(Duration::from_millis(100), has_job);
                has_job();
                while let Some(job) = next.take() {
                    job();
                    // Peers wait for polls, however many jobs there are.
                    attached.poll();
                    has_job();
                }
            }
        };
        let serving = thread::Builder::new()
            .name(format!("segments-{number}"))
            .spawn(serve)
            .map_err(|error| SegmentError::io("cannot start a thread", error))?;
        is_up.recv().unwrap_or(Err(SegmentError::RackEnded))?;
        Ok(Server { shared: shared.clone(), thread: number, serving: Some(serving) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.end();
        self.shared.transport.unpark(self.thread);
        // A callback on that very thread may own and drop this: it must not join itself.
        let own = thread::current().id();
        if let Some(serving) = self.serving.take().filter(|serving| serving.thread().id() != own) {
            // What it carries out may wait for the polls of this thread.
            while let Some(engine) = attached(&self.shared).filter(|_| !serving.is_finished()) {
                engine.poll();
                thread::yield_now();
            }
            // A panic of it was printed.
            let _ = serving.join();
        }
    }
}
