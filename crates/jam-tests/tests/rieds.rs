//! Rieds on racks: what jams call changes while they run, in each process by itself.

mod common;
#[allow(dead_code, reason = "its `main`")]
#[path = "../examples/new_interface.rs"]
mod new_interface;
#[allow(dead_code, reason = "its `main`")]
#[path = "../examples/replace_operations.rs"]
mod replace_operations;

use std::process::ExitCode;
use std::sync::Mutex;

use gossamer::jam::{
    AuditEvent, Code, Digest, Inject, JamError, Mode, Origin, PackageData, Panicked, Policy,
    Refusal, RemoteRied, RiedError, RiedRefusal, RiedSource, Sendable, load_ried, receiver,
};
use gossamer::{Delegable, HostId, Trust, Trustee, spawn_on_with, threads};
use gossamer_jam_tests::Table;
use gossamer_jam_tests::rieds::doubled::DOUBLED;
use gossamer_jam_tests::rieds::failing::FAILING;
use gossamer_jam_tests::rieds::fivefold::FIVEFOLD;
use gossamer_jam_tests::rieds::needy::NEEDY;
use gossamer_jam_tests::rieds::next::NEXT;
use gossamer_jam_tests::rieds::place::PLACE;
use gossamer_jam_tests::rieds::scale_fault::SCALE_FAULT;
use gossamer_jam_tests::rieds::scaled::SCALED;
use gossamer_jam_tests::rieds::shifted::SHIFTED;
use gossamer_jam_tests::rieds::tripled::TRIPLED;
use gossamer_jam_tests::rieds::vanishing::VANISHING;

const CASES: &[common::Case] = &[
    ("the_newest_ried_counts", the_newest_ried_counts),
    ("a_name_means_something_else_on_each_host", a_name_means_something_else_on_each_host),
    ("a_ried_stands_before_the_program", a_ried_stands_before_the_program),
    ("panics_end_at_the_border", panics_end_at_the_border),
    ("a_ried_that_does_not_start_is_not_seen", a_ried_that_does_not_start_is_not_seen),
    ("policies_hold_for_rieds", policies_hold_for_rieds),
    ("hostile_libraries_are_refused", hostile_libraries_are_refused),
    ("rieds_change_under_load", rieds_change_under_load),
    ("the_operations_of_a_server_are_replaced", the_operations_of_a_server_are_replaced),
    ("a_host_gets_an_interface", a_host_gets_an_interface),
];

const MODES: [Mode; 4] = [Mode::Automatic, Mode::Cached, Mode::Injected, Mode::Local];
/// The place of the second key of a table.
const PLACE_OF_SECOND: u64 = 64;

fn main() -> ExitCode {
    common::run_all(&common::EVERYWHERE, CASES)
}

/// A table on the first thread of each host, which has the keys 0 and 1.
fn tables() -> Vec<(Trustee, Trust<Table>)> {
    let mut hosts: Vec<(HostId, Trustee)> = Vec::new();
    for thread in threads() {
        if hosts.iter().all(|(host, _)| *host != thread.thread().host) {
            hosts.push((thread.thread().host, thread));
        }
    }
    let tables = hosts.into_iter().map(|(_, thread)| {
        let table = thread.entrust_with(|()| Table::new(0), ());
        assert_eq!(table.inject(&PLACE, 0, &[]).unwrap(), 0);
        assert_eq!(table.inject(&PLACE, 1, &[]).unwrap(), PLACE_OF_SECOND);
        (thread, table)
    });
    tables.collect()
}

/// Runs `what` on every host.
fn on_every_host(what: impl FnOnce() + Delegable) {
    threads().for_each(|thread| gossamer::spawn_on(thread, what).join().unwrap());
}

/// What `scaled` makes of the second key in each mode, which is the same; `None` if no ried scales.
fn scale(table: &Trust<Table>) -> Option<u64> {
    let results = MODES.map(|mode| match table.inject(&SCALED.in_mode(mode), 1, &[]) {
        Ok(place) => Some(place / PLACE_OF_SECOND),
        Err(JamError::Refused { source: Refusal::MissingSymbol { symbol, .. }, .. }) => {
            assert_eq!(symbol, "table_scale");
            None
        }
        other => panic!("{mode:?}: {other:?}"),
    });
    assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
    results[0]
}

