//! Schedulers that are dropped while scopes wait.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use gossamer_fiber::{
    Config, JoinError, Remote, Scheduler, park, park_or_give_up, scope, sleep, spawn_local,
};

use crate::common::{CALLBACKS, Check, Worker, in_turn, workers};

/// Nested scopes over all threads, whose fibers check what they borrow when they are unwound. The
/// innermost ones hold callbacks of scopes of their own, if `hold`.
fn descend(
    choose: &(impl Fn() -> Remote + Send + Sync + Clone + 'static),
    depth: u32,
    hold: bool,
    up: &AtomicUsize,
) {
    let alive = [(); 3].map(|()| AtomicUsize::new(1));
    up.fetch_add(1, Ordering::Relaxed);
    scope(choose.clone(), |s| {
        for alive in &alive {
            s.spawn(move || {
                let _check = Check(alive);
                match depth {
                    0 => scope(choose.clone(), |s| {
                        let _held = hold.then(|| s.callback(|_: u32| ()));
                        up.fetch_add(1, Ordering::Relaxed);
                        loop {
                            park();
                        }
                    }),
                    _ => descend(choose, depth - 1, hold, up),
                }
            });
        }
    });
}

#[test]
fn schedulers_dropped_at_the_same_time_unwind_children_first() {
    for round in 0..20 {
        let workers = workers();
        let choose = in_turn(&workers);
        let up = Arc::new(AtomicUsize::new(0));
        let inside = up.clone();
        let hold = round % 4 < 2;
        let ran = workers[0].remote.spawn(move || descend(&choose, 3, hold, &inside));
        // 1 + 3 + 9 + 27 scopes, and 81 fibers that park.
        while up.load(Ordering::Relaxed) < 40 + 81 {
            thread::yield_now();
        }
        // In changing orders, so that each kind of thread is the first one.
        for n in 0..3 {
            workers[(n + round) % 3].stop();
            if round % 2 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
        }
        workers.into_iter().for_each(Worker::end);
        assert!(matches!(ran.join(), Err(JoinError::Cancelled | JoinError::Panicked { .. })));
    }
}

#[test]
fn a_scheduler_that_goes_alone_waits_for_fibers_elsewhere() {
    let (own, other) = (Worker::start(), Worker::start());
    let (at, ended) = (other.remote.clone(), Arc::new(AtomicUsize::new(0)));
    let inside = ended.clone();
    let (up, is_up) = mpsc::channel();
    let ran = own.remote.spawn(move || {
        let borrowed = AtomicUsize::new(0);
        scope(
            move || at.clone(),
            |s| {
                s.spawn(|| {
                    up.send(()).unwrap();
                    for _ in 0..50 {
                        sleep(Duration::from_millis(1));
                        borrowed.fetch_add(1, Ordering::Relaxed);
                    }
                    inside.store(borrowed.load(Ordering::Relaxed), Ordering::Relaxed);
                });
            },
        );
    });
    is_up.recv().unwrap();
    own.end();
    assert_eq!(ended.load(Ordering::Relaxed), 50);
    assert!(matches!(ran.join(), Err(JoinError::Cancelled)));
    other.end();
}

/// A fiber leaves the closures of two scopes, one after the other, and waits behind each for another
/// thread.
#[test]
fn a_fiber_waits_behind_each_of_its_scopes() {
    let (own, other) = (Worker::start(), Worker::start());
    let (up, is_up) = mpsc::channel();
    let at = other.remote.clone();
    let ran = own.remote.spawn(move || {
        let (alive, at_last) = (AtomicUsize::new(1), at.clone());
        scope(
            move || at.clone(),
            |outer| {
                let check = Check(&alive);
                outer.spawn(move || {
                    sleep(Duration::from_millis(60));
                    drop(check);
                });
                scope(
                    move || at_last.clone(),
                    |inner| {
                        inner.spawn(|| sleep(Duration::from_millis(20)));
                        up.send(()).unwrap();
                        loop {
                            park();
                        }
                    },
                )
            },
        );
    });
    is_up.recv().unwrap();
    own.end();
    assert!(matches!(ran.join(), Err(JoinError::Cancelled)));
    other.end();
}

/// A destructor of one fiber waits, and lets the other go on, on its own stack; that one's outer scope
/// must wait for the first.
#[test]
fn a_fiber_lingers_although_another_panics_below_it() {
    struct Futile;
    impl Drop for Futile {
        fn drop(&mut self) {
            for _ in 0..60 {
                park_or_give_up();
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
    let (own, other) = (Worker::start(), Worker::start());
    let (here, there) = (own.remote.clone(), other.remote.clone());
    let (up, is_up) = mpsc::channel();
    let inside = up.clone();
    let ran = own.remote.spawn(move || {
        let alive = AtomicUsize::new(1);
        let nearest = there.clone();
        scope(
            move || here.clone(),
            |outer| {
                let check = Check(&alive);
                outer.spawn(move || {
                    let _check = check;
                    let _futile = Futile;
                    scope(
                        move || nearest.clone(),
                        |s| {
                            s.spawn(|| sleep(Duration::from_millis(20)));
                            inside.send(()).unwrap();
                            loop {
                                park();
                            }
                        },
                    )
                });
                scope(
                    move || there.clone(),
                    |inner| {
                        inner.spawn(|| sleep(Duration::from_millis(50)));
                        up.send(()).unwrap();
                        loop {
                            park();
                        }
                    },
                )
            },
        );
    });
    (0..2).for_each(|_| is_up.recv().unwrap());
    own.end();
    assert!(matches!(ran.join(), Err(JoinError::Cancelled)));
    other.end();
}

/// Instead of a wait that never ends.
#[test]
fn a_dropped_scheduler_does_not_wait_for_children_on_its_own_thread() {
    const NAME: &str = "teardown::a_dropped_scheduler_does_not_wait_for_children_on_its_own_thread";
    const CHILD: &str = "GOSSAMER_FIBER_TEST_CHILD";
    if let Some(child) = std::env::var_os(CHILD) {
        thread::spawn(|| {
            thread::sleep(Duration::from_secs(60));
            std::process::exit(3);
        });
        let [own, other] = [(); 2].map(|()| Scheduler::new(Config::default()).unwrap());
        let (at, panics) = (other.remote(), child == "callback in a panic");
        own.enter(|| {
            spawn_local(move || {
                let borrowed = AtomicUsize::new(0);
                scope(
                    move || at.clone(),
                    |s| match child.to_str() {
                        Some("fiber") => drop(s.spawn(|| borrowed.load(Ordering::Relaxed))),
                        Some("late callback") => {
                            let first = s.callback(|_: u32| {
                                let second = s.callback(|n: u32| {
                                    borrowed.store(n as usize, Ordering::Relaxed);
                                });
                                CALLBACKS.with_borrow_mut(|all| all.push(Box::new(second)));
                            });
                            CALLBACKS.with_borrow_mut(|all| all.push(Box::new(first)));
                        }
                        _ => {
                            std::mem::forget(s.callback(|n: usize| {
                                borrowed.store(n, Ordering::Relaxed);
                            }));
                            if panics {
                                park();
                            }
                        }
                    },
                );
            })
        });
        own.run(64);
        // Outside the scheduler.
        if let Some(callback) = CALLBACKS.with_borrow_mut(|callbacks| callbacks.pop()) {
            callback(0);
        }
        assert!(!panics, "the schedulers are dropped while the thread unwinds");
        drop(own);
        unreachable!("the process ends before");
    }
    for child in ["fiber", "callback", "late callback", "callback in a panic"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, child)
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        let expected = "fiber 'fiber 1' cannot be unwound: its scope has a fiber on another scheduler \
                        of this thread, or a callback that this thread holds";
        assert!(message.contains(expected), "{child}: {}: {message}", output.status);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    }
}
