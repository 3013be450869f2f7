//! What scopes wait for, and what they return.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use gossamer_fiber::{
    Config, JoinError, JoinHandle, Remote, Scheduler, scope, sleep, spawn_local, yield_now,
};

use crate::common::{CALLBACKS, Check, in_turn, run_ready, scheduler, stop, workers};

#[test]
fn fibers_of_all_threads_borrow_and_return_borrows() {
    let workers = workers();
    let choose = in_turn(&workers);
    let ran: JoinHandle<()> = workers[0].remote.spawn(move || {
        let words: Vec<String> = (0..60).map(|n| format!("word {n}")).collect();
        let count = AtomicUsize::new(0);
        for _ in 0..50 {
            let longest = scope(choose.clone(), |s| {
                let parts: Vec<_> = words
                    .chunks(7)
                    .map(|part| {
                        s.spawn(|| {
                            // Further ones, from a scoped fiber, which nothing joins.
                            s.spawn(|| count.fetch_add(1, Ordering::Relaxed));
                            yield_now();
                            part.iter().max_by_key(|word| word.len()).unwrap()
                        })
                    })
                    .collect();
                parts.into_iter().map(|part| part.join().unwrap().len()).max()
            });
            assert_eq!(longest, Some("word 10".len()));
        }
        assert_eq!(count.into_inner(), 50 * 9);
    });
    ran.join().unwrap();
    stop(workers);
}

#[test]
fn panics_go_where_those_of_scoped_threads_go() {
    let workers = workers();
    let choose = in_turn(&workers);
    let ran = workers[0].remote.spawn(move || {
        let ended = AtomicUsize::new(0);
        let joined = scope(choose.clone(), |s| {
            let fiber = s.spawn(|| panic!("it fell"));
            s.spawn(|| {
                sleep(Duration::from_millis(5));
                ended.fetch_add(1, Ordering::Relaxed)
            });
            fiber.join().map_err(|error: JoinError| error.to_string())
        });
        assert!(joined.unwrap_err().contains("it fell"), "an error that was joined is handled");
        assert_eq!(ended.load(Ordering::Relaxed), 1, "the scope has waited");
        let text = |body: &mut dyn FnMut()| {
            let panic = catch_unwind(AssertUnwindSafe(body)).unwrap_err();
            panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).unwrap()
        };
        let message = text(&mut || {
            scope(choose.clone(), |s| drop(s.spawn(|| panic!("unseen"))));
        });
        assert_eq!(message, "a scoped fiber panicked");
        let message = text(&mut || {
            scope(choose.clone(), |s| {
                s.spawn(|| {
                    sleep(Duration::from_millis(5));
                    ended.fetch_add(1, Ordering::Relaxed)
                });
                panic!("its own")
            })
        });
        assert_eq!(message, "its own");
        assert_eq!(ended.load(Ordering::Relaxed), 2, "the scope has waited");
    });
    ran.join().unwrap();
    stop(workers);
}

#[test]
fn a_scope_on_one_thread_needs_no_other() {
    let (scheduler, remote) = scheduler();
    let sum = scheduler.enter(|| {
        spawn_local(move || {
            let mut parts = [1, 2, 3];
            scope(
                move || remote.clone(),
                |s| {
                    for part in &mut parts {
                        s.spawn(|| *part *= 10);
                    }
                },
            );
            parts.iter().sum::<i32>()
        })
    });
    while !sum.is_finished() {
        scheduler.run(64);
    }
    assert_eq!(sum.join().unwrap(), 60);
}

/// A join that has no outcome of the child says nothing of how the child ends.
#[test]
fn a_join_that_fails_by_itself_is_no_failure_of_the_child() {
    /// Returns what `scope` does when the handle of a child that ends as `child` does is joined where
    /// that fails at once: on the child's thread, outside fibers.
    fn ends(child: fn() -> u32) -> Result<(), JoinError> {
        let own = Scheduler::new(Config::default()).unwrap();
        let ended = own.remote().spawn(move || {
            let at = Arc::new(OnceLock::<Remote>::new());
            let chosen = at.clone();
            scope(
                move || chosen.get().unwrap().clone(),
                |s| {
                    let join = || {
                        let scheduler = Scheduler::new(Config::default()).unwrap();
                        at.set(scheduler.remote()).unwrap();
                        let handle = s.spawn(child);
                        let joined = scheduler.enter(|| handle.join());
                        assert!(matches!(joined, Err(JoinError::WouldDeadlock)), "{joined:?}");
                        scheduler.run(64);
                    };
                    thread::scope(|threads| threads.spawn(join).join().unwrap());
                },
            );
        });
        own.run(64);
        assert!(ended.is_finished());
        ended.join()
    }
    let ended = ends(|| 7);
    assert!(ended.is_ok(), "the child has ended well: {ended:?}");
    let ended = ends(|| panic!("unseen"));
    assert!(ended.unwrap_err().to_string().contains("a scoped fiber panicked"));
}

