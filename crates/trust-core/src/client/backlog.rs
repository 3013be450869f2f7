//! The requests of an [`Outbox`] that find no room, which wait in the order in which they were made, and
//! the fibers that wait for room.

use std::cell::Cell;

use fiber::FiberId;
use primitive::limits::INLINE_BYTES;
use progress::LaneRef;

use crate::client::completion::Boxed;
use crate::client::outbox::Outbox;
use crate::client::request::{Arguments, Request, Waiting};
use crate::wire::words::WORD;

impl Outbox {
    /// Keeps a request until there is room; returns its ticket. All that comes after it queues
    /// after it, so that no request is overtaken for ever.
    #[cold]
    #[inline(never)]
    pub(crate) fn postpone(&self, request: Request<'_>, completion: Boxed) -> u64 {
        self.slot.block(true);
        self.needs_room.set(true);
        let ticket = self.postponed.get();
        self.postponed.set(ticket + 1);
        self.backlog.borrow_mut().push_back(Waiting {
            ticket,
            property: request.property,
            closure: request.closure,
            plain: match request.arguments {
                Arguments::Plain(plain) => Some(plain),
                _ => None,
            },
            encoded: request.arguments.into_vec(),
            reply_words: request.reply_words,
            completion,
        });
        ticket
    }

    /// Whether the postponed request with this ticket has found room, or has ended.
    pub(crate) fn has_moved(&self, ticket: u64) -> bool {
        // They are in the order of their tickets.
        self.backlog.borrow().front().is_none_or(|first| first.ticket > ticket)
    }

    /// Takes back a postponed request, for which `fiber` waits no longer; `None` if it has found room,
    /// or has ended. The caller [fails](Waiting::fail) it.
    #[cold]
    pub(crate) fn withdraw(&self, ticket: u64, fiber: FiberId) -> Option<Waiting> {
        self.waiting_for_room.borrow_mut().retain(|waiting| *waiting != fiber);
        let mut backlog = self.backlog.borrow_mut();
        let at = backlog.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()?;
        let withdrawn = backlog.remove(at)?;
        if backlog.is_empty() {
            self.slot.block(self.is_closed.get());
        }
        Some(withdrawn)
    }

    /// Remembers a fiber to wake when there is room.
    pub(crate) fn wait_for_room(&self, fiber: FiberId) {
        self.needs_room.set(true);
        self.waiting_for_room.borrow_mut().push(fiber);
    }

    /// After replies were taken: moves what had found no room, and wakes the fibers that waited.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn refill<'a>(
        &self,
        lane: impl FnOnce() -> &'a LaneRef,
        unpark: impl FnMut(FiberId),
    ) {
        if self.needs_room.get() {
            self.refill_now(lane(), unpark);
        }
    }

    #[cold]
    #[inline(never)]
    fn refill_now(&self, lane: &LaneRef, mut unpark: impl FnMut(FiberId)) {
        self.slot.block(false);
        loop {
            // Not in a `while let`: the list must not stay borrowed while one is put back.
            let next = self.backlog.borrow_mut().pop_front();
            let Some(mut waiting) = next else { break };
            let len = waiting.encoded.len();
            let large =
                if len > INLINE_BYTES { std::mem::take(&mut waiting.encoded) } else { Vec::new() };
            let large = Cell::new(large);
            let encoded = || Arguments::of_postponed(&waiting.encoded, &large, len);
            let request = Request {
                property: waiting.property,
                closure: waiting.closure,
                arguments: waiting.plain.map_or_else(encoded, Arguments::Plain),
                reply_words: waiting.reply_words,
            };
            match self.append(&request, waiting.completion, &|| lane) {
                Ok(()) => {}
                Err(completion) => {
                    if len > INLINE_BYTES {
                        waiting.encoded = large.take();
                    }
                    self.backlog.borrow_mut().push_front(Waiting { completion, ..waiting });
                    if !self.open(|| lane) || !self.may_send(len) {
                        self.slot.block(true);
                        break;
                    }
                }
            }
        }
        let has_backlog = !self.backlog.borrow().is_empty();
        if !has_backlog {
            self.slot.block(self.is_closed.get());
        }
        self.needs_room.set(has_backlog);
        for fiber in self.waiting_for_room.borrow_mut().drain(..) {
            unpark(fiber);
        }
    }

    /// Whether the first postponed request, if there is one, has room among the bulk payloads. What
    /// makes such room is an answer, which a poll finds by itself.
    pub(super) fn has_room_for_postponed(&self) -> bool {
        self.backlog.borrow().front().is_some_and(|first| self.may_send(first.encoded.len()))
    }

    /// Whether arguments of `len` bytes may be sent as far as the bulk payloads are concerned.
    fn may_send(&self, len: usize) -> bool {
        len <= INLINE_BYTES || self.bulk_out.has_room(len.next_multiple_of(WORD))
    }
}
