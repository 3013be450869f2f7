//! Revocation: no write arrives after it, and an old handle never reaches a later export. Changes of
//! access while hosts use the segment.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use primitive::sync::Ordering;
use transport_api::conformance::Make;

use crate::conformance::{Player, bytes, is_revoked, play, script};
use crate::{Access, HostId, RemoteSegment, Rights, Segment, SegmentError};

/// A write that a writer repeats until it is refused.
type Writer = fn(&RemoteSegment) -> Result<(), SegmentError>;

const WRITERS: [Writer; 6] = [
    |on| on.write(64, &[0xff; 4_000]),
    |on| on.write(13, &[0xff; 40_000]),
    |on| on.write_block(1, &[0xff; 200_001]),
    |on| on.write_notify(8, &[0xff; 8]),
    |on| on.fetch_add(0, 1).map(drop),
    |on| on.write_block_notify(100_000, &[0xff; 100_000]),
];

/// Two hosts write as fast as they can. Once `revoke` has returned, no byte of the memory changes.
pub fn nothing_is_written_after_a_revocation(make: Make) {
    const LEN: usize = 200_002;
    let owner = script(|owner| {
        for _ in WRITERS {
            let segment = owner.export("fire", LEN);
            let memory = segment.memory().clone();
            owner.meet();
            // Both writers have opened the segment and begin to write.
            owner.meet();
            owner.linger();
            segment.revoke().expect("a revocation");
            let own = [0x55; LEN];
            memory.write_from(0, &own);
            // The writers continue until they are refused.
            owner.meet();
            owner.linger();
            let mut now = [0; LEN];
            memory.read_into(0, &mut now);
            let written = now.iter().position(|byte| *byte != 0x55);
            assert_eq!(written, None, "a byte was written after the revocation");
            owner.meet();
        }
    });
    let writer = |number: usize| {
        script(move |writer: &Player| {
            for round in 0..WRITERS.len() {
                writer.meet();
                let segment = writer.open("fire");
                writer.meet();
                let write = WRITERS[(round + number) % WRITERS.len()];
                let refused = loop {
                    // Writes that wait for no answer are refused at a fence.
                    let written = write(&segment);
                    let ended = if writer.is_awaited() { segment.fence() } else { Ok(()) };
                    if let Err(error) = written.and(ended) {
                        break error;
                    }
                };
                assert!(matches!(refused, SegmentError::Revoked { .. }), "{refused}");
                let _ = segment.fence();
                writer.meet();
                writer.meet();
            }
        })
    };
    play(make, [owner, writer(0), writer(1)]);
}

/// Asserts that every operation on a handle of a revoked segment is refused.
fn is_stale(segment: &RemoteSegment, name: &str) {
    let read = segment.read(0, &mut [0; 8]);
    assert!(is_revoked(&read, name), "{read:?}");
    let block = segment.read_block(0, &mut [0; 8]);
    assert!(is_revoked(&block, name), "{block:?}");
    let add = segment.fetch_add(0, 1);
    assert!(is_revoked(&add, name), "{add:?}");
    let swap = segment.compare_swap_notify(0, 0, 1);
    assert!(is_revoked(&swap, name), "{swap:?}");
    let writes: [Writer; 4] = [
        |on| on.write(0, &[1]),
        |on| on.write_block(0, &[1]),
        |on| on.write_notify(0, &[1]),
        |on| on.write_block_notify(0, &[1]),
    ];
    for write in writes {
        // By the next fence at the latest; a later fence does not report it again.
        let refused = write(segment).and_then(|()| segment.fence());
        assert!(is_revoked(&refused, name), "{refused:?}");
        segment.fence().expect("a refusal is reported once");
    }
}

/// A handle of a revoked segment is refused, whether it had been used or not.
pub fn a_stale_handle_is_refused(make: Make) {
    let owner = script(|owner| {
        let segment = owner.export("stale", 64);
        owner.meet();
        owner.meet();
        let memory = segment.memory().clone();
        segment.revoke().expect("a revocation");
        owner.meet();
        owner.meet();
        assert_eq!(memory.load(0, Ordering::Acquire), 0);
    });
    let user = script(|user| {
        user.meet();
        let (unused, used) = (user.open("stale"), user.open("stale"));
        used.write(8, &[1]).expect("a write");
        used.fence().expect("a fence");
        user.meet();
        user.meet();
        is_stale(&unused, "stale");
        is_stale(&used, "stale");
        let gone = user.segments.open("stale").map(drop);
        assert!(matches!(gone, Err(SegmentError::NotFound { .. })), "{gone:?}");
        user.meet();
    });
    play(make, [owner, user]);
}

