//! [`Machine`]: one data connection without its socket. Bytes in, operations; operations, bytes
//! out.
//!
//! A connection belongs to the threads of one number on both hosts and carries both directions:
//! what this side's thread asks of the peer's memory, and the answers to what the other asks of
//! ours. Operations are carried out in the order in which they arrive, and what waits for an answer
//! is answered in that order, so answers need no number.
//!
//! ```text
//!   operations --> requests -+                      bytes --> frames --> carried out on memory
//!   (held back while too     |                                 |  \--> answers --+
//!    much is to be answered) +--> front --> bytes              |                 |
//!   answers, grants ---------+                                 +--> events       |
//!   streams (bulk) ----------+    <--------------------------------------------- +
//! ```
//!
//! Nothing here knows a socket, a clock or a lock. Everything that the peer can make grow is
//! bounded: by [`ANSWER_WINDOW`](asking::ANSWER_WINDOW), by the windows of the streams, and by one frame.

mod arrive;
mod asking;
pub(crate) mod bulk;
#[cfg(any(test, fuzzing))]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use primitive::SharedBytes;
use transport_api::{Event, Namespace, RegionKey, ThreadId};

use crate::export::Exported;
use crate::machine::arrive::{RecentRegions, RefusedWrites};
use crate::machine::asking::{Asked, Asking};
use crate::machine::bulk::{Inbound, Outbound};
use crate::wire::frame::{BODY_BYTES, Frames, Header, Kind};

/// Bytes of bulk that are put in front of the socket at a time.
const FRONT_BYTES: usize = 256 << 10;

/// What a machine needs of the process that it is in.
pub(crate) trait Port {
    /// The region that is exported under `key`, of whatever generation.
    fn region(&mut self, key: RegionKey) -> Option<Arc<Exported>>;
    /// Whether this is or was an export of the memory that is exported, or was exported last, under
    /// its key.
    fn was_exported(&mut self, name: Name) -> bool;
    /// Something for `thread` of this host.
    fn event(&mut self, thread: u32, event: Event);
    /// `thread` of this host must not sleep.
    fn wake(&mut self, thread: u32);
    /// The peer has said all that it will say here.
    fn goodbye(&mut self);
}

/// Names one export: its key, and which under that key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) key: RegionKey,
    pub(crate) generation: u32,
}

/// The state of this side's goodbye.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GoodbyeState {
    NotWanted,
    Wanted,
    Sent,
}

/// The state of one data connection.
pub(crate) struct Machine {
    /// Number of the thread that it belongs to.
    thread: u32,
    peer: ThreadId,
    threads: u32,
    frames: Frames,
    recent: RecentRegions,
    asking: Asking,
    /// Whether a part of the read whose answers come now was refused.
    refused: bool,
    /// The first region that refused an operation of the peer since its last fence.
    refused_peer: Option<Name>,
    /// Writes of this side, and writes of the peer that have arrived as a whole.
    writes: u64,
    writes_arrived: u64,
    refused_writes: RefusedWrites,
    answers: Vec<u8>,
    outbound: Outbound,
    inbound: Inbound,
    goodbye_state: GoodbyeState,
    heard_goodbye: bool,
    /// What is on its way into the socket, and how much of it has gone.
    front: Vec<u8>,
    gone: usize,
}

impl Machine {
    /// The connection of thread `peer.thread` of this host and of `peer`'s, of `threads` each.
    pub(crate) fn new(peer: ThreadId, threads: u32) -> Self {
        Self {
            thread: peer.thread,
            peer,
            threads,
            frames: Frames::default(),
            recent: RecentRegions::default(),
            asking: Asking::default(),
            refused: false,
            refused_peer: None,
            writes: 0,
            writes_arrived: 0,
            refused_writes: RefusedWrites::default(),
            answers: Vec::new(),
            outbound: Outbound::default(),
            inbound: Inbound::default(),
            goodbye_state: GoodbyeState::NotWanted,
            heard_goodbye: false,
            front: Vec::new(),
            gone: 0,
        }
    }

