//! [`AwaitedCalls`]: the calls of a node whose reply comes later than the request's own.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use serde::Serialize;
use slab::Slab;
use transport_api::{HostId, LossReason, ThreadId};

use crate::client::outcome::Outcome;
use crate::error::{DelegateError, Panic, catch};

/// The place of a call, for messages.
pub(crate) type CallSite = &'static Location<'static>;

/// A call whose reply comes later.
pub(super) struct Awaited {
    /// The upper half of its token: places in the table are used again.
    pub(super) generation: u32,
    pub(super) trustee: ThreadId,
    /// Where it was made.
    pub(super) place: CallSite,
    /// Whether the end of the rack waits for it.
    pub(super) counts: bool,
    pub(super) completion: Box<dyn FnOnce(Outcome<'_>)>,
}

/// The table of a node for calls whose reply comes later.
#[derive(Default)]
pub(crate) struct AwaitedCalls {
    pub(super) awaited: RefCell<Slab<Awaited>>,
    pub(super) generation: Cell<u32>,
}

/// Where a later reply goes: a thread, and its token for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub(crate) struct ReplyTo {
    pub(super) thread: u32,
    pub(super) token: u64,
}

impl ReplyTo {
    /// The waiting thread's token for the call.
    pub(crate) fn token(self) -> u64 {
        self.token
    }

    /// The number of the waiting thread.
    pub(crate) fn thread(self) -> u32 {
        self.thread
    }
}

impl AwaitedCalls {
    /// Ends every call that waits for `host`.
    pub(crate) fn lose(&self, host: HostId, reason: &LossReason, caught: &mut dyn FnMut(Panic)) {
        self.fail(
            |trustee| trustee.host == host,
            || DelegateError::PeerLost { host, reason: reason.clone() },
            caught,
        );
    }

    /// Ends every call whose trustee is `concerned`. `caught` gets the panics of completions.
    pub(crate) fn fail(
        &self,
        concerned: impl Fn(ThreadId) -> bool,
        error: impl Fn() -> DelegateError,
        caught: &mut dyn FnMut(Panic),
    ) {
        let tokens: Vec<_> = {
            let awaited = self.awaited.borrow();
            awaited.iter().filter(|(_, call)| concerned(call.trustee)).map(|(t, _)| t).collect()
        };
        for token in tokens {
            // A completion before this one may have ended it.
            let ended = self.awaited.borrow_mut().try_remove(token);
            let Some(Awaited { completion, .. }) = ended else { continue };
            catch(caught, || completion(Outcome::Failed(&error())));
        }
    }

    /// Calls whose reply has not come yet, and for which the end of the rack waits.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.borrow().iter().filter(|(_, call)| call.counts).count()
    }
}
