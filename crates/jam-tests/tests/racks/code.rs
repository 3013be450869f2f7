//! Code that the receivers do not have: who may send it, and how it is fetched again.

use std::cell::RefCell;
use std::rc::Rc;

use gossamer::jam::{
    Digest, Inject, JamError, LoadedJam, Mode, Package, Policy, Refusal, Sendable, receiver,
};
use gossamer_jam_tests::jams::indirect_put::{INDIRECT_PUT, PutArgs};
use gossamer_jam_tests::jams::nothing::NOTHING;
use gossamer_jam_tests::jams::scaled_sum::SCALED_SUM;
use gossamer_jam_tests::{Other, Table, UNSEEN};

use crate::play::{MODES, NoArgs, Price, hostile, on_every_host, tables, unseen};

/// Calls by handle whose jam is gone when they arrive: none is lost, even if the trust is.
pub(crate) fn evicted_jams_are_sent_again() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let price = Price::from_blob(&unseen("price")).unwrap();
    for table in tables() {
        for round in 0..3 {
            // With these, handles are known.
            for _ in 0..2 {
                assert_eq!(table.inject(&price, 5, &[]).unwrap(), 17);
                assert_eq!(table.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8);
            }
            // After calls that are under way.
            on_every_host(|| receiver().set_policy(Policy::AnyPeer));
            if round == 0 {
                assert_eq!(table.inject(&price, 5, &[]).unwrap(), 17);
                assert_eq!(
                    table.inject(&SCALED_SUM.in_mode(Mode::Cached), 2, &[4]).unwrap().sum,
                    8
                );
                on_every_host(|| receiver().set_policy(Policy::AnyPeer));
            }
            let ended = Rc::new(RefCell::new((Vec::new(), Vec::new())));
            let again = table.clone();
            for number in 0..60 {
                let (one, other) = (ended.clone(), ended.clone());
                again.inject_then(&price, number, &[], move |result| {
                    one.borrow_mut().0.push(result.unwrap());
                });
                let long: Vec<u32> = (0..if number % 2 == 0 { 5 } else { 3000 }).collect();
                let expected = 3 * long.iter().map(|word| u64::from(*word)).sum::<u64>();
                again.inject_then(&SCALED_SUM, 3, &long, move |result| {
                    other.borrow_mut().1.push(result.unwrap().sum == expected);
                });
            }
            drop(again);
            while ended.borrow().0.len() + ended.borrow().1.len() < 120 {
                gossamer::yield_now();
            }
            let (prices, sums) = ended.take();
            let mut expected: Vec<u64> =
                (0..60).map(|n| table.inject(&price, n, &[]).unwrap()).collect();
            expected.sort_unstable();
            let mut prices = prices;
            prices.sort_unstable();
            assert_eq!(prices, expected);
            assert!(sums.iter().all(|is_right| *is_right));
        }
    }
}

