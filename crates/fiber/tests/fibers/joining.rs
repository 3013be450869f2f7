//! Results, panics and cancellations on their way to the joiner, within and across threads.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use gossamer_fiber::{
    Builder, Config, JoinError, Promise, Remote, Scheduler, SpawnError, name, park, spawn_local,
    unparker, yield_now,
};

fn scheduler() -> Scheduler {
    Scheduler::new(Config::default()).unwrap()
}

fn settle(scheduler: &Scheduler) {
    while scheduler.run(64) > 0 {}
}

/// A thread with a scheduler that sleeps when nothing is to be done.
struct Worker {
    remote: Remote,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<usize>>,
}

impl Worker {
    fn start() -> Worker {
        let (send, receive) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let worker = thread::current();
            let config = Config { wake: Arc::new(move || worker.unpark()), ..Config::default() };
            let scheduler = Scheduler::new(config).unwrap();
            send.send(scheduler.remote()).unwrap();
            while !stopped.load(Ordering::Acquire) {
                if scheduler.run(64) == 0 && !scheduler.drain_inbox() {
                    thread::park();
                }
            }
            scheduler.abandon()
        });
        Worker { remote: receive.recv().unwrap(), stop, thread: Some(thread) }
    }

    /// Ends the thread and returns how many fibers it unwound.
    fn stop(mut self) -> usize {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().unwrap();
        thread.thread().unpark();
        thread.join().unwrap()
    }
}

#[test]
fn a_fiber_waits_for_another() {
    let scheduler = scheduler();
    let outer = scheduler.enter(|| {
        spawn_local(|| {
            let inner = spawn_local(|| {
                yield_now();
                String::from("done")
            });
            assert!(!inner.is_finished());
            inner.join()
        })
    });
    settle(&scheduler);
    assert_eq!(outer.join().unwrap().unwrap(), "done");
}

#[test]
fn a_panic_reaches_the_joiner_with_its_payload() {
    let scheduler = scheduler();
    let (text, value, detached) = scheduler.enter(|| {
        let text = Builder::new()
            .name("careless")
            .spawn_local(|| panic!("number {}", std::hint::black_box(7)))
            .unwrap();
        let value = spawn_local(|| std::panic::panic_any(42_u64));
        drop(spawn_local(|| panic!("the handle was dropped")));
        (text, value, spawn_local(|| 1))
    });
    settle(&scheduler);
    let error: JoinError = text.join().unwrap_err();
    assert_eq!(error.to_string(), "fiber 'careless' panicked: number 7");
    assert_eq!(error.into_panic().unwrap().downcast_ref::<String>().unwrap(), "number 7");
    let error = value.join().unwrap_err();
    assert_eq!(*error.into_panic().unwrap().downcast::<u64>().unwrap(), 42);
    assert_eq!(detached.join().unwrap(), 1);
    assert!(!thread::panicking());
}

#[test]
fn a_panicking_destructor_of_an_unwanted_result_stays_inside() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("unwanted");
        }
    }
    let scheduler = scheduler();
    scheduler.enter(|| drop(spawn_local(|| Bad)));
    settle(&scheduler);
    assert_eq!(scheduler.live(), 0);
}

#[test]
fn joining_on_the_thread_that_must_run_the_fiber_is_an_error() {
    let scheduler = scheduler();
    let ran = Rc::new(Cell::new(false));
    let handle = scheduler.enter(|| {
        let ran = Rc::clone(&ran);
        spawn_local(move || ran.set(true))
    });
    assert!(matches!(handle.join(), Err(JoinError::WouldDeadlock)));
    let handle = scheduler.remote().spawn(|| 5);
    assert!(matches!(scheduler.enter(|| handle.join()), Err(JoinError::WouldDeadlock)));
    settle(&scheduler);
    assert!(ran.get(), "the fiber was detached, not lost");
}

#[test]
fn a_plain_thread_waits_for_a_remote_fiber() {
    let worker = Worker::start();
    let handles: Vec<_> = (0..200_u64)
        .map(|n| {
            worker.remote.spawn(move || {
                yield_now();
                n * n
            })
        })
        .collect();
    for (n, handle) in (0..200).zip(handles) {
        assert_eq!(handle.join().unwrap(), n * n);
    }
    let panicked = worker.remote.spawn(|| panic!("far away"));
    assert_eq!(panicked.join().unwrap_err().to_string(), "fiber 'fiber 201' panicked: far away");
    assert_eq!(worker.stop(), 0);
}

