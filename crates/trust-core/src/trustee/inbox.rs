//! The trustee's end of one pair of threads: requests in, replies out.

use std::cell::{Cell, RefCell};
use std::hint::cold_path;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use primitive::Words;
use primitive::limits::{CACHE_LINE, MESSAGE_BYTES};
use primitive::sync::Ordering;
use progress::LaneRef;
use transport_api::{HostId, ThreadId};

use crate::closure::batch::{Batch, Received};
use crate::closure::context::{Context, ContextCell};
use crate::closure::registry::{Closure, registry};
use crate::error::{Panic, PanicReport};
use crate::trustee::property::Properties;
use crate::wire::bulk::{BULK_REPLY, BulkQueue, REQUEST_BYTES};
use crate::wire::link::Link;
use crate::wire::slot::{Arrival, TrusteeSlot};
use crate::wire::traffic::{Traffic, add};
use crate::wire::words::{RequestHead, RunLayout, Signal, WORD};

/// The progress of a batch that is being served.
#[derive(Clone, Copy)]
struct Progress {
    /// The next request.
    at: usize,
    /// Each request of the run that it is in, how many are left of that, and the word that they have in
    /// common.
    run: Received,
    left: usize,
    word: u64,
    /// First word behind the requests and the replies that stand apart.
    tail: usize,
    /// Bytes of the replies that went by the bulk path.
    bulk_bytes: usize,
}

/// The parts of its thread that an inbox uses.
pub(crate) trait Server {
    /// All closures of the program, by id.
    fn closures(&self) -> &'static [Closure];
    /// The properties that live with the thread.
    fn properties(&self) -> &Properties;
    /// The context of the code that runs on the thread.
    fn context(&self) -> &ContextCell;
    /// The thread's lane to `host`.
    fn lane(&self, host: HostId) -> &LaneRef;
    /// Reports a panic that belongs to no request.
    fn report_panic(&self, panic: Panic);
}

/// The trustee's end of one pair of threads.
pub(crate) struct Inbox {
    slot: TrusteeSlot,
    link: Link,
    /// A batch that waits for a bulk payload.
    paused: Cell<Option<Progress>>,
    /// Bulk payloads of requests that have arrived.
    bulk: RefCell<BulkQueue>,
    gone: Cell<bool>,
    /// Requests and words in both directions, counted by the batch.
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

    /// Adds what this inbox has served to `sum`.
    pub(crate) fn count(&self, sum: &mut Traffic) {
        sum.requests_in += self.requests_in.get();
        sum.bytes_in += self.words_in.get() * WORD as u64;
        sum.bytes_out += self.words_out.get() * WORD as u64;
    }

    /// Requests of the batch that has come and is not served yet.
    pub(crate) fn unserved(&self) -> u64 {
        let arrived = self.slot.arrived().filter(|_| !self.gone.get());
        arrived.map_or(0, |arrival| requests_of(self.slot.buffer(arrival.buffer).words()) as u64)
    }

    /// A bulk payload of a request has arrived; false if no honest client sends it: there are more
    /// than there can be requests, or they have more bytes.
    pub(crate) fn bulk_arrived(&self, payload: Vec<u8>) -> bool {
        add(&self.words_in, payload.len().div_ceil(WORD));
        self.bulk.borrow_mut().push(payload, REQUEST_BYTES)
    }

    /// Serves the batch that the [slot](Self::slot) expects, whose signal this is, if it is there as a whole;
    /// true if any request was served. The next one waits for the next poll, whatever is there: fibers that
    /// were started run in between.
    #[inline(always)]
    pub(crate) fn serve(&self, server: &impl Server, signal: u64) -> bool {
        match self.slot.arrival(signal) {
            Some(arrival) if !self.gone.get() => self.serve_batch(server, arrival),
            _ => false,
        }
    }

    /// The slot in which the client's batches come.
    #[inline(always)]
    pub(crate) fn slot(&self) -> &TrusteeSlot {
        &self.slot
    }

    #[inline(always)]
    fn serve_batch(&self, server: &impl Server, arrival: Arrival) -> bool {
        // A fiber that a request of another inbox has started may wait inside a delegated closure.
        if !server.context().is_free() {
            return false;
        }
        let buffer = self.slot.buffer(arrival.buffer);
        let (slot, end) = (buffer.words(), arrival.end);
        let Progress { at, run, left, word, tail, bulk_bytes } = match self.paused.get() {
            None => {
                // All lines of a batch that has just arrived.
                buffer.prefetch_write(CACHE_LINE, end * WORD);
                let run = Received { head: RequestHead::from_word(0), words: 0 };
                Progress { at: 1, run, left: 0, word: 0, tail: end, bulk_bytes: 0 }
            }
            Some(progress) => {
                cold_path();
                self.paused.set(None);
                progress
            }
        };
        let mut batch = Batch {
            buffer,
            slot,
            end,
            at,
            run,
            left,
            word,
            panicked_after_run: false,
            tail,
            bulk: None,
            outsized: None,
            bulk_bytes,
        };
        let context = server.context().enter_from_free(Context::Serving);
        server.context().set_client(self.client());
        let finished = loop {
            match catch_unwind(AssertUnwindSafe(|| self.run(server, &mut batch))) {
                Ok(finished) => break finished,
                Err(panic) => self.answer_panic(server, &mut batch, panic),
            }
        };
        if server.context().is_serving() {
            drop(context);
        } else {
            // The context is now that of a fiber that waits, and ends with it.
            std::mem::forget(context);
        }
        if !finished {
            let moved = batch.at != at;
            let Batch { at, run, left, word, tail, bulk_bytes, .. } = batch;
            self.paused.set(Some(Progress { at, run, left, word, tail, bulk_bytes }));
            return moved;
        }
        add(&self.requests_in, requests_of(batch.slot));
        add(&self.words_in, batch.end);
        add(&self.words_out, batch.tail);
        let lane = || server.lane(self.client().host);
        self.link.give(self.slot.memory(), self.slot.answer(batch.tail), lane);
        true
    }

