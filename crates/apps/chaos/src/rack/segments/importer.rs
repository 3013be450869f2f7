//! The importers: they open segments of all hosts, read, write, count, swap and fence, and check what
//! they get.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use gossamer::segment::Strategy;
use gossamer::{HostId, RemoteSegment, SegmentError, Segments, yield_now};

use super::super::ledger::Ledger;
use super::pattern::{
    CANARY, COUNTERS, FREE, LEN, OWN, RECORD, Value, WORDS, addend, first_torn, is_counter,
    is_sealed, seal, value_of, words,
};
use super::{SHARED, expect, name_of, violation};
use crate::Plan;

/// Operations on a segment between two opens, at most.
const OPERATIONS: u32 = 60;

/// How often a record may be torn all the time while its owner is there.
const TORN: u32 = 4;

thread_local! {
    /// How many fences of this thread's fibers have found an operation refused. A fence answers for
    /// all fibers of its thread.
    static REFUSED: Cell<u64> = const { Cell::new(0) };
}

/// How an operation failed, if the importer goes on.
type Attempt = Result<(), SegmentError>;

/// A fiber or a plain thread that uses the segments of others.
pub(super) struct Importer {
    rng: Rng,
    segments: Segments,
    /// Which of the words of importers is its own.
    own: usize,
    /// The last number in it.
    number: u32,
    /// Whether it is a plain thread.
    is_plain: bool,
    /// The highest generation that it has seen of each name.
    generations: BTreeMap<u32, u32>,
    ledger: Ledger,
}

impl Importer {
    pub(super) fn new(rng: Rng, segments: Segments, own: u32, is_plain: bool) -> Self {
        let own = OWN.start + own as usize;
        assert!(OWN.contains(&own), "importers have {} words, this is word {own}", OWN.len());
        let (generations, ledger) = (BTreeMap::new(), Ledger::default());
        Importer { rng, segments, own, number: 0, is_plain, generations, ledger }
    }

    /// Uses segments of random threads until `end`.
    pub(super) fn run(mut self, end: Instant) -> Ledger {
        let mut goes_on = ControlFlow::Continue(());
        while goes_on.is_continue() && Instant::now() < end {
            goes_on = match self.rng.u32(..10) {
                0 => self.open_shared(),
                _ => {
                    let owner = self.rng.u32(..Plan::HOSTS * Plan::THREADS);
                    self.open_and_use(owner, end)
                }
            };
            self.pause();
        }
        self.ledger
    }

    fn pause(&mut self) {
        let micros = self.rng.u64(..300);
        match (self.is_plain, micros < 150) {
            (true, true) => thread::yield_now(),
            (true, false) => thread::sleep(Duration::from_micros(micros)),
            (false, true) => yield_now(),
            (false, false) => gossamer::sleep(Duration::from_micros(micros)),
        }
    }

    /// Opens the segment of thread `owner` and uses it until it is gone or that is enough.
    fn open_and_use(&mut self, owner: u32, end: Instant) -> ControlFlow<()> {
        let host = HostId(owner / Plan::THREADS);
        let (is_named, is_forced) = (self.rng.bool(), self.rng.bool());
        let strategies = [Strategy::Probe, Strategy::Ask, Strategy::ProbeThenAsk(1)];
        let mut options = self.segments.options().strategy(strategies[self.rng.usize(..3)]);
        if is_named {
            options = options.host(host);
        }
        if is_forced {
            options = options.uncached();
        }
        if self.rng.bool() {
            options = options.timeout(Duration::from_micros(self.rng.u64(..5_000)));
        }
        let segment = match options.open(&name_of(owner)) {
            Ok(segment) => segment,
            Err(error) => return self.failed(owner, "open", error),
        };
        self.ledger.operations += 1;
        let generation = segment.generation();
        expect(segment.owner() == host && segment.len() == LEN, || {
            format!("{} of {host}: {segment:?} was opened", name_of(owner))
        });
        let seen = self.generations.entry(owner).or_default();
        // What the cache has may be older than what was looked up.
        if is_forced {
            expect(generation >= *seen, || {
                format!("{} has generation {generation} after {seen}", name_of(owner))
            });
        }
        *seen = generation.max(*seen);
        let mut counts = BTreeMap::new();
        for _ in 0..self.rng.u32(1..OPERATIONS) {
            if Instant::now() >= end {
                break;
            }
            match self.operate(&segment, &mut counts) {
                Ok(()) => self.ledger.operations += 1,
                // The owner has changed access, and will change it again.
                Err(SegmentError::Rights { has, needs, .. }) if !has.allow(needs) => self.pause(),
                Err(SegmentError::AccessChanged(_)) => self.ledger.operations += 1,
                Err(error) => return self.failed(owner, "use", error),
            }
        }
        ControlFlow::Continue(())
    }