#[test]
fn fibers_of_two_threads_wait_for_each_other() {
    let (left, right) = (Worker::start(), Worker::start());
    let there = right.remote.clone();
    let back = left.remote.clone();
    let sum = left.remote.spawn(move || {
        let mut sum = 0;
        for n in 0..100_u64 {
            let back = back.clone();
            let half = there.spawn(move || n + back.spawn(move || n).join().unwrap());
            sum += half.join().unwrap();
        }
        sum
    });
    assert_eq!(sum.join().unwrap(), 2 * (99 * 100 / 2));
    assert_eq!(left.stop() + right.stop(), 0);
}

#[test]
fn an_unparker_works_from_any_thread_and_leaves_no_backlog() {
    let worker = Worker::start();
    let (send, receive) = mpsc::channel();
    let passes = Arc::new(AtomicUsize::new(0));
    let passed = Arc::clone(&passes);
    let handle = worker.remote.spawn(move || {
        send.send(unparker().unwrap()).unwrap();
        while passed.load(Ordering::Acquire) < 1000 {
            park();
        }
    });
    let unparker = receive.recv().unwrap();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (unparker, passes) = (unparker.clone(), Arc::clone(&passes));
            thread::spawn(move || {
                for _ in 0..500 {
                    passes.fetch_add(1, Ordering::AcqRel);
                    unparker.unpark();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    handle.join().unwrap();
    unparker.unpark();
    assert_eq!(worker.stop(), 0);
}

#[test]
fn the_wake_hook_rings_for_every_message() {
    let rings = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&rings);
    let wake = Arc::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let scheduler = Scheduler::new(Config { wake, ..Config::default() }).unwrap();
    assert!(!scheduler.drain_inbox());
    let handle = scheduler.remote().spawn(|| 3);
    assert_eq!(rings.load(Ordering::Relaxed), 1);
    assert!(!scheduler.has_ready());
    assert!(scheduler.drain_inbox());
    assert!(scheduler.has_ready());
    settle(&scheduler);
    assert_eq!(handle.join().unwrap(), 3);
}

#[test]
fn a_builder_describes_fibers_here_and_elsewhere() {
    let builder = Builder::new().name("named");
    let scheduler = scheduler();
    let near = scheduler.enter(|| builder.clone().spawn_local(name)).unwrap();
    let far = scheduler.remote().spawn_with(builder, name);
    settle(&scheduler);
    assert_eq!(near.join().unwrap().unwrap(), "named");
    assert_eq!(far.join().unwrap().unwrap(), "named");
}

#[test]
fn waiters_on_a_dropped_scheduler_get_an_error() {
    let scheduler = scheduler();
    let remote = scheduler.remote();
    let started = scheduler.enter(|| spawn_local(park));
    settle(&scheduler);
    let unstarted = scheduler.enter(|| spawn_local(|| ()));
    let queued = remote.spawn(|| ());
    assert_eq!(scheduler.abandon(), 2);
    assert!(matches!(started.join(), Err(JoinError::Cancelled)));
    assert!(matches!(unstarted.join(), Err(JoinError::Cancelled)));
    assert!(matches!(queued.join(), Err(JoinError::Cancelled)));
    assert!(matches!(remote.spawn(|| ()).join(), Err(JoinError::Cancelled)));
}

#[test]
fn a_promise_is_kept_or_broken() {
    let (promise, handle) = Promise::new();
    assert!(!handle.is_finished());
    let waiter = thread::spawn(move || handle.join());
    promise.settle(Ok(9));
    assert_eq!(waiter.join().unwrap().unwrap(), 9);
    let (promise, handle) = Promise::<u8>::new();
    drop(promise);
    assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
}

#[test]
fn a_closure_that_gets_no_stack_may_panic_when_it_is_dropped() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("a destructor");
        }
    }
    let scheduler = scheduler();
    let panics = Panics;
    let absurd = Builder::new().stack_bytes(usize::MAX / 2);
    let refused = scheduler.remote().spawn_with(absurd, move || drop(panics));
    let after = scheduler.remote().spawn(|| 1);
    settle(&scheduler);
    assert!(matches!(refused.join(), Err(JoinError::NotStarted(SpawnError::Stack { .. }))));
    assert_eq!(after.join().unwrap(), 1);
}

#[test]
fn a_fiber_that_gets_no_stack_says_so() {
    let scheduler = scheduler();
    let absurd = || Builder::new().stack_bytes(usize::MAX / 2);
    let local = scheduler.enter(|| absurd().spawn_local(|| ())).unwrap_err();
    assert!(matches!(local, SpawnError::Stack { .. }), "{local}");
    let remote = scheduler.remote().spawn_with(absurd(), || ());
    settle(&scheduler);
    assert!(matches!(remote.join(), Err(JoinError::NotStarted(SpawnError::Stack { .. }))));
    assert_eq!(scheduler.live(), 0);
    let after = scheduler.enter(|| spawn_local(|| 1));
    settle(&scheduler);
    assert_eq!(after.join().unwrap(), 1);
}
