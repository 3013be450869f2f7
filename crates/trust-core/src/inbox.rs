//! The trustee's end of one pair of threads: requests in, replies out.

use crate::{
    call::{Call, Payload},
    context::Context,
    error::PanicReport,
    link::Link,
    node::Node,
    outbox::BULK_REPLY,
    registry::{Closure, registry},
    slot::{Arrival, TrusteeSlot},
    traffic::{Traffic, add},
    wire::{ReplyHead, RequestHead, WORD},
};
use primitive::{
    limits::{BATCH_REQUESTS, BUFFERS, MESSAGE_BYTES},
    sync::Ordering,
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};
use transport_api::ThreadId;

/// How far a batch has been served.
#[derive(Clone, Copy)]
struct Progress {
    arrival: Arrival,
    /// The head of the next request.
    at: usize,
    /// First word behind all requests and long replies.
    tail: usize,
}

/// The trustee's end of one pair of threads.
pub(crate) struct Inbox {
    slot: TrusteeSlot,
    link: Link,
    /// A batch that waits for a bulk payload.
    paused: Cell<Option<Progress>>,
    /// Bulk payloads of requests that have arrived.
    bulk: RefCell<VecDeque<Vec<u8>>>,
    gone: Cell<bool>,
    /// What has come and been answered, counted by the batch.
    requests_in: Cell<u64>,
    words_in: Cell<u64>,
    words_out: Cell<u64>,
}

impl Inbox {
    pub(crate) fn new(slot: TrusteeSlot, link: Link) -> Self {
        Self {
            slot,
            link,
            paused: Cell::new(None),
            bulk: RefCell::default(),
            gone: Cell::new(false),
            requests_in: Cell::new(0),
            words_in: Cell::new(0),
            words_out: Cell::new(0),
        }
    }

    /// The client.
    pub(crate) fn client(&self) -> ThreadId {
        self.link.peer()
    }

    /// Stops listening to a client whose host is gone.
    pub(crate) fn close(&self) {
        self.gone.set(true);
    }

