//! The client's end of one pair of threads: requests out, replies in.

use crate::{
    call::put,
    completion::{Completion, Completions, Outcome, Reply},
    error::DelegateError,
    link::Link,
    slot::ClientSlot,
    wire::{ReplyHead, RequestHead, WORD},
};
use fiber::FiberId;
use primitive::{
    limits::{BUFFERS, INLINE_BYTES, SLOT_BYTES},
    sync::Ordering,
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};
use transport_api::{Lane, ThreadId};

/// The tag of a bulk payload that belongs to a request; replies have the other.
pub(crate) const BULK_REQUEST: u64 = 0;
/// The tag of a bulk payload that belongs to a reply.
pub(crate) const BULK_REPLY: u64 = 1;

/// A request, but for its completion.
pub(crate) struct Request<'a> {
    pub(crate) property: u32,
    pub(crate) closure: u32,
    pub(crate) payload: &'a [u8],
    /// Words that the reply will probably need.
    pub(crate) reply_words: usize,
}

/// A request that found no room and could not wait for it.
struct Waiting {
    property: u32,
    closure: u32,
    payload: Vec<u8>,
    reply_words: usize,
    completion: Box<dyn FnOnce(Outcome<'_>)>,
}

/// The client's end of one pair of threads.
pub(crate) struct Outbox {
    slot: ClientSlot,
    link: Link,
    completions: [Cell<Completions>; BUFFERS],
    backlog: RefCell<VecDeque<Waiting>>,
    /// Fibers that wait for room.
    thirsty: RefCell<Vec<FiberId>>,
    /// Bulk payloads of replies that have arrived.
    bulk: RefCell<VecDeque<Vec<u8>>>,
    /// Why requests fail here, once the trustee is gone or the rack has ended.
    closed: RefCell<Option<DelegateError>>,
    is_closed: Cell<bool>,
    /// Whether the node has this outbox in its list of those with something under way.
    pub(crate) listed: Cell<bool>,
}

impl Outbox {
    pub(crate) fn new(slot: ClientSlot, link: Link) -> Self {
        Self {
            slot,
            link,
            completions: Default::default(),
            backlog: RefCell::default(),
            thirsty: RefCell::default(),
            bulk: RefCell::default(),
            closed: RefCell::default(),
            is_closed: Cell::new(false),
            listed: Cell::new(false),
        }
    }

    /// The trustee.
    #[inline(always)]
    pub(crate) fn trustee(&self) -> ThreadId {
        self.link.peer()
    }

    /// Whether a request with this payload would go into the buffer now.
    #[inline(always)]
    pub(crate) fn has_room(&self, request: &Request<'_>) -> bool {
        let words = words_of(request.payload.len()).max(request.reply_words);
        self.slot.has_room(words) && !self.is_closed.get() && self.backlog.borrow().is_empty()
    }

    /// Puts a request into the buffer. Call only when [`has_room`](Self::has_room).
    #[inline(always)]
    pub(crate) fn append<C: Completion + 'static>(
        &self,
        request: &Request<'_>,
        completion: C,
        lane: impl FnOnce() -> LaneRef,
    ) {
        let head = RequestHead {
            property: request.property,
            closure: request.closure,
            words: words_of(request.payload.len()).max(request.reply_words),
            bulk: false,
        };
        if request.payload.len() <= INLINE_BYTES {
            let buffer = self.slot.filling_buffer();
            let at = self.slot.append(head);
            put(self.slot.buffer(buffer), at, request.payload);
            self.push_completion(buffer, at - WORD, completion);
        } else {
            self.append_bulk(head, request.payload, completion, lane());
        }
    }

