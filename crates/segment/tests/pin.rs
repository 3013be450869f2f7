//! Pinned segments, over shared memory and TCP. One test: what is pinned is counted for the process.
#![cfg(not(loom))]

mod common;

use std::fs;

use common::on_each;

const LEN: usize = 256 << 10;

/// Kibibytes that this process has pinned.
fn pinned() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let count = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("a count");
    count.parse().expect("a number")
}

/// Memory that is given back is not pinned, even if something still refers to it.
#[test]
fn a_segment_is_unpinned_when_it_is_dropped_or_revoked() {
    on_each(1, 1, |hosts| {
        let _attached = hosts[0].segments.attach(0).expect("attached");
        let before = pinned();
        let export = |is_pinned| {
            let builder = hosts[0].segments.builder("pinned").len(LEN).pin(is_pinned);
            let segment = builder.export().expect("RLIMIT_MEMLOCK (`ulimit -l`) of 1 MiB or more");
            assert_eq!(pinned() >= before + LEN / 1024, is_pinned);
            segment
        };
        let segment = export(true);
        let memory = segment.memory().clone();
        drop(segment);
        assert_eq!(pinned(), before, "dropped");
        export(true).revoke().expect("revoked");
        assert_eq!(pinned(), before, "revoked");

        let segment = export(false);
        segment.pin().expect("pinned");
        assert!(pinned() > before);
        segment.unpin().expect("unpinned");
        assert_eq!(pinned(), before);
        segment.pin().expect("pinned again");
        drop(segment);
        assert_eq!(pinned(), before);
        drop(memory);
    });
}
