//! The conformance suite over the threads of one process.

use gossamer_transport_shm::ShmTransport;
use transport_api::conformance::Rack;

fn rack(_hosts: u32, threads: u32) -> Rack {
    Rack { hosts: vec![ShmTransport::threads(threads).unwrap()], kill: Box::new(|_| ()) }
}

transport_api::conformance!(rack, one_host);