    // ---- What this side asks. Bounds and rights were checked by the caller.

    pub(crate) fn write(&mut self, to: Name, at: usize, from: &SharedBytes) {
        let mut done = 0;
        loop {
            let len = (from.len() - done).min(whole_words(at + done));
            let last = done + len == from.len();
            let mut header = on(Kind::Write, to, at + done);
            header.word = u64::from(last);
            self.asking.start(header, None, len, |out| append(from, done, len, out));
            done += len;
            if last {
                self.writes += 1;
                return;
            }
        }
    }

    pub(crate) fn signal(&mut self, to: Name, at: usize, word: u64) {
        self.asking.start(Header { word, ..on(Kind::Signal, to, at) }, None, 0, |_| ());
    }

    /// Writes `len` bytes (at most [`BODY_BYTES`]), which `body` appends, after the word at `at`, then stores
    /// `tag` there.
    pub(crate) fn write_tagged(
        &mut self,
        to: Name,
        (at, tag): (usize, u64),
        len: usize,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        self.asking.start(Header { word: tag, ..on(Kind::Tagged, to, at) }, None, len, body);
    }

    pub(crate) fn read(&mut self, name: Name, from: usize, into: &SharedBytes, token: u64) {
        let mut at = 0;
        loop {
            let len = (into.len() - at).min(whole_words(from + at));
            let total = (at + len == into.len()).then_some(into.len());
            let header = Header { word: len as u64, ..on(Kind::Read, name, from + at) };
            let part = Asked::Part { token, name, into: into.clone(), at, len, total };
            self.asking.start(header, Some(part), 0, |_| ());
            at += len;
            if total.is_some() {
                return;
            }
        }
    }

    pub(crate) fn compare_swap(&mut self, name: Name, at: usize, words: [u64; 2], token: u64) {
        let [expected, new] = words;
        let header = Header { word: expected, ..on(Kind::Swap, name, at) };
        let asked = Some(Asked::Value { token, name });
        self.asking.start(header, asked, 8, |out| out.extend_from_slice(&new.to_le_bytes()));
    }

    pub(crate) fn fetch_add(&mut self, name: Name, at: usize, addend: u64, token: u64) {
        let header = Header { word: addend, ..on(Kind::Add, name, at) };
        self.asking.start(header, Some(Asked::Value { token, name }), 0, |_| ());
    }

    /// Asks whether all operations so far were carried out.
    pub(crate) fn fence(&mut self, token: u64) {
        self.asking.start(Header::new(Kind::Fence), Some(Asked::Fence { token }), 0, |_| ());
    }

    /// Tells `thread` of the peer that the last write has written `len` bytes to `at`, unless the peer
    /// refuses that write.
    pub(crate) fn notify(&mut self, name: Name, at: usize, len: usize, thread: u32, value: u32) {
        let header = notification(name, at, (thread, value));
        self.outbound.notify(self.asking.started(), header, [len as u64, self.writes]);
    }

    /// Tells `thread` of the peer that `len` bytes at `at` were changed, behind everything so far.
    pub(crate) fn announce(&mut self, name: Name, at: usize, len: usize, thread: u32, value: u32) {
        let header = notification(name, at, (thread, value));
        self.outbound.notify(self.asking.started(), header, [len as u64, 0]);
    }

    pub(crate) fn bulk(&mut self, thread: u32, tag: u64, payload: Vec<u8>) {
        self.outbound.payload(thread as u16, tag, payload);
    }

    pub(crate) fn wake(&mut self, thread: u32) {
        let header = Header { thread: thread as u16, ..Header::new(Kind::Wake) };
        self.asking.start(header, None, 0, |_| ());
    }

    /// Says goodbye behind everything that was started.
    pub(crate) fn goodbye(&mut self) {
        if self.goodbye_state == GoodbyeState::NotWanted {
            self.goodbye_state = GoodbyeState::Wanted;
        }
    }

    // ---- What is to be sent.