    /// Opens the name that several hosts have at times.
    fn open_shared(&mut self) -> ControlFlow<()> {
        match self.segments.options().uncached().open(SHARED) {
            Ok(_) => {}
            Err(SegmentError::Ambiguous { hosts, .. }) => {
                expect(hosts.len() > 1, || format!("{SHARED} is ambiguous on {hosts:?}"));
            }
            Err(SegmentError::PeerLost(host, _)) => self.ledger.lose(host.0),
            Err(error) => return self.failed(0, "open the shared name", error),
        }
        self.ledger.operations += 1;
        ControlFlow::Continue(())
    }

    /// An operation on what thread `owner` exports has failed: as it may?
    fn failed(&mut self, owner: u32, what: &str, error: SegmentError) -> ControlFlow<()> {
        let host = owner / Plan::THREADS;
        match error {
            SegmentError::NotFound { .. } | SegmentError::Revoked { .. } => {}
            // It went between the lookup and the import.
            SegmentError::Region { .. } | SegmentError::Denied { .. }
                if what.starts_with("open") => {}
            SegmentError::PeerLost(lost, _) if lost.0 == host => self.ledger.lose(host),
            SegmentError::RackEnded | SegmentError::NotAttached => {
                let what = format!("cannot {what} {}: the rack has ended", name_of(owner));
                self.ledger.violations.push(what);
                return ControlFlow::Break(());
            }
            error => {
                violation(format!("cannot {what} {} of host {host}: {error:?}", name_of(owner)))
            }
        }
        ControlFlow::Continue(())
    }

    /// One random operation; `counts` has what the counters had last.
    fn operate(&mut self, segment: &RemoteSegment, counts: &mut BTreeMap<usize, u64>) -> Attempt {
        match self.rng.u32(..18) {
            0..3 => self.write(segment),
            3..6 => self.write_block(segment),
            6..9 => self.read(segment),
            9 => self.check_head(segment),
            10 => self.count(segment, counts),
            11 => self.swap(segment),
            12 => self.write_own(segment),
            13 => fence(segment),
            14 => beyond_the_end(segment),
            15 | 16 => self.read_record(segment, counts),
            _ => {
                self.pause();
                Ok(())
            }
        }
    }

    fn write(&mut self, segment: &RemoteSegment) -> Attempt {
        let (at, word) = (self.rng.usize(FREE), seal(self.rng.u32(..)));
        match self.rng.u32(..4) {
            0 => segment.at::<u64>(at).write_notify(&word),
            _ => segment.at::<u64>(at).write(&word),
        }
    }

    /// A random part of what all may write: mostly a small one, unless that is as fast.
    fn part(&mut self, segment: &RemoteSegment) -> Range<usize> {
        let large = if segment.is_mapped() { 8 } else { 2 };
        if self.rng.u32(..16) < large {
            return FREE;
        }
        let start = self.rng.usize(FREE);
        start..self.rng.usize(start..WORDS.min(start + 512)) + 1
    }

    fn write_block(&mut self, segment: &RemoteSegment) -> Attempt {
        let (part, word) = (self.part(segment), seal(self.rng.u32(..)));
        let bytes = word.to_ne_bytes().repeat(part.len());
        match self.rng.u32(..4) {
            0 => segment.write_block_notify(part.start * 8, &bytes),
            _ => segment.write_block(part.start * 8, &bytes),
        }
    }

