//! One thread, one scheduler: the order in which fibers run, and every way to wait.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use gossamer_fiber::{
    Builder, Config, Scheduler, current, fiber_local, in_fiber, name, park, park_until, sleep,
    spawn_local, unpark, unparker, yield_now, yield_to_worker,
};

fn scheduler() -> Scheduler {
    Scheduler::new(Config::default()).unwrap()
}

/// Runs until nothing is ready.
fn settle(scheduler: &Scheduler) {
    while scheduler.run(64) > 0 {}
}

type Log = Rc<RefCell<Vec<u32>>>;

#[test]
fn ready_fibers_take_turns_in_order() {
    let scheduler = scheduler();
    let log = Log::default();
    scheduler.enter(|| {
        for fiber in 0..3 {
            let log = Rc::clone(&log);
            spawn_local(move || {
                for round in 0..3 {
                    log.borrow_mut().push(10 * round + fiber);
                    yield_now();
                }
            });
        }
    });
    assert!(scheduler.has_ready());
    assert_eq!(scheduler.live(), 3);
    assert_eq!(scheduler.run(2), 2, "the limit is kept");
    assert_eq!(*log.borrow(), [0, 1]);
    settle(&scheduler);
    assert_eq!(*log.borrow(), [0, 1, 2, 10, 11, 12, 20, 21, 22]);
    assert!(!scheduler.has_ready());
    assert_eq!(scheduler.live(), 0);
    assert_eq!(scheduler.run(0), 0);
}

#[test]
fn a_fiber_that_yields_alone_ends_the_round_and_stays_ready() {
    let scheduler = scheduler();
    let yielding = scheduler.enter(|| spawn_local(|| (0..100).for_each(|_| yield_now())));
    assert_eq!(scheduler.run(64), 1);
    assert!(scheduler.has_ready());
    settle(&scheduler);
    yielding.join().unwrap();
}

#[test]
fn a_yield_to_the_worker_ends_the_round_and_loses_no_turn() {
    let scheduler = scheduler();
    let log = Log::default();
    scheduler.enter(|| {
        for (fiber, yields) in [(1, yield_to_worker as fn()), (2, yield_now)] {
            let log = Rc::clone(&log);
            spawn_local(move || {
                for _ in 0..3 {
                    log.borrow_mut().push(fiber);
                    yields();
                }
            });
        }
    });
    assert_eq!(scheduler.run(64), 1, "the round ends although another fiber is ready");
    assert_eq!(*log.borrow(), [1]);
    assert_eq!(scheduler.run(64), 2, "whose turn is next");
    assert_eq!(*log.borrow(), [1, 2, 1]);
    assert!(scheduler.has_ready());
    while scheduler.run(64) > 0 {}
    assert_eq!(*log.borrow(), [1, 2, 1, 2, 1, 2]);
    assert_eq!(scheduler.live(), 0);
}

#[test]
fn the_fiber_that_continues_is_the_running_one() {
    let scheduler = scheduler();
    let log = Rc::new(RefCell::new(Vec::new()));
    scheduler.enter(|| {
        for fiber in ["a", "b", "c"] {
            let log = Rc::clone(&log);
            Builder::new()
                .name(fiber)
                .spawn_local(move || {
                    let me = current();
                    for _ in 0..3 {
                        yield_now();
                        assert_eq!((name().as_deref(), current()), (Some(fiber), me));
                        log.borrow_mut().push(fiber);
                    }
                })
                .unwrap();
        }
        // Two of three: every round begins with another fiber, and some fibers are the last of
        // their round.
        while scheduler.live() > 0 {
            assert!((1..=2).contains(&scheduler.run(2)));
            assert_eq!((name(), current()), (None, None));
        }
    });
    assert_eq!(*log.borrow(), ["a", "b", "c"].repeat(3));
}

#[test]
fn the_next_fiber_is_visible_while_one_runs() {
    let scheduler = Rc::new(scheduler());
    let seen = Rc::new(RefCell::new(Vec::new()));
    scheduler.enter(|| {
        for _ in 0..2 {
            let (scheduler, seen) = (Rc::downgrade(&scheduler), Rc::clone(&seen));
            spawn_local(move || {
                seen.borrow_mut().push(scheduler.upgrade().unwrap().has_ready());
            });
        }
    });
    settle(&scheduler);
    assert_eq!(*seen.borrow(), [true, false]);
}

#[test]
fn a_token_is_kept_once_and_used_up() {
    let scheduler = scheduler();
    let steps = Rc::new(Cell::new(0));
    let handle = scheduler.enter(|| {
        let steps = Rc::clone(&steps);
        spawn_local(move || {
            let me = current().unwrap();
            unpark(me);
            unpark(me);
            park();
            steps.set(1);
            park();
            steps.set(2);
        })
    });
    settle(&scheduler);
    assert_eq!(steps.get(), 1, "two unparks are one token");
    scheduler.unpark(handle.id());
    scheduler.unpark(handle.id());
    settle(&scheduler);
    assert_eq!(steps.get(), 2);
    assert!(handle.is_finished());
}

