//! Records that devices copy packet by packet. On kernel 6.12 a packet arrives with its tail first, so
//! a new last word does not mean that the words before it are new. Only the checksum detects a torn
//! record.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gossamer_segment::{Attached, Record, RecordWriter, Segments};
use primitive::SharedBytes;

use super::{DEADLINE, pair};

/// Words of a record of several packets, and of a record that fits into one packet.
const LARGE: usize = 600;
const SMALL: usize = 120;

/// Where the record begins: not at the start of a cache line.
const AT: usize = 24;

/// The least number of versions that a writer writes.
const VERSIONS: u64 = 1_000;
/// Writes in flight at a time.
const BURST: u64 = 10;

/// Words that all depend on the version, so that a word of another version is detected.
fn value<const N: usize>(version: u64) -> [u64; N] {
    std::array::from_fn(|word| version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word as u64)
}

/// The results of a reader so far.
#[derive(Debug, Default)]
struct Seen {
    last: u64,
    torn: u64,
    /// Of them, those whose last word was new while the first was not.
    tail_first: u64,
}

impl Seen {
    /// Counts and checks the result of a read.
    fn take<const N: usize>(&mut self, found: Option<(u64, [u64; N])>) {
        let (version, found) = found.unwrap_or((0, value(0)));
        assert!(found == value(version), "version {version} is torn");
        assert!(version >= self.last, "version {version} after {}", self.last);
        self.last = version;
    }
}

/// The checksum of a version.
fn checksum<const N: usize>(version: u64) -> u64 {
    let whole = Record::encode(&value::<N>(version), version);
    whole.load(Record::<[u64; N]>::BYTES - 8, primitive::sync::Ordering::Relaxed)
}

/// Polls for a short time until the version differs from `last`. Returns whether the checksum of the
/// next version arrived before that version.
fn shows_tail_first<const N: usize>(memory: &SharedBytes, last: u64) -> bool {
    const LOOKS: usize = 2_000;
    let next = checksum::<N>(last + 1);
    let load = |at| memory.load(at, primitive::sync::Ordering::Acquire);
    for _ in 0..LOOKS {
        let checksum = load(AT + Record::<[u64; N]>::BYTES - 8);
        if load(AT) != last {
            return false;
        }
        if checksum == next {
            return true;
        }
    }
    false
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn the_owner_sees_no_torn_record_of_several_packets() {
    owner_sees_no_torn_record::<LARGE>(1);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn the_owner_sees_no_torn_record_of_one_packet() {
    // Such a record is torn for too short a time to demand that a read finds it so.
    owner_sees_no_torn_record::<SMALL>(0);
}

/// A peer writes a record of `N` words until the owner has found it torn at least `torn` times.
fn owner_sees_no_torn_record<const N: usize>(torn: u64) {
    let len = Record::<[u64; N]>::BYTES;
    // The last version that the owner has seen; `u64::MAX` once it has ended.
    let seen = &AtomicU64::new(0);
    let has_ended = &AtomicBool::new(false);
    let owner = |segments: &Segments, _: &Attached| {
        let segment = segments.builder("written").len(AT + len).export().expect("a segment");
        let _end = OnDrop(|| seen.store(u64::MAX, Ordering::Release));
        let (memory, start) = (segment.memory(), Instant::now());
        let mut found = Seen::default();
        while found.last < VERSIONS || found.torn < torn {
            assert!(start.elapsed() < DEADLINE, "the end was not reached: {found:?}");
            found.tail_first += u64::from(shows_tail_first::<N>(memory, found.last));
            // A single attempt; the loop repeats it.
            found.torn += u64::from(Record::<[u64; N]>::decode(memory, AT).is_err());
            match Record::<[u64; N]>::read_mapped(memory, AT) {
                Ok(record) => found.take(record),
                Err(_) => thread::yield_now(),
            }
            seen.store(found.last, Ordering::Release);
        }
        println!("a peer wrote {N} words: {found:?}");
        seen.store(u64::MAX, Ordering::Release);
        // Keeps the segment until the last write has arrived.
        while !has_ended.load(Ordering::Acquire) {
            thread::yield_now();
        }
    };
    pair(owner, |_, segments| {
        let _end = OnDrop(|| has_ended.store(true, Ordering::Release));
        let segment = segments.options().timeout(DEADLINE).open("written").expect("a segment");
        let mut bytes = vec![0; len];
        for version in 1.. {
            Record::encode(&value::<N>(version), version).read_into(0, &mut bytes);
            segment.write(AT, &bytes).expect("a write");
            if version % BURST == 0 {
                segment.fence().expect("a fence");
            }
            if seen.load(Ordering::Acquire) == u64::MAX {
                break;
            }
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_peer_reads_no_torn_record_that_its_owner_writes() {
    type Item = Record<[u64; LARGE]>;
    let is_over = &AtomicBool::new(false);
    let owner = |segments: &Segments, attached: &Attached| {
        let segment = segments.builder("read").len(AT + Item::BYTES).export().expect("a segment");
        let mut writer = RecordWriter::<[u64; LARGE]>::new(segment.memory().clone(), AT);
        while !is_over.load(Ordering::Acquire) {
            // Writes at the same time as READs, and pauses in which a READ meets no write.
            for _ in 0..20 {
                let version = writer.version() + 1;
                writer.write(&value(version));
                thread::yield_now();
            }
            attached.poll();
            thread::sleep(Duration::from_millis(1));
        }
    };
    pair(owner, |_, segments| {
        let _end = OnDrop(|| is_over.store(true, Ordering::Release));
        let segment = segments.options().timeout(DEADLINE).open("read").expect("a segment");
        let (mut bytes, start) = (vec![0; Item::BYTES], Instant::now());
        let (mut found, mut whole) = (Seen::default(), 0);
        while found.last < VERSIONS || whole < 100 || found.torn == 0 {
            assert!(start.elapsed() < DEADLINE, "{whole} records were whole: {found:?}");
            segment.read(AT, &mut bytes).expect("a read");
            match Item::decode_bytes(&bytes) {
                Ok(record) => {
                    found.take(record);
                    whole += 1;
                }
                Err(_) => found.torn += 1,
            }
        }
        println!("a reader over RDMA: {whole} were whole, {found:?}");
    });
}

/// Calls its function when it is dropped, also by a panic.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
