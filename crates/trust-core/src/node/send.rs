//! How a node sends a request: into the batch that is open, or the next, or when there is room.

use std::fmt;

use fiber::FiberId;
use transport_api::ThreadId;

use crate::client::completion::{Boxed, Completion, Limit, WaitForRoom, boxed};
use crate::client::outbox::Outbox;
use crate::client::outcome::Outcome;
use crate::client::request::{Arguments, InRun, Request};
use crate::client::runs::request_of;
use crate::client::waiter::count_failure;
use crate::closure::registry::Delegated;
use crate::codec::Plain;
use crate::error::{DelegateError, NO_SUCH_THREAD};
use crate::node::state::Node;
use crate::wire::words::RequestHead;

impl Node {
    /// Sends a request to the thread with this number. A fiber in free context may wait here for
    /// room.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn send<C: Completion + 'static>(
        &self,
        number: u32,
        request: Request<'_>,
        completion: C,
    ) {
        let Some(outbox) = self.outboxes.get(number) else {
            return fail(completion, &NO_SUCH_THREAD);
        };
        self.send_by(outbox, request, completion);
    }

    /// As [`send`](Self::send), to the thread of this outbox.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn send_by<C: Completion + 'static>(
        &self,
        outbox: &Outbox,
        request: Request<'_>,
        completion: C,
    ) {
        if let Err(completion) = outbox.append(&request, completion, &|| self.lane_to(outbox)) {
            match request.arguments {
                Arguments::Plain(plain) => {
                    let Request { property, closure, .. } = request;
                    let head = RequestHead::new(property, closure, request.words(), false);
                    self.send_plain_in_next(outbox, head, plain, completion);
                }
                _ => self.send_in_next(outbox, request, completion),
            }
        }
    }

    /// As [`send_by`](Self::send_by), of a request of kind `D` that may be one of a run, of the property with
    /// this [name](Outbox::name_of).
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn send_plain_by<D: Delegated, C: Completion + 'static>(
        &self,
        outbox: &Outbox,
        name: u64,
        arguments: impl InRun,
        completion: C,
    ) {
        if let Err(completion) = outbox.append_plain::<D, C>(name, arguments, completion) {
            self.send_one_in_next::<D, C>(outbox, name, arguments, completion);
        }
    }

    /// As [`send_in_next`](Self::send_in_next), of a request as of [`send_plain_by`](Self::send_plain_by).
    #[cold]
    #[inline(never)]
    pub(crate) fn send_one_in_next<D: Delegated, C: Completion + 'static>(
        &self,
        outbox: &Outbox,
        name: u64,
        arguments: impl InRun,
        completion: C,
    ) {
        let appended = if self.open(outbox) {
            // An empty batch takes every request, and more than one.
            outbox.append_plain::<D, C>(name, arguments, completion)
        } else {
            Err(completion)
        };
        if let Err(completion) = appended {
            self.send_later(outbox, request_of::<D, C>(name, &arguments), completion);
        }
    }

    /// As [`send_in_next`](Self::send_in_next), of a request with plain arguments, which it takes in
    /// parts: by its address, each one would be in memory in `send_by`, too.
    #[cold]
    #[inline(never)]
    fn send_plain_in_next<C: Completion + 'static>(
        &self,
        outbox: &Outbox,
        head: RequestHead,
        plain: Plain,
        completion: C,
    ) {
        let request = Request {
            property: head.property(),
            closure: head.closure(),
            arguments: Arguments::Plain(plain),
            reply_words: head.words(),
        };
        self.send_in_next(outbox, request, completion);
    }

    /// Sends a request for which no batch is open, or not one with room for it.
    #[cold]
    #[inline(never)]
    fn send_in_next<C: Completion + 'static>(
        &self,
        outbox: &Outbox,
        request: Request<'_>,
        completion: C,
    ) {
        if !self.open(outbox) {
            return self.send_later(outbox, request, completion);
        }
        // An empty batch takes every request, and more than one.
        if let Err(completion) = outbox.append(&request, completion, &|| self.lane_to(outbox)) {
            self.send_later(outbox, request, completion);
        }
    }

    #[cold]
    #[inline(never)]
    fn send_later<C: Completion + 'static>(
        &self,
        outbox: &Outbox,
        request: Request<'_>,
        completion: C,
    ) {
        let room = completion.waits_for_room();
        self.postpone(outbox, request, room, boxed(completion));
    }

    /// Sends a request when there is room, for which the fiber may wait.
    #[cold]
    #[inline(never)]
    fn postpone(
        &self,
        outbox: &Outbox,
        request: Request<'_>,
        room: WaitForRoom,
        completion: Boxed,
    ) {
        let _stay = self.stay();
        if let Some(error) = outbox.closed() {
            // Before the end of the call, as in `Waiting::fail`.
            request.give_back();
            completion(Outcome::Failed(&error));
            // Behind it: a fiber that is cancelled here must have called it. One that waits counts this when
            // it wakes.
            if !matches!(room, WaitForRoom::No) && self.context.is_free() {
                count_failure();
            }
            return;
        }
        let ticket = outbox.postpone(request, completion);
        self.outboxes.list(self.number_of(outbox.trustee()));
        // Back-pressure, for callers that would otherwise queue more.
        let fiber = fiber::current().filter(|_| self.context.is_free());
        match (room, fiber) {
            (WaitForRoom::No, _) | (_, None) => {}
            (WaitForRoom::Always, Some(fiber)) => wait_for_room(outbox, ticket, fiber, None),
            (WaitForRoom::Within(limit), Some(fiber)) => {
                wait_for_room(outbox, ticket, fiber, Some(limit));
            }
        }
    }
}

/// Has `fiber`, the current one, wait until the postponed request with this ticket has found room. If
/// that takes longer than `limit`, the request ends, and is not sent.
fn wait_for_room(outbox: &Outbox, ticket: u64, fiber: FiberId, limit: Option<Limit>) {
    let mut wait = fiber::Wait::new();
    while !outbox.has_moved(ticket) {
        outbox.wait_for_room(fiber);
        wait.explain(|| NeedsRoom(outbox.trustee()));
        match limit {
            Some(Limit { deadline: Some(deadline), timeout }) => {
                if !fiber::park_until(deadline)
                    && let Some(withdrawn) = outbox.withdraw(ticket, fiber)
                {
                    let error = DelegateError::TimedOut { trustee: outbox.trustee(), timeout };
                    return withdrawn.fail(&error);
                }
            }
            _ => fiber::park(),
        }
    }
}

/// What a fiber waits for whose request has no room.
struct NeedsRoom(ThreadId);

impl fmt::Display for NeedsRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "room for one more request to {}, which takes no more now", self.0)
    }
}

/// Completes a request without a reply.
#[cold]
#[inline(never)]
pub(super) fn fail<C: Completion>(completion: C, error: &DelegateError) {
    completion.complete(Outcome::Failed(error));
}
