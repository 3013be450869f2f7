//! [`channel`]: values from any fibers of the rack to one.
//!
//! `queue.rs` has the state; this file has the handles. A call of a handle is one delegated call on its
//! end of the queue, and a second one if it has to wait.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;

use fiber::oneshot;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use transport_api::{HostId, ThreadId};
use trust_core::{DelegateError, Node, Portable, Trust, Trustee, check_may_wait, local_trustee};

use crate::hosts;
use crate::sync::error::{RecvError, SendError, TryRecvError, TrySendError};
use crate::sync::measure::{BATCH_VALUES, Counter};
use crate::sync::queue::{Put, ReceiverEnd, SenderEnd, Taken, ends};

/// A bounded channel from any number of fibers to one: `std::sync::mpsc::sync_channel` for a rack.
///
/// Both handles travel, in arguments, results and captures of spawned fibers; a [`Sender`] is cloned
/// for each fiber that sends. Values arrive in the order in which each fiber sent them. A sender waits
/// while the channel has `capacity` values; with a capacity of 0, until its value is taken.
///
/// The values wait on the thread that made the channel, which is best the receiver's: make it there,
/// or name it with [`channel_on`]. Then each value crosses the rack once, and receiving costs no
/// message. A receiver elsewhere brings many small values at a time.
///
/// ```
/// use gossamer::{Sender, channel, spawn_on_with};
///
/// # gossamer::Rack::new().threads(2).run(|| {
/// let (sender, receiver) = channel::<u64>(64);
/// for thread in gossamer::threads() {
///     let squares = |(sender, start): (Sender<u64>, u64)| {
///         sender.send_all((start..start + 100).map(|n| n * n)).unwrap();
///     };
///     let start = 100 * u64::from(thread.number());
///     drop(spawn_on_with(thread, squares, (sender.clone(), start)));
/// }
/// drop(sender); // the channel is closed when the fibers have dropped theirs
/// let sum: u64 = receiver.into_iter().sum();
/// assert_eq!(sum, 2_646_700);
/// # }).unwrap();
/// ```
///
/// # When a host is lost
///
/// In racks that go on ([`OnPeerLoss::Return`](crate::OnPeerLoss::Return)) the loss is an error and
/// never silence:
///
/// | Lost | Error |
/// |---|---|
/// | the host of the channel | [`SendError::Failed`], [`RecvError::Failed`] |
/// | the host of the receiver | [`SendError::Closed`], as if it was dropped |
/// | any other, which may have senders | [`RecvError::HostLost`], once, after the values that had arrived |
///
/// # Panics
/// Outside a thread of a rack.
#[doc(alias = "mpsc", alias = "sync_channel")]
#[track_caller]
#[must_use]
pub fn channel<T: Portable>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    local_trustee();
    entrust_ends(capacity as u64, hosts::local_host())
}

/// As [`channel()`], with its values at `trustee`: the thread of the fiber that will get the receiver.
///
/// ```
/// use gossamer::{Receiver, channel_on, spawn_on_with};
///
/// # gossamer::Rack::new().threads(2).run(|| {
/// let consumer = gossamer::threads().last().unwrap();
/// let (sender, receiver) = channel_on::<String>(consumer, 16);
/// let longest = |lines: Receiver<String>| lines.into_iter().map(|line| line.len()).max();
/// let longest = spawn_on_with(consumer, longest, receiver);
/// for line in ["one", "three", "five"] {
///     sender.send(line.to_owned()).unwrap();
/// }
/// drop(sender);
/// assert_eq!(longest.join().unwrap(), Some(5));
/// # }).unwrap();
/// ```
///
/// # Panics
/// In delegated context, if `trustee` is another thread; if its host is lost; outside a thread of a
/// rack.
#[track_caller]
pub fn channel_on<T: Portable>(
    trustee: impl Into<Trustee>,
    capacity: usize,
) -> (Sender<T>, Receiver<T>) {
    let arguments = (capacity as u64, hosts::local_host());
    let make = |_: &Node, (capacity, host): (u64, HostId)| entrust_ends::<T>(capacity, host);
    trustee.into().visit_node(make, arguments)
}

