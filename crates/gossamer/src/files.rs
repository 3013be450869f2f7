//! The files of a thread that its fibers wait for, and how the worker learns that they are ready.
//!
//! Each thread that has such files has an epoll of its own, which the worker polls between rounds of
//! fibers: one system call, and only if there are files. A fiber thus reads and writes its sockets
//! itself, on its own thread, without a lock or an event per request.
//!
//! A sleeping worker waits on its parker, which knows no files. So before it sleeps it arms its epoll
//! in the epoll of the [`Watcher`], a thread of the process that only wakes workers:
//!
//! ```text
//!   worker: arm; announce sleep; poll the files once more; sleep
//!   watcher: sleep until an armed epoll is readable (once); unpark its worker
//! ```
//!
//! While the worker is awake nothing is armed, and the watcher sleeps.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use fiber::FiberId;
use primitive::drop_payload;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::shared::Shared;
use crate::watcher::Watcher;

/// Events that one poll takes, at most; the next takes the others. Few enough that the stacks of the
/// fibers it wakes, which take turns, stay in the processor's first caches.
const EVENTS: usize = 32;

/// Operations on a file in a row that succeed, after which the fiber must give way.
const STREAK_MAX: u8 = 16;

/// What [`Polled::when_readable`](crate::Polled::when_readable) calls, with the number of a file.
pub type OnReadable = Rc<dyn Fn(usize)>;

thread_local! {
    static FILES: RefCell<Option<Rc<Files>>> = const { RefCell::new(None) };
    /// The rack that the thread works for, and its number.
    static THREAD: RefCell<Option<(Arc<Shared>, u32)>> = const { RefCell::new(None) };
    /// The number of files of this thread: all that a worker without files looks at.
    pub(crate) static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// What is known of one file.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Whether its end or an error is there to read, maybe after data.
    pub(crate) ended: bool,
    /// Operations that have succeeded since a fiber last waited for the file.
    pub(crate) streak: u8,
    pub(crate) waiting: Option<Waiter>,
}

/// Who waits for a file.
pub(crate) enum Waiter {
    Fiber(FiberId),
    /// See [`when_readable`](crate::Polled::when_readable).
    Call(OnReadable),
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Until the file may be read, or is at its end.
    Readable,
    /// Until the file may be written.
    Writable,
    /// The first of both.
    Either,
}

/// What a poll has found.
#[derive(Default)]
pub(crate) struct Found {
    /// Whether any file was ready, or a call was due.
    pub(crate) any: bool,
    /// Whether more files may be ready: it took as many events as it may.
    pub(crate) may_have_more: bool,
}

/// The files of one thread.
pub(crate) struct Files {
    pub(crate) epoll: OwnedFd,
    /// By the number in the epoll's events.
    pub(crate) states: RefCell<Vec<State>>,
    pub(crate) free: RefCell<Vec<usize>>,
    /// Numbers freed by calls of the current poll. Reused from the next poll on: events of the dropped files
    /// may still follow in this one.
    freed: RefCell<Vec<usize>>,
    is_polling: Cell<bool>,
    /// Files that were readable when a call for that was asked for.
    pub(crate) readable: RefCell<Vec<usize>>,
    events: RefCell<Vec<epoll::Event>>,
    watcher: Arc<Watcher>,
    thread: u32,
    has_been_armed: Cell<bool>,
}

impl State {
    pub(crate) fn wait(&mut self, waiter: Waiter) {
        assert!(self.waiting.is_none(), "the file already has a waiter");
        self.waiting = Some(waiter);
    }
}

