//! [`Connection`]: one queue pair with its memory: what a lane starts on it, and how completions are
//! handled.

use std::io;
use std::sync::Arc;

use primitive::SharedBytes;
use rdma_protocol::immediate::{Immediate, Notifications, RECEIVES, RECORD, Record};
use transport_api::{Event, LossReason, RegionKey, ThreadId};

use crate::config::RdmaConfig;
use crate::memory::pool::Memory;
use crate::memory::remote::RemoteMemory;
use crate::qp::send_queue::{Destination, Outcome, Refused, SendQueue, Source};
use crate::verbs::{Completion, Cq, Done, Failure, Limits, Local, Mr, Pair, Qp, Receive, Verb};
use rdma_protocol::payloads::{Fetches, Offers, PIECE};

mod bulk;
mod notify;
#[cfg(test)]
pub(super) mod tests;

/// Bytes of the messages of all receives.
const MESSAGES: usize = RECEIVES as usize * RECORD;

/// Distinguishes completions of receives from those of requests.
const IS_RECEIVE: u64 = 1 << 63;

/// The consequence of a completion.
#[derive(Debug)]
pub(crate) enum Incident {
    /// An event for the thread's lane.
    Event(Event),
    /// A notification for a thread of this host, with the region and generation that it names.
    Notified { thread: u32, key: RegionKey, generation: u32, event: Event },
    /// A payload for a thread of this host.
    Payload { thread: u32, event: Event },
    /// A thread of this host is to be woken.
    Wake(u32),
    /// The queue pair has failed.
    Failed(LossReason),
}

/// One queue pair with its memory.
pub(crate) struct Connection<P = Qp> {
    pub(crate) qp: P,
    queue: SendQueue,
    notifications: Notifications,
    offers: Offers,
    fetches: Fetches,
    /// The blocks in which the peer offers payloads, unless the carrier carries them.
    blocks: Option<Arc<RemoteMemory>>,
    /// Memory that the queue pair sends from and reads into.
    staging: SharedBytes,
    /// Memory that it receives in.
    messages: SharedBytes,
    has_failed: bool,
    /// Why it failed, unless this side ended it.
    failure: Option<LossReason>,
    /// The tokens of operations that its end cut off.
    lost: Vec<u64>,
}

impl Connection {
    /// Bytes of registered memory that a queue pair needs.
    pub(crate) fn bytes(config: &RdmaConfig) -> io::Result<usize> {
        let all = MESSAGES.checked_add(config.staging_bytes).and_then(Memory::taken_by);
        all.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// A queue pair that reports to `cq` and uses `memory`, of [`bytes`](Self::bytes), with all its
    /// receives posted. The peer reads payloads from `blocks`, which must stay registered as long as
    /// the queue pair exists.
    pub(crate) fn new(
        (cq, memory, blocks): (&Arc<Cq>, &Mr, Option<SharedBytes>),
        config: &RdmaConfig,
        peer: ThreadId,
        threads: u32,
    ) -> io::Result<Connection> {
        let RdmaConfig { port, depth, inline_bytes, staging_bytes, .. } = *config;
        let limits = Limits { sends: depth, receives: RECEIVES, inline: inline_bytes };
        let (messages, staging) = (memory.part(0, MESSAGES), memory.part(MESSAGES, staging_bytes));
        let reached = (staging.memory().clone(), messages.memory().clone());
        let qp = Qp::new((staging, messages), cq, port, limits)?;
        Connection::over(
            qp,
            reached,
            depth,
            (Notifications::new(peer, threads), Offers::new(blocks), Fetches::new(peer, threads)),
        )
    }
}

impl<P: Pair> Connection<P> {
    /// Over a queue pair with `depth` requests that sends from and reads into `staging`, and receives
    /// in `messages`.
    fn over(
        qp: P,
        (staging, messages): (SharedBytes, SharedBytes),
        depth: u32,
        (notifications, offers, fetches): (Notifications, Offers, Fetches),
    ) -> io::Result<Self> {
        let mut connection = Self {
            qp,
            queue: SendQueue::new(depth as usize, staging.len()),
            notifications,
            offers,
            fetches,
            blocks: None,
            staging,
            messages,
            has_failed: false,
            failure: None,
            lost: Vec::new(),
        };
        (0..u64::from(RECEIVES)).try_for_each(|slot| connection.receive(slot))?;
        Ok(connection)
    }

    fn receive(&mut self, slot: u64) -> io::Result<()> {
        let local = Local { at: slot as usize * RECORD, len: RECORD };
        self.qp.receive(Receive { id: IS_RECEIVE | slot, local })
    }

