//! Callbacks of scopes that fibers hold when their scheduler is dropped.

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gossamer_fiber::{JoinError, Remote, park, scope, sleep, spawn_local, yield_now};

use crate::common::{CALLBACKS, Check, Worker, run_ready, scheduler};

/// Another fiber holds a callback, and is unwound first; fibers that are being unwound make none.
#[test]
fn a_dropped_scheduler_drops_the_callbacks_that_its_fibers_hold() {
    for order in 0..2 {
        let (scheduler, remote) = scheduler();
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
        let (scheduler, remote) = scheduler();
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
        let (scheduler, local) = scheduler();
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
        other.end();
    }
}

/// A fiber holds in its closure what a fiber of its scope waits for, which is unwound before it in one
/// order and after it in the other.
#[test]
fn a_closure_may_hold_a_callback_of_a_fiber_of_its_scope() {
    for (is_first, in_closure) in [(false, false), (false, true), (true, false), (true, true)] {
        let (scheduler, remote) = scheduler();
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
        workers.into_iter().for_each(Worker::end);
        assert!(matches!(ran.join(), Err(JoinError::Cancelled)));
    }
}

/// Waits for the end of a callback that it has put into [`CALLBACKS`]: in a scope's closure, or after it.
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
