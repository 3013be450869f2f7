//! Schedulers that are dropped while scopes wait.

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use gossamer_fiber::{
    Config, JoinError, Remote, Scheduler, park, park_or_give_up, scope, sleep, spawn_local,
    yield_now,
};

use crate::common::{CALLBACKS, Check, Worker, in_turn, run_ready, workers};

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
        for worker in workers {
            worker.thread.join().unwrap();
        }
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
    own.stop();
    own.thread.join().unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), 50);
    assert!(matches!(ran.join(), Err(JoinError::Cancelled)));
    other.stop();
    other.thread.join().unwrap();
}

/// Another fiber holds a callback, and is unwound first; fibers that are being unwound make none.
#[test]
fn a_dropped_scheduler_drops_the_callbacks_that_its_fibers_hold() {
    for order in 0..2 {
        let scheduler = Scheduler::new(Config::default()).unwrap();
        let remote = scheduler.remote();
        let late = std::rc::Rc::new(Cell::new(0));
        let seen = late.clone();
        let ended = scheduler.enter(|| {
            spawn_local(move || {
                let alive = AtomicUsize::new(1);
                scope(
                    move || remote.clone(),
                    |s| {
                        /// Makes a callback while the fiber is unwound.
                        struct Late<F: FnMut()>(F);
                        impl<F: FnMut()> Drop for Late<F> {
                            fn drop(&mut self) {
                                (self.0)();
                            }
                        }
                        let late_maker = Late(|| {
                            let none = s.callback(|n: u32| seen.set(n));
                            none(7);
                            std::mem::forget(s.callback(|_: u32| ()));
                            seen.set(seen.get() + 1);
                        });
                        let check = Check(&alive);
                        let held = s.callback(move |_: u32| drop(check));
                        spawn_local(move || {
                            let _held = held;
                            loop {
                                park();
                            }
                        });
                        if order == 0 {
                            loop {
                                park();
                            }
                        }
                        std::mem::forget(late_maker);
                    },
                );
            })
        });
        run_ready(&scheduler);
        drop(scheduler);
        assert!(matches!(ended.join(), Err(JoinError::Cancelled)));
        assert_eq!(late.get(), 1 - order);
    }
}

/// Only unwinding the fibers drops what their scopes wait for. Each starts the next one in its scope, or
/// beside it, and gives it a callback; all hold one of their own, in the inner one of two scopes.
#[test]
fn a_dropped_scheduler_drops_the_callbacks_that_closures_of_scopes_hold() {
    fn hold(remote: Remote, depth: u32, scoped: bool, given: Option<Box<dyn FnOnce(u32)>>) {
        let outer = AtomicUsize::new(1);
        let at = remote.clone();
        scope(
            move || at.clone(),
            |s| {
                let inner = AtomicUsize::new(1);
                let check = Check(&outer);
                let held = s.callback(move |_: u32| drop(check));
                let at = remote.clone();
                scope(
                    move || at.clone(),
                    |inside| {
                        let check = Check(&inner);
                        let held_inside = inside.callback(move |_: u32| drop(check));
                        if depth > 0 && scoped {
                            inside.spawn(|| hold(remote.clone(), depth - 1, scoped, None));
                        } else if depth > 0 {
                            let give = Box::new(inside.callback(|_: u32| ()));
                            let remote = remote.clone();
                            spawn_local(move || hold(remote, depth - 1, scoped, Some(give)));
                        }
                        sleep(Duration::from_secs(3600));
                        held_inside(0);
                    },
                );
                held(0);
            },
        );
        drop(given);
    }
    for (depth, scoped) in [(0, false), (1, false), (3, false), (1, true), (3, true)] {
        let scheduler = Scheduler::new(Config::default()).unwrap();
        let remote = scheduler.remote();
        let ended = scheduler.enter(|| spawn_local(move || hold(remote, depth, scoped, None)));
        run_ready(&scheduler);
        assert_eq!(scheduler.abandon(), depth as usize + 1);
        assert!(matches!(ended.join(), Err(JoinError::Cancelled)));
    }
}

