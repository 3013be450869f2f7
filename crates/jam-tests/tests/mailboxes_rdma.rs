//! Mailboxes over RDMA, by themselves and with jams. They need devices: `cargo xtask rdma-test` runs them in
//! a guest that has some.

#[path = "mailboxes/calls.rs"]
mod calls;
#[path = "mailboxes/failures.rs"]
mod failures;
#[path = "mailboxes/hostile.rs"]
mod hostile;
#[path = "mailboxes/play.rs"]
mod play;

use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use transport_api::conformance::Rack;
use transport_api::{Carrier, HostId, Transport};
use transport_rdma::{RdmaConfig, RdmaTransport};
use transport_tcp::{Credentials, TcpTransport};

/// Hosts of which each has a device of its own, in turn, on carriers without TLS, whose handshakes an
/// emulated guest takes long for.
fn rack(hosts: u32, threads: u32) -> Rack {
    const DEVICES: &str = "/sys/class/infiniband";
    let entries = fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let mut devices: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    devices.sort();
    assert!(!devices.is_empty(), "no RDMA device in {DEVICES}: run `cargo xtask rdma-test`");
    let carriers = TcpTransport::in_process(hosts, threads + 1, |config| {
        config.credentials = Credentials::InsecureLoopback;
        config.join_timeout = Duration::from_secs(60);
    });
    let join = |(index, carrier): (usize, Arc<TcpTransport>)| {
        let device = Some(devices[index % devices.len()].clone());
        let config = RdmaConfig { device, ..RdmaConfig::default() };
        thread::spawn(move || RdmaTransport::over(carrier as Arc<dyn Carrier>, config))
    };
    let joining: Vec<_> = carriers.expect("carriers").into_iter().enumerate().map(join).collect();
    let joined = joining.into_iter().map(|host| host.join().expect("no panic"));
    let rack: Vec<_> = joined.map(|host| host.unwrap_or_else(|error| panic!("{error}"))).collect();
    let hosts = rack.iter().map(|host| host.clone() as Arc<dyn Transport>).collect();
    Rack { hosts, kill: Box::new(move |HostId(host)| rack[host as usize].sever()) }
}

mailbox::conformance!(
    #[ignore = "needs an RDMA device: cargo xtask rdma-test"]
    rack
);

mod jams {
    transport_api::conformance_tests! {
        [#[ignore = "needs an RDMA device: cargo xtask rdma-test"]] super::rack, [crate]:
        calls {
            calls_of_every_mode_run_in_order, evicted_code_is_read_at_its_sender,
            several_senders_keep_their_order, a_call_has_its_own_mode, threads_that_are_not_attached_run_jams,
            a_dropped_sender_leaves_calls_that_need_no_code,
            several_properties_are_found_by_name, code_that_does_not_fit_is_read_at_its_sender,
        }
        failures {
            failures_are_counted_and_reported, each_mailbox_has_its_policy,
            what_cannot_be_sent_is_refused, a_sender_learns_that_its_mailbox_is_closed, a_lost_sender_stops_no_other,
            a_sender_learns_that_its_receiver_is_lost,
        }
        hostile {
            hostile_frames_are_rejected, a_frame_that_is_written_again_does_not_run,
            code_that_changes_after_it_arrived_runs_as_it_was,
            a_frame_that_changes_while_it_runs_runs_as_it_was,
            frames_that_change_while_they_run_do_no_harm,
        }
    }
}
