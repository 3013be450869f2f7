//! Order and atomicity: signals, fences, atomics, and words that are never torn.

use std::collections::HashSet;

use primitive::SharedBytes;
use primitive::sync::{AtomicBool, Ordering};

use crate::conformance::{Make, Port, bounded, bytes, filled, together};
use crate::{Event, HostId, OpError, RegionKey, Rights};

/// A writes a payload of `len` bytes and signals; B checks that it sees all of the payload once it sees
/// the signal, and answers by a signal. `rounds` times. The word of the signal lies right in front of
/// the payload in one round and right behind it in the next, and both move through the region: a
/// backend that merges the two writes fails whatever order it copies bytes in, also if that order
/// depends on their position.
fn rounds(a: &mut Port, b: &mut Port, keys: (u64, u64), len: usize, rounds: u64) {
    let rights = Rights::READ | Rights::WRITE;
    let start = |round: u64| 8 + 8 * (round / 2 % 32) as usize;
    let word_of = |round: u64| match round.is_multiple_of(2) {
        true => start(round) - 8,
        false => start(round) + len.next_multiple_of(8),
    };
    let request = b.export(keys.0, start(63) + len + 16, rights);
    let answer = a.export(keys.1, 64, rights);
    let (to, back) = (a.import(keys.0), b.import(keys.1));
    let pattern = |round: u64| vec![round as u8; len];
    together(
        || {
            for round in 1..=rounds {
                a.lane.write(&to, start(round), &filled(&pattern(round))).expect("a write");
                a.lane.signal(&to, word_of(round), round).expect("a signal");
                a.lane.flush().expect("a flush");
                a.until_word(answer.memory(), 8, |word| word == round);
            }
        },
        || {
            let mut seen = vec![0; len];
            for round in 1..=rounds {
                let payload = request.memory().slice(start(round), len);
                // Before the signal the bytes may be torn or old; reading them must do no harm.
                payload.read_into(0, &mut seen);
                b.until_word(request.memory(), word_of(round), |word| word == round);
                // At once: a half-written payload would be complete a moment later.
                payload.read_into(0, &mut seen);
                assert!(seen == pattern(round), "round {round}: a torn payload");
                b.lane.signal(&back, 8, round).expect("a signal");
                b.lane.flush().expect("a flush");
            }
        },
    );
}

/// A reader that sees a signal sees every earlier write: small payloads, many rounds.
pub fn a_signal_covers_every_earlier_write(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        rounds(&mut a, &mut b, (1, 2), 248, 3000);
    });
}

/// The same with large payloads, whose copying takes long enough for B to see a half-written one.
pub fn a_signalled_write_is_never_torn(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        rounds(&mut a, &mut b, (1, 2), 256 * 1024 + 5, 100);
    });
}

/// A reader that sees the tag of a tagged write sees all of its parts: none, some that are empty, and more
/// than a connection's frame holds. Every other round of a length writes from memory instead.
pub fn a_tag_covers_its_parts(make: Make) {
    const LENGTHS: [usize; 6] = [0, 3, 248, 4096, 64 << 10, 100_003];
    const AT: usize = 16;
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let request = b.export(1, AT + 8 + LENGTHS[5], Rights::READ | Rights::WRITE);
        let answer = a.export(2, 64, Rights::READ | Rights::WRITE);
        let (to, back) = (a.import(1), b.import(2));
        let rounds = || (1..=200).map(|round| (round, LENGTHS[round as usize % LENGTHS.len()]));
        together(
            || {
                for (round, len) in rounds() {
                    let all = vec![round as u8; len];
                    let (head, tail) = all.split_at(len / 3);
                    let staging = SharedBytes::heap(len.max(1));
                    let parts = [head, &[], tail];
                    let written = if (round / LENGTHS.len() as u64).is_multiple_of(2) {
                        a.lane.write_tagged(&to, (AT, round), &parts, &staging)
                    } else {
                        a.lane.write_tagged_memory(&to, (AT, round), &filled(&all))
                    };
                    written.expect("a write");
                    a.lane.flush().expect("a flush");
                    a.until_word(answer.memory(), 8, |word| word == round);
                }
            },
            || {
                for (round, len) in rounds() {
                    b.until_word(request.memory(), AT, |word| word == round);
                    let mut seen = vec![0; len];
                    request.memory().read_into(AT + 8, &mut seen);
                    assert!(seen == vec![round as u8; len], "round {round}: a torn payload");
                    b.lane.signal(&back, 8, round).expect("a signal");
                    b.lane.flush().expect("a flush");
                }
            },
        );
    });
}

