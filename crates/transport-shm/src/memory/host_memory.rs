//! The control memory of a host: what every peer maps to wake its threads and to send them bulk
//! payloads and notifications.
//!
//! ```text
//!   thread 0 | thread 1 | ...   | ring (0, host 0, 0) | ring (0, host 0, 1) | ...
//!   \ THREAD_BYTES each         \ one per (receiving thread, sending host, sending thread)
//!
//!   thread:  +0    parker        u32, a park word (`transport_api::park_word`), the futex
//!            +128  attention   one bit per host: "poll the lane to it, something has come"
//!            +160  quiet       how often the thread has passed a quiet point (`quiet.rs`)
//!            +192  lanes       one bit per host: the thread has a lane to it
//!   thread 0 also:
//!            +224  revoking    how many revocations of this host wait for threads
//! ```
//!
//! Rings are address space until they are used: a pair of threads that never exchanges a payload
//! costs no memory.

use crate::{alarm, socket::timespec};
use primitive::{
    SharedBytes,
    limits::HOSTS,
    sync::{AtomicU32, AtomicU64, Ordering, fence},
};
use rustix::thread::futex;
use std::{os::fd::OwnedFd, sync::Arc};
use transport_api::{HostId, park_word::ParkWord};

const THREAD_BYTES: usize = 256;
const ATTENTION: usize = 128;
const QUIET: usize = 160;
const LANES: usize = 192;
const REVOKING: usize = 224;

/// Bytes before a ring's data (`ring.rs` says what is in them).
pub(crate) const RING_HEADER: usize = 512;

/// Bytes of data of a ring, at most.
const RING_BYTES: usize = 1 << 20;

/// Bytes of data of a ring, at least.
const RING_BYTES_LEAST: usize = 16 << 10;

/// Address space of all rings of a host, unless rings of the least size need more.
const RINGS_BYTES: usize = 64 << 30;

/// Words of attention bits.
const ATTENTION_WORDS: usize = HOSTS / 64;

/// Where things are in a host's control memory: the same on every host of a rack.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    hosts: usize,
    threads: usize,
    ring_bytes: usize,
}

impl Layout {
    pub(crate) fn new(hosts: u32, threads: u32) -> Self {
        let (hosts, threads) = (hosts as usize, threads as usize);
        let mut ring_bytes = RING_BYTES;
        while ring_bytes > RING_BYTES_LEAST && threads * threads * hosts * ring_bytes > RINGS_BYTES
        {
            ring_bytes /= 2;
        }
        Self { hosts, threads, ring_bytes }
    }

    /// Bytes of data of every ring: a power of two.
    pub(crate) fn ring_bytes(self) -> usize {
        self.ring_bytes
    }

    /// Where the ring begins through which `from` of host `host` sends to thread `to`.
    pub(crate) fn ring(self, to: u32, host: HostId, from: u32) -> usize {
        let index = (to as usize * self.hosts + host.0 as usize) * self.threads + from as usize;
        self.threads * THREAD_BYTES + index * (RING_HEADER + self.ring_bytes)
    }

    /// Bytes of the whole control memory.
    pub(crate) fn bytes(self) -> usize {
        let rings = self.threads * self.hosts * self.threads;
        self.threads * THREAD_BYTES + rings * (RING_HEADER + self.ring_bytes)
    }
}

/// How the threads of a host are woken.
#[derive(Clone)]
pub(crate) enum Waking {
    /// They sleep on the word of their parker.
    Futex(futex::Flags),
    /// They sleep elsewhere, and are rung at `ringing`, one for each. The host itself has the other
    /// ends in `waiting`; of a peer it is empty.
    Alarms { ringing: Arc<[OwnedFd]>, waiting: Arc<[OwnedFd]> },
}

impl Waking {
    /// By this process alone.
    pub(crate) const PRIVATE: Self = Self::Futex(futex::Flags::PRIVATE);
    /// By other processes, too.
    pub(crate) const SHARED: Self = Self::Futex(futex::Flags::empty());
}

/// One host's control memory, as its owner and its peers see it.
#[derive(Clone)]
pub(crate) struct Control {
    memory: SharedBytes,
    waking: Waking,
}

impl Control {
    pub(crate) fn new(memory: SharedBytes, waking: Waking) -> Self {
        Self { memory, waking }
    }

    pub(crate) fn memory(&self) -> &SharedBytes {
        &self.memory
    }

    #[inline]
    fn parker(&self, thread: u32) -> &AtomicU32 {
        self.memory.word32(thread as usize * THREAD_BYTES)
    }

