//! Bytes, words, fences and atomics: reads return what was written, complete and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use transport_api::conformance::Make;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::MAX_OPERATION;
use crate::conformance::{bytes, pattern, play, script};

/// A segment starts zeroed; bytes written anywhere in it are read there, by owner and importer.
pub fn bytes_come_back(make: Make) {
    const LEN: usize = 10_001;
    let owner = script(|owner| {
        let segment = owner.export("bytes", LEN);
        assert_eq!(bytes(&segment), [0; LEN]);
        owner.meet();
        owner.meet();
        let expected = [pattern(1_001, 1), pattern(7_999, 2), pattern(1_001, 3)].concat();
        assert!(bytes(&segment) == expected, "a fence covers what was written");
        segment.write(5, &pattern(77, 4)).expect("a write");
        assert!(segment.write(LEN - 3, &[0; 4]).is_err());
        owner.meet();
        owner.meet();
    });
    let user = script(|user| {
        user.meet();
        let segment = user.open("bytes");
        let mut all = vec![9; LEN];
        segment.read(0, &mut all).expect("a read");
        assert_eq!(all, [0; LEN]);
        segment.write(0, &pattern(1_001, 1)).expect("a write");
        segment.write(1_001, &pattern(7_999, 2)).expect("a write");
        segment.write(9_000, &pattern(1_001, 3)).expect("a write up to the end");
        // Nothing, and nothing behind the last byte.
        segment.write(0, &[]).expect("a write of nothing");
        segment.write(LEN, &[]).expect("a write of nothing");
        segment.read(LEN, &mut []).expect("a read of nothing");
        let mut middle = [0; 333];
        segment.read(1_003, &mut middle).expect("a read");
        assert_eq!(middle, pattern(7_999, 2)[2..335], "a read follows earlier writes");
        segment.fence().expect("a fence");
        user.meet();
        user.meet();
        let mut part = [0; 77];
        segment.read(5, &mut part).expect("a read");
        assert_eq!(part[..], pattern(77, 4));
        user.meet();
    });
    play(make, [owner, user]);
}

#[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Quote {
    bid: u64,
    ask: u32,
    size: u32,
}

/// Elements of several types, from the first to the last.
pub fn values_come_back(make: Make) {
    const COUNT: usize = 64;
    let quote = |n: usize| Quote { bid: n as u64, ask: !n as u32, size: 7 };
    let owner = script(move |owner| {
        let segment = owner.export("values", COUNT * size_of::<Quote>());
        owner.meet();
        owner.meet();
        for n in 0..COUNT - 1 {
            assert_eq!(segment.at::<Quote>(n).read().expect("a value"), quote(n));
        }
        assert_eq!(segment.at::<u8>(COUNT * 16 - 1).read().expect("a byte"), 0xab);
        segment.at(0).write(&quote(99)).expect("a value");
        assert!(segment.at(COUNT).write(&quote(0)).is_err());
        owner.meet();
        owner.meet();
    });
    let user = script(move |user| {
        user.meet();
        let segment = user.open("values");
        for n in 0..COUNT {
            segment.at(n).write(&quote(n)).expect("a write");
        }
        assert_eq!(segment.at::<Quote>(COUNT - 1).read().expect("a read"), quote(COUNT - 1));
        segment.at::<u8>(COUNT * 16 - 1).write(&0xab).expect("a write of the last byte");
        let last = segment.at_byte::<u32>(COUNT * 16 - 4).read().expect("a read");
        assert_eq!(last.to_ne_bytes()[3], 0xab);
        assert_eq!(segment.at::<[u64; 4]>(3).offset(), 96);
        segment.fence().expect("a fence");
        user.meet();
        user.meet();
        assert_eq!(segment.at::<Quote>(0).read().expect("a read"), quote(99));
        user.meet();
    });
    play(make, [owner, user]);
}

