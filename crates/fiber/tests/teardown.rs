//! Dropping a scheduler whose fibers have not ended, and the ways a process dies on purpose: each
//! of those runs in a child process, which is this test binary again with a variable set.

use std::cell::{Cell, RefCell};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitStatus};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gossamer_fiber::{
    Builder, Config, JoinError, JoinHandle, LocalJoinHandle, OnceLock, Promise, Scheduler, park,
    park_or_give_up, park_until, sleep, spawn_local, yield_now, yield_to_worker,
};

const CHILD: &str = "GOSSAMER_FIBER_TEST_CHILD";

fn scheduler() -> Scheduler {
    Scheduler::new(Config::default()).unwrap()
}

fn settle(scheduler: &Scheduler) {
    while scheduler.run(64) > 0 {}
}

/// Runs `test` of this binary in a child in which `CHILD` is set, and returns its standard error
/// and how it ended.
fn run_child(test: &str) -> (String, ExitStatus) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status)
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

struct Note(Rc<RefCell<Vec<&'static str>>>, &'static str);

impl Drop for Note {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

#[test]
fn destructors_run_wherever_a_fiber_waits() {
    let scheduler = scheduler();
    let log = Rc::new(RefCell::new(Vec::new()));
    let note = |text| Note(Rc::clone(&log), text);
    scheduler.enter(|| {
        let value = note("parked");
        spawn_local(move || {
            let _value = value;
            loop {
                park();
            }
        });
        let value = note("asleep");
        spawn_local(move || {
            let _value = value;
            sleep(Duration::MAX);
            sleep(Duration::from_secs(1 << 20));
        });
        let value = note("ready");
        spawn_local(move || {
            let _value = value;
            loop {
                yield_now();
            }
        });
        let value = note("joining");
        spawn_local(move || {
            let _value = value;
            spawn_local(park).join().unwrap();
        });
    });
    assert_eq!(scheduler.run(5), 5);
    let value = note("not begun");
    scheduler.enter(|| spawn_local(move || drop(value)));
    assert_eq!(scheduler.abandon(), 6);
    let mut log = log.take();
    log.sort_unstable();
    assert_eq!(log, ["asleep", "joining", "not begun", "parked", "ready"]);
}

#[test]
fn panics_of_destructors_stay_inside() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    let scheduler = scheduler();
    let last = Rc::new(RefCell::new(Vec::new()));
    scheduler.enter(|| {
        let value = Note(Rc::clone(&last), "last");
        spawn_local(move || {
            let _value = value;
            park();
        });
    });
    settle(&scheduler);
    scheduler.enter(|| {
        let bad = Bad;
        spawn_local(move || drop(bad));
    });
    drop(scheduler);
    assert_eq!(*last.borrow(), ["last"]);
}

#[test]
fn payloads_of_panics_that_stay_inside_are_freed() {
    /// Its destructor panics with what it holds.
    struct Bad(Option<Arc<()>>);
    impl Drop for Bad {
        fn drop(&mut self) {
            std::panic::panic_any(self.0.take());
        }
    }
    let payload = Arc::new(());
    let bad = || Bad(Some(payload.clone()));
    let scheduler = scheduler();
    scheduler.enter(|| {
        let (result, never_runs) = (bad(), bad());
        spawn_local(move || result);
        settle(&scheduler);
        assert_eq!(Arc::strong_count(&payload), 2, "that of a result that is never taken");
        spawn_local(move || drop(never_runs));
    });
    let bad = bad();
    drop(scheduler.remote().spawn(move || drop(bad)));
    drop(scheduler);
    assert_eq!(Arc::strong_count(&payload), 1);
}

#[test]
fn a_fiber_that_drops_another_scheduler_finds_its_own_again() {
    let scheduler = scheduler();
    let notes = Rc::new(RefCell::new(Vec::new()));
    let inner = Scheduler::new(Config::default()).unwrap();
    inner.enter(|| {
        for _ in 0..2 {
            let note = Note(Rc::clone(&notes), "unwound");
            spawn_local(move || {
                let _note = note;
                park();
            });
        }
    });
    settle(&inner);
    scheduler.enter(|| {
        let waits = Note(Rc::clone(&notes), "waited");
        spawn_local(move || {
            drop(inner);
            yield_now();
            drop(waits);
        });
        let next = Note(Rc::clone(&notes), "next");
        spawn_local(move || drop(next));
    });
    settle(&scheduler);
    assert_eq!(*notes.borrow(), ["unwound", "unwound", "next", "waited"]);
    assert_eq!(scheduler.live(), 0);
}