    /// Serves requests until the batch is done (true), one waits for its bulk payload, or a fiber that
    /// one has started waits inside a delegated closure (false).
    /// A panic of a closure leaves the batch at its request.
    #[inline(always)]
    fn run(&self, server: &impl Server, batch: &mut Batch<'_>) -> bool {
        let closures = server.closures();
        while let Some(request) = batch.request(layout_in(closures)) {
            let head = request.head;
            if head.is_bulk() && !self.take_bulk(batch) {
                return false;
            }
            server.context().set_request(head);
            let closure = closures.get(head.closure() as usize);
            let serves = |closure: &&Closure| closure.runs.is_some() || !head.is_run();
            let found = closure.filter(serves).and_then(|&Closure { run, tag, .. }| {
                server.properties().find(head.property(), tag).map(|property| (run, property))
            });
            match found {
                // SAFETY: the property is live and of the type the closure works on (equal tags are
                // equal types), and stays so for the whole run: what would drop it is deferred
                // until the context is free, or is a request of the runtime, which ends the run.
                // Nothing else refers to it, because this thread is the only one with access and
                // is not inside another closure: `serve` is only called from free context, and
                // delegated code cannot wait.
                Some((run, property)) => unsafe { run(property.as_ptr(), batch, request) },
                None => {
                    refuse(server, batch, head);
                    batch.pass(request);
                }
            }
            if batch.outsized.is_some() {
                self.send_outsized(server, batch);
            }
            // A payload that its request had no use for is not the next one's.
            if head.is_bulk() {
                batch.bulk = None;
            }
            if !server.context().is_serving() {
                return batch.is_done();
            }
        }
        true
    }

    /// Gives the next request the bulk payload that belongs to it, if it is there.
    #[cold]
    fn take_bulk(&self, batch: &mut Batch<'_>) -> bool {
        match self.bulk.borrow_mut().pop() {
            Some(payload) => {
                debug_assert!(payload.len() <= MESSAGE_BYTES);
                batch.bulk = Some(payload);
                true
            }
            None => false,
        }
    }

    #[cold]
    fn send_outsized(&self, server: &impl Server, batch: &mut Batch<'_>) {
        let Some(payload) = batch.outsized.take() else { return };
        add(&self.words_out, payload.len().div_ceil(WORD));
        let lane = server.lane(self.client().host);
        // A lane that is broken reports a peer event.
        let _ = lane.borrow_mut().bulk(self.client().thread, BULK_REPLY, payload);
    }

    #[cold]
    fn answer_panic(&self, server: &impl Server, batch: &mut Batch<'_>, panic: Panic) {
        // The payload of the request that panicked is not the next one's.
        batch.bulk = None;
        if mem::take(&mut batch.panicked_after_run) {
            return server.report_panic(panic);
        }
        let report = &PanicReport::taken(panic);
        // The head may be read again: only a client that breaks the rules writes it meanwhile, and
        // it is checked anew.
        let Some(request) = batch.request(layout_in(server.closures())) else { return };
        batch.panicked(report);
        batch.pass(request);
        self.send_outsized(server, batch);
    }
}

/// How the requests of runs lie, by the id of their closure. A closure without runs gets one-word requests,
/// each of which is refused.
#[cfg_attr(optimised, inline(always))]
fn layout_in(closures: &[Closure]) -> impl Fn(u32) -> RunLayout {
    let runs = |id| closures.get(id as usize).and_then(|closure| closure.runs);
    move |id| runs(id).unwrap_or(RunLayout::WORD)
}

/// How many requests there are in a batch that is not answered yet, as its client says: for statistics only.
#[cfg_attr(optimised, inline(always))]
fn requests_of(buffer: Words<'_>) -> usize {
    Signal::unpack(buffer.load(0, Ordering::Relaxed)).requests
}

/// Refuses this request, for which nothing can run.
#[cold]
#[inline(never)]
fn refuse(server: &impl Server, batch: &mut Batch<'_>, head: RequestHead) {
    let number = head.property();
    let Some(wanted) = registry().description(head.closure()) else {
        return batch.refuse("it names a closure that this program does not have");
    };
    if head.is_run() && wanted.runs.is_none() {
        return batch.refuse("it is one of a run, and its closure does not accept runs");
    }
    let wants = wanted.property_name;
    let reason = match server.properties().type_name(number) {
        Some(has) => format!("property {number} is a {has}, and the closure works on a {wants}"),
        None => format!("there is no property {number} (any more); the closure wanted a {wants}"),
    };
    batch.refuse(&reason);
}