/// Of two segments of a host, the error of a fence names the revoked one, and writes to the other one
/// have arrived.
pub fn a_fence_names_the_segment_that_refused(make: Make) {
    const ROUNDS: u64 = 20;
    let owner = script(|owner| {
        let kept = owner.export("kept", 64);
        for round in 1..=ROUNDS {
            let lost = owner.export("lost", 64);
            owner.meet();
            owner.meet();
            // The user's writes may be under way.
            drop(lost);
            owner.meet();
            assert_eq!(kept.at::<u64>(0).read().expect("a word"), round);
        }
    });
    let user = script(|user| {
        for round in 1..=ROUNDS {
            user.meet();
            let (kept, lost) = (user.open("kept"), user.open("lost"));
            user.meet();
            // Any number of writes may pass until the owner's drop takes effect.
            let refused = loop {
                let write = lost.at::<u64>(0).write(&round);
                kept.at::<u64>(0).write(&round).expect("a write");
                let fence = kept.fence();
                if let Err(refused) = write.and(fence) {
                    break refused;
                }
            };
            assert!(is_revoked::<()>(&Err(refused.clone()), "lost"), "{refused}");
            kept.fence().expect("a refusal is reported once");
            user.meet();
        }
    });
    play(make, [owner, user]);
}

/// After a new export of the same name, old handles are refused and reach none of its bytes.
pub fn a_new_export_is_out_of_reach_of_old_handles(make: Make) {
    let owner = script(|owner| {
        for generation in 0..4 {
            let segment = owner.export("again", 64);
            assert_eq!(segment.generation(), generation);
            owner.meet();
            owner.meet();
            assert_eq!(bytes(&segment)[..8], [0; 8], "an old handle reached {generation}");
            assert_eq!(segment.at::<u64>(1).read().expect("a word"), u64::from(generation) + 1);
            if generation.is_multiple_of(2) {
                segment.revoke().expect("a revocation");
            } else {
                drop(segment);
            }
        }
    });
    let user = script(|user| {
        let mut old: Vec<RemoteSegment> = Vec::new();
        for generation in 0..4 {
            user.meet();
            let segment = user.open("again");
            assert_eq!(segment.generation(), generation);
            for stale in &old {
                is_stale(stale, "again");
            }
            segment.at::<u64>(1).write(&(u64::from(generation) + 1)).expect("a write");
            segment.fence().expect("a fence");
            old.push(segment);
            user.meet();
        }
    });
    play(make, [owner, user]);
}

/// One name is exported again and again with the same length: the writes of a handle arrive only in the
/// export of its own generation.
pub fn exports_that_follow_each_other_do_not_mix(make: Make) {
    const ROUNDS: u32 = 100;
    const LEN: usize = 256;
    let is_own = |segment: &Segment| {
        let own = u64::from(segment.generation()) + 1;
        for index in 0..LEN / 8 {
            let word = segment.at::<u64>(index).read().expect("a word");
            assert!(word == 0 || word == own, "word {index} of export {own} is {word}");
        }
    };
    let owner = script(move |owner| {
        owner.meet();
        for round in 0..ROUNDS {
            let segment = owner.export("quick", LEN);
            for _ in 0..20 {
                owner.attached.poll();
                is_own(&segment);
            }
            if round.is_multiple_of(3) {
                drop(segment);
            } else {
                segment.revoke().expect("a revocation");
            }
        }
        let last = owner.export("quick", LEN);
        owner.meet();
        is_own(&last);
        assert_eq!(last.at::<u64>(31).read().expect("a word"), u64::from(ROUNDS) + 1);
    });
    let user = script(|user| {
        user.meet();
        let mut segment = None;
        while !user.is_awaited() {
            let Some(open) = &segment else {
                // Fails between two exports.
                segment = user.segments.open("quick").ok();
                user.attached.poll();
                continue;
            };
            let open: &RemoteSegment = open;
            let own = u64::from(open.generation()) + 1;
            let written = open
                .at::<[u64; 8]>(1)
                .write(&[own; 8])
                .and_then(|()| open.compare_swap(0, 0, own).map(drop))
                .and_then(|()| open.fence());
            if let Err(error) = written {
                // A fence of this handle may also report a write of the handle before.
                let is_stale = matches!(error, SegmentError::Revoked { .. });
                assert!(is_stale || matches!(error, SegmentError::AccessChanged(_)), "{error}");
                segment = None;
            }
        }
        let last = user.open("quick");
        // It may report a write of an earlier handle.
        let _ = last.fence();
        last.at::<u64>(31).write(&(u64::from(last.generation()) + 1)).expect("a write");
        last.fence().expect("a fence");
        user.meet();
    });
    play(make, [owner, user]);
}