fn the_newest_ried_counts() {
    static LINES: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());
    on_every_host(|| {
        receiver().set_log(|host, line| LINES.lock().unwrap().push((host, line.to_owned())));
    });
    for (host, table) in tables() {
        assert_eq!(scale(&table), None);
        let doubled = load_ried(host, &DOUBLED).unwrap();
        assert_eq!((scale(&table), doubled.name()), (Some(2), "doubled"));
        let tripled = load_ried(host, &TRIPLED).unwrap();
        assert_eq!(scale(&table), Some(3), "jams that are linked call the newest one");
        let again = load_ried(host, &DOUBLED).unwrap();
        assert_eq!(scale(&table), Some(2), "it is before the others again");
        let calls = table.inject(&SCALE_FAULT, 0, &[]).unwrap() >> 32;
        assert_eq!(calls, 2 * MODES.len() as u64, "the library was mapped once");
        assert!(doubled.unload().unwrap());
        assert!(!doubled.unload().unwrap(), "only once");
        assert_eq!(scale(&table), Some(2), "the second load is still there");
        assert!(again.unload().unwrap());
        assert_eq!(scale(&table), Some(3));
        let fivefold = load_ried(host, &FIVEFOLD).unwrap();
        assert_eq!(scale(&table), Some(5), "one in C");
        [tripled, fivefold].iter().for_each(|ried| assert!(ried.unload().unwrap()));
        assert_eq!(scale(&table), None);
    }
    on_every_host(|| {
        let once = [(0, "doubled begins".to_owned())];
        assert_eq!(*LINES.lock().unwrap(), once, "it starts once, and only overrides");
    });
    let symbol = |export: &&(&str, u64)| export.0 == "table_scale";
    let signature = |exports: &'static [(&str, u64)]| exports.iter().find(symbol).unwrap().1;
    assert_eq!(signature(DOUBLED.exports), signature(TRIPLED.exports));
}

fn a_name_means_something_else_on_each_host() {
    let tables = tables();
    let rieds: [&dyn RiedSource; 2] = [&DOUBLED, &TRIPLED];
    let loaded = tables.iter().zip(rieds).map(|((host, _), ried)| load_ried(*host, ried).unwrap());
    let loaded: Vec<RemoteRied> = loaded.collect();
    for _ in 0..3 {
        for ((_, table), factor) in tables.iter().zip(2..) {
            assert_eq!(scale(table), Some(factor));
        }
    }
    loaded.iter().for_each(|ried| assert!(ried.unload().unwrap()));
    tables.iter().for_each(|(_, table)| assert_eq!(scale(table), None));
}

fn a_ried_stands_before_the_program() {
    let place = |table: &Trust<Table>| {
        let places = MODES.map(|mode| table.inject(&PLACE.in_mode(mode), 1, &[]).unwrap());
        assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
        places[0]
    };
    for (host, table) in tables() {
        let shifted = load_ried(host, &SHIFTED).unwrap();
        assert_eq!(place(&table), 1_000_000 + PLACE_OF_SECOND);
        let doubled = load_ried(host, &DOUBLED).unwrap();
        let scaled = table.inject(&SCALED, 1, &[]).unwrap();
        assert_eq!(scaled, 2 * (1_000_000 + PLACE_OF_SECOND), "a ried calls the one before it");
        assert!(shifted.unload().unwrap());
        assert_eq!(place(&table), PLACE_OF_SECOND);
        let scaled = table.inject(&SCALED, 1, &[]).unwrap();
        assert_eq!(scaled, 2 * (1_000_000 + PLACE_OF_SECOND), "it keeps what it started with");
        assert!(doubled.unload().unwrap());
    }
}

