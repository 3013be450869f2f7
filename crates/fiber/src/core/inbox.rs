//! What other threads send to a scheduler: fibers to start, and fibers to wake.
//!
//! Messages wait in a list behind a mutex; a flag beside it tells the owner in one load whether
//! there are any. After each message the wake hook is called, so that an idle thread looks.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use primitive::sync::{AtomicBool, Ordering};

use crate::core::block::FiberId;
use crate::core::builder::Builder;
use crate::error::SpawnError;

/// Called after something was put into a thread's inbox: wakes the thread's parker.
pub type WakeHook = Arc<dyn Fn() + Send + Sync>;

/// Runs on the new fiber with `Ok`, or is called with the error if the fiber cannot start.
pub(crate) type Job = Box<dyn FnOnce(Result<(), SpawnError>) + Send>;

pub(crate) enum Message {
    Spawn { builder: Builder, job: Job },
    Unpark(Arc<Wake>),
}

/// The part of a scheduler that other threads share.
pub(crate) struct Shared {
    /// Distinguishes this scheduler from all others of the process, past and present.
    pub(crate) scheduler: u64,
    /// The one that runs its fibers.
    pub(crate) thread: ThreadId,
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
    /// That of a scheduler of the calling thread.
    pub(crate) fn new(scheduler: u64, wake: WakeHook) -> Shared {
        let (thread, mail) = (thread::current().id(), AtomicBool::new(false));
        Shared { scheduler, thread, mail, inbox: Mutex::default(), wake }
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
    pub(crate) fn send(&self, message: Message) {
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

pub(crate) struct Wake {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: FiberId,
    /// Whether a message for this fiber is under way.
    queued: AtomicBool,
    /// Whether it was woken as a [`Waker`](std::task::Waker) since the fiber looked last. The fiber's
    /// token does not say so: what the fiber polls may wait itself, and use up the token.
    woken: AtomicBool,
}

impl Wake {
    pub(crate) fn new(shared: Arc<Shared>, id: FiberId) -> Wake {
        Wake { shared, id, queued: AtomicBool::new(false), woken: AtomicBool::new(false) }
    }

    /// Notes that it was woken as a waker; false if the fiber has not seen the last time yet.
    pub(crate) fn set_woken(&self) -> bool {
        !self.woken.swap(true, Ordering::AcqRel)
    }

    /// Whether it was woken as a waker since the last call. What the waking thread wrote before is
    /// visible then.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    /// Has the fiber's thread wake it.
    pub(crate) fn send(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.shared.send(Message::Unpark(Arc::clone(self)));
        }
    }

    /// The fiber to wake. From here on an unpark sends a new message; the swap also makes what the
    /// unparking threads wrote before visible to this one.
    pub(crate) fn take(&self) -> FiberId {
        self.queued.swap(false, Ordering::AcqRel);
        self.id
    }
}
