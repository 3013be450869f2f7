//! Jams on racks: of threads, of two processes that share memory, and of two over TCP. This program starts
//! itself again for each case, with a deadline; it has a `main` of its own, because a started host must
//! not run the tests.

mod admitted;
mod calls;
mod code;
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "its `main`")]
#[path = "../../../gossamer/examples/hot_patch.rs"]
mod hot_patch;
mod mailboxes;
mod play;
#[allow(dead_code, reason = "its `main`")]
#[path = "../../examples/reactive_mailbox.rs"]
mod reactive_mailbox;

use std::process::ExitCode;

use gossamer::Rack;
use gossamer::jam::Policy;

const CASES: &[common::Case] = &[
    ("every_mode_has_the_same_result", calls::every_mode_has_the_same_result),
    ("calls_are_served_in_order", calls::calls_are_served_in_order),
    ("a_panic_is_an_error_and_all_goes_on", calls::a_panic_is_an_error_and_all_goes_on),
    ("each_call_of_a_run_has_its_own_end", calls::each_call_of_a_run_has_its_own_end),
    ("a_run_has_parts_of_every_shape", calls::a_run_has_parts_of_every_shape),
    ("a_forged_number_of_ended_calls_is_bounded", code::a_forged_number_is_bounded),
    ("large_payloads_arrive", calls::large_payloads_arrive),
    ("evicted_jams_are_sent_again", code::evicted_jams_are_sent_again),
    ("unseen_code_runs_where_the_policy_admits_it", code::unseen_code_runs),
    (SETTINGS, code::the_policy_of_the_settings_holds),
    ("hostile_jams_are_refused", code::hostile_jams_are_refused),
    ("mailboxes_run_jams_in_fibers", mailboxes::mailboxes_run_jams_in_fibers),
    ("a_mailbox_of_another_process_evicts", mailboxes::a_mailbox_evicts),
    ("a_host_puts_into_the_mailbox_of_another", || reactive_mailbox::put(2000)),
    ("jams_send_work_on", mailboxes::jams_send_work_on),
    ("jams_outside_a_rack_send_nothing_on", mailboxes::jams_outside_a_rack_send_nothing_on),
    ("hostile_code_that_is_not_admitted_does_nothing", code::hostile_code_does_nothing),
    ("frames_that_lie_link_nothing", code::frames_that_lie_link_nothing),
    ("jams_in_c_run", calls::jams_in_c_run),
    ("text_from_a_jam_in_c_is_checked", calls::text_from_a_jam_in_c_is_checked),
    ("delegated_code_does_not_wait_for_a_jam", calls::delegated_code_does_not_wait_for_a_jam),
    ("a_function_is_replaced_under_load", code::a_function_is_replaced_under_load),
    ("system_calls_of_admitted_jams_are_made", admitted::system_calls_are_made),
    (CRASHES, admitted::crashes_end_their_processes),
    (ENDLESS, admitted::an_endless_jam_occupies_its_thread),
];

const SETTINGS: &str = "the_policy_of_the_settings_holds";
const CRASHES: &str = "crashes_of_admitted_jams_end_their_processes";
const ENDLESS: &str = "an_endless_jam_occupies_its_thread";

/// The rack of a case; none if the case has none of this kind.
fn rack(kind: common::Kind, case: &str) -> Option<Rack> {
    match case {
        CRASHES | ENDLESS => admitted::rack(kind, case == ENDLESS),
        SETTINGS => Some(common::rack(kind).jams(Policy::AnyPeer)),
        _ => Some(common::rack(kind)),
    }
}

fn main() -> ExitCode {
    common::run_all_on(&common::EVERYWHERE, CASES, rack)
}
