//! Jams on racks: of threads, and of two processes that share memory. This program starts itself
//! again for each case, with a deadline; it has a `main` of its own, because a started host must not
//! run the tests.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use gossamer::jam::{
    Digest, Inject, JamError, LoadedJam, Mode, Policy, Refusal, Sendable, receiver,
};
use gossamer::{Delegable, DelegateError, OnPeerLoss, Rack, Trust};
use gossamer_jam_tests::jams::faulty::FAULTY;
use gossamer_jam_tests::jams::indirect_put::{self, INDIRECT_PUT, PutArgs};
use gossamer_jam_tests::jams::nothing::NOTHING;
use gossamer_jam_tests::jams::scaled_sum::{SCALED_SUM, Sums};
use gossamer_jam_tests::{HOSTILE, Other, Table, UNSEEN, table_slot};

const CASE: &str = "GOSSAMER_TEST_CASE";
const DEADLINE: Duration = Duration::from_secs(120);

const CASES: &[(&str, fn())] = &[
    ("every_mode_has_the_same_result", every_mode_has_the_same_result),
    ("calls_are_served_in_order", calls_are_served_in_order),
    ("a_panic_is_an_error_and_all_goes_on", a_panic_is_an_error_and_all_goes_on),
    ("large_payloads_arrive", large_payloads_arrive),
    ("unseen_code_runs_where_the_policy_admits_it", unseen_code_runs),
    ("hostile_jams_are_refused", hostile_jams_are_refused),
    ("hostile_code_that_is_not_admitted_does_nothing", hostile_code_does_nothing),
    ("frames_that_lie_link_nothing", frames_that_lie_link_nothing),
    (CRASH, a_crash_ends_its_process),
];

/// A case of processes only: one of them ends.
const CRASH: &str = "a_crash_of_an_admitted_jam_ends_its_process";

const MODES: [Mode; 4] = [Mode::Automatic, Mode::Cached, Mode::Injected, Mode::Local];

/// A table on each thread of the rack.
fn tables() -> Vec<Trust<Table>> {
    gossamer::trustees().map(|t| t.entrust_with(|()| Table::new(1 << 20), ())).collect()
}

/// Runs `what` on every host.
fn on_every_host(what: impl FnOnce() + Delegable) {
    gossamer::threads().for_each(|thread| gossamer::spawn_on(thread, what).join().unwrap());
}

fn every_mode_has_the_same_result() {
    for table in tables() {
        for (turn, mode) in (0..).zip(MODES) {
            for (round, bytes) in (0..).zip([&[][..], &[1, 2, 3], &[9; 60]]) {
                let key = turn * 3 + round;
                let args = PutArgs { key, offset: 2 };
                let at = table.inject(&INDIRECT_PUT.in_mode(mode), args, bytes).unwrap();
                assert_eq!(at, key as i64 * 64 + 2);
                let seen = table.apply_with(
                    |table, (at, len)| table.bytes()[at..at + len].to_vec(),
                    (at as usize, bytes.len()),
                );
                assert_eq!(seen, bytes);
            }
            let outside = PutArgs { key: 0, offset: 1 << 40 };
            assert_eq!(table.inject(&INDIRECT_PUT.in_mode(mode), outside, &[1]).unwrap(), -1);
            let sums = table.inject(&SCALED_SUM.in_mode(mode), 10, &[1, 20, 3]).unwrap();
            assert_eq!(sums, Sums { sum: 240, greatest: 20, count: 3 });
            table.inject(&NOTHING.in_mode(mode), (), &[]).unwrap();
        }
    }
    assert_eq!(indirect_put::NAME, "indirect_put");
}

fn calls_are_served_in_order() {
    use std::cell::RefCell;
    use std::rc::Rc;
    for table in tables() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        for key in 0..200 {
            let seen = seen.clone();
            // Places are given in the order of arrival, whoever asks.
            if key % 2 == 1 {
                table.apply_with_then(table_slot, key, move |at: u64| {
                    seen.borrow_mut().push(at as i64);
                });
                continue;
            }
            let args = PutArgs { key, offset: 0 };
            // The first of them carries the code.
            table.inject_then(&INDIRECT_PUT, args, &[7; 8], move |at| {
                seen.borrow_mut().push(at.unwrap());
            });
        }
        // Behind all of them.
        table.apply(|_| ());
        let expected: Vec<i64> = (0..200).map(|key| key * 64).collect();
        assert_eq!(*seen.borrow(), expected);
        // One that asks for code gets it.
        let (gone, done) = (SCALED_SUM.in_mode(Mode::Cached), Rc::new(RefCell::new(None)));
        let sums = done.clone();
        table.inject_then(&gone, 1, &[4], move |result| *sums.borrow_mut() = Some(result));
        while done.borrow().is_none() {
            gossamer::yield_now();
        }
        assert_eq!(done.take().unwrap().unwrap().sum, 4);
    }
}

