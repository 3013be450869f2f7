//! A host that is lost while its process runs may write to what it maps: no revocation claims more
//! than it knows.
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gossamer_segment::{Access, Rights, SegmentError};
use transport_api::HostId;

use crate::common::{bounded, shm};

#[test]
fn a_segment_that_a_lost_host_may_use_is_not_exported_again() {
    bounded(|| {
        let mut hosts = shm(2, 1);
        let user = hosts.pop().expect("two hosts");
        let is_lost = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let attached = user.segments.attach(0).expect("attached");
                let options = user.segments.options().timeout(Duration::from_secs(30));
                drop(options.open("mapped").expect("a segment"));
                drop((attached, options, user));
                is_lost.store(true, Ordering::Release);
            });
            let attached = hosts[0].segments.attach(0).expect("attached");
            let builder = hosts[0].segments.builder("mapped").len(64);
            let segment = builder.access(Access::all(Rights::ALL)).export().expect("a segment");
            while !is_lost.load(Ordering::Acquire) {
                attached.park(Duration::from_millis(1));
            }
            let is_not_quiet = |result: Result<(), SegmentError>| {
                let Err(SegmentError::NotQuiet { hosts, .. }) = &result else {
                    panic!("{result:?}");
                };
                assert_eq!(*hosts, [HostId(1)]);
            };
            is_not_quiet(segment.set_access(Access::read()));
            assert_eq!(segment.access(), Access::none());
            is_not_quiet(segment.inhibit_writes());
            is_not_quiet(segment.set_access(Access::all(Rights::ALL)));
            is_not_quiet(segment.revoke());
            let again = hosts[0].segments.builder("mapped").len(64).export();
            again.expect("new memory").revoke().expect("no host has opened it");
        });
    });
}
