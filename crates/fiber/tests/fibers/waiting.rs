//! Waiting with a limit and for several things, and asking fibers what they wait for.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::catch_unwind;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use gossamer_fiber::{
    Builder, Config, Promise, Scheduler, Timer, Wait, after, current, drive, interval, park,
    park_until, select, sleep, spawn_local, unpark, waiting_fibers,
};

const HOUR: Duration = Duration::from_secs(3600);

fn scheduler() -> Scheduler {
    Scheduler::new(Config::default()).unwrap()
}

fn settle(scheduler: &Scheduler) {
    while scheduler.run(64) > 0 {}
}

#[test]
fn timers_end_when_the_scheduler_says_so_and_leave_nothing_behind() {
    let scheduler = scheduler();
    let start = Instant::now();
    let ended = Rc::new(Cell::new(0));
    let seen = ended.clone();
    let fiber = scheduler.enter(|| {
        spawn_local(move || {
            let (promise, mut handle) = Promise::<()>::new();
            for step in 1..=2 {
                select! {
                    _ = &mut handle => unreachable!(),
                    () = Timer::at(start + 2 * HOUR) => unreachable!(),
                    () = Timer::at(start + HOUR) => seen.set(step),
                }
                // The other timer is gone.
                park();
            }
            drop(promise);
            assert!(handle.join().is_err());
        })
    });
    settle(&scheduler);
    assert_eq!((scheduler.next_deadline(), ended.get()), (Some(start + HOUR), 0));
    scheduler.expire(start + HOUR);
    settle(&scheduler);
    assert_eq!((scheduler.next_deadline(), ended.get()), (None, 1));
    assert_eq!(scheduler.abandon(), 1);
    assert!(fiber.is_finished());
}

#[test]
fn a_timer_without_end_is_never_ready() {
    let scheduler = scheduler();
    let fiber = scheduler.enter(|| {
        spawn_local(|| {
            let mut context = Context::from_waker(Waker::noop());
            let mut never = pin!(after(Duration::MAX));
            assert_eq!(never.as_mut().poll(&mut context), Poll::Pending);
            let mut now = pin!(after(Duration::ZERO));
            assert_eq!(now.as_mut().poll(&mut context), Poll::Ready(()));
            drive("a future", pin!(async { 7 }))
        })
    });
    settle(&scheduler);
    assert_eq!(scheduler.next_deadline(), None);
    assert_eq!(fiber.join().unwrap(), Some(7));
}

#[test]
fn missed_ticks_come_at_once_and_keep_the_pace() {
    let scheduler = scheduler();
    let fiber = scheduler.enter(|| {
        spawn_local(|| {
            let mut ticks = interval(Duration::from_millis(1));
            let first = ticks.tick();
            while first.elapsed() < Duration::from_millis(10) {}
            let due: Vec<_> = (0..10).map(|_| ticks.tick() - first).collect();
            assert_eq!(due, (1..=10).map(Duration::from_millis).collect::<Vec<_>>());
        })
    });
    // Not once is a deadline reported: all ticks were due.
    settle(&scheduler);
    fiber.join().unwrap();
}

#[test]
fn a_timer_that_is_polled_on_another_scheduler_is_registered_there() {
    let [first, second] = [scheduler(), scheduler()];
    let start = Instant::now();
    let mut timer = pin!(Timer::at(start + HOUR));
    let mut context = Context::from_waker(Waker::noop());
    // The timer of the same number at the second one, which must stay as it is.
    let mut other = pin!(Timer::at(start + HOUR));
    assert!(first.enter(|| timer.as_mut().poll(&mut context)).is_pending());
    assert!(second.enter(|| other.as_mut().poll(&mut context)).is_pending());
    second.expire(start + HOUR);
    assert!(second.enter(|| other.as_mut().poll(&mut context)).is_ready());
    assert_eq!(second.next_deadline(), None);

    assert!(second.enter(|| timer.as_mut().poll(&mut context)).is_pending(), "in an hour");
    assert_eq!(second.next_deadline(), Some(start + HOUR));
    second.expire(start + HOUR);
    assert!(second.enter(|| timer.as_mut().poll(&mut context)).is_ready());
}

#[test]
fn a_waker_that_panics_keeps_no_other_asleep() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker");
        }
    }
    let scheduler = scheduler();
    let start = Instant::now();
    let [mut first, mut second] = [1, 2].map(|hours| Box::pin(Timer::at(start + hours * HOUR)));
    let panics = Waker::from(Arc::new(Panics));
    let polled = scheduler.enter(|| first.as_mut().poll(&mut Context::from_waker(&panics)));
    assert!(polled.is_pending());
    let waits = scheduler.enter(|| spawn_local(move || drive("a timer", second.as_mut())));
    settle(&scheduler);
    scheduler.expire(start + 2 * HOUR);
    settle(&scheduler);
    assert!(waits.is_finished());
}

