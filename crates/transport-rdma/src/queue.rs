//! [`Queue`]: the work requests of one lane, from the call that starts them to their completion,
//! without the device.
//!
//! ```text
//!   write, signal, read .. --> staged, in the chain --> posted (one doorbell) --> completed
//!              |                   ^
//!              +--> held back -----+  while the send queue or the staging memory is full
//! ```
//!
//! Rules:
//! 1. What is to be sent is copied into the lane's registered staging memory, in order, and what is
//!    read arrives there; so the caller's memory need not be registered, and is free at once.
//! 2. Most requests are not signalled. One is when it has a result; when a quarter of the queue or
//!    of the staging memory would otherwise be unsignalled; and when somebody must know
//!    ([`settle`](Queue::settle)). A completion completes all requests before it. So there is
//!    always a completion to come when there is no room, and the send queue cannot overflow.
//! 3. Nothing overtakes what is held back.
//! 4. A device may repeat a READ whose answer was lost, after requests behind it have taken effect.
//!    So whatever changes memory behind a READ is fenced: the device waits. Not behind that of a
//!    payload, which its sender leaves alone until it is told that it has come: Soft-RoCE seems to
//!    lose the end of a fence now and then, and all behind it waits until more is posted.

use crate::{
    imports::Remote,
    ring::Ring,
    verbs::{Local, Verb, Work},
};
use primitive::{SharedBytes, sync::Ordering};
use std::{collections::VecDeque, sync::Arc};
use transport_api::{Event, OpError};

#[cfg(test)]
mod tests;

/// Requests that are staged before they are posted without waiting for the flush.
const EARLY: usize = 32;

/// Of the queue and of the staging memory, the part that may go unsignalled; also the part of the
/// staging memory that one request may take.
pub(crate) const PART: usize = 4;

/// Requests that a queue needs at least.
pub(crate) const LEAST_DEPTH: usize = 2 * PART;

/// Who waits for the result of a request.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The old value of a word.
    Word { token: u64 },
    /// A part of a read, which goes to byte `at` of `into`; `total` is on the last.
    Part { token: u64, into: SharedBytes, at: usize, total: Option<usize> },
    /// A piece of a payload.
    Piece,
    /// Nothing but its completion, and with it what was refused since the last fence.
    Fence { token: u64, refused: Option<OpError> },
}

/// What a completed request has brought.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// What the caller is told.
    Event(Event),
    /// A piece of a payload, at this byte of the staging memory, for now.
    Piece { at: usize },
}

impl Asked {
    /// Whom to tell that it failed, if anybody is to be told now.
    fn token(&self) -> Option<u64> {
        match self {
            Asked::Word { token }
            | Asked::Part { token, total: Some(_), .. }
            | Asked::Fence { token, .. } => Some(*token),
            Asked::Part { .. } | Asked::Piece => None,
        }
    }

    /// Whether it asks for a READ that changes of memory behind it wait for.
    fn holds_changes_back(&self) -> bool {
        matches!(self, Asked::Part { .. })
    }
}

/// Where a request goes: a region, and the byte in it.
pub(crate) type Target<'a> = (&'a Arc<Remote>, usize);

/// What a request sends.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Bytes(&'a [u8]),
    /// Of a memory, from this byte on, so many bytes.
    Part(&'a SharedBytes, usize, usize),
}

impl Source<'_> {
    fn len(self) -> usize {
        match self {
            Source::Bytes(bytes) => bytes.len(),
            Source::Part(_, _, len) => len,
        }
    }

    fn copy_to(self, memory: &SharedBytes, to: usize) {
        match self {
            Source::Bytes(bytes) => memory.write_from(to, bytes),
            Source::Part(from, at, len) => memory.copy_part(to, from, at..at + len),
        }
    }

    fn to_vec(self) -> Vec<u8> {
        match self {
            Source::Bytes(bytes) => bytes.to_vec(),
            Source::Part(from, at, len) => {
                let mut bytes = vec![0; len];
                from.read_into(at, &mut bytes);
                bytes
            }
        }
    }
}

/// A request that waits for room.
struct Held {
    verb: Verb,
    to: Option<(Arc<Remote>, usize)>,
    bytes: Vec<u8>,
    /// Bytes of staging memory that it takes.
    len: usize,
    asked: Option<Asked>,
}