#[test]
fn a_destructor_cannot_start_a_fiber_on_a_scheduler_that_ends() {
    struct Spawner(Rc<Cell<bool>>);
    impl Drop for Spawner {
        fn drop(&mut self) {
            self.0.set(Builder::new().spawn_local(|| ()).is_err());
        }
    }
    let refused = Rc::new(Cell::new(false));
    let scheduler = scheduler();
    scheduler.enter(|| {
        let spawner = Spawner(Rc::clone(&refused));
        spawn_local(move || {
            let _spawner = spawner;
            park();
        });
    });
    settle(&scheduler);
    assert_eq!(scheduler.abandon(), 1);
    assert!(refused.get());
}

#[test]
fn a_fiber_may_catch_its_unwinding_and_end() {
    let scheduler = scheduler();
    let caught = Rc::new(Cell::new(0));
    scheduler.enter(|| {
        let caught = Rc::clone(&caught);
        spawn_local(move || {
            for _ in 0..3 {
                let result = catch_unwind(AssertUnwindSafe(park));
                caught.set(caught.get() + u32::from(result.is_err()));
            }
        });
    });
    settle(&scheduler);
    assert_eq!(scheduler.abandon(), 1);
    assert_eq!(caught.get(), 3);
}

#[test]
fn a_fiber_that_never_ends_is_reported() {
    if is_child() {
        let scheduler = scheduler();
        scheduler.enter(|| {
            Builder::new()
                .name("stubborn")
                .spawn_local(|| {
                    loop {
                        let _ = catch_unwind(AssertUnwindSafe(park));
                    }
                })
                .unwrap();
        });
        settle(&scheduler);
        drop(scheduler);
        unreachable!("the process ends before");
    }
    let (message, status) = run_child("a_fiber_that_never_ends_is_reported");
    let expected = "fiber 'stubborn' does not end although its scheduler was dropped";
    assert!(message.contains(expected), "{message}");
    assert_eq!(status.signal(), Some(libc::SIGABRT));
}

/// Runs a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A fiber that parks for ever with a destructor on its stack.
fn parks_with(destructor: impl FnMut() + 'static) -> LocalJoinHandle<()> {
    spawn_local(move || {
        let _on_drop = OnDrop(destructor);
        loop {
            park();
        }
    })
}

#[test]
fn destructors_that_wait_while_their_fiber_is_unwound_go_on() {
    let scheduler = scheduler();
    let log = Rc::new(RefCell::new(Vec::new()));
    scheduler.enter(|| {
        let entries = Rc::clone(&log);
        parks_with(move || {
            park();
            entries.borrow_mut().push("parked");
            yield_now();
            yield_to_worker();
            entries.borrow_mut().push("yielded");
            sleep(Duration::from_secs(3600));
            sleep(Duration::MAX);
            entries.borrow_mut().push("slept");
            let deadline = Instant::now() + Duration::from_secs(3600);
            assert!(!park_until(deadline), "no token came");
            assert!(!park_or_give_up());
            entries.borrow_mut().push("gave up");
        });
    });
    settle(&scheduler);
    assert_eq!(scheduler.abandon(), 1);
    assert_eq!(*log.borrow(), ["parked", "yielded", "slept", "gave up"]);
}

#[test]
fn a_destructor_that_yields_runs_no_fiber_that_was_ready() {
    let scheduler = scheduler();
    let log = Rc::new(RefCell::new(Vec::new()));
    scheduler.enter(|| {
        let entries = Rc::clone(&log);
        parks_with(move || {
            yield_now();
            entries.borrow_mut().push("yielded");
        });
    });
    settle(&scheduler);
    scheduler.enter(|| {
        let (ran, dropped) = (Rc::clone(&log), Note(Rc::clone(&log), "dropped"));
        spawn_local(move || {
            let _dropped = dropped;
            ran.borrow_mut().push("ran");
        });
    });
    assert_eq!(scheduler.abandon(), 2);
    assert_eq!(*log.borrow(), ["yielded", "dropped"]);
}