pub(crate) fn unseen_code_runs() {
    let price = Price::from_blob(&unseen("price")).unwrap();
    for table in tables() {
        match table.inject(&price, 5, &[]) {
            Err(JamError::Refused { source: Refusal::Policy { .. }, .. }) => {}
            other => panic!("the default policy is `Signed`: {other:?}"),
        }
        table.inject(&NOTHING, (), &[]).unwrap();
    }
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    for table in tables() {
        assert_eq!(table.inject(&price, 5, &[]).unwrap(), 17);
        assert_eq!(table.inject(&price, 6, &[]).unwrap(), 64_017);
        match table.inject(&price.in_mode(Mode::Local), 6, &[]) {
            Err(JamError::Refused { source: Refusal::NotLocal, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    on_every_host(|| receiver().set_policy(Policy::Nothing));
    let again = Price::from_blob(&unseen("price")).unwrap();
    let table = &tables()[0];
    match table.inject(&again.in_mode(Mode::Injected), 5, &[]) {
        Err(JamError::Refused { source: Refusal::Policy { .. }, .. }) => {}
        other => panic!("{other:?}"),
    }
    for mode in MODES {
        match table.inject(&NOTHING.in_mode(mode), (), &[]) {
            Err(JamError::Refused { source: Refusal::Policy { .. }, .. }) => {}
            other => panic!("{mode:?}: {other:?}"),
        }
    }
}

/// The policy of the settings holds in every process, from the first call on.
pub(crate) fn the_policy_of_the_settings_holds() {
    let price = Price::from_blob(&unseen("price")).unwrap();
    for table in tables() {
        assert_eq!(table.inject(&price, 5, &[]).unwrap(), 17);
    }
}

pub(crate) fn hostile_jams_are_refused() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let types = LoadedJam::<(), u64, (), u64>::from_blob(&unseen("price"));
    let Err(JamError::Unusable { reason, .. }) = &types else { panic!("{types:?}") };
    assert!(reason.contains("that of `fn((), u64, &[()]) -> u64`"), "{reason}");
    let truncated = Price::from_blob(&unseen("price")[..100]);
    assert!(matches!(truncated, Err(JamError::Unusable { .. })), "{truncated:?}");
    for table in tables() {
        let missing = NoArgs::from_blob(&unseen("missing")).unwrap();
        match table.inject(&missing, (), &[]) {
            Err(JamError::Refused { source: Refusal::MissingSymbol { symbol, .. }, .. }) => {
                assert_eq!(symbol, "table_vanish");
            }
            other => panic!("{other:?}"),
        }
        // A package has the text of the types; a blob has not.
        let package = Package::parse(UNSEEN).unwrap();
        for (wrong, jam) in [
            (package.find("wrong_types").unwrap(), "`fn table_slot("),
            (NoArgs::from_blob(&unseen("wrong_types")).unwrap(), "\"table_slot\" with signature "),
        ] {
            let wrong: NoArgs = wrong;
            match table.inject(&wrong, (), &[]) {
                Err(JamError::Refused { source, .. }) => {
                    let message = source.to_string();
                    let expected = [
                        "the jam expects ",
                        jam,
                        ", the receiver exports `fn table_slot(&mut Table, u64) -> u64` (",
                    ];
                    assert!(expected.iter().all(|part| message.contains(part)), "{message}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(table.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8, "it goes on");
    }
    let other = gossamer::entrust(Other);
    let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        other.inject(&INDIRECT_PUT, PutArgs { key: 0, offset: 0 }, &[])
    }));
    assert!(wrong.is_err(), "the jam works on another type of property");
    assert_eq!(other.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8, "this one on any");
}

pub(crate) fn hostile_code_does_nothing() {
    let write = LoadedJam::<(), u64, (), u64>::from_blob(&hostile("wild_write")).unwrap();
    let endless = LoadedJam::<(), (), (), u64>::from_blob(&hostile("endless")).unwrap();
    for policy in [Policy::Signed, Policy::Nothing] {
        match policy {
            Policy::Nothing => on_every_host(|| receiver().set_policy(Policy::Nothing)),
            _ => on_every_host(|| receiver().set_policy(Policy::Signed)),
        }
        for table in tables() {
            for mode in MODES {
                let results = [
                    table.inject(&write.in_mode(mode), 8, &[]),
                    table.inject(&endless.in_mode(mode), (), &[]),
                ];
                for result in results {
                    match result {
                        Err(JamError::Refused { source: Refusal::Policy { .. }, .. }) => {}
                        // The program has no Local Function of this jam, so there is no code to ask for.
                        Err(JamError::Refused { source: Refusal::NotLocal, .. })
                            if mode == Mode::Local => {}
                        other => panic!("{policy:?} {mode:?}: {other:?}"),
                    }
                }
            }
            assert_eq!(table.apply(|table| table.panics), 0, "it goes on");
            if policy == Policy::Signed {
                assert_eq!(table.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8);
            }
        }
    }
}

/// Where the header of a blob has its length.
const LENGTH_AT: usize = 52;

pub(crate) fn frames_that_lie_link_nothing() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let (good, other) = (hostile("sum"), hostile("endless"));
    let (digest, before) = (Digest::of(&good), receiver().size());
    match receiver().receive(&other, digest) {
        Err(Refusal::Digest { claimed, .. }) => assert_eq!(claimed, digest.to_string()),
        other => panic!("a forged digest: {other:?}"),
    }
    for len in 0..good.len() {
        let cut = &good[..len];
        let refused = receiver().receive(cut, Digest::of(cut));
        assert!(matches!(refused, Err(Refusal::Malformed { .. })), "{len} bytes: {refused:?}");
    }
    // Its parts are all there: only the length that the header claims is another.
    let mut longer = good.clone();
    longer[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&(good.len() as u32 + 1).to_le_bytes());
    let refused = receiver().receive(&longer, Digest::of(&longer));
    assert!(matches!(refused, Err(Refusal::Malformed { .. })), "{refused:?}");
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(receiver().receive(&changed, digest).is_err(), "byte {at} is another");
    }
    assert_eq!(receiver().size(), before);
    receiver().receive(&good, digest).unwrap();
    let sum = LoadedJam::<(), u64, u32, u64>::from_blob(&good).unwrap();
    let table = gossamer::entrust(Table::new(64));
    assert_eq!(table.inject(&sum.in_mode(Mode::Cached), 2, &[1, 2]).unwrap(), 6);
    // A frame that is sent again is linked once, and runs again.
    let linked = receiver().size();
    for _ in 0..3 {
        receiver().receive(&good, digest).unwrap();
        assert_eq!(table.inject(&sum.in_mode(Mode::Injected), 2, &[1, 2]).unwrap(), 6);
    }
    assert_eq!(receiver().size(), linked);
}

pub(crate) fn a_function_is_replaced_under_load() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    crate::hot_patch::patch(500);
}

/// A jam that claims that more calls of its run have ended than it has fails one of them; what the others
/// get is its own affair. The trustee goes on.
pub(crate) fn a_forged_number_is_bounded() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let jam = LoadedJam::<(), [u64; 2], (), u64>::from_blob(&hostile("forge_done")).unwrap();
    for table in tables() {
        assert_eq!(table.inject(&jam, [7, 0], &[]).unwrap(), 7);
        for done in [1, 41, 42, 43, 1 << 32, u64::MAX] {
            let ended = Rc::new(RefCell::new(Vec::new()));
            for call in 0..84 {
                let (args, ended) = ([call, if call % 42 == 20 { done } else { 0 }], ended.clone());
                table.inject_then(&jam, args, &[], move |end| ended.borrow_mut().push(end));
            }
            let last = table.inject(&jam, [9, 0], &[]);
            assert_eq!((last.unwrap(), ended.borrow().len()), (9, 84), "{done}");
            let failed: Vec<_> = ended.take().into_iter().filter_map(Result::err).collect();
            assert!(!failed.is_empty(), "a call fails that panics: {done}");
            for error in failed {
                let JamError::Panicked { source, .. } = error else { panic!("{error:?}") };
                assert_eq!(source.message, "forged");
            }
        }
        assert_eq!(table.apply(|table| table.panics), 0, "it goes on");
    }
}