    #[cold]
    #[inline(never)]
    fn append_bulk<C: Completion + 'static>(
        &self,
        mut head: RequestHead,
        payload: &[u8],
        completion: C,
        lane: LaneRef,
    ) {
        let sent = lane.borrow_mut().bulk(self.trustee().thread, BULK_REQUEST, payload.to_vec());
        // A lane that refuses has lost its peer and will say so: everything here fails then, this
        // request with it.
        drop(sent);
        head.bulk = true;
        head.words = head.words.min(words_of(INLINE_BYTES));
        let buffer = self.slot.filling_buffer();
        let at = self.slot.append(head);
        self.slot.buffer(buffer).store(at, payload.len() as u64, Ordering::Relaxed);
        self.push_completion(buffer, at - WORD, completion);
    }

    #[inline(always)]
    fn push_completion<C: Completion + 'static>(&self, buffer: usize, at: usize, completion: C) {
        let mut completions = self.completions[buffer].take();
        completions.push(at, completion);
        self.completions[buffer].set(completions);
    }

    /// Keeps a request until there is room: for callers that cannot wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn postpone(&self, request: &Request<'_>, completion: Box<dyn FnOnce(Outcome<'_>)>) {
        self.backlog.borrow_mut().push_back(Waiting {
            property: request.property,
            closure: request.closure,
            payload: request.payload.to_vec(),
            reply_words: request.reply_words,
            completion,
        });
    }

    /// Remembers a fiber to wake when there is room.
    pub(crate) fn wait_for_room(&self, fiber: FiberId) {
        self.thirsty.borrow_mut().push(fiber);
    }

    /// Whether the batch being filled should go at once.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.slot.is_full()
    }

    /// Whether anything is under way to this trustee.
    #[inline(always)]
    pub(crate) fn is_busy(&self) -> bool {
        !self.is_closed.get() && (self.slot.in_flight() > 0 || self.is_waiting())
    }

    /// Whether a poll would find something to do here.
    pub(crate) fn is_ready(&self) -> bool {
        self.slot.answered().is_some() || (self.slot.in_flight() < BUFFERS && self.is_waiting())
    }

    fn is_waiting(&self) -> bool {
        self.slot.waiting() > 0 || !self.backlog.borrow().is_empty()
    }

    /// Hands over what waits, if there is a buffer free behind it; true if it did.
    #[inline(always)]
    pub(crate) fn flush(&self, lane: &LaneRef) -> bool {
        if self.slot.in_flight() == BUFFERS || self.is_closed.get() {
            return false;
        }
        let Some(handover) = self.slot.seal() else { return false };
        // A lane that is broken says so through its peer event; the completions are told then.
        let _ =
            self.link.give(self.slot.buffer(handover.buffer), handover, &mut **lane.borrow_mut());
        true
    }

    /// Takes replies; returns how many requests were completed. `caught` gets the panics of
    /// completions.
    #[inline(always)]
    pub(crate) fn reap(&self, caught: &mut dyn FnMut(Box<dyn std::any::Any + Send>)) -> usize {
        match self.slot.answered() {
            None => 0,
            Some(answered) => {
                self.slot.prefetch_answered(answered);
                self.reap_buffer(answered.0, caught)
            }
        }
    }

    fn reap_buffer(
        &self,
        buffer: usize,
        caught: &mut dyn FnMut(Box<dyn std::any::Any + Send>),
    ) -> usize {
        let mut done = 0;
        let mut completions = self.completions[buffer].take();
        let finished = loop {
            let run =
                std::panic::AssertUnwindSafe(|| self.run(buffer, &mut completions, &mut done));
            match std::panic::catch_unwind(run) {
                Ok(finished) => break finished,
                Err(panic) => caught(panic),
            }
        };
        if finished {
            completions.clear();
            self.slot.take_back();
        }
        self.completions[buffer].set(completions);
        done
    }

    /// Runs the completions of an answered buffer; false if one waits for its bulk payload.
    #[inline(always)]
    fn run(&self, buffer: usize, completions: &mut Completions, done: &mut usize) -> bool {
        let memory = self.slot.buffer(buffer);
        let trustee = self.trustee();
        while let Some(at) = completions.peek() {
            let head = ReplyHead::unpack(memory.load(at, Ordering::Relaxed));
            let outcome = match head {
                Some(head) if head.bulk => {
                    let Some(bytes) = self.bulk.borrow_mut().pop_front() else { return false };
                    Outcome::Reply(Reply { trustee, buffer: memory, head, bulk: Some(bytes) })
                }
                Some(head) if head.len <= SLOT_BYTES && head.at <= SLOT_BYTES - head.len => {
                    Outcome::Reply(Reply { trustee, buffer: memory, head, bulk: None })
                }
                _ => Outcome::Failed(DelegateError::Refused {
                    trustee,
                    reason: "its reply makes no sense: it is not the same build".to_owned(),
                }),
            };
            *done += 1;
            completions.complete_next(outcome);
        }
        true
    }

    /// After replies were taken: moves what had found no room, and wakes the fibers that waited.
    pub(crate) fn refill(&self, lane: &LaneRef, mut unpark: impl FnMut(FiberId)) {
        loop {
            // Not in a `while let`: the list must not stay borrowed while one is put back.
            let next = self.backlog.borrow_mut().pop_front();
            let Some(waiting) = next else { break };
            let request = Request {
                property: waiting.property,
                closure: waiting.closure,
                payload: &waiting.payload,
                reply_words: waiting.reply_words,
            };
            if !self.slot.has_room(words_of(request.payload.len()).max(request.reply_words)) {
                self.backlog.borrow_mut().push_front(waiting);
                return;
            }
            self.append(&request, waiting.completion, || lane.clone());
        }
        for fiber in self.thirsty.borrow_mut().drain(..) {
            unpark(fiber);
        }
    }

    /// A bulk payload of a reply has arrived.
    pub(crate) fn bulk_arrived(&self, payload: Vec<u8>) {
        self.bulk.borrow_mut().push_back(payload);
    }

    /// Why requests to this trustee fail, if they do.
    pub(crate) fn closed(&self) -> Option<DelegateError> {
        self.closed.borrow().clone()
    }

    /// Ends everything under way with `error`, and everything that is still to come; returns how
    /// many requests that were.
    pub(crate) fn close(&self, error: &DelegateError, unpark: impl FnMut(FiberId)) -> usize {
        if self.is_closed.replace(true) {
            return 0;
        }
        *self.closed.borrow_mut() = Some(error.clone());
        let mut ended = 0;
        for cell in &self.completions {
            let mut completions = cell.take();
            while completions.peek().is_some() {
                completions.complete_next(Outcome::Failed(error.clone()));
                ended += 1;
            }
        }
        let backlog = std::mem::take(&mut *self.backlog.borrow_mut());
        for waiting in backlog {
            (waiting.completion)(Outcome::Failed(error.clone()));
            ended += 1;
        }
        self.thirsty.borrow_mut().drain(..).for_each(unpark);
        ended
    }
}

/// A lane that all outboxes and inboxes towards one host share.
pub(crate) type LaneRef = std::rc::Rc<RefCell<Box<dyn Lane>>>;

#[inline(always)]
fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(WORD)
}
