//! `apply` and its relatives: results, order, errors, and sending more than there is room for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gossamer::{DelegateError, Trust, Trustee, delegate};

use crate::support::{panic_in, wait_until};

fn everywhere() -> Vec<Trustee> {
    let all: Vec<_> = gossamer::threads().collect();
    assert!(all.len() >= 2, "a rack of {} threads tests nothing", all.len());
    all
}

pub fn results_come_back_from_every_thread() {
    for trustee in everywhere() {
        let counter = trustee.entrust(17i64);
        assert_eq!(counter.trustee(), trustee);
        assert_eq!(counter.apply(|c| *c), 17);
        counter.apply(|c| *c += 1);
        assert_eq!(counter.apply_with(|c, n| (*c += n, *c), 24i64).1, 42);
        assert_eq!(counter.try_apply(|c| *c).unwrap(), 42);
        assert_eq!(counter.try_apply_with(|c, n| *c + n, 1i64).unwrap(), 43);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let note = || {
            let seen = seen.clone();
            move |value| seen.borrow_mut().push(value)
        };
        counter.apply_then(|c| *c, note());
        counter.apply_with_then(|c, n| *c + n, 2i64, note());
        let (one, other) = (note(), note());
        counter.try_apply_then(|c| *c, move |result| one(result.unwrap()));
        counter.try_apply_with_then(|c, n| *c + n, 3i64, move |result| other(result.unwrap()));
        wait_until("four callbacks", || seen.borrow().len() == 4);
        assert_eq!(*seen.borrow(), [42, 44, 42, 45]);
        let text = trustee.entrust(String::from("rack"));
        let shout = text.apply(|t| (t.to_uppercase(), t.len(), Some('x'), [1.5f64; 3]));
        assert_eq!(shout, ("RACK".to_owned(), 4, Some('x'), [1.5; 3]));
    }
}

pub fn requests_of_a_pair_of_threads_keep_their_order() {
    const REQUESTS: u32 = 3000;
    for trustee in everywhere() {
        let log = trustee.entrust(Vec::<u32>::new());
        let called = Rc::new(RefCell::new(Vec::new()));
        for i in 0..REQUESTS {
            let called = called.clone();
            log.apply_with_then(
                |log, i| {
                    log.push(i);
                    i
                },
                i,
                move |i| called.borrow_mut().push(i),
            );
            if i % 500 == 499 {
                assert_eq!(log.apply(|log| log.len()), i as usize + 1, "a call behind them");
            }
        }
        let ordered: Vec<u32> = (0..REQUESTS).collect();
        assert_eq!(log.apply(|log| log.clone()), ordered);
        assert_eq!(*called.borrow(), ordered, "callbacks run in the order of their requests");
    }
}

/// Calls of delegated code on properties of its own thread run after it, in order, although they
/// are many, and although the last trust of a property is dropped before they run.
pub fn delegated_code_calls_its_own_thread() {
    const CALLS: u64 = 10_000;
    const RAN: u64 = u64::MAX - 1;
    const DROPPED: u64 = u64::MAX;
    struct Short(Trust<Vec<u64>>);
    impl Short {
        fn note(&self, what: u64) {
            self.0.apply_with_then(|log, what| log.push(what), what, |()| ());
        }
    }
    impl Drop for Short {
        fn drop(&mut self) {
            self.note(DROPPED);
        }
    }
    for trustee in everywhere() {
        let log = trustee.entrust(Vec::new());
        let start = trustee.entrust(());
        let send = |_: &mut (), log: Trust<Vec<u64>>| {
            for call in 0..CALLS {
                log.apply_with_then(|log, call| log.push(call), call, |()| ());
            }
            let short = gossamer::local_trustee().entrust(Short(log));
            short.apply_then(|short| short.note(RAN), |()| ());
        };
        start.apply_with(send, log.clone());
        wait_until("all calls", || log.apply(|log| log.last() == Some(&DROPPED)));
        let expected: Vec<u64> = (0..CALLS).chain([RAN, DROPPED]).collect();
        assert_eq!(log.apply(|log| log.clone()), expected);
    }
}

pub fn every_thread_calls_every_other() {
    const CALLS: u64 = 200;
    let counters: Vec<Trust<u64>> = everywhere().iter().map(|t| t.entrust(0)).collect();
    let callers: Vec<_> = everywhere()
        .into_iter()
        .map(|trustee| {
            let call = |counters: Vec<Trust<u64>>| {
                for i in 0..CALLS {
                    for counter in &counters {
                        if i % 2 == 0 {
                            counter.apply(|c| *c += 1);
                        } else {
                            counter.apply_then(|c| *c += 1, |()| {});
                        }
                    }
                }
                counters.iter().map(|counter| counter.apply(|c| *c)).min()
            };
            gossamer::spawn_on_with(trustee, call, counters.clone())
        })
        .collect();
    let threads = callers.len() as u64;
    for caller in callers {
        assert!(caller.join().unwrap() >= Some(CALLS), "a thread sees at least its own calls");
    }
    for counter in &counters {
        assert_eq!(counter.apply(|c| *c), CALLS * threads);
    }
}

