//! [`Watcher`]: wakes the threads of this process that sleep while a file of their fibers is ready; see
//! `files.rs`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use transport_api::Transport;

/// What the epoll calls the end; workers have their numbers.
const END: u64 = u64::MAX;

/// Events that one wait takes, at most.
const EVENTS: usize = 64;

/// Wakes the threads of this process that sleep while a file of theirs is ready.
pub(crate) struct Watcher {
    pub(crate) epoll: OwnedFd,
    end: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts the thread, which unparks workers of `transport`.
    pub(crate) fn start(transport: Arc<dyn Transport>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &end, EventData::new_u64(END), EventFlags::IN)?;
        let watched = epoll.try_clone()?;
        let thread = thread::Builder::new().name("gossamer-files".to_owned()).spawn(move || {
            let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
            loop {
                let _ = epoll::wait(&watched, spare_capacity(&mut events), None);
                for event in events.drain(..) {
                    match event.data.u64() {
                        END => return,
                        thread => transport.unpark(thread as u32),
                    }
                }
            }
        })?;
        Ok(Self { epoll, end, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
