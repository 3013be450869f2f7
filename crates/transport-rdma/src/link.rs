//! [`Link`]: one queue pair with its memory: what a lane does with it, and what comes of that.

use crate::{
    config::RdmaConfig,
    imports::Remote,
    memory::Memory,
    notices::{Notice, Notices, RECEIVES, RECORD, Record},
    payloads::{Fetches, Offers, PIECE},
    queue::{Asked, Outcome, Queue, Source},
    verbs::{Completion, Cq, Done, Failure, Limits, Local, Mr, Pair, Qp, Receive, Verb},
};
use primitive::SharedBytes;
use std::{io, sync::Arc};
use transport_api::{Event, LossReason, RegionKey, ThreadId};

mod bulk;
#[cfg(test)]
mod tests;

/// Bytes for the messages that all receives may take.
const MESSAGES: usize = RECEIVES as usize * RECORD;

/// Tells completions of receives from those of requests.
const IS_RECEIVE: u64 = 1 << 63;

/// What a completion leads to.
#[derive(Debug)]
pub(crate) enum Incident {
    /// Something for the thread's lane.
    Event(Event),
    /// A notification for a thread of this host: of which region and generation, and the event.
    Notified { thread: u32, key: RegionKey, generation: u32, event: Event },
    /// A payload for a thread of this host.
    Payload { thread: u32, event: Event },
    /// A thread of this host must not sleep.
    Wake(u32),
    /// The queue pair has failed.
    Failed(LossReason),
}

/// One queue pair with its memory.
pub(crate) struct Link<P = Qp> {
    pub(crate) qp: P,
    queue: Queue,
    notices: Notices,
    offers: Offers,
    fetches: Fetches,
    /// Where the peer's payloads are fetched from, if it has them fetched.
    blocks: Option<Arc<Remote>>,
    /// What the queue pair sends from and reads into.
    staging: SharedBytes,
    /// What it receives in.
    messages: SharedBytes,
    has_failed: bool,
    /// Why, if this side did not end it by itself.
    failure: Option<LossReason>,
}

impl Link {
    /// Bytes of registered memory that a queue pair takes.
    pub(crate) fn bytes(config: &RdmaConfig) -> io::Result<usize> {
        let all = MESSAGES.checked_add(config.staging_bytes).and_then(Memory::taken_by);
        all.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// A queue pair that reports to `cq` and uses `memory`, [as much](Self::bytes) as it takes, with
    /// all its receives in place. If payloads are fetched, they are from `offered`, which stays
    /// registered as long as the queue pair is there.
    pub(crate) fn new(
        (cq, memory, offered): (&Arc<Cq>, &Mr, Option<SharedBytes>),
        config: &RdmaConfig,
        peer: ThreadId,
        threads: u32,
    ) -> io::Result<Link> {
        let RdmaConfig { port, depth, inline_bytes, staging_bytes, .. } = *config;
        let limits = Limits { sends: depth, receives: RECEIVES, inline: inline_bytes };
        let (messages, staging) = (memory.part(0, MESSAGES), memory.part(MESSAGES, staging_bytes));
        let reached = (staging.memory().clone(), messages.memory().clone());
        let qp = Qp::new((staging, messages), cq, port, limits)?;
        Link::over(
            qp,
            reached,
            depth,
            (Notices::new(peer, threads), Offers::new(offered), Fetches::new(peer, threads)),
        )
    }
}

impl<P: Pair> Link<P> {
    /// Over a queue pair that holds `depth` requests, sends from and reads into `staging`, and
    /// receives in `messages`.
    fn over(
        qp: P,
        (staging, messages): (SharedBytes, SharedBytes),
        depth: u32,
        (notices, offers, fetches): (Notices, Offers, Fetches),
    ) -> io::Result<Self> {
        let mut link = Self {
            qp,
            queue: Queue::new(depth as usize, staging.len()),
            notices,
            offers,
            fetches,
            blocks: None,
            staging,
            messages,
            has_failed: false,
            failure: None,
        };
        (0..u64::from(RECEIVES)).try_for_each(|slot| link.receive(slot))?;
        Ok(link)
    }

    fn receive(&mut self, slot: u64) -> io::Result<()> {
        let local = Local { at: slot as usize * RECORD, len: RECORD };
        self.qp.receive(Receive { id: IS_RECEIVE | slot, local })
    }

    // ---- What this side starts. Bounds and rights were checked by the caller.

    pub(crate) fn write(&mut self, to: &Arc<Remote>, at: usize, from: &SharedBytes) {
        let mut done = 0;
        loop {
            let len = (from.len() - done).min(self.queue.most() - (at + done) % 8);
            let target = Some((to, at + done));
            self.send(Verb::Write(None), target, Source::Part(from, done, len));
            done += len;
            if done == from.len() {
                return;
            }
        }
    }

    pub(crate) fn signal(&mut self, to: &Arc<Remote>, at: usize, word: u64) {
        // Words are the owner's own: in the order of its processor, which is that of this one.
        self.send(Verb::Write(None), Some((to, at)), Source::Bytes(&word.to_ne_bytes()));
    }