/// Two threads of each side run the same at once, each pair in its own memory.
pub fn lanes_of_two_threads_do_not_mix(make: Make) {
    bounded(move || {
        let rack = make(2, 4);
        let (first, last) = (&rack.hosts[0], &rack.hosts[rack.hosts.len() - 1]);
        let port = |host: usize, thread: u32, peer: HostId, peer_thread| {
            Port::open(&rack.hosts[host], thread, peer, peer_thread)
        };
        let at = rack.hosts.len() - 1;
        let mut a = [port(0, 0, last.local(), 1), port(0, 2, last.local(), 3)];
        let mut b = [port(at, 1, first.local(), 0), port(at, 3, first.local(), 2)];
        let ([a0, a1], [b0, b1]) = (&mut a, &mut b);
        together(|| rounds(a0, b0, (1, 2), 100, 1000), || rounds(a1, b1, (3, 4), 100, 1000));
    });
}

/// Both sides add to one word and swap another; each step takes effect exactly once.
pub fn atomics_lose_nothing(make: Make) {
    const STEPS: u64 = 1000;
    bounded(move || {
        let rack = make(2, 2);
        let (mut a, mut b) = Port::pair(&rack);
        let region = b.export(1, 64, Rights::ALL);
        let owner = b.transport.local();
        // B works on its own memory through a lane to itself: on real devices, processor atomics
        // and device atomics do not mix.
        let mut own = match rack.hosts.len() {
            1 => b,
            _ => Port::open(&b.transport, 0, owner, 0),
        };
        let work = |port: &mut Port| {
            let remote = port.import(1);
            let mut seen = HashSet::new();
            for token in 0..STEPS {
                port.lane.fetch_add(&remote, 8, 3, token).expect("a fetch_add");
                port.lane.flush().expect("a flush");
                seen.insert(port.completion(token).expect("an old value"));
            }
            let (mut expected, mut done) = (0, 0);
            while done < STEPS {
                port.lane.compare_swap(&remote, 16, expected, expected + 1, 7).expect("a swap");
                port.lane.flush().expect("a flush");
                let old = port.completion(7).expect("an old value");
                done += u64::from(old == expected);
                expected = if old == expected { old + 1 } else { old };
            }
            seen
        };
        let (mut by_a, mut by_b) = (HashSet::new(), HashSet::new());
        together(|| by_a = work(&mut a), || by_b = work(&mut own));
        let all: HashSet<u64> = by_a.union(&by_b).copied().collect();
        assert_eq!(all, (0..2 * STEPS).map(|n| n * 3).collect(), "each old value exactly once");
        assert_eq!(region.memory().load(8, Ordering::Acquire), 6 * STEPS);
        assert_eq!(region.memory().load(16, Ordering::Acquire), 2 * STEPS);
    });
}

