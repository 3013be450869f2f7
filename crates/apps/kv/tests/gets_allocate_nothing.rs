//! A GET of the bench allocates nothing for the value: not at the trustee, not at the client, and not
//! on the trustee's own thread. A test program of its own, because it counts what all threads allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use gossamer::Rack;
use gossamer_kv::bench::Backend;
use gossamer_kv::bench::rack::RackTable;
use gossamer_kv::bench::table::ByteRange;

/// The system's allocator; counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every method hands its arguments to the system's allocator, whose contract is the same.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; it came from this allocator, hence from the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const RECORDS: u64 = 200;
const ROUNDS: u64 = 25;
const FIBERS: u64 = 4;

fn read_all(table: &RackTable, value: &mut Vec<u8>) {
    for record in 0..RECORDS {
        let key = record.to_le_bytes();
        assert!(table.read(&key, ByteRange::ALL, value), "record {record}");
        assert_eq!((value.len(), value[0]), (1000, record as u8));
    }
}

#[test]
fn a_get_of_a_thousand_bytes_allocates_nothing() {
    let (gets, allocations) = Rack::new()
        .threads(2)
        .run(|| {
            let table = RackTable::new(false);
            for record in 0..RECORDS {
                assert!(table.insert(&record.to_le_bytes(), &[record as u8; 1000]));
            }
            let fibers = (0..FIBERS).map(|_| {
                let table = table.clone();
                fiber::spawn_local(move || {
                    let mut value = Vec::with_capacity(1000);
                    // What grows once, such as the lists of completions, has grown after this.
                    read_all(&table, &mut value);
                    let before = ALLOCATIONS.load(Ordering::Relaxed);
                    (0..ROUNDS).for_each(|_| read_all(&table, &mut value));
                    ALLOCATIONS.load(Ordering::Relaxed) - before
                })
            });
            let fibers: Vec<_> = fibers.collect();
            let counts = fibers.into_iter().map(|fiber| fiber.join().unwrap());
            (RECORDS * ROUNDS, counts.max().unwrap_or(u64::MAX))
        })
        .unwrap();
    // A few of the runtime's own, such as a timer's, may be among them.
    assert!(allocations < gets / 100, "{allocations} allocations in {gets} GETs and more");
}