/// A fiber is unwound when its scoped fiber on another thread has ended, and holds what another scope
/// waits for, or its own.
#[test]
fn a_dropped_scheduler_waits_for_other_threads_before_it_gives_up() {
    for own_callback in [false, true] {
        let other = Worker::start();
        let at = other.remote.clone();
        let scheduler = Scheduler::new(Config::default()).unwrap();
        let local = scheduler.remote();
        let (up, is_up) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let ended = scheduler.enter(|| {
            spawn_local(move || {
                let alive = AtomicUsize::new(1);
                scope(
                    move || local.clone(),
                    |s| {
                        let check = Check(&alive);
                        let held = s.callback(move |_: u32| drop(check));
                        spawn_local(move || {
                            let (_held, alive) = (held, AtomicUsize::new(1));
                            scope(
                                move || at.clone(),
                                |s| {
                                    let check = Check(&alive);
                                    s.spawn(move || {
                                        let _check = check;
                                        up.send(()).unwrap();
                                        goes.recv().unwrap();
                                        for _ in 0..20 {
                                            sleep(Duration::from_millis(1));
                                        }
                                    });
                                    if own_callback {
                                        let _own = s.callback(|_: u32| ());
                                        park();
                                    }
                                },
                            );
                        });
                    },
                );
            })
        });
        run_ready(&scheduler);
        is_up.recv().unwrap();
        go.send(()).unwrap();
        assert_eq!(scheduler.abandon(), 2);
        assert!(matches!(ended.join(), Err(JoinError::Cancelled)));
        other.stop();
        other.thread.join().unwrap();
    }
}

/// A fiber holds in its closure what a fiber of its scope waits for, which is unwound before it in one
/// order and behind it in the other.
#[test]
fn a_closure_may_hold_a_callback_of_a_fiber_of_its_scope() {
    for (is_first, in_closure) in [(false, false), (false, true), (true, false), (true, true)] {
        let scheduler = Scheduler::new(Config::default()).unwrap();
        let remote = scheduler.remote();
        scheduler.enter(|| {
            // Leaves a place in front of this fiber's to the fiber of its scope.
            let before = is_first.then(|| spawn_local(|| ()));
            spawn_local(move || {
                before.map(|fiber| fiber.join());
                let alive = AtomicUsize::new(1);
                scope(
                    move || remote.clone(),
                    |s| {
                        let check = Check(&alive);
                        s.spawn(move || {
                            let _check = check;
                            hand_out_a_callback(in_closure);
                        });
                        hold_a_callback(|| ());
                    },
                );
            });
        });
        run_ready(&scheduler);
        assert_eq!(scheduler.abandon(), 2);
    }
}

/// As above, by way of a scope on another thread.
#[test]
fn a_closure_may_hold_a_callback_of_a_fiber_beyond_another_thread() {
    for round in 0..20 {
        let workers = [(); 2].map(|()| Worker::start());
        let [own, other] = [0, 1].map(|n: usize| workers[n].remote.clone());
        let (up, is_up) = mpsc::channel();
        let ran = workers[0].remote.spawn(move || {
            let alive = AtomicUsize::new(1);
            scope(
                move || other.clone(),
                |s| {
                    let check = Check(&alive);
                    s.spawn(move || {
                        let _check = check;
                        scope(
                            move || own.clone(),
                            |s| {
                                s.spawn(|| hand_out_a_callback(round % 8 < 4));
                            },
                        );
                    });
                    hold_a_callback(|| up.send(()).unwrap());
                },
            );
        });
        is_up.recv().unwrap();
        for n in 0..2 {
            workers[(n + round) % 2].stop();
            if round % 4 < 2 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        for worker in workers {
            worker.thread.join().unwrap();
        }
        assert!(matches!(ran.join(), Err(JoinError::Cancelled)));
    }
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
    own.stop();
    own.thread.join().unwrap();
    assert!(matches!(ran.join(), Err(JoinError::Cancelled)));
    other.stop();
    other.thread.join().unwrap();
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
    own.stop();
    own.thread.join().unwrap();
    assert!(matches!(ran.join(), Err(JoinError::Cancelled)));
    other.stop();
    other.thread.join().unwrap();
}

/// Waits for the end of a callback that it has put into [`CALLBACKS`]: in a scope's closure, or behind it.
fn hand_out_a_callback(in_closure: bool) {
    let alive = AtomicUsize::new(1);
    scope(
        || unreachable!("it starts no fiber"),
        |s| {
            let check = Check(&alive);
            let callback = s.callback(move |_: u32| drop(check));
            CALLBACKS.with_borrow_mut(|callbacks| callbacks.push(Box::new(callback)));
            if in_closure {
                loop {
                    park();
                }
            }
        },
    );
}

/// Waits for ever, and holds a callback of [`CALLBACKS`]; calls `then` when it has it.
fn hold_a_callback(then: impl FnOnce()) {
    let _held = loop {
        match CALLBACKS.with_borrow_mut(|callbacks| callbacks.pop()) {
            Some(callback) => break callback,
            None => yield_now(),
        }
    };
    then();
    loop {
        park();
    }
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
