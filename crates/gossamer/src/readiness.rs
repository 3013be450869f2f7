//! Files that fibers wait for: [`Polled`], and the thread's readiness queue behind it.
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
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use fiber::{FiberId, Wait};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::shared::Shared;
use crate::watcher::Watcher;

/// Events that one poll takes, at most; the next takes the others. Few enough that the stacks of the
/// fibers it wakes, which take turns, stay in the processor's first caches.
pub(crate) const EVENTS: usize = 32;

/// Operations in a row that succeed, after which the fiber must give way.
const STREAK_MAX: u32 = 16;

thread_local! {
    static FILES: RefCell<Option<Rc<Files>>> = const { RefCell::new(None) };
    /// The rack that the thread works for, and its number.
    static THREAD: RefCell<Option<(Arc<Shared>, u32)>> = const { RefCell::new(None) };
    /// The number of files of this thread: all that a worker without files looks at.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// What is known of one file.
#[derive(Clone, Copy, Default)]
struct State {
    readable: bool,
    writable: bool,
    /// Whether its end or an error is there to read, maybe behind data.
    ended: bool,
    waiting: Option<FiberId>,
}

/// The files of one thread.
struct Files {
    epoll: OwnedFd,
    /// By the number in the epoll's events.
    states: RefCell<Vec<State>>,
    free: RefCell<Vec<usize>>,
    events: RefCell<Vec<epoll::Event>>,
    watcher: Arc<Watcher>,
    thread: u32,
    has_been_armed: Cell<bool>,
    /// Operations that have succeeded since a fiber last parked or gave way, or the worker polled.
    streak: Cell<u32>,
}

/// A file, such as a socket, that the fibers of one thread wait for; tokio's `AsyncFd` for fibers.
///
/// The file must not block ([`set_nonblocking`](std::net::TcpStream::set_nonblocking)). It belongs to
/// the thread on which it was made. One fiber at a time may wait for it.
///
/// A file that is always ready does not keep its fiber from waiting: after 16 operations in a row
/// that succeed, attempts return `None`, and the next wait lets the other fibers and the worker run.
///
/// ```
/// use gossamer::Polled;
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
///
/// # gossamer::Rack::new().threads(1).run(|| -> std::io::Result<()> {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// listener.set_nonblocking(true)?;
/// let address = listener.local_addr()?;
/// let server = gossamer::spawn(move || -> std::io::Result<()> {
///     let listener = Polled::new(listener)?;
///     let (stream, _) = listener.read_with(|listener| listener.accept())?;
///     stream.set_nonblocking(true)?;
///     let stream = Polled::new(stream)?;
///     let mut word = [0; 5];
///     let length = stream.read_with(|mut stream| stream.read(&mut word))?; // other fibers run
///     stream.write_with(|mut stream| stream.write(&word[..length]))?;
///     Ok(())
/// });
/// let client = TcpStream::connect(address)?;
/// client.set_nonblocking(true)?;
/// let client = Polled::new(client)?;
/// client.write_with(|mut client| client.write(b"hello"))?;
/// let mut echo = [0; 5];
/// client.read_with(|mut client| client.read(&mut echo))?;
/// assert_eq!(&echo, b"hello");
/// server.join().unwrap()
/// # }).unwrap().unwrap();
/// ```
pub struct Polled<T: AsFd> {
    file: T,
    key: usize,
    files: Rc<Files>,
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

impl<T: AsFd> Polled<T> {
    /// Lets fibers of this thread wait for `file`.
    ///
    /// # Errors
    /// If the system cannot watch the file, as it cannot for regular files.
    ///
    /// # Panics
    /// Outside a thread of a rack.
    #[track_caller]
    pub fn new(file: T) -> io::Result<Self> {
        let files = Files::of_thread()?;
        let key = files.free.borrow_mut().pop().unwrap_or_else(|| {
            files.states.borrow_mut().push(State::default());
            files.states.borrow().len() - 1
        });
        // Until an attempt shows otherwise.
        files.states.borrow_mut()[key] =
            State { readable: true, writable: true, ..State::default() };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Err(error) = epoll::add(&files.epoll, &file, EventData::new_u64(key as u64), flags) {
            files.free.borrow_mut().push(key);
            return Err(error.into());
        }
        COUNT.set(COUNT.get() + 1);
        Ok(Self { file, key, files })
    }

    /// The file.
    pub fn get(&self) -> &T {
        &self.file
    }

    /// Whether the file may be readable, as far as is known: no attempt to read has failed since it
    /// last became so.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.files.states.borrow()[self.key].readable
    }

    /// Notes that nothing is left to read: the next wait for it lasts until more arrives. For a read
    /// that has returned less than it asked for, which makes an attempt that fails unnecessary.
    /// Without effect if the end of the file is known to be there.
    pub fn clear_readable(&self) {
        let state = &mut self.files.states.borrow_mut()[self.key];
        state.readable = state.ended;
    }

    /// Calls `read` until it does not fail with [`ErrorKind::WouldBlock`], and parks the fiber in
    /// between until the file is readable.
    ///
    /// # Errors
    /// Those of `read`.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn read_with<R>(&self, mut read: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        loop {
            if let Some(result) = self.try_read_with(&mut read) {
                return result;
            }
            if !self.wait(Readiness::Readable, None) {
                return Err(ErrorKind::Interrupted.into());
            }
        }
    }

    /// As [`read_with`](Self::read_with), for operations that write.
    ///
    /// # Errors
    /// Those of `write`.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn write_with<R>(&self, mut write: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        loop {
            if let Some(result) = self.try_write_with(&mut write) {
                return result;
            }
            if !self.wait(Readiness::Writable, None) {
                return Err(ErrorKind::Interrupted.into());
            }
        }
    }

    /// Calls `read` if the file may be readable; `None` if it is not, or if the fiber is to give way:
    /// in both cases [`wait`](Self::wait) before the next attempt.
    pub fn try_read_with<R>(
        &self,
        read: impl FnOnce(&T) -> io::Result<R>,
    ) -> Option<io::Result<R>> {
        self.attempt(Readiness::Readable, read)
    }

    /// Calls `write` if the file may be writable; `None` as of
    /// [`try_read_with`](Self::try_read_with).
    pub fn try_write_with<R>(
        &self,
        write: impl FnOnce(&T) -> io::Result<R>,
    ) -> Option<io::Result<R>> {
        self.attempt(Readiness::Writable, write)
    }

    fn attempt<R>(
        &self,
        what: Readiness,
        operation: impl FnOnce(&T) -> io::Result<R>,
    ) -> Option<io::Result<R>> {
        if !self.files.is_ready(self.key, what) || self.files.must_give_way() {
            return None;
        }
        match operation(&self.file) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let state = &mut self.files.states.borrow_mut()[self.key];
                match what {
                    Readiness::Readable => state.readable = false,
                    _ => state.writable = false,
                }
                None
            }
            result => {
                self.files.streak.update(|streak| streak + 1);
                Some(result)
            }
        }
    }

    /// Parks the fiber until the file is ready, or `deadline` has passed; whether it is ready. If it is
    /// ready at once, the fiber gives way if it has to (see [`Polled`]). It may be reported ready when it is not, so follow with an attempt. False also in a fiber that is
    /// unwound because the rack has ended.
    ///
    /// # Panics
    /// In delegated context, and outside a fiber. If another fiber waits for this file.
    #[track_caller]
    pub fn wait(&self, what: Readiness, deadline: Option<Instant>) -> bool {
        let place = Location::caller();
        fiber::check_may_wait("`Polled::wait`", place);
        let mut wait = Wait::at(place);
        if self.files.must_give_way() && self.files.is_ready(self.key, what) {
            fiber::yield_to_worker();
            self.files.streak.set(0);
        }
        let mut goes_on = true;
        while goes_on && !self.files.is_ready(self.key, what) {
            let _waiting = Waiting::new(&self.files, self.key);
            wait.explain(|| "a file to become ready");
            goes_on = match deadline {
                Some(deadline) => fiber::park_until(deadline),
                None => fiber::park_or_give_up(),
            };
            self.files.streak.set(0);
        }
        self.files.is_ready(self.key, what)
    }
}

