//! [`SendQueue`]: the work requests of one queue pair, from the call that starts them to their
//! completion, without the device.
//!
//! ```text
//!   write, signal, read .. --> staged, in the chain --> posted (one doorbell) --> completed
//!              |                   ^
//!              +--> deferred ------+  while the send queue or the staging memory is full
//! ```
//!
//! Rules:
//! 1. The bytes to send are copied to the lane's registered staging memory, in order, and READs arrive
//!    there; so the caller's memory need not be registered, and is free at once.
//! 2. Most requests are unsignalled. A request is signalled if it has a result, if a quarter of the
//!    queue or of the staging memory would otherwise be unsignalled, and on demand
//!    ([`settle`](SendQueue::settle)). A completion completes all requests before it. So while there
//!    is no room a completion is to come, and the send queue cannot overflow.
//! 3. No request overtakes a deferred one.
//! 4. A device may repeat a READ whose answer was lost, after requests behind it have taken effect.
//!    So a request that changes memory behind a READ is fenced: the device waits. Not behind the READ
//!    of a payload, whose sender leaves it alone until it is acknowledged: Soft-RoCE seems to lose
//!    the end of a fence now and then, and all behind it waits until more is posted.
//! 5. No write without bytes follows a READ in flight. If the peer's device is Soft-RoCE (Linux 6.12)
//!    and repeats the answer of that READ, it takes the length of the last write for the READ's, finds
//!    no memory to read, and ends the queue pair for a violation of its key. So immediate data without
//!    bytes is a message, and an empty write is not posted.

use std::collections::VecDeque;

use primitive::SharedBytes;
use primitive::sync::Ordering;
use rdma_protocol::immediate::Refusal;
use transport_api::{Event, OpError};

use crate::config::{MIN_DEPTH, PART};
use crate::qp::ring::{ALIGN, Ring};
use crate::qp::send_queue::request::{Deferred, InFlight};
use crate::verbs::{Local, Verb, Work};

mod request;
#[cfg(test)]
mod tests;

pub(crate) use request::{Destination, Outcome, Refused, Source, Target};

/// Staged requests beyond which the chain is posted without waiting for a flush.
const MAX_CHAIN: usize = 32;

/// The work requests of one queue pair.
pub(crate) struct SendQueue {
    depth: usize,
    ring: Ring,
    chain: Vec<Work>,
    in_flight: VecDeque<InFlight>,
    deferred: VecDeque<Deferred>,
    next: u64,
    /// Requests and bytes of staging memory behind the last signalled one.
    unsignalled: (usize, usize),
    /// READs in flight that fence what changes memory behind them.
    reads: usize,
    /// Why an operation since the last fence was refused, if one was.
    refused: Option<OpError>,
    /// Requests with a result that were started, and those that have ended.
    fetches: (u64, u64),
}

impl SendQueue {
    /// A queue for a device that holds `depth` requests, with this number of bytes of staging memory.
    pub(crate) fn new(depth: usize, staging: usize) -> Self {
        Self {
            depth: depth.max(MIN_DEPTH),
            ring: Ring::new(staging),
            chain: Vec::new(),
            in_flight: VecDeque::new(),
            deferred: VecDeque::new(),
            next: 0,
            unsignalled: (0, 0),
            reads: 0,
            refused: None,
            fetches: (0, 0),
        }
    }

    /// Bytes of one request, at most, in whole words; the caller divides longer ones where a word of the
    /// region ends.
    pub(crate) fn max_request_bytes(&self) -> usize {
        self.ring.size() / PART / 8 * 8
    }

    /// Starts a request that sends `from`.
    pub(crate) fn send(
        &mut self,
        verb: Verb,
        to: Option<Target<'_>>,
        from: Source<'_>,
        staging: &SharedBytes,
    ) {
        let len = from.len();
        let at = if self.deferred.is_empty() { self.stage(verb, to, len, None) } else { None };
        if let Some(at) = at {
            return from.copy_to(staging, at);
        }
        let to = to.map(|(remote, at)| (remote.clone(), at));
        self.deferred.push_back(Deferred {
            verb,
            to,
            bytes: from.to_vec(),
            len,
            destination: None,
            refusal: None,
        });
    }

    /// Starts a request whose result has `len` bytes.
    pub(crate) fn fetch(
        &mut self,
        verb: Verb,
        to: Target<'_>,
        len: usize,
        destination: Destination,
    ) {
        self.fetches.0 += 1;
        if self.deferred.is_empty() && self.has_room(len) {
            self.stage(verb, Some(to), len, Some(destination));
            return;
        }
        let to = Some((to.0.clone(), to.1));
        self.deferred.push_back(Deferred {
            verb,
            to,
            bytes: Vec::new(),
            len,
            destination: Some(destination),
            refusal: None,
        });
    }