    /// The park word of `thread`.
    pub(crate) fn park_word(&self, thread: u32) -> ParkWord<'_> {
        ParkWord::new(self.parker(thread))
    }

    /// Where `thread` of this host waits to be woken, if it does not sleep on its parker.
    pub(crate) fn alarm(&self, thread: u32) -> Option<&OwnedFd> {
        match &self.waking {
            Waking::Alarms { waiting, .. } => waiting.get(thread as usize),
            Waking::Futex(_) => None,
        }
    }

    /// Wakes `thread` if it sleeps: a fence and a load if it does not.
    #[inline]
    pub(crate) fn wake(&self, thread: u32) {
        if self.park_word(thread).must_wake() {
            self.wake_now(thread);
        }
    }

    /// Wakes `thread` whatever its parker says: somebody who owed it a wake may have died.
    #[cold]
    pub(crate) fn wake_now(&self, thread: u32) {
        self.park_word(thread).cancel();
        match &self.waking {
            // The only failure is a bad address, and the mapping is ours.
            Waking::Futex(flags) => drop(futex::wake(self.parker(thread), *flags, 1)),
            Waking::Alarms { ringing, .. } => alarm::ring(&ringing[thread as usize]),
        }
    }

    /// Sleeps as `thread` on its parker until woken, unless `ready`.
    pub(crate) fn park(
        &self,
        thread: u32,
        timeout: std::time::Duration,
        ready: impl FnOnce() -> bool,
    ) {
        // Who is woken by an alarm does not sleep here.
        let Waking::Futex(flags) = self.waking else { return };
        let timeout = timespec(timeout);
        self.park_word(thread).park(ready, |parker, expected| {
            // Woken, timed out, interrupted or too late to sleep: the caller looks again anyway.
            let _ = futex::wait(parker, flags, expected, Some(&timeout));
        });
    }

    fn attention(thread: u32, host: HostId) -> (usize, u64) {
        let word = thread as usize * THREAD_BYTES + ATTENTION + host.0 as usize / 64 * 8;
        (word, 1 << (host.0 % 64))
    }

    /// Asks `thread` to look after its lane to `host`. What it is to see must have been written
    /// before; whoever clears the bit sees it.
    pub(crate) fn ask(&self, thread: u32, host: HostId) {
        let (word, bit) = Self::attention(thread, host);
        self.memory.word(word).fetch_or(bit, Ordering::AcqRel);
    }

    /// Whether `thread` has been asked to look after its lane to `host`.
    #[inline]
    pub(crate) fn asked(&self, thread: u32, host: HostId) -> bool {
        let (word, bit) = Self::attention(thread, host);
        self.memory.load(word, Ordering::Relaxed) & bit != 0
    }

    /// Takes the request of [`ask`](Self::ask) back, before following it.
    pub(crate) fn take(&self, thread: u32, host: HostId) {
        let (word, bit) = Self::attention(thread, host);
        self.memory.word(word).fetch_and(!bit, Ordering::AcqRel);
    }

    /// Whether `thread` has been asked to look after any lane that it has.
    pub(crate) fn asked_any(&self, thread: u32) -> bool {
        let first = thread as usize * THREAD_BYTES;
        (0..ATTENTION_WORDS).any(|i| {
            let lanes = self.memory.load(first + LANES + i * 8, Ordering::Relaxed);
            self.memory.load(first + ATTENTION + i * 8, Ordering::Relaxed) & lanes != 0
        })
    }

    fn lane(thread: u32, host: HostId) -> (usize, u64) {
        let word = thread as usize * THREAD_BYTES + LANES + host.0 as usize / 64 * 8;
        (word, 1 << (host.0 % 64))
    }

    /// `thread` of this host has a lane to `host` from now on.
    pub(crate) fn add_lane(&self, thread: u32, host: HostId) {
        let (word, bit) = Self::lane(thread, host);
        self.memory.word(word).fetch_or(bit, Ordering::AcqRel);
        // A revocation either sees the lane and waits for it, or is seen by its first operation.
        fence(Ordering::SeqCst);
    }

    /// The lane of `thread` to `host` starts nothing any more, and has nothing to report.
    pub(crate) fn remove_lane(&self, thread: u32, host: HostId) {
        let (word, bit) = Self::lane(thread, host);
        self.memory.word(word).fetch_and(!bit, Ordering::AcqRel);
    }

    /// Whether `thread` has a lane to `host`; if it has not, what it did there has taken effect.
    pub(crate) fn has_lane(&self, thread: u32, host: HostId) -> bool {
        let (word, bit) = Self::lane(thread, host);
        self.memory.load(word, Ordering::Acquire) & bit != 0
    }

    /// `thread`, which calls this, has no operation under way.
    pub(crate) fn pass_quiet_point(&self, thread: u32) {
        let word = self.memory.word(thread as usize * THREAD_BYTES + QUIET);
        word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// How often `thread` has passed a quiet point.
    pub(crate) fn quiet_points(&self, thread: u32) -> u64 {
        self.memory.load(thread as usize * THREAD_BYTES + QUIET, Ordering::Acquire)
    }

    /// How many revocations of this host wait for threads.
    pub(crate) fn revoking(&self) -> &AtomicU64 {
        self.memory.word(REVOKING)
    }
}
