//! One value from a runtime thread to a task of an async runtime, which must not block its thread.
//!
//! The [`Receiver`] is a future and needs no particular runtime. Everything is decided under one lock;
//! wakers are called, cloned and dropped without it, because they are the program's code.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

enum State<T> {
    /// With the task that waits, once it has been polled.
    Waiting(Option<Waker>),
    Sent(T),
    /// The sender was dropped.
    Dropped,
    Taken,
}

/// A sender and a receiver of one value.
///
/// ```
/// let (sender, receiver) = gossamer_fiber::oneshot::channel();
/// std::thread::spawn(move || sender.send(42));
/// # use std::{future::Future, sync::Arc, task, thread};
/// # struct Unpark(thread::Thread);
/// # impl task::Wake for Unpark {
/// #     fn wake(self: Arc<Self>) {
/// #         self.0.unpark();
/// #     }
/// # }
/// # fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
/// #     let waker = task::Waker::from(Arc::new(Unpark(thread::current())));
/// #     loop {
/// #         match std::pin::Pin::new(&mut future).poll(&mut task::Context::from_waker(&waker)) {
/// #             task::Poll::Ready(value) => return value,
/// #             task::Poll::Pending => thread::park(),
/// #         }
/// #     }
/// # }
/// assert_eq!(block_on(receiver), Some(42)); // `receiver.await` in a task
/// ```
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = Arc::new(Mutex::new(State::Waiting(None)));
    (Sender(state.clone()), Receiver(state))
}

/// Sends the value, from any thread. Dropping it instead ends the [`Receiver`] without a value.
#[must_use = "dropping a sender ends its receiver without a value"]
pub struct Sender<T>(Arc<Mutex<State<T>>>);

impl<T> Sender<T> {
    /// Sends the value, and wakes the task that waits for it. If the receiver is gone, the value is
    /// dropped.
    pub fn send(self, value: T) {
        self.end(State::Sent(value));
    }

    /// Without effect if it has ended.
    fn end(&self, end: State<T>) {
        let mut state = self.0.lock();
        if let State::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = end;
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.end(State::Dropped);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

/// The future of the value; `None` if the sender was dropped.
#[must_use = "a future does nothing for you unless it is awaited"]
pub struct Receiver<T>(Arc<Mutex<State<T>>>);

impl<T> Receiver<T> {
    /// Whether it is ready, or has been.
    pub fn has_ended(&self) -> bool {
        !matches!(*self.0.lock(), State::Waiting(_))
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    /// # Panics
    /// After it has returned the value.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let waker = context.waker().clone();
        let mut state = self.0.lock();
        if let State::Waiting(waiting) = &mut *state {
            let replaced = waiting.replace(waker);
            drop(state);
            drop(replaced);
            return Poll::Pending;
        }
        let ended = mem::replace(&mut *state, State::Taken);
        drop(state);
        match ended {
            State::Sent(value) => Poll::Ready(Some(value)),
            State::Dropped => Poll::Ready(None),
            State::Waiting(_) | State::Taken => panic!("a receiver was polled after its end"),
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("has_ended", &self.has_ended()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::thread;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (count.clone(), Waker::from(count))
    }

    fn poll<T>(receiver: &mut Receiver<T>, waker: &Waker) -> Poll<Option<T>> {
        Pin::new(receiver).poll(&mut Context::from_waker(waker))
    }

    fn woken(count: &Count) -> usize {
        count.0.load(Ordering::Relaxed)
    }

    #[test]
    fn the_task_that_polled_last_is_woken_once() {
        let (sender, mut receiver) = channel();
        let [(first, first_waker), (last, last_waker)] = [count(), count()];
        assert_eq!(poll(&mut receiver, &first_waker), Poll::Pending);
        assert_eq!(poll(&mut receiver, &last_waker), Poll::Pending);
        assert_eq!(Arc::strong_count(&first), 2, "its waker was replaced");
        assert!(!receiver.has_ended());
        sender.send(7);
        assert_eq!((woken(&first), woken(&last)), (0, 1));
        assert!(receiver.has_ended());
        assert_eq!(poll(&mut receiver, &last_waker), Poll::Ready(Some(7)));
        assert_eq!(woken(&last), 1);
    }

    #[test]
    fn a_value_that_was_sent_before_is_there() {
        let (sender, mut receiver) = channel();
        sender.send(Box::new(7));
        let (never, waker) = count();
        assert_eq!(poll(&mut receiver, &waker), Poll::Ready(Some(Box::new(7))));
        assert_eq!(woken(&never), 0);
    }

    #[test]
    fn dropping_the_sender_ends_the_receiver() {
        let (sender, mut receiver) = channel::<u32>();
        let (once, waker) = count();
        assert_eq!(poll(&mut receiver, &waker), Poll::Pending);
        drop(sender);
        assert_eq!(woken(&once), 1);
        assert_eq!(poll(&mut receiver, &waker), Poll::Ready(None));
    }

    #[test]
    fn a_value_without_a_receiver_is_dropped() {
        let (sender, receiver) = channel();
        let value = Arc::new(());
        drop(receiver);
        sender.send(value.clone());
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    #[should_panic(expected = "polled after its end")]
    fn a_receiver_that_has_ended_must_not_be_polled() {
        let (sender, mut receiver) = channel();
        sender.send(7);
        let (_, waker) = count();
        assert_eq!(poll(&mut receiver, &waker), Poll::Ready(Some(7)));
        let _ = poll(&mut receiver, &waker);
    }

    #[test]
    fn a_thread_that_parks_is_woken() {
        struct Unpark(thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        for number in 0..1000 {
            let (sender, mut receiver) = channel();
            let sending = thread::spawn(move || sender.send(number));
            let received = loop {
                match poll(&mut receiver, &waker) {
                    Poll::Ready(received) => break received,
                    // Without a limit: a lost wake hangs here.
                    Poll::Pending => thread::park(),
                }
            };
            assert_eq!(received, Some(number));
            sending.join().expect("no panic");
        }
    }
}
