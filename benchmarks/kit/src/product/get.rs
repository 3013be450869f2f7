//! GETs: values of a map on another host, by READ, by delegation, and in memcached's protocol.
//!
//! Host 1 of a rack of two has [`RECORDS`] values; fibers of host 0 ask for them by keys chosen at
//! random, and check every byte of what they get. Nothing is written meanwhile. The server of
//! memcached's protocol has as many values of the same sizes under keys of the same form.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use gossamer::{ReadMode, ShardedRecords};

use super::sample::{Load, StopFlag};
use crate::harness::{Case, Peer, Placement, Suite, Unit};
use crate::measure::sampling::{CaseError, Reading, Sampler};
use crate::measure::watch::WaitMode;
use crate::memcached::{self, Server};
use crate::work::next;

/// How many values there are.
pub const RECORDS: usize = 10_000;
/// How many a shard has room for: somewhat more, as the documentation advises.
const CAPACITY: usize = RECORDS / 4 * 5;
/// Bytes of a value.
pub const BYTES: [usize; 2] = [100, 1000];
/// GETs under way.
pub const FIBERS: [usize; 2] = [1, 64];
/// GETs after which a fiber lets others run: those by READ do not wait where memory is mapped.
const BURST: u32 = 64;

/// A key: a number of eight digits.
pub type Key = [u8; 8];

/// The key with this number.
pub fn key(number: u32) -> Key {
    let (mut key, mut rest) = ([b'0'; 8], number);
    for digit in key.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The value of a key: the key, over and over.
pub fn value<const BYTES: usize>(key: Key) -> [u8; BYTES] {
    std::array::from_fn(|index| key[index % key.len()])
}

/// Whether `value` is that of the key.
#[inline(always)]
pub fn is_value(key: Key, value: &[u8]) -> bool {
    let ((words, rest), expected) = (value.as_chunks(), u64::from_ne_bytes(key));
    let differs = |seen, word: &[u8; 8]| seen | (u64::from_ne_bytes(*word) ^ expected);
    words.iter().fold(0, differs) == 0 && *rest == key[..rest.len()]
}

/// How a value is found, in the names of cases.
fn text_of(mode: ReadMode) -> &'static str {
    match mode {
        ReadMode::OneSided => "by READ",
        ReadMode::Delegated => "by delegation",
    }
}

/// Fibers of host 0 that GET values of host 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetPlan {
    /// How.
    pub mode: ReadMode,
    /// Bytes of a value, one of [`BYTES`].
    pub bytes: usize,
    /// How many fibers.
    pub fibers: usize,
}

impl GetPlan {
    /// Its name in the report.
    pub fn text(self) -> String {
        let GetPlan { mode, bytes, fibers } = self;
        let plural = if fibers == 1 { "" } else { "s" };
        format!("{}, {bytes} bytes, {fibers} fiber{plural}", text_of(mode))
    }

    /// The plan of this name.
    pub fn named(text: &str) -> Option<GetPlan> {
        let modes = [ReadMode::OneSided, ReadMode::Delegated].into_iter();
        let plans = modes.flat_map(|mode| {
            BYTES.into_iter().flat_map(move |bytes| {
                FIBERS.into_iter().map(move |fibers| GetPlan { mode, bytes, fibers })
            })
        });
        plans.into_iter().find(|plan| plan.text() == text)
    }

    /// Fills a map, and starts the fibers. To be called on host 0 of a rack of two hosts of one
    /// thread each.
    ///
    /// # Panics
    /// If `bytes` is not one of [`BYTES`], or the map cannot be created.
    pub fn start(self) -> Load {
        match self.bytes {
            100 => self.start_with::<100>(),
            1000 => self.start_with::<1000>(),
            bytes => panic!("no values of {bytes} bytes, only of {BYTES:?}"),
        }
    }

    fn start_with<const BYTES: usize>(self) -> Load {
        let records = Records::<BYTES>::new("bench", CAPACITY).expect("a map");
        let owner = gossamer::threads().nth(1).expect("a rack of two");
        gossamer::spawn_on_with(owner, fill, records.clone()).join().expect("a full map");
        let keys: Arc<[Key]> = keys(&records, false).collect();
        let (stop, done) = (StopFlag::default(), Arc::new(AtomicU64::new(0)));
        let start = |number: u64| {
            let (records, keys) = (records.clone(), keys.clone());
            let (stop, done) = (stop.clone(), done.clone());
            gossamer::spawn(move || ask(&records, self.mode, &keys, (number << 40, &stop, &done)))
        };
        let fibers = (1..=self.fibers as u64).map(start).collect();
        // One-sided reads leave the owner idle.
        let others = match self.mode {
            ReadMode::OneSided => WaitMode::Blocks,
            ReadMode::Delegated => WaitMode::Polls,
        };
        Load { stop, fibers, done: Box::new(move || done.load(Relaxed)), others }
    }
}