#[test]
fn a_scope_waits_until_its_callbacks_were_called_or_dropped() {
    let (scheduler, remote) = scheduler();
    let sum = scheduler.enter(|| {
        spawn_local(move || {
            let (sum, alive) = (&Cell::new(0), [(); 3].map(|()| AtomicUsize::new(1)));
            scope(
                move || remote.clone(),
                |s| {
                    for alive in &alive {
                        let check = Check(alive);
                        let add = s.callback(move |n| {
                            let _check = check;
                            sum.set(sum.get() + n);
                        });
                        CALLBACKS.with_borrow_mut(|callbacks| callbacks.push(Box::new(add)));
                    }
                    drop(s.callback(|n: u32| sum.set(sum.get() + n)));
                },
            );
            let gone = alive.iter().all(|alive| alive.load(Ordering::Relaxed) == 2);
            assert!(gone, "the closures are gone");
            sum.get()
        })
    });
    let next = || CALLBACKS.with_borrow_mut(|callbacks| callbacks.pop()).expect("one more");
    for _ in 0..2 {
        run_ready(&scheduler);
        assert!(!sum.is_finished(), "callbacks are left");
        scheduler.enter(|| next()(5));
    }
    run_ready(&scheduler);
    assert!(!sum.is_finished(), "a callback is left");
    drop(next());
    run_ready(&scheduler);
    assert!(sum.is_finished());
    assert_eq!(sum.join().unwrap(), 10, "what was dropped has not run");
}

#[test]
fn a_callback_that_panics_is_counted_and_its_caller_gets_the_panic() {
    let (scheduler, remote) = scheduler();
    let ended = scheduler.enter(|| {
        spawn_local(move || {
            let alive = AtomicUsize::new(1);
            scope(
                move || remote.clone(),
                |s| {
                    let check = Check(&alive);
                    let fall = s.callback(move |n: u32| {
                        let _check = check;
                        panic!("it got {n}");
                    });
                    CALLBACKS.with_borrow_mut(|callbacks| callbacks.push(Box::new(fall)));
                    panic!("the closure's own")
                },
            );
        })
    });
    run_ready(&scheduler);
    assert!(!ended.is_finished(), "the scope waits although its closure has panicked");
    let callback = CALLBACKS.with_borrow_mut(|callbacks| callbacks.pop()).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| callback(3))).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "it got 3");
    run_ready(&scheduler);
    assert!(ended.join().unwrap_err().to_string().contains("the closure's own"));
}

#[test]
fn fibers_of_a_scope_make_callbacks_of_their_own_threads() {
    let workers = workers();
    let choose = in_turn(&workers);
    let ran: JoinHandle<usize> = workers[0].remote.spawn(move || {
        let count = AtomicUsize::new(0);
        let all = &count;
        scope(choose, |s| {
            for _ in 0..30 {
                s.spawn(move || {
                    let thread = thread::current().id();
                    let add = s.callback(move |n: usize| {
                        assert_eq!(thread::current().id(), thread);
                        count_in(s, all, n);
                    });
                    // Runs when this fiber has ended.
                    spawn_local(move || add(1));
                });
            }
        });
        count.into_inner()
    });
    assert_eq!(ran.join().unwrap(), 60);
    stop(workers);
}

/// The scope's own thread is idle meanwhile, and would go on.
#[test]
fn a_callback_of_another_thread_is_counted_until_it_has_ended() {
    let workers = workers();
    let choose = in_turn(&workers[1..]);
    let ran: JoinHandle<bool> = workers[0].remote.spawn(move || {
        let has_ended = AtomicBool::new(false);
        let ended = &has_ended;
        scope(choose, |s| {
            s.spawn(move || {
                let end = s.callback(|()| {
                    thread::sleep(Duration::from_millis(20));
                    ended.store(true, Ordering::Relaxed);
                });
                spawn_local(move || end(()));
            });
        });
        has_ended.load(Ordering::Relaxed)
    });
    assert!(ran.join().unwrap());
    stop(workers);
}

/// Counts `n` now and, from a fiber of the scope, once more.
fn count_in<'scope>(
    s: &'scope gossamer_fiber::Scope<'scope, '_>,
    count: &'scope AtomicUsize,
    n: usize,
) {
    count.fetch_add(n, Ordering::Relaxed);
    s.spawn(move || count.fetch_add(n, Ordering::Relaxed));
}