/// Blocks of one part and of several, also longer than a thread may leave unfenced.
pub fn blocks_of_any_length_come_back(make: Make) {
    const LEN: usize = 3 * (512 << 10) + 13;
    let lengths = [0, 1, 7, MAX_OPERATION - 1, MAX_OPERATION, MAX_OPERATION + 1, 300_001, LEN - 3];
    let owner = script(move |owner| {
        let segment = owner.export("blocks", LEN);
        for (seed, len) in (1..).zip(lengths) {
            owner.meet();
            owner.meet();
            let expected = pattern(len, seed);
            let now = bytes(&segment);
            assert!(now[3..3 + len] == expected, "{len} bytes as the owner sees them");
            assert_eq!(now[..3], [0; 3], "before {len} bytes");
        }
    });
    let user = script(move |user| {
        let mut segment = None;
        for (seed, len) in (1..).zip(lengths) {
            user.meet();
            let segment = segment.get_or_insert_with(|| user.open("blocks"));
            let sent = pattern(len, seed);
            segment.write_block(3, &sent).expect("a block");
            let mut back = vec![0; len];
            segment.read_block(3, &mut back).expect("a block");
            assert!(back == sent, "{len} bytes read back");
            segment.fence().expect("a fence");
            user.meet();
        }
    });
    play(make, [owner, user]);
}

/// A writer changes words without pause; neither the owner nor another importer sees part of a word.
pub fn a_word_is_never_torn(make: Make) {
    const ROUNDS: u64 = 500;
    const WORDS: usize = 9;
    const LOOKS: u64 = 60;
    let is_whole = |word: u64| {
        let bytes = word.to_ne_bytes();
        bytes.iter().all(|byte| *byte == bytes[0])
    };
    // Reads of the owner and of the reader: the writer continues until both have done enough.
    let looks = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let [of_owner, of_reader] = looks.clone();
    let owner = script(move |owner| {
        let segment = owner.export("words", WORDS * 8);
        owner.meet();
        while !owner.is_awaited() {
            let mut seen = 0;
            for n in 0..WORDS {
                let word = segment.at::<u64>(n).read().expect("a word");
                assert!(is_whole(word), "{word:#x}");
                seen |= word;
            }
            of_owner.fetch_add(u64::from(seen != 0), Ordering::Relaxed);
            owner.attached.poll();
        }
        owner.meet();
    });
    let writer = script(move |writer| {
        writer.meet();
        let segment = writer.open("words");
        let (rounds, enough) = (writer.times(ROUNDS), writer.times(LOOKS));
        let is_enough = || looks.iter().all(|looks| looks.load(Ordering::Relaxed) >= enough);
        for round in 0.. {
            if round >= rounds && is_enough() {
                break;
            }
            let byte = (round as u8) | 1;
            // A single word, and words as part of a longer write.
            segment.at::<u64>(0).write(&u64::from_ne_bytes([byte; 8])).expect("a write");
            segment.write(8, &[byte; (WORDS - 1) * 8]).expect("a write");
        }
        segment.fence().expect("a fence");
        writer.meet();
    });
    let reader = script(move |reader| {
        reader.meet();
        let segment = reader.open("words");
        loop {
            let words = segment.at::<[u64; WORDS]>(0).read().expect("a read");
            assert!(words.into_iter().all(is_whole), "{words:x?}");
            of_reader.fetch_add(u64::from(words != [0; WORDS]), Ordering::Relaxed);
            if reader.is_awaited() {
                break;
            }
        }
        reader.meet();
    });
    play(make, [owner, writer, reader]);
}

/// After a fence the owner sees every earlier write, without a notification.
pub fn a_fence_covers_earlier_writes(make: Make) {
    const ROUNDS: u32 = 30;
    const LEN: usize = 40_000;
    let owner = script(|owner| {
        let segment = owner.export("fenced", LEN);
        owner.meet();
        for round in 0..ROUNDS {
            owner.meet();
            assert!(bytes(&segment) == pattern(LEN, round), "round {round}");
            owner.meet();
        }
    });
    let user = script(|user| {
        user.meet();
        let segment = user.open("fenced");
        for round in 0..ROUNDS {
            let all = pattern(LEN, round);
            // Parts of different lengths; the shortest come last, and could overtake the others.
            let mut at = 0;
            for len in [20_000, 10_001, 5_000, 4_000, 900, 90, 8, 1] {
                segment.write(at, &all[at..at + len]).expect("a write");
                at += len;
            }
            assert_eq!(at, LEN);
            segment.fence().expect("a fence");
            user.meet();
            user.meet();
        }
    });
    play(make, [owner, user]);
}

