//! Fibers that their starter runs at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use gossamer_fiber::{
    Builder, Config, Scheduler, SpawnError, current, fiber_local, park, spawn_local, unpark,
    yield_now, yield_to_worker,
};

fn scheduler() -> Scheduler {
    Scheduler::new(Config::default()).unwrap()
}

type Log = Rc<RefCell<Vec<u32>>>;

fn unexpected<T>(_: T) {
    panic!("it has returned before it waited");
}

#[test]
fn a_fiber_that_does_not_wait_has_ended_when_it_was_started() {
    let scheduler = scheduler();
    scheduler.enter(|| {
        spawn_local(|| ());
        let id = Builder::new().start_now(current, unexpected).unwrap();
        assert!(id.flatten().is_some(), "it runs as a fiber of its own");
        assert_eq!(current(), None, "the starter is not a fiber");
    });
    assert_eq!(scheduler.live(), 1, "the one that was ready before has not run");
    assert_eq!(scheduler.run(64), 1);
}

#[test]
fn a_fiber_that_waits_gives_its_value_when_it_ends() {
    for wait in [yield_now as fn(), yield_to_worker, || park()] {
        let scheduler = scheduler();
        let log = Log::default();
        let id = Rc::new(Cell::new(None));
        // Ends a round early: its unused turns must not count for the start below.
        assert_eq!(scheduler.run(64), 0);
        scheduler.enter(|| {
            let (others, value, own) = (log.clone(), log.clone(), id.clone());
            spawn_local(move || others.borrow_mut().push(1));
            let body = move || {
                own.set(current());
                wait();
                2
            };
            let started = Builder::new().start_now(body, move |v| value.borrow_mut().push(v));
            assert_eq!(started.unwrap(), None);
            assert!(log.borrow().is_empty(), "it has not handed over to the other fiber");
        });
        scheduler.unpark(id.get().unwrap());
        while scheduler.run(64) > 0 {}
        assert_eq!(*log.borrow(), [1, 2]);
        assert_eq!(scheduler.live(), 0);
    }
}

#[test]
fn a_fiber_that_is_started_by_a_fiber_takes_its_turn() {
    let scheduler = scheduler();
    let log = Log::default();
    scheduler.enter(|| {
        let outer = log.clone();
        spawn_local(move || {
            let inner = outer.clone();
            let started = Builder::new().start_now(|| 2, move |v| inner.borrow_mut().push(v));
            assert_eq!(started.unwrap(), None);
            outer.borrow_mut().push(1);
        });
    });
    while scheduler.run(64) > 0 {}
    assert_eq!(*log.borrow(), [1, 2]);
}

#[test]
fn a_value_is_there_before_the_fibers_own_values_are_dropped() {
    struct Waits(Log);
    impl Drop for Waits {
        fn drop(&mut self) {
            yield_now();
            self.0.borrow_mut().push(1);
        }
    }
    fiber_local! {
        static KEPT: RefCell<Option<Waits>> = RefCell::new(None);
    }
    let scheduler = scheduler();
    let log = Log::default();
    let kept = log.clone();
    let body = move || KEPT.with(|slot| *slot.borrow_mut() = Some(Waits(kept)));
    let started = scheduler.enter(|| Builder::new().start_now(body, unexpected));
    assert_eq!(started.unwrap(), Some(()));
    assert!(log.borrow().is_empty());
    while scheduler.run(64) > 0 {}
    assert_eq!(*log.borrow(), [1]);
}

#[test]
fn a_panic_ends_the_fiber_and_not_its_starter() {
    let scheduler = scheduler();
    scheduler.enter(|| {
        let started = Builder::new().start_now(|| panic!("on purpose"), unexpected::<()>);
        assert_eq!(started.unwrap(), None);
        let waits = || {
            yield_now();
            panic!("on purpose")
        };
        assert_eq!(Builder::new().start_now(waits, unexpected::<()>).unwrap(), None);
    });
    while scheduler.run(64) > 0 {}
    assert_eq!(scheduler.live(), 0);
    assert_eq!(scheduler.enter(|| Builder::new().start_now(|| 3, unexpected)).unwrap(), Some(3));
}

#[test]
fn a_fiber_that_waits_is_unwound_with_its_scheduler() {
    let log = Log::default();
    struct Note(Log);
    impl Drop for Note {
        fn drop(&mut self) {
            self.0.borrow_mut().push(1);
        }
    }
    let scheduler = scheduler();
    let note = Note(log.clone());
    let body = move || {
        let _note = note;
        park();
    };
    let started = scheduler.enter(|| Builder::new().start_now(body, unexpected));
    assert_eq!(started.unwrap(), None);
    assert_eq!(scheduler.abandon(), 1);
    assert_eq!(*log.borrow(), [1]);
}

#[test]
fn a_fiber_that_wakes_itself_and_others_runs_on() {
    let scheduler = scheduler();
    let log = Log::default();
    scheduler.enter(|| {
        let (waits, value) = (log.clone(), log.clone());
        let other = spawn_local(move || {
            park();
            waits.borrow_mut().push(1);
        });
        scheduler.run(1);
        let id = other.id();
        let body = move || {
            unpark(id);
            unpark(current().unwrap());
            park(); // returns at once
            2
        };
        let started = Builder::new().start_now(body, unexpected).unwrap();
        value.borrow_mut().extend(started);
    });
    scheduler.run(64);
    assert_eq!(*log.borrow(), [2, 1]);
}

/// A destructor of what a closure captures may not run where the fiber would have started.
#[test]
fn a_closure_comes_back_if_its_fiber_does_not_start() {
    struct Note(Log);
    impl Drop for Note {
        fn drop(&mut self) {
            self.0.borrow_mut().push(1);
        }
    }
    let log = Log::default();
    let start = || {
        let note = Note(log.clone());
        let closure = move || {
            let _note = note;
            2
        };
        let not_started = Builder::new().start_now(closure, unexpected).unwrap_err();
        assert!(log.borrow().is_empty(), "it is not dropped");
        assert_eq!((not_started.closure)(), 2);
        assert_eq!(log.take(), [1]);
        not_started.error
    };
    assert!(matches!(start(), SpawnError::NoScheduler));
    let config = Config { stack_bytes: 1 << 50, ..Config::default() };
    let error = Scheduler::new(config).unwrap().enter(start);
    assert!(matches!(error, SpawnError::Stack { .. }), "{error}");
}