    // ---- Operations. The caller has checked bounds and rights.

    pub(crate) fn write(&mut self, to: &Arc<RemoteMemory>, at: usize, from: &SharedBytes) {
        let mut done = 0;
        while done < from.len() {
            let len = (from.len() - done).min(self.queue.max_request_bytes() - (at + done) % 8);
            let target = Some((to, at + done));
            self.send(Verb::Write(None), target, Source::Part(from, done, len));
            done += len;
        }
    }

    pub(crate) fn signal(&mut self, to: &Arc<RemoteMemory>, at: usize, word: u64) {
        // Both hosts have the same byte order.
        self.send(Verb::Write(None), Some((to, at)), Source::Bytes(&word.to_ne_bytes()));
    }

    pub(crate) fn read(
        &mut self,
        from: &Arc<RemoteMemory>,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) {
        let mut done = 0;
        loop {
            let len = (into.len() - done).min(self.queue.max_request_bytes() - (at + done) % 8);
            let is_last = done + len == into.len();
            let end = is_last.then_some(Ok(into.len()));
            let destination = Destination::Part { token, into: into.clone(), at: done, end };
            self.fetch(Verb::Read, (from, at + done), len, destination);
            done += len;
            if is_last {
                return;
            }
        }
    }

    pub(crate) fn atomic(&mut self, verb: Verb, on: &Arc<RemoteMemory>, at: usize, token: u64) {
        self.fetch(verb, (on, at), 8, Destination::Word { token });
    }

    /// Reports `token` when everything that was started before has taken effect in the peer's memory.
    /// The device may acknowledge a WRITE before its bytes are visible there; a READ behind it is
    /// answered only afterwards. It reads the word at byte `at` of `flags`, which no one uses.
    pub(crate) fn fence(&mut self, flags: &Arc<RemoteMemory>, at: usize, token: u64) {
        self.fetch(Verb::Read, (flags, at), 8, Destination::Fence { token, refused: None });
    }

    fn send_immediate(&mut self, word: u32) {
        if !self.has_failed {
            self.queue.send_immediate(word, &self.staging);
        }
    }

    fn send(&mut self, verb: Verb, to: Option<(&Arc<RemoteMemory>, usize)>, from: Source<'_>) {
        if !self.has_failed {
            self.queue.send(verb, to, from, &self.staging);
        }
    }

    fn fetch(
        &mut self,
        verb: Verb,
        to: (&Arc<RemoteMemory>, usize),
        len: usize,
        destination: Destination,
    ) {
        if !self.has_failed {
            self.queue.fetch(verb, to, len, destination);
        }
    }

    // ---- Requests to the device, and their completions.

    /// Whether to post what was started without waiting for a flush.
    pub(crate) fn is_crowded(&self) -> bool {
        self.queue.is_crowded()
    }

    /// Posts everything that was started.
    pub(crate) fn post(&mut self, sink: &mut dyn FnMut(Incident)) {
        if self.queue.chain().is_empty() {
            return;
        }
        let posted = self.qp.post(self.queue.chain());
        self.queue.posted();
        if let Err(error) = posted {
            self.fail(&format!("the RDMA device accepts no more work requests: {error}"), sink);
        }
    }

