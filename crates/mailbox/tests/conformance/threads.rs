//! The suite of mailboxes between the threads of one host.

use transport_api::conformance::Rack;
use transport_shm::ShmTransport;

fn rack(_: u32, threads: u32) -> Rack {
    let host = ShmTransport::threads(threads).expect("a rack");
    Rack { hosts: vec![host], kill: Box::new(|_| unreachable!("a rack of one host")) }
}

mailbox::conformance!(rack, one_host);