/// A future may wait itself while it is polled, and so use up the token of a wake.
#[test]
fn a_wake_during_a_poll_that_parks_is_not_lost() {
    let scheduler = scheduler();
    let fiber = scheduler.enter(|| {
        spawn_local(|| {
            let mut polls = 0;
            let future = poll_fn(|context| {
                polls += 1;
                if polls == 2 {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                park();
                Poll::Pending
            });
            drive("a future", pin!(future)).map(|()| polls)
        })
    });
    settle(&scheduler);
    assert!(fiber.is_finished(), "it waits though it was woken");
    assert_eq!(fiber.join().unwrap(), Some(2));
}

/// A waker is code of users, and so is its destructor.
#[test]
fn the_waker_that_a_join_replaces_is_dropped_outside_the_lock() {
    struct SettlesWhenDropped(Mutex<Option<Promise<u32>>>);
    impl Wake for SettlesWhenDropped {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for SettlesWhenDropped {
        fn drop(&mut self) {
            let promise = self.0.get_mut().unwrap().take();
            promise.into_iter().for_each(|promise| promise.settle(Ok(7)));
        }
    }
    let (promise, mut handle) = Promise::new();
    let waker = Waker::from(Arc::new(SettlesWhenDropped(Mutex::new(Some(promise)))));
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut handle).poll(&mut context).is_pending());
    drop(waker);
    // Without a limit: a lock that is held hangs here.
    assert_eq!(handle.join().unwrap(), 7);
}

#[test]
fn a_handle_is_a_future_for_other_threads_as_well() {
    let (promise, handle) = Promise::new();
    let mut context = Context::from_waker(Waker::noop());
    let mut handle = pin!(handle);
    assert!(handle.as_mut().poll(&mut context).is_pending());
    promise.settle(Ok(5));
    let Poll::Ready(ended) = handle.as_mut().poll(&mut context) else { panic!("it has ended") };
    assert_eq!(ended.unwrap(), 5);
}

#[test]
fn fibers_say_what_they_wait_for_and_go_on_waiting() {
    let scheduler = scheduler();
    let woken = Rc::new(Cell::new(0));
    let (own, bare) = scheduler.enter(|| {
        let count = woken.clone();
        let named = Builder::new().name("baker");
        let own = named.spawn_local(move || {
            let mut wait = Wait::new();
            while count.get() == 0 {
                wait.explain(|| "bread");
                park();
            }
        });
        let bare = spawn_local(|| park_until(Instant::now() + HOUR));
        (own.unwrap(), bare)
    });
    let sleeper = scheduler.enter(|| spawn_local(|| sleep(HOUR)));
    let joiner = scheduler.enter(|| spawn_local(move || sleeper.join().unwrap()));
    settle(&scheduler);
    let ask = || {
        let asked = scheduler.enter(|| spawn_local(waiting_fibers));
        settle(&scheduler);
        let mut said: Vec<_> = asked
            .join()
            .unwrap()
            .iter()
            .map(|fiber| (fiber.name.clone(), fiber.what().to_string(), fiber.since()))
            .collect();
        said.sort_by(|one, other| one.1.cmp(&other.1));
        said
    };
    let first = ask();
    let what: Vec<_> = first.iter().map(|(name, what, _)| (name.as_str(), what.as_str())).collect();
    let expected = [
        ("baker", "bread"),
        ("fiber 3", "the end of a sleep"),
        ("fiber 4", "the end of a fiber (join)"),
    ];
    assert_eq!(what.len(), 3, "{what:?}");
    assert!(expected.iter().all(|one| what.contains(one)), "{what:?}");
    assert_eq!(ask(), first, "each wait is known since the first question");
    // An unpark ends a bare wait for a time, as documented, and no other.
    assert_eq!((bare.join().unwrap(), own.is_finished()), (true, false));
    woken.set(1);
    scheduler.enter(|| unpark(own.id()));
    settle(&scheduler);
    assert!(own.is_finished() && !joiner.is_finished());
    assert_eq!(ask().len(), 2);
    assert!(scheduler.enter(current).is_none() && waiting_fibers().is_empty());
}

#[test]
fn a_question_is_refused_where_waits_are() {
    let config = Config {
        may_wait: Some(|what, place| {
            Err(format!("{what} at {}:{}", place.file(), place.line()).into())
        }),
        ..Config::default()
    };
    let scheduler = Scheduler::new(config).unwrap();
    let neighbour = scheduler.enter(|| spawn_local(park));
    let asked = scheduler.enter(|| {
        spawn_local(|| {
            let refused = catch_unwind(|| drop(waiting_fibers())).unwrap_err();
            refused.downcast_ref::<String>().unwrap().clone()
        })
    });
    let line = line!() - 4;
    settle(&scheduler);
    let expected = format!("`waiting_fibers` at {}:{line}", file!());
    assert_eq!(asked.join().unwrap(), expected);
    assert!(!neighbour.is_finished(), "it was not asked");
    // Outside fibers it waits for nothing.
    assert!(scheduler.enter(waiting_fibers).is_empty());
}
