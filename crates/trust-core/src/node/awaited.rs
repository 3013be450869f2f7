//! [`AwaitedCalls`]: the calls of a node whose reply comes later than the request's own.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use serde::Serialize;
use slab::Slab;
use transport_api::{HostId, LossReason, ThreadId};

use crate::client::completion::Boxed;
use crate::client::outcome::Outcome;
use crate::codec;
use crate::error::{DelegateError, Panic, catch};
use crate::wire::words::Status;

/// The place of a call, for messages.
pub(crate) type CallSite = &'static Location<'static>;

/// A call whose reply comes later.
pub(super) struct Awaited {
    /// The upper half of its token.
    pub(super) generation: u32,
    pub(super) trustee: ThreadId,
    /// Where it was made.
    pub(super) place: CallSite,
    /// Whether the end of the rack waits for it.
    pub(super) counts: bool,
    pub(super) completion: Awaiting,
}

/// Where the completion of a call is whose reply may come later.
pub(super) enum Awaiting {
    /// With the request, whose own reply either ends the call or says that it goes on.
    InRequest,
    /// Still with the request; the later reply has overtaken that of the request.
    Overtaken(Box<EarlyReply>),
    /// Here.
    Here(Boxed),
}

/// A later reply that is kept until the reply of the request has come.
pub(super) struct EarlyReply {
    pub(super) trustee: ThreadId,
    pub(super) status: Status,
    pub(super) payload: Vec<u8>,
}

impl Awaited {
    /// Whether this is the call of this token: places in the table are used again.
    #[inline(always)]
    pub(super) fn has(&self, token: u64) -> bool {
        u64::from(self.generation) == token >> 32
    }
}

impl EarlyReply {
    /// Gives back what nothing will take.
    pub(super) fn give_back(&self) {
        if self.status == Status::Done {
            codec::give_back(&self.payload);
        }
    }
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

    /// Ends every call whose trustee is `concerned`, but for those whose request will end them.
    /// `caught` gets the panics of completions.
    pub(crate) fn fail(
        &self,
        concerned: impl Fn(ThreadId) -> bool,
        error: impl Fn() -> DelegateError,
        caught: &mut dyn FnMut(Panic),
    ) {
        let tokens: Vec<_> = {
            let awaited = self.awaited.borrow();
            let is_here = |call: &Awaited| matches!(call.completion, Awaiting::Here(_));
            let calls = awaited.iter().filter(|(_, call)| is_here(call) && concerned(call.trustee));
            calls.map(|(token, _)| token).collect()
        };
        for token in tokens {
            // A completion before this one may have ended it.
            let ended = self.awaited.borrow_mut().try_remove(token);
            let Some(Awaited { completion: Awaiting::Here(completion), .. }) = ended else {
                continue;
            };
            catch(caught, || completion(Outcome::Failed(&error())));
        }
    }

    /// Calls whose reply has not come yet, and for which the end of the rack waits.
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.borrow().iter().filter(|(_, call)| call.counts).count()
    }
}
