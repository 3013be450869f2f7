//! [`Queue`]: the state of a channel, on the thread where the channel was made.
//!
//! Positions count the values that were ever put in. A sender that puts in more than there is room for
//! gets the position after its last value as a ticket, and waits until the receiver has taken enough
//! values for the ticket to be within the capacity. So values travel once, whether or not their sender
//! has to wait, and keep the order in which they came:
//!
//! ```text
//!   taken                 taken + capacity
//!     | v v v v v v v v v | w w | w w w |
//!     sent                  first  second waiting sender
//! ```

use std::any::Any;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::{Rc, Weak};

use primitive::drop_payload;
use serde::{Deserialize, Serialize};
use transport_api::HostId;
use trust_core::{Deferred, Portable};

use crate::losses::{self, Losses};
use crate::sync::measure;

/// How a put ended, or the wait for room after it.
#[derive(Serialize, Deserialize)]
pub(super) enum Put<T> {
    /// The values are within the capacity.
    Sent,
    /// The sender has to wait, with this ticket.
    Waits(u64),
    /// There is no receiver; here are the values.
    Closed(Vec<T>),
}

/// What the receiver gets.
#[derive(Serialize, Deserialize)]
pub(super) enum Taken<T> {
    One(T),
    Many(VecDeque<T>),
    Empty,
    Lost(HostId),
    Closed,
}

/// The values of a sender that waits for room.
struct Unconfirmed<T> {
    values: u64,
    ticket: u64,
    sender: Option<Deferred<Put<T>>>,
}

/// The state of a channel.
pub(super) struct Queue<T> {
    capacity: u64,
    values: VecDeque<T>,
    taken: u64,
    /// Those beyond the capacity, oldest first.
    unconfirmed: VecDeque<Unconfirmed<T>>,
    /// Values of senders that waited when the receiver went, by ticket.
    returned: HashMap<u64, Vec<T>>,
    has_senders: bool,
    /// The host of the receiver, as far as is known; `None` once that is gone.
    receiver: Option<HostId>,
    /// How often the receiver had travelled when it came there.
    moves: u64,
    waiting: Option<Deferred<()>>,
    /// Lost hosts that were not reported to the receiver yet.
    lost: VecDeque<HostId>,
}

/// The queue as its two properties share it.
pub(super) struct Shared<T>(RefCell<Queue<T>>);

/// The property of the senders: without it, no value comes any more.
pub(super) struct SenderEnd<T: Portable>(Rc<Shared<T>>);

/// The property of the receiver: without it, no value is taken any more.
pub(super) struct ReceiverEnd<T: Portable>(Rc<Shared<T>>);

/// The two ends of a new queue. On the thread of the queue; the receiver is at `receiver`.
pub(super) fn ends<T: Portable>(capacity: u64, receiver: HostId) -> (SenderEnd<T>, ReceiverEnd<T>) {
    let shared = Rc::new(Shared(RefCell::new(Queue {
        capacity,
        values: VecDeque::new(),
        taken: 0,
        unconfirmed: VecDeque::new(),
        returned: HashMap::new(),
        has_senders: true,
        receiver: Some(receiver),
        moves: 0,
        waiting: None,
        lost: VecDeque::new(),
    })));
    let weak: Weak<Shared<T>> = Rc::downgrade(&shared);
    losses::listen(weak);
    (SenderEnd(shared.clone()), ReceiverEnd(shared))
}