    /// Whether anything is to be sent, now or once the peer grants it. Frames held back until answers come do
    /// not count, nor do grants too small for a message of their own.
    #[inline]
    pub(crate) fn has_outgoing(&self) -> bool {
        self.gone < self.front.len()
            || !self.asking.requests.is_empty()
            || !self.answers.is_empty()
            || !self.outbound.is_empty()
            || self.inbound.owes_much()
            || self.goodbye_state == GoodbyeState::Wanted
    }

    /// The bytes that are to be sent next; may be empty. Report what was sent with
    /// [`sent`](Self::sent).
    pub(crate) fn outgoing(&mut self) -> &[u8] {
        if self.gone == self.front.len() && self.has_outgoing() {
            self.refill();
        }
        &self.front[self.gone..]
    }

    /// `count` of the bytes were sent.
    pub(crate) fn sent(&mut self, count: usize) {
        self.gone += count;
        if self.gone == self.front.len() {
            self.gone = 0;
            self.front.clear();
            // What one burst needed is not kept for ever.
            self.front.shrink_to(4 * FRONT_BYTES);
        }
    }

    fn refill(&mut self) {
        // A grant is no message of its own as long as the peer can do without.
        let travels = !self.answers.is_empty() || !self.asking.requests.is_empty();
        if travels || self.inbound.owes_much() {
            self.inbound.grant(&mut self.answers);
        }
        if self.answers.is_empty() {
            std::mem::swap(&mut self.front, &mut self.asking.requests);
        } else {
            self.front.append(&mut self.answers);
            self.front.append(&mut self.asking.requests);
        }
        // However much a peer asks for, its answers leave streams a turn.
        let enough = FRONT_BYTES.max(self.front.len() + BODY_BYTES);
        self.outbound.fill(&mut self.front, enough, self.asking.released());
        let is_all = self.asking.released() == self.asking.started() && self.outbound.is_empty();
        if self.goodbye_state == GoodbyeState::Wanted && is_all {
            self.goodbye_state = GoodbyeState::Sent;
            Header::new(Kind::Goodbye).encode(0, &mut self.front);
        }
    }

    /// Whether the peer has said goodbye here: the end of the connection is no surprise then.
    pub(crate) fn heard_goodbye(&self) -> bool {
        self.heard_goodbye
    }

    /// Notifications that wait for `thread` of the peer.
    pub(crate) fn waiting_notifications(&self, thread: u32) -> usize {
        let mut waiting = self.outbound.waiting();
        let found = waiting.find(|(other, _)| u32::from(*other) == thread);
        found.map_or(0, |(_, waiting)| waiting.notifications())
    }

    /// Bytes of bulk payloads in `namespace` that wait for threads of the peer.
    pub(crate) fn waiting_bulk(&self, namespace: Namespace) -> usize {
        self.outbound.waiting().map(|(_, waiting)| waiting.bulk_bytes(namespace)).sum()
    }

    /// Bytes of operations that wait for a flush.
    pub(crate) fn unsent(&self) -> usize {
        self.asking.requests.len()
    }
}

/// Appends `len` bytes of `from`, from byte `at` on.
pub(crate) fn append(from: &SharedBytes, at: usize, len: usize, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + len, 0);
    from.read_words(at, &mut out[start..]);
}

/// Bytes of a body that begins at byte `at` of a region, at most: it ends where a word does, so that
/// no word is carried out in two parts.
fn whole_words(at: usize) -> usize {
    BODY_BYTES - at % 8
}

/// The header of a notification of `thread` with `value`.
fn notification(name: Name, at: usize, (thread, value): (u32, u32)) -> Header {
    Header { thread: thread as u16, word: value.into(), ..on(Kind::Notify, name, at) }
}

/// The header of an operation on byte `at` of a region.
fn on(kind: Kind, name: Name, at: usize) -> Header {
    let Name { key, generation } = name;
    Header { key: key.0, at: at as u64, generation, ..Header::new(kind) }
}
