//! The owner changes access while a peer uses the segment. A device that refuses an access ends the
//! queue pair, so no access may reach the device that it would refuse.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gossamer_segment::{Access, Attached, Rights, SegmentError, Segments};

use super::{DEADLINE, pair};

/// Enough for several packets.
const LEN: usize = 16 << 10;

/// Changes of the access, there and back.
const CHANGES: u64 = 6;

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn writes_are_inhibited_and_allowed_while_a_peer_writes_and_reads() {
    // Rounds that the peer has written and fenced, and whether it has failed or ended.
    let (written, is_over) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let owner = |segments: &Segments, attached: &Attached| {
        let segment = segments.builder("changing").len(LEN).export().expect("a segment");
        let write_more = || {
            let (before, start) = (written.load(Ordering::Acquire), Instant::now());
            while written.load(Ordering::Acquire) < before + 2 {
                assert!(start.elapsed() < DEADLINE, "the peer writes no more");
                attached.park(Duration::from_millis(1));
            }
        };
        let bytes = || {
            let mut bytes = vec![0; LEN];
            segment.read(0, &mut bytes).expect("its own memory");
            bytes
        };
        for _ in 0..CHANGES {
            write_more();
            segment.set_access(Access::read()).expect("an access");
            let still = bytes();
            for _ in 0..20 {
                attached.park(Duration::from_millis(1));
                assert!(bytes() == still, "written while no host has the right to write");
            }
            segment.set_access(Access::all(Rights::ALL)).expect("the first access");
        }
        write_more();
        is_over.store(true, Ordering::Release);
        // The peer may be in the middle of an operation that needs this thread's polls.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            attached.park(Duration::from_millis(1));
        }
    };
    pair(owner, |_, segments| {
        let segment = segments.options().timeout(DEADLINE).open("changing").expect("a segment");
        let (mut block, mut refused, start) = (vec![0; LEN - 8], 0, Instant::now());
        for round in 1_u64.. {
            if is_over.load(Ordering::Acquire) {
                break;
            }
            assert!(start.elapsed() < DEADLINE, "the owner is not done");
            block.fill(round as u8);
            let done = segment
                .write(0, &block[..100])
                .and_then(|()| segment.write_block(0, &block))
                .and_then(|()| segment.fetch_add(LEN - 8, 1).map(drop))
                .and_then(|()| segment.fence());
            match done {
                Ok(()) => _ = written.fetch_add(1, Ordering::AcqRel),
                Err(SegmentError::Rights { .. } | SegmentError::AccessChanged(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            // A read waits for the change and goes on.
            segment.read_block(0, &mut block).expect("a read");
        }
        println!("{refused} rounds of writes were refused");
    });
}