impl<T: Portable> Queue<T> {
    fn wake_receiver(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            waiting.reply(());
        }
    }

    /// The position after the last value.
    fn end(&self) -> u64 {
        self.taken + self.values.len() as u64
    }

    fn put(&mut self, values: impl ExactSizeIterator<Item = T>) -> Put<T> {
        if self.receiver.is_none() {
            return Put::Closed(values.collect());
        }
        let count = values.len() as u64;
        self.values.extend(values);
        self.wake_receiver();
        if self.values.len() as u64 <= self.capacity {
            return Put::Sent;
        }
        let ticket = self.end();
        self.unconfirmed.push_back(Unconfirmed { values: count, ticket, sender: None });
        Put::Waits(ticket)
    }

    /// Takes out the senders whose values are within the capacity now. They are to be told.
    fn confirm(&mut self) -> Vec<Deferred<Put<T>>> {
        // No sum with the capacity, which would overflow if that is `usize::MAX`.
        let (taken, capacity) = (self.taken, self.capacity);
        let fits = |first: &mut Unconfirmed<T>| first.ticket.saturating_sub(taken) <= capacity;
        let mut senders = Vec::new();
        while let Some(first) = self.unconfirmed.pop_front_if(fits) {
            senders.extend(first.sender);
        }
        senders
    }

    /// Closes the channel: the receiver is gone.
    fn close(&mut self) -> Closed<T> {
        self.receiver = None;
        self.waiting = None;
        let mut sent = std::mem::take(&mut self.values);
        let mut senders = Vec::new();
        let start = self.taken;
        self.taken += sent.len() as u64;
        // From the back, so that the positions before stay.
        for Unconfirmed { values, ticket, sender } in self.unconfirmed.drain(..).rev() {
            let behind = sent.split_off((ticket - start) as usize);
            // Some may have been taken already.
            let first = (ticket - values).max(start);
            let returned = sent.split_off((first - start) as usize).into();
            sent.extend(behind);
            match sender {
                Some(sender) => senders.push((sender, returned)),
                None => drop(self.returned.insert(ticket, returned)),
            }
        }
        Closed { sent, senders }
    }
}

/// What a closed channel still holds.
#[must_use]
struct Closed<T> {
    /// The values that were sent for good.
    sent: VecDeque<T>,
    /// Senders that wait, with their values, from the last one.
    senders: Vec<(Deferred<Put<T>>, Vec<T>)>,
}

impl<T: Portable> Closed<T> {
    /// Gives the senders their values back and drops the others. That runs code of users, which may use
    /// the channel: the queue must not be borrowed.
    ///
    /// # Panics
    /// With the first panic of that code, at the end: every sender gets its reply.
    fn settle(self) {
        let mut first = None;
        for (sender, values) in self.senders.into_iter().rev() {
            contain(&mut first, || sender.reply(Put::Closed(values)));
        }
        for value in self.sent {
            contain(&mut first, || drop(value));
        }
        if let Some(panic) = first {
            resume_unwind(panic);
        }
    }
}

/// Runs code of users, and keeps its panic if that is the first.
fn contain(first: &mut Option<Box<dyn Any + Send>>, code: impl FnOnce()) {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(()) => {}
        Err(panic) if first.is_none() => *first = Some(panic),
        Err(panic) => drop_payload(panic),
    }
}

impl<T: Portable> SenderEnd<T> {
    pub(super) fn put_one(&self, value: T) -> Put<T> {
        self.0.0.borrow_mut().put(std::iter::once(value))
    }

    pub(super) fn put(&self, values: Vec<T>) -> Put<T> {
        self.0.0.borrow_mut().put(values.into_iter())
    }

    /// As `put_one`, unless the sender would have to wait, who then gets the value back.
    pub(super) fn try_put(&self, value: T) -> Result<(), (bool, T)> {
        let mut queue = self.0.0.borrow_mut();
        if queue.receiver.is_none() {
            return Err((true, value));
        }
        // A queue without room for one value has it while the receiver waits.
        let room = queue.capacity.max(u64::from(queue.waiting.is_some()));
        if queue.values.len() as u64 >= room {
            return Err((false, value));
        }
        queue.values.push_back(value);
        queue.wake_receiver();
        Ok(())
    }

    /// Replies to `sender` when the values before `ticket` are within the capacity.
    pub(super) fn wait_for_room(&self, ticket: u64, sender: Deferred<Put<T>>) {
        let mut queue = self.0.0.borrow_mut();
        let put = if let Some(returned) = queue.returned.remove(&ticket) {
            Put::Closed(returned)
        } else if let Some(waiting) = queue.unconfirmed.iter_mut().find(|w| w.ticket == ticket) {
            waiting.sender = Some(sender);
            return;
        } else {
            Put::Sent
        };
        // The reply runs code of users, as in `Closed::settle`.
        drop(queue);
        sender.reply(put);
    }
}

impl<T: Portable> ReceiverEnd<T> {
    /// Takes a value, or as many as there are and one reply should have.
    pub(super) fn take(&self, many: bool) -> Taken<T> {
        let mut queue = self.0.0.borrow_mut();
        let taken = if many && queue.values.len() > 1 {
            // This runs code of users, which cannot use the channel here: it would have to wait, in
            // delegated context.
            let count = measure::batch(&queue.values);
            let rest = queue.values.split_off(count);
            queue.taken += count as u64;
            Taken::Many(std::mem::replace(&mut queue.values, rest))
        } else if let Some(value) = queue.values.pop_front() {
            queue.taken += 1;
            Taken::One(value)
        } else if let Some(host) = queue.lost.pop_front() {
            return Taken::Lost(host);
        } else if queue.has_senders && queue.receiver.is_some() {
            return Taken::Empty;
        } else {
            return Taken::Closed;
        };
        let senders = queue.confirm();
        drop(queue);
        senders.into_iter().for_each(|sender| sender.reply(Put::Sent));
        taken
    }

