//! [`AwaitedCalls`]: the calls of a node whose reply comes later than the request's own.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::Location;

use serde::{Deserialize, Serialize};
use slab::Slab;
use transport_api::{HostId, LossReason, ThreadId};

use crate::client::completion::Boxed;
use crate::client::outcome::Outcome;
use crate::error::{DelegateError, Panic, catch};
use crate::wire::bulk::BATCH_REPLY_BYTES;
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

/// The table of a node for calls whose reply comes later.
#[derive(Default)]
pub(crate) struct AwaitedCalls {
    pub(super) awaited: RefCell<Slab<Awaited>>,
    pub(super) generation: Cell<u32>,
    /// Bytes of the early replies that are kept, by trustee.
    early_bytes: RefCell<BTreeMap<ThreadId, usize>>,
}

/// A later reply that no honest trustee sends.
pub(super) struct Unasked;

/// Where a later reply goes: a thread, and its token for the call.
///
/// One that is decoded from a request names the request's sender (`later.rs`). Otherwise a client
/// could have this thread end calls of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u32, u64)")]
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
    /// Keeps a later reply whose request has not been answered yet; false if the request has been, or
    /// the call is over.
    ///
    /// An honest trustee replies once to a call, and stays below the bytes: its early replies are to
    /// calls of the two batches under way, and as requests they are bounded by `BULK_REQUEST_BYTES`
    /// until they have been taken, one batch of calls with them.
    ///
    /// # Errors
    /// If `from` belongs to a host that was not asked, has replied before, or would have more than
    /// [`BATCH_REPLY_BYTES`] kept.
    pub(super) fn keep_early(
        &self,
        from: ThreadId,
        token: u64,
        status: Status,
        payload: &[u8],
    ) -> Result<bool, Unasked> {
        let mut awaited = self.awaited.borrow_mut();
        let call = awaited.get_mut(token as u32 as usize).filter(|call| call.has(token));
        let Some(call) = call else { return Ok(false) };
        match call.completion {
            // A property may have moved to another thread of its host.
            _ if call.trustee.host != from.host => Err(Unasked),
            Awaiting::Here(_) => Ok(false),
            Awaiting::Overtaken(_) => Err(Unasked),
            Awaiting::InRequest => {
                let mut early_bytes = self.early_bytes.borrow_mut();
                let bytes = early_bytes.entry(from).or_default();
                if *bytes + payload.len() > BATCH_REPLY_BYTES {
                    return Err(Unasked);
                }
                *bytes += payload.len();
                let reply = EarlyReply { trustee: from, status, payload: payload.to_vec() };
                call.completion = Awaiting::Overtaken(Box::new(reply));
                Ok(true)
            }
        }
    }

    /// An early reply is kept no longer.
    pub(super) fn release_early(&self, reply: &EarlyReply) {
        let mut early_bytes = self.early_bytes.borrow_mut();
        if let Some(bytes) = early_bytes.get_mut(&reply.trustee) {
            *bytes -= reply.payload.len();
            if *bytes == 0 {
                early_bytes.remove(&reply.trustee);
            }
        }
    }

    /// Whether no early reply is kept.
    #[cfg(test)]
    pub(super) fn keeps_nothing(&self) -> bool {
        self.early_bytes.borrow().is_empty()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_replies_of_a_thread_have_few_bytes_at_a_time() {
        const LEN: usize = BATCH_REPLY_BYTES / 4;
        let calls = AwaitedCalls::default();
        let [one, other] = [1, 2].map(|host| ThreadId { host: HostId(host), thread: 0 });
        let keep = |trustee| {
            let completion = Awaiting::InRequest;
            let place = Location::caller();
            let call = Awaited { generation: 0, trustee, place, counts: true, completion };
            let token = calls.awaited.borrow_mut().insert(call);
            let kept = calls.keep_early(trustee, token as u64, Status::Done, &[0; LEN]);
            kept.map(|kept| (kept, token)).ok()
        };
        let tokens = [(); 4].map(|()| keep(one).expect("a reply that is kept"));
        assert!(tokens.iter().all(|(kept, _)| *kept));
        assert!(keep(one).is_none(), "more than {BATCH_REPLY_BYTES} bytes");
        assert!(keep(other).is_some(), "another thread has bytes of its own");
        for (_, token) in &tokens[..2] {
            let call = calls.awaited.borrow_mut().remove(*token);
            let Awaiting::Overtaken(reply) = call.completion else { panic!("it was kept") };
            calls.release_early(&reply);
        }
        assert!(keep(one).is_some() && keep(one).is_some(), "two were taken");
        assert!(keep(one).is_none());
    }
}
