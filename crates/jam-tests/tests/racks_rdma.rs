//! Jams on racks of two processes over RDMA. They need devices: `cargo xtask rdma-test` runs them in a guest
//! that has some, with `--ignored`, as it runs all tests that need devices.

#[allow(dead_code, reason = "a guest is slow: not all of its cases run there")]
#[path = "racks/calls.rs"]
mod calls;
mod common;
#[path = "racks/play.rs"]
mod play;

use std::process::ExitCode;

use gossamer::Rack;
use gossamer::jam::{Inject, JamError, Policy, Refusal};
use gossamer_jam_tests::jams::nothing::NOTHING;

use common::{Case, Kind};
use play::{Price, tables, unseen};

const CASES: &[Case] = &[
    ("every_mode_has_the_same_result", calls::every_mode_has_the_same_result),
    ("calls_are_served_in_order", calls::calls_are_served_in_order),
    ("a_panic_is_an_error_and_all_goes_on", calls::a_panic_is_an_error_and_all_goes_on),
    ("each_call_of_a_run_has_its_own_end", calls::each_call_of_a_run_has_its_own_end),
    ("large_payloads_arrive", calls::large_payloads_arrive),
    ("unseen_code_is_refused_under_any_peer", unseen_code_is_refused),
];

/// Anyone on the network can forge data, so that no host answers for the code.
fn unseen_code_is_refused() {
    let price = Price::from_blob(&unseen("price")).unwrap();
    for table in tables() {
        match table.inject(&price, 5, &[]) {
            Err(JamError::Refused { source: Refusal::Policy { reason }, .. }) => {
                assert!(reason.contains("not authenticated"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        table.inject(&NOTHING, (), &[]).unwrap();
    }
}

fn rack(kind: Kind, case: &str) -> Option<Rack> {
    let rack = common::rack(kind);
    Some(if case.starts_with("unseen") { rack.jams(Policy::AnyPeer) } else { rack })
}

fn main() -> ExitCode {
    let has_devices =
        std::env::args().any(|word| word == "--ignored" || word == "--include-ignored");
    let is_case = std::env::var_os(common::CASE).is_some();
    // Without devices all of its tests are ignored.
    let kinds: &[Kind] = if has_devices || is_case { &[Kind::Rdma] } else { &[] };
    common::run_all_on(kinds, CASES, rack)
}
