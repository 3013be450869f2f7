//! Every interleaving of arriving notifications with waiters that wait, time out and see the end: no
//! wake is lost. Run by `cargo xtask loom`.
#![cfg(loom)]

/// The shipped queue, a private module of the crate.
#[allow(dead_code, reason = "a model uses a part of it")]
#[path = "../src/notification"]
mod notification {
    pub(crate) mod callback;
    pub(crate) mod queue;

    pub(crate) use gossamer_segment::Notification;
}

use std::sync::Arc;
use std::task::{Wake, Waker};

use gossamer_segment::HostId;
use loom::thread;
use notification::Notification;
use notification::queue::{CAPACITY, Closed, Queue, Turn, Waiter};

fn note(offset: usize) -> Notification {
    Notification { from: HostId(1), offset, len: 8, missed: 0 }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn unpark() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

/// Takes `count` notifications, or as many as come, parking without a limit; a lost wake is a
/// deadlock, which loom reports.
fn take(queue: &Arc<Queue>, count: usize) -> usize {
    let waker = unpark();
    let mut waiter = Waiter::new(queue);
    let mut taken = 0;
    while taken < count {
        match waiter.take_or_wait(&waker) {
            Ok(Some(_)) => taken += 1,
            Ok(None) => thread::park(),
            Err(Closed) => break,
        }
    }
    taken
}

/// Gives a callback its next turns, as an attached thread does.
fn end_turns(queue: &Queue, mut turn: Turn) {
    while turn == Turn::Next {
        turn = queue.next_turn();
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

#[test]
fn a_waiter_gets_what_two_threads_push() {
    model(|| {
        let queue = Arc::new(Queue::new());
        let pushers: Vec<_> = (0..2)
            .map(|at| {
                let queue = queue.clone();
                thread::spawn(move || end_turns(&queue, queue.push(note(at))))
            })
            .collect();
        assert_eq!(take(&queue, 2), 2);
        pushers.into_iter().for_each(|pusher| pusher.join().expect("a pusher"));
    });
}

#[test]
fn a_waiter_that_gives_up_takes_no_wake_with_it() {
    model(|| {
        let queue = Arc::new(Queue::new());
        let (stays, leaves) = (queue.clone(), queue.clone());
        let stays = thread::spawn(move || take(&stays, 1));
        let leaves = thread::spawn(move || {
            let _ = Waiter::new(&leaves).take_or_wait(&unpark());
        });
        assert_eq!(queue.push(note(0)), Turn::Over);
        assert_eq!(queue.push(note(1)), Turn::Over);
        leaves.join().expect("one that leaves");
        assert_eq!(stays.join().expect("one that stays"), 1);
    });
}

#[test]
fn the_end_wakes_every_waiter() {
    model(|| {
        let queue = Arc::new(Queue::new());
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || take(&queue, 2))
            })
            .collect();
        assert_eq!(queue.push(note(0)), Turn::Over);
        queue.close();
        let taken = waiters.into_iter().map(|waiter| waiter.join().expect("a waiter"));
        assert_eq!(taken.sum::<usize>(), 1);
    });
}

#[test]
fn a_callback_gets_what_comes_while_it_is_set() {
    model(|| {
        let queue = Arc::new(Queue::new());
        let called = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let pushers: Vec<_> = (0..2)
            .map(|at| {
                let queue = queue.clone();
                thread::spawn(move || end_turns(&queue, queue.push(note(at))))
            })
            .collect();
        let count = called.clone();
        let turn = queue.set_callback(Box::new(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }));
        end_turns(&queue, turn);
        pushers.into_iter().for_each(|pusher| pusher.join().expect("a pusher"));
        assert_eq!(called.load(std::sync::atomic::Ordering::Relaxed), 2);
        assert_eq!(queue.take(), Ok(None));
    });
}

/// What comes while a turn goes on, or between two turns, is not left behind.
#[test]
fn a_callback_gets_what_comes_between_two_turns() {
    model(|| {
        let queue = Arc::new(Queue::new());
        let called = Arc::new(std::sync::atomic::AtomicU64::new(0));
        (0..CAPACITY).for_each(|at| assert_eq!(queue.push(note(at)), Turn::Over));
        let pusher = {
            let queue = queue.clone();
            thread::spawn(move || end_turns(&queue, queue.push(note(CAPACITY))))
        };
        let count = called.clone();
        let turn = queue.set_callback(Box::new(move |one| {
            count.fetch_add(1 + one.missed, std::sync::atomic::Ordering::Relaxed);
        }));
        end_turns(&queue, turn);
        pusher.join().expect("a pusher");
        let called = called.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(called, CAPACITY as u64 + 1);
        assert_eq!(queue.take(), Ok(None));
    });
}