#[test]
fn a_destructor_that_joins_gets_what_the_other_fiber_ended_with() {
    let scheduler = scheduler();
    let log = Rc::new(RefCell::new(Vec::new()));
    let joined = Rc::new(RefCell::new(None));
    scheduler.enter(|| {
        let (entries, joins) = (Rc::clone(&log), Rc::clone(&joined));
        parks_with(move || {
            let handle: Option<LocalJoinHandle<()>> = joins.take();
            let ended = handle.map(LocalJoinHandle::join);
            assert!(matches!(ended, Some(Err(JoinError::Cancelled))), "{ended:?}");
            entries.borrow_mut().push("joined");
        });
        let entries = Rc::clone(&log);
        let other = parks_with(move || entries.borrow_mut().push("the other"));
        *joined.borrow_mut() = Some(other);
        let entries = Rc::clone(&log);
        // Nothing will ever settle this one.
        let (promise, handle) = Promise::<()>::new();
        let mut handle = Some(handle);
        parks_with(move || {
            let ended = handle.take().map(JoinHandle::join);
            assert!(matches!(ended, Some(Err(JoinError::Cancelled))), "{ended:?}");
            entries.borrow_mut().push("gave up");
        });
        std::mem::forget(promise);
    });
    settle(&scheduler);
    assert_eq!(scheduler.abandon(), 3);
    assert_eq!(*log.borrow(), ["the other", "gave up", "joined"]);
}

#[test]
fn a_destructor_that_uses_a_value_whose_initialiser_is_suspended_makes_it_itself() {
    let scheduler = scheduler();
    let cell = Rc::new(OnceLock::new());
    scheduler.enter(|| {
        let used = Rc::clone(&cell);
        parks_with(move || assert_eq!(*used.get_or_init(|| 7), 7));
        let initialised = Rc::clone(&cell);
        spawn_local(move || {
            initialised.get_or_init(|| {
                park();
                8
            });
        });
    });
    settle(&scheduler);
    assert_eq!(scheduler.abandon(), 2);
    assert_eq!(cell.get(), Some(&7));
}

#[test]
fn a_destructor_that_uses_a_value_waits_for_an_initialiser_on_another_thread() {
    let scheduler = scheduler();
    let cell = Arc::new(OnceLock::new());
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (finish, may_finish) = std::sync::mpsc::channel();
    let initialised = Arc::clone(&cell);
    let other = std::thread::spawn(move || {
        initialised.get_or_init(|| {
            begun.send(()).unwrap();
            may_finish.recv().unwrap();
            // Longer than a destructor may spin in a wait that returns at once.
            std::thread::sleep(Duration::from_secs(2));
            8
        });
    });
    has_begun.recv().unwrap();
    let seen = Rc::new(Cell::new(0));
    scheduler.enter(|| {
        let (used, seen) = (Arc::clone(&cell), Rc::clone(&seen));
        parks_with(move || {
            finish.send(()).unwrap();
            seen.set(*used.get_or_init(|| 7));
        });
    });
    settle(&scheduler);
    assert_eq!(scheduler.abandon(), 1);
    assert_eq!(seen.get(), 8);
    other.join().unwrap();
}

#[test]
fn a_destructor_inside_an_initialiser_that_waits_for_its_user_is_reported() {
    if is_child() {
        let scheduler = scheduler();
        let cell = Rc::new(OnceLock::<u8>::new());
        scheduler.enter(|| {
            let initialised = Rc::clone(&cell);
            spawn_local(move || {
                initialised.get_or_init(|| {
                    // Unwinds the other fiber, which needs the value.
                    let _on_drop = OnDrop(|| assert!(!park_or_give_up()));
                    park();
                    8
                });
            });
            let used = Rc::clone(&cell);
            parks_with(move || {
                used.get_or_init(|| 7);
            });
        });
        settle(&scheduler);
        drop(scheduler);
        unreachable!("the process ends before");
    }
    let (message, status) =
        run_child("a_destructor_inside_an_initialiser_that_waits_for_its_user_is_reported");
    assert!(message.contains("waits for that initialiser in a destructor"), "{message}");
    assert!(message.contains("teardown.rs"), "{message}");
    assert_eq!(status.signal(), Some(libc::SIGABRT));
}

#[test]
fn a_destructor_that_waits_for_ever_is_reported() {
    if is_child() {
        let scheduler = scheduler();
        scheduler.enter(|| {
            parks_with(|| {
                loop {
                    park();
                }
            })
        });
        settle(&scheduler);
        drop(scheduler);
        unreachable!("the process ends before");
    }
    let (message, status) = run_child("a_destructor_that_waits_for_ever_is_reported");
    let expected = "fiber 'fiber 1' does not end although its scheduler was dropped";
    assert!(message.contains(expected), "{message}");
    assert_eq!(status.signal(), Some(libc::SIGABRT));
}

