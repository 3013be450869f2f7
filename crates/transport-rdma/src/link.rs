//! [`Link`]: one queue pair with its memory, and what its two ends say to each other beside data.
//!
//! Two things use up receives of the peer, of which every queue pair has [`RECEIVES`]:
//!
//! - a *notice*, the word that a write may carry: which thread must not sleep, or how many
//!   notifications have been taken;
//! - a *record*, a message of [`RECORD`] bytes: a notification (`write_notify`), behind its data.
//!
//! ```text
//!   notice   | 0 .. 0 | thread |     or   | 1 | notifications taken |
//!   record   | key: 8 | at: 8 | value: 4 | thread: 4 | generation: 4 | zero: 4 |
//! ```
//!
//! The place of a message is used again at once. So that notifications which nobody takes need no
//! memory without end, at most [`WINDOW`] of them are on their way or waiting to be taken.

use crate::{
    config::RdmaConfig,
    imports::Remote,
    memory::Memory,
    queue::{Asked, Queue, copy},
    verbs::{Completion, Cq, Done, Failure, Limits, Local, Mr, Pd, Qp, Receive, Verb},
};
use primitive::SharedBytes;
use std::{collections::VecDeque, io, sync::Arc};
use transport_api::{Event, LossReason, RegionKey, ThreadId};

/// Receives of a queue pair.
pub(crate) const RECEIVES: u32 = 128;

/// Bytes of a record.
const RECORD: usize = 32;

/// Bytes for the messages that all receives may take.
const MESSAGES: usize = RECEIVES as usize * RECORD;

/// Notifications that may be on their way or wait to be taken.
const WINDOW: u32 = 64;

/// The bit of a notice that counts notifications.
const TAKEN: u32 = 1 << 31;

/// Tells completions of receives from those of requests.
const IS_RECEIVE: u64 = 1 << 63;

/// What a completion leads to.
pub(crate) enum Incident {
    /// Something for the thread's lane.
    Event(Event),
    /// A notification for a thread of this host: of which region and generation, and the event.
    Notified { thread: u32, key: RegionKey, generation: u32, event: Event },
    /// A thread of this host must not sleep.
    Wake(u32),
    /// The queue pair has failed.
    Failed(LossReason),
}

/// A notification, as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    key: u64,
    at: u64,
    value: u32,
    thread: u32,
    generation: u32,
}

impl Record {
    fn encode(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[0..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.value.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.thread.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD]) -> Option<Record> {
        let word = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let (second, third) = (word(16), word(24));
        (third >> 32 == 0).then_some(Record {
            key: word(0),
            at: word(8),
            value: second as u32,
            thread: (second >> 32) as u32,
            generation: third as u32,
        })
    }
}

/// One queue pair with its memory.
pub(crate) struct Link {
    /// Before the memory that its device reaches, so that it goes first.
    pub(crate) qp: Qp,
    queue: Queue,
    staging: Mr,
    messages: Mr,
    /// The thread at the other end.
    peer: ThreadId,
    /// Threads of this host.
    threads: u32,
    has_failed: bool,
    /// Notifications of this side that the peer's threads have not taken, as far as is known, and
    /// those that wait until they have.
    out: u32,
    waiting: VecDeque<Record>,
    /// Notifications of the peer that nobody has taken, and taken ones that it has not been told
    /// of.
    untaken: u32,
    owed: u32,
}

