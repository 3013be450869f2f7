//! [`ShmLane`]: a thread's lane to a host whose memory is mapped here.
//!
//! Every operation on a region is done when the call returns; what is left for
//! [`poll`](Lane::poll) are the completions of reads, atomics and fences, the rings that carry bulk
//! payloads and notifications, and what the service thread has left. An idle poll is two loads: of
//! this thread's attention word, and of the lane itself; and one for each sender whose notice slots
//! the lane polls. Those are the threads of the peer that have notified this one, up to a limit; a
//! thread that waits for a notification looks there past the lane, and calls it only once its attention
//! word has changed ([`watch`](Lane::watch)); one that writes and notifies needs the lane only if
//! something is in the way ([`outboxes`](Lane::outboxes)):
//!
//! ```text
//!   NoticeOutbox                                NoticeInbox, or poll
//!   the data, then the notice slot ----------> the slot: a notification         (one cache line)
//!   fence; is this slot polled? if not:
//!     the attention bit         ----------> attention: take the bit, look at every ring and all
//!   is the thread parked? if so, wake it           slots; poll the slots of this sender from now on
//! ```

use std::sync::Arc;

use primitive::SharedBytes;
use primitive::sync::{Ordering, fence};
use transport_api::park_word::PeerParkWord;
use transport_api::{
    Event, EventQueue, HostId, Lane, LossReason, Namespace, Notice, NoticeEnd, NoticeOutbox,
    OpError, PeerEvent, RemoteRegion, Rights, Rouse, Tag, Watch, Window,
};

use self::receiving::Polled;
use crate::control::host::Host;
use crate::memory::host_memory::HostMemory;
use crate::memory::ring::{Frame, Place, Receiver, Sender};

mod receiving;
#[cfg(test)]
mod tests;

/// A lane over shared memory.
pub(crate) struct ShmLane {
    host: Arc<Host>,
    thread: u32,
    peer: HostId,
    /// The memories of this host and of the peer.
    own: HostMemory,
    theirs: HostMemory,
    /// The word of `own` and the bit in it by which this thread is asked to look after this lane.
    attention: (usize, u64),
    event_queue: EventQueue,
    /// Events that the next poll reports.
    done: Vec<Event>,
    /// To each thread of the peer.
    senders: Vec<Sender>,
    /// How many of them have frames that wait for room.
    waiting: usize,
    /// From each thread of the peer.
    receivers: Vec<Receiver>,
    /// The receivers whose notice slots each poll looks at.
    polled: Vec<Polled>,
    /// The one of them that is replaced next, if it was not used.
    hand: usize,
    /// Whether it may start operations.
    is_open: bool,
}

impl ShmLane {
    /// The lane that `event_queue` is for, to a host that memory reaches.
    pub(crate) fn new(host: Arc<Host>, event_queue: EventQueue) -> Self {
        let (thread, peer) = (event_queue.thread(), event_queue.peer());
        let (layout, local) = (host.layout, host.local);
        let place = |owner: HostId, to, from_host, from| {
            let at = layout.ring(to, from_host, from);
            Place::new(host.memory_of(owner).memory(), at, layout.ring_bytes())
        };
        let slots = |other| {
            let sends = place(peer, other, local, thread).slots();
            let receives = place(local, thread, peer, other).slots();
            let order = layout.sender(local, thread).cmp(&layout.sender(peer, other));
            Arc::new(NoticeEnd::new(sends, receives, order))
        };
        let sender = |to, slots| {
            let theirs = host.memory_of(peer).clone();
            let park_word = theirs.park_word_memory(to);
            let rouse = move |how| match how {
                Rouse::Wake => theirs.wake_now(to),
                Rouse::Ask => {
                    theirs.ask(to, local);
                    theirs.wake(to);
                }
            };
            let outbox = NoticeOutbox::new(slots, (host.id, peer), park_word, rouse);
            Sender::new(place(peer, to, local, thread), outbox)
        };
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for other in 0..host.threads {
            let slots = slots(other);
            senders.push(sender(other, slots.clone()));
            receivers.push(Receiver::new(place(local, thread, peer, other), slots));
        }
        host.open_lane(thread, peer);
        let (own, theirs) = (host.own().clone(), host.memory_of(peer).clone());
        Self {
            thread,
            peer,
            attention: HostMemory::attention(thread, peer),
            own,
            theirs,
            event_queue,
            done: Vec::new(),
            senders,
            waiting: 0,
            receivers,
            polled: Vec::new(),
            hand: 0,
            is_open: true,
            host,
        }
    }

    /// Whether memory of `owner` may be handed over on this lane: the peer's, or our own, which the
    /// peer maps.
    #[inline(always)]
    fn is_between(&self, owner: HostId) -> bool {
        owner == self.peer || owner == self.host.local
    }

