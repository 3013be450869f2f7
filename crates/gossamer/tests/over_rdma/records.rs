//! Records of several packets, which devices copy one after the other, and of which kernel 6.12 shows
//! the tail first. The checksum alone tells that one is not whole.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gossamer_segment::{Attached, Record, RecordWriter, Segments};
use primitive::SharedBytes;

use super::{DEADLINE, pair};

/// Several packets, and a part of one.
type Value = [u64; 600];
type Item = Record<Value>;

/// Where the record begins: not at a cache line.
const AT: usize = 24;
const LEN: usize = AT + Item::BYTES;

/// Versions that a writer writes, at least.
const VERSIONS: u64 = 1_000;
/// Writes that are under way at a time.
const BURST: u64 = 10;

/// Words that all depend on the version, so that one of another write shows.
fn value(version: u64) -> Value {
    std::array::from_fn(|word| version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word as u64)
}

/// What a reader has seen.
#[derive(Debug, Default)]
struct Seen {
    last: u64,
    torn: u64,
    /// Of them, those whose last word was new while the first was not.
    tail_first: u64,
}

impl Seen {
    /// Takes what a read of the record has found, and checks it.
    fn take(&mut self, found: Option<(u64, Value)>) {
        let (version, found) = found.unwrap_or((0, value(0)));
        assert!(found == value(version), "version {version} is torn");
        assert!(version >= self.last, "version {version} after {}", self.last);
        self.last = version;
    }
}

/// Whether the checksum of the version after `last` is there while the version is not.
fn shows_tail_first(memory: &SharedBytes, last: u64, next: &Cell<(u64, u64)>) -> bool {
    const CHECKSUM: usize = Item::BYTES - 8;
    if next.get().0 != last + 1 {
        let whole = Item::encode(&value(last + 1), last + 1);
        next.set((last + 1, whole.load(CHECKSUM, primitive::sync::Ordering::Relaxed)));
    }
    let load = |at| memory.load(at, primitive::sync::Ordering::Acquire);
    load(AT + CHECKSUM) == next.get().1 && load(AT) == last
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn the_owner_sees_no_torn_record_of_a_peer_that_writes() {
    // The last version that the owner has seen; the largest once it has ended.
    let seen = &AtomicU64::new(0);
    // Whether some were torn, so that the writer may end.
    let is_enough = &AtomicBool::new(false);
    let owner = |segments: &Segments, _: &Attached| {
        let _end = OnDrop(|| seen.store(u64::MAX, Ordering::Release));
        let segment = segments.builder("written").len(LEN).export().expect("a segment");
        let (memory, start) = (segment.memory(), Instant::now());
        let (mut found, next) = (Seen::default(), Cell::default());
        while found.last < VERSIONS || found.torn == 0 {
            assert!(start.elapsed() < DEADLINE, "none of the records was torn: {found:?}");
            found.tail_first += u64::from(shows_tail_first(memory, found.last, &next));
            // One attempt, which the next one follows.
            found.torn += u64::from(Item::decode(memory, AT).is_err());
            match Item::read_mapped(memory, AT) {
                Ok(record) => found.take(record),
                Err(_) => thread::yield_now(),
            }
            seen.store(found.last, Ordering::Release);
        }
        is_enough.store(true, Ordering::Release);
        println!("a writer over RDMA: {found:?}");
    };
    pair(owner, |_, segments| {
        let segment = segments.options().timeout(DEADLINE).open("written").expect("a segment");
        let mut bytes = vec![0; Item::BYTES];
        for version in 1.. {
            Item::encode(&value(version), version).read_into(0, &mut bytes);
            segment.write(AT, &bytes).expect("a write");
            if version % BURST == 0 {
                segment.fence().expect("a fence");
            }
            if is_enough.load(Ordering::Acquire) || seen.load(Ordering::Acquire) == u64::MAX {
                break;
            }
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma-test"]
fn a_peer_reads_no_torn_record_that_its_owner_writes() {
    let is_over = &AtomicBool::new(false);
    let owner = |segments: &Segments, attached: &Attached| {
        let segment = segments.builder("read").len(LEN).export().expect("a segment");
        let mut writer = RecordWriter::<Value>::new(segment.memory().clone(), AT);
        while !is_over.load(Ordering::Acquire) {
            // Writes that READs meet, and time for one to meet none.
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

/// Calls its function when it is dropped, however that comes.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
