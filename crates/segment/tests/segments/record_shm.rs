//! A record in memory that two hosts map: one host writes it without pause while the other one reads.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gossamer_segment::{Record, RecordWriter};
use primitive::SharedBytes;
use transport_api::{HostId, Region, RegionKey, RemoteRegion, Rights, Transport, Window};
use transport_shm::ShmTransport;

/// How long anything here may take before it counts as hung.
const DEADLINE: Duration = Duration::from_secs(20);

const KEY: RegionKey = RegionKey(1);

/// More than a cache line, so that a reader can see one line old and one new.
type Value = [u64; 21];

/// Writes of each test.
const VERSIONS: u64 = 30_000;

/// Writes after which the writer waits for the reader to have seen one of them.
const BURST: u64 = 300;

/// Where the record begins.
const AT: usize = 24;

/// Words that all depend on the version, so that one of another write shows.
fn value(version: u64) -> Value {
    std::array::from_fn(|word| version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word as u64)
}

/// A rack of two hosts, a region of the first, and what the second imports of it.
fn rack(rights: Rights) -> (Vec<Arc<ShmTransport>>, Region, RemoteRegion) {
    let hosts = ShmTransport::in_process(2, 1).expect("a rack");
    let len = AT + Record::<Value>::BYTES;
    let region = hosts[0].export(KEY, len, rights.into()).expect("an export");
    let remote = hosts[1].import(HostId(0), KEY, DEADLINE).expect("an import");
    (hosts, region, remote)
}

/// The last version that a reader saw; `u64::MAX` once it has ended, even by a panic.
struct Progress<'a>(&'a AtomicU64);

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }
}

/// Calls `read` until it finds the last version, and checks each version that it finds. A read may
/// find the record torn, but only while there is a writer.
fn read_all(
    progress: &Progress<'_>,
    is_writing: impl Fn() -> bool,
    read: impl Fn() -> Result<Option<(u64, Value)>, u32>,
) {
    let mut last = 0;
    while last < VERSIONS {
        let is_writing = is_writing();
        match read() {
            Ok(found) => {
                let (version, found) = found.unwrap_or((0, value(0)));
                assert_eq!(found, value(version), "version {version} is torn");
                assert!(version >= last, "version {version} after {last}");
                assert!(is_writing || version == VERSIONS, "{version} is the last version");
                last = version;
                progress.0.store(last, Ordering::Relaxed);
            }
            Err(attempts) => assert!(is_writing, "torn {attempts} times without a writer"),
        }
    }
}

/// Lets `write` write every version on a thread of its own while `read` reads.
fn hammer(mut write: impl FnMut(u64) + Send, read: impl Fn() -> Result<Option<(u64, Value)>, u32>) {
    let seen = AtomicU64::new(0);
    thread::scope(|scope| {
        // Dropped before the scope ends, so that the writer does not wait for a failed reader.
        let progress = Progress(&seen);
        let writer = scope.spawn(|| {
            for version in 1..=VERSIONS {
                write(version);
                while seen.load(Ordering::Relaxed).saturating_add(BURST) < version {
                    thread::yield_now();
                }
            }
        });
        read_all(&progress, || !writer.is_finished(), read);
    });
}

fn mapped(remote: &RemoteRegion) -> &Window {
    remote.window().expect("memory of a host of the same machine is mapped")
}

fn through(window: &Window) -> Result<Option<(u64, Value)>, u32> {
    Record::<Value>::read_window(window, AT).expect("a read").map_err(|torn| torn.attempts)
}

#[test]
fn the_owner_writes_and_an_importer_that_may_only_read_sees_nothing_torn() {
    let (_hosts, region, remote) = rack(Rights::READ);
    let mut writer = RecordWriter::<Value>::new(region.memory().clone(), AT);
    let write = |version| assert_eq!(writer.write(&value(version)), version);
    hammer(write, || through(mapped(&remote)));
}

#[test]
fn an_importer_writes_and_the_owner_sees_nothing_torn() {
    let (_hosts, region, remote) = rack(Rights::READ | Rights::WRITE);
    let window = mapped(&remote);
    let write = |version| {
        Record::write_window(window, AT, &value(version), version).expect("a write");
    };
    let memory = region.memory();
    hammer(write, || Record::<Value>::read_mapped(memory, AT).map_err(|torn| torn.attempts));
}

/// As the two above, but each write is one copy and each read another, as without mapped memory:
/// the reader decodes a copy that may be torn.
#[test]
fn copies_that_are_made_while_it_is_written_are_refused() {
    let (_hosts, region, remote) = rack(Rights::READ | Rights::WRITE);
    let window = mapped(&remote);
    let (staging, copy) =
        (SharedBytes::heap(Record::<Value>::BYTES), SharedBytes::heap(Record::<Value>::BYTES));
    let write = |version| {
        Record::encode_into(&staging, 0, &value(version), version);
        region.memory().copy_from(AT, &staging);
    };
    hammer(write, || {
        window.read(AT, &copy).expect("a read");
        Record::<Value>::decode(&copy, 0).map_err(|torn| torn.attempts)
    });
}