    /// Tells whether the last request is refused, if it still can be, because it is deferred. If it has
    /// parts, its last one is refused if any is: a revoked region stays so, and they start in order.
    pub(crate) fn refusal(&mut self) -> Option<Refusal> {
        self.deferred.back_mut().map(|last| last.refusal.get_or_insert_default().clone())
    }

    /// Starts a notification, whose record is `bytes`, unless its data is refused before.
    pub(crate) fn notify(&mut self, bytes: &[u8], data: Option<Refusal>, staging: &SharedBytes) {
        self.send(Verb::Send, None, Source::Bytes(bytes), staging);
        // Otherwise it has started, and before it the data.
        if let Some(record) = self.deferred.back_mut() {
            record.refusal = data;
        }
    }

    /// Sends `word` as immediate data behind everything that was started.
    pub(crate) fn send_immediate(&mut self, word: u32, staging: &SharedBytes) {
        match self.chain.last_mut() {
            // The last write carries it.
            Some(Work { verb: verb @ Verb::Write(None), local, .. })
                if self.deferred.is_empty() && local.len > 0 =>
            {
                *verb = Verb::Write(Some(word));
            }
            _ => self.send(Verb::Immediate(word), None, Source::Bytes(&[]), staging),
        }
    }

    fn has_room(&self, len: usize) -> bool {
        self.in_flight.len() < self.depth && self.ring.fits(len)
    }

    /// Appends a request to the chain: the byte of the staging memory at which its bytes are, or `None`
    /// if there is no room.
    fn stage(
        &mut self,
        verb: Verb,
        to: Option<Target<'_>>,
        len: usize,
        mut destination: Option<Destination>,
    ) -> Option<usize> {
        if self.in_flight.len() >= self.depth {
            return None;
        }
        let at = self.ring.allocate(len)?;
        if let Some(Destination::Fence { refused, .. }) = &mut destination {
            *refused = self.refused.take();
        }
        // As many bytes as the ring allocates: else short requests would fill it, none of them signalled.
        let (count, bytes) =
            (self.unsignalled.0 + 1, self.unsignalled.1 + len.next_multiple_of(ALIGN));
        let is_signalled =
            destination.is_some() || count >= self.depth / PART || bytes >= self.ring.size() / PART;
        self.unsignalled = if is_signalled { (0, 0) } else { (count, bytes) };
        let is_read = verb == Verb::Read;
        let id = self.next;
        self.next += 1;
        self.chain.push(Work {
            id,
            verb,
            local: Local { at, len },
            remote: to.map_or((0, 0), |(remote, at)| (remote.address + at as u64, remote.key)),
            is_signalled,
            is_fenced: self.reads > 0 && !is_read,
        });
        self.reads += usize::from(destination.as_ref().is_some_and(Destination::delays_writes));
        self.in_flight.push_back(InFlight { id, mark: self.ring.mark(), at, len, destination });
        Some(at)
    }

    /// The requests to post; call [`posted`](Self::posted) once the device has taken them.
    pub(crate) fn chain(&self) -> &[Work] {
        &self.chain
    }

    /// The chain has been posted.
    pub(crate) fn posted(&mut self) {
        self.chain.clear();
    }

    /// Whether the chain should be posted without waiting for the flush.
    pub(crate) fn is_crowded(&self) -> bool {
        self.chain.len() >= MAX_CHAIN || !self.deferred.is_empty() && !self.chain.is_empty()
    }

    /// Request `id` has completed, and with it all before it.
    pub(crate) fn completed(
        &mut self,
        id: u64,
        staging: &SharedBytes,
        sink: &mut dyn FnMut(Outcome),
    ) {
        while self.in_flight.front().is_some_and(|flight| flight.id <= id) {
            let Some(flight) = self.in_flight.pop_front() else { return };
            let InFlight { mark, at, len, destination, .. } = flight;
            self.reads -= usize::from(destination.as_ref().is_some_and(Destination::delays_writes));
            self.fetches.1 += u64::from(destination.is_some());
            match destination {
                None => {}
                Some(Destination::Word { token }) => {
                    sink(Outcome::end(token, Ok(staging.load(at, Ordering::Relaxed))));
                }
                Some(Destination::Piece) => sink(Outcome::Piece { at }),
                Some(Destination::Fence { token, refused }) => {
                    sink(Outcome::end(token, refused.map_or(Ok(0), Err)));
                }
                Some(Destination::Part { token, into, at: to, end }) => {
                    into.copy_part(to, staging, at..at + len);
                    if let Some(end) = end {
                        sink(Outcome::end(token, end.map(|total| total as u64)));
                    }
                }
            }
            self.ring.free(mark);
        }
    }

