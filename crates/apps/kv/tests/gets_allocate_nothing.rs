//! A GET of the bench allocates nothing for the value: not at the trustee, not at the client, and not
//! on the trustee's own thread. Nor does a `get` of the memcached server; a `set` allocates its data.
//! A test program of its own, because it counts what all threads allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gossamer::Rack;
use gossamer_kv::bench::Backend;
use gossamer_kv::bench::rack::RackTable;
use gossamer_kv::bench::table::ByteRange;
use gossamer_kv::memcached::{Budget, Connection, ServerState};
use gossamer_kv::server::rack::RackShards;
use gossamer_kv::store::{Seconds, Settings};

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

/// Held by a test, so that it counts only its own allocations.
static COUNTS: Mutex<()> = Mutex::new(());

const RECORDS: u64 = 200;
const ROUNDS: u64 = 25;
const FIBERS: u64 = 4;

fn read_all(table: &RackTable, value: &mut Vec<u8>) {
    for record in 0..RECORDS {
        let key = record.to_le_bytes();
        let found = table.read(&key, ByteRange::ALL, |found| {
            value.clear();
            value.extend_from_slice(found);
        });
        assert!(found, "record {record}");
        assert_eq!((value.len(), value[0]), (1000, record as u8));
    }
}

#[test]
fn a_get_of_a_thousand_bytes_allocates_nothing() {
    let _counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
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

/// A server without counters.
struct NoServer;

impl ServerState for NoServer {
    fn stats(&self, _now: Seconds) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn start_crawl(&self, _settings: Settings) {}
}

/// What a command of a client allocates at a server of one thread, on average, when it has run before;
/// but for the socket.
fn allocations_per_command(command: &'static [u8], answer: &'static [u8]) -> f64 {
    let count = Rack::new().threads(1).run(move || {
        let (shards, budget) = (RackShards::new(1 << 20), Budget::new(1 << 20));
        let mut connection = Connection::new();
        let mut run = |command: &[u8], answer: &[u8]| {
            connection.received(command);
            while let Some(batch) = connection.next_batch() {
                let output = connection.next_output(&budget);
                connection.completed(batch.run(&shards, &NoServer, 1_700_000_000, output));
            }
            connection.output().write_with(|parts| assert_eq!(&*parts[0], answer));
            connection.sent(answer.len());
        };
        run(b"set key 0 0 4\r\nabcd\r\n", b"STORED\r\n");
        run(command, answer);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..1000).for_each(|_| run(command, answer));
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    count.unwrap() as f64 / 1000.0
}

#[test]
fn a_command_of_a_client_allocates_its_data_only() {
    let _counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    // The rack's own threads may allocate, too, but rarely.
    let get = allocations_per_command(b"get key\r\n", b"VALUE key 0 4\r\nabcd\r\nEND\r\n");
    assert!(get < 0.1, "{get} allocations of a get");
    let set = allocations_per_command(b"set key 0 0 4\r\nefgh\r\n", b"STORED\r\n");
    assert!(set < 1.1, "{set} allocations of a set");
    let missed = allocations_per_command(b"get other\r\n", b"END\r\n");
    assert!(missed < 0.1, "{missed} allocations of a get of nothing");
}
