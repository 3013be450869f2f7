//! The client's end of one pair of threads: requests out, in batches. `replies.rs` takes the replies,
//! `backlog.rs` keeps what has no room in a batch.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use fiber::FiberId;
use primitive::limits::{BATCH_REQUESTS, BUFFERS};
use primitive::sync::{AtomicU64, Ordering};
use progress::LaneRef;
use transport_api::ThreadId;

use crate::client::completion::Completion;
use crate::client::completion_list::Completions;
use crate::client::outcome::Outcome;
use crate::client::request::{Arguments, Request, Waiting};
use crate::client::run::{NO_TOKEN, Run};
use crate::error::{DelegateError, Panic, catch};
use crate::wire::bulk::{BATCH_REPLY_BYTES, BULK_REQUEST, BulkQueue, BulkSent};
use crate::wire::link::Link;
use crate::wire::slot::{ClientSlot, buffer_of};
use crate::wire::traffic::{Traffic, add};
use crate::wire::words::{MOST_REQUESTS, RequestHead, WORD};

/// Polls for which a small batch waits for the answer to a large one, at most, where memory is not
/// mapped.
const COALESCING_POLLS: u32 = 4;

/// How many times as many requests a batch has that a small one waits for.
const COALESCING_FACTOR: usize = 4;

/// The client's end of one pair of threads.
pub(crate) struct Outbox {
    /// Names it among all that this process has ever had; not [`NO_TOKEN`].
    token: u64,
    pub(super) slot: ClientSlot,
    /// The completions of the batch being filled.
    pub(super) filling: Completions,
    /// The run of requests at its end.
    pub(super) run: Run,
    /// Those of the batches in flight, by buffer.
    pub(super) in_flight: [Completions; BUFFERS],
    link: Link,
    pub(super) backlog: RefCell<VecDeque<Waiting>>,
    /// Requests that were ever postponed.
    pub(super) postponed: Cell<u64>,
    /// Fibers that wait for room.
    pub(super) waiting_for_room: RefCell<Vec<FiberId>>,
    /// Whether anything waits for room: a request of the backlog, or a fiber.
    pub(super) needs_room: Cell<bool>,
    /// The word in the oldest answered buffer at which the next reply that stands apart begins;
    /// zero where none of them has been taken.
    pub(super) apart: Cell<usize>,
    /// Whether a reply has come that belongs to no request.
    pub(super) protocol_violated: Cell<bool>,
    /// Bulk payloads of unanswered requests.
    pub(super) bulk_out: BulkSent,
    /// Bulk payloads of replies that have arrived.
    pub(super) bulk: RefCell<BulkQueue>,
    /// Why requests fail here, once the trustee is gone or the rack has ended.
    closed: RefCell<Option<DelegateError>>,
    pub(super) is_closed: Cell<bool>,
    /// Whether the node has this outbox in its list of those with something under way.
    pub(crate) listed: Cell<bool>,
    /// Whether a batch was sent or answered since the node last asked whether this stays listed. If so it
    /// does, and the next request finds a batch open.
    pub(super) lingers: Cell<bool>,
    /// For how many polls the batch being filled has waited for the answer to another.
    coalescing: Cell<u32>,
    /// Requests and words in both directions, counted by the batch.
    requests_out: Cell<u64>,
    words_out: Cell<u64>,
    pub(super) words_in: Cell<u64>,
}

impl Outbox {
    pub(crate) fn new(slot: ClientSlot, link: Link) -> Self {
        let most = if link.is_mapped() { BATCH_REQUESTS } else { MOST_REQUESTS };
        let completions = || Completions::new(most);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let token = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(token < NO_TOKEN, "outbox tokens exhausted: at most {NO_TOKEN} pairs of threads");
        Self {
            token,
            slot,
            filling: completions(),
            run: Run::new(),
            in_flight: std::array::from_fn(|_| completions()),
            link,
            backlog: RefCell::default(),
            postponed: Cell::new(0),
            waiting_for_room: RefCell::default(),
            needs_room: Cell::new(false),
            apart: Cell::new(0),
            protocol_violated: Cell::new(false),
            bulk_out: Default::default(),
            bulk: RefCell::default(),
            closed: RefCell::default(),
            is_closed: Cell::new(false),
            listed: Cell::new(false),
            lingers: Cell::new(false),
            coalescing: Cell::new(0),
            requests_out: Cell::new(0),
            words_out: Cell::new(0),
            words_in: Cell::new(0),
        }
    }

