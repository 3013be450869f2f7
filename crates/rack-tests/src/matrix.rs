//! The table of calls on the front page of the documentation, cell by cell: on a property, a latch and
//! a trustee; waiting or not; fallible or not; with arguments or not; by method and by `delegate!`; on
//! every thread, the caller's own included, where each cell must mean the same.

use std::cell::RefCell;
use std::collections::HashSet;

use gossamer::{DelegateError, JoinError, Latch, Sharded, Trust, Trustee, delegate};

use crate::support::{panic_in, wait_until};

fn everywhere() -> Vec<Trustee> {
    gossamer::threads().collect()
}

thread_local! {
    /// What the callbacks of this thread were called with.
    static HEARD: RefCell<Vec<Result<u32, String>>> = const { RefCell::new(Vec::new()) };
}

fn done(value: u32) {
    HEARD.with_borrow_mut(|heard| heard.push(Ok(value)));
}

fn ended(result: Result<u32, DelegateError>) {
    HEARD.with_borrow_mut(|heard| heard.push(result.map_err(|error| error.to_string())));
}

/// What the one callback that is under way is called with.
fn heard() -> Result<u32, String> {
    wait_until("a callback", || HEARD.with_borrow(|heard| !heard.is_empty()));
    let mut heard = HEARD.take();
    assert_eq!(heard.len(), 1, "{heard:?}");
    heard.remove(0)
}

/// Checks one row: the eight calls, and the four by `delegate!`. The closures are given in pieces: what
/// returns 40, what adds an argument `n`, and the parameters of those that panic. In parts of which each
/// has a frame of its own: where calls are inlined into code that is not optimised, as in the tests over
/// RDMA, one of all would not fit on a fiber's stack.
macro_rules! row {
    (
        $to:expr, $at:expr,
        [$($plain:tt)*] $forty:expr, [$($with:tt)*] $sum:expr, [$($unused:tt)*] [$($unused_with:tt)*],
        $call:ident, $call_with:ident, $try_call:ident, $try_call_with:ident,
        $then:ident, $with_then:ident, $try_then:ident, $try_with_then:ident
    ) => {{
        let to = &$to;
        let methods = || {
            assert_eq!(to.$call($($plain)* $forty), 40);
            assert_eq!(to.$call_with($($with)* $sum, 2), 42);
            assert_eq!(to.$try_call($($plain)* $forty).unwrap(), 40);
            assert_eq!(to.$try_call_with($($with)* $sum, 2).unwrap(), 42);
            to.$then($($plain)* $forty, done);
            assert_eq!(heard(), Ok(40));
            to.$with_then($($with)* $sum, 2, done);
            assert_eq!(heard(), Ok(42));
            to.$try_then($($plain)* $forty, ended);
            assert_eq!(heard(), Ok(40));
            to.$try_with_then($($with)* $sum, 2, ended);
            assert_eq!(heard(), Ok(42));
        };
        methods();

        let delegated = || {
            let forty = 40u32;
            assert_eq!(delegate!($to => $call, [forty] $($unused)* forty), 40);
            assert_eq!(delegate!($to => $try_call, [forty] $($unused)* forty + 2).unwrap(), 42);
            delegate!($to => $then, [forty] $($unused)* forty, done);
            assert_eq!(heard(), Ok(40));
            delegate!($to => $try_then, [more = forty + 1] $($unused)* more, ended,);
            assert_eq!(heard(), Ok(41));
        };
        delegated();

        let failures = || {
            // A panic is an error of every fallible form, on every thread, and ends the others.
            // The line of the row, which all of them stand in.
            let place = format!("{}:{}:{}", file!(), line!(), column!());
            let expected = format!("the closure panicked on {}: fell, at {place}", $at.thread());
            let fell = |result: Result<u32, DelegateError>| {
                let error = result.unwrap_err();
                let DelegateError::Panicked { trustee, report } = &error else { panic!("{error:?}") };
                assert_eq!((*trustee, &*report.message), ($at.thread(), "fell"));
                assert_eq!(report.place.as_ref().map(ToString::to_string), Some(place.clone()));
            };
            fell(to.$try_call($($unused)* -> u32 { panic!("fell") }));
            fell(to.$try_call_with($($unused_with)* -> u32 { panic!("fell") }, 2));
            to.$try_then($($unused)* -> u32 { panic!("fell") }, ended);
            assert_eq!(heard(), Err(expected.clone()));
            to.$try_with_then($($unused_with)* -> u32 { panic!("fell") }, 2, ended);
            assert_eq!(heard(), Err(expected));
            let said = panic_in(|| to.$call($($unused)* -> u32 { panic!("fell") }));
            assert!(said.contains("fell"), "{said}");
        };
        failures();
    }};
}