/// What is under way.
struct Flight {
    id: u64,
    /// What it gives back of the staging memory, and all before it.
    mark: u64,
    at: usize,
    len: usize,
    asked: Option<Asked>,
}

/// The work requests of one lane.
pub(crate) struct Queue {
    depth: usize,
    ring: Ring,
    chain: Vec<Work>,
    flights: VecDeque<Flight>,
    held: VecDeque<Held>,
    next: u64,
    /// Requests and bytes behind the last that was signalled.
    unsignalled: (usize, usize),
    /// READs under way that hold changes back.
    reads: usize,
    /// Why the first request was refused since the last fence that was staged.
    refused: Option<OpError>,
}

impl Queue {
    /// A queue for a device that holds `depth` requests, with so many bytes of staging memory.
    pub(crate) fn new(depth: usize, staging: usize) -> Self {
        Self {
            depth: depth.max(LEAST_DEPTH),
            ring: Ring::new(staging),
            chain: Vec::new(),
            flights: VecDeque::new(),
            held: VecDeque::new(),
            next: 0,
            unsignalled: (0, 0),
            reads: 0,
            refused: None,
        }
    }

    /// Bytes of one request, at most, in whole words; longer ones are the caller's to divide, where
    /// a word of the region ends.
    pub(crate) fn most(&self) -> usize {
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
        let at = if self.held.is_empty() { self.stage(verb, to, len, None) } else { None };
        if let Some(at) = at {
            return from.copy_to(staging, at);
        }
        let to = to.map(|(remote, at)| (remote.clone(), at));
        self.held.push_back(Held { verb, to, bytes: from.to_vec(), len, asked: None });
    }

    /// Starts a request whose result has `len` bytes.
    pub(crate) fn ask(&mut self, verb: Verb, to: Target<'_>, len: usize, asked: Asked) {
        if self.held.is_empty() && self.has_room(len) {
            self.stage(verb, Some(to), len, Some(asked));
            return;
        }
        let to = Some((to.0.clone(), to.1));
        self.held.push_back(Held { verb, to, bytes: Vec::new(), len, asked: Some(asked) });
    }

    /// Reports `token` when everything that was started has completed.
    pub(crate) fn fence(&mut self, token: u64) {
        let asked = Asked::Fence { token, refused: None };
        if self.held.is_empty() && self.has_room(0) {
            // An empty write touches nothing; its completion completes all requests before it.
            self.stage(Verb::Write(None), None, 0, Some(asked));
            return;
        }
        let (verb, bytes) = (Verb::Write(None), Vec::new());
        self.held.push_back(Held { verb, to: None, bytes, len: 0, asked: Some(asked) });
    }

    /// Has the peer be told `word` behind everything that was started.
    pub(crate) fn notice(&mut self, word: u32, staging: &SharedBytes) {
        match self.chain.last_mut() {
            // The last write takes it along.
            Some(Work { verb: verb @ Verb::Write(None), .. }) if self.held.is_empty() => {
                *verb = Verb::Write(Some(word));
            }
            _ => self.send(Verb::Write(Some(word)), None, Source::Bytes(&[]), staging),
        }
    }

    fn has_room(&self, len: usize) -> bool {
        self.flights.len() < self.depth && self.ring.fits(len)
    }

    /// Puts a request into the chain; where its bytes are in the staging memory. `None` if there is
    /// no room.
    fn stage(
        &mut self,
        verb: Verb,
        to: Option<Target<'_>>,
        len: usize,
        mut asked: Option<Asked>,
    ) -> Option<usize> {
        if self.flights.len() >= self.depth {
            return None;
        }
        let at = self.ring.take(len)?;
        if let Some(Asked::Fence { refused, .. }) = &mut asked {
            *refused = self.refused.take();
        }
        let (count, bytes) = (self.unsignalled.0 + 1, self.unsignalled.1 + len);
        let is_signalled =
            asked.is_some() || count >= self.depth / PART || bytes >= self.ring.size() / PART;
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
        self.reads += usize::from(asked.as_ref().is_some_and(Asked::holds_changes_back));
        self.flights.push_back(Flight { id, mark: self.ring.mark(), at, len, asked });
        Some(at)
    }