fn a_panic_is_an_error_and_all_goes_on() {
    on_every_host(|| receiver().set_log(|host, line| assert!(host < 9 && line == "not failing")));
    for (number, table) in (1..).zip(tables()) {
        for mode in MODES {
            let faulty = FAULTY.in_mode(mode);
            let panic_of = |how| match table.inject(&faulty, how, &[]) {
                Err(JamError::Panicked { jam, source }) if jam == "faulty" => source,
                other => panic!("{mode:?}: {other:?}"),
            };
            assert_eq!(table.inject(&faulty, 0, &[]).unwrap(), 7);
            let told = panic_of(1);
            assert_eq!(told.message, "as it was told");
            if mode == Mode::Local {
                assert!(panic_of(2).message.starts_with("index out of bounds"));
            } else {
                assert!(told.file.ends_with("jams/faulty.rs") && told.line == 18, "{told}");
                assert_eq!(panic_of(2).line, 19);
            }
            assert_eq!(panic_of(3).message, "table panic 3");
            assert_eq!(table.inject(&faulty, 4, &[]).unwrap(), 0, "the sender is host 0");
        }
        assert_eq!(table.apply(|table| table.panics), MODES.len() as u32, "table {number}");
    }
}

fn large_payloads_arrive() {
    let words: Vec<u32> = (0..100_000).collect();
    for table in tables() {
        for mode in MODES {
            let sums = table.inject(&SCALED_SUM.in_mode(mode), 1, &words).unwrap();
            assert_eq!(sums.sum, 99_999 * 50_000);
        }
    }
}

type Price = LoadedJam<&'static mut indirect_put::Table, u64, (), u64>;
type NoArgs = LoadedJam<&'static mut indirect_put::Table, (), (), u64>;

fn unseen(name: &str) -> Vec<u8> {
    gossamer::jam::Package::parse(UNSEEN).unwrap().blob(name).unwrap().to_vec()
}

fn unseen_code_runs() {
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

fn hostile_jams_are_refused() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let types = LoadedJam::<(), u64, (), u64>::from_blob(&unseen("price"));
    assert!(matches!(types, Err(JamError::Unusable { .. })), "{types:?}");
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
        let wrong = NoArgs::from_blob(&unseen("wrong_types")).unwrap();
        match table.inject(&wrong, (), &[]) {
            Err(JamError::Refused { source: Refusal::WrongSignature { symbol, .. }, .. }) => {
                assert_eq!(symbol, "table_slot");
            }
            other => panic!("{other:?}"),
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

/// A jam of the package whose jams break rules.
fn hostile(name: &str) -> Vec<u8> {
    gossamer::jam::Package::parse(HOSTILE).unwrap().blob(name).unwrap().to_vec()
}

fn hostile_code_does_nothing() {
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
                        // There is none, and none is asked for.
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

fn frames_that_lie_link_nothing() {
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
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(receiver().receive(&changed, digest).is_err(), "byte {at} is another");
    }
    assert_eq!(receiver().size(), before);
    // What arrived is copied: its sender changes the frame and nothing else.
    let mut frame = good.clone();
    receiver().receive(&frame, digest).unwrap();
    frame.fill(0xcc);
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

fn a_crash_ends_its_process() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let write = LoadedJam::<(), u64, (), u64>::from_blob(&hostile("wild_write")).unwrap();
    let tables = tables();
    let [first, second, third] = &tables[..] else { panic!("one for each host") };
    match third.inject(&write, 8, &[]) {
        Err(JamError::Delegate { jam, source: DelegateError::PeerLost { .. } }) => {
            assert_eq!(jam, "wild_write");
        }
        other => panic!("{other:?}"),
    }
    for table in [first, second] {
        assert_eq!(table.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8, "they go on");
    }
    assert!(third.inject(&SCALED_SUM, 2, &[4]).is_err());
}

fn rack(case: &str) -> Rack {
    if case.ends_with(CRASH) {
        return Rack::new().hosts(3).threads(1).on_peer_loss(OnPeerLoss::Return);
    }
    if case.starts_with("processes_") {
        Rack::new().hosts(2).threads(2).check_leaks(true)
    } else {
        Rack::new().threads(3).check_leaks(true)
    }
}

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(CASE) {
        let (_, case) = name.split_once('_').expect("a prefix");
        let (_, case) = CASES.iter().find(|(listed, _)| *listed == case).expect("a case");
        rack(&name).run(*case).unwrap();
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let names =
        CASES.iter().flat_map(|(name, _)| ["threads_", "processes_"].map(|p| format!("{p}{name}")));
    let names = names.filter(|name| !(name.starts_with("threads_") && name.ends_with(CRASH)));
    let names = names.filter(|name| wanted.is_empty() || wanted.iter().any(|w| name.contains(w)));
    let (mut passed, mut failed) = (0, 0);
    for name in names {
        if std::env::args().any(|word| word == "--list") {
            println!("{name}: test");
            continue;
        }
        let is_well = run(&name);
        println!("test {name} ... {}", if is_well { "ok" } else { "FAILED" });
        *(if is_well { &mut passed } else { &mut failed }) += 1;
    }
    println!(
        "\ntest result: {}. {passed} passed; {failed} failed",
        if failed == 0 { "ok" } else { "FAILED" }
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a case in processes of its own, whose output goes to this one's.
fn run(name: &str) -> bool {
    let exe = std::env::current_exe().expect("this program");
    let mut child =
        Command::new(exe).env(CASE, name).stdin(Stdio::null()).spawn().expect("a process");
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.success();
        }
        if started.elapsed() > DEADLINE {
            println!("{name} hung");
            let _ = child.kill();
            return child.wait().is_ok_and(|_| false);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