/// Makes a channel on this thread, whose receiver is at `host`.
fn entrust_ends<T: Portable>(capacity: u64, host: HostId) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = ends(capacity, host);
    let here = local_trustee();
    let receiver = Receiver::at(here.entrust(receiver), VecDeque::new(), 0);
    (Sender { end: here.entrust(sender) }, receiver)
}

/// Sends values into a [`channel`](channel()). Clone it for each fiber that sends; when the last clone
/// is dropped, the channel is closed.
#[derive(Serialize, Deserialize)]
#[serde(bound = "", transparent)]
pub struct Sender<T: Portable> {
    end: Trust<SenderEnd<T>>,
}

impl<T: Portable> Sender<T> {
    /// Sends a value, and waits while the channel is full.
    ///
    /// # Errors
    /// [`SendError::Closed`] with the value, if the receiver was dropped; [`SendError::Failed`].
    ///
    /// # Panics
    /// In delegated context. [`try_send`](Self::try_send) does not work there either: make the property
    /// a [`Latch`](crate::Latch), and delegate the closure with [`launch`](Trust::launch).
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        check_may_wait("`Sender::send`", Location::caller());
        let put = self.end.try_apply_with(|end, value| end.put_one(value), value);
        self.finish(put).map_err(|error| only(error, self.end.trustee().thread()))
    }

    /// Sends all values of an iterator in order, many small ones in one message, and waits while the
    /// channel is full.
    ///
    /// # Errors
    /// As [`send`](Self::send); those that were not sent of the message that failed are in
    /// [`SendError::Closed`].
    ///
    /// # Panics
    /// As [`send`](Self::send).
    #[track_caller]
    pub fn send_all(&self, values: impl IntoIterator<Item = T>) -> Result<(), SendError<Vec<T>>> {
        check_may_wait("`Sender::send_all`", Location::caller());
        let mut values = values.into_iter();
        let mut next = values.next();
        while let Some(first) = next.take() {
            let mut counter = Counter::new();
            let mut fits = counter.takes(&first);
            let mut batch = vec![first];
            while fits && batch.len() < BATCH_VALUES {
                let Some(value) = values.next() else { break };
                fits = counter.takes(&value);
                if fits {
                    batch.push(value);
                } else {
                    next = Some(value);
                }
            }
            let put = self.end.try_apply_with(|end, values: Vec<T>| end.put(values), batch);
            self.finish(put)?;
            next = next.or_else(|| values.next());
        }
        Ok(())
    }

    /// Waits for room after a put that had none.
    #[track_caller]
    fn finish(&self, put: Result<Put<T>, DelegateError>) -> Result<(), SendError<Vec<T>>> {
        let mut put = put.map_err(SendError::Failed)?;
        loop {
            match put {
                Put::Sent => return Ok(()),
                Put::Closed(values) => return Err(SendError::Closed(values)),
                Put::Waits(ticket) => {
                    let wait =
                        |end: &mut SenderEnd<T>, ticket, sender| end.wait_for_room(ticket, sender);
                    put = self.end.apply_deferred(wait, ticket).map_err(SendError::Failed)?;
                }
            }
        }
    }

    /// Sends a value if the channel has room for it.
    ///
    /// # Errors
    /// [`TrySendError::Full`] and [`TrySendError::Closed`] with the value; [`TrySendError::Failed`].
    ///
    /// # Panics
    /// As [`send`](Self::send): this waits for the reply of the channel's thread.
    #[track_caller]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        check_may_wait("`Sender::try_send`", Location::caller());
        match self.end.try_apply_with(|end, value| end.try_put(value), value) {
            Ok(Ok(())) => Ok(()),
            Ok(Err((true, value))) => Err(TrySendError::Closed(value)),
            Ok(Err((false, value))) => Err(TrySendError::Full(value)),
            Err(error) => Err(TrySendError::Failed(error)),
        }
    }

    /// The thread that has the channel.
    pub fn trustee(&self) -> Trustee {
        self.end.trustee()
    }
}

/// The error of a send of one value, from that of several.
fn only<T>(error: SendError<Vec<T>>, trustee: ThreadId) -> SendError<T> {
    match error {
        SendError::Failed(error) => SendError::Failed(error),
        SendError::Closed(mut values) => match values.pop() {
            Some(value) => SendError::Closed(value),
            // A value that was taken is within the capacity, so that it was sent. But the reply comes from
            // a host that may be hostile.
            None => SendError::Failed(DelegateError::Refused {
                trustee,
                reason: "the channel has kept the value, and says that it is closed".to_owned(),
            }),
        },
    }
}