    pub(crate) fn read(&mut self, from: &Arc<Remote>, at: usize, into: &SharedBytes, token: u64) {
        let mut done = 0;
        loop {
            let len = (into.len() - done).min(self.queue.most() - (at + done) % 8);
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

    /// Reports `token` once everything that was started has completed, or what was refused of it.
    pub(crate) fn fence(&mut self, token: u64) {
        if !self.has_failed {
            self.queue.fence(token);
        }
    }

    /// Tells `thread` of the peer that `len` bytes were written to byte `at`.
    pub(crate) fn notify(
        &mut self,
        (key, generation): (RegionKey, u32),
        (at, len): (usize, usize),
        thread: u32,
        value: u32,
    ) {
        if !self.has_failed {
            let (at, len) = (at as u64, len as u64);
            self.notices.notify(Record { key, at, len, value, thread, generation });
            self.notify_more();
        }
    }

    fn notify_more(&mut self) {
        while let Some(record) = self.notices.next() {
            self.send(Verb::Send, None, Source::Bytes(&record.encode()));
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
            self.queue.notice(word, &self.staging);
        }
    }

    /// A thread of this host has taken so many of the peer's notifications.
    pub(crate) fn taken(&mut self, count: u32) {
        if let Some(word) = self.notices.taken(count) {
            self.notice(word);
        }
    }

    fn send(&mut self, verb: Verb, to: Option<(&Arc<Remote>, usize)>, from: Source<'_>) {
        if !self.has_failed {
            self.queue.send(verb, to, from, &self.staging);
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
        let posted = self.qp.post(self.queue.chain());
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
        let id = completion.id;
        let slot = Some(id ^ IS_RECEIVE).filter(|slot| *slot < u64::from(RECEIVES));
        match (completion.result, slot) {
            (Err(failure), _) => self.broken(&failure, sink),
            (Ok(Done::Sent), None) => self.done(id, sink),
            (Ok(Done::Notice(word)), Some(slot)) => self.noticed(slot, word, sink),
            (Ok(Done::Message(len)), Some(slot)) => self.message(slot, len, sink),
            (Ok(done), _) => {
                self.fail(&format!("the RDMA device has completed {id:#x} as {done:?}"), sink);
            }
        }
    }

    fn done(&mut self, id: u64, sink: &mut dyn FnMut(Incident)) {
        let Self { queue, fetches, staging, .. } = self;
        let (mut any, mut wrong) = (false, None);
        queue.completed(id, staging, &mut |outcome| match outcome {
            Outcome::Event(event) => sink(Incident::Event(event)),
            Outcome::Piece { at } => {
                any = true;
                match fetches.arrived(staging, at) {
                    Ok(Some((thread, event))) => sink(Incident::Payload { thread, event }),
                    Ok(None) => {}
                    Err(what) => drop(wrong.get_or_insert(what)),
                }
            }
        });
        match wrong {
            Some(what) => self.nonsense(what, sink),
            None if any => self.fetch_more(sink),
            None => {}
        }
    }

    /// Starts what was held back, as far as there is room now.
    pub(crate) fn advance(&mut self, sink: &mut dyn FnMut(Incident)) {
        let mut event = |event| sink(Incident::Event(event));
        if self.queue.release(&self.staging, &mut event) {
            self.post(sink);
        }
    }

    fn noticed(&mut self, slot: u64, word: u32, sink: &mut dyn FnMut(Incident)) {
        self.again(slot, sink);
        match self.notices.noticed(word) {
            Ok(Notice::Wake(thread)) => sink(Incident::Wake(thread)),
            Ok(Notice::Room) => {
                self.notify_more();
                self.post(sink);
            }
            Ok(Notice::Fetched(count)) => {
                let right = self.offers.fetched(count);
                self.offered_before(right, sink);
            }
            Ok(Notice::Granted { thread, cost }) => {
                let right = self.offers.granted(thread, cost);
                self.offered_before(right, sink);
            }
            Err(what) => self.nonsense(what, sink),
        }
    }

    fn message(&mut self, slot: u64, len: usize, sink: &mut dyn FnMut(Incident)) {
        let mut bytes = [0; RECORD];
        self.messages.read_into(slot as usize * RECORD, &mut bytes);
        self.again(slot, sink);
        if bytes.ends_with(&PIECE) {
            return self.announced(&bytes, len, sink);
        }
        match self.notices.notified(&bytes, len) {
            Ok((Record { thread, key, generation, .. }, event)) => {
                sink(Incident::Notified { thread, key, generation, event });
            }
            Err(what) => self.nonsense(what, sink),
        }
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
        self.fail_for(LossReason::Protocol(what), sink);
    }

    fn fail(&mut self, why: &str, sink: &mut dyn FnMut(Incident)) {
        self.fail_for(LossReason::Connection(why.into()), sink);
    }

    fn fail_for(&mut self, reason: LossReason, sink: &mut dyn FnMut(Incident)) {
        self.end();
        self.failure = Some(reason.clone());
        sink(Incident::Failed(reason));
    }

    /// Why the queue pair has failed, if it was not ended from here.
    pub(crate) fn failure(&self) -> Option<&LossReason> {
        self.failure.as_ref()
    }

    /// Ends the queue pair; nothing is said of what was under way.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.queue.clear();
            self.notices.clear();
            self.offers.clear();
            self.fetches.clear();
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
        let is_quiet =
            || self.notices.is_quiet() && self.offers.is_quiet() && self.queue.is_quiet();
        self.has_failed || is_quiet()
    }
}