fn panics_end_at_the_border() {
    for (host, table) in tables() {
        let doubled = load_ried(host, &DOUBLED).unwrap();
        let drops = || table.inject(&SCALE_FAULT, 0, &[]).unwrap() as u32;
        assert_eq!(drops(), 0);
        for (count, mode) in (1..).zip(MODES) {
            let panic_of = |how| match table.inject(&SCALE_FAULT.in_mode(mode), how, &[]) {
                Err(JamError::Panicked { jam, source }) if jam == "scale_fault" => source,
                other => panic!("{mode:?}: {other:?}"),
            };
            let Panicked { message, file, line, .. } = panic_of(1);
            assert_eq!(message, "as ried was told: 1");
            assert!(file.ends_with("rieds/doubled/src/lib.rs") && line > 20, "{file}:{line}");
            assert_eq!(panic_of(2).message, "table panic 2");
            assert_eq!(table.inject(&SCALE_FAULT.in_mode(mode), 3, &[]).unwrap(), 3);
            assert_eq!(drops(), 3 * count, "destructors of the ried ran");
        }
        assert_eq!(table.apply(|table| table.panics), MODES.len() as u32);
        // From one ried through another.
        let vanishing = load_ried(host, &VANISHING).unwrap();
        let needy = load_ried(host, &NEEDY).unwrap();
        for mode in MODES {
            assert_eq!(table.inject(&NEXT.in_mode(mode), 4, &[]).unwrap(), 41);
            match table.inject(&NEXT.in_mode(mode), 13, &[]) {
                Err(JamError::Panicked { source, .. }) => {
                    assert_eq!(source.message, "unlucky in a ried");
                    assert!(source.file.ends_with("vanishing/src/lib.rs"), "{source}");
                }
                other => panic!("{mode:?}: {other:?}"),
            }
        }
        [needy, vanishing, doubled].iter().for_each(|ried| assert!(ried.unload().unwrap()));
    }
}

fn refusal(loaded: Result<RemoteRied, RiedError>) -> RiedRefusal {
    match loaded {
        Err(RiedError::Refused { source, .. }) => source,
        other => panic!("{other:?}"),
    }
}

/// What the audit log of this process says of rieds.
static ENTRIES: Mutex<Vec<(AuditEvent, String, Option<u32>)>> = Mutex::new(Vec::new());

fn note_rieds() {
    receiver().set_audit(|entry| {
        if entry.event != AuditEvent::FirstRun {
            assert_eq!(*entry.origin, Origin::Program);
            ENTRIES.lock().unwrap().push((entry.event, entry.name.to_owned(), entry.host));
        }
    });
}

/// Those entries, as text, which are taken out.
fn noted_rieds() -> Vec<String> {
    let entries = std::mem::take(&mut *ENTRIES.lock().unwrap());
    entries.iter().map(|(event, name, host)| format!("{event:?} {name} {host:?}")).collect()
}

fn a_ried_that_does_not_start_is_not_seen() {
    on_every_host(note_rieds);
    for (host, table) in tables() {
        match refusal(load_ried(host, &FAILING)) {
            RiedRefusal::Start { source } => assert_eq!(source.message, "not on this host"),
            other => panic!("{other}"),
        }
        match refusal(load_ried(host, &FAILING)) {
            RiedRefusal::Start { source } => {
                assert_eq!(source.message, "it starts once more");
                assert!(source.file.ends_with("rieds/failing/src/lib.rs"), "{source}");
            }
            other => panic!("{other}"),
        }
        match refusal(load_ried(host, &NEEDY)) {
            RiedRefusal::Code(Refusal::MissingSymbol { symbol, .. }) => {
                assert_eq!(symbol, "table_vanished");
            }
            other => panic!("{other}"),
        }
        let missing = table.inject(&NEXT, 4, &[]);
        assert!(matches!(missing, Err(JamError::Refused { .. })), "{missing:?}");
        let vanishing = load_ried(host, &VANISHING).unwrap();
        let needy = load_ried(host, &NEEDY).unwrap();
        assert!(vanishing.unload().unwrap());
        assert_eq!(table.inject(&NEXT, 4, &[]).unwrap(), 41, "it keeps what it started with");
        assert!(needy.unload().unwrap());
        let noted = spawn_on_with(host, |()| noted_rieds(), ()).join().unwrap();
        let expected = [
            "RiedStarts failing Some(0)",
            "RiedStarts needy Some(0)",
            "RiedStarts vanishing Some(0)",
            "RiedLoaded vanishing Some(0)",
            "RiedLoaded needy Some(0)",
            "RiedUnloaded vanishing Some(0)",
            "RiedUnloaded needy Some(0)",
        ];
        assert_eq!(noted, expected);
    }
}

/// A library of the package that the program does not have: with one byte more.
fn unseen(package: &PackageData, name: &str) -> Code {
    let package = gossamer::jam::Package::parse(package.bytes).unwrap();
    let library = package.ried(name).unwrap();
    Code::of_library(name, &[library.bytes(), &[0]].concat())
}