pub fn values_are_delegated_by_name() {
    for trustee in everywhere() {
        let map = trustee.entrust(HashMap::<String, u32>::new());
        let (key, value) = ("Ada".to_owned(), 36);
        assert_eq!(delegate!(map, [key, value] | map | map.insert(key, value)), None);
        let key = "Ada".to_owned();
        assert_eq!(delegate!(map, [key] | m | m.get(&key).copied()), Some(36));
        assert_eq!(delegate!(map, [] | m | m.len()), 1);
        let (name, year) = ("Grace", 1906);
        delegate!(map, [name = name.to_owned(), year = 1943 - year] | m | m.insert(name, year));
        let name = name.to_owned();
        assert_eq!(delegate!(map, [name] | m | m.get(&name).copied()), Some(37));
    }
}

pub fn failures_come_back_as_errors() {
    for trustee in everywhere() {
        let counter = trustee.entrust(1u8);
        match counter.try_apply(|_| -> u8 { panic!("number {}", 3) }) {
            Err(DelegateError::Panicked { trustee: at, report }) => {
                assert_eq!((at, &*report.message), (trustee.thread(), "number 3"));
            }
            other => panic!("{other:?}"),
        }
        let message = panic_in(|| counter.apply_with(|_, n: u8| assert_eq!(n, 0, "no zero"), 1));
        // The panic of a closure on the own thread is just that; its own place says where it was.
        let is_placed = counter.is_local() || message.contains("calls.rs");
        assert!(message.contains("no zero") && is_placed, "{message}");
        let called = Rc::new(RefCell::new(None));
        let call_back = called.clone();
        counter.try_apply_then(
            |_| -> u8 { panic!("called") },
            move |result| *call_back.borrow_mut() = Some(result.unwrap_err().to_string()),
        );
        wait_until("the callback of a failure", || called.borrow().is_some());
        assert!(called.borrow().as_ref().unwrap().contains("called"));
        assert_eq!(counter.apply(|c| *c), 1);
    }
}

/// Each callback sends the next request: nothing may grow with the length of the chain.
#[cfg(not(feature = "rdma"))]
pub fn callbacks_may_send_without_end() {
    fn next(counter: Rc<Trust<u32>>, left: u32) {
        if left > 0 {
            let again = counter.clone();
            counter.apply_then(|c| *c += 1, move |()| next(again, left - 1));
        }
    }
    let me = gossamer::local_trustee().trustee();
    let other = everywhere().into_iter().rev().find(|trustee| *trustee != me).expect("another");
    for (trustee, length) in [(me, 30_000), (other, 3_000)] {
        let counter = Rc::new(trustee.entrust(0));
        next(counter.clone(), length);
        wait_until("the last callback", || Rc::strong_count(&counter) == 1);
        assert_eq!(counter.apply(|c| *c), length);
    }
}

pub fn a_flood_waits_for_its_trustee() {
    const REQUESTS: u64 = 60_000;
    for trustee in everywhere() {
        let counter = trustee.entrust(0u64);
        let called = Rc::new(RefCell::new(0));
        for i in 0..REQUESTS {
            let called = called.clone();
            let slow = |c: &mut u64, i: u64| {
                *c += 1;
                if i.is_multiple_of(1000) {
                    std::thread::yield_now();
                }
            };
            counter.apply_with_then(slow, i, move |()| *called.borrow_mut() += 1);
        }
        assert_eq!(counter.apply(|c| *c), REQUESTS);
        assert_eq!(*called.borrow(), REQUESTS);
    }
}

/// A callback cannot wait for room, so what it sends is kept.
pub fn callbacks_that_send_are_never_refused() {
    const REQUESTS: u32 = 5000;
    let me = gossamer::local_trustee().trustee();
    let targets: Vec<Rc<Trust<u32>>> =
        everywhere().iter().map(|trustee| Rc::new(trustee.entrust(0))).collect();
    let other = everywhere().into_iter().find(|trustee| *trustee != me).expect("another");
    let trigger = other.entrust(());
    let inside = targets.clone();
    trigger.apply_then(
        |()| (),
        move |()| {
            for target in (0..REQUESTS).flat_map(|_| &inside) {
                target.apply_then(|c| *c += 1, |()| {});
            }
        },
    );
    for target in &targets {
        wait_until("all requests", || target.apply(|c| *c) == REQUESTS);
    }
    // The callback owned trusts: it must be gone before the rack looks for leaks.
    wait_until("the callback's end", || targets.iter().all(|target| Rc::strong_count(target) == 1));
}

thread_local! {
    /// What the destructor of [`Waiting`] asks.
    static ASKED: RefCell<Option<Trust<u32>>> = const { RefCell::new(None) };
}

/// An argument whose destructor waits, on the thread that sends it.
#[derive(serde::Serialize, serde::Deserialize)]
struct Waiting(u32);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(asked) = ASKED.take() {
            // Longer than the reply to the request takes whose argument this was.
            for _ in 0..10 {
                asked.apply(|asked| *asked += 1);
            }
        }
    }
}

pub fn arguments_may_wait_when_they_are_dropped() {
    let me = gossamer::local_trustee().trustee();
    for trustee in everywhere().into_iter().filter(|trustee| *trustee != me) {
        let (sum, asked) = (trustee.entrust(0u32), trustee.entrust(0u32));
        ASKED.set(Some(asked.clone()));
        assert_eq!(sum.apply_with(|sum, waiting: Waiting| *sum + waiting.0, Waiting(5)), 5);
        assert_eq!(asked.apply(|asked| *asked), 10);
        let latch = trustee.entrust_with(|()| gossamer::Latch::new(1u32), ());
        ASKED.set(Some(asked.clone()));
        assert_eq!(latch.launch_with(|one, waiting: Waiting| *one + waiting.0, Waiting(6)), 7);
        assert_eq!(asked.apply(|asked| *asked), 20);
    }
}