    /// Stages deferred requests while there is room; those whose region was revoked meanwhile fail, and
    /// the notifications of their data are dropped. Returns whether there is something to post, since their
    /// flush is past.
    pub(crate) fn start_deferred(
        &mut self,
        staging: &SharedBytes,
        sink: &mut dyn FnMut(Refused),
    ) -> bool {
        let mut any = false;
        while let Some(deferred) = self.deferred.pop_front() {
            let Deferred { verb, to, bytes, len, destination, refusal } = deferred;
            if let Some((remote, _)) = to.as_ref().filter(|(remote, _)| !remote.is_live()) {
                let error = remote.refusal();
                self.refused.get_or_insert_with(|| error.clone());
                self.fetches.1 += u64::from(destination.is_some());
                if let Some(refusal) = refusal {
                    refusal.set();
                }
                let mut fail = |token, error| {
                    sink(Refused::Operation(Event::Failed { token, error }));
                };
                match destination.as_ref().map(Destination::token) {
                    Some(None) => {}
                    Some(Some(token)) => match self.read_in_flight() {
                        // The caller may use its memory again once it knows of the failure, so earlier
                        // parts must have arrived there.
                        Some(end) => *end = Some(Err(error)),
                        None => fail(Some(token), error),
                    },
                    None => fail(None, error),
                }
                continue;
            }
            if refusal.as_ref().is_some_and(Refusal::is_set) {
                sink(Refused::Notification);
                continue;
            }
            if !self.has_room(len) {
                self.deferred.push_front(Deferred { verb, to, bytes, len, destination, refusal });
                return any;
            }
            any = true;
            let target = to.as_ref().map(|(remote, at)| (remote, *at));
            if let Some(at) = self.stage(verb, target, len, destination) {
                staging.write_from(at, &bytes);
            }
        }
        any
    }

    /// The end of the read whose first parts are in flight and whose other parts are the next deferred
    /// requests, if there is one.
    fn read_in_flight(&mut self) -> Option<&mut Option<Result<usize, OpError>>> {
        match self.in_flight.back_mut()?.destination.as_mut()? {
            Destination::Part { end, .. } if end.is_none() => Some(end),
            _ => None,
        }
    }

    /// Makes the last request signalled, or an earlier one if that is not possible: call it again while
    /// requests are in flight.
    pub(crate) fn settle(&mut self) {
        if self.unsignalled.0 == 0 {
            return;
        }
        if self.chain.is_empty() {
            // The completion of a READ is to come, behind which there must be no empty write.
            if self.in_flight.iter().any(|flight| flight.destination.is_some()) {
                return;
            }
            // An empty write touches nothing. If there is no room for it, a completion is to come.
            self.stage(Verb::Write(None), None, 0, None);
        }
        if let Some(last) = self.chain.last_mut() {
            last.is_signalled = true;
            self.unsignalled = (0, 0);
        }
    }

    /// Whether no request is in flight or deferred.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_flight.is_empty() && self.deferred.is_empty()
    }

    /// The number that the next request will have.
    pub(crate) fn next_id(&self) -> u64 {
        self.next
    }

    /// Requests with a result that were started, and those of them that have ended, which do so in
    /// order.
    pub(crate) fn fetches(&self) -> (u64, u64) {
        self.fetches
    }

    /// Whether all requests before number `id` have completed.
    pub(crate) fn has_completed(&self, id: u64) -> bool {
        self.in_flight.front().is_none_or(|flight| flight.id >= id)
    }

    /// Drops everything: the queue pair has failed. Returns the tokens of the operations that were dropped.
    pub(crate) fn clear(&mut self) -> Vec<u64> {
        let in_flight = self.in_flight.iter().map(|flight| &flight.destination);
        let all = in_flight.chain(self.deferred.iter().map(|deferred| &deferred.destination));
        let tokens = all.flatten().filter_map(Destination::token).collect();
        self.chain.clear();
        self.in_flight.clear();
        self.deferred.clear();
        self.unsignalled = (0, 0);
        self.reads = 0;
        self.fetches.1 = self.fetches.0;
        tokens
    }
}
