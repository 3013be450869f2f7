//! The queue by itself: order, gaps, wakers, callbacks, the file.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Wake, Waker};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec};
use transport_api::HostId;

use crate::notification::queue::{CAPACITY, Closed, Queue, Taken, Turn, Waiter};
use crate::notification::{Notification, callback};

fn note(offset: usize) -> Notification {
    Notification { from: HostId(1), offset, len: 8, missed: 0 }
}

fn queue() -> Arc<Queue> {
    Arc::new(Queue::new())
}

fn push_all(queue: &Queue, count: usize) {
    (0..count).for_each(|at| assert_eq!(queue.push(note(at)), Turn::Over));
}

fn offset(taken: Taken) -> usize {
    taken.expect("an open queue").expect("a notification").offset
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn is_readable(queue: &Queue) -> bool {
    let file = queue.file().expect("a file");
    let mut files = [PollFd::new(&file, PollFlags::IN)];
    rustix::event::poll(&mut files, Some(&Timespec::default())).expect("a poll") == 1
}

#[test]
fn notifications_keep_their_order_and_the_last_ones_stay() {
    let queue = queue();
    push_all(&queue, CAPACITY + 3);
    let first = queue.take().expect("an open queue").expect("a notification");
    assert_eq!((first.offset, first.missed), (3, 3), "three were dropped right before it");
    let _ = queue.push(note(7000));
    for at in 4..CAPACITY + 3 {
        let next = queue.take().expect("an open queue").expect("a notification");
        assert_eq!((next.offset, next.missed), (at, 0));
    }
    assert_eq!(offset(queue.take()), 7000);
    assert_eq!(queue.take(), Ok(None));
    // A gap is reported though nothing comes behind it.
    push_all(&queue, 2 * CAPACITY);
    let all = std::iter::from_fn(|| queue.take().expect("an open queue"));
    let (count, missed) = all.fold((0, 0), |(n, missed), one| (n + 1, missed + one.missed));
    assert_eq!((count, missed), (CAPACITY, CAPACITY as u64));
}

#[test]
fn a_waiter_that_gives_up_leaves_nothing() {
    let queue = queue();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut keeps = Waiter::new(&queue);
    assert_eq!(keeps.take_or_wait(&waker), Ok(None));
    for _ in 0..100 {
        let mut gives_up = Waiter::new(&queue);
        for _ in 0..10 {
            // Woken otherwise, it looks again.
            assert_eq!(gives_up.take_or_wait(&waker), Ok(None));
        }
        assert_eq!(queue.waiters(), 2);
    }
    assert_eq!(queue.waiters(), 1);
    let _ = queue.push(note(1));
    assert_eq!((queue.waiters(), count.get()), (0, 1));
    assert_eq!(offset(keeps.take_or_wait(&waker)), 1);
    assert_eq!(queue.waiters(), 0);
}

#[test]
fn all_waiters_are_woken_by_a_push_and_by_the_end() {
    let queue = queue();
    let counts: Vec<_> = (0..3).map(|_| Arc::new(Count::default())).collect();
    let mut waiters: Vec<_> = counts.iter().map(|_| Waiter::new(&queue)).collect();
    let mut look = || -> Vec<Taken> {
        let wakers = counts.iter().map(|count| Waker::from(count.clone()));
        waiters.iter_mut().zip(wakers).map(|(waiter, waker)| waiter.take_or_wait(&waker)).collect()
    };
    let woken = || counts.iter().map(|count| count.get()).collect::<Vec<_>>();
    assert_eq!(look(), [Ok(None), Ok(None), Ok(None)]);
    let _ = queue.push(note(5));
    assert_eq!(woken(), [1, 1, 1]);
    assert_eq!(look(), [Ok(Some(note(5))), Ok(None), Ok(None)]);
    queue.end();
    assert_eq!(woken(), [1, 2, 2]);
    look();
    let _ = queue.push(note(6));
    queue.close();
    let _ = queue.push(note(7));
    assert_eq!(look(), [Ok(Some(note(6))), Err(Closed), Err(Closed)]);
}

/// A waker whose clone and drop come back to the queue, as those of a runtime may.
struct Nosy(Arc<Queue>);

impl Wake for Nosy {
    fn wake(self: Arc<Self>) {
        assert_eq!(self.0.push(note(9)), Turn::Over);
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        self.0.is_ready();
    }
}

#[test]
fn wakers_are_used_without_the_lock() {
    let queue = queue();
    let mut waiter = Waiter::new(&queue);
    let nosy = || Waker::from(Arc::new(Nosy(queue.clone())));
    assert_eq!(waiter.take_or_wait(&nosy()), Ok(None));
    assert_eq!(waiter.take_or_wait(&nosy()), Ok(None), "the first waker is dropped here");
    let _ = queue.push(note(8));
    assert_eq!(offset(queue.take()), 8);
    assert_eq!(offset(queue.take()), 9, "what the waker has pushed");
    assert_eq!(waiter.take_or_wait(&nosy()), Ok(None));
    drop(waiter);
    assert_eq!(queue.waiters(), 0);
}

#[test]
fn the_file_is_readable_while_there_is_something() {
    let queue = queue();
    let _ = queue.push(note(1));
    assert!(is_readable(&queue), "what came before it was asked for counts");
    let _ = queue.push(note(2));
    assert_eq!(offset(queue.take()), 1);
    assert!(is_readable(&queue));
    assert_eq!(offset(queue.take()), 2);
    assert!(!is_readable(&queue));
    assert_eq!(queue.take(), Ok(None));
    let _ = queue.push(note(3));
    queue.close();
    assert_eq!(offset(queue.take()), 3);
    assert!(is_readable(&queue), "nothing will come");
    let ended = Queue::new();
    assert!(!is_readable(&ended));
    let _ = ended.push(note(4));
    ended.end();
    assert_eq!(offset(ended.take()), 4);
    assert!(is_readable(&ended));
}

#[test]
fn a_callback_takes_what_waits_and_what_comes() {
    let queue = queue();
    let (sender, received) = mpsc::channel();
    let _ = queue.push(note(1));
    let _ = queue.push(note(2));
    let _ = queue.set_callback(Box::new(move |one| sender.send(one.offset).expect("a receiver")));
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [1, 2]);
    let _ = queue.push(note(3));
    assert_eq!((received.try_recv(), queue.take()), (Ok(3), Ok(None)));
    // Another one replaces it, which drops it.
    let _ = queue.set_callback(Box::new(|_| ()));
    assert_eq!(received.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

#[test]
fn the_file_is_not_readable_once_a_callback_has_taken_all() {
    let queue = queue();
    assert!(!is_readable(&queue));
    push_all(&queue, 3);
    assert!(is_readable(&queue));
    assert_eq!(queue.set_callback(Box::new(|_| {})), Turn::Over);
    assert!(!is_readable(&queue), "nothing is left");
    push_all(&queue, 3);
    assert!(!is_readable(&queue));
    queue.close();
    assert!(is_readable(&queue), "the end");
}

#[test]
fn a_callback_may_push_replace_itself_and_close() {
    let queue = queue();
    let (sender, received) = mpsc::channel();
    let (inner, second) = (queue.clone(), sender.clone());
    let _ = queue.set_callback(Box::new(move |one| {
        sender.send(one.offset).expect("a receiver");
        if one.offset < 3 {
            let _ = inner.push(note(one.offset + 1));
            return;
        }
        let (sender, last) = (second.clone(), inner.clone());
        let _ = inner.set_callback(Box::new(move |one| {
            sender.send(100 + one.offset).expect("a receiver");
            last.close();
        }));
    }));
    let _ = queue.push(note(1));
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    let _ = queue.push(note(4));
    let _ = queue.push(note(5));
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [104]);
    let closed = received.try_recv();
    assert_eq!(closed, Err(mpsc::TryRecvError::Disconnected), "both callbacks are dropped");
    assert_eq!(queue.take(), Err(Closed));
    let _ = queue.set_callback(Box::new(|_| panic!("nothing comes")));
}

/// A callback that is notified of each of its calls has its turns; another one of the program takes over
/// between two of them.
#[test]
fn a_turn_of_a_callback_ends() {
    let queue = queue();
    let calls = Arc::new(AtomicUsize::new(0));
    let (inner, count) = (queue.clone(), calls.clone());
    assert_eq!(queue.push(note(1)), Turn::Over);
    let turn = queue.set_callback(Box::new(move |one| {
        assert_eq!(one.offset, 1 + count.fetch_add(1, Ordering::Relaxed));
        assert_eq!(inner.push(note(one.offset + 1)), Turn::Over);
    }));
    assert_eq!((turn, calls.load(Ordering::Relaxed)), (Turn::Next, CAPACITY));
    // What comes meanwhile waits for the next turn, too.
    assert_eq!(queue.push(note(CAPACITY + 2)), Turn::Over);
    assert_eq!((calls.load(Ordering::Relaxed), queue.waiting()), (CAPACITY, 2));
    let (sender, received) = mpsc::channel();
    let last = Box::new(move |one: Notification| sender.send(one.offset).expect("a receiver"));
    assert_eq!(queue.set_callback(last), Turn::Over);
    assert_eq!(received.try_recv(), Err(mpsc::TryRecvError::Empty));
    assert_eq!(queue.next_turn(), Turn::Over);
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [CAPACITY + 1, CAPACITY + 2]);
    assert_eq!(queue.push(note(7)), Turn::Over);
    assert_eq!(received.try_recv(), Ok(7), "at once, as before");
}

