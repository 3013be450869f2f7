//! What other threads may do to a scheduler: start fibers on it and wake its fibers.
//!
//! Messages wait in a list behind a mutex; a flag beside it tells the owner in one load whether
//! there are any. After each message the wake hook is called, so that an idle thread looks.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use primitive::sync::{AtomicBool, Ordering};

use crate::core::block::FiberId;
use crate::core::current;
use crate::error::SpawnError;
use crate::join::{JoinHandle, Promise};
use crate::spawn::{Builder, run_to_end};

/// Called after something was put into a thread's inbox: rings the thread's bell.
pub type WakeHook = Arc<dyn Fn() + Send + Sync>;

/// Begins on the new fiber with `Ok`, or is told why there is none.
type Job = Box<dyn FnOnce(Result<(), SpawnError>) + Send>;

pub(crate) enum Message {
    Spawn { builder: Builder, job: Job },
    Unpark(Arc<Wake>),
}

/// The part of a scheduler that other threads share.
pub(crate) struct Shared {
    /// Tells this scheduler from all others of the process, past and present.
    pub(crate) scheduler: u64,
    mail: AtomicBool,
    inbox: Mutex<Inbox>,
    wake: WakeHook,
}

#[derive(Default)]
struct Inbox {
    messages: Vec<Message>,
    closed: bool,
}

impl Shared {
    pub(crate) fn new(scheduler: u64, wake: WakeHook) -> Shared {
        Shared { scheduler, mail: AtomicBool::new(false), inbox: Mutex::default(), wake }
    }

    #[inline(always)]
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.load(Ordering::Acquire)
    }

    /// Takes all messages, leaving the list `empty` in their place.
    pub(crate) fn collect(&self, empty: Vec<Message>) -> Vec<Message> {
        let mut inbox = self.inbox.lock();
        self.mail.store(false, Ordering::Relaxed);
        std::mem::replace(&mut inbox.messages, empty)
    }

    /// Takes all messages and refuses further ones.
    pub(crate) fn close(&self) -> Vec<Message> {
        let mut inbox = self.inbox.lock();
        inbox.closed = true;
        self.mail.store(false, Ordering::Relaxed);
        std::mem::take(&mut inbox.messages)
    }

    /// Sends a message, or drops it when the scheduler is closed.
    fn send(&self, message: Message) {
        let refused = {
            let mut inbox = self.inbox.lock();
            if inbox.closed {
                Some(message)
            } else {
                inbox.messages.push(message);
                self.mail.store(true, Ordering::Release);
                None
            }
        };
        // A refused message holds values of users: it is dropped here, outside the lock.
        match refused {
            Some(message) => drop(message),
            None => (self.wake)(),
        }
    }
}

/// A scheduler as other threads see it: a place to start fibers on. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    pub(crate) shared: Arc<Shared>,
}

impl Remote {
    /// Starts a fiber on that thread, with a default name and stack.
    ///
    /// When the fiber cannot be started, [`JoinHandle::join`] says why.
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.spawn_with(Builder::new(), f)
    }

    /// Starts a fiber on that thread, as `builder` describes it.
    ///
    /// When the fiber cannot be started, [`JoinHandle::join`] says why.
    pub fn spawn_with<F, T>(&self, builder: Builder, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (promise, handle) = Promise::at(self.shared.scheduler);
        let job: Job = Box::new(move |start| match start {
            Ok(()) => promise.settle(run_to_end(f)),
            Err(error) => promise.settle(Err(error.into())),
        });
        self.shared.send(Message::Spawn { builder, job });
        handle
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote(scheduler {})", self.shared.scheduler)
    }
}

/// Wakes one fiber from any thread; made by [`unparker`](crate::unparker) on that fiber.
///
/// However often it is used before the fiber's thread looks, it takes one place in the inbox.
#[derive(Clone)]
pub struct Unparker {
    wake: Arc<Wake>,
}

pub(crate) struct Wake {
    shared: Arc<Shared>,
    id: FiberId,
    /// Whether a message for this fiber is under way.
    queued: AtomicBool,
}

impl Wake {
    /// The fiber to wake. From here on an unpark sends a new message; the swap also makes what the
    /// unparking threads wrote before visible to this one.
    pub(crate) fn take(&self) -> FiberId {
        self.queued.swap(false, Ordering::AcqRel);
        self.id
    }
}

impl Unparker {
    pub(crate) fn new(shared: Arc<Shared>, id: FiberId) -> Unparker {
        Unparker { wake: Arc::new(Wake { shared, id, queued: AtomicBool::new(false) }) }
    }

    /// Hands the fiber its token, and wakes it when it is parked. Without effect once the fiber has
    /// ended.
    pub fn unpark(&self) {
        let wake = &self.wake;
        let here = current::with_core(|core| {
            let same = Arc::ptr_eq(&core.shared, &wake.shared);
            if same {
                core.unpark(wake.id);
            }
            same
        });
        if here != Some(true) && !wake.queued.swap(true, Ordering::AcqRel) {
            wake.shared.send(Message::Unpark(Arc::clone(wake)));
        }
    }
}

impl fmt::Debug for Unparker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unparker({:?} of scheduler {})", self.wake.id, self.wake.shared.scheduler)
    }
}