#[test]
fn a_fiber_may_end_the_process_under_a_scheduler_in_a_thread_local() {
    thread_local! {
        static SCHEDULER: Scheduler = scheduler();
    }
    if is_child() {
        SCHEDULER.with(|scheduler| {
            scheduler.enter(|| {
                let _ended = spawn_local(|| {
                    let notes = Rc::new(RefCell::new(Vec::new()));
                    let _note = Note(Rc::clone(&notes), "never");
                    yield_now();
                    // On the stack where the fiber was suspended before.
                    let values: [Vec<&str>; 64] = std::array::from_fn(|_| vec!["lost"; 3]);
                    std::process::exit(values.len() as i32);
                });
            });
            settle(scheduler);
        });
        unreachable!("the process ends before");
    }
    let (message, status) =
        run_child("a_fiber_may_end_the_process_under_a_scheduler_in_a_thread_local");
    assert_eq!(status.code(), Some(64), "{status}: {message}");
}

/// Uses more stack with every level.
#[inline(never)]
fn descend(level: u64) -> u64 {
    let frame = std::hint::black_box([level; 64]);
    if level == u64::MAX { frame[0] } else { descend(level + 1) + frame[1] }
}

/// Runs `body` on a thread of that name and waits for it.
fn on_thread(name: &str, body: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.into()).spawn(body).unwrap().join().unwrap();
}

#[test]
fn an_overflow_names_the_fiber() {
    if is_child() {
        on_thread("worker 7", || {
            let scheduler = scheduler();
            scheduler.enter(|| {
                // A neighbour whose stack must not be blamed.
                spawn_local(park);
                Builder::new().name("deep").spawn_local(|| descend(0)).unwrap();
            });
            settle(&scheduler);
        });
    }
    let (message, status) = run_child("an_overflow_names_the_fiber");
    let expected = "`) on thread 'worker 7' has overflowed its stack of 128 KiB; give fibers larger \
                    ones with Config::stack_bytes or Builder::stack_bytes";
    assert!(
        message.contains("fiber 'deep' (`teardown::an_overflow_names_the_fiber::"),
        "{message}"
    );
    assert!(message.contains(expected), "{message}");
    assert_eq!(status.signal(), Some(libc::SIGABRT));
}

/// AddressSanitizer's own code touches such a frame at its far end first, beyond the guard.
#[cfg(not(address_sanitizer))]
#[test]
fn an_overflow_by_the_first_frame_names_the_fiber() {
    if is_child() {
        return on_thread("worker", || {
            let scheduler = scheduler();
            scheduler.enter(|| {
                let body = || {
                    std::hint::black_box([1u8; 16 << 20]);
                };
                Builder::new().name("large").spawn_local(body).unwrap();
            });
            scheduler.run(1);
        });
    }
    let (message, status) = run_child("an_overflow_by_the_first_frame_names_the_fiber");
    assert!(message.contains("'large'"), "{message}");
    assert!(status.signal().is_some());
}

#[test]
fn an_overflow_in_an_unnamed_fiber_counts_it() {
    if is_child() {
        on_thread("worker", || {
            let config = Config { stack_bytes: 32 * 1024, ..Config::default() };
            let scheduler = Scheduler::new(config).unwrap();
            scheduler.enter(|| {
                spawn_local(|| {
                    yield_now();
                    descend(0)
                })
            });
            settle(&scheduler);
        });
    }
    let (message, status) = run_child("an_overflow_in_an_unnamed_fiber_counts_it");
    assert!(message.contains("fiber 1 (`teardown::an_overflow_in_an_unnamed_"), "{message}");
    assert!(
        message.contains("`) on thread 'worker' has overflowed its stack of 32 KiB"),
        "{message}"
    );
    assert_eq!(status.signal(), Some(libc::SIGABRT));
}

#[test]
fn an_overflow_of_the_threads_own_stack_is_still_the_standard_librarys() {
    if is_child() {
        on_thread("plain", || {
            let scheduler = scheduler();
            scheduler.enter(|| spawn_local(|| ()));
            settle(&scheduler);
            descend(0);
        });
    }
    let (message, status) =
        run_child("an_overflow_of_the_threads_own_stack_is_still_the_standard_librarys");
    assert!(!message.contains("give fibers larger ones"), "{message}");
    assert!(message.contains("has overflowed its stack"), "{message}");
    assert_eq!(status.signal(), Some(libc::SIGABRT));
}