/// A fence of one segment covers writes to all segments of its host; they do not mix.
pub fn a_fence_covers_all_segments_of_a_host(make: Make) {
    const LEN: usize = 5_000;
    let owner = script(|owner| {
        let (first, second) = (owner.export("first", LEN), owner.export("second", LEN));
        owner.meet();
        owner.meet();
        assert!(bytes(&first) == pattern(LEN, 1));
        assert!(bytes(&second) == pattern(LEN, 2));
    });
    let user = script(|user| {
        user.meet();
        let (first, second) = (user.open("first"), user.open("second"));
        for (at, (one, two)) in pattern(LEN, 1).into_iter().zip(pattern(LEN, 2)).enumerate() {
            first.write(at, &[one]).expect("a write");
            second.write(at, &[two]).expect("a write");
        }
        second.fence().expect("a fence");
        user.meet();
    });
    play(make, [owner, user]);
}

/// No addition or swap of any host, including the owner, is lost.
pub fn atomics_of_several_hosts_add_up(make: Make) {
    const EACH: u64 = 200;
    let swapped = Arc::new(AtomicU64::new(0));
    let all_swapped = swapped.clone();
    let count = move |segment: &crate::RemoteSegment| {
        let mut seen = 0;
        for _ in 0..EACH {
            segment.fetch_add(8, 3).expect("an addition");
            let old = segment.compare_swap(16, seen, seen + 1).expect("a swap");
            if old == seen {
                swapped.fetch_add(1, Ordering::Relaxed);
                seen += 1;
            } else {
                seen = old;
            }
        }
    };
    let counts = [count.clone(), count.clone(), count];
    let [owner_counts, counts @ ..] = counts;
    let owner = script(move |owner| {
        let segment = owner.export("sum", 64);
        owner.meet();
        owner_counts(&owner.open("sum"));
        owner.meet();
        assert_eq!(segment.at::<u64>(1).read().expect("a word"), 3 * 3 * EACH);
        let swapped = all_swapped.load(Ordering::Relaxed);
        assert_eq!(segment.at::<u64>(2).read().expect("a word"), swapped);
        assert!(swapped >= EACH, "only {swapped} swaps succeeded, of {EACH} rounds");
        let others = [0, 3, 4, 5, 6, 7].map(|n| segment.at::<u64>(n).read().expect("a word"));
        assert_eq!(others, [0; 6]);
    });
    let [one, two] = counts.map(|count| {
        script(move |user: &super::Player| {
            user.meet();
            count(&user.open("sum"));
            user.meet();
        })
    });
    play(make, [owner, one, two]);
}

/// A host opens, writes and notifies its own segment as other hosts do.
pub fn a_host_opens_its_own_segment(make: Make) {
    let owner = script(|owner| {
        let segment = owner.export("own", 100_000);
        let own = owner.open("own");
        assert_eq!((own.owner(), own.len(), own.generation()), (owner.host(), 100_000, 0));
        own.write_block(1, &pattern(99_999, 1)).expect("a block");
        assert_eq!(own.fetch_add(0, 0).expect("an addition") >> 8, {
            let first = [&[0][..], &pattern(7, 1)].concat();
            u64::from_le_bytes(first.try_into().expect("eight bytes")) >> 8
        });
        own.fence().expect("a fence");
        assert!(bytes(&segment)[1..] == pattern(99_999, 1));
        own.write_notify(8, &[5; 8]).expect("a write");
        let notification = segment.notified().expect("a notification");
        assert_eq!(
            (notification.from, notification.offset, notification.len),
            (owner.host(), 8, 8)
        );
        assert_eq!(segment.at::<u64>(1).read().expect("a word"), 0x0505_0505_0505_0505);
    });
    play(make, [owner]);
}