type Records<const BYTES: usize> = ShardedRecords<Key, [u8; BYTES]>;

/// The first keys whose values the calling thread has, or the other one.
fn keys<const BYTES: usize>(
    records: &Records<BYTES>,
    is_local: bool,
) -> impl Iterator<Item = Key> + '_ {
    let keys = (0..).map(key);
    keys.filter(move |key| records.shard(key).is_local() == is_local).take(RECORDS)
}

/// Puts the values of the calling thread.
fn fill<const BYTES: usize>(records: Records<BYTES>) {
    for key in keys(&records, true) {
        records.put(&key, &value(key)).expect("room");
    }
}

/// GETs values until it is to stop.
fn ask<const BYTES: usize>(
    records: &Records<BYTES>,
    mode: ReadMode,
    keys: &[Key],
    (mut random, stop, done): (u64, &StopFlag, &AtomicU64),
) {
    while !stop.is_set() {
        for _ in 0..BURST {
            random = next(random);
            let key = keys[(random >> 33) as usize % keys.len()];
            let found = records.get_by(&key, mode);
            let is_right = matches!(&found, Ok(Some(value)) if is_value(key, value));
            assert!(is_right, "a GET of {key:?} {} brought {found:?}", text_of(mode));
            // Only fibers of this thread count.
            done.store(done.load(Relaxed) + 1, Relaxed);
            if stop.is_set() {
                break;
            }
        }
        gossamer::yield_now();
    }
}

/// The suite of GETs over one transport. `per_second` measures a plan on that, and `kv` is the
/// program of that name; `is_strict` if a sample is thrown away in which the client lost its core.
pub fn suite(
    name: &str,
    placement: Placement,
    (kv, is_strict): (Option<PathBuf>, bool),
    per_second: impl Fn(&Sampler, GetPlan) -> Result<f64, CaseError> + Clone + 'static,
) -> Suite {
    let about = "a GET of one of 10,000 values of another process by a key of 8 bytes chosen at \
                 random, checked byte by byte, with 1 or 64 under way; the servers of memcached's \
                 protocol are asked over TCP and loopback, by one connection that polls; an \
                 operation is a GET, and its time that of the sample divided by their number";
    let mut suite = Suite::new(name, about, placement);
    for bytes in BYTES {
        for under_way in FIBERS {
            let servers = [Server::Kv(kv.clone()), Server::Memcached].map(|server| {
                let name = format!("{}, {bytes} bytes, {under_way} under way", server.name());
                Case::new(name, Unit::Microseconds, move |sampler| {
                    let asked = (bytes, under_way);
                    let rate = memcached::gets_per_second(sampler, &server, asked, is_strict)?;
                    Ok(Reading::of(1e6 / rate))
                })
            });
            let ours = [ReadMode::Delegated, ReadMode::OneSided].map(|mode| {
                let plan = GetPlan { mode, bytes, fibers: under_way };
                let per_second = per_second.clone();
                Case::new(format!("gossamer/{}", plan.text()), Unit::Microseconds, move |sampler| {
                    Ok(Reading::of(1e6 / per_second(sampler, plan)?))
                })
            });
            let peers = servers.each_ref().map(|case| Peer::case(case.name()));
            servers.into_iter().for_each(|case| suite.push(case));
            let [delegation, read] = ours.map(|case| {
                let [kv, memcached] = peers.clone();
                case.beside(kv).beside(memcached)
            });
            let peer = Peer::case(delegation.name());
            suite.push(delegation);
            suite.push(read.beside(peer));
        }
    }
    suite
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_found_by_its_name() {
        for mode in [ReadMode::OneSided, ReadMode::Delegated] {
            for (bytes, fibers) in [(100, 1), (1000, 64)] {
                let plan = GetPlan { mode, bytes, fibers };
                assert_eq!(GetPlan::named(&plan.text()), Some(plan));
            }
        }
        assert_eq!(GetPlan::named("by READ"), None);
    }

    #[test]
    fn a_value_is_that_of_one_key() {
        assert_eq!(&key(1_234), b"00001234");
        let bytes = value::<100>(key(12));
        assert!(is_value(key(12), &bytes));
        assert!(!is_value(key(13), &bytes));
        for at in [0, 50, 99] {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert!(!is_value(key(12), &wrong), "byte {at}");
        }
    }
}