    /// What this lane holds of `region`, if the region belongs here and the peer is there.
    #[inline(always)]
    fn window<'r>(&self, region: &'r RemoteRegion) -> Result<&'r Window, OpError> {
        let ours = |w: &&Window| w.issuer() == self.host.id && self.is_between(w.owner());
        let window = region.window().filter(ours).ok_or(OpError::Foreign(region.key()))?;
        self.event_queue.check_peer()?;
        Ok(window)
    }

    fn completed(&mut self, token: u64, value: u64) {
        self.done.push(Event::Completed { token, value });
    }

    /// Notifies `thread`, which exists: in a notice slot, or in the ring if none is free.
    fn notify(&mut self, thread: u32, notice: Notice) {
        match self.senders[thread as usize].notify(notice) {
            Ok(true) => {}
            Ok(false) => self.send(thread, Frame::Notify(notice), Vec::new()),
            Err(violation) => self.broken(violation),
        }
    }

    /// Sends a frame to `thread`, which exists, as far as there is room.
    fn send(&mut self, thread: u32, frame: Frame, payload: Vec<u8>) {
        let sender = &mut self.senders[thread as usize];
        self.waiting += usize::from(!sender.is_waiting());
        sender.push(frame, payload);
        self.advance_sender(thread);
    }

    /// Moves what waits to be sent to `thread`; true if anything moved.
    fn advance_sender(&mut self, thread: u32) -> bool {
        let sender = &mut self.senders[thread as usize];
        match sender.advance() {
            Err(violation) => {
                self.broken(violation);
                false
            }
            Ok(moved) => {
                self.waiting -= usize::from(!sender.is_waiting());
                if moved {
                    self.theirs.ask(thread, self.host.local);
                    self.theirs.wake(thread);
                }
                moved
            }
        }
    }

    /// The peer left in shared memory what no peer of this build leaves there.
    #[cold]
    fn broken(&self, violation: String) {
        let reason = LossReason::Protocol(violation);
        if self.peer == self.host.local {
            // There is no connection that the control plane could end.
            self.host.gone(&PeerEvent::Lost(self.peer, reason));
        } else {
            self.host.lose(self.peer, reason);
        }
    }

    /// It starts no operation any more, and keeps its thread awake for nothing.
    fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.poll_none();
            self.senders.iter().for_each(|sender| sender.outbox().set_open(false));
            self.host.close_lane(self.thread, self.peer);
        }
    }
}

impl Drop for ShmLane {
    fn drop(&mut self) {
        self.close();
    }
}

impl Lane for ShmLane {
    fn peer(&self) -> HostId {
        self.peer
    }

    #[inline]
    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        self.window(to)?.write(at, from)
    }

    #[inline]
    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        self.window(to)?.signal(at, word)
    }

    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError> {
        let value = self.window(from)?.read(at, into)?;
        self.completed(token, value);
        Ok(())
    }

    fn compare_swap(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        expected: u64,
        new: u64,
        token: u64,
    ) -> Result<(), OpError> {
        let old = self.window(on)?.compare_swap(at, expected, new)?;
        self.completed(token, old);
        Ok(())
    }

    fn fetch_add(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
        token: u64,
    ) -> Result<(), OpError> {
        let old = self.window(on)?.fetch_add(at, addend)?;
        self.completed(token, old);
        Ok(())
    }

    fn write_notify(
        &mut self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        OpError::check_thread(thread, self.host.threads, self.peer)?;
        self.write(to, at, from)?;
        let notice = Notice { key: to.key(), at: at as u64, len: from.len() as u64, value };
        self.notify(thread, notice);
        Ok(())
    }

    fn notify(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        len: usize,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        OpError::check_thread(thread, self.host.threads, self.peer)?;
        // Whether the region is revoked does not matter.
        self.window(on)?;
        on.check(at, len, Rights::WRITE)?;
        let notice = Notice { key: on.key(), at: at as u64, len: len as u64, value };
        self.send(thread, Frame::Notify(notice), Vec::new());
        Ok(())
    }

    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        self.event_queue.check_peer()?;
        // Operations are done, and refused, while they are called; but the processor may still read
        // before it has written. Not behind a fence.
        fence(Ordering::SeqCst);
        self.completed(token, 0);
        Ok(())
    }

    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError> {
        OpError::check_thread(thread, self.host.threads, self.peer)?;
        self.event_queue.check_peer()?;
        OpError::check_payload(payload.len())?;
        self.send(thread, Frame::Bulk { tag: tag.0, len: payload.len() }, payload);
        Ok(())
    }

    #[inline]
    fn waiting_notifications(&self, thread: u32) -> usize {
        if self.waiting == 0 {
            return 0;
        }
        let sender = self.senders.get(thread as usize);
        sender.map_or(0, |sender| sender.waiting().notifications())
    }

    fn waiting_bulk(&self, namespace: Namespace) -> usize {
        self.senders.iter().map(|sender| sender.waiting().bulk_bytes(namespace)).sum()
    }

    #[inline]
    fn flush(&mut self) -> Result<(), OpError> {
        self.event_queue.check_peer()
    }

    #[inline]
    fn wake(&mut self, thread: u32) {
        if thread < self.host.threads {
            self.theirs.wake(thread);
        }
    }

    fn park_word(&self, thread: u32) -> Option<PeerParkWord> {
        if thread < self.host.threads { self.theirs.peer_park_word(thread) } else { None }
    }

    fn outboxes(&self) -> Vec<Arc<NoticeOutbox>> {
        self.senders.iter().map(|sender| sender.outbox().clone()).collect()
    }

    fn watch(&self, each: &mut dyn FnMut(Watch)) -> bool {
        each(Watch::Word(self.own.memory(), self.attention.0));
        self.polled.iter().for_each(|polled| each(Watch::Inbox(&polled.inbox)));
        // Behind the word: a request that this does not see changes it.
        !self.is_asked() && self.waiting == 0 && self.done.is_empty()
    }

    #[inline]
    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        if self.peer == self.host.local {
            self.host.polled(self.thread);
        }
        let asked = self.is_asked();
        if !asked && self.waiting == 0 && self.done.is_empty() && self.polled.is_empty() {
            return false;
        }
        let mut any = !self.done.is_empty();
        if any {
            self.done.drain(..).for_each(&mut *sink);
        }
        if asked && !self.event_queue.is_over() {
            any |= self.look(sink);
        } else {
            any |= self.look_at_polled(sink);
        }
        if self.waiting > 0 {
            for thread in 0..self.host.threads {
                if self.senders[thread as usize].is_waiting() {
                    any |= self.advance_sender(thread);
                }
            }
        }
        any
    }
}
