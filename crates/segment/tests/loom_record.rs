//! Every interleaving of the writer of a record with a reader: no read is torn, a reader of a version
//! sees what the writer did before it, and versions do not decrease. Run by
//! `cargo xtask loom`.
#![cfg(loom)]

use gossamer_segment::{Record, RecordWriter};
use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{HostId, RegionKey, Rights, Window};

/// The two words of a record.
type Pair = [u64; 2];

/// The offset of a word outside the record: the last version that the writer has begun.
const EFFECT: usize = Record::<Pair>::BYTES;

fn pair(version: u64) -> Pair {
    [version, version + 100]
}

fn memory() -> SharedBytes {
    SharedBytes::heap(EFFECT + 8)
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Writes versions up to `versions`, each after a store to the word at `EFFECT`.
fn write(memory: &SharedBytes, versions: u64) {
    let mut writer = RecordWriter::<Pair>::new(memory.clone(), 0);
    for version in 1..=versions {
        memory.store(EFFECT, version, Ordering::Relaxed);
        assert_eq!(writer.write(&pair(version)), version);
    }
}

/// The version that a read finds, 0 for none; `None` if every attempt was torn.
fn read(memory: &SharedBytes) -> Option<u64> {
    let Some((version, value)) = Record::<Pair>::read_mapped(memory, 0).ok()? else {
        return Some(0);
    };
    assert_eq!(value, pair(version), "torn");
    let effect = memory.load(EFFECT, Ordering::Relaxed);
    assert!(effect >= version, "version {version} is there, but what came before it is not");
    Some(version)
}

#[test]
fn a_reader_sees_nothing_torn_and_what_came_before() {
    check(|| {
        let memory = memory();
        let writer = {
            let memory = memory.clone();
            loom::thread::spawn(move || write(&memory, 2))
        };
        let _ = read(&memory);
        writer.join().unwrap();
        assert_eq!(read(&memory), Some(2));
    });
}

#[test]
fn versions_do_not_go_back() {
    check(|| {
        let memory = memory();
        let writer = {
            let memory = memory.clone();
            loom::thread::spawn(move || write(&memory, 1))
        };
        let versions = [read(&memory), read(&memory)];
        if let [Some(first), Some(second)] = versions {
            assert!(first <= second, "version {second} after {first}");
        }
        writer.join().unwrap();
    });
}

/// The same through windows: what an importer writes, another importer reads.
#[test]
fn a_record_that_is_written_through_a_window_is_as_good() {
    check(|| {
        let (memory, live) = (memory(), SharedBytes::heap(8));
        live.store(0, 1, Ordering::Relaxed);
        let window = |memory: &SharedBytes| {
            let named = (RegionKey(1), Rights::ALL, 0);
            Window::new((0, HostId(0)), named, memory.clone(), live.clone())
        };
        let writer = {
            let (memory, window) = (memory.clone(), window(&memory));
            loom::thread::spawn(move || {
                for version in 1..=2 {
                    memory.store(EFFECT, version, Ordering::Relaxed);
                    Record::write_window(&window, 0, &pair(version), version).unwrap();
                }
            })
        };
        if let Ok(Some((version, value))) =
            Record::<Pair>::read_window(&window(&memory), 0).unwrap()
        {
            assert_eq!(value, pair(version), "torn");
            assert!(memory.load(EFFECT, Ordering::Relaxed) >= version, "not what came before");
        }
        writer.join().unwrap();
    });
}

/// A WRITE of a device stores the words in any order, and a READ copies them in any order.
#[test]
fn words_may_come_and_be_copied_in_any_order() {
    const WORDS: usize = Record::<Pair>::BYTES / 8;
    check(|| {
        let memory = memory();
        Record::encode_into(&memory, 0, &pair(1), 1);
        let writer = {
            let memory = memory.clone();
            loom::thread::spawn(move || {
                let from = Record::encode(&pair(2), 2);
                for word in [3, 1, 0, 2] {
                    let at = word * 8;
                    memory.store(at, from.load(at, Ordering::Relaxed), Ordering::Relaxed);
                }
            })
        };
        let copy = SharedBytes::heap(WORDS * 8);
        for word in [2, 3, 0, 1] {
            let at = word * 8;
            copy.store(at, memory.load(at, Ordering::Relaxed), Ordering::Relaxed);
        }
        if let Ok(found) = Record::<Pair>::decode(&copy, 0) {
            let (version, value) = found.expect("version 1 is there from the start");
            assert_eq!(value, pair(version), "torn");
        }
        writer.join().unwrap();
        assert_eq!(Record::decode(&memory, 0), Ok(Some((2, pair(2)))));
    });
}