impl<T: Portable> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { end: self.end.clone() }
    }
}

impl<T: Portable> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender<{}>", std::any::type_name::<T>())
    }
}

/// Receives the values of a [`channel`](channel()). When it is dropped, senders get
/// [`SendError::Closed`], and values that were not received are dropped.
///
/// On another thread than the channel's it brings many values at a time, which travel with it when it
/// is sent on.
///
/// The channel learns where its receiver is from the host that the receiver has come to. One that is on its
/// way counts as being where it was last. If it is on its way to a host that is lost, it is lost with that
/// host, but the channel is not closed: its senders wait. Where that matters, have the fiber that gets a
/// receiver say so before you send to it.
pub struct Receiver<T: Portable> {
    pub(super) end: Trust<ReceiverEnd<T>>,
    /// Values that have been brought here.
    pub(super) buffer: VecDeque<T>,
    /// How often it has travelled.
    moves: u64,
    /// The wait for something to take that a future has begun, for the next one to go on with.
    pub(super) waits: Option<oneshot::Receiver<Result<(), RecvError>>>,
}

impl<T: Portable> Receiver<T> {
    fn at(end: Trust<ReceiverEnd<T>>, buffer: VecDeque<T>, moves: u64) -> Self {
        Receiver { end, buffer, moves, waits: None }
    }

    /// The next value; waits until there is one.
    ///
    /// # Errors
    /// [`RecvError`]: the channel is closed, or a host was lost.
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn recv(&mut self) -> Result<T, RecvError> {
        check_may_wait("`Receiver::recv`", Location::caller());
        loop {
            match self.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Failed(error)) => return Err(error),
                Err(TryRecvError::Empty) => {
                    let wait = |end: &mut ReceiverEnd<T>, (), receiver| end.wait(receiver);
                    self.end.apply_deferred(wait, ()).map_err(RecvError::Failed)?;
                }
            }
        }
    }

    /// The next value, if there is one now.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`], if there is none; otherwise as [`recv`](Self::recv).
    ///
    /// # Panics
    /// In delegated context.
    #[track_caller]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        if let Some(value) = self.buffer.pop_front() {
            return Ok(value);
        }
        check_may_wait("`Receiver::try_recv`", Location::caller());
        let many = !self.end.is_local();
        let taken = self.end.try_apply_with(|end, many| end.take(many), many);
        match taken.map_err(RecvError::Failed)? {
            Taken::One(value) => Ok(value),
            Taken::Many(values) => {
                self.buffer = values;
                self.buffer.pop_front().ok_or(TryRecvError::Empty)
            }
            Taken::Empty => Err(TryRecvError::Empty),
            Taken::Lost(host) => Err(RecvError::HostLost(host).into()),
            Taken::Closed => Err(RecvError::Closed.into()),
        }
    }

    /// The thread that has the channel.
    pub fn trustee(&self) -> Trustee {
        self.end.trustee()
    }
}

impl<T: Portable> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver<{}>", std::any::type_name::<T>())
    }
}

impl<T: Portable> Serialize for Receiver<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.end, &self.buffer, self.moves + 1).serialize(serializer)
    }
}

impl<'de, T: Portable> Deserialize<'de> for Receiver<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (end, buffer, moves) =
            <(Trust<ReceiverEnd<T>>, VecDeque<T>, u64)>::deserialize(deserializer)?;
        // So that the channel is closed when this host is lost. If the channel's is lost, the receiver
        // learns of that when it receives.
        let moved = |end: &mut ReceiverEnd<T>, (host, moves)| end.moved_to(host, moves);
        end.try_apply_with_then(moved, (hosts::local_host(), moves), drop);
        Ok(Receiver::at(end, buffer, moves))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_closes_and_keeps_the_value_is_an_error() {
        let trustee = ThreadId { host: HostId(1), thread: 0 };
        let closed = |values: Vec<u8>| only(SendError::Closed(values), trustee);
        assert!(matches!(closed(vec![7]), SendError::Closed(7)));
        let SendError::Failed(error) = closed(vec![]) else { panic!("there is no value") };
        assert!(error.to_string().contains("has kept the value"), "{error}");
    }
}
