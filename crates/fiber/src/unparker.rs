//! [`Unparker`]: waking a fiber from any thread.

use std::fmt;
use std::sync::Arc;
use std::task::{self, Waker};

use crate::core::block::FiberId;
use crate::core::current;
use crate::core::inbox::{Shared, Wake};

/// Wakes one fiber from any thread; made by [`unparker`](crate::unparker) on that fiber.
///
/// However often it is used before the fiber's thread looks, it takes one place in the inbox.
#[derive(Clone)]
pub struct Unparker {
    wake: Arc<Wake>,
}

impl Unparker {
    pub(crate) fn new(shared: Arc<Shared>, id: FiberId) -> Unparker {
        Unparker { wake: Arc::new(Wake::new(shared, id)) }
    }

    /// The same as a waker, for futures that the fiber polls.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.wake))
    }

    /// Whether the waker was used since the last call. Asked by the fiber before each park: it may have
    /// used up the token in a wait of its own.
    pub(crate) fn take_woken(&self) -> bool {
        self.wake.take_woken()
    }

    /// Hands the fiber its token, and wakes it when it is parked. Without effect once the fiber has
    /// ended.
    pub fn unpark(&self) {
        unpark(&self.wake);
    }
}

impl task::Wake for Wake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.set_woken() {
            unpark(self);
        }
    }
}

fn unpark(wake: &Arc<Wake>) {
    let same_thread = current::with_core(|core| {
        let same = Arc::ptr_eq(&core.shared, &wake.shared);
        if same {
            core.unpark(wake.id);
        }
        same
    });
    if same_thread != Some(true) {
        wake.send();
    }
}

impl fmt::Debug for Unparker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unparker({:?} of scheduler {})", self.wake.id, self.wake.shared.scheduler)
    }
}
