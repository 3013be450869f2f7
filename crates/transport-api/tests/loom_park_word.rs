//! Every interleaving of the sleep and wake protocol: no wake is lost, and an awake sleeper costs
//! no wake. Run by `RUSTFLAGS="--cfg loom" cargo test --release --test 'loom_*'`.
#![cfg(loom)]

use gossamer_transport_api::park_word::{AWAKE, ParkWord};
use loom::sync::{Arc, Condvar, Mutex};
use primitive::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// A futex on one word: compare-and-wait and wake are atomic towards each other, and a thread that
/// is never woken deadlocks, which loom reports.
struct Futex {
    word: AtomicU32,
    wakes: Mutex<u32>,
    woken: Condvar,
}

impl Futex {
    fn new() -> Self {
        Self { word: AtomicU32::new(AWAKE), wakes: Mutex::new(0), woken: Condvar::new() }
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        let mut wakes = self.wakes.lock().unwrap();
        // The kernel compares under the lock that a wake takes.
        if word.load(Ordering::Relaxed) != expected {
            return;
        }
        let before = *wakes;
        while *wakes == before {
            wakes = self.woken.wait(wakes).unwrap();
        }
    }

    fn wake(&self) {
        *self.wakes.lock().unwrap() += 1;
        self.woken.notify_all();
    }
}

/// Sleeps until `done`, as a runtime thread does: by looking again after every sleep.
fn sleep_until(futex: &Futex, done: impl Fn() -> bool) {
    while !done() {
        ParkWord::new(&futex.word).park(&done, |word, expected| futex.wait(word, expected));
    }
}

#[test]
fn no_wake_is_lost() {
    loom::model(|| {
        let shared = Arc::new((Futex::new(), AtomicU64::new(0)));
        let waker = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let (futex, work) = &*shared;
                work.store(1, Ordering::Relaxed);
                if ParkWord::new(&futex.word).must_wake() {
                    futex.wake();
                }
            })
        };
        let (futex, work) = &*shared;
        sleep_until(futex, || work.load(Ordering::Relaxed) == 1);
        waker.join().unwrap();
    });
}

/// `membarrier`, as this model assumes it to work: when it returns, the waker has executed a full fence,
/// wherever it was, or has ended (a thread that does not run passes one when it stops). The waker looks
/// for the request at each place where the fence may come: before its store, between store and load, and
/// behind its load.
struct Membarrier {
    /// How often the sleeper has asked for the fence, and the waker has executed it.
    asked: AtomicU32,
    executed: AtomicU32,
}

impl Membarrier {
    const ENDED: u32 = u32::MAX;

    fn reach_waker(&self) {
        fence(Ordering::SeqCst);
        let asked = self.asked.load(Ordering::Relaxed) + 1;
        self.asked.store(asked, Ordering::Release);
        while self.executed.load(Ordering::Acquire) < asked {
            loom::thread::yield_now();
        }
        fence(Ordering::SeqCst);
    }

    fn execute_if_asked(&self) {
        let asked = self.asked.load(Ordering::Acquire);
        if asked > self.executed.load(Ordering::Relaxed) {
            self.execute(asked);
        }
    }

    fn execute(&self, asked: u32) {
        fence(Ordering::SeqCst);
        self.executed.store(asked, Ordering::Release);
    }
}

/// The sleeper is busy, and goes to sleep with the fence that it has promised. If that sleep ends at once
/// (`is_short`), for a reason that is not the waker's, it sleeps again without, since it has not been awake
/// for long.
fn no_wake_of_a_busy_thread_is_lost(is_short: bool) {
    loom::model(move || {
        let barrier = Membarrier { asked: AtomicU32::new(0), executed: AtomicU32::new(0) };
        let shared = Arc::new((Futex::new(), AtomicU64::new(0), barrier));
        let (futex, work, barrier) = &*shared;
        let is_done = || work.load(Ordering::Relaxed) == 1;
        ParkWord::new(&futex.word).set_busy();
        let waker = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let (futex, work, barrier) = &*shared;
                barrier.execute_if_asked();
                work.store(1, Ordering::Relaxed);
                barrier.execute_if_asked();
                let word = ParkWord::new(&futex.word);
                if !word.is_busy() && word.must_wake() {
                    futex.wake();
                }
                barrier.execute(Membarrier::ENDED);
            })
        };
        let ready = || {
            barrier.reach_waker();
            is_done() || is_short
        };
        ParkWord::new(&futex.word).park(ready, |word, expected| futex.wait(word, expected));
        sleep_until(futex, is_done);
        waker.join().unwrap();
    });
}

#[test]
fn no_wake_is_lost_by_a_thread_that_was_busy() {
    no_wake_of_a_busy_thread_is_lost(false);
}

#[test]
fn no_wake_is_lost_by_a_thread_that_was_busy_one_sleep_ago() {
    no_wake_of_a_busy_thread_is_lost(true);
}

#[test]
fn no_wake_of_two_wakers_is_lost() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((Futex::new(), [AtomicU64::new(0), AtomicU64::new(0)]));
        let wakers = [0, 1].map(|waker| {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let (futex, work) = &*shared;
                work[waker].store(1, Ordering::Relaxed);
                if ParkWord::new(&futex.word).must_wake() {
                    futex.wake();
                }
            })
        });
        let (futex, work) = &*shared;
        sleep_until(futex, || work.iter().all(|w| w.load(Ordering::Relaxed) == 1));
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}

#[test]
fn an_announcement_is_claimed_once() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(AWAKE));
        ParkWord::new(&word).announce();
        let other = {
            let word = word.clone();
            loom::thread::spawn(move || ParkWord::new(&word).must_wake())
        };
        let mine = ParkWord::new(&word).must_wake();
        assert!(mine != other.join().unwrap(), "exactly one owes the wake");
    });
}