/// Dropping a segment withdraws its name and revokes it, without waiting for peers.
pub fn a_dropped_segment_is_revoked(make: Make) {
    let owner = script(|owner| {
        let segment = owner.export("dropped", 64);
        owner.meet();
        owner.meet();
        drop(segment);
        owner.meet();
        owner.meet();
        let again = owner.export("dropped", 64);
        assert_eq!(again.generation(), 1);
    });
    let user = script(|user| {
        user.meet();
        let segment = user.open("dropped");
        user.meet();
        user.meet();
        let gone = user.segments.open("dropped").map(drop);
        assert!(matches!(gone, Err(SegmentError::NotFound { .. })), "{gone:?}");
        user.until("the revocation", || segment.write(0, &[1]).and(segment.fence()).is_err());
        is_stale(&segment, "dropped");
        user.meet();
    });
    play(make, [owner, user]);
}

/// Two hosts keep writing, with the same handles, while the owner inhibits and allows writes in turn.
pub fn nothing_is_written_while_writes_are_inhibited(make: Make) {
    const ROUNDS: usize = 6;
    const LEN: usize = 40_000;
    let is_over = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let (end, count) = (is_over.clone(), written.clone());
    let owner = script(move |owner| {
        let segment = owner.export("inhibited", LEN);
        owner.meet();
        for _ in 0..ROUNDS {
            let before = count.load(Relaxed);
            owner.until("writes", || count.load(Relaxed) > before + 4);
            segment.inhibit_writes().expect("a change");
            assert!(segment.is_write_inhibited());
            assert_eq!(segment.access(), Access::read());
            let still = bytes(&segment);
            owner.linger();
            assert!(bytes(&segment) == still, "a byte was written while writes were inhibited");
            segment.inhibit_writes().expect("no change");
            segment.allow_writes().expect("a change");
            assert_eq!(segment.access(), Access::all(Rights::ALL));
        }
        let before = count.load(Relaxed);
        owner.until("writes", || count.load(Relaxed) > before + 4);
        end.store(true, Relaxed);
        owner.meet();
    });
    let writer = |byte: u8| {
        let (is_over, written) = (is_over.clone(), written.clone());
        script(move |writer: &Player| {
            writer.meet();
            let segment = writer.open("inhibited");
            for round in 0_u64.. {
                if is_over.load(Relaxed) {
                    break;
                }
                let block = vec![(2 * round) as u8 ^ byte; LEN - 8];
                let done = segment
                    .write(8, &block[..100])
                    .and_then(|()| segment.write_block(8, &block))
                    .and_then(|()| segment.fetch_add(0, 1).map(drop))
                    .and_then(|()| segment.fence());
                match done {
                    Ok(()) => _ = written.fetch_add(1, Relaxed),
                    Err(SegmentError::Rights { .. } | SegmentError::AccessChanged(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                // Reads stay allowed.
                segment.read(0, &mut [0; 8]).expect("a read");
                writer.attached.poll();
            }
            writer.meet();
        })
    };
    play(make, [owner, writer(0), writer(1)]);
}

/// An atomic that finds the access changed is carried out once, and notifies once.
pub fn an_atomic_is_done_once_while_access_changes(make: Make) {
    const CHANGES: u32 = 30;
    let is_over = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let (end, count) = (is_over.clone(), done.clone());
    let owner = script(move |owner| {
        let segment = owner.export("counted", 64);
        owner.meet();
        for change in 0..CHANGES {
            let before = count.load(Relaxed);
            owner.until("an addition", || count.load(Relaxed) > before);
            let other = if change.is_multiple_of(2) { Rights::READ } else { Rights::NONE };
            // The rights of the user's host do not change.
            let access = Access::all(Rights::ALL).with(HostId(owner.segments.hosts() + 1), other);
            segment.set_access(access).expect("a change");
        }
        end.store(true, Relaxed);
        owner.meet();
        let additions = count.load(Relaxed);
        assert_eq!(segment.at::<u64>(0).read().expect("a word"), additions);
        let (notifications, mut arrived) = (segment.notifications(), 0);
        let mut take = || {
            while let Some(next) = notifications.try_next().expect("a segment") {
                arrived += 1 + next.missed;
            }
            arrived
        };
        owner.until("notifications of all additions", || take() >= additions);
        owner.linger();
        assert_eq!(take(), additions, "notifications of additions");
    });
    let user = script(move |user| {
        user.meet();
        let segment = user.open("counted");
        while !is_over.load(Relaxed) {
            segment.fetch_add_notify(0, 1).expect("it waits for the change");
            done.fetch_add(1, Relaxed);
            segment.fence().expect("nothing but additions, which are repeated");
        }
        user.meet();
    });
    play(make, [owner, user]);
}
