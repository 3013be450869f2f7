//! [`Polled`]: a file that fibers wait for, on the thread that has made it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::panic::Location;
use std::rc::Rc;
use std::time::Instant;

use fiber::Wait;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::files::{COUNT, Files, OnReadable, Readiness, State, Waiter};

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
            files.free(key);
            return Err(error.into());
        }
        COUNT.set(COUNT.get() + 1);
        Ok(Self { file, key, files })
    }

    /// The file.
    pub fn get(&self) -> &T {
        &self.file
    }

    /// The number of the file, unique among this thread's files until this is dropped.
    #[must_use]
    pub fn number(&self) -> usize {
        self.key
    }

    /// Has the worker call `call` with the [number](Self::number) of the file, once, when the file is
    /// or becomes readable. For servers with many files, where a few fibers serve the files that are
    /// ready and none waits for one that is not. The call must not wait; for example, it may wake a
    /// fiber. If it panics, the rack goes on, and [`Rack::run`](crate::Rack::run) returns
    /// [`RackError::Unobserved`](crate::RackError::Unobserved) when it ends.
    ///
    /// # Panics
    /// If a fiber waits for this file, or another call was asked for.
    pub fn when_readable(&self, call: &OnReadable) {
        let state = &mut self.files.states.borrow_mut()[self.key];
        state.wait(Waiter::Call(call.clone()));
        state.streak = 0;
        if state.readable {
            self.files.readable.borrow_mut().push(self.key);
        }
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
        if !self.files.is_ready(self.key, what) || self.files.must_give_way(self.key) {
            return None;
        }
        // Before the operation, which may wait: an event that comes meanwhile is for the next attempt.
        let mut attempt = Attempt::begin(&self.files, self.key, what);
        match operation(&self.file) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                attempt.has_blocked = true;
                None
            }
            result => {
                self.files.states.borrow_mut()[self.key].streak += 1;
                Some(result)
            }
        }
    }

    /// Parks the fiber until the file is ready, or `deadline` has passed; returns whether it is ready. If it
    /// is ready at once, the fiber gives way if it has to (see [`Polled`]). The file may be reported ready
    /// when it is not, so follow with an attempt. Returns false also in a fiber that is unwound because the
    /// rack has ended.
    ///
    /// # Panics
    /// In delegated context, and outside a fiber. If another fiber waits for this file.
    #[track_caller]
    pub fn wait(&self, what: Readiness, deadline: Option<Instant>) -> bool {
        let place = Location::caller();
        fiber::check_may_wait("`Polled::wait`", place);
        let mut wait = Wait::at(place);
        if self.files.must_give_way(self.key) && self.files.is_ready(self.key, what) {
            fiber::yield_to_worker();
            self.files.end_streak(self.key);
        }
        let mut goes_on = true;
        while goes_on && !self.files.is_ready(self.key, what) {
            let _waiting = Waiting::new(&self.files, self.key);
            wait.explain(|| "a file to become ready");
            goes_on = match deadline {
                Some(deadline) => fiber::park_until(deadline),
                None => fiber::park_or_give_up(),
            };
            self.files.end_streak(self.key);
        }
        self.files.is_ready(self.key, what)
    }
}

impl<T: AsFd> Drop for Polled<T> {
    fn drop(&mut self) {
        // Fails only if the file was closed already, and with it removed.
        let _ = epoll::delete(&self.files.epoll, &self.file);
        let _call = self.files.states.borrow_mut()[self.key].waiting.take();
        self.files.free(self.key);
        // A destructor may run after those of the thread's own values.
        let _ = COUNT.try_with(|count| count.set(count.get() - 1));
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Polled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Polled").field(&self.file).finish()
    }
}

/// An operation on a file. While it runs, the file does not count as ready, so that an event of that time
/// shows; afterwards it does, also if the operation panics, unless it has found that it would block.
struct Attempt<'a> {
    files: &'a Files,
    key: usize,
    what: Readiness,
    has_blocked: bool,
}

impl<'a> Attempt<'a> {
    fn begin(files: &'a Files, key: usize, what: Readiness) -> Self {
        let attempt = Self { files, key, what, has_blocked: false };
        *attempt.ready(&mut files.states.borrow_mut()[key]) = false;
        attempt
    }

    fn ready<'b>(&self, state: &'b mut State) -> &'b mut bool {
        match self.what {
            Readiness::Readable => &mut state.readable,
            _ => &mut state.writable,
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.has_blocked {
            return;
        }
        let state = &mut self.files.states.borrow_mut()[self.key];
        *self.ready(state) = true;
        // One that came while the operation waited: what that has left may bring no further event.
        match &state.waiting {
            Some(Waiter::Fiber(fiber)) => fiber::unpark(*fiber),
            Some(Waiter::Call(_)) if state.readable => {
                self.files.readable.borrow_mut().push(self.key);
            }
            Some(Waiter::Call(_)) | None => {}
        }
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
        files.states.borrow_mut()[key].wait(Waiter::Fiber(me));
        Self { files, key }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.files.states.borrow_mut()[self.key].waiting = None;
    }
}