fn policies_hold_for_rieds() {
    let tripled = unseen(DOUBLED.package, "tripled");
    for (host, table) in tables() {
        let refused = refusal(load_ried(host, &tripled));
        assert!(matches!(refused, RiedRefusal::Code(Refusal::Policy { .. })), "{refused}");
        load_ried(host, &DOUBLED).expect("it is of the program's package");
        assert_eq!(scale(&table), Some(2));
    }
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let tables = tables();
    for (host, table) in &tables {
        load_ried(*host, &tripled).unwrap();
        assert_eq!(scale(table), Some(3));
    }
    on_every_host(|| receiver().set_policy(Policy::Signed));
    for (host, table) in &tables {
        assert_eq!(scale(table), Some(2), "what the policy does not admit is unloaded");
        let refused = refusal(load_ried(*host, &tripled));
        assert!(matches!(refused, RiedRefusal::Code(Refusal::Policy { .. })), "{refused}");
    }
    let admit = |digest: [u8; 16]| receiver().admit([Digest::from_bytes(digest)]);
    for thread in threads() {
        spawn_on_with(thread, admit, *tripled.digest().as_bytes()).join().unwrap();
    }
    for (host, table) in &tables {
        load_ried(*host, &tripled).expect("it is admitted");
        assert_eq!(scale(table), Some(3));
    }
    on_every_host(|| receiver().set_policy(Policy::Nothing));
    for (host, _) in &tables {
        let refused = refusal(load_ried(*host, &DOUBLED));
        assert!(matches!(refused, RiedRefusal::Code(Refusal::Policy { .. })), "{refused}");
    }
    on_every_host(|| receiver().set_policy(Policy::Signed));
    tables.iter().for_each(|(_, table)| assert_eq!(scale(table), None, "nothing stayed"));
}

fn hostile_libraries_are_refused() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let library = unseen(DOUBLED.package, "doubled");
    let whole = library.bytes();
    let mut other_machine = whole.to_vec();
    other_machine[18] ^= 62 ^ 183;
    for (host, table) in tables() {
        let load = |bytes: &[u8]| refusal(load_ried(host, &Code::of_library("hostile", bytes)));
        for bytes in [&b"#!/bin/sh"[..], &whole[..64], &whole[..whole.len() / 2]] {
            let refused = load(bytes);
            assert!(matches!(refused, RiedRefusal::Malformed { .. }), "{refused}");
        }
        let refused = load(&other_machine);
        assert!(matches!(refused, RiedRefusal::Code(Refusal::Machine { .. })), "{refused}");
        // The form of a library, which the system's loader does not take.
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let refused = load(&own);
        assert!(matches!(refused, RiedRefusal::Library { .. }), "{refused}");
        load_ried(host, &library).expect("it goes on");
        assert_eq!(scale(&table), Some(2));
    }
}

fn the_operations_of_a_server_are_replaced() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    replace_operations::replace();
}

fn a_host_gets_an_interface() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    new_interface::count();
}

/// Calls of each fiber under load.
const CALLS: u64 = 1000;

fn rieds_change_under_load() {
    for (host, table) in tables() {
        let _below = load_ried(host, &TRIPLED).unwrap();
        let callers: Vec<_> =
            threads().map(|thread| spawn_on_with(thread, call, table.clone())).collect();
        let mut changes = 0;
        while !callers.iter().all(gossamer::JoinHandle::is_finished) {
            let doubled = load_ried(host, &DOUBLED).unwrap();
            assert_eq!(table.inject(&SCALED, 1, &[]).unwrap(), 2 * PLACE_OF_SECOND);
            assert!(doubled.unload().unwrap());
            assert_eq!(table.inject(&SCALED, 1, &[]).unwrap(), 3 * PLACE_OF_SECOND);
            changes += 2;
        }
        let all: u64 = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
        assert_eq!(all, CALLS * threads().count() as u64, "no call was lost");
        assert!(changes > 10, "{changes} changes");
    }
}

/// How many calls were answered, all by one of the two rieds.
fn call(table: Trust<Table>) -> u64 {
    let answers = (0..CALLS).map(|call| {
        let mode = MODES[call as usize % MODES.len()];
        let place = table.inject(&SCALED.in_mode(mode), 1, &[]).unwrap();
        assert!([2, 3].contains(&(place / PLACE_OF_SECOND)), "{place}");
    });
    answers.count() as u64
}