    /// What is to be posted; it is under way once it has been taken.
    pub(crate) fn chain(&self) -> &[Work] {
        &self.chain
    }

    /// The chain has been posted.
    pub(crate) fn posted(&mut self) {
        self.chain.clear();
    }

    /// Whether the chain should be posted without waiting for the flush.
    pub(crate) fn is_crowded(&self) -> bool {
        self.chain.len() >= EARLY || !self.held.is_empty() && !self.chain.is_empty()
    }

    /// Request `id` has completed, and with it all before it.
    pub(crate) fn completed(
        &mut self,
        id: u64,
        staging: &SharedBytes,
        sink: &mut dyn FnMut(Outcome),
    ) {
        while self.flights.front().is_some_and(|flight| flight.id <= id) {
            let Some(flight) = self.flights.pop_front() else { return };
            let Flight { mark, at, len, asked, .. } = flight;
            self.reads -= usize::from(asked.as_ref().is_some_and(Asked::holds_changes_back));
            match asked {
                None => {}
                Some(Asked::Word { token }) => {
                    let value = staging.load(at, Ordering::Relaxed);
                    sink(Outcome::Event(Event::Completed { token, value }));
                }
                Some(Asked::Piece) => sink(Outcome::Piece { at }),
                Some(Asked::Fence { token, refused }) => sink(Outcome::Event(match refused {
                    None => Event::Completed { token, value: 0 },
                    Some(error) => Event::Failed { token: Some(token), error },
                })),
                Some(Asked::Part { token, into, at: to, total }) => {
                    into.copy_part(to, staging, at..at + len);
                    if let Some(total) = total {
                        let value = total as u64;
                        sink(Outcome::Event(Event::Completed { token, value }));
                    }
                }
            }
            self.ring.give_back(mark);
        }
    }

    /// Stages what was held back, as far as there is room now; what has lost its region meanwhile
    /// fails. True if there is something to post for it: its flush is past.
    pub(crate) fn release(&mut self, staging: &SharedBytes, sink: &mut dyn FnMut(Event)) -> bool {
        let mut any = false;
        while let Some(held) = self.held.pop_front() {
            let Held { verb, to, bytes, len, asked } = held;
            if let Some((remote, _)) = to.as_ref().filter(|(remote, _)| !remote.is_live()) {
                let error = OpError::Revoked(remote.region);
                self.refused.get_or_insert_with(|| error.clone());
                let token = asked.as_ref().map(Asked::token);
                if token != Some(None) {
                    sink(Event::Failed { token: token.flatten(), error });
                }
                continue;
            }
            if !self.has_room(len) {
                self.held.push_front(Held { verb, to, bytes, len, asked });
                return any;
            }
            any = true;
            let target = to.as_ref().map(|(remote, at)| (remote, *at));
            if let Some(at) = self.stage(verb, target, len, asked) {
                staging.write_from(at, &bytes);
            }
        }
        any
    }

    /// Sees to it that there will be a completion of the last request, or one that leads there: call
    /// it again as long as something is under way.
    pub(crate) fn settle(&mut self) {
        if self.unsignalled.0 == 0 {
            return;
        }
        if self.chain.is_empty() {
            // An empty write touches nothing. If there is no room for it, completions are to come.
            self.stage(Verb::Write(None), None, 0, None);
        }
        if let Some(last) = self.chain.last_mut() {
            last.is_signalled = true;
            self.unsignalled = (0, 0);
        }
    }

    /// Whether nothing is under way or held back.
    pub(crate) fn is_quiet(&self) -> bool {
        self.flights.is_empty() && self.held.is_empty()
    }

    /// The number that the next request will have: all before it are started.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether all requests before number `id` have completed.
    pub(crate) fn is_past(&self, id: u64) -> bool {
        self.flights.front().is_none_or(|flight| flight.id >= id)
    }

    /// Forgets everything: the lane has failed.
    pub(crate) fn clear(&mut self) {
        self.chain.clear();
        self.flights.clear();
        self.held.clear();
        self.unsignalled = (0, 0);
        self.reads = 0;
    }
}
