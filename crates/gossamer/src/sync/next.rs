//! Waiting for a value of a channel beside other things, and not for long: [`Receiver::next`] and
//! [`Receiver::recv_timeout`].
//!
//! Values are taken by the poll that returns them. What a future waits for before that is only the word
//! of the channel's thread that there is something to take, so a future that is dropped loses no value.
//! That wait stays with the receiver, whose next future goes on with it: a loop of `select!` does not
//! send a request in each of its rounds.

use std::fmt;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use fiber::oneshot;
use trust_core::Portable;

use crate::sync::channel::Receiver;
use crate::sync::error::{RecvError, RecvTimeoutError, TryRecvError};
use crate::sync::queue::ReceiverEnd;

impl<T: Portable> Receiver<T> {
    /// The next value as a future, for [`select!`](crate::select) and
    /// [`block_on`](crate::block_on). Dropping it loses no value.
    ///
    /// The poll that returns a value of a channel on another thread waits for the values of the channel
    /// to be brought, and no other branch is looked at meanwhile. After a future that was dropped, the
    /// receiver counts as waiting until it gets a value: a [`try_send`](crate::Sender::try_send) into a
    /// channel of capacity 0 finds room, once.
    ///
    /// ```
    /// use gossamer::{after, channel, select};
    /// use std::time::Duration;
    ///
    /// # gossamer::Rack::new().threads(2).run(|| {
    /// let (lines, mut next_line) = channel::<String>(16);
    /// let (numbers, mut next_number) = channel::<u64>(16);
    /// gossamer::spawn(move || lines.send("seven".to_owned()).unwrap());
    /// gossamer::spawn(move || numbers.send(7).unwrap());
    /// let (mut line, mut number) = (None, None);
    /// while line.is_none() || number.is_none() {
    ///     select! {
    ///         got = next_line.next(), if line.is_none() => line = Some(got.unwrap()),
    ///         got = next_number.next(), if number.is_none() => number = Some(got.unwrap()),
    ///         () = after(Duration::from_secs(60)) => panic!("a sender hangs"),
    ///     }
    /// }
    /// assert_eq!((line.as_deref(), number), (Some("seven"), Some(7)));
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The future's: as [`recv`](Self::recv).
    ///
    /// # Panics
    /// Polling it panics in delegated context.
    #[expect(clippy::should_implement_trait, reason = "futures of several things are named `next`")]
    pub fn next(&mut self) -> Next<'_, T> {
        Next(self)
    }

    /// As [`recv`](Self::recv), for up to `timeout`.
    ///
    /// A receiver on another thread than the channel's asks that thread first, also with a timeout of
    /// zero: use [`try_recv`](Self::try_recv) to look without a limit.
    ///
    /// ```
    /// use gossamer::{RecvTimeoutError, channel};
    /// use std::time::Duration;
    ///
    /// # gossamer::Rack::new().threads(2).run(|| {
    /// let (sender, mut receiver) = channel::<u64>(1);
    /// let none = receiver.recv_timeout(Duration::from_millis(1));
    /// assert!(matches!(none, Err(RecvTimeoutError::Timeout)));
    /// sender.send(7).unwrap();
    /// assert_eq!(receiver.recv_timeout(Duration::from_secs(60)).unwrap(), 7);
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`RecvTimeoutError::Timeout`] if there is no value by then; otherwise as [`recv`](Self::recv).
    ///
    /// # Panics
    /// In delegated context, and outside a fiber.
    #[track_caller]
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        let (deadline, place) = (fiber::deadline_after(timeout), Location::caller());
        let next = pin!(self.next());
        match fiber::drive_until("`Receiver::recv_timeout`", next, deadline, place) {
            Some(received) => Ok(received?),
            None => Err(RecvTimeoutError::Timeout),
        }
    }

    /// Has the channel's thread tell when there is something to take.
    fn ask(&self) -> oneshot::Receiver<Result<(), RecvError>> {
        let (told, waits) = oneshot::channel();
        let wait = |end: &mut ReceiverEnd<T>, (), receiver| end.wait(receiver);
        self.end.apply_deferred_then(wait, (), |outcome: Result<(), _>| {
            told.send(outcome.map_err(RecvError::Failed));
        });
        waits
    }
}

/// The next value of a [`Receiver`]: [`Receiver::next`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Next<'a, T: Portable>(&'a mut Receiver<T>);

impl<T: Portable> Future for Next<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let receiver = &mut *self.get_mut().0;
        loop {
            // Elsewhere, a request that finds nothing would be in vain, and would not end with a timeout.
            let mut looks = !receiver.buffer.is_empty();
            if !looks && let Some(waits) = &mut receiver.waits {
                let Poll::Ready(told) = Pin::new(waits).poll(context) else { return Poll::Pending };
                receiver.waits = None;
                // Without an outcome the thread that waited has ended: ask again, from this one.
                if let Some(told) = told {
                    told?;
                    looks = true;
                }
            } else if !looks {
                looks = receiver.end.is_local();
            }
            if looks {
                match receiver.try_recv() {
                    Ok(value) => return Poll::Ready(Ok(value)),
                    Err(TryRecvError::Failed(error)) => return Poll::Ready(Err(error)),
                    Err(TryRecvError::Empty) => {}
                }
            }
            receiver.waits = Some(receiver.ask());
        }
    }
}

impl<T: Portable> fmt::Debug for Next<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Next").field(&self.0).finish()
    }
}
