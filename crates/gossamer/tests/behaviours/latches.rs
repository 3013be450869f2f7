//! `launch`: closures that may wait, one at a time.

use crate::common::wait_until;
use gossamer::{DelegateError, Latch, Trust, Trustee};
use serde::{Deserialize, Serialize};
use std::{cell::RefCell, rc::Rc, time::Duration};

fn everywhere() -> Vec<Trustee> {
    gossamer::threads().collect()
}

fn latch_at(trustee: Trustee) -> Trust<Latch<u64>> {
    trustee.entrust_with(Latch::new, 0u64)
}

pub(crate) fn a_launched_closure_may_wait() {
    for trustee in everywhere() {
        for other in everywhere() {
            let (latch, helper) = (latch_at(trustee), other.entrust(5u64));
            let sum = latch.launch_with(
                |value, helper: Trust<u64>| {
                    *value += helper.apply(|h| *h);
                    gossamer::sleep(Duration::from_millis(1));
                    gossamer::yield_now();
                    *value += helper.apply_with(|h, n| *h * n, 2);
                    gossamer::spawn(|| 1u64).join().unwrap() + *value
                },
                helper.clone(),
            );
            assert_eq!(sum, 16);
            assert_eq!(latch.launch(|value| *value), 15);
            assert_eq!(latch.apply(|latch| *latch.lock()), 15, "nobody holds it any more");
        }
    }
}

pub(crate) fn launches_exclude_each_other() {
    const LAUNCHES: u64 = 20;
    let latch = latch_at(*everywhere().last().expect("a thread"));
    let fibers: Vec<_> = everywhere()
        .into_iter()
        .map(|trustee| {
            let count = |latch: Trust<Latch<u64>>| {
                for _ in 0..LAUNCHES {
                    latch.launch(|value| {
                        let before = *value;
                        gossamer::yield_now();
                        *value = before + 1;
                    });
                }
            };
            gossamer::spawn_on_with(trustee, count, latch.clone())
        })
        .collect();
    let threads = fibers.len() as u64;
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    assert_eq!(latch.launch(|value| *value), LAUNCHES * threads);
}

pub(crate) fn a_latch_is_given_in_order() {
    for trustee in everywhere() {
        let latch = trustee.entrust_with(|()| Latch::new(Vec::<u32>::new()), ());
        let told = Rc::new(RefCell::new(Vec::new()));
        for i in 0..50 {
            let told = told.clone();
            latch.launch_with_then(
                |log, i| {
                    gossamer::yield_now();
                    log.push(i);
                    gossamer::yield_now();
                    i
                },
                i,
                move |i| told.borrow_mut().push(i),
            );
        }
        let ordered: Vec<u32> = (0..50).collect();
        assert_eq!(latch.launch(|log| log.clone()), ordered, "fibers get the latch as they came");
        wait_until("all callbacks", || told.borrow().len() == 50);
        assert_eq!(*told.borrow(), ordered);
    }
    let latch = Rc::new(Latch::new(0));
    let held = latch.try_lock().expect("nobody holds it");
    assert!(latch.try_lock().is_none());
    assert_eq!(format!("{latch:?}"), "Latch(held)");
    drop(held);
    assert_eq!(format!("{latch:?}"), "Latch(0)");
}

pub(crate) fn launches_that_nobody_waits_for() {
    for trustee in everywhere() {
        let latch = latch_at(trustee);
        let told = Rc::new(RefCell::new(0));
        let tell = told.clone();
        latch.launch_then(
            |value| {
                gossamer::sleep(Duration::from_millis(2));
                *value = 9;
                *value
            },
            move |value| *tell.borrow_mut() = value,
        );
        // Requests are served while the launched closure sleeps; its latch is held meanwhile.
        let seen = latch.apply(|latch| latch.try_lock().map(|value| *value));
        assert!(matches!(seen, None | Some(0 | 9)), "{seen:?}");
        wait_until("the result of a launch", || *told.borrow() == 9);
    }
}

pub(crate) fn a_panic_in_a_launch_opens_the_latch() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Never;
    for trustee in everywhere() {
        let latch = latch_at(trustee);
        let fall = |value: &mut u64, n: u64| -> Never {
            *value = n;
            gossamer::yield_now();
            panic!("launched and fell")
        };
        match latch.try_launch_with(fall, 3) {
            Err(DelegateError::Panicked { trustee: at, report }) => {
                assert_eq!((at, &*report.message), (trustee.thread(), "launched and fell"));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(latch.launch(|value| *value), 3);
    }
}
