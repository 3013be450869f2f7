//! Trusts that are cloned, sent, kept and dropped anywhere: the property dies once, after the last.

use std::time::{Duration, Instant};

use gossamer::{Trust, Trustee};

use crate::support::{Counted, wait_until};

fn everywhere() -> Vec<Trustee> {
    gossamer::threads().collect()
}

/// A property at `trustee`, and the count of its drops.
fn counted_at(trustee: Trustee) -> (Trust<Counted>, Trust<u32>) {
    let drops = gossamer::local_trustee().entrust(0u32);
    (trustee.entrust_with(Counted, drops.clone()), drops)
}

#[track_caller]
fn is_dropped_once(drops: &Trust<u32>) {
    wait_until("the drop of a property", || drops.apply(|drops| *drops) > 0);
    assert_eq!(drops.apply(|drops| *drops), 1);
}

pub fn a_property_dies_after_its_last_trust() {
    for trustee in everywhere() {
        let (trust, drops) = counted_at(trustee);
        let clones: Vec<_> = (0..500).map(|_| trust.clone()).collect();
        let of_clone = clones[250].clone();
        drop(trust);
        clones.into_iter().step_by(2).for_each(drop);
        of_clone.apply(|_| ());
        assert_eq!(drops.apply(|drops| *drops), 0, "one trust is left");
        assert!(format!("{of_clone:?}").contains("Counted"));
        drop(of_clone);
        is_dropped_once(&drops);
    }
}

pub fn trusts_travel_in_arguments_and_results() {
    for trustee in everywhere() {
        for other in everywhere() {
            let (trust, drops) = counted_at(trustee);
            let walk = |trust: Trust<Counted>| {
                trust.apply(|_| ());
                (trust.clone(), Some(trust))
            };
            let (one, two) = gossamer::spawn_on_with(other, walk, trust).join().unwrap();
            let unit = other.entrust(());
            let back = unit.apply_with(|_, trust: Trust<Counted>| trust, one);
            let moved = gossamer::spawn(move || {
                back.apply(|_| ());
                back
            });
            drop(two);
            let back = moved.join().unwrap();
            back.apply(|_| ());
            assert_eq!(drops.apply(|drops| *drops), 0);
            drop(back);
            is_dropped_once(&drops);
        }
    }
}

pub fn trusts_live_in_properties() {
    for trustee in everywhere() {
        for keeper in everywhere() {
            let (trust, drops) = counted_at(trustee);
            let shelf = keeper.entrust_with(Some, trust);
            let nested = trustee.entrust_with(|shelf| vec![shelf], shelf);
            let again = nested.apply(|shelves| shelves[0].clone());
            let ping = |shelf: &mut Option<Trust<Counted>>| {
                shelf.as_ref().expect("it is there").apply_then(|_| (), |()| {});
            };
            again.apply(ping);
            drop((again, nested));
            is_dropped_once(&drops);
        }
    }
}

pub fn trusts_are_cloned_and_dropped_in_delegated_context() {
    for trustee in everywhere() {
        for keeper in everywhere() {
            let (trust, drops) = counted_at(trustee);
            let shelf = keeper.entrust_with(|trust| vec![trust], trust);
            for _ in 0..70 {
                shelf.apply(|shelf| shelf.push(shelf[0].clone()));
            }
            assert_eq!(shelf.apply(|shelf| shelf.drain(1..).count()), 70);
            assert_eq!(drops.apply(|drops| *drops), 0);
            shelf.apply(Vec::clear);
            is_dropped_once(&drops);
        }
    }
}

pub fn a_trust_is_dropped_on_a_foreign_thread() {
    for trustee in everywhere() {
        let (trust, drops) = counted_at(trustee);
        let other = trust.clone();
        let outside = std::thread::spawn(move || {
            let clones: Vec<_> = (0..100).map(|_| trust.clone()).collect();
            drop((trust, clones));
        });
        outside.join().unwrap();
        other.apply(|_| ());
        assert_eq!(drops.apply(|drops| *drops), 0);
        drop(other);
        is_dropped_once(&drops);
    }
}

/// The trust is dropped right after the requests sent through it, here or on another thread.
pub fn a_drop_does_not_overtake_what_was_queued() {
    for trustee in everywhere() {
        let log = gossamer::local_trustee().entrust(0u32);
        for round in 0..50 {
            let sum = trustee.entrust_with(|log: Trust<u32>| (log, 0u32), log.clone());
            let other = sum.clone();
            for trust in [&sum, &other] {
                trust.apply_then(|sum| sum.1 += 1, |()| {});
                trust.apply_then(
                    |(log, sum)| log.apply_with_then(|log, n| *log += n, *sum, |()| {}),
                    |()| {},
                );
            }
            drop(sum);
            if round % 2 == 0 {
                std::thread::spawn(move || drop(other)).join().unwrap();
            } else {
                gossamer::spawn(move || drop(other)).join().unwrap();
            }
        }
        wait_until("all that was queued", || log.apply(|log| *log) == 50 * 3);
    }
}

/// A property that counts, and reports the count when it dies.
struct Tally {
    log: Trust<u32>,
    count: u32,
}

impl Tally {
    /// Slower than its clients send, so that they have requests queued.
    fn count_slowly(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(50) {}
        self.count += 1;
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.log.apply_with_then(|log, count| *log = count, self.count, |()| {});
    }
}

/// A trust is used on one thread, moved to the next, used there, and so on; the last drops it.
pub fn a_drop_does_not_overtake_what_was_queued_before_a_move() {
    for trustee in everywhere() {
        let log = gossamer::local_trustee().entrust(0u32);
        let mut tally =
            trustee.entrust_with(|log: Trust<u32>| Tally { log, count: 0 }, log.clone());
        for _ in 0..4 {
            let fiber = gossamer::spawn(move || {
                (0..100).for_each(|_| tally.apply_then(Tally::count_slowly, |()| {}));
                tally
            });
            tally = fiber.join().unwrap();
        }
        gossamer::spawn(move || drop(tally)).join().unwrap();
        wait_until("all that was queued", || log.apply(|log| *log) > 0);
        assert_eq!(log.apply(|log| *log), 400);
    }
}
