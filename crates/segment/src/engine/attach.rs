//! The rack that a thread is attached to, and how an unattached thread hands over an operation.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use progress::Progress;
use transport_api::{HostId, Parker};

use crate::engine::Engine;
use crate::error::SegmentError;
use crate::notification::callback;
use crate::shared::Shared;

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

/// Runs `operation` on the calling thread, if that is attached to this rack. As [`attached`], in fewer
/// instructions: `operation` must run no code of the program.
#[inline(always)]
pub(crate) fn with_attached<R>(
    shared: &Arc<Shared>,
    operation: impl FnOnce(&Engine) -> R,
) -> Option<R> {
    if !is_attached(shared) {
        return None;
    }
    ENGINE.with_borrow(|engine| engine.as_deref().map(operation))
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

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("thread", &self.engine.thread).finish_non_exhaustive()
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

/// The lanes of thread `thread` of the transport, and its parker.
///
/// # Errors
/// [`SegmentError::Lane`].
pub(crate) fn open_lanes(
    shared: &Shared,
    thread: u32,
) -> Result<(Rc<Progress>, Box<dyn Parker>), SegmentError> {
    let transport = &shared.transport;
    let lanes = (0..transport.hosts()).map(|host| transport.lane(thread, HostId(host)));
    let lanes = lanes.collect::<Result<_, _>>().map_err(SegmentError::lane)?;
    let parker = transport.parker(thread).map_err(SegmentError::lane)?;
    let all_mapped = (0..transport.hosts()).all(|host| transport.maps(HostId(host)));
    Ok((Progress::new(lanes, all_mapped), parker))
}