/// A writes words of equal bytes while B reads its own memory; then A reads while B writes. No reader
/// sees a word with different bytes.
pub fn a_word_is_never_torn(make: Make) {
    const BYTES: usize = 8192;
    const ROUNDS: usize = 1000;
    let check = |bytes: &[u8]| {
        for (at, word) in bytes.chunks_exact(8).enumerate() {
            assert!(word.iter().all(|byte| *byte == word[0]), "{word:?} at word {at}");
        }
    };
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let region = b.export(1, BYTES, Rights::READ | Rights::WRITE);
        let (to, is_done) = (a.import(1), AtomicBool::new(false));
        together(
            || {
                for round in 0..ROUNDS {
                    let lead = round % 4 * 8;
                    let from = filled(&vec![round as u8; BYTES - lead]);
                    let outcome = a.outcome(|lane| lane.write(&to, lead, &from));
                    assert_eq!(outcome, Ok(()));
                }
                is_done.store(true, Ordering::Release);
            },
            || {
                let mut bytes = vec![0; BYTES];
                while !is_done.load(Ordering::Acquire) {
                    b.poll();
                    region.memory().read_words(0, &mut bytes);
                    check(&bytes);
                }
            },
        );
        is_done.store(false, Ordering::Release);
        together(
            || {
                let into = SharedBytes::heap(BYTES);
                for token in 0..ROUNDS as u64 {
                    a.lane.read(&to, 0, &into, token).expect("a read");
                    a.lane.flush().expect("a flush");
                    assert_eq!(a.completion(token), Ok(BYTES as u64));
                    check(&bytes(&into));
                }
                is_done.store(true, Ordering::Release);
            },
            || {
                let mut round = 0u8;
                while !is_done.load(Ordering::Acquire) {
                    round = round.wrapping_add(1);
                    region.memory().write_words(0, &[round; BYTES]);
                    b.poll();
                }
            },
        );
    });
}

/// Once a fence has completed, every earlier operation has taken effect in the owner's memory.
pub fn a_fence_covers_earlier_writes(make: Make) {
    const ROUNDS: u64 = 300;
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let region = b.export(1, 1 << 19, Rights::WRITE);
        let to = a.import(1);
        for round in 1..=ROUNDS {
            let len = if round % 50 == 0 { 300_000 } else { 5000 };
            let pattern = vec![round as u8; len];
            a.lane.write(&to, 8, &filled(&pattern)).expect("a write");
            a.lane.signal(&to, 0, round).expect("a signal");
            a.lane.fence(round).expect("a fence");
            a.lane.flush().expect("a flush");
            assert_eq!(a.completion(round), Ok(0));
            assert_eq!(region.memory().load(0, Ordering::Acquire), round);
            assert!(bytes(&region.memory().slice(8, len)) == pattern, "round {round}");
        }
    });
}

/// A refused operation fails when it is called, or at the next fence; no later fence reports it.
pub fn a_fence_reports_a_refusal_once(make: Make) {
    bounded(move || {
        let (mut a, mut b) = Port::pair(&make(2, 2));
        let (_kept, region) = (b.export(1, 64, Rights::WRITE), b.export(2, 64, Rights::WRITE));
        let (fine, gone) = (a.import(1), a.import(2));
        b.transport.revoke(RegionKey(2)).expect("a revocation");
        let refusal = OpError::Revoked { key: RegionKey(2), generation: 0 };
        let fence = |a: &mut Port, token: u64| {
            a.lane.fence(token).expect("a fence");
            a.lane.flush().expect("a flush");
            // The lane may report the refused operation itself first.
            a.until("a fence", |events| {
                let mut ends = events.drain(..).filter_map(|event| match event {
                    Event::Completed { token: t, value } if t == token => Some(Ok(value)),
                    Event::Failed { token: Some(t), error } if t == token => Some(Err(error)),
                    _ => None,
                });
                ends.next_back()
            })
        };
        a.lane.signal(&fine, 0, 1).expect("a signal");
        assert_eq!(fence(&mut a, 1), Ok(0));
        match a.lane.signal(&gone, 0, 1) {
            Ok(()) => assert_eq!(fence(&mut a, 2), Err(refusal)),
            Err(error) => assert_eq!(error, refusal),
        }
        a.lane.signal(&fine, 8, 1).expect("a signal");
        assert_eq!(fence(&mut a, 3), Ok(0), "reported once");
        assert_eq!(region.memory().load(0, Ordering::Acquire), 0);
    });
}