impl Link {
    /// Bytes of registered memory that a queue pair takes.
    pub(crate) fn bytes(config: &RdmaConfig) -> io::Result<usize> {
        let all = MESSAGES.checked_add(config.staging_bytes).and_then(Memory::taken_by);
        all.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// A queue pair of `pd` that reports to `cq` and uses this much [registered](Self::bytes)
    /// memory, with all its receives in place.
    pub(crate) fn new(
        (pd, cq, memory): (&Arc<Pd>, &Arc<Cq>, &Mr),
        config: &RdmaConfig,
        peer: ThreadId,
        threads: u32,
    ) -> io::Result<Link> {
        let RdmaConfig { port, depth, inline_bytes, staging_bytes, .. } = *config;
        let limits = Limits { sends: depth, receives: RECEIVES, inline: inline_bytes };
        let messages = memory.part(0, MESSAGES);
        let staging = memory.part(MESSAGES, staging_bytes);
        let qp = Qp::new(pd, cq, port, limits)?;
        let queue = Queue::new(depth as usize, staging_bytes);
        let (has_failed, waiting) = (false, VecDeque::new());
        let (out, untaken, owed) = (0, 0, 0);
        let mut link = Link {
            qp,
            queue,
            staging,
            messages,
            peer,
            threads,
            has_failed,
            out,
            waiting,
            untaken,
            owed,
        };
        for slot in 0..u64::from(RECEIVES) {
            link.receive(slot)?;
        }
        Ok(link)
    }

    fn receive(&mut self, slot: u64) -> io::Result<()> {
        let local = Local { at: slot as usize * RECORD, len: RECORD };
        self.qp.receive(&self.messages, Receive { id: IS_RECEIVE | slot, local })
    }

    // ---- What this side starts. Bounds and rights were checked by the caller.

    pub(crate) fn write(&mut self, to: &Arc<Remote>, at: usize, from: &SharedBytes) {
        let mut done = 0;
        loop {
            let len = (from.len() - done).min(self.queue.most());
            let target = Some((to, at + done));
            self.send(Verb::Write(None), target, len, |each| {
                copy(from, done, len, |_, bytes| each(bytes));
            });
            done += len;
            if done == from.len() {
                return;
            }
        }
    }

    pub(crate) fn signal(&mut self, to: &Arc<Remote>, at: usize, word: u64) {
        // Words are the owner's own: in the order of its processor, which is that of this one.
        let bytes = word.to_ne_bytes();
        self.send(Verb::Write(None), Some((to, at)), bytes.len(), |each| each(&bytes));
    }

    pub(crate) fn read(&mut self, from: &Arc<Remote>, at: usize, into: &SharedBytes, token: u64) {
        let mut done = 0;
        loop {
            let len = (into.len() - done).min(self.queue.most());
            let total = (done + len == into.len()).then_some(into.len());
            let asked = Asked::Part { token, into: into.clone(), at: done, total };
            self.ask(Verb::Read, (from, at + done), len, asked);
            done += len;
            if total.is_some() {
                return;
            }
        }
    }

    pub(crate) fn atomic(&mut self, verb: Verb, on: &Arc<Remote>, at: usize, token: u64) {
        self.ask(verb, (on, at), 8, Asked::Word { token });
    }

    /// Tells `thread` of the peer what was written to byte `at`.
    pub(crate) fn notify(
        &mut self,
        (key, generation): (RegionKey, u32),
        at: usize,
        thread: u32,
        value: u32,
    ) {
        let record = Record { key: key.0, at: at as u64, value, thread, generation };
        self.waiting.push_back(record);
        self.notify_more();
    }

    fn notify_more(&mut self) {
        while self.out < WINDOW
            && let Some(record) = self.waiting.pop_front()
        {
            self.out += 1;
            let bytes = record.encode();
            self.send(Verb::Send, None, RECORD, |each| each(&bytes));
        }
    }

    /// Sees to it that `thread` of the peer does not sleep through what was started. True if that
    /// travels with what waits for a flush.
    pub(crate) fn wake(&mut self, thread: u32) -> bool {
        let travels = !self.queue.chain().is_empty();
        self.notice(thread);
        travels
    }

    fn notice(&mut self, word: u32) {
        if !self.has_failed {
            self.queue.notice(word, self.staging.memory());
        }
    }

    /// A thread of this host has taken so many of the peer's notifications.
    pub(crate) fn taken(&mut self, count: u32) {
        self.untaken -= count;
        self.owed += count;
        if self.owed >= WINDOW / 2 {
            self.notice(TAKEN | self.owed);
            self.owed = 0;
        }
    }

    fn send(
        &mut self,
        verb: Verb,
        to: Option<(&Arc<Remote>, usize)>,
        len: usize,
        fill: impl Fn(&mut dyn FnMut(&[u8])),
    ) {
        if !self.has_failed {
            self.queue.send(verb, to, len, self.staging.memory(), fill);
        }
    }

    fn ask(&mut self, verb: Verb, to: (&Arc<Remote>, usize), len: usize, asked: Asked) {
        if !self.has_failed {
            self.queue.ask(verb, to, len, asked);
        }
    }

    // ---- Towards the device and back.

    /// Whether what was started should be posted without waiting for the flush.
    pub(crate) fn is_crowded(&self) -> bool {
        self.queue.is_crowded()
    }

    /// Hands everything that was started to the device.
    pub(crate) fn post(&mut self, sink: &mut dyn FnMut(Incident)) {
        if self.queue.chain().is_empty() {
            return;
        }
        let posted = self.qp.post(&self.staging, self.queue.chain());
        self.queue.posted();
        if let Err(error) = posted {
            self.fail(&format!("the RDMA device takes no more work: {error}"), sink);
        }
    }

    /// A completion of this queue pair.
    pub(crate) fn take(&mut self, completion: Completion, sink: &mut dyn FnMut(Incident)) {
        if self.has_failed {
            return;
        }
        let slot = completion.id & !IS_RECEIVE;
        match completion.result {
            Err(failure) => self.broken(&failure, sink),
            Ok(Done::Sent) => {
                let staging = self.staging.memory();
                self.queue.completed(completion.id, staging, &mut |e| sink(Incident::Event(e)));
            }
            Ok(Done::Notice(word)) => self.noticed(slot, word, sink),
            Ok(Done::Message(len)) => self.message(slot, len, sink),
        }
    }

    /// Starts what was held back, as far as there is room now.
    pub(crate) fn advance(&mut self, sink: &mut dyn FnMut(Incident)) {
        let staging = self.staging.memory();
        if self.queue.release(staging, &mut |event| sink(Incident::Event(event))) {
            self.post(sink);
        }
    }

    fn noticed(&mut self, slot: u64, word: u32, sink: &mut dyn FnMut(Incident)) {
        self.again(slot, sink);
        if word & TAKEN == 0 {
            match word < self.threads {
                true => sink(Incident::Wake(word)),
                false => self.nonsense(format!("a wake of thread {word}"), sink),
            }
            return;
        }
        let count = word & !TAKEN;
        let Some(out) = self.out.checked_sub(count) else {
            let text = format!("{count} notifications taken, of {}", self.out);
            return self.nonsense(text, sink);
        };
        self.out = out;
        self.notify_more();
        self.post(sink);
    }

    fn message(&mut self, slot: u64, len: usize, sink: &mut dyn FnMut(Incident)) {
        let mut bytes = [0; RECORD];
        let at = slot as usize * RECORD;
        self.messages.memory().read_into(at, &mut bytes);
        self.again(slot, sink);
        let record = Record::decode(&bytes).filter(|record| {
            len == RECORD && record.thread < self.threads && self.untaken < WINDOW
        });
        let Some(Record { key, at, value, thread, generation }) = record else {
            return self.nonsense(format!("a notification of {len} bytes: {bytes:?}"), sink);
        };
        self.untaken += 1;
        let key = RegionKey(key);
        let event = Event::Notified { from: self.peer, key, at, value };
        sink(Incident::Notified { thread, key, generation, event });
    }

    /// Gives the place of a message to the device again.
    fn again(&mut self, slot: u64, sink: &mut dyn FnMut(Incident)) {
        if let Err(error) = self.receive(slot) {
            self.fail(&format!("the RDMA device takes no more receives: {error}"), sink);
        }
    }

    fn broken(&mut self, failure: &Failure, sink: &mut dyn FnMut(Incident)) {
        // The first that failed says why; those behind it were flushed.
        let text = match failure.is_flushed() {
            true => format!("the queue pair to it was ended: {failure}"),
            false => format!("the queue pair to it has failed: {failure}"),
        };
        self.fail(&text, sink);
    }

    fn nonsense(&mut self, what: String, sink: &mut dyn FnMut(Incident)) {
        self.end();
        sink(Incident::Failed(LossReason::Protocol(what)));
    }

    fn fail(&mut self, why: &str, sink: &mut dyn FnMut(Incident)) {
        self.end();
        sink(Incident::Failed(LossReason::Connection(why.into())));
    }

    /// Ends the queue pair; nothing is said of what was under way.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.queue.clear();
            self.waiting.clear();
            // It fails if the queue pair is of no use any more.
            let _ = self.qp.fail();
        }
    }

    // ---- For those who must know that nothing is under way.

    /// Posts what was started, and sees to it that its completion is told. Returns what
    /// [`is_past`](Self::is_past) takes.
    pub(crate) fn settle(&mut self, sink: &mut dyn FnMut(Incident)) -> u64 {
        self.queue.settle();
        self.post(sink);
        self.queue.next()
    }

    /// Whether everything that had been started when [`settle`](Self::settle) said `mark` has
    /// completed.
    pub(crate) fn is_past(&self, mark: u64) -> bool {
        self.queue.is_past(mark)
    }

    /// Whether nothing at all is under way or waiting.
    pub(crate) fn is_quiet(&self) -> bool {
        self.has_failed || self.waiting.is_empty() && self.queue.is_quiet()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_way_and_have_no_stray_bits() {
        let record = Record { key: u64::MAX - 1, at: 7, value: 9, thread: 3, generation: 4 };
        let mut bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record));
        bytes[RECORD - 1] = 1;
        assert_eq!(Record::decode(&bytes), None);
    }
}
