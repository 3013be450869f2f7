//! A rack on a transport whose data others can forge runs only signed code, whatever its policy says.

#[path = "common/signed.rs"]
mod signed;

use std::thread;

use gossamer::jam::{
    Inject, JamError, LoadedJam, Mode, Package, Policy, Refusal, Sendable, receiver,
};
use gossamer::{Rack, Trust};
use gossamer_jam_tests::jams::indirect_put;
use gossamer_jam_tests::jams::nothing::NOTHING;
use gossamer_jam_tests::{Table, UNSEEN};
use transport_api::Transport;
use transport_tcp::{Credentials, TcpTransport};

use crate::signed::{Ann, signed};

type Price = LoadedJam<&'static mut indirect_put::Table, u64, (), u64>;

/// That no policy admits it, for this reason, with the code in the call or without.
fn is_refused(table: &Trust<Table>, price: &Price, why: &str) {
    for mode in [Mode::Automatic, Mode::Cached, Mode::Injected] {
        match table.inject(&price.in_mode(mode), 5, &[]) {
            Err(JamError::Refused { source: Refusal::Policy { reason }, .. }) => {
                assert!(reason.contains(why), "{mode:?}: {reason}");
            }
            other => panic!("{mode:?}: {other:?}"),
        }
    }
}

/// The hosts are of one process, whose receiver all of them share.
#[test]
fn any_peer_admits_nothing_unsigned_on_an_unauthenticated_transport() {
    let hosts = TcpTransport::in_process(2, 1, |config| {
        config.credentials = Credentials::InsecureLoopback;
    });
    let mut hosts = hosts.expect("a rack").into_iter();
    let (first, second) = (hosts.next().expect("a host"), hosts.next().expect("a host"));
    assert!(!first.is_authenticated());
    let settings = Rack::new().jams(Policy::AnyPeer);
    let serving = {
        let settings = settings.clone();
        thread::spawn(move || {
            settings.run_on::<_, ()>(second, || unreachable!("main runs on host 0"))
        })
    };
    let ran = settings.run_on(first, || {
        let signed = signed(UNSEEN);
        let unsigned: Price = Package::parse(UNSEEN).unwrap().find("price").unwrap();
        let price: Price = Package::parse(&signed).unwrap().find("price").unwrap();
        for trustee in gossamer::trustees() {
            let table = trustee.entrust_with(|()| Table::new(64), ());
            is_refused(&table, &unsigned, "not authenticated");
            receiver().set_verifier(Ann { is_revoked: false });
            for mode in [Mode::Automatic, Mode::Cached, Mode::Injected] {
                let ran = table.inject(&price.in_mode(mode), 5, &[]);
                assert_eq!(ran.expect("signed code runs"), 17);
            }
            // As a daemon says when the rack's list of revoked certificates changes.
            receiver().set_verifier(Ann { is_revoked: true });
            is_refused(&table, &price, "its signer ann was revoked");
            is_refused(&table, &unsigned, "not authenticated");
            table.inject(&NOTHING, (), &[]).expect("it is of the program's own package");
        }
    });
    assert_eq!(ran.expect("a rack that ends well"), Some(()));
    serving.join().expect("no panic").expect("a rack that ends well");
}