pub fn every_call_on_a_property() {
    for at in everywhere() {
        let to = at.entrust(0u32);
        row!(
            to, at, [|v|] 40 + *v, [|v, n: u32|] 40 + n + *v, [|_|] [|_, _: u32|],
            apply,
            apply_with,
            try_apply,
            try_apply_with,
            apply_then,
            apply_with_then,
            try_apply_then,
            try_apply_with_then
        );
    }
}

pub fn every_call_on_a_latch() {
    for at in everywhere() {
        let to = at.entrust_with(Latch::new, 0u32);
        row!(
            to, at, [|v|] 40 + *v, [|v, n: u32|] 40 + n + *v, [|_|] [|_, _: u32|],
            launch,
            launch_with,
            try_launch,
            try_launch_with,
            launch_then,
            launch_with_then,
            try_launch_then,
            try_launch_with_then
        );
        // They may wait.
        assert_eq!(delegate!(to => try_launch, [at] |v| *v + at.visit(|| 7)).unwrap(), 7);
    }
}

pub fn every_call_on_a_trustee() {
    for at in everywhere() {
        row!(
            at, at, [||] 40, [|n: u32|] 40 + n, [||] [|_: u32|],
            visit,
            visit_with,
            try_visit,
            try_visit_with,
            visit_then,
            visit_with_then,
            try_visit_then,
            try_visit_with_then
        );
        assert_eq!(at.visit(|| gossamer::local_trustee().trustee()), at);
        assert_eq!(at.spawn(|| gossamer::local_trustee().trustee()).join().unwrap(), at);
        let said = panic_in(|| at.visit(gossamer::yield_now));
        assert!(said.contains("would wait inside"), "as in every delegated closure: {said}");
    }
}

pub fn every_way_to_entrust() {
    for at in everywhere() {
        let is_there = |trust: &Trust<u32>| {
            assert_eq!(trust.trustee(), at);
            assert_eq!(trust.apply(|n| *n), 7);
        };
        is_there(&at.entrust(7));
        is_there(&at.entrust_with(|n| n + 4, 3u32));
        is_there(&at.try_entrust(7).unwrap());
        is_there(&at.try_entrust_with(|n| n + 4, 3u32).unwrap());
        at.entrust_then(7u32, |trust| trust.apply_then(|n| *n, done));
        assert_eq!(heard(), Ok(7));
        at.entrust_with_then(|n| n + 4, 3u32, |trust: Trust<u32>| trust.apply_then(|n| *n, done));
        assert_eq!(heard(), Ok(7));
        at.try_entrust_then(7u32, |trust| trust.unwrap().apply_then(|n| *n, done));
        assert_eq!(heard(), Ok(7));
        let fell = |n: u32| -> u32 { panic!("fell at {n}") };
        at.try_entrust_with_then(fell, 3, |trust| ended(trust.map(|_| 0)));
        assert!(heard().unwrap_err().contains("fell at 3"));
        let error = at.try_entrust_with(fell, 3).unwrap_err();
        assert!(matches!(error, DelegateError::Panicked { .. }), "{error:?}");
    }
    assert_eq!(gossamer::try_entrust(7u32).unwrap().apply(|n| *n), 7);
    assert_eq!(gossamer::try_entrust_with(|n| n + 4, 3u32).unwrap().apply(|n| *n), 7);
    let fell = gossamer::try_entrust_with(|n: u32| -> u32 { panic!("fell at {n}") }, 3);
    assert!(matches!(fell, Err(DelegateError::Panicked { .. })), "{fell:?}");
    let outside = || gossamer::try_entrust_with(|n| n, 3u32).map(drop);
    let outside = std::thread::spawn(outside).join().unwrap();
    assert!(matches!(outside, Err(DelegateError::NoRack(_))), "{outside:?}");
    let shards = Sharded::<u8, u32>::try_new(|| 7).unwrap();
    assert!(shards.shards().iter().all(|shard| shard.apply(|n| *n) == 7));
    // One trustee cannot make its shard.
    let last = gossamer::threads().last().unwrap();
    let make = |last: Trustee| {
        assert_ne!(gossamer::local_trustee().trustee(), last, "no shard of the last");
    };
    let error = Sharded::<u8, ()>::try_new_with(make, last).unwrap_err();
    let DelegateError::Panicked { trustee, report } = &error else { panic!("{error:?}") };
    assert_eq!(*trustee, last.thread());
    assert!(report.message.contains("no shard of the last"), "{report}");
}