    fn read(&mut self, segment: &RemoteSegment) -> Attempt {
        let part = if self.rng.u32(..16) == 0 { 0..WORDS } else { self.part(segment) };
        let mut bytes = vec![0; part.len() * 8];
        segment.read_block(part.start * 8, &mut bytes)?;
        match first_torn(words(&bytes), part.start) {
            Some((at, word)) if word == u64::from_ne_bytes([CANARY; 8]) => {
                violation(format!("word {at} of {segment:?} was read after it was revoked"));
            }
            Some((at, word)) => {
                violation(format!("word {at} of {segment:?} was read torn: {word:#018x}"));
            }
            None => {}
        }
        Ok(())
    }

    /// The segment is of the generation that it says.
    fn check_head(&mut self, segment: &RemoteSegment) -> Attempt {
        let head = segment.at::<u64>(0).read()?;
        expect(head == 0 || head == seal(segment.generation() + 1), || {
            format!("{segment:?} begins with {head:#018x}, which is of another generation")
        });
        Ok(())
    }

    /// Counters never go back.
    fn count(&mut self, segment: &RemoteSegment, counts: &mut BTreeMap<usize, u64>) -> Attempt {
        let (at, amount) = (self.rng.usize(COUNTERS), addend(self.rng.u32(1..100)));
        let old = match self.rng.u32(..4) {
            0 => segment.fetch_add_notify(at * 8, amount)?,
            _ => segment.fetch_add(at * 8, amount)?,
        };
        let least = counts.insert(at, old + amount).unwrap_or(0);
        expect(is_counter(old) && old >= least, || {
            format!("counter {at} of {segment:?} is {old:#018x} after {least:#018x}")
        });
        Ok(())
    }

    fn swap(&mut self, segment: &RemoteSegment) -> Attempt {
        let (at, new) = (self.rng.usize(FREE), seal(self.rng.u32(..)));
        let expected = segment.at::<u64>(at).read()?;
        let old = match self.rng.u32(..4) {
            0 => segment.compare_swap_notify(at * 8, expected, new)?,
            _ => segment.compare_swap(at * 8, expected, new)?,
        };
        expect(is_sealed(expected) && is_sealed(old), || {
            format!("word {at} of {segment:?} is torn: {expected:#018x}, then {old:#018x}")
        });
        Ok(())
    }

    /// A record is whole, and its versions never go back.
    fn read_record(
        &mut self,
        segment: &RemoteSegment,
        counts: &mut BTreeMap<usize, u64>,
    ) -> Attempt {
        for _ in 0..TORN {
            let record = match segment.record_at_byte::<Value>(RECORD.start * 8)?.read() {
                // Its owner may have been killed while it wrote, which a fence finds out.
                Err(SegmentError::Torn { .. }) => {
                    fence(segment)?;
                    continue;
                }
                record => record?,
            };
            let (version, value) = record.unwrap_or((0, value_of(0)));
            let last = counts.insert(RECORD.start, version).unwrap_or(0);
            expect(version >= last && value == value_of(version), || {
                format!("the record of {segment:?} has version {version} after {last}: {value:x?}")
            });
            return Ok(());
        }
        violation(format!("the record of {segment:?} stays torn"));
        Ok(())
    }

    /// A fenced write is visible: this importer is the only writer of the word.
    fn write_own(&mut self, segment: &RemoteSegment) -> Attempt {
        self.number += 1;
        let (word, before) = (seal(self.number), REFUSED.get());
        segment.at::<u64>(self.own).write(&word)?;
        fence(segment)?;
        let now = segment.at::<u64>(self.own).read()?;
        // Another fiber's fence may have been told of the refusal, another thread's of a plain one.
        if REFUSED.get() == before && !self.is_plain {
            expect(now == word, || {
                format!("{segment:?} has {now:#018x} where {word:#018x} was written and fenced")
            });
        }
        Ok(())
    }
}

fn fence(segment: &RemoteSegment) -> Attempt {
    let fenced = segment.fence();
    if fenced.is_err() {
        REFUSED.set(REFUSED.get() + 1);
    }
    fenced
}

/// What reaches beyond the end is refused, whatever else holds.
fn beyond_the_end(segment: &RemoteSegment) -> Attempt {
    match segment.write(LEN - 4, &[0xff; 8]) {
        Err(SegmentError::OutOfBounds { at, count: 8, len: LEN, .. }) if at == LEN - 4 => Ok(()),
        Ok(()) => {
            violation(format!("{segment:?} takes a write beyond its end"));
            Ok(())
        }
        Err(error) => Err(error),
    }
}