impl Files {
    /// Those of the current thread.
    #[track_caller]
    pub(crate) fn of_thread() -> io::Result<Rc<Self>> {
        if let Some(files) = FILES.with_borrow(Clone::clone) {
            return Ok(files);
        }
        let (shared, thread) = THREAD.with_borrow(Clone::clone).unwrap_or_else(|| {
            panic!("{}", trust_core::outside());
        });
        let files = Rc::new(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            states: RefCell::default(),
            free: RefCell::default(),
            freed: RefCell::default(),
            is_polling: Cell::new(false),
            readable: RefCell::default(),
            events: RefCell::new(Vec::with_capacity(EVENTS)),
            watcher: shared.watcher()?,
            thread,
            has_been_armed: Cell::new(false),
        });
        FILES.set(Some(files.clone()));
        Ok(files)
    }

    pub(crate) fn is_ready(&self, key: usize, what: Readiness) -> bool {
        let State { readable, writable, .. } = self.states.borrow()[key];
        match what {
            Readiness::Readable => readable,
            Readiness::Writable => writable,
            Readiness::Either => readable || writable,
        }
    }

    pub(crate) fn must_give_way(&self, key: usize) -> bool {
        self.states.borrow()[key].streak >= STREAK_MAX
    }

    pub(crate) fn end_streak(&self, key: usize) {
        self.states.borrow_mut()[key].streak = 0;
    }

    fn poll(&self) -> Found {
        let mut events = self.events.borrow_mut();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Fails only when a signal comes.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut *events), Some(&now));
        self.is_polling.set(true);
        let may_have_more = events.len() >= EVENTS;
        let mut any = !events.is_empty();
        for event in events.drain(..) {
            // Copied, since events may be packed.
            self.take_event(event.data.u64() as usize, event.flags);
        }
        // In one go: what the calls ask for in turn has to wait for the next poll.
        for key in self.readable.take() {
            any = true;
            self.take_event(key, EventFlags::empty());
        }
        self.is_polling.set(false);
        self.free.borrow_mut().append(&mut self.freed.borrow_mut());
        Found { any, may_have_more }
    }

    /// Notes that a file has become ready, and wakes who waits for it.
    fn take_event(&self, key: usize, flags: EventFlags) {
        let mut states = self.states.borrow_mut();
        let Some(state) = states.get_mut(key) else { return };
        let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        state.ended |= failed || flags.contains(EventFlags::RDHUP);
        state.readable |= state.ended || flags.contains(EventFlags::IN);
        state.writable |= failed || flags.contains(EventFlags::OUT);
        match &state.waiting {
            Some(Waiter::Fiber(fiber)) => fiber::unpark(*fiber),
            Some(Waiter::Call(_)) if state.readable => {
                let waiter = state.waiting.take();
                // The call may use files.
                drop(states);
                if let Some(Waiter::Call(call)) = waiter
                    && let Err(panic) = catch_unwind(AssertUnwindSafe(move || call(key)))
                {
                    report_panic(panic);
                }
            }
            Some(Waiter::Call(_)) | None => {}
        }
    }

    /// Frees the number of a file.
    pub(crate) fn free(&self, key: usize) {
        let free = if self.is_polling.get() { &self.freed } else { &self.free };
        free.borrow_mut().push(key);
    }

    /// Arms the watcher; false if the system refuses, for example for want of memory.
    fn arm(&self) -> bool {
        let flags = EventFlags::IN | EventFlags::ONESHOT;
        let data = EventData::new_u64(self.thread.into());
        let armed = match self.has_been_armed.get() {
            true => epoll::modify(&self.watcher.epoll, &self.epoll, data, flags),
            false => epoll::add(&self.watcher.epoll, &self.epoll, data, flags),
        };
        if armed.is_ok() {
            self.has_been_armed.set(true);
        }
        armed.is_ok()
    }
}

/// Reports the panic of a call.
#[cold]
fn report_panic(panic: Box<dyn std::any::Any + Send>) {
    match THREAD.with_borrow(Clone::clone) {
        Some((shared, _)) => shared.report_panic(panic),
        None => drop_payload(panic),
    }
}

/// Whether the current thread has files that fibers may wait for.
#[inline(always)]
pub(crate) fn has_files() -> bool {
    COUNT.get() > 0
}

/// Wakes the waiters of files of the current thread that are ready. Takes at most [`EVENTS`] events.
pub(crate) fn poll() -> Found {
    FILES.with_borrow(|files| files.as_ref().map(|files| files.poll()).unwrap_or_default())
}

/// Before the current thread sleeps: its files wake it. It must poll them once more afterwards. False
/// if they will not wake it, so that it must look at them by itself.
pub(crate) fn arm() -> bool {
    FILES.with_borrow(|files| files.as_ref().is_none_or(|files| files.arm()))
}

/// The current thread is runtime thread `thread` from now on.
pub(crate) fn enter(shared: Arc<Shared>, thread: u32) {
    THREAD.set(Some((shared, thread)));
}

/// Forgets the files of the current thread, whose worker has ended.
pub(crate) fn forget() {
    FILES.set(None);
    THREAD.set(None);
}
