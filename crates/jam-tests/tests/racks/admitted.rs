//! What jams that break rules do in a process that admits them: the second column of the table in
//! docs/jams.md. Racks of processes only, which may end.

use std::cell::RefCell;
use std::process;
use std::rc::Rc;
use std::time::Duration;

use gossamer::jam::entry::Part;
use gossamer::jam::{Inject, JamError, LoadedJam, Policy, receiver};
use gossamer::{DelegateError, OnPeerLoss, Rack, Trust};
use gossamer_jam_tests::Table;
use gossamer_jam_tests::jams::scaled_sum::SCALED_SUM;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::Kind;
use crate::play::{hostile, on_every_host, tables};

/// The rack of a case that ends processes.
pub(crate) fn rack(kind: Kind, is_endless: bool) -> Option<Rack> {
    let rack = match is_endless {
        true => Rack::new().hosts(2).threads(2),
        // A host for each jam that crashes, and two that go on.
        false => Rack::new().hosts(9).threads(1),
    };
    (kind == Kind::Processes).then(|| rack.on_peer_loss(OnPeerLoss::Return))
}

fn jam<A: Part>(name: &str) -> LoadedJam<(), A, (), u64> {
    LoadedJam::from_blob(&hostile(name)).unwrap()
}

fn goes_on(table: &Trust<Table>) {
    assert_eq!(table.inject(&SCALED_SUM, 2, &[4]).unwrap().sum, 8, "it goes on");
}

/// Overflows the stack of a fiber of the table's thread: what others send runs on that of the thread.
fn overflow_a_fiber(table: &Trust<Table>) -> Result<u64, JamError> {
    let overflow = |table: Trust<Table>| table.inject(&jam("deep"), 1u64 << 20, &[]).unwrap();
    let fiber = gossamer::spawn_on_with(table.trustee(), overflow, table.clone());
    let delegate = |error| JamError::Delegate { jam: "deep".to_owned(), source: error };
    fiber.join().map_err(|error| delegate(error.into()))
}

pub(crate) fn crashes_end_their_processes() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let tables = tables();
    let (others, victims) = tables.split_at(2);
    type Crash = fn(&Trust<Table>) -> Result<u64, JamError>;
    // What touches the guard of a stack ends the process with a message, and so by another signal.
    const FAULT: &str = "SIGSEGV";
    const OVERFLOW: &str = "SIGABRT";
    let crashes: [(&str, &str, Crash); 7] = [
        ("wild_write", FAULT, |table| table.inject(&jam("wild_write"), 8u64, &[])),
        ("deep", OVERFLOW, |table| table.inject(&jam("deep"), 1u64 << 20, &[])),
        ("deep", OVERFLOW, overflow_a_fiber),
        ("large_frames", OVERFLOW, |table| table.inject(&jam("large_frames"), 1u64 << 20, &[])),
        ("self_modify", FAULT, |table| table.inject(&jam("self_modify"), (), &[])),
        ("run_data", FAULT, |table| table.inject(&jam("run_data"), 0u64, &[])),
        ("run_data", FAULT, |table| table.inject(&jam("run_data"), 1u64, &[])),
    ];
    assert_eq!(victims.len(), crashes.len());
    for ((name, signal, crash), victim) in crashes.into_iter().zip(victims) {
        goes_on(victim);
        match crash(victim) {
            Err(JamError::Delegate { jam, source: DelegateError::PeerLost { reason, .. } }) => {
                assert_eq!(jam, name);
                assert!(reason.to_string().contains(signal), "{name}: {reason}");
            }
            other => panic!("{name}: {other:?}"),
        }
        others.iter().for_each(goes_on);
        assert!(victim.inject(&SCALED_SUM, 2, &[4]).is_err(), "{name}");
    }
}

pub(crate) fn an_endless_jam_occupies_its_thread() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let tables = tables();
    let (occupied, others) = tables.split_last().unwrap();
    let process = occupied.apply(|_| process::id());
    let end = Rc::new(RefCell::new(None));
    let ended = end.clone();
    let endless = jam("endless");
    occupied.inject_then(&endless, (), &[], move |result| *ended.borrow_mut() = Some(result));
    for _ in 0..3 {
        // After the loop, which has begun or will begin before this.
        match occupied.apply_timeout(|_| (), Duration::from_millis(100)) {
            Err(DelegateError::TimedOut { .. }) => {}
            other => panic!("the thread is not occupied: {other:?}"),
        }
        others.iter().for_each(goes_on);
    }
    assert!(end.borrow().is_none());
    kill_process(Pid::from_raw(process as i32).unwrap(), Signal::KILL).unwrap();
    while end.borrow().is_none() {
        gossamer::yield_now();
    }
    match end.take().unwrap() {
        Err(JamError::Delegate { source: DelegateError::PeerLost { .. }, .. }) => {}
        other => panic!("{other:?}"),
    }
    others[..2].iter().for_each(goes_on);
}

/// It can make any, and gets memory as the program does.
pub(crate) fn system_calls_are_made() {
    on_every_host(|| receiver().set_policy(Policy::AnyPeer));
    let system_call = jam::<[u64; 4]>("system_call");
    for table in tables() {
        let call = |number: i64, argument: u64| {
            table.inject(&system_call, [number as u64, argument, 0, 0], &[]).unwrap()
        };
        let process = table.apply(|_| process::id());
        assert_eq!(call(libc::SYS_getpid, 0), u64::from(process));
        let end = call(libc::SYS_brk, 0);
        assert_eq!(call(libc::SYS_brk, end + 4096), end + 4096);
    }
}
