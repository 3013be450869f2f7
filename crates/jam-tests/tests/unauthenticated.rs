//! A rack on a transport whose data others can forge runs only signed code, whatever its policy says.

use std::thread;

use gossamer::Rack;
use gossamer::jam::{Inject, JamError, LoadedJam, Package, Policy, Refusal};
use gossamer_jam_tests::jams::indirect_put;
use gossamer_jam_tests::jams::nothing::NOTHING;
use gossamer_jam_tests::{Table, UNSEEN};
use transport_api::Transport;
use transport_tcp::{Credentials, TcpTransport};

type Price = LoadedJam<&'static mut indirect_put::Table, u64, (), u64>;

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
        let blob = Package::parse(UNSEEN).unwrap().blob("price").unwrap().to_vec();
        let price = Price::from_blob(&blob).unwrap();
        for trustee in gossamer::trustees() {
            let table = trustee.entrust_with(|()| Table::new(64), ());
            match table.inject(&price, 5, &[]) {
                Err(JamError::Refused { source: Refusal::Policy { reason }, .. }) => {
                    assert!(reason.contains("not authenticated"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
            table.inject(&NOTHING, (), &[]).expect("it is of the program's own package");
        }
    });
    assert_eq!(ran.expect("a rack that ends well"), Some(()));
    serving.join().expect("no panic").expect("a rack that ends well");
}