#[test]
fn an_id_of_a_fiber_that_ended_wakes_no_fiber() {
    let scheduler = scheduler();
    let old = scheduler.enter(|| spawn_local(|| ()).id());
    settle(&scheduler);
    let handle = scheduler.enter(|| spawn_local(park));
    assert_ne!(handle.id(), old);
    settle(&scheduler);
    scheduler.unpark(old);
    assert!(!scheduler.has_ready());
    scheduler.unpark(handle.id());
    settle(&scheduler);
    assert!(handle.is_finished());
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    let scheduler = scheduler();
    let start = Instant::now();
    let log = Log::default();
    let mut ids = Vec::new();
    scheduler.enter(|| {
        for seconds in [30, 10, 20] {
            let log = Rc::clone(&log);
            let handle = spawn_local(move || {
                sleep(Duration::from_secs(seconds));
                log.borrow_mut().push(seconds as u32);
                park();
                log.borrow_mut().push(seconds as u32 + 1);
            });
            ids.push(handle.id());
        }
    });
    settle(&scheduler);
    assert!(scheduler.next_deadline().unwrap() >= start + Duration::from_secs(10));
    scheduler.unpark(ids[1]);
    assert!(!scheduler.has_ready(), "an unpark does not end a sleep");
    assert!(scheduler.expire(start).is_some());
    assert!(!scheduler.has_ready());
    let later = Instant::now();
    let next = scheduler.expire(later + Duration::from_secs(20));
    assert!(next.is_some_and(|next| next > later + Duration::from_secs(20)));
    settle(&scheduler);
    assert_eq!(*log.borrow(), [10, 11, 20], "the token was there after the sleep");
    assert_eq!(scheduler.expire(later + Duration::from_secs(40)), None);
    settle(&scheduler);
    assert_eq!(*log.borrow(), [10, 11, 20, 30]);
}

#[test]
fn a_timed_park_tells_the_token_from_the_deadline() {
    let scheduler = scheduler();
    let deadline = Instant::now() + Duration::from_secs(60);
    let start = || scheduler.enter(|| spawn_local(move || park_until(deadline)));

    let unparked = start();
    settle(&scheduler);
    scheduler.unpark(unparked.id());
    // The deadline comes after the unpark and before the fiber runs: it was unparked.
    assert_eq!(scheduler.expire(deadline), None);
    settle(&scheduler);
    assert!(unparked.join().unwrap());

    let expired = start();
    settle(&scheduler);
    assert_eq!(scheduler.expire(deadline), None);
    settle(&scheduler);
    assert!(!expired.join().unwrap());

    let with_token = scheduler.enter(|| {
        spawn_local(move || {
            unpark(current().unwrap());
            park_until(deadline)
        })
    });
    settle(&scheduler);
    assert!(with_token.join().unwrap());
    assert_eq!(scheduler.next_deadline(), None, "no deadline outlives its wait");
}

#[test]
fn a_deadline_ends_with_its_wait() {
    let scheduler = scheduler();
    let deadline = Instant::now() + Duration::from_secs(60);
    let later = deadline + Duration::from_secs(60);
    let twice = scheduler.enter(|| spawn_local(move || (park_until(deadline), park_until(later))));
    settle(&scheduler);
    scheduler.unpark(twice.id());
    settle(&scheduler);
    assert_eq!(scheduler.expire(deadline), Some(later), "that of the first wait is gone");
    settle(&scheduler);
    scheduler.unpark(twice.id());
    settle(&scheduler);
    assert_eq!(twice.join().unwrap(), (true, true));
}

#[test]
fn names_are_given_or_counted() {
    let scheduler = scheduler();
    let (given, counted) = scheduler
        .enter(|| (Builder::new().name("reader").spawn_local(name).unwrap(), spawn_local(name)));
    settle(&scheduler);
    assert_eq!(given.join().unwrap().as_deref(), Some("reader"));
    assert_eq!(counted.join().unwrap().as_deref(), Some("fiber 2"));
}

#[test]
fn outside_fibers_there_is_no_fiber() {
    assert!(!in_fiber());
    assert_eq!(current(), None);
    assert_eq!(name(), None);
    assert!(unparker().is_none());
    assert!(Builder::new().spawn_local(|| ()).is_err());
    for wait in [park, yield_now, || sleep(Duration::ZERO)] {
        let payload = std::panic::catch_unwind(wait).unwrap_err();
        assert!(payload.downcast_ref::<String>().unwrap().contains("outside a fiber"));
    }
}

