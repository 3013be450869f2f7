//! Mailboxes that run jams, on every kind of memory: mapped, mapped nowhere (each write arrives piece by
//! piece, in no order), and over TCP. `racks/` runs them in fibers and between processes.
//!
//! All hosts of these racks are one process, so they share linked jams: the tests change policies of
//! mailboxes only, and evict by the policy of the process, which is `Signed` all the time. One of them sets
//! the verifier of the process, once; no other test has signed packages.

mod calls;
mod failures;
mod hostile;
mod play;
#[path = "../common/signed.rs"]
mod signed;
mod verified;

use std::sync::Arc;

use transport_api::conformance::{Altered, Rack};
use transport_api::{HostId, Transport};
use transport_shm::ShmTransport;
use transport_tcp::{Credentials, TcpTransport};

fn shm(hosts: u32, threads: u32) -> Rack {
    let rack = ShmTransport::in_process(hosts, threads).expect("a rack");
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}

fn unmapped(hosts: u32, threads: u32) -> Rack {
    let rack = ShmTransport::in_process(hosts, threads).expect("a rack");
    let hosts = rack.iter().map(|host| Altered::unmapped(host.clone())).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}

fn tcp(hosts: u32, threads: u32) -> Rack {
    let rack = TcpTransport::in_process(hosts, threads, |config| {
        config.credentials = Credentials::InsecureLoopback;
    });
    let rack = rack.expect("a rack");
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}

macro_rules! suite {
    ($($rack:ident),*) => {
        $(mod $rack {
            transport_api::conformance_tests! {
                [] super::$rack, [crate]:
                calls {
                    calls_of_every_mode_run_in_order, evicted_code_is_read_at_its_sender,
                    a_dropped_sender_leaves_calls_that_need_no_code, several_senders_keep_their_order,
                    a_call_has_its_own_mode,
                    several_properties_are_found_by_name, threads_that_are_not_attached_run_jams,
                    code_that_does_not_fit_is_read_at_its_sender,
                }
                failures {
                    failures_are_counted_and_reported, each_mailbox_has_its_policy,
                    refused_code_is_read_once,
                    what_cannot_be_sent_is_refused, a_sender_learns_that_its_mailbox_is_closed, a_lost_sender_stops_no_other,
                    a_sender_learns_that_its_receiver_is_lost,
                }
                hostile {
                    hostile_frames_are_rejected, a_frame_that_is_written_again_does_not_run,
                    code_that_changes_after_it_arrived_runs_as_it_was,
                    a_frame_that_changes_while_it_runs_runs_as_it_was,
                    frames_that_change_while_they_run_do_no_harm,
                }
                verified {
                    code_that_changes_while_it_is_verified_runs_as_it_was, code_that_is_signed_later_runs,
                }
            }
        })*
    };
}

suite!(shm, unmapped, tcp);
