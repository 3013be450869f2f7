//! What a lane takes from its peer: the notifications in notice slots, those of the threads of the peer
//! that it polls and all others, what the rings carry, and what the service thread has left.

use primitive::sync::Ordering;
use transport_api::{Event, Notice, NoticeInbox, Tag, ThreadId};

use crate::data::lane::ShmLane;
use crate::memory::polled::PolledSenders;
use crate::memory::ring::Arrival;

/// A thread of the peer whose notice slots each poll looks at.
pub(super) struct Polled {
    pub(super) thread: u32,
    /// Its number in the rack, and its entry in the table of this thread.
    sender: u32,
    entry: usize,
    /// Whether a notification has come since it was a candidate for replacement.
    is_used: bool,
    /// The number of the next notification when that was entered in the table, which polls do. Until
    /// then the parker finds those that were taken since, and does not sleep.
    entered: u32,
    /// Its slots, for a thread that polls without the lane.
    pub(super) inbox: NoticeInbox,
}

impl Polled {
    /// Enters the number of its next notification, if any was taken.
    #[inline]
    fn enter(&mut self, table: &PolledSenders, next: u32) {
        if self.entered != next {
            (self.entered, self.is_used) = (next, true);
            table.set(self.entry, self.sender, next);
        }
    }
}

impl ShmLane {
    /// Polls no notice slots any more.
    #[cold]
    pub(super) fn poll_none(&mut self) {
        let table = &self.host.thread_states[self.thread as usize].polled;
        self.polled.drain(..).for_each(|polled| table.release(polled.entry));
    }

    /// Polls the notice slots of `thread` of the peer from now on, which has used them. If the table
    /// of this thread is full, they take the place of a sender that has not used its own for a while.
    #[cold]
    fn admit(&mut self, thread: u32) {
        if self.polled.iter().any(|polled| polled.thread == thread) {
            return;
        }
        let table = &self.host.thread_states[self.thread as usize].polled;
        let sender = self.host.layout.sender(self.peer, thread);
        let receiver = &self.receivers[thread as usize];
        let next = receiver.next_in_slot();
        let from = ThreadId { host: self.peer, thread };
        let inbox = NoticeInbox::new(from, receiver.slots().clone());
        let new = |entry| Polled { thread, sender, entry, is_used: true, entered: next, inbox };
        if let Some(entry) = table.claim(sender, next) {
            self.polled.push(new(entry));
        } else {
            let Some(last) = self.polled.len().checked_sub(1) else { return };
            let hand = self.hand.min(last);
            self.hand = if hand == last { 0 } else { hand + 1 };
            let old = &mut self.polled[hand];
            if std::mem::take(&mut old.is_used) {
                return;
            }
            self.receivers[old.thread as usize].set_polled(false);
            table.set(old.entry, sender, next);
            *old = new(old.entry);
            // For the last look at the slots that are polled no more.
            self.own.ask(self.thread, self.peer);
        }
        self.receivers[thread as usize].set_polled(true);
    }

    /// Takes the notifications out of the slots that are polled; true if there were any.
    #[inline]
    pub(super) fn look_at_polled(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        let (mut any, mut broken) = (false, None);
        let table = &self.host.thread_states[self.thread as usize].polled;
        for polled in &mut self.polled {
            let from = ThreadId { host: self.peer, thread: polled.thread };
            let receiver = &mut self.receivers[polled.thread as usize];
            match receiver.take_slots(&mut |arrival| sink(event(from, arrival))) {
                Ok(count) => {
                    any |= count > 0;
                    polled.enter(table, receiver.next_in_slot());
                }
                Err(violation) => broken = Some(violation),
            }
        }
        if let Some(violation) = broken {
            self.poll_none();
            self.broken(violation);
        }
        any
    }

    /// Whether this thread has been asked to look after this lane.
    #[inline(always)]
    pub(super) fn is_asked(&self) -> bool {
        let (word, bit) = self.attention;
        self.own.memory().load(word, Ordering::Relaxed) & bit != 0
    }

    /// Looks at every ring from the peer, at what was left for this lane, and whether the peer has
    /// ended.
    #[cold]
    pub(super) fn look(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        self.own.take(self.thread, self.peer);
        if self.host.quiet_points.pass(self.thread) {
            self.host.report_quiet();
        }
        // Before the rings, so that what a peer sent before it left is reported before that.
        let end = self.host.end_of(self.peer).cloned();
        let (mut moved, mut more, mut broken) = (self.event_queue.take(sink), false, None);
        // A thread of the peer that uses notice slots.
        let mut user = None;
        for (thread, receiver) in (0..).zip(&mut self.receivers) {
            let from = ThreadId { host: self.peer, thread };
            match receiver.advance(&mut |arrival| sink(event(from, arrival))) {
                Ok(progress) => {
                    if progress.in_slots > 0 {
                        user = Some(thread);
                    }
                    moved |= progress.moved;
                    more |= progress.more;
                    if progress.wake_sender {
                        self.theirs.ask(thread, self.host.local);
                        self.theirs.wake(thread);
                    }
                }
                Err(violation) => {
                    (broken, more) = (Some(violation), false);
                    break;
                }
            }
        }
        if let Some(violation) = broken {
            self.broken(violation);
        }
        let table = &self.host.thread_states[self.thread as usize].polled;
        for polled in &mut self.polled {
            polled.enter(table, self.receivers[polled.thread as usize].next_in_slot());
        }
        if more {
            self.own.ask(self.thread, self.peer);
        } else if let Some(end) = end {
            // Nothing more keeps the thread awake, even if it is asked to look once more.
            self.close();
            self.waiting = 0;
            self.senders = Vec::new();
            self.event_queue.report(&end, sink);
            return true;
        }
        if let Some(thread) = user {
            self.admit(thread);
        }
        moved
    }
}

/// What a ring brought, as an event.
#[inline]
fn event(from: ThreadId, arrival: Arrival) -> Event {
    match arrival {
        Arrival::Bulk { tag, payload } => Event::Bulk { from, tag: Tag(tag), payload },
        Arrival::Notify(Notice { key, at, len, value }) => {
            Event::Notified { from, key, at, len, value }
        }
    }
}