/// Errors travel: a fiber or a closure on any thread returns what failed for it with a question mark.
pub fn errors_travel_with_a_question_mark() {
    let last = gossamer::threads().last().unwrap();
    let first = gossamer::threads().next().unwrap();
    let number = last.entrust(1u32);
    for at in everywhere() {
        let work = |number: Trust<u32>| -> Result<u32, DelegateError> {
            let fine = number.try_apply(|n| *n)?;
            let joined = number.trustee().spawn(|| 1u32).join()?;
            Ok(fine + joined + number.try_apply(|_| -> u32 { panic!("deep down") })?)
        };
        let error = at.spawn_with(work, number.clone()).join().unwrap().unwrap_err();
        let DelegateError::Panicked { trustee, report } = &error else { panic!("{error:?}") };
        assert_eq!((*trustee, &*report.message), (last.thread(), "deep down"));
        // A fiber that panicked is told from a request that failed.
        let joins = |first: Trustee| -> Result<(), DelegateError> {
            let fiber = first.spawn(|| panic!("a fiber's own"));
            let joined: Result<(), JoinError> = fiber.join();
            assert!(matches!(joined, Err(JoinError::Panicked { .. })), "{joined:?}");
            Ok(joined?)
        };
        let error = at.spawn_with(joins, first).join().unwrap().unwrap_err();
        assert!(matches!(error, DelegateError::Join(_)), "{error:?}");
        assert!(error.to_string().contains("a fiber's own"), "{error}");
    }
}

pub fn ids_are_those_of_properties_on_every_thread() {
    let trusts: Vec<Trust<u32>> =
        (0..3).flat_map(|n| gossamer::threads().map(move |at| at.entrust(n))).collect();
    let ids: HashSet<_> = trusts.iter().map(Trust::id).collect();
    assert_eq!(ids.len(), trusts.len());
    for at in everywhere() {
        let there = at.visit_with(
            |trusts: Vec<Trust<u32>>| trusts.iter().map(Trust::id).collect::<Vec<_>>(),
            trusts.clone(),
        );
        assert!(there.iter().eq(trusts.iter().map(Trust::id).collect::<Vec<_>>().iter()));
        assert!(there.iter().all(|id| ids.contains(id)));
        assert_eq!(there.iter().max(), ids.iter().max(), "one order everywhere");
    }
}

/// Iterators over the threads of the rack know their length and can be kept.
pub fn threads_are_counted_and_numbered() {
    let threads = gossamer::threads();
    let again = threads.clone();
    let all: Vec<_> = threads.collect();
    assert_eq!(again.len(), all.len());
    assert!(again.clone().eq(all.iter().copied()));
    assert_eq!(again.last(), all.last().copied());
    assert_eq!(gossamer::trustees().nth(1), all.get(1).copied(), "all threads are trustees");
    for (number, at) in (0..).zip(&all) {
        assert_eq!(Trustee::from_number(number), Some(*at));
        assert_eq!(Trustee::from_thread(at.thread()), Some(*at));
    }
    assert_eq!(Trustee::from_number(all.len() as u32), None);
}
