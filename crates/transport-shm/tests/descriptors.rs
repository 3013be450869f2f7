//! A process that is out of descriptors: one test, in a process of its own, because the limit is that of the
//! whole process.

use std::fs::File;
use std::time::Duration;

use gossamer_transport_shm::ShmTransport;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use transport_api::{HostId, RegionError, RegionKey, Rights, Transport};

/// Files that take every descriptor that this process may have.
fn take_all() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn an_import_without_a_descriptor_fails_and_its_peer_stays() {
    let hosts = ShmTransport::in_process(2, 1).expect("a rack");
    let regions = [1, 2]
        .map(|key| hosts[1].export(RegionKey(key), 4096, Rights::ALL.into()).expect("an export"));
    let import = |key| hosts[0].import(HostId(1), RegionKey(key), Duration::from_secs(20));
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..before }).expect("a lower limit");
    let files = take_all();
    assert!(!files.is_empty(), "there was room");
    for key in [1, 1, 2] {
        let error = import(key).expect_err("no room for a descriptor");
        assert!(matches!(error, RegionError::NoMemory { .. }), "{error:?}");
    }
    drop(files);
    for key in [1, 2] {
        let imported = import(key).expect("the peer is there");
        assert_eq!(imported.len(), 4096);
    }
    drop(regions);
}
