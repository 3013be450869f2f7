//! Jams on racks: of threads, and of two processes that share memory. This program starts itself
//! again for each case, with a deadline; it has a `main` of its own, because a started host must not
//! run the tests.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use gossamer::jam::{Inject, JamError, LoadedJam, Mode, Policy, Refusal, Sendable, receiver};
use gossamer::{Delegable, Rack, Trust};
use gossamer_jam_tests::jams::faulty::FAULTY;
use gossamer_jam_tests::jams::indirect_put::{self, INDIRECT_PUT, PutArgs};
use gossamer_jam_tests::jams::nothing::NOTHING;
use gossamer_jam_tests::jams::scaled_sum::{SCALED_SUM, Sums};
use gossamer_jam_tests::jams::server_side_sum::SERVER_SIDE_SUM;
use gossamer_jam_tests::{Other, Table, UNSEEN, table_slot};

const CASE: &str = "GOSSAMER_TEST_CASE";
const DEADLINE: Duration = Duration::from_secs(120);

const CASES: &[(&str, fn())] = &[
    ("every_mode_has_the_same_result", every_mode_has_the_same_result),
    ("calls_are_served_in_order", calls_are_served_in_order),
    ("a_panic_is_an_error_and_all_goes_on", a_panic_is_an_error_and_all_goes_on),
    ("large_payloads_arrive", large_payloads_arrive),
    ("evicted_jams_are_sent_again", evicted_jams_are_sent_again),
    ("unseen_code_runs_where_the_policy_admits_it", unseen_code_runs),
    ("hostile_jams_are_refused", hostile_jams_are_refused),
];

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
            let sum = table.inject(&SERVER_SIDE_SUM.in_mode(mode), (), &[-1, 20, 3]).unwrap();
            assert_eq!(sum, 22);
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

/// Calls by handle whose jam is gone when they arrive: none is lost, even if the trust is.
fn evicted_jams_are_sent_again() {
    use std::cell::RefCell;
    use std::rc::Rc;
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let price = Price::from_blob(&unseen("price")).unwrap();
    for table in tables() {
        for round in 0..3 {
            // With these, handles are known.
            for _ in 0..2 {
                assert_eq!(table.inject(&price, 5, &[]).unwrap(), 17);
                assert_eq!(table.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8);
            }
            // Behind calls that are under way.
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

fn rack(case: &str) -> Rack {
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