    /// Replies to the receiver when there is something to take.
    pub(super) fn wait(&self, receiver: Deferred<()>) {
        let mut queue = self.0.0.borrow_mut();
        let is_open = queue.has_senders && queue.receiver.is_some();
        if !queue.values.is_empty() || !queue.lost.is_empty() || !is_open {
            return receiver.reply(());
        }
        // One that a future began, on another thread perhaps, and whose request came late: it may be the
        // one that is waited for, and looks again.
        if let Some(other) = queue.waiting.replace(receiver) {
            other.reply(());
        }
    }

    /// The receiver has come to a host, after so many moves. A channel that was closed meanwhile, because
    /// the host that it came from was lost, stays closed.
    pub(super) fn moved_to(&self, host: HostId, moves: u64) {
        let mut queue = self.0.0.borrow_mut();
        let queue = &mut *queue;
        // Each host tells by itself, and the word of one that the receiver has left may come last.
        if let Some(receiver) = &mut queue.receiver
            && moves > queue.moves
        {
            (*receiver, queue.moves) = (host, moves);
        }
    }
}

impl<T: Portable> Losses for Shared<T> {
    fn host_lost(&self, host: HostId) {
        let mut queue = self.0.borrow_mut();
        if queue.receiver == Some(host) {
            let closed = queue.close();
            drop(queue);
            closed.settle();
        } else if queue.has_senders {
            queue.lost.push_back(host);
            queue.wake_receiver();
        }
    }
}

impl<T: Portable> Drop for SenderEnd<T> {
    fn drop(&mut self) {
        let returned = {
            let mut queue = self.0.0.borrow_mut();
            queue.has_senders = false;
            queue.wake_receiver();
            std::mem::take(&mut queue.returned)
        };
        drop(returned);
    }
}

impl<T: Portable> Drop for ReceiverEnd<T> {
    fn drop(&mut self) {
        let closed = self.0.0.borrow_mut().close();
        closed.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_no_sum_that_overflows() {
        let (sender, receiver) = ends::<u64>(u64::MAX, HostId(0));
        for n in 0..3 {
            assert!(matches!(sender.put_one(n), Put::Sent));
            assert!(matches!(sender.put(vec![n; 2]), Put::Sent));
            for _ in 0..3 {
                assert!(matches!(receiver.take(false), Taken::One(value) if value == n));
            }
        }
    }

    #[test]
    fn a_receiver_is_where_it_moved_last() {
        let (sender, receiver) = ends::<u64>(1, HostId(0));
        receiver.moved_to(HostId(2), 2);
        receiver.moved_to(HostId(1), 1);
        sender.0.host_lost(HostId(1));
        assert!(matches!(sender.put_one(1), Put::Sent));
        sender.0.host_lost(HostId(2));
        assert!(matches!(sender.put_one(2), Put::Closed(_)));
        receiver.moved_to(HostId(3), 3);
        assert!(matches!(sender.put_one(3), Put::Closed(_)), "it stays closed");
    }

    #[test]
    fn a_ticket_is_behind_the_values_of_its_sender() {
        let (sender, receiver) = ends::<u64>(1, HostId(0));
        assert!(matches!(sender.put_one(1), Put::Sent));
        assert!(matches!(sender.put(vec![2, 3]), Put::Waits(3)));
        assert_eq!(receiver.0.0.borrow().unconfirmed.len(), 1);
        assert!(matches!(receiver.take(false), Taken::One(1)));
        assert_eq!(receiver.0.0.borrow().unconfirmed.len(), 1, "two values, and room for one");
        assert!(matches!(receiver.take(false), Taken::One(2)));
        assert!(receiver.0.0.borrow().unconfirmed.is_empty());
        // More may be taken at once than the tickets say.
        assert!(matches!(sender.put(vec![4, 5]), Put::Waits(5)));
        assert!(matches!(receiver.take(true), Taken::Many(values) if values == [3, 4, 5]));
        assert!(receiver.0.0.borrow().unconfirmed.is_empty());
    }
}