impl<T: AsFd> Drop for Polled<T> {
    fn drop(&mut self) {
        // Fails only if the file was closed already, and with it removed.
        let _ = epoll::delete(&self.files.epoll, &self.file);
        self.files.free.borrow_mut().push(self.key);
        // A destructor may run after those of the thread's own values.
        let _ = COUNT.try_with(|count| count.set(count.get() - 1));
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Polled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Polled").field(&self.file).finish()
    }
}

/// The running fiber's registration as the one that waits for a file; removed also if the fiber is
/// unwound.
struct Waiting<'a> {
    files: &'a Files,
    key: usize,
}

impl<'a> Waiting<'a> {
    fn new(files: &'a Files, key: usize) -> Self {
        let me = fiber::current().unwrap_or_else(|| panic!("`Polled::wait` is outside a fiber"));
        let waiting = &mut files.states.borrow_mut()[key].waiting;
        assert!(waiting.is_none(), "two fibers wait for one file");
        *waiting = Some(me);
        Self { files, key }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.files.states.borrow_mut()[self.key].waiting = None;
    }
}

impl Files {
    /// Those of the current thread.
    #[track_caller]
    fn of_thread() -> io::Result<Rc<Self>> {
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
            events: RefCell::new(Vec::with_capacity(EVENTS)),
            watcher: shared.watcher()?,
            thread,
            has_been_armed: Cell::new(false),
            streak: Cell::new(0),
        });
        FILES.set(Some(files.clone()));
        Ok(files)
    }

    fn is_ready(&self, key: usize, what: Readiness) -> bool {
        let State { readable, writable, .. } = self.states.borrow()[key];
        match what {
            Readiness::Readable => readable,
            Readiness::Writable => writable,
            Readiness::Either => readable || writable,
        }
    }

    fn must_give_way(&self) -> bool {
        self.streak.get() >= STREAK_MAX
    }

    fn poll(&self) -> usize {
        self.streak.set(0);
        let mut events = self.events.borrow_mut();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Fails only when a signal comes.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut *events), Some(&now));
        let count = events.len();
        let mut states = self.states.borrow_mut();
        for event in events.drain(..) {
            // Copied, since events may be packed.
            let (key, flags) = (event.data.u64() as usize, event.flags);
            let Some(state) = states.get_mut(key) else { continue };
            let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            state.ended |= failed || flags.contains(EventFlags::RDHUP);
            state.readable |= state.ended || flags.contains(EventFlags::IN);
            state.writable |= failed || flags.contains(EventFlags::OUT);
            if let Some(fiber) = state.waiting {
                fiber::unpark(fiber);
            }
        }
        count
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

/// Whether the current thread has files that fibers may wait for.
#[inline(always)]
pub(crate) fn has_files() -> bool {
    COUNT.get() > 0
}

/// Unparks fibers of the current thread whose files are ready; how many files are, up to [`EVENTS`].
pub(crate) fn poll() -> usize {
    FILES.with_borrow(|files| files.as_ref().map_or(0, |files| files.poll()))
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