    /// Whether a batch is there to be served.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.slot.arrived().is_some()
            && !self.gone.get()
            && (self.paused.get().is_none() || !self.bulk.borrow().is_empty())
    }

    /// Whether a batch waits for a bulk payload.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.get().is_some()
    }

    /// Adds what this inbox has seen to `sum`.
    pub(crate) fn count(&self, sum: &mut Traffic) {
        sum.requests_in += self.requests_in.get();
        sum.bytes_in += self.words_in.get() * WORD as u64;
        sum.bytes_out += self.words_out.get() * WORD as u64;
        if !self.gone.get() {
            let arrived = self.slot.arrived();
            sum.unserved += arrived.map_or(0, |arrival| self.slot.requests(arrival) as u64);
        }
    }

    /// A bulk payload of a request has arrived; false if there are more than there can be requests.
    pub(crate) fn bulk_arrived(&self, payload: Vec<u8>) -> bool {
        add(&self.words_in, payload.len().div_ceil(WORD));
        let mut bulk = self.bulk.borrow_mut();
        let expected = bulk.len() < BUFFERS * BATCH_REQUESTS;
        if expected {
            bulk.push_back(payload);
        }
        expected
    }

    /// Serves the batch that has arrived, if one has; true if any request was served.
    #[inline(always)]
    pub(crate) fn serve(&self, node: &Node) -> bool {
        match self.slot.arrived() {
            Some(arrival) if !self.gone.get() => self.serve_batch(node, arrival),
            _ => false,
        }
    }

    fn serve_batch(&self, node: &Node, arrival: Arrival) -> bool {
        let mut progress = self.paused.take().unwrap_or_else(|| {
            self.slot.prefetch(arrival);
            Progress { arrival, at: 1, tail: arrival.end }
        });
        let before = progress.at;
        let context = node.context().enter(Context::Serving);
        let finished = loop {
            match catch_unwind(AssertUnwindSafe(|| self.run(node, &mut progress))) {
                Ok(finished) => break finished,
                Err(panic) => self.answer_panic(node, &mut progress, &PanicReport::taken(panic)),
            }
        };
        drop(context);
        let moved = finished || progress.at != before;
        if finished {
            add(&self.requests_in, self.slot.requests(progress.arrival));
            add(&self.words_in, progress.arrival.end);
            add(&self.words_out, progress.tail);
            let handover = self.slot.answer(progress.arrival, progress.tail);
            let lane = node.lane(self.client().host);
            // A lane that is broken says so through its peer event.
            let _ = self.link.give(self.slot.memory(), handover, &mut **lane.borrow_mut());
        } else {
            self.paused.set(Some(progress));
        }
        moved
    }

    /// Serves requests until the batch is done (true) or one waits for its bulk payload (false).
    /// A panic of a closure leaves `progress` at its request.
    #[inline(always)]
    fn run(&self, node: &Node, progress: &mut Progress) -> bool {
        let buffer = self.slot.buffer(progress.arrival.buffer);
        let slot = buffer.words();
        let end = progress.arrival.end;
        let closures = node.closures();
        let mut call = Call { buffer, slot, tail: progress.tail, bulk: None, outsized: None };
        // The truth about progress is here; `progress` is told before a closure runs, because it
        // may panic.
        let mut at = progress.at;
        while at < end {
            progress.at = at;
            let head = RequestHead::from_word(slot.load(at, Ordering::Relaxed));
            let payload = within(at, head, end);
            if head.is_bulk() && !self.take_bulk(&mut call) {
                return false;
            }
            node.context().set_request(head);
            let reply = match closures.get(head.closure() as usize) {
                Some(&Closure { run, tag }) => match node.properties().find(head.property(), tag) {
                    // SAFETY: the property is live and of the type the closure works on (equal
                    // tags are equal types); nothing else refers to it, because this thread is
                    // the only one with access and is not inside another closure: `serve` is only
                    // called from free context, and delegated code cannot wait.
                    Some(property) => unsafe { run(property, &mut call, payload) },
                    None => wrong_property(node, head, &mut call, payload),
                },
                None => call.refuse(payload, "it names a closure that this program does not have"),
            };
            slot.store(at, reply, Ordering::Relaxed);
            at = payload.at + payload.words;
            if !ReplyHead::is_in_place(reply) {
                self.after_long_reply(node, progress, &mut call);
            }
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn after_long_reply(&self, node: &Node, progress: &mut Progress, call: &mut Call<'_>) {
        progress.tail = call.tail;
        if let Some(payload) = call.outsized.take() {
            self.send_bulk(node, payload);
        }
    }

    /// Gives the call the bulk payload that belongs to it, if it is there.
    #[cold]
    fn take_bulk(&self, call: &mut Call<'_>) -> bool {
        match self.bulk.borrow_mut().pop_front() {
            Some(payload) => {
                debug_assert!(payload.len() <= MESSAGE_BYTES);
                call.bulk = Some(payload);
                true
            }
            None => false,
        }
    }

    #[cold]
    fn send_bulk(&self, node: &Node, payload: Vec<u8>) {
        // A lane that is broken says so through its peer event.
        let lane = node.lane(self.client().host);
        add(&self.words_out, payload.len().div_ceil(WORD));
        let _ = lane.borrow_mut().bulk(self.client().thread, BULK_REPLY, payload);
    }

    #[cold]
    fn answer_panic(&self, node: &Node, progress: &mut Progress, report: &PanicReport) {
        let buffer = self.slot.buffer(progress.arrival.buffer);
        let slot = buffer.words();
        let head = RequestHead::from_word(slot.load(progress.at, Ordering::Relaxed));
        let payload = within(progress.at, head, progress.arrival.end);
        let mut call = Call { buffer, slot, tail: progress.tail, bulk: None, outsized: None };
        let reply = call.panicked(payload, report);
        slot.store(progress.at, reply, Ordering::Relaxed);
        progress.at = payload.at + payload.words;
        self.after_long_reply(node, progress, &mut call);
    }
}

/// The payload of the request whose head is at word `at`, before `end`: cut where the batch ends.
#[inline(always)]
fn within(at: usize, head: RequestHead, end: usize) -> Payload {
    debug_assert!(at < end);
    Payload { at: at + 1, words: head.words().min(end - at - 1) }
}

#[cold]
#[inline(never)]
fn wrong_property(node: &Node, head: RequestHead, call: &mut Call<'_>, payload: Payload) -> u64 {
    let wants = registry().description(head.closure()).map_or("?", |found| found.property_name);
    let number = head.property();
    let reason = match node.properties().type_name(number) {
        Some(has) => format!("property {number} is a {has}, and the closure works on a {wants}"),
        None => format!("there is no property {number} (any more); the closure wanted a {wants}"),
    };
    call.refuse(payload, &reason)
}