#[test]
fn a_fiber_cannot_run_the_scheduler_that_runs_it() {
    let scheduler = Rc::new(scheduler());
    let handle = scheduler.enter(|| {
        let scheduler = Rc::downgrade(&scheduler);
        spawn_local(move || {
            spawn_local(|| ());
            let scheduler = scheduler.upgrade().unwrap();
            (scheduler.run(8), scheduler.enter(current) == current())
        })
    });
    settle(&scheduler);
    assert_eq!(handle.join().unwrap(), (0, true));
}

#[test]
fn a_fiber_cannot_run_another_scheduler() {
    let scheduler = scheduler();
    let other = self::scheduler();
    let handle = scheduler.enter(|| spawn_local(move || other.run(1)));
    settle(&scheduler);
    assert!(handle.join().unwrap_err().to_string().contains("other than its own"));
}

#[test]
fn thousands_of_fibers_at_once_and_again() {
    let scheduler = Scheduler::new(Config { pooled_stacks: 100, ..Config::default() }).unwrap();
    for _ in 0..2 {
        let handles: Vec<_> = scheduler.enter(|| {
            (0..3000_u64)
                .map(|n| {
                    spawn_local(move || {
                        yield_now();
                        n
                    })
                })
                .collect()
        });
        assert_eq!(scheduler.live(), 3000);
        settle(&scheduler);
        let sum: u64 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
        assert_eq!(sum, 2999 * 3000 / 2);
    }
}

#[test]
fn closures_of_any_size_and_stacks_of_any_size() {
    #[repr(align(256))]
    struct Aligned(u8);
    let scheduler = Scheduler::new(Config { stack_bytes: 0, ..Config::default() }).unwrap();
    let big = [7_u8; 100_000];
    let aligned = Aligned(3);
    let (big, aligned, deep) = scheduler.enter(|| {
        // It is moved to the fiber's stack when it runs, a few times over without optimisation.
        let big = Builder::new()
            .stack_bytes(1 << 20)
            .spawn_local(move || big.iter().map(|&byte| u64::from(byte)).sum::<u64>())
            .unwrap();
        let aligned = spawn_local(move || {
            let aligned = aligned;
            (std::ptr::from_ref(&aligned).addr() % 256, aligned.0)
        });
        // AddressSanitizer makes frames larger.
        let bytes = if cfg!(address_sanitizer) { 32 << 20 } else { 4 << 20 };
        let deep = Builder::new().stack_bytes(bytes).spawn_local(|| {
            let space = std::hint::black_box([1_u8; 2 << 20]);
            space[1 << 20]
        });
        (big, aligned, deep.unwrap())
    });
    settle(&scheduler);
    assert_eq!(big.join().unwrap(), 700_000);
    assert_eq!(aligned.join().unwrap(), (0, 3));
    assert_eq!(deep.join().unwrap(), 1);
}

fiber_local! {
    static COUNT: Cell<u32> = Cell::new(100);
    static NOISY: Noisy = Noisy;
}

struct Noisy;

impl Drop for Noisy {
    fn drop(&mut self) {
        // Dropped on the fiber, after the other values were closed.
        DROPS.with_borrow_mut(|drops| drops.push((name(), COUNT.try_with(Cell::get).is_err())));
    }
}

thread_local! {
    static DROPS: RefCell<Vec<(Option<String>, bool)>> = const { RefCell::new(Vec::new()) };
}

#[test]
fn each_fiber_has_its_own_values() {
    let scheduler = scheduler();
    COUNT.with(|count| count.set(1));
    let handles: Vec<_> = scheduler.enter(|| {
        (0..3)
            .map(|n| {
                spawn_local(move || {
                    COUNT.with(|count| {
                        count.set(count.get() + n);
                        yield_now();
                        count.get()
                    })
                })
            })
            .collect()
    });
    settle(&scheduler);
    let counts: Vec<u32> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
    assert_eq!(counts, [100, 101, 102]);
    assert_eq!(COUNT.with(Cell::get), 1, "the thread's own value is another one");
    // The same blocks again: the values of earlier fibers are gone.
    let fresh = scheduler.enter(|| spawn_local(|| COUNT.with(Cell::get)));
    settle(&scheduler);
    assert_eq!(fresh.join().unwrap(), 100);
}

#[test]
fn values_are_dropped_on_their_fiber_before_the_join() {
    let scheduler = scheduler();
    let handle = scheduler
        .enter(|| Builder::new().name("owner").spawn_local(|| NOISY.with(|_| ())).unwrap());
    settle(&scheduler);
    handle.join().unwrap();
    assert_eq!(DROPS.take(), [(Some("owner".to_owned()), true)]);
}