#[test]
fn a_callback_that_panics_is_called_no_more() {
    let queue = queue();
    let count = Arc::new(Count::default());
    let mut waiter = Waiter::new(&queue);
    assert_eq!(waiter.take_or_wait(&Waker::from(count.clone())), Ok(None));
    let _ = queue.push(note(1));
    let _ = queue.push(note(2));
    let _ = queue.set_callback(Box::new(|one| {
        assert!(callback::is_running());
        let place = std::panic::Location::caller();
        if one.offset == 1 {
            callback::check_may_wait("the wait of a test", place);
        }
    }));
    assert!(!callback::is_running());
    assert_eq!(offset(queue.take()), 2, "what came behind it waits");
    let _ = queue.push(note(3));
    assert_eq!(offset(queue.take()), 3);
    assert_eq!(count.get(), 1);
}

/// Everything at once: pushers, takers that wait, takers that give up, and a callback for a while.
/// Every notification is taken once.
#[test]
fn nothing_is_lost_among_many() {
    const PUSHERS: usize = 3;
    const EACH: usize = 20_000;
    let queue = queue();
    let taken = Arc::new(AtomicUsize::new(0));
    let begin = Arc::new(Barrier::new(PUSHERS + 2));
    let unpark = || {
        struct Unpark(thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        Waker::from(Arc::new(Unpark(thread::current())))
    };
    thread::scope(|scope| {
        let pushers: Vec<_> = (0..PUSHERS)
            .map(|_| {
                scope.spawn(|| {
                    begin.wait();
                    for at in 0..EACH {
                        // No more than the queue holds, so that none is dropped.
                        while queue.waiting() > CAPACITY / 2 {
                            thread::yield_now();
                        }
                        let _ = queue.push(note(at));
                    }
                })
            })
            .collect();
        for number in 0..2 {
            let (queue, taken, begin) = (&queue, &taken, &begin);
            scope.spawn(move || {
                begin.wait();
                let waker = unpark();
                let mut waiter = Waiter::new(queue);
                loop {
                    match waiter.take_or_wait(&waker) {
                        Ok(Some(_)) => _ = taken.fetch_add(1, Ordering::Relaxed),
                        // Parked without a limit: a lost wake hangs here.
                        Ok(None) if number == 0 => thread::park(),
                        Ok(None) => waiter = Waiter::new(queue),
                        Err(Closed) => return,
                    }
                }
            });
        }
        pushers.into_iter().for_each(|pusher| pusher.join().expect("a pusher"));
        while taken.load(Ordering::Relaxed) < PUSHERS * EACH {
            thread::yield_now();
        }
        queue.close();
    });
    assert_eq!(taken.load(Ordering::Relaxed), PUSHERS * EACH);
    assert_eq!(queue.waiters(), 0);
}