    /// Handles a completion of this queue pair.
    pub(crate) fn take(&mut self, completion: Completion, sink: &mut dyn FnMut(Incident)) {
        if self.has_failed {
            return;
        }
        let id = completion.id;
        let slot = Some(id ^ IS_RECEIVE).filter(|slot| *slot < u64::from(RECEIVES));
        match (completion.result, slot) {
            (Err(failure), _) => self.request_failed(&failure, sink),
            (Ok(Done::Sent), None) => self.done(id, sink),
            (Ok(Done::Immediate(word)), Some(slot)) => self.immediate(slot, word, sink),
            (Ok(Done::Message(len)), Some(slot)) => self.message(slot, len, sink),
            (Ok(done), _) => {
                self.fail(&format!("the RDMA device completed {id:#x} as {done:?}"), sink);
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
            Some(what) => self.violation(what, sink),
            None if any => self.fetch_more(sink),
            None => {}
        }
    }

    /// Starts deferred requests while there is room.
    pub(crate) fn advance(&mut self, sink: &mut dyn FnMut(Incident)) {
        let Self { queue, notifications, staging, .. } = self;
        let mut any_refused = false;
        let any = queue.start_deferred(staging, &mut |refused| {
            any_refused = true;
            match refused {
                Refused::Operation(event) => sink(Incident::Event(event)),
                Refused::Notification => notifications.dropped(),
            }
        });
        if any_refused {
            // Others may have waited for a credit that one of the refused has taken.
            self.notify_more();
        }
        if any || any_refused {
            self.post(sink);
        }
    }

    fn immediate(&mut self, slot: u64, word: u32, sink: &mut dyn FnMut(Incident)) {
        self.repost_receive(slot, sink);
        match self.notifications.receive_immediate(word) {
            Ok(Immediate::Wake(thread)) => sink(Incident::Wake(thread)),
            Ok(Immediate::NotificationCredits) => {
                self.notify_more();
                self.post(sink);
            }
            Ok(Immediate::Fetched(count)) => {
                let valid = self.offers.blocks_fetched(count);
                self.acknowledged(valid, sink);
            }
            Ok(Immediate::PayloadCredits { thread, cost }) => {
                let valid = self.offers.add_credits(thread, cost);
                self.acknowledged(valid, sink);
            }
            Err(what) => self.violation(what, sink),
        }
    }

    fn message(&mut self, slot: u64, len: usize, sink: &mut dyn FnMut(Incident)) {
        let mut bytes = [0; RECORD];
        self.messages.read_into(slot as usize * RECORD, &mut bytes);
        self.repost_receive(slot, sink);
        if bytes.ends_with(&PIECE) {
            return self.announced(&bytes, len, sink);
        }
        match self.notifications.receive_record(&bytes, len) {
            Ok((Record { thread, key, generation, .. }, event)) => {
                sink(Incident::Notified { thread, key, generation, event });
            }
            Err(what) => self.violation(what, sink),
        }
    }

    /// Posts the receive of a handled message again.
    fn repost_receive(&mut self, slot: u64, sink: &mut dyn FnMut(Incident)) {
        if let Err(error) = self.receive(slot) {
            self.fail(&format!("the RDMA device accepts no more receives: {error}"), sink);
        }
    }

    fn request_failed(&mut self, failure: &Failure, sink: &mut dyn FnMut(Incident)) {
        // The first failure has the cause; requests behind it were flushed.
        let text = match failure.is_flushed() {
            true => format!("the queue pair to it was ended: {failure}"),
            false => format!("the queue pair to it failed: {failure}"),
        };
        self.fail(&text, sink);
    }

    pub(super) fn violation(&mut self, what: String, sink: &mut dyn FnMut(Incident)) {
        self.fail_for(LossReason::Protocol(what), sink);
    }

    /// The queue pair has failed, unless it had before.
    pub(crate) fn fail(&mut self, why: &str, sink: &mut dyn FnMut(Incident)) {
        self.fail_for(LossReason::Connection(why.into()), sink);
    }

    fn fail_for(&mut self, reason: LossReason, sink: &mut dyn FnMut(Incident)) {
        if self.has_failed {
            return;
        }
        self.end();
        self.failure = Some(reason.clone());
        sink(Incident::Failed(reason));
    }

    /// Why the queue pair failed, unless this side ended it.
    pub(crate) fn failure(&self) -> Option<&LossReason> {
        self.failure.as_ref()
    }

    /// The operations that its end cut off, if it has ended: their tokens, and why.
    pub(crate) fn lost(&self) -> Option<(&[u64], LossReason)> {
        let why = || LossReason::Connection("the queue pair was ended".into());
        self.has_failed.then(|| (&self.lost[..], self.failure.clone().unwrap_or_else(why)))
    }

    /// Ends the queue pair; requests in flight are not reported.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.lost = self.queue.clear();
            self.notifications.clear();
            self.offers.clear();
            self.fetches.clear();
            // An error means that the queue pair has ended already.
            let _ = self.qp.fail();
        }
    }

    // ---- Quiescence.

    /// Posts what was started, with its last request signalled. Returns the mark for
    /// [`has_completed`](Self::has_completed).
    pub(crate) fn settle(&mut self, sink: &mut dyn FnMut(Incident)) -> u64 {
        self.queue.settle();
        self.post(sink);
        self.queue.next_id()
    }

    /// Whether everything that was started before [`settle`](Self::settle) returned `mark` has
    /// completed.
    pub(crate) fn has_completed(&self, mark: u64) -> bool {
        self.queue.has_completed(mark)
    }

    /// Requests with a result that were started, and those of them that have ended, which do so in
    /// order.
    pub(crate) fn fetches(&self) -> (u64, u64) {
        self.queue.fetches()
    }

    /// Whether nothing is in flight or waiting.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_quiet =
            || self.notifications.is_quiet() && self.offers.is_quiet() && self.queue.is_quiet();
        self.has_failed || is_quiet()
    }
}