    /// Its token, which is half a word.
    #[inline(always)]
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// The trustee.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn trustee(&self) -> ThreadId {
        self.link.peer()
    }

    /// The head of the request whose reply ends `waiter`, if that is in a batch.
    pub(crate) fn request_of(&self, waiter: *const ()) -> Option<RequestHead> {
        self.close_run();
        let lists = self.in_flight.iter().chain([&self.filling]);
        let at = lists.filter_map(|list| list.request_of(waiter)).next()?;
        Some(RequestHead::from_word(self.slot.memory().words().load(at, Ordering::Relaxed)))
    }

    /// Begins a batch, after handing over one that has no room for a request; false if no buffer is
    /// free for it.
    pub(crate) fn open<'a>(&self, lane: impl FnOnce() -> &'a LaneRef) -> bool {
        self.flush(lane);
        self.slot.open()
    }

    /// Puts a request into the batch that is open.
    ///
    /// # Errors
    /// The completion, if no batch is open or the request has no room in it.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn append<'a, C: Completion + 'static>(
        &self,
        request: &Request<'_>,
        completion: C,
        lane: &dyn Fn() -> &'a LaneRef,
    ) -> Result<(), C> {
        self.close_run();
        match request.arguments {
            Arguments::Large(..) => self.append_bulk(*request, completion, lane()),
            Arguments::Bytes(parts) if parts.are_bulk() => {
                self.append_bulk(*request, completion, lane())
            }
            _ => self.append_inline(request, completion).map(drop),
        }
    }

    /// As [`append`](Self::append), of a request whose arguments fit into a batch, while no run is open.
    /// Returns its head.
    #[cfg_attr(optimised, inline(always))]
    pub(super) fn append_inline<C: Completion + 'static>(
        &self,
        request: &Request<'_>,
        completion: C,
    ) -> Result<RequestHead, C> {
        let Some(room) = self.filling.room::<C>() else { return Err(completion) };
        let Some((at, head)) = self.place_inline(request) else { return Err(completion) };
        self.filling.push(room, at, request.words(), completion);
        Ok(head)
    }

    /// Writes a request into the batch that is open. Returns its word there, and its head; `None` if there
    /// is no room.
    #[cfg_attr(optimised, inline(always))]
    fn place_inline(&self, request: &Request<'_>) -> Option<(usize, RequestHead)> {
        let (len, arguments) = (request.words(), request.arguments);
        let first = match arguments {
            Arguments::Plain(plain) => plain.word(),
            Arguments::Bytes(parts) => Some(parts.word),
            Arguments::Encoded(_) | Arguments::Large(..) => None,
        };
        let head = RequestHead::new(request.property, request.closure, len, false);
        let at = self.slot.append(len, head, first)?;
        let memory = self.slot.memory();
        match arguments {
            Arguments::Bytes(parts) => parts.write_behind_word(memory, at + 2),
            Arguments::Encoded(bytes) => {
                self.run.forget_key();
                memory.write_from((at + 1) * WORD, bytes);
            }
            Arguments::Plain(_) | Arguments::Large(..) => {}
        }
        Some((at, head))
    }

    #[cold]
    #[inline(never)]
    fn append_bulk<C: Completion + 'static>(
        &self,
        request: Request<'_>,
        completion: C,
        lane: &LaneRef,
    ) -> Result<(), C> {
        let Some(room) = self.filling.room::<C>() else { return Err(completion) };
        let Some((at, len)) = self.place_bulk(request, lane) else { return Err(completion) };
        self.filling.push(room, at, len, completion);
        Ok(())
    }

    /// As [`place_inline`](Self::place_inline), of a request whose arguments go by the bulk path. Returns
    /// its word, and how many words follow its head.
    #[cold]
    #[inline(never)]
    fn place_bulk(&self, request: Request<'_>, lane: &LaneRef) -> Option<(usize, usize)> {
        // The length of the payload stands behind the head.
        let len = request.reply_words.max(1);
        let head = RequestHead::new(request.property, request.closure, len, true);
        if !self.bulk_out.has_room(request.arguments.words() * WORD) {
            return None;
        }
        let at = self.slot.append(len, head, Some(request.arguments.len() as u64))?;
        self.run.forget_key();
        let bytes = request.arguments.into_vec();
        self.bulk_out.add(buffer_of(self.slot.filling()), bytes.len());
        // A lane that refuses has lost its peer and will report that: everything here fails then,
        // this request with it.
        add(&self.words_out, bytes.len().div_ceil(WORD));
        let _ = lane.borrow_mut().bulk(self.trustee().thread, BULK_REQUEST, bytes);
        Some((at, len))
    }

    /// Whether anything is under way to this trustee.
    pub(crate) fn is_busy(&self) -> bool {
        !self.is_closed.get() && (self.slot.in_flight() > 0 || self.is_waiting())
    }

    /// Whether more than one batch is under way.
    #[inline(always)]
    pub(crate) fn has_several_in_flight(&self) -> bool {
        self.slot.in_flight() > 1
    }

    /// Whether the node goes on looking at this outbox, asked in one poll of many: while anything is under
    /// way, and until the next time it is asked, so that it does not look at all the trustees of a while
    /// ago. When it ends, no batch is open: what opens the next one lists the outbox again.
    pub(crate) fn stays_listed(&self) -> bool {
        // A trustee that is gone gets no other batch: one that was not handed over stays as it is, and
        // blocked.
        if self.is_closed.get() {
            return false;
        }
        let stays = self.lingers.replace(false) || self.is_busy();
        if !stays {
            self.slot.close();
        }
        stays
    }

    /// Whether something waits to be handed over, and there is a buffer free behind it.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn may_flush(&self) -> bool {
        self.slot.is_waiting() && self.slot.in_flight() < BUFFERS
    }

    /// Whether the batch that waits should wait for another poll; to be called once in a poll. Where memory
    /// is not mapped, a message takes as long as some hundred requests. A small batch beside a large one doubles the messages, and goes
    /// on to do so if what follows each answer is sent at once. So it waits for a few polls, each time,
    /// until the answer to the large one comes meanwhile: from then on both are one batch.
    #[inline(always)]
    pub(crate) fn coalesces(&self) -> bool {
        !self.link.is_mapped() && self.slot.in_flight() > 0 && self.waits_once_more()
    }

    #[inline(never)]
    fn waits_once_more(&self) -> bool {
        let under_way = self.in_flight.iter().map(Completions::count).sum::<usize>();
        let polls = self.coalescing.get() + 1;
        self.coalescing.set(polls);
        polls <= COALESCING_POLLS && COALESCING_FACTOR * self.filled() < under_way
    }

    /// Whether a poll would find something to do here.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_closed.get()
            && (self.slot.answered().is_some()
                || self.slot.in_flight() < BUFFERS
                    && (self.slot.is_waiting() || self.has_room_for_postponed()))
    }

    fn is_waiting(&self) -> bool {
        self.slot.is_waiting() || !self.backlog.borrow().is_empty()
    }

    /// Hands over what waits, if there is a buffer free behind it; true if it did.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn flush<'a>(&self, lane: impl FnOnce() -> &'a LaneRef) -> bool {
        if self.slot.in_flight() == BUFFERS || self.is_closed.get() {
            return false;
        }
        self.cut_run();
        let Some(handover) = self.slot.seal(self.filling.count()) else { return false };
        self.coalescing.set(0);
        self.lingers.set(true);
        add(&self.requests_out, handover.requests);
        add(&self.words_out, handover.end);
        self.filling.move_to(&self.in_flight[handover.buffer]);
        // If the lane is broken, the completions fail with the peer event.
        self.link.give(self.slot.memory(), handover, lane);
        // What is sent next finds its batch open, if a buffer is free.
        self.slot.open();
        true
    }

    /// Whether the trustee has sent a reply without a request, which violates the protocol.
    pub(crate) fn protocol_violated(&self) -> bool {
        self.protocol_violated.get()
    }

    /// Batches that have been sent, and requests that have not ended.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        if self.is_closed.get() {
            return (0, 0);
        }
        let waiting = usize::from(self.slot.is_waiting()) + self.backlog.borrow().len();
        (u64::from(self.slot.filling()), (self.slot.in_flight() + waiting) as u64)
    }

    /// Adds what this outbox has seen to `sum`.
    pub(crate) fn count(&self, sum: &mut Traffic) {
        let lists = self.in_flight.iter().chain([&self.filling]);
        let listed = lists.map(Completions::len).sum::<usize>() + self.requests_of_run();
        sum.requests_out += self.requests_out.get();
        sum.bytes_out += self.words_out.get() * WORD as u64;
        sum.bytes_in += self.words_in.get() * WORD as u64;
        sum.unanswered += (listed + self.backlog.borrow().len()) as u64;
    }

    /// Requests that have not ended, counted by the batch: all of a batch end together.
    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        if self.is_closed.get() {
            return 0;
        }
        let batches = self.in_flight.iter().map(Completions::count).sum::<usize>();
        batches + self.filled() + self.backlog.borrow().len()
    }

    /// Requests that were ever made here: those handed over, and those that wait for it.
    pub(crate) fn made(&self) -> u64 {
        let filled = self.filling.len() + self.requests_of_run();
        self.requests_out.get() + (filled + self.backlog.borrow().len()) as u64
    }

    /// A bulk payload of a reply has arrived; false if no honest trustee sends it: there are more
    /// than there can be replies, or they have more bytes.
    pub(crate) fn bulk_arrived(&self, payload: Vec<u8>) -> bool {
        add(&self.words_in, payload.len().div_ceil(WORD));
        self.bulk.borrow_mut().push(payload, BUFFERS * BATCH_REPLY_BYTES)
    }

    /// Why requests to this trustee fail, if they do.
    pub(crate) fn closed(&self) -> Option<DelegateError> {
        self.closed.borrow().clone()
    }

    /// Ends everything under way with `error`, and everything that is still to come. `caught` gets
    /// the panics of completions.
    pub(crate) fn close(
        &self,
        error: &DelegateError,
        caught: &mut dyn FnMut(Panic),
        unpark: impl FnMut(FiberId),
    ) {
        if self.is_closed.replace(true) {
            return;
        }
        *self.closed.borrow_mut() = Some(error.clone());
        self.close_run();
        self.slot.block(true);
        for completions in self.in_flight.iter().chain([&self.filling]) {
            while let Some(next) = completions.next() {
                catch(caught, || completions.run(next, Outcome::Failed(error)));
            }
        }
        let backlog = std::mem::take(&mut *self.backlog.borrow_mut());
        for waiting in backlog {
            catch(caught, || waiting.fail(error));
        }
        self.waiting_for_room.borrow_mut().drain(..).for_each(unpark);
    }
}
