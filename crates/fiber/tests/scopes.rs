//! Fibers and callbacks that borrow from the fiber that started them, on its thread and on others, also
//! when schedulers are dropped under them.

use std::cell::{Cell, RefCell};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use gossamer_fiber::{
    Config, JoinError, JoinHandle, Remote, Scheduler, park, scope, sleep, spawn_local, yield_now,
};

/// A thread with a scheduler, which is dropped when it is told to stop.
struct Worker {
    remote: Remote,
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Worker {
    fn start() -> Worker {
        let (send, receive) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let scheduler = Scheduler::new(Config::default()).unwrap();
            send.send(scheduler.remote()).unwrap();
            while !stopped.load(Ordering::Acquire) {
                scheduler.run(64);
                scheduler.expire(std::time::Instant::now());
                thread::yield_now();
            }
        });
        Worker { remote: receive.recv().unwrap(), stop, thread }
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Gives the remotes in turn.
fn in_turn(workers: &[Worker]) -> impl Fn() -> Remote + Send + Sync + Clone + 'static {
    let remotes: Vec<Remote> = workers.iter().map(|worker| worker.remote.clone()).collect();
    let next = Arc::new(AtomicUsize::new(0));
    move || remotes[next.fetch_add(1, Ordering::Relaxed) % remotes.len()].clone()
}

fn workers() -> [Worker; 3] {
    [(); 3].map(|()| Worker::start())
}

fn stop(workers: [Worker; 3]) {
    workers.iter().for_each(Worker::stop);
    workers.into_iter().for_each(|worker| worker.thread.join().unwrap());
}

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

/// Nested scopes over all threads, whose fibers check what they borrow when they are unwound.
struct Check<'a>(&'a AtomicUsize);

impl Drop for Check<'_> {
    fn drop(&mut self) {
        assert_eq!(self.0.swap(2, Ordering::Relaxed), 1, "the frame that it borrows is there");
    }
}

fn descend(
    choose: &(impl Fn() -> Remote + Send + Sync + Clone + 'static),
    depth: u32,
    up: &AtomicUsize,
) {
    let alive = [(); 3].map(|()| AtomicUsize::new(1));
    up.fetch_add(1, Ordering::Relaxed);
    scope(choose.clone(), |s| {
        for alive in &alive {
            s.spawn(move || {
                let _check = Check(alive);
                match depth {
                    0 => {
                        up.fetch_add(1, Ordering::Relaxed);
                        loop {
                            park();
                        }
                    }
                    _ => descend(choose, depth - 1, up),
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
        let ran = workers[0].remote.spawn(move || descend(&choose, 3, &inside));
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

#[test]
fn a_scope_on_one_thread_needs_no_other() {
    let scheduler = Scheduler::new(Config::default()).unwrap();
    let remote = scheduler.remote();
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

/// What a thread calls later, as a progress engine does.
type Callbacks = RefCell<Vec<Box<dyn FnOnce(u32)>>>;

thread_local! {
    static CALLBACKS: Callbacks = const { RefCell::new(Vec::new()) };
}

/// Runs the fibers of a scheduler until none is ready.
fn run_ready(scheduler: &Scheduler) {
    while scheduler.run(64) > 0 {}
}

#[test]
fn a_scope_waits_until_its_callbacks_were_called_or_dropped() {
    let scheduler = Scheduler::new(Config::default()).unwrap();
    let remote = scheduler.remote();
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
    let scheduler = Scheduler::new(Config::default()).unwrap();
    let remote = scheduler.remote();
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

/// Instead of a wait that never ends.
#[test]
fn a_dropped_scheduler_does_not_wait_for_children_on_its_own_thread() {
    const NAME: &str = "a_dropped_scheduler_does_not_wait_for_children_on_its_own_thread";
    const CHILD: &str = "GOSSAMER_FIBER_TEST_CHILD";
    if let Some(child) = std::env::var_os(CHILD) {
        thread::spawn(|| {
            thread::sleep(Duration::from_secs(60));
            std::process::exit(3);
        });
        let [own, other] = [(); 2].map(|()| Scheduler::new(Config::default()).unwrap());
        let at = other.remote();
        own.enter(|| {
            spawn_local(move || {
                let borrowed = AtomicUsize::new(0);
                scope(
                    move || at.clone(),
                    |s| match child.to_str() {
                        Some("fiber") => drop(s.spawn(|| borrowed.load(Ordering::Relaxed))),
                        _ => std::mem::forget(s.callback(|n: usize| {
                            borrowed.store(n, Ordering::Relaxed);
                        })),
                    },
                );
            })
        });
        own.run(64);
        drop(own);
        unreachable!("the process ends before");
    }
    for child in ["fiber", "callback"] {
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
